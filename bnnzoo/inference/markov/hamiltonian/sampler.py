"""Chains of HMC and NUTS: their start, the step size they begin with, windows of adaptation, and their draws."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.func import vmap

from bnnzoo.core.method import FitContext
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.posterior.posterior import Draws
from bnnzoo.engine.choose import Engine, OneByOneError, runner
from bnnzoo.inference.markov.adaptation import (
    CAUTION,
    Adaptation,
    initial_step_size,
    search_step_size,
    settling_from,
)
from bnnzoo.inference.markov.chain_settings import (
    HamiltonianSettings,
    even_groups,
    goes_on,
    typical_num_steps,
    without_init,
)
from bnnzoo.inference.markov.density_gradient import density_gradient
from bnnzoo.inference.markov.hamiltonian.adaptation_windows import Windows
from bnnzoo.inference.markov.hamiltonian.hamiltonian_program import (
    NUM_STREAMS,
    STATS,
    HamiltonianCounters,
    HamiltonianProgram,
    HamiltonianSchedule,
    MovingEnd,
    Resting,
)
from bnnzoo.inference.markov.hamiltonian.kernel import Kernel, Phase, energy
from bnnzoo.inference.markov.metrics import (
    identity_metric,
    inverse_mass_of,
    mass_matrix_for,
    metric_of,
)
from bnnzoo.inference.markov.noise import keys_of_chains, normals
from bnnzoo.inference.markov.running import RunningChains
from bnnzoo.inference.markov.sampling import sample_chains, sample_together

__all__ = ["HamiltonianChains", "HamiltonianMethod", "HamiltonianSampler"]

INITIAL_STEP_SIZE = 0.1
"""Where the search for a step size begins."""


class HamiltonianChains(RunningChains):
    """Chains of one Hamiltonian kernel, each of which adapts by itself; a :class:`bnnzoo.inference.markov.protocols.Loop`.

    Parameters
    ----------
    kernel : Kernel
    density : LogDensity
    settings : HamiltonianSettings
    theta : Tensor
        Starting points ``[C, P]`` at which the density is finite.
    seed : int
    first_chain : int
        Number of the first chain among all chains of the fit: its random numbers depend on it and the seed alone.
    engine : {"auto", "native", "graph", "python"}
    others : sequence of (LogDensity, int)
        Densities of the same kind and the seeds of fits whose chains, as many for each, come after those of the first.
    """

    stats_names = STATS

    def __init__(
        self,
        kernel: Kernel,
        density: LogDensity,
        settings: HamiltonianSettings,
        theta: Tensor,
        seed: int,
        first_chain: int,
        engine: Engine = "auto",
        others: Sequence[tuple[LogDensity, int]] = (),
    ) -> None:
        fits = [(density, seed), *others]
        chains = range(first_chain, first_chain + len(theta) // len(fits))
        super().__init__(settings, theta, torch.cat([keys_of_chains(own, chains, NUM_STREAMS) for _, own in fits]))
        self.kernel, self.settings = kernel, settings
        self.windows = Windows(mass_matrix_for(settings.mass_matrix, density), settings.num_warmup, theta)
        steps, draws = typical_num_steps(theta.shape[1]), self._total
        self.fleet = runner(
            HamiltonianProgram(kernel, settings.target_accept),
            density_gradient(density),
            *self._at_rest(theta, self.keys),
            self.row,
            engine=engine,
            native_pays=settings.in_native_code(density),
            num_steps=steps * draws,
            num_cycles=min(steps, kernel.num_proposals(steps) * self.num_chains) * draws,
            log=self.log,
            data=[own.data for own, _ in fits for _ in chains] if others else None,
        )
        self._look_around()

    @property
    def num_gradients(self) -> int:
        """Number of leapfrog steps that all chains have taken together."""
        return self.counted(slice(None))[0]

    @property
    def num_rejected(self) -> int:
        """Number of proposed points at which the log density could not be computed."""
        return self.counted(slice(None))[1]

    def counted(self, chains: slice) -> tuple[int, int]:
        """Return the numbers of leapfrog steps and of rejected points of some chains."""
        steps, rejected = self.fleet.moving.num_leapfrog, self.fleet.resting.counters.rejected
        return int(steps[chains].sum()), int(rejected[chains].sum())

    @property
    def tuned(self) -> dict[str, Tensor]:
        """Step size ``[C]`` and inverse mass of each chain; see :func:`bnnzoo.inference.markov.metrics.inverse_mass_of`."""
        resting = self.fleet.resting
        found = {"step_size": resting.adaptation.step_size, **inverse_mass_of(resting.metric)}
        return {name: value.clone() for name, value in found.items()}

    def adopt(self, tuning: Mapping[str, Tensor]) -> None:
        """Start with step sizes and mass matrices found before."""
        resting = self.fleet.resting
        adaptation = resting.adaptation._replace(step_size=tuning["step_size"])
        self.fleet.write(resting=resting._replace(metric=metric_of(tuning), adaptation=adaptation))

    def begin_with(self, variances: Tensor) -> None:
        """Start with inverse masses ``[C, P]`` found before, and step sizes that suit them."""
        resting = self.fleet.resting
        known = inverse_mass_of(resting.metric)
        is_dense = known["inverse_mass"].ndim == 3
        metric = metric_of(known | {"inverse_mass": torch.diag_embed(variances) if is_dense else variances.clone()})
        self.fleet.write(self.fleet.moving, resting._replace(metric=metric))
        self._look_around()

    def progress_fields(self) -> dict[str, float]:
        """Return the mean acceptance probability of the latest trajectories and the mean step size."""
        end = self.fleet.moving.end
        rates = end.sum_acceptance / end.num_steps.clamp(min=1)
        return {"acceptance": float(rates.mean()), "step size": float(self.fleet.resting.adaptation.step_size.mean())}

    @property
    def row(self) -> tuple[Tensor, ...]:
        """What is kept of a draw: the draw, its statistics and the gradient there."""
        theta, stats = super().row
        return theta, stats, theta.clone()

    def _gather(self) -> None:
        """Take the draws kept, and in warm-up draws and gradients from which mass matrices are estimated."""
        warm = self.fleet.resting.counters.draws.cpu() <= self._num_warmup
        self.windows.gather(self.fleet, warm)
        self.fleet.gather((self.draws, self.stats), self._num_kept, ~warm)

    def _resumable(self) -> dict[str, Any]:
        return super()._resumable() | self.windows.resumable()

    def _resume(self, found: Mapping[str, Any]) -> None:
        super()._resume(found)
        self.windows.resume(found)

    def _at_rest(self, theta: Tensor, keys: Tensor) -> tuple[MovingEnd, Resting]:
        """Return the state of chains before they know the log density where they are."""
        settings = self.settings
        zeros, noise = (
            theta.new_zeros(self.num_chains),
            normals(keys[:, :1], torch.arange(theta.shape[1]).to(keys), theta.dtype),
        )
        end, trajectory = vmap(self.kernel.finished_trajectory)(Phase(theta, noise, torch.zeros_like(theta), zeros))
        counts = [torch.zeros_like(keys[:, 0]) for _ in HamiltonianCounters._fields]
        step_size = zeros + (settings.step_size or INITIAL_STEP_SIZE)
        resting = Resting(
            trajectory=trajectory,
            metric=identity_metric(theta, self.windows.mass_matrix),
            adaptation=_beginning(step_size),
            counters=HamiltonianCounters(*counts),
            schedule=HamiltonianSchedule(*(torch.full_like(keys[:, 0], number) for number in self._schedule())),
            keys=keys,
        )
        return MovingEnd(end, torch.zeros_like(keys[:, 0])), resting

    def _schedule(self) -> tuple[int, ...]:
        warmup, ends = self.settings.num_warmup, self.windows.ends
        first, last = (ends[0], ends[-1]) if ends else (0, 0)
        return warmup, settling_from(warmup), first, last, min(end for end in (*ends, self._total) if end > 0)

    def _look_around(self) -> None:
        """Find the log density where the chains are, and a step size for each: the given one, or by doubling or halving."""
        moving, resting = self.fleet.moving, self.fleet.resting
        here, step_size = moving.end.phase, resting.adaptation.step_size.clone()
        still = self._leapt(here, torch.zeros_like(step_size))  # a step of size zero
        phase = here._replace(gradient=still.gradient.clone(), log_density=still.log_density.clone())
        if self.settings.step_size is None:
            before = vmap(energy)(resting.metric, phase)

            def acceptance(size: Tensor) -> Tensor:
                return (before - vmap(energy)(resting.metric, self._leapt(phase, size))).exp()

            step_size = search_step_size(acceptance, step_size)
        end, trajectory = vmap(self.kernel.finished_trajectory)(phase)
        adaptation = _beginning(step_size)
        self.fleet.write(moving._replace(end=end), resting._replace(trajectory=trajectory, adaptation=adaptation))

    def _leapt(self, phase: Phase, step_size: Tensor) -> Phase:
        """Return where one leapfrog step leads: not the last of its trajectory, and one that cannot diverge."""
        end, trajectory = vmap(self.kernel.finished_trajectory)(phase)
        control = trajectory.control
        control = control._replace(
            energy=torch.full_like(control.energy, torch.inf), length=torch.full_like(control.length, 2)
        )
        trajectory = trajectory._replace(control=control, done=torch.zeros_like(trajectory.done))
        resting = self.fleet.resting
        adaptation = resting.adaptation._replace(step_size=step_size)
        moving = self.fleet.tried(
            self.fleet.moving._replace(end=end), resting._replace(trajectory=trajectory, adaptation=adaptation)
        )
        found: Phase = moving.end.phase
        return found

    def _attend(self) -> None:
        """Give chains at the end of a window the mass matrix estimated in it, and open the next window."""
        resting = self.fleet.resting
        counts, until = resting.counters.draws, resting.schedule.until
        waits = (counts == until) & (counts < self._total)
        for count in counts[waits].unique().tolist():
            chains = (waits & (counts == count)).nonzero()[:, 0].cpu()
            if count in self.windows.ends[1:]:
                self.windows.close(resting, chains, count)
            until[chains] = min(end for end in (*self.windows.ends, self._total) if end > count)


def _beginning(step_size: Tensor) -> Adaptation:
    return Adaptation(step_size, initial_step_size(step_size), torch.full_like(step_size, CAUTION))


@dataclass(frozen=True)
class HamiltonianSampler:
    """What starts chains of a Hamiltonian kernel; see :class:`bnnzoo.inference.markov.protocols.Sampler`."""

    kernel: Kernel
    settings: HamiltonianSettings
    engine: Engine = "auto"

    def groups(self, num_chains: int, spread: bool) -> list[range]:
        """Return all chains as one group in this process, and on workers ``num_groups``: chains adapt by themselves."""
        return even_groups(num_chains, (self.settings.num_groups or num_chains) if spread else 1)

    def begin(self, density: LogDensity, theta: Tensor, seed: int, first_chain: int) -> HamiltonianChains:
        """Start chains at ``theta[C, P]``."""
        return HamiltonianChains(self.kernel, density, self.settings, theta, seed, first_chain, self.engine)


@dataclass(frozen=True, kw_only=True)
class HamiltonianMethod(HamiltonianSettings):
    """A method whose chains move by a Hamiltonian kernel."""

    @abstractmethod
    def kernel(self) -> Kernel:
        """Return the kernel of these settings."""

    def run(self, density: LogDensity, context: FitContext) -> Draws:
        """Draw from the posterior; see :func:`bnnzoo.fit`."""
        sampler = HamiltonianSampler(self.kernel(), without_init(self), context.engine)
        return sample_chains(self, sampler, density, context)

    def run_together(self, fits: Sequence[tuple[LogDensity, FitContext]]) -> list[Draws]:
        """Draw from several posteriors of one kind; see :class:`bnnzoo.core.method.RunsTogether`."""
        density, context = fits[0]
        if goes_on(self) or not self.in_native_code(density) or context.engine not in ("auto", "native"):
            raise OneByOneError("These fits do not run in native code.")
        others = [(each, own.seed) for each, own in fits[1:]]

        def begin(theta: Tensor) -> HamiltonianChains:
            settings = without_init(self)
            return HamiltonianChains(self.kernel(), density, settings, theta, context.seed, 0, context.engine, others)

        return sample_together(self, begin, fits)
