"""Models that can be summed over their discrete sites: the test that all values at once mean the same as one."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from bnnzoo.core.discrete.elimination import at_values
from bnnzoo.core.discrete.enumeration import Enumerated
from bnnzoo.core.discrete.factor_graph import FactorGraph
from bnnzoo.core.program.sites import ModelError, innermost, is_deterministic, is_factor, is_observation, is_subsample
from bnnzoo.core.types import Model
from bnnzoo.engine.failures import is_numerical

__all__ = ["discrete_sites", "explaining_enumeration", "refuse_disagreement", "summing"]

type Node = dict[str, Any]

MAX_NUMBERS = 2**25
"""In a tensor of a run with all values of the discrete sites."""

TOLERANCE = {torch.float32: 1e-3}
"""Relative difference of a log density that is no rounding."""


def discrete_sites(nodes: Iterable[Node]) -> tuple[str, ...]:
    """Return the latent sites of finite support: those over whose values a density can be summed.

    Raises
    ------
    ModelError
        For a site whose values cannot be listed, and for a batch of them that is not a plate.
    """
    found, nodes = [], list(nodes)
    for node in nodes:
        if node["type"] != "sample" or node["is_observed"] or is_subsample(node) or is_factor(node):
            continue
        name, distribution = node["name"], node["fn"]
        if not distribution.support.is_discrete:
            continue
        kind = type(innermost(distribution)).__name__
        if not innermost(distribution).has_enumerate_support:
            is_seen = any(map(is_observation, nodes))
            hint = "" if is_seen else "If it is the outcome, pass its values too, as in prior_predictive(model, x, y). "
            raise ModelError(
                f"Latent site {name!r} is discrete ({kind}) with infinitely many values, and a density can be summed over "
                f"finitely many only. {hint}Take a family with an end, such as Binomial or Categorical up to a largest value, "
                f"integrate the site out by hand, or pass it as data."
            )
        try:
            size = len(distribution.enumerate_support(expand=False))
        except NotImplementedError as error:
            inner = innermost(distribution).enumerate_support(expand=False)
            entries = node["value"].numel()
            raise ModelError(
                f"Latent site {name!r} is one vector of {entries} discrete values ({kind}), which has {len(inner)}**{entries} "
                f"joint states. Leave .to_event() out and put its entries into a plate: "
                f"with pyro.plate('{name}_plate', {entries})."
            ) from error
        dims = {frame.dim for frame in node["cond_indep_stack"]}
        shape = node["fn"].batch_shape
        loose = {dim: shape[dim] for dim in range(-len(shape), 0) if shape[dim] > 1 and dim not in dims}
        if loose:
            count = math.prod(loose.values())
            raise ModelError(
                f"Latent site {name!r} holds {count} discrete values outside of a plate, which may depend on one another: "
                f"{size}**{count} joint states. Where they do not, write with pyro.plate('{name}_plate', {count}): around it."
            )
        found.append(name)
    return tuple(found)


def summing(model: Model, nodes: Mapping[str, Node]) -> Enumerated | None:
    """Return a model whose discrete sites are summed out, given its first run; None if it has none."""
    if isinstance(model, Enumerated):
        return None
    discrete = discrete_sites(nodes.values())
    if not discrete:
        return None
    samples = [node for node in nodes.values() if node["type"] == "sample" and not is_subsample(node)]
    plates = [-frame.dim for node in samples for frame in node["cond_indep_stack"] if frame.dim is not None]
    depth = max([0, *plates, *(len(node["fn"].batch_shape) for node in samples)])
    latent = tuple(node["name"] for node in samples if not node["is_observed"] and node["name"] not in discrete)
    return Enumerated(model, discrete, depth, latent)


@contextmanager
def explaining_enumeration(model: Enumerated, reached: Callable[[], str]) -> Iterator[None]:
    """Say what to write where a model that runs with one value of its discrete sites fails with all of them.

    Raises
    ------
    ModelError
        Naming the site that was reached.
    """
    try:
        with _Bounded(model):
            yield
    except ModelError:
        raise
    except (RuntimeError, ValueError, IndexError, TypeError, NotImplementedError, AssertionError, KeyError) as error:
        if is_numerical(error):
            raise
        reason = str(error).strip().partition("\n")[0]
        raise ModelError(
            f"The model cannot be run with all values of {_listed(model.discrete)} at once, at or after site {reached()!r} "
            f"({type(error).__name__}: {reason}). The values come along further axes on the left, as in Pyro's parallel "
            f"enumeration: index by pyro.ops.indexing.Vindex(p)[..., z, :] and not p[z, x], reduce over negative axes, choose by "
            f"torch.where and not by if, and put rows into pyro.plate."
        ) from error


class _Bounded(TorchFunctionMode):
    """Refuse tensors of so many joint states that the next ones would not fit into memory."""

    def __init__(self, model: Enumerated) -> None:
        super().__init__()
        self.model = model

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if isinstance(found, Tensor) and found.numel() > MAX_NUMBERS:
            raise ModelError(
                f"The values of {_listed(self.model.discrete)} are combined into {found.numel():.3g} joint states or more, which "
                f"cannot be held. Let each site depend on few others: put independent rows into pyro.plate, steps of time into "
                f"pyro.markov, and replace a sum of many such sites by its own distribution, such as Binomial."
            )
        return found


def refuse_disagreement(model: Enumerated, single: Mapping[str, Node], together: Mapping[str, Node]) -> None:
    """Refuse a model whose terms with all values of the discrete sites are not those with one value each.

    Parameters
    ----------
    model : Enumerated
    single, together : mapping of str to node
        Runs with the same continuous values: with discrete values drawn, and with all of them.

    Raises
    ------
    ModelError
        Naming the site, and what to write instead.
    """
    for name, node in single.items():
        if node["type"] == "sample" and is_deterministic(node):
            one, other = node["value"], together[name]["value"]
            if one.shape != other.shape or not torch.equal(one, other):
                model.dependent.add(name)
    graph = FactorGraph.of(model, together)
    factors = graph.factors
    drawn = {number: _place(graph, number, single[variable.site]) for number, variable in graph.variables.items()}
    for name, factor in factors.items():
        if name in model.discrete and single[name]["mask"] is not None:
            continue  # which has a constant for a density
        found = float(at_values(factor, drawn, graph.sizes)[0].sum().detach())
        node = single[name]
        value = node["fn"].log_prob(node["value"], *node["args"], **node["kwargs"])
        if node["mask"] is not None:
            value = torch.where(torch.as_tensor(node["mask"]), value, 0.0)
        expected = float(value.sum().detach())
        tolerance = TOLERANCE.get(value.dtype, 1e-8) * (1.0 + abs(expected))
        if math.isfinite(expected) and not abs(found - expected) <= tolerance:
            raise ModelError(
                f"Site {name!r} has log density {found:.6g} where all values of {_listed(model.discrete)} are tried at once, and "
                f"{expected:.6g} where the same values are drawn. The values come along further axes on the left: index by "
                f"pyro.ops.indexing.Vindex(p)[..., z, :], and reduce over negative axes. Rows of a plate must not depend on the "
                f"discrete values of other rows."
            )
    for group in graph.groups():
        first = graph.nodes[group[0]]["scale"]
        for name in group[1:]:
            scale = graph.nodes[name]["scale"]
            one, other = (torch.as_tensor(each, dtype=torch.float64) for each in (first, scale))
            if not (torch.broadcast_tensors(one, other)[0] == torch.broadcast_tensors(one, other)[1]).all():
                raise ModelError(
                    f"poutine.scale weighs site {name!r} otherwise than {group[0]!r}, and a discrete site joins both into one "
                    f"sum. Put the scale around all of {_listed(group)}, or leave it out."
                )


def _place(graph: FactorGraph, number: int, node: Node) -> tuple[Tensor, tuple[str, ...]]:
    """Return the places of a site's drawn values among all of them, and the plates of the dimensions."""
    value, support, event = node["value"].detach(), graph.supports[number], node["fn"].event_dim
    same = value.unsqueeze(value.ndim - event) == support
    place = (same.flatten(same.ndim - event).all(-1) if event else same).long().argmax(-1)
    dims = sorted((graph.dims[name], name) for name in graph.variables[number].plates)
    kept = [(dim, name) for dim, name in dims if place.ndim >= -dim and place.shape[dim] > 1]
    return place.reshape([place.shape[dim] for dim, _ in kept]), tuple(name for _, name in kept)


def _listed(names: Iterable[str]) -> str:
    names = list(names)
    return ", ".join(map(repr, names[:4])) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
