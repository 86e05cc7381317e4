"""The log densities of one run of a model with all values of its discrete sites, as factors with named dimensions."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from torch import Tensor

from bnnzoo.core.discrete.elimination import Factor, Variable, aligned, eliminate
from bnnzoo.core.discrete.enumeration import Enumerated, is_enumerated, memory_of
from bnnzoo.core.discrete.repeated import Memory, alike, log_densities
from bnnzoo.core.program.sites import ModelError, is_deterministic, is_factor, is_subsample

__all__ = ["FactorGraph", "plates_around"]

type Node = dict[str, Any]


@dataclass(frozen=True)
class FactorGraph:
    """The sites of one run with all values of the discrete sites whose log densities depend on any of them.

    Attributes
    ----------
    depth : int
        Dimensions on the right that belong to plates.
    nodes : dict of str to node
    variables : dict of int to Variable
    supports : dict of int to Tensor
        Values of each variable, ``[size, *event]``.
    sizes, dims : dict of str to int
        Sizes and dimensions of the plates.
    memory : Memory
        Of the operations of the run.
    """

    depth: int
    nodes: dict[str, Node]
    variables: dict[int, Variable]
    supports: dict[int, Tensor]
    sizes: dict[str, int]
    dims: dict[str, int]
    memory: Memory

    @classmethod
    def of(cls, model: Enumerated, nodes: Mapping[str, Node]) -> "FactorGraph":
        """Read the trace of a run with all values."""
        graph = cls(model.depth, {}, {}, {}, {}, {}, memory_of(nodes))
        samples = [node for node in nodes.values() if node["type"] == "sample" and not is_subsample(node)]
        for node in samples:
            for frame in node["cond_indep_stack"]:
                if frame.dim is not None:
                    graph.dims[frame.name] = frame.dim
                    graph.sizes[frame.name] = max(graph.sizes.get(frame.name, 1), frame.size)
            if is_enumerated(node):
                support, event = node["value"], node["fn"].event_dim
                support = support.reshape(-1, *support.shape[support.ndim - event :])
                number = graph.own(node)
                graph.supports[number] = support
                graph.variables[number] = Variable(node["name"], len(support), plates_around(node))
            if not is_deterministic(node) and (is_enumerated(node) or graph.variables_of(node)):
                graph.nodes[node["name"]] = node
        return graph

    @staticmethod
    def own(node: Node) -> int:
        """Return the number of the variable that a discrete site is."""
        number: int = node["infer"]["_dim_to_id"][node["infer"]["_enumerate_dim"]]
        return number

    def variables_of(self, node: Node) -> frozenset[int]:
        """Return the variables between whose values a site's distribution or value differs."""
        event, value = node["fn"].event_dim, node["value"]
        shapes = [node["fn"].log_factor.shape] if is_factor(node) else [node["fn"].batch_shape]
        if isinstance(value, Tensor) and not is_factor(node):
            shapes.append(value.shape[: value.ndim - event])
        dims = {-place for shape in shapes for place, size in enumerate(reversed(shape), 1) if size > 1}
        return frozenset(_variable_along(node, dim) for dim in dims if dim < -self.depth)

    @cached_property
    def factors(self) -> dict[str, Factor]:
        """The masked log density of each site, without its scale."""
        found = {}
        with self.memory:
            for names in alike(self.nodes, self.memory):
                nodes = [self.nodes[name] for name in names]
                parts = log_densities(nodes, self.memory, self._absent)
                for node, (value, place) in zip(nodes, parts, strict=True):
                    found[node["name"]] = self._factor(node, value, place)
        return {name: found[name] for name in self.nodes}

    def _absent(self, node: Node) -> float:
        """Return the log density of a site that is masked, which has no say: each of its values is as probable."""
        return -math.log(self.variables[self.own(node)].size) if is_enumerated(node) else 0.0

    def _factor(self, node: Node, value: Tensor, place: int | None) -> Factor:
        """Return one of several log densities ``value[T, ...]`` with names for its dimensions, or a single one."""
        plates = {self.dims[name]: name for name in plates_around(node)}
        names: list[str | int] = []
        outside = []
        for dim in range(-value.ndim + (place is not None), 0):
            if value.shape[dim] > 1 and dim < -self.depth:
                names.append(_variable_along(node, dim))
            elif value.shape[dim] > 1 and dim in plates:
                names.append(plates[dim])
                self.sizes[plates[dim]] = max(self.sizes[plates[dim]], value.shape[dim])
            else:
                outside.append(dim)  # a batch outside of plates is one event
        value = value.sum(outside) if outside else value
        return Factor(value, tuple(names), plates_around(node), frozenset({node["name"]}), place)

    def groups(self) -> list[list[str]]:
        """Return the sites that share variables, directly or by others."""
        found: list[tuple[set[str], set[int]]] = []
        for name, node in self.nodes.items():
            sites, numbers = {name}, set(self.variables_of(node)) | ({self.own(node)} if is_enumerated(node) else set())
            for group in [group for group in found if group[1] & numbers]:
                found.remove(group)
                sites |= group[0]
                numbers |= group[1]
            found.append((sites, numbers))
        return [[name for name in self.nodes if name in sites] for sites, _ in found]

    def summed(self, names: Iterable[str]) -> list[Factor]:
        """Sum the product of the named sites' factors over the discrete sites; return one factor for each group."""
        return eliminate([self.factors[name] for name in names], self.variables, self.sizes, chains=True).factors

    def weights(self, kept: frozenset[int], continuous: Iterable[str]) -> Factor | None:
        """Return the log probabilities of the kept variables before anything is observed; None where they are not at hand."""
        needed, numbers = set(kept), {v.site: number for number, v in self.variables.items()}
        while (
            more := {v for name, number in numbers.items() if number in needed for v in self.factors[name].variables}
            - needed
        ):
            needed |= more
        if any(self.variables_of(self.nodes[name]) & needed for name in continuous):
            return None
        everywhere: frozenset[str] = frozenset()
        own = [self.factors[name] for name, number in numbers.items() if number in needed]
        factors = [replace(factor, plates=everywhere) for factor in own]
        variables = {number: replace(self.variables[number], plates=everywhere) for number in needed}
        found = eliminate(factors, variables, self.sizes, keep=kept).factors
        return next(factor for factor in found if factor.variables)

    def as_term(self, factor: Factor) -> Tensor:
        """Return a factor without variables with its plates where the model has them, but for outer ones that it lacks."""
        present = sorted((self.dims[name], name) for name in factor.plates)
        while present and self.sizes[present[-1][1]] > 1 and present[-1][1] not in factor.names:
            present.pop()
        value = aligned(factor, [name for _, name in present])
        depth = -min((dim for dim, _ in present), default=0)
        for dim in range(-depth, 0):
            if dim not in {each for each, _ in present} and any(each > dim for each, _ in present):
                value = value.unsqueeze(dim)
        return value


def plates_around(node: Node) -> frozenset[str]:
    """Return the names of the plates with a dimension around a site."""
    return frozenset(frame.name for frame in node["cond_indep_stack"] if frame.dim is not None)


def _variable_along(node: Node, dim: int) -> int:
    """Return the variable whose values lie along a dimension of a site."""
    numbers: dict[int, int] = node["infer"]["_dim_to_id"]
    if dim not in numbers:
        raise ModelError(
            f"Site {node['name']!r} has an axis ({dim}) that belongs to no plate and to no discrete site, where all values "
            f"of the discrete sites are tried at once. Their values bring axes of their own on the left: write z, and neither "
            f"z.unsqueeze(-1) nor z[..., None], and compare it with torch.arange(n) within a plate of n rows."
        )
    return numbers[dim]
