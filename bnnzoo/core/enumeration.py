"""Models with discrete latent variables of finite support, which are summed out of the density exactly."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial, update_wrapper
from typing import Any

import pyro.distributions as dist
import torch
from pyro import poutine
from pyro.poutine.enum_messenger import EnumMessenger
from pyro.poutine.messenger import Messenger
from torch import Tensor

from bnnzoo.core.conditional import moments
from bnnzoo.core.elimination import Factor, Variable, aligned, eliminate
from bnnzoo.core.marginal_sites import Marginal, mixture_moments
from bnnzoo.core.repeated import Memory, alike, log_densities
from bnnzoo.core.sites import ModelError, innermost, is_deterministic, is_factor, is_subsample
from bnnzoo.core.types import Model

__all__ = [
    "Enumerated",
    "FactorGraph",
    "cached",
    "continuous",
    "enumerated",
    "in_parallel",
    "is_enumerated",
    "marked",
    "plain",
    "summed_out",
    "with_values",
]

type Node = dict[str, Any]

MAX_DIMS = 48
"""Dimensions of enumeration that live at once; torch's tensors have at most 64."""

SAME_VALUES = (dist.Bernoulli, dist.Binomial, dist.Categorical, dist.OneHotCategorical)
"""Families whose values are known from their number."""

MEMORY = "_bnnzoo_memory"
"""Marks a discrete site with the memory of the run that it belongs to."""

MANY_OUTCOMES = 16
"""Observed sites of one group beyond which no moments are given: each takes a sum of its own."""


@dataclass(eq=False)
class Enumerated:
    """A model whose finite discrete latent sites are summed out wherever its density is evaluated.

    Called, it is the model itself.

    Attributes
    ----------
    model : callable
    discrete : tuple of str
        Names of the sites that are summed out.
    depth : int
        Dimensions on the right that belong to plates, or to batches of distributions outside of plates.
    latent : tuple of str
        Names of the continuous latent sites: the sum is possible where all of them are known.
    absorbed : set of str
        Observed sites and factors whose density is part of another site's term.
    dependent : set of str
        Deterministic sites that depend on discrete ones.
    """

    model: Model
    discrete: tuple[str, ...]
    depth: int
    latent: tuple[str, ...]
    absorbed: set[str] = field(default_factory=set)
    dependent: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        update_wrapper(self, self.model, updated=())  # its name and its arguments

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model."""
        return self.model(*args, **kwargs)


def enumerated(model: Model) -> Enumerated | None:
    """Return a model as one whose discrete sites are summed out; None if it has none."""
    return model if isinstance(model, Enumerated) else None


def plain(model: Model) -> Model:
    """Return the user's own model."""
    return model.model if isinstance(model, Enumerated) else model


class _InParallel(EnumMessenger):
    """Give discrete sites all of their values at once, along dimensions of their own.

    In distinction to Pyro's handler, it takes every site that is named, and reads no values where ``vmap`` forbids it.
    """

    def __init__(self, model: Enumerated) -> None:
        super().__init__(first_available_dim=-1 - model.depth)
        self.model, self.memory = model, Memory()

    def _pyro_sample(self, msg: Node) -> None:
        if msg["name"] in self.model.discrete and not msg["is_observed"]:
            msg["infer"].update(enumerate="parallel", num_samples=None, expand=False)
        super()._pyro_sample(msg)
        dim = msg["infer"].get("_enumerate_dim")
        if dim is None:
            return
        msg["infer"][MEMORY] = self.memory
        family = type(innermost(msg["fn"]))
        if family in SAME_VALUES:
            self.memory.same(msg["value"], ("values", family, tuple(msg["value"].shape)))
        if -dim - self.model.depth > MAX_DIMS:
            raise ModelError(
                f"Site {msg['name']!r} is one of more than {MAX_DIMS} discrete sites that may depend on one another, which is "
                f"2**{MAX_DIMS} joint states or more. Write independent rows as with pyro.plate('rows', n): and not as a loop, "
                f"and steps of time as for t in pyro.markov(range(n)):, each of which depends on the one before."
            )

    def _pyro_post_sample(self, msg: Node) -> None:
        value = msg["value"]
        if not isinstance(value, Tensor) or not hasattr(msg["fn"], "event_dim"):
            return
        shape = value.shape[: value.ndim - msg["fn"].event_dim]
        dim_to_id = msg["infer"].setdefault("_dim_to_id", {})
        dim_to_id.update(self._param_dims.get(msg["name"], {}))
        self._value_dims[msg["name"]] = {
            dim: number for dim, number in dim_to_id.items() if len(shape) >= -dim and shape[dim] > 1
        }


class _Same(Messenger):
    """Give the continuous latent sites the values that they had in another run."""

    def __init__(self, model: Enumerated, nodes: Mapping[str, Node]) -> None:
        super().__init__()
        self.values = {name: nodes[name]["value"] for name in model.latent}

    def _pyro_sample(self, msg: Node) -> None:
        if msg["name"] in self.values:
            msg["value"], msg["done"] = self.values[msg["name"]], True


@dataclass(frozen=True)
class _Once:
    """A model whose equal operations are carried out once."""

    model: Model
    memory: Memory

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with self.memory:
            return self.model(*args, **kwargs)


def continuous(model: Model) -> Model:
    """Return a model without its discrete sites, as the guides of Pyro see it."""
    if not isinstance(model, Enumerated):
        return model
    rest: Model = poutine.block(model, hide=list(model.discrete))
    return rest


def marked(model: Model) -> Model:
    """Return a model whose discrete sites are marked for Pyro's own enumeration."""
    if not isinstance(model, Enumerated):
        return model

    def config(site: Node) -> dict[str, Any]:
        is_discrete = site["name"] in model.discrete and not site["is_observed"]
        return {"enumerate": "parallel", "expand": False} if is_discrete else {}

    found: Model = poutine.infer_config(model, config_fn=config)
    return found


def in_parallel(model: Enumerated) -> Model:
    """Return the model as it is run with all values of its discrete sites at once."""
    handler = _InParallel(model)
    parallel: Model = handler(_Once(model.model, handler.memory))
    return parallel


def with_values(model: Enumerated, nodes: Mapping[str, Node]) -> Model:
    """Return the model as it is run with all values of its discrete sites, and the continuous ones of another run."""
    same: Model = _Same(model, nodes)(in_parallel(model))
    return same


def is_enumerated(message: Node) -> bool:
    """Tell whether a site has all of its values at once."""
    return "_enumerate_dim" in (message["infer"] or {})


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
                graph.variables[number] = Variable(node["name"], len(support), _plates(node))
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
        return frozenset(node["infer"]["_dim_to_id"][dim] for dim in dims if dim < -self.depth)

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
        plates = {self.dims[name]: name for name in _plates(node)}
        names: list[str | int] = []
        outside = []
        for dim in range(-value.ndim + (place is not None), 0):
            if value.shape[dim] > 1 and dim < -self.depth:
                names.append(node["infer"]["_dim_to_id"][dim])
            elif value.shape[dim] > 1 and dim in plates:
                names.append(plates[dim])
                self.sizes[plates[dim]] = max(self.sizes[plates[dim]], value.shape[dim])
            else:
                outside.append(dim)  # a batch outside of plates is one event
        value = value.sum(outside) if outside else value
        return Factor(value, tuple(names), _plates(node), frozenset({node["name"]}), place)

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


def memory_of(nodes: Mapping[str, Node]) -> Memory:
    """Return the memory of the run that left nodes behind."""
    return next(node["infer"][MEMORY] for node in nodes.values() if is_enumerated(node))


def _plates(node: Node) -> frozenset[str]:
    return frozenset(frame.name for frame in node["cond_indep_stack"] if frame.dim is not None)


def summed_out(model: Enumerated, nodes: Mapping[str, Node], observed: Iterable[str] = ()) -> dict[str, Node]:
    """Return the nodes of a run with all values as those of a model without discrete sites.

    Each group of sites that share discrete ones has one term. It is that of the first observed site or factor, or of the first
    latent site if there are none. Where both are in a group, the latent sites have their marginal density, and the observed one
    what it is given them. Deterministic sites that depend on discrete ones are left out: they have one value given each.

    Parameters
    ----------
    model : Enumerated
    nodes : mapping of str to node
    observed : iterable of str
        Sites that count as observed, beside those that are.
    """
    graph, out = FactorGraph.of(model, nodes), {n: node for n, node in nodes.items() if n not in model.discrete}
    out = {name: node for name, node in out.items() if name not in model.dependent}
    for group in graph.groups():
        seen = [n for n in group if n in observed or nodes[n]["is_observed"]]
        latent = [n for n in group if n not in seen and n not in model.discrete]
        prior = cached(partial(_term, graph, [n for n in group if n not in seen]))
        whole = cached(partial(_term, graph, group))
        _put(out, graph, latent, cached(lambda prior=prior: graph.as_term(prior())), latent)
        _put(out, graph, seen, cached(partial(_given, graph, whole, prior if latent else None)), latent)
        for name in seen[1:]:
            model.absorbed.add(name)
            if is_factor(nodes[name]):
                del out[name]
    return out


def cached[Value](function: Callable[[], Value]) -> Callable[[], Value]:
    """Return a function without arguments that is called at most once."""
    return lru_cache(maxsize=1)(function)


def _term(graph: FactorGraph, names: list[str]) -> Factor:
    """Return the log of a sum over discrete sites; parts without a common variable are multiplied over what they do not share."""
    parts = graph.summed(names)
    common = frozenset.intersection(*(part.plates for part in parts))
    whole = parts[0]
    if len(parts) == 1:
        return whole
    ordered = tuple(sorted(common & {name for part in parts for name in part.names if isinstance(name, str)}))
    empty = Factor(whole.value.new_zeros((1,) * len(ordered)), ordered, common, frozenset())
    return replace(empty, whole=sum((_within(part, empty, graph) for part in parts), empty.value))


def _given(graph: FactorGraph, whole: Callable[[], Factor], prior: Callable[[], Factor] | None) -> Tensor:
    """Return the term of what is observed, given the latent sites of its group."""
    total = whole()
    if prior is None:
        return graph.as_term(total)
    return graph.as_term(replace(total, whole=total.value - _within(prior(), total, graph)))


def _within(part: Factor, whole: Factor, graph: FactorGraph) -> Tensor:
    """Return a part multiplied over plates that the whole does not have, in the dimensions of the whole."""
    inner = [name for name in part.names if name not in whole.names]
    value = aligned(part, [*whole.names, *inner])
    repeats = math.prod(graph.sizes[p] for p in part.plates - whole.plates if p not in part.names)
    return repeats * (value.sum(list(range(-len(inner), 0))) if inner else value)


def _put(
    out: dict[str, Node], graph: FactorGraph, own: list[str], term: Callable[[], Tensor], latent: Iterable[str]
) -> None:
    """Give the first of some sites their term, and the others none."""
    for place, name in enumerate(own):
        node = out[name]
        if is_factor(node):
            out[name] = {**node, "fn": dist.Unit(term()), "mask": None, "value": term().new_empty((*term().shape, 0))}
            continue
        outcome, batch = _without_components(node, graph.depth)
        compute = _moments_of(graph, node, batch, graph.depth, latent, len(own))
        fn = Marginal(node["fn"], term if place == 0 else partial(_none, term), batch, compute)
        out[name] = {**node, "fn": fn, "value": outcome, "mask": None}


def _none(term: Callable[[], Tensor]) -> Tensor:
    return torch.zeros_like(term())


def _without_components(node: Node, depth: int) -> tuple[Tensor, torch.Size]:
    """Return the value of a site, and the batch shape of its distribution, without dimensions of discrete sites."""
    value, event = node["value"], node["fn"].event_dim
    while value.ndim - event > depth:  # a placeholder has the shape of the distribution
        value = value[0]
    batch = value.shape[: value.ndim - event] or node["fn"].batch_shape[-depth:] if depth else torch.Size()
    return value, batch


def _moments_of(
    graph: FactorGraph, node: Node, batch: torch.Size, depth: int, latent: Iterable[str], num_outcomes: int
) -> Callable[[], dict[str, Tensor]]:
    """Return a function for the moments of a site, averaged over discrete ones before anything is observed."""
    shape, numbers, continuous = node["fn"].batch_shape, node["infer"]["_dim_to_id"], tuple(latent)
    plates = {graph.dims[name]: name for name in _plates(node)}

    def compute() -> dict[str, Tensor]:
        left = range(-len(shape), -depth)
        kept = frozenset(numbers[dim] for dim in left if shape[dim] > 1)
        weights = graph.weights(kept, continuous) if num_outcomes <= MANY_OUTCOMES else None
        if weights is None:
            return {}
        names = [numbers.get(dim, "") if dim in left else plates.get(dim, "") for dim in range(-len(shape), 0)]
        probability = aligned(weights, names).exp()

        def weight(values: Tensor) -> Tensor:
            return probability.reshape(probability.shape + (1,) * (values.ndim - probability.ndim))

        found = mixture_moments(moments(node["fn"]), weight, len(left))
        return {key: value.reshape(batch + value.shape[len(shape) - len(left) :]) for key, value in found.items()}

    return compute
