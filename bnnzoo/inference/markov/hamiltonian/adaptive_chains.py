"""Chains of a Hamiltonian kernel that adapt: their start, the step size they begin with, and windows of warm-up."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.func import vmap

from bnnzoo.core.model.density import LogDensity
from bnnzoo.engine.choose import Engine, typical_num_steps
from bnnzoo.engine.program import GradientFunction
from bnnzoo.engine.runner import runner
from bnnzoo.inference.markov.adaptation import (
    initial_adaptation,
    search_step_size,
    settling_from,
)
from bnnzoo.inference.markov.chain_settings import HamiltonianSettings
from bnnzoo.inference.markov.first_metric import in_form_of
from bnnzoo.inference.markov.hamiltonian.adaptation_windows import Windows
from bnnzoo.inference.markov.hamiltonian.hamiltonian_program import (
    STATS,
    HamiltonianCounters,
    HamiltonianProgram,
    HamiltonianResting,
    HamiltonianSchedule,
    MovingEnd,
)
from bnnzoo.inference.markov.hamiltonian.kernel import Kernel, Metric, Phase, energy
from bnnzoo.inference.markov.metrics import identity_metric, inverse_mass_of, mass_matrix_for, metric_of
from bnnzoo.inference.markov.noise import normals
from bnnzoo.inference.markov.running import RunningChains

__all__ = ["AdaptiveChains"]

INITIAL_STEP_SIZE = 0.1
"""Where the search for a step size begins."""


class AdaptiveChains(RunningChains):
    """Copies of a Hamiltonian chain, each of which adapts by itself, in the state in which sampling begins.

    Parameters
    ----------
    kernel : Kernel
    settings : HamiltonianSettings
    theta : Tensor
        Starting points ``[C, P]`` of the chains whose draws are kept.
    keys : Tensor
        Of the random streams of all copies, ``[M, 4]``.
    """

    stats_names: tuple[str, ...] = STATS

    def __init__(self, kernel: Kernel, settings: HamiltonianSettings, theta: Tensor, keys: Tensor) -> None:
        super().__init__(settings, theta, keys)
        self.kernel, self.settings = kernel, settings

    def _set_going(
        self,
        program: HamiltonianProgram,
        gradient: GradientFunction,
        density: LogDensity,
        theta: Tensor,
        engine: Engine,
        *,
        of_copies: Sequence[tuple[Any, ...]] | None = None,
        tempering: Any = (),
    ) -> None:
        """Begin copies of a program at points ``[M, P]`` at which the density is finite, with data of their own if need be."""
        settings = self.settings
        self.windows = Windows(mass_matrix_for(settings.mass_matrix, density), settings.num_warmup, theta)
        steps, draws = typical_num_steps(theta.shape[1]), self._total
        self.fleet = runner(
            program,
            gradient,
            *self._at_rest(theta, tempering),
            self.row,
            engine=engine,
            native_pays=settings.in_native_code(density),
            num_steps=steps * draws,
            num_cycles=min(steps, self.kernel.num_proposals(steps) * len(theta)) * draws,
            log=self.log,
            data=of_copies,
        )
        self._look_around()

    def counted(self, chains: slice) -> tuple[int, int]:
        """Return the numbers of leapfrog steps and of rejected points of some copies."""
        steps, rejected = self.fleet.moving.num_leapfrog, self.fleet.resting.counters.rejected
        return int(steps[chains].sum()), int(rejected[chains].sum())

    @property
    def num_gradients(self) -> int:
        """Number of leapfrog steps that all copies have taken together."""
        return self.counted(slice(None))[0]

    @property
    def num_rejected(self) -> int:
        """Number of proposed points at which the log density could not be computed."""
        return self.counted(slice(None))[1]

    @property
    def tuned(self) -> dict[str, Tensor]:
        """Step size, target of acceptance and draws of warm-up ``[C]`` of each copy, and its inverse mass.

        The inverse mass is as :func:`.inverse_mass_of` returns it.
        """
        resting = self.fleet.resting
        adaptation = resting.adaptation
        warmed = (self._num_warmup - self.windows.skipped).to(self.keys.device)
        numbers = {"step_size": adaptation.step_size, "target_accept": adaptation.target, "num_warmup": warmed}
        found = {**numbers, **inverse_mass_of(resting.metric)}
        return {name: value.clone() for name, value in found.items()}

    def adopt(self, tuning: Mapping[str, Tensor]) -> None:
        """Start with step sizes and mass matrices found before."""
        resting = self.fleet.resting
        adaptation = resting.adaptation
        target = tuning.get("target_accept", adaptation.target)
        adaptation = adaptation._replace(step_size=tuning["step_size"], target=target)
        self.fleet.write(resting=resting._replace(metric=metric_of(tuning), adaptation=adaptation))

    def begin_with(self, metric: Metric) -> None:
        """Start with mass matrices ``[C, ...]`` found before, as far as these chains have such, and steps that suit them."""
        resting = self.fleet.resting
        self.fleet.write(self.fleet.moving, resting._replace(metric=in_form_of(resting.metric, metric)))
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

    def _resumable(self) -> dict[str, Any]:
        return super()._resumable() | self.windows.resumable()

    def _resume(self, found: Mapping[str, Any]) -> None:
        super()._resume(found)
        self.windows.resume(found)

    def _at_rest(self, theta: Tensor, tempering: Any) -> tuple[MovingEnd, HamiltonianResting]:
        """Return the state of chains before they know the log density where they are."""
        settings, keys = self.settings, self.keys
        zeros, noise = (
            theta.new_zeros(len(theta)),
            normals(keys[:, :1], torch.arange(theta.shape[1]).to(keys), theta.dtype),
        )
        end, trajectory = vmap(self.kernel.finished_trajectory)(Phase(theta, noise, self._unknown(theta), zeros))
        counts = [torch.zeros_like(keys[:, 0]) for _ in HamiltonianCounters._fields]
        step_size = zeros + (settings.step_size or INITIAL_STEP_SIZE)
        resting = HamiltonianResting(
            trajectory=trajectory,
            metric=identity_metric(theta, self.windows.mass_matrix),
            adaptation=initial_adaptation(step_size, settings.target_accept),
            counters=HamiltonianCounters(*counts),
            schedule=HamiltonianSchedule(*(torch.full_like(keys[:, 0], number) for number in self._schedule())),
            keys=keys,
            tempering=tempering,
        )
        return MovingEnd(end, torch.zeros_like(keys[:, 0])), resting

    def _unknown(self, theta: Tensor) -> Tensor:
        """Return zeros in place of what the gradient function returns at points ``[M, P]``."""
        return torch.zeros_like(theta)

    def _schedule(self) -> tuple[int, ...]:
        warmup, ends = self.settings.num_warmup, self.windows.ends
        first, last = (ends[0], ends[-1]) if ends else (0, 0)
        return warmup, settling_from(warmup), first, last, min(end for end in (*ends, self._total) if end > 0)

    def _look_around(self) -> None:
        """Find the log density where the chains are, and a step size for each: the given one, or by doubling or halving."""
        moving, resting = self.fleet.moving, self.fleet.resting
        here, step_size = moving.end.phase, resting.adaptation.step_size.clone()
        begun = self._under_way(*vmap(self.kernel.finished_trajectory)(here))
        still = self._leapt(*begun, torch.zeros_like(step_size))  # a step of size zero
        phase = here._replace(gradient=still.gradient.clone(), log_density=still.log_density.clone())
        end, trajectory = vmap(self.kernel.finished_trajectory)(phase)
        if self.settings.step_size is None:
            before, begun = vmap(energy)(resting.metric, phase), self._under_way(end, trajectory)

            def acceptance(size: Tensor) -> Tensor:
                return (before - vmap(energy)(resting.metric, self._leapt(*begun, size))).exp()

            step_size = search_step_size(acceptance, step_size)
        adaptation = initial_adaptation(step_size, self.settings.target_accept)
        self.fleet.write(moving._replace(end=end), resting._replace(trajectory=trajectory, adaptation=adaptation))

    def _under_way(self, end: Any, trajectory: Any) -> tuple[MovingEnd, HamiltonianResting]:
        """Return the state of chains before a leapfrog step: not the last of its trajectory, and one that cannot diverge."""
        control = trajectory.control
        control = control._replace(
            energy=torch.full_like(control.energy, torch.inf), length=torch.full_like(control.length, 2)
        )
        trajectory = trajectory._replace(control=control, done=torch.zeros_like(trajectory.done))
        return self.fleet.moving._replace(end=end), self.fleet.resting._replace(trajectory=trajectory)

    def _leapt(self, moving: MovingEnd, resting: HamiltonianResting, step_size: Tensor) -> Phase:
        """Return where one leapfrog step leads."""
        adaptation = resting.adaptation._replace(step_size=step_size)
        found: Phase = self.fleet.tried(moving, resting._replace(adaptation=adaptation)).end.phase
        return found
