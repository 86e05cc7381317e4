"""Settings that samplers share, and checks across several of them."""

import math
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Annotated, ClassVar

from bnnzoo.core.method import Declared, Need
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.settings import IF_GIVEN, Count, Fraction, NonNegativeCount, Positive, Range
from bnnzoo.engine.choose import MAX_NATIVE_CHAINS, NATIVE_PAYS_FROM, typical_num_steps
from bnnzoo.engine.fits import over_all_fits
from bnnzoo.inference.markov.metrics import MassMatrix
from bnnzoo.inference.starts import Start

__all__ = [
    "AdaptiveSettings",
    "ChainSettings",
    "HamiltonianSettings",
    "LockstepSettings",
    "even_groups",
    "goes_on",
    "groups_of_independent_chains",
    "refuse_single_parameter",
    "refuse_uneven_superchains",
    "refuse_untuned",
    "superchains_of",
    "without_init",
]


@dataclass(frozen=True, kw_only=True)
class ChainSettings(Declared):
    """Settings of every sampler: how many chains of what length, where they start, and how they are grouped.

    Parameters
    ----------
    num_chains : int
        Number of chains.
    num_warmup : int
        Draws of each chain during adaptation, which are not kept. Chains may have converged with fewer.
    num_draws : int
        Draws of each chain after it.
    step_size : float, optional
        Initial step size. Default: found by doubling or halving.
    num_groups : int, optional
        Batches of chains that an executor runs in parallel, ideally one per core. The chains of a batch share the cost of every
        call. Default: one batch per chain.
    init : Tensor, Posterior or Method, optional
        Starting points ``theta[C, P]``, or where to take them from; see :class:`bnnzoo.NUTS`.
    """

    num_chains: Count = 4
    num_warmup: NonNegativeCount = 1000
    num_draws: Count = 1000
    step_size: Positive | None = None
    num_groups: Count | None = None
    init: Start = None

    needs: ClassVar[frozenset[Need]] = frozenset()
    parts: ClassVar[str | None] = "num_chains"
    resumable: ClassVar[bool] = True
    native_pays_from: ClassVar[float] = math.inf
    """Expected gradient steps of a chain from which native code pays."""
    max_native_chains: ClassVar[int] = MAX_NATIVE_CHAINS
    """Chains up to which moving each on its own, in native code, beats a batch, in which they share the cost of operations."""

    def in_native_code(self, density: LogDensity) -> bool:
        """Tell whether chains move one by one in native code, if the model can be compiled.

        All chains of a fit decide, so that groups of them run as all of them would.
        """
        num_steps = over_all_fits(typical_num_steps(density.num_params) * (self.num_warmup + self.num_draws))
        few = self.num_chains <= self.max_native_chains
        return few and density.device.type == "cpu" and num_steps >= self.native_pays_from


@dataclass(frozen=True, kw_only=True)
class AdaptiveSettings(ChainSettings):
    """Settings of samplers that learn a mass matrix, and of which many short chains may start at a few points.

    Parameters
    ----------
    mass_matrix : {"auto", "diagonal", "dense", "fisher", "low_rank"}
        Estimated from the variances of the draws, from their covariance, or from the variances of draws and gradients, to which
        ``low_rank`` adds up to 16 directions in which parameters are correlated. ``auto`` is ``low_rank`` for models without a
        network and with at most 256 parameters whose draws and gradients are nearly those of a Gaussian, else ``diagonal``.
    num_superchains : int, optional
        Points at which chains start, an equal number of consecutive ones at each, for many short chains: the verdict is then by
        nested R-hat. Default: each chain has a start of its own.
    """

    mass_matrix: MassMatrix = "auto"
    num_superchains: Annotated[int, Range(2)] | None = field(default=None, metadata=IF_GIVEN)

    by_density: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class HamiltonianSettings(AdaptiveSettings):
    """Settings of samplers whose chains adapt one by one.

    Parameters
    ----------
    target_accept : float
        Mean acceptance probability to which the step size is tuned. Warm-up raises it, to at most 0.99, for a chain that meets
        regions of high curvature; ``posterior.info.tuning["target_accept"]`` is what each chain ended with.
    """

    native_pays_from: ClassVar[float] = NATIVE_PAYS_FROM

    target_accept: Fraction = 0.8


@dataclass(frozen=True, kw_only=True)
class LockstepSettings(AdaptiveSettings):
    """Settings of samplers whose chains adapt together and accept or reject trajectories of the same length.

    Parameters
    ----------
    target_accept : float
        Acceptance probability, as the harmonic mean over chains, to which the step size is tuned. Warm-up of ``ChEESHMC`` raises
        it, to at most 0.99, where chains meet regions of high curvature; see ``posterior.info.tuning["target_accept"]``.
    max_steps : int
        Largest number of leapfrog steps of a trajectory.
    num_groups : int
        Groups of chains that adapt together. An executor runs groups in parallel, so one group per core or machine keeps all
        of them busy.
    """

    native_pays_from: ClassVar[float] = NATIVE_PAYS_FROM

    trajectory_length: Positive | None = None
    target_accept: Fraction = 0.7
    max_steps: Count = 1000
    num_groups: Count = 1


def without_init[Settings: ChainSettings](settings: Settings) -> Settings:
    """Return the settings that workers need: they receive starting points, not where these came from."""
    return replace(settings, init=None)


def even_groups(num_chains: int, num_groups: int) -> list[range]:
    """Return the numbers of chains in at most ``num_groups`` groups whose sizes differ by at most one.

    Examples
    --------
    >>> even_groups(5, 2)
    [range(0, 2), range(2, 5)]
    """
    num = min(num_groups, num_chains)
    ends = [num_chains * i // num for i in range(num + 1)]
    return [range(begin, end) for begin, end in pairwise(ends)]


def groups_of_independent_chains(settings: ChainSettings, num_chains: int, spread: bool) -> list[range]:
    """Return all chains as one group in this process, and on workers ``num_groups``, by default one for each chain."""
    return even_groups(num_chains, (settings.num_groups or num_chains) if spread else 1)


def refuse_untuned(settings: ChainSettings) -> None:
    """Raise ValueError if the sampler has no step size, no warm-up in which to find one, and no run from which to go on."""
    if settings.step_size is None and settings.num_warmup == 0 and not goes_on(settings):
        raise ValueError(
            f"{type(settings).__name__}(num_warmup=0) tunes nothing: give step_size=..., warm up, or go on from where a run of "
            f"{type(settings).__name__} ended, init=posterior."
        )


def refuse_uneven_superchains(settings: ChainSettings) -> None:
    """Raise ValueError unless all superchains have the same number of chains, and more than one."""
    number = superchains_of(settings)
    if number is not None and (settings.num_chains % number or settings.num_chains == number):
        raise ValueError(
            f"{type(settings).__name__}(num_superchains={number}, num_chains={settings.num_chains}): each superchain needs the "
            f"same number of chains, two or more. Write a multiple of {number} for num_chains, such as {16 * number}."
        )


def superchains_of(settings: ChainSettings) -> int | None:
    """Return the number of superchains, None where each chain has a start of its own."""
    return settings.num_superchains if isinstance(settings, AdaptiveSettings) else None


def goes_on(settings: ChainSettings) -> bool:
    """Tell whether chains continue those of the posterior in ``init``, with the step sizes and scales tuned there."""
    info = getattr(settings.init, "info", None)
    return settings.num_warmup == 0 and settings.step_size is None and bool(getattr(info, "tuning", None))


def refuse_single_parameter(name: str, density: LogDensity) -> None:
    """Raise ValueError if the model has a single parameter: the sampler ``name`` moves along directions, which need two."""
    if density.num_params < 2:
        raise ValueError(
            f"{name} changes the direction of a chain, which takes at least two parameters, and this model has "
            f"{density.num_params} unconstrained parameter ({density.sites[0].name}). Use NUTS()."
        )
