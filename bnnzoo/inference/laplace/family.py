"""Shared parts of Laplace approximations: settings, the mode, errors and warnings, and the posterior they return."""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass, replace
from typing import Any, ClassVar, Protocol, runtime_checkable

from torch import Tensor

from bnnzoo.core.fit_warnings import JointModeWarning, NotConvergedWarning
from bnnzoo.core.method import Declared, FitContext, Need
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.parameters.hierarchy import has_weights, hyperparameter_sites, scaling_sites
from bnnzoo.core.posterior.covariance import Covariance
from bnnzoo.core.posterior.posterior import Draws, Gaussian, Mixture
from bnnzoo.core.program.sites import ModelError
from bnnzoo.core.settings import NonNegative
from bnnzoo.core.verdict.several_modes import MAX_DECREMENT
from bnnzoo.engine.value_and_grad import looped_value_and_grad
from bnnzoo.inference.ensembles.map import MAP
from bnnzoo.inference.laplace.curvature import Curvature
from bnnzoo.inference.optimise.modes import peak_at, peaks_beside
from bnnzoo.inference.optimise.pathfinder import ways_up
from bnnzoo.inference.starts import starting_points

__all__ = [
    "LaplaceError",
    "LaplaceMethod",
    "LaplaceSettings",
    "Mode",
    "best_approximation",
    "find_mode",
    "find_modes",
    "hierarchical_hint",
    "laplace_evidence",
    "laplace_posterior",
    "refuse_other_methods",
    "refuse_reparametrised",
    "warn_if_not_converged",
    "warn_of_joint_mode",
]


class LaplaceError(ValueError):
    """The curvature is not that of a Gaussian, or needs more memory than there is; the message says what to do."""


@runtime_checkable
class LaplaceMethod(Protocol):
    """A Laplace approximation of any structure: a dataclass that finds the mode by ``map`` and returns a Gaussian there.

    ``HierarchicalLaplace`` and ``maximise_evidence`` accept every class with these members, so that a new structure is
    one file.
    """

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    needs: ClassVar[frozenset[Need]]

    @property
    def map(self) -> MAP: ...
    @property
    def curvature(self) -> Curvature | None: ...
    def run(self, density: LogDensity, context: FitContext) -> Gaussian | Mixture: ...


@dataclass(frozen=True, kw_only=True)
class LaplaceSettings(Declared):
    """Settings of every Laplace approximation besides ``map``, each by keyword.

    Parameters
    ----------
    curvature : {"ggn", "hessian", "empirical_fisher"} or MonteCarloFisher, optional
        Curvature of the log likelihood. Default: the generalised Gauss-Newton matrix; the exact Hessian where the
        likelihood has no parameters that can be read, with a warning.
    damping : float
        Added to the diagonal of the precision.
    """

    curvature: Curvature | None = None
    damping: NonNegative = 0.0

    stages: ClassVar[tuple[str, ...]] = ("map",)
    mode: ClassVar[str | None] = "map"

    def starting_at(self, theta: Tensor, *, keep: bool) -> "LaplaceSettings":
        """Return the approximation around the mode uphill of ``theta[P]``, or at ``theta`` itself, and one Gaussian only."""
        own: MAP = getattr(self, "map")  # noqa: B009  # a field of every structure
        steps = 0 if keep else own.polish_steps
        start = replace(own, init=theta[None], num_members=1, num_steps=0, polish_steps=steps)
        started: dict[str, Any] = {"map": start}
        return _around_one_mode(replace(self, **started))


@dataclass(frozen=True)
class Mode:
    """A posterior mode that an optimisation found.

    Attributes
    ----------
    theta : Tensor [P]
    log_joint : Tensor []
        The log density there.
    gradient_norm : float
        Euclidean norm of its gradient.
    found : Draws
        All members, with what the optimisation reports.
    """

    theta: Tensor
    log_joint: Tensor
    gradient_norm: float
    found: Draws


def find_modes(
    method: LaplaceMethod, density: LogDensity, context: FitContext, *, refines: bool = False
) -> Sequence[Mode]:
    """Run ``method.map`` and return the modes that its members found, highest density first.

    A method that ``refines`` a mode itself, by Newton's iteration, is spared the polish of one that was reached by it.

    Raises
    ------
    KeyboardInterrupt
        If the optimisation was interrupted: a Gaussian away from the mode approximates nothing.
    """
    search, modes = _from_the_best(method.map, density, context)
    if refines and search is not method.map:
        search = replace(search, polish_steps=0)
    found = search.run(density, context)
    if not found.info.complete:
        raise KeyboardInterrupt(f"{type(method).__name__} was interrupted before the mode was found.")
    lp, gradient_norm = (found.info.sample_stats[name][0] for name in ("lp", "gradient_norm"))
    found = replace(found, info=replace(found.info, config={**found.info.config, **modes}))
    order = lp.argsort(descending=True, stable=True).tolist()
    return tuple(Mode(found.theta[0, i], lp[i], float(gradient_norm[i]), found) for i in order)


def _from_the_best(search: MAP, density: LogDensity, context: FitContext) -> tuple[MAP, Mapping[str, Any]]:
    """Return the search begun at the mode with the most evidence, and what the record says of several.

    Searches in the posterior's own units are there in fewer steps than Adam takes. Where they find no mode, as none of a network
    is looked for and the joint density of a hierarchy has none, the search stays as it is.
    """
    is_plain = search.init is None and search.num_members == 1 and search.batch_size is None and search.polish_steps
    if not is_plain or has_weights(density) or hyperparameter_sites(density):
        return search, {}
    ways = ways_up(density, starting_points(None, 1, density, context, trains=True))
    if ways is None:
        return search, {}
    peaks = peaks_beside(density, ways, context.seed)
    best = peaks.found[0].mode or peak_at(density, peaks.found[0].top)
    if best is None:
        return search, {}
    return replace(search, init=best.loc[None], num_steps=0), peaks.said


def find_mode(method: LaplaceMethod, density: LogDensity, context: FitContext) -> Mode:
    """Run ``method.map`` and return the mode of highest density: for structures that compare none by their evidence."""
    return find_modes(method, density, context)[0]


def best_approximation(modes: Sequence[Mode], approximate: Callable[[Mode], Gaussian]) -> tuple[Mode, Gaussian]:
    """Return the mode around which a Gaussian holds most of the posterior, by its evidence, and that Gaussian.

    The highest mode of a flexible likelihood is often a spike at a few observations, which holds little of the posterior.

    Raises
    ------
    LaplaceError
        If there is no approximation around any of the modes, or the model is hierarchical and there is none around one of them:
        its density is unbounded, and where the others ended is no mode.
    """
    found: list[tuple[Mode, Gaussian]] = []
    failures: list[LaplaceError] = []
    for mode in modes:
        try:
            found.append((mode, approximate(mode)))
        except LaplaceError as error:
            failures.append(error)
    if failures and (not found or hierarchical_hint(modes[0].found.density)):
        raise failures[0]
    return max(found, key=lambda pair: float(laplace_evidence(pair[0].log_joint, pair[1].covariance)))


def laplace_evidence(log_joint: Tensor, covariance: Covariance) -> Tensor:
    """Return the log integral ``[]`` of an unnormalised Gaussian with the log density ``log_joint[]`` at its mode."""
    return log_joint + 0.5 * covariance.rank * math.log(2 * math.pi) + 0.5 * covariance.logdet()


def laplace_posterior(density: LogDensity, mode: Mode, curvature: Curvature, covariance: Covariance) -> Gaussian:
    """Return the Gaussian at the mode; with Gauss-Newton curvature its predictions are linearised there."""
    modes = mode.found.info.config
    info = replace(mode.found.info, sampling="iid", config={**modes, "curvature": str(curvature)}, sample_stats={})
    linearize_at = None if curvature == "hessian" else mode.theta
    return Gaussian(density, info, mode.theta, covariance, linearize_at=linearize_at)


def _around_one_mode[M: LaplaceMethod | LaplaceSettings](method: M) -> M:
    """Return a method that does not integrate over hyperparameters, which some can."""
    changed: dict[str, Any] = {"integrate": False} if "integrate" in method.__dataclass_fields__ else {}
    return replace(method, **changed)


def refuse_other_methods(method: object, argument: str) -> LaplaceMethod:
    """Return a method if it is a Laplace approximation, around one mode; ``argument`` is how a caller names it.

    Raises
    ------
    ValueError
        If it is not.
    """
    if isinstance(method, LaplaceMethod) and not isinstance(method, type):
        return _around_one_mode(method)
    name = method.__name__ if isinstance(method, type) else f"{type(method).__name__}()"
    raise ValueError(f"{argument.format(name)}: write Laplace() or one like it.")


def refuse_reparametrised(density: LogDensity, name: str) -> None:
    """Refuse a network whose weights are computed from other latent sites, as reparametrisations do."""
    latent = [site.name for site in density.sites]
    for weight in (site for network in density.networks for site in network.sites.values()):
        if weight not in latent:
            raise ModelError(
                f"{name} needs weights that are latent sites, but the model computes {weight!r} from others (latent sites: "
                f"{', '.join(latent)}), as pyro.infer.reparam does. Leave the reparametrisation out, or use Laplace(), which "
                f"works with any Pyro model."
            )


def hierarchical_hint(density: LogDensity) -> str:
    """Return what to do about a centred hierarchical model, whose joint density may have no mode; "" for other models."""
    names = hyperparameter_sites(density)
    if not names:
        return ""
    return (
        f" The prior of other sites depends on {', '.join(names)}; the joint density of such a model is unbounded towards a "
        f"prior scale of zero and has no useful mode. Use HierarchicalLaplace(), which integrates the other sites out."
    )


def warn_if_not_converged(density: LogDensity, mode: Mode, covariance: Covariance) -> None:
    """Warn if a Newton step from the end of the optimisation is a good part of a posterior standard deviation long."""
    traced = density.is_one_of_many  # else the model's own code is faster once than its trace
    evaluate = density.value_and_grad if traced else looped_value_and_grad(density.log_joint)
    _, gradient = evaluate(mode.theta[None], *density.data)
    distance = float(covariance.sqrt_rmatmul(gradient[0]).norm())
    if distance > MAX_DECREMENT:
        warnings.warn(
            f"The mode was not reached: the gradient norm is {mode.gradient_norm:.3g}, and the mode is about {distance:.2g} "
            f"posterior standard deviations away. Run more optimisation steps: "
            f"Laplace(map=MAP(num_steps=..., polish_steps=...)).{hierarchical_hint(density)}",
            NotConvergedWarning,
            stacklevel=3,
        )


def warn_of_joint_mode(density: LogDensity) -> None:
    """Warn of a non-centred hierarchy, whose joint mode has a large scale and effects near zero."""
    for name, effects in scaling_sites(density).items():
        warnings.warn(
            f"Site {name!r} only matters through {', '.join(map(repr, effects))}, which it scales: the mode of both "
            f"together has a large {name!r} and small {effects[0]!r}, far from the posterior's mass, and the Gaussian around it "
            f"says little about either. Use HierarchicalLaplace(), which integrates {effects[0]!r} out, or NUTS().",
            JointModeWarning,
            stacklevel=3,
        )
        return
