"""Running times of the methods of a card: budgets that converge, and smoke budgets for a first look."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, get_args, get_type_hints

from bnnzoo.core.method import Method, is_method
from bnnzoo.core.settings import Range
from bnnzoo.inference import (
    HMC,
    MAMS,
    MAP,
    MCLMC,
    NUTS,
    PSGLD,
    SGHMC,
    SGLD,
    SWAG,
    ChEESHMC,
    ConcreteDropout,
    CyclicalSGMCMC,
    DeepEnsemble,
    DiagonalLaplace,
    FlowVI,
    FullRankVI,
    HierarchicalLaplace,
    KFACLaplace,
    Laplace,
    LastLayerLaplace,
    LastLayerVI,
    LowRankLaplace,
    LowRankVI,
    MCDropout,
    MeanFieldVI,
    MultiSWAG,
    Pathfinder,
    StochasticMCLMC,
    Tempered,
)

__all__ = ["point_methods", "small_methods", "smoke", "statistical_methods", "table_methods"]

SMOKE: dict[str, int] = {
    "num_chains": 2,
    "num_warmup": 12,
    "num_draws": 12,
    "num_members": 2,
    "num_restarts": 1,
    "num_steps": 24,
    "optimise_steps": 24,
    "polish_steps": 8,
    "num_averaged": 8,
    "max_tree_depth": 3,
    "max_steps": 4,
    "max_fits": 4,
    "num_cycles": 2,
    "steps_per_draw": 1,
    "every": 4,
    "rank": 4,
}
"""Largest values of the settings that make a run long, where a method admits so little."""


def small_methods(num_draws: int = 1000, num_warmup: int = 1000, num_steps: int = 3000) -> dict[str, Method]:
    """Return the methods that suit small networks, by name: two exact samplers, two approximations and an ensemble.

    Parameters
    ----------
    num_draws, num_warmup : int
        Of the samplers, for each of four chains.
    num_steps : int
        Of optimisations.

    Examples
    --------
    >>> sorted(small_methods())
    ['ensemble', 'laplace', 'mams', 'mfvi', 'nuts']
    """
    return {
        "nuts": NUTS(num_chains=4, num_warmup=num_warmup, num_draws=num_draws),
        "mams": MAMS(num_chains=4, num_warmup=num_warmup, num_draws=2 * num_draws),
        "laplace": Laplace(map=MAP(num_members=4, num_steps=num_steps)),
        "mfvi": MeanFieldVI(num_steps=num_steps),
        "ensemble": DeepEnsemble(10, num_steps=num_steps),
    }


def statistical_methods(
    *, mams_warmup: int = 500, vi_steps: tuple[int, int] = (4000, 6000), target_accept: float = 0.8
) -> dict[str, Method]:
    """Return the methods that suit regressions and hierarchies, by name: two exact samplers and two variational families.

    Parameters
    ----------
    mams_warmup : int
        Draws of ``MAMS`` before its step size is fixed.
    vi_steps : tuple of int
        Of mean-field and of full-rank VI.
    target_accept : float
        Of ``NUTS``.

    Examples
    --------
    >>> list(statistical_methods())
    ['nuts', 'mams', 'mfvi', 'full-rank-vi']
    """
    return {
        "nuts": NUTS(num_warmup=500, num_draws=1000, target_accept=target_accept),
        "mams": MAMS(num_warmup=mams_warmup, num_draws=2000),
        "mfvi": MeanFieldVI(num_steps=vi_steps[0]),
        "full-rank-vi": FullRankVI(num_steps=vi_steps[1]),
    }


def point_methods(num_steps: int = 2000) -> dict[str, Method]:
    """Return methods that only maximise: for log densities that are no probabilities, such as evidential ones.

    Examples
    --------
    >>> sorted(point_methods())
    ['ensemble', 'map']
    """
    return {
        "map": MAP(num_members=4, num_steps=num_steps),
        "ensemble": DeepEnsemble(5, num_steps=num_steps),
    }


def table_methods() -> dict[str, Method]:
    """Return the methods of the table of the zoo by name, exact samplers first.

    Settings are the defaults; dropout, which has no default rate, drops a tenth of the units.

    Examples
    --------
    >>> len(table_methods())
    29
    """
    return {
        "nuts": NUTS(),
        "hmc": HMC(),
        "mams": MAMS(),
        "chees": ChEESHMC(),
        "tempered": Tempered(),
        "mclmc": MCLMC(),
        "sghmc": SGHMC(),
        "sgld": SGLD(),
        "psgld": PSGLD(),
        "cyclical": CyclicalSGMCMC(),
        "stochastic-mclmc": StochasticMCLMC(),
        "pathfinder": Pathfinder(),
        "mfvi": MeanFieldVI(),
        "low-rank-vi": LowRankVI(),
        "full-rank-vi": FullRankVI(),
        "flow-vi": FlowVI(),
        "last-layer-vi": LastLayerVI(),
        "laplace": Laplace(),
        "diagonal-laplace": DiagonalLaplace(),
        "low-rank-laplace": LowRankLaplace(),
        "kfac-laplace": KFACLaplace(),
        "last-layer-laplace": LastLayerLaplace(),
        "hierarchical-laplace": HierarchicalLaplace(),
        "map": MAP(),
        "ensemble": DeepEnsemble(),
        "dropout": MCDropout(rate=0.1),
        "concrete-dropout": ConcreteDropout(),
        "swag": SWAG(),
        "multi-swag": MultiSWAG(),
    }


def smoke(method: Method) -> Method:
    """Return a method with settings so small that it ends in about a second, converged or not.

    Parameters
    ----------
    method : Method
        Methods that it holds become small, too.

    Examples
    --------
    >>> smoke(NUTS()).num_draws
    12
    """
    smaller: Method = replace(method, **_smaller(method))  # type: ignore[type-var]  # methods are dataclasses
    return smaller


def _smaller(method: object) -> Mapping[str, Any]:
    found: dict[str, Any] = {}
    hints = get_type_hints(type(method), include_extras=True)
    for field in fields(method):  # type: ignore[arg-type]
        value = getattr(method, field.name)
        if field.name in SMOKE and isinstance(value, int):
            least = [each.low for each in get_args(hints[field.name]) if isinstance(each, Range)]
            found[field.name] = min(value, int(max([SMOKE[field.name], *least])))
        elif (
            field.name == "every" and value is None
        ):  # once in a pass through the data, which a smoke budget may not reach
            found[field.name] = SMOKE["every"]
        elif is_dataclass(value) and is_method(value):
            found[field.name] = replace(value, **_smaller(value))  # type: ignore[type-var]
    return found
