"""Pathfinder: Gaussians along the way of an optimiser to the mode, and draws of them weighted towards the posterior."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, ClassVar, NamedTuple

import torch
from torch import Tensor

from bnnzoo.core.fit_warnings import INSIDE, MIN_ESS, NotConvergedWarning
from bnnzoo.core.method import Declared, FitContext, Need
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.model.log_joints import log_joint_as_graph, log_joint_at
from bnnzoo.core.posterior.covariance import LowRankPrecision
from bnnzoo.core.posterior.guides import guide_of
from bnnzoo.core.posterior.info import FitInfo
from bnnzoo.core.posterior.posterior import Gaussian, Mixture
from bnnzoo.core.posterior.saving import StoredPosterior
from bnnzoo.core.program.seeds import word_of
from bnnzoo.core.program.sites import ModelError
from bnnzoo.core.settings import Count, Range
from bnnzoo.core.types import Whole
from bnnzoo.core.verdict.importance import smoothed_ratios
from bnnzoo.core.verdict.pareto import MAX_PARETO_K
from bnnzoo.core.verdict.rejections import why_rejected
from bnnzoo.engine.choose import STEPS_OF_A_PATH
from bnnzoo.inference.optimise.paths import Normals, Paths, paths_from
from bnnzoo.inference.starts import Start, starting_points

__all__ = ["Pathfinder", "Resampled"]

MORE = 4
"""Times ``num_draws`` that are weighted where so many are worth fewer than ``MIN_ESS``, or have a high Pareto k."""

MAX_CORRECTABLE_K = 1.0
"""Pareto k above which weights have no mean, and more of them do not help."""

MOST_DRAWS = 1000

OTHER_SEED = 1_000_003


@dataclass(frozen=True, repr=False)
class Resampled(StoredPosterior):
    """Draws of an approximation with importance weights, each returned as often as its weight says.

    Attributes
    ----------
    density : LogDensity
    info : FitInfo
        With ``psis_pareto_k`` and ``psis_ess`` in ``config``: the Pareto k of the weights, and the number of independent draws
        that the weighted ones are worth.
    proposal : Gaussian or Mixture
        The approximation itself, which has a density.
    theta : Tensor
        Its draws ``[S, P]``.
    log_weights : Tensor
        Their smoothed log weights ``[S]``.
    """

    density: LogDensity
    info: FitInfo
    proposal: Gaussian | Mixture
    theta: Tensor
    log_weights: Tensor

    def draws(self, num_draws: int | None = None, seed: Whole | None = None) -> Tensor:
        r"""Return draws ``[1, S, P]``, up to 1,000 by default, in random order: :math:`S w_s` rounded up or down of each.

        References
        ----------
        Kitagawa (1996), Monte Carlo filter and smoother for non-Gaussian nonlinear state space models, Journal of
        Computational and Graphical Statistics 5.
        """
        num_draws = num_draws or min(len(self.theta), MOST_DRAWS)
        generator = torch.Generator().manual_seed(word_of(self.info.seed if seed is None else seed))
        bounds = self.log_weights.cpu().double().softmax(0).cumsum(0)
        offset = torch.rand((), generator=generator, dtype=torch.float64)
        places = (torch.arange(num_draws) + offset) / num_draws * bounds[-1]
        picked = torch.searchsorted(bounds, places, right=True).clamp(max=len(bounds) - 1)
        return self.theta[picked[torch.randperm(num_draws, generator=generator)].to(self.theta.device)][None]

    def log_prob(self, theta: Tensor) -> None:
        """Return None: the density of weighted draws is not known; ``proposal`` has one."""

    def as_guide(self) -> Callable[..., dict[str, Tensor]]:
        """Return a Pyro guide that picks a draw at random by its weight, for ``Predictive``; its log density counts as 0."""

        def sample(shape: torch.Size) -> Tensor:
            picked = self.log_weights.exp().multinomial(max(1, shape.numel()), replacement=True)
            return self.theta[picked].reshape(*shape, -1)

        return guide_of(self.density, sample, lambda theta: theta.new_zeros(theta.shape[:-1]))

    def _summary(self) -> list[str]:
        k, ess = (float(self.info.config[name]) for name in ("psis_pareto_k", "psis_ess"))
        return [f"{len(self.theta)} weighted draws worth {ess:.0f}", f"Pareto k {k:.2f}"]


class _Weighted(NamedTuple):
    """Draws ``[S, P]`` of a proposal, their smoothed log weights ``[S]``, Pareto k, and the draws they are worth."""

    theta: Tensor
    log_weights: Tensor
    pareto_k: float
    ess: float


@dataclass(frozen=True)
class Pathfinder(Declared):
    r"""Gaussians along the paths of L-BFGS to the mode, with draws weighted towards the posterior.

    From each of several starts an optimiser climbs towards the mode. At every step its estimate of the inverse Hessian,
    a diagonal plus a matrix of rank ``2 * history``, is the covariance of a Gaussian centred one Newton step away. The Gaussian
    with the highest evidence lower bound on each path is kept. Draws from the equally weighted mixture q of all paths get the
    weights

    .. math:: w_s \propto \frac{p(y, \theta_s)}{q(\theta_s)},

    Pareto-smoothed, and are resampled by them. A fit takes some hundred gradients, and some thousand values of the log density,
    which cost less. A few numbers say how good it is: the Pareto k of the weights, above 0.7 of which the fit warns, how many
    independent draws the weighted ones are worth, and the bound of each path.

    Parameters
    ----------
    num_paths : int
        Starts, which are followed in one batch. A mode is missed if none of them ends there.
    num_draws : int
        Draws of all paths together that are weighted: four times as many where so many are worth fewer than 400, or have a
        Pareto k between 0.7 and 1.
    max_steps : int
        Steps of L-BFGS after which a path ends. It ends earlier where three in turn promise less than a millionth of a nat.
    history : int
        Last steps from which curvature is learnt.
    num_elbo_draws : int
        Draws by which the bound of each Gaussian is estimated: the same standard normal numbers, and their negatives, at each.
    resample : bool, optional
        True: return a :class:`Resampled`. False: the Gaussians themselves, a chain each, which have a density (``log_q``) for
        :func:`bnnzoo.diagnostics.psis`. Default: True but for models with a network, of whose draws a single one would have all
        weight.
    init : Tensor, Posterior or Method, optional
        Where paths start, ``[num_paths, P]``, or where to find starting points.

    References
    ----------
    Zhang, Carpenter, Gelman and Vehtari (2022), Pathfinder: parallel quasi-Newton variational inference, JMLR 23. Gilbert and
    Lemarechal (1989), Some numerical experiments with variable-storage quasi-Newton algorithms, Mathematical Programming 45.
    Vehtari, Simpson, Gelman, Yao and Gabry (2024), Pareto smoothed importance sampling, JMLR 25.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian()
    >>> posterior = bz.fit(target.model, bz.Pathfinder(), *target.data, dtype=torch.float64)
    >>> bool(((posterior.draws().mean((0, 1)) - target.mean["w"]).abs() < 0.1 * target.sd["w"]).all())
    True
    """

    num_paths: Count = 8
    num_draws: Annotated[int, Range(25)] = 1000
    max_steps: Count = 200
    history: Count = 6
    num_elbo_draws: Count = 6
    resample: bool | None = None
    init: Start = None

    needs: ClassVar[frozenset[Need]] = frozenset()
    by_density: ClassVar[bool] = True

    def run(self, density: LogDensity, context: FitContext) -> Resampled | Mixture | Gaussian:
        """Follow the paths, and weight draws of their best Gaussians; see :func:`bnnzoo.fit`.

        Returns
        -------
        Resampled, or Gaussian or Mixture
            With one row a path that did not fail of ``info.tuning["inverse_mass"]``, the variances of its Gaussian, and the
            bound at every step in ``info.fit_stats["path_elbo"]``.

        Raises
        ------
        ModelError
            If all paths failed.
        """
        start = starting_points(self.init, self.num_paths, density, context, traced=True)
        found = _followed(self, density, start, context.seed)
        failed = ~found.elbo.isfinite()
        near = start[failed] if bool(failed.any()) else found.best.loc.to(start)
        where = why_rejected(density, near, int(failed.sum()) + found.num_rejected)
        _say_failed(failed, where, found)
        kept = Normals(*(each[~failed] for each in found.best))
        info = FitInfo(
            sampling="iid",
            num_gradients=found.num_gradients,
            num_rejected=found.num_rejected,
            rejected_at=where,
            config={"elbo": found.elbo.tolist(), "num_values": found.num_values},
            fit_stats={"path_elbo": found.trace},
            tuning={"inverse_mass": _variances(kept).to(density.dtype)},
            method=type(self).__name__,
            seed=context.seed,
        )
        components = tuple(
            Gaussian(density, info, loc, LowRankPrecision(scale, vectors, -values / (1 + values)))
            for loc, scale, vectors, values in zip(*(each.to(density.dtype) for each in kept), strict=True)
        )
        proposal = components[0] if len(components) == 1 else Mixture(density, info, components)
        if not (not density.networks if self.resample is None else self.resample):
            return proposal
        weighted = _weighted(self, proposal, context.seed)
        said = {
            "num_values": found.num_values + len(weighted.theta),
            "psis_pareto_k": weighted.pareto_k,
            "psis_ess": weighted.ess,
        }
        info = replace(info, config={**info.config, **said})
        return Resampled(density, info, proposal, weighted.theta, weighted.log_weights)


def _followed(method: Pathfinder, density: LogDensity, start: Tensor, seed: int) -> Paths:
    generator = torch.Generator().manual_seed(word_of(seed))
    pairs = (method.num_elbo_draws + 1) // 2
    half = torch.randn(len(start), pairs, density.num_params, generator=generator, dtype=torch.float64)
    noise = torch.cat([half, -half], 1)[:, : method.num_elbo_draws].to(start.device)
    evaluate = density.value_and_grad.specialize(start, *density.data, num_calls=STEPS_OF_A_PATH)
    return paths_from(
        lambda theta: evaluate(theta, *density.data),
        partial(log_joint_at, density)
        if evaluate.how == "eager"
        else log_joint_as_graph(density, noise.shape[:2].numel()),
        start,
        noise,
        max_steps=method.max_steps,
        history=method.history,
    )


def _say_failed(failed: Tensor, where: str, found: Paths) -> None:
    """Warn of paths that have no Gaussian, and refuse to go on if none has."""
    count, total = int(failed.sum()), len(failed)
    if not count:
        return
    why = f": {where}" if where else ""
    if count == total:
        raise ModelError(
            f"None of the {total} paths of Pathfinder found a Gaussian with a bound, in {found.trace.shape[1]} steps{why}. The "
            f"density is flat or infinite where they start, or cannot be evaluated beside them. Give starting points with "
            f"init=..., or use NUTS()."
        )
    numbers = ", ".join(map(str, failed.nonzero()[:, 0].tolist()))
    warnings.warn(
        f"{count} of the {total} paths of Pathfinder failed (numbers {numbers}){why}. The others are used. Write a larger "
        f"num_paths, or give starting points with init=...",
        NotConvergedWarning,
        skip_file_prefixes=INSIDE,
    )


def _variances(normals: Normals) -> Tensor:
    """Return the variances ``[C, P]``."""
    return normals.scale.square() * (1 + (normals.vectors.square() @ normals.values[..., None])[..., 0])


def _weighted(method: Pathfinder, proposal: Gaussian | Mixture, seed: int) -> _Weighted:
    """Return draws of the proposal with their weights, and more of them where they are worth too few."""
    found = _weights(proposal, method.num_draws, seed)
    is_enough = found.ess >= min(MIN_ESS, method.num_draws / 2) and found.pareto_k <= MAX_PARETO_K
    if is_enough or not found.pareto_k <= MAX_CORRECTABLE_K:
        return found
    return _weights(proposal, (MORE - 1) * method.num_draws, seed + OTHER_SEED, found)


def _weights(proposal: Gaussian | Mixture, num_draws: int, seed: int, before: _Weighted | None = None) -> _Weighted:
    density = proposal.density
    count = len(proposal.components) if isinstance(proposal, Mixture) else 1
    theta = proposal.draws(-(-num_draws // count), seed).flatten(0, 1)
    if before is not None:
        theta = torch.cat([before.theta, theta])
    log_q = proposal.log_prob(theta)
    assert log_q is not None
    ratios, k = smoothed_ratios(density, theta, log_q)
    ratios = ratios if bool(ratios.isfinite().any()) else torch.zeros_like(ratios)
    log_weights = ratios - ratios.logsumexp(0)
    ess = float(1 / (2 * log_weights).exp().sum())
    return _Weighted(theta, log_weights.to(theta), k, ess)
