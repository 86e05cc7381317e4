"""Discrete latent sites that were summed out, given the data: draws of them, and the probabilities of their values."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.func import grad

from bnnzoo.core.discrete.elimination import Factor, aligned, draw_back, eliminate
from bnnzoo.core.discrete.enumeration import Enumerated, enumerated
from bnnzoo.core.discrete.factor_graph import FactorGraph
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.model.replay import replay
from bnnzoo.core.program.sites import plates_of
from bnnzoo.core.types import Data

__all__ = ["DiscreteAxes", "described", "drawn_states"]

type Place = tuple[str, str]
"""``("discrete", site)`` or ``("discrete_probs", site)``."""


class DiscreteAxes(NamedTuple):
    """The plates of a discrete site's axes, None for those of events, and its values where they are numbers."""

    plates: tuple[str | None, ...]
    values: Tensor | None


def described(density: LogDensity, theta: Tensor, *data: Any) -> dict[str, DiscreteAxes]:
    """Return what is known of each discrete site, and of deterministic sites that depend on them, for some data."""
    own = enumerated(density.model)
    if own is None:
        return {}
    graph, values = _graph(density, own, theta, data), density.constrain(theta)
    found = {}
    for number, variable in graph.variables.items():
        support = graph.supports[number]
        events = (None,) * (support.ndim - 1)
        found[variable.site] = DiscreteAxes((*_ordered(graph, number), *events), None if events else support)
    nodes = replay(own.model, values, data, density.observed, density.device)
    nodes = {name: node for name, node in nodes.items() if name in own.dependent}
    return found | {name: DiscreteAxes(plates_of(node), None) for name, node in nodes.items()}


def drawn_states(density: LogDensity, theta: Tensor, *data: Any) -> dict[Place, Tensor]:
    """Draw the discrete sites from p(z | y, theta) by torch's global random stream, and return the probabilities of their values.

    All sites are drawn jointly, by sampling backwards through the sum; where data have no observations, they come from
    p(z | theta). The probabilities are marginal ones: the derivatives of the log of the sum about the log of each factor.

    Parameters
    ----------
    density : LogDensity
        Of a model with discrete sites.
    theta : Tensor [P]
    *data
        Arguments of the model.

    Returns
    -------
    dict of tuple to Tensor
        ``("discrete", name)`` : a draw of each discrete site, and the deterministic sites that depend on them.
        ``("discrete_probs", name)`` : the probability of each value, along the last axis.
    """
    own = enumerated(density.model)
    assert own is not None
    graph, values = _graph(density, own, theta, data), density.constrain(theta)
    hidden = {n for n in graph.nodes if n in density.observed and not graph.nodes[n]["is_observed"]}
    factors = {name: factor for name, factor in graph.factors.items() if name not in hidden}
    drawn = draw_back(eliminate(factors.values(), graph.variables, graph.sizes), graph.variables, graph.sizes)
    found, states = {}, {}
    for number, variable in graph.variables.items():
        index, names = drawn[number]
        plates = _ordered(graph, number)
        value = aligned(Factor(index, names, frozenset(names), frozenset()), plates)
        place = value.expand([max(1, graph.sizes[plate]) for plate in plates])
        found["discrete", variable.site] = graph.supports[number][place]
        # values with the dimensions that the model gives them: also those between plates, of size one
        sizes = {graph.dims[plate]: size for plate, size in zip(_ordered(graph, number), place.shape, strict=True)}
        states[variable.site] = graph.supports[number][
            place.reshape([sizes.get(dim, 1) for dim in range(min(sizes, default=0), 0)])
        ]
    nodes = _given(density, own, values, states, data)
    found |= {("discrete", name): node["value"] for name, node in nodes.items()}
    return found | {("discrete_probs", name): value for name, value in _probabilities(graph, factors).items()}


def _graph(density: LogDensity, own: Enumerated, theta: Tensor, batch: Data) -> FactorGraph:
    nodes = replay(own, density.constrain(theta), batch, density.observed, density.device, summed=False)
    return FactorGraph.of(own, nodes)


def _given(
    density: LogDensity, own: Enumerated, values: Mapping[str, Tensor], states: Mapping[str, Tensor], batch: Data
) -> dict[str, Any]:
    """Return the nodes of deterministic sites that depend on discrete ones, given values of all."""
    nodes = replay(own.model, {**values, **states}, batch, density.observed, density.device)
    return {name: nodes[name] for name in own.dependent if name in nodes}


def _ordered(graph: FactorGraph, number: int) -> tuple[str, ...]:
    return tuple(sorted(graph.variables[number].plates, key=lambda plate: graph.dims[plate]))


def _probabilities(graph: FactorGraph, factors: Mapping[str, Factor]) -> dict[str, Tensor]:
    fields = {
        variable.site: torch.zeros([*(max(1, graph.sizes[p]) for p in _ordered(graph, number)), variable.size])
        for number, variable in graph.variables.items()
    }
    numbers = {variable.site: number for number, variable in graph.variables.items()}

    def total(fields: Mapping[str, Tensor]) -> Tensor:
        moved = dict(factors)
        for name, field in fields.items():
            names: tuple[str | int, ...] = (*_ordered(graph, numbers[name]), numbers[name])
            own = factors[name]
            order = tuple(dict.fromkeys((*own.names, *names)))
            added = aligned(Factor(field, names, own.plates, own.sites), order)
            moved[name] = Factor(aligned(own, order) + added, order, own.plates, own.sites)
        parts = eliminate(moved.values(), graph.variables, graph.sizes, chains=True).factors
        return torch.stack([part.value.sum() for part in parts]).sum()

    like = next(iter(factors.values())).value
    return grad(total)({name: field.to(like) for name, field in fields.items()})
