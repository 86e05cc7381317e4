"""Nodes of a run with all values of its discrete sites, as those of a model without any."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import pyro.distributions as dist
import torch
from torch import Tensor

from bnnzoo.core.discrete.elimination import Factor, aligned
from bnnzoo.core.discrete.enumeration import Enumerated
from bnnzoo.core.discrete.factor_graph import FactorGraph, plates_around
from bnnzoo.core.likelihood.conditional import moments
from bnnzoo.core.likelihood.marginal_sites import Marginal, mixture_moments
from bnnzoo.core.program.sites import is_factor

__all__ = ["summed_out"]

type Node = dict[str, Any]

MANY_OUTCOMES = 16
"""Observed sites of one group beyond which no moments are given: each takes a sum of its own."""


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
        prior = _cached(partial(_term, graph, [n for n in group if n not in seen]))
        whole = _cached(partial(_term, graph, group))
        _put(out, graph, latent, _cached(partial(_given, graph, prior, None)), latent)
        _put(out, graph, seen, _cached(partial(_given, graph, whole, prior if latent else None)), latent)
        for name in seen[1:]:
            model.absorbed.add(name)
            if is_factor(nodes[name]):
                del out[name]
    return out


def _cached[Value](function: Callable[[], Value]) -> Callable[[], Value]:
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
        # without dimensions of discrete sites; a placeholder has the shape of the distribution
        outcome, event = node["value"], node["fn"].event_dim
        while outcome.ndim - event > graph.depth:
            outcome = outcome[0]
        shape = outcome.shape[: outcome.ndim - event] or node["fn"].batch_shape[-graph.depth :]
        batch = shape if graph.depth else torch.Size()
        compute = _moments_of(graph, node, batch, graph.depth, latent, len(own))
        fn = Marginal(node["fn"], term if place == 0 else partial(_none, term), batch, compute)
        out[name] = {**node, "fn": fn, "value": outcome, "mask": None}


def _none(term: Callable[[], Tensor]) -> Tensor:
    return torch.zeros_like(term())


def _moments_of(
    graph: FactorGraph, node: Node, batch: torch.Size, depth: int, latent: Iterable[str], num_outcomes: int
) -> Callable[[], dict[str, Tensor]]:
    """Return a function for the moments of a site, averaged over discrete ones before anything is observed."""
    shape, numbers, continuous = node["fn"].batch_shape, node["infer"]["_dim_to_id"], tuple(latent)
    plates = {graph.dims[name]: name for name in plates_around(node)}

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
