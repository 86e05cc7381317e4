"""The loop that drives Hamiltonian kernels: all chains in one batch, none waiting for another."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.func import vmap

from bnnzoo.core.density import LogDensity
from bnnzoo.engine.lowered import LoopStep
from bnnzoo.engine.packed import Packed
from bnnzoo.engine.stretches import compiled_or_none
from bnnzoo.inference.markov.adaptation import (
    Adaptation,
    identity_metric,
    initial_adaptation,
    metric_of,
    search_step_size,
)
from bnnzoo.inference.markov.chains import INITIAL_STEP_SIZE, ChainLoop
from bnnzoo.inference.markov.hamiltonian.chains import NativeChains
from bnnzoo.inference.markov.hamiltonian.kernel import Kernel, Metric, Phase, energy
from bnnzoo.inference.markov.hamiltonian.steps import (
    STATS,
    batched_begin,
    batched_leap,
    batched_learn,
    batched_propose,
    stages_of,
)
from bnnzoo.inference.markov.hamiltonian.windows import close_windows
from bnnzoo.inference.markov.native import gradient_of
from bnnzoo.inference.markov.protocols import Loop
from bnnzoo.inference.markov.settings import HamiltonianSettings, even_groups, typical_num_steps
from bnnzoo.inference.markov.store import not_compiled_here

__all__ = ["HamiltonianLoop", "HamiltonianSampler"]

NATIVE = NativeChains.kind


class State(NamedTuple):
    """Everything about the chains that changes, except for random streams."""

    end: Packed
    trajectory: Packed
    metric: Packed
    adaptation: Packed
    counts: Tensor
    num_rejected: Tensor


class Steps(NamedTuple):
    """The compiled steps of the loop."""

    leap: LoopStep
    propose: LoopStep
    learn: LoopStep
    begin: LoopStep


class HamiltonianLoop(ChainLoop):
    """Chains of one Hamiltonian kernel, each of which adapts by itself.

    Parameters
    ----------
    kernel : Kernel
    density, settings, theta, seed, first_chain
        As in :class:`bnnzoo.inference.markov.chains.ChainLoop`.
    """

    kind, stats_names = "batched", STATS

    def __init__(
        self,
        kernel: Kernel,
        density: LogDensity,
        settings: HamiltonianSettings,
        theta: Tensor,
        seed: int,
        first_chain: int,
    ) -> None:
        super().__init__(density, settings, theta, seed, first_chain, num_uniforms=5)
        self.kernel, self.settings = kernel, settings
        self._acceptance_rate = 0.0
        self._start(theta)

    @property
    def counts(self) -> Tensor:
        """Number of draws ``[C]`` of each chain, warm-up included."""
        return self.state.counts

    @property
    def num_leaps(self) -> int:
        """Number of leapfrog steps that every chain has taken."""
        return self.streams.num_rows

    @property
    def num_rejected(self) -> int:
        """Number of proposed points at which the log density could not be computed."""
        return int(self.state.num_rejected)

    def advance(self) -> None:
        """Run the chains until at least one of them has its next draw."""
        done = False
        with torch.no_grad():
            while not done:
                self._leap_until_stop()
                done = self._propose_where_stopped()
            self._finish_draws()

    def progress_fields(self) -> dict[str, float]:
        """Return what a progress bar shows besides the number of draws."""
        return {"acceptance": self._acceptance_rate, "step size": float(self._step_size().mean())}

    @property
    def _steps(self) -> Steps:
        return self.steps

    @property
    def _state(self) -> tuple[State]:
        return (self.state,)

    def _resume(self, state: tuple[State]) -> None:
        (self.state,) = state

    def _start(self, theta: Tensor) -> None:
        """Start the first trajectory of all chains."""
        value, gradient = self.density.value_and_grad(theta, *self.density.data)
        step_size = torch.full_like(value, self.settings.step_size or INITIAL_STEP_SIZE)
        mass_matrix, counts = self.settings.mass_matrix, torch.zeros(self.num_chains, dtype=torch.int64)
        metric, adaptation = identity_metric(theta, mass_matrix), initial_adaptation(theta, step_size, mass_matrix)
        at_rest = Phase(theta, torch.zeros_like(theta), gradient, value)
        end, trajectory = vmap(self.kernel.finished_trajectory)(at_rest)
        self._row = self.streams.uniforms()
        noise = self.streams.normals(self.num_params)
        begun = _begun(self, end, trajectory, metric, adaptation, noise)
        self.state = State(*begun, counts, counts.new_zeros(()))
        self.steps = self._lower(noise)
        if self.settings.step_size is None:
            adaptation = initial_adaptation(theta, search_step_size(partial(_acceptance, self), step_size), mass_matrix)
            self.state = self.state._replace(adaptation=Packed(adaptation))

    @property
    def tuned(self) -> dict[str, Tensor]:
        """Step size ``[C]`` and inverse mass ``[C, P]`` or ``[C, P, P]`` of each chain."""
        return {"step_size": self._step_size(), "inverse_mass": self.state.metric.value.inverse_mass.clone()}

    def adopt(self, tuning: Mapping[str, Tensor]) -> None:
        """Start the first trajectories anew, with step sizes and mass matrices found before."""
        self.state = _begun_anew(self, tuning)

    def _lower(self, noise: Tensor) -> Steps:
        """Turn the kernel's steps into functions of whole batches."""
        end, trajectory, metric, adaptation, *_ = self.state
        row, draws = self._row, self._num_warmup + self._num_draws
        steps = typical_num_steps(self.num_params)
        # chains rarely stop together in long trajectories, often in short ones
        proposals = min(steps, self.kernel.num_proposals(steps) * self.num_chains) * draws
        moving = end, trajectory, metric
        return Steps(
            leap=self._lowered(lambda f: batched_leap(self.kernel, f), *moving, self._step_size(), row[0]),
            propose=LoopStep(batched_propose(self.kernel), *moving, row[1:3], at_least=proposals),
            learn=LoopStep(
                batched_learn(self.settings.target_accept), *moving, adaptation, *self._stages(), at_least=draws
            ),
            begin=LoopStep(batched_begin(self.kernel), *moving, adaptation, noise, row[3:], at_least=draws),
        )

    def _leap_until_stop(self) -> None:
        """Move every chain by leapfrog steps until the end of one of them stops."""
        end, trajectory, metric, *_ = self.state
        fixed, groups = (*trajectory.groups, *metric.groups, self._step_size()), end.groups
        stop = False
        while not stop:
            self._row = self.streams.uniforms()
            *groups, any_stop = self.steps.leap(*groups, *fixed, self._row[0], *self._tensors)
            stop = bool(any_stop)
        end.groups = groups

    def _propose_where_stopped(self) -> bool:
        """Update the proposals of chains whose end has stopped and return whether any chain has a draw."""
        end, trajectory, metric, *_ = self.state
        moving = *end.groups, *trajectory.groups, *metric.groups
        *groups, rejected, any_done = self.steps.propose(*moving, self._row[1:3])
        self.state.num_rejected.add_(rejected.cpu())
        end.groups, trajectory.groups = groups[: len(end.groups)], groups[len(end.groups) :]
        return bool(any_done)

    def _finish_draws(self) -> None:
        """Keep the draws of chains that are done, learn from them, and start their next trajectories."""
        end, trajectory, metric, adaptation, counts, _ = self.state
        finished = trajectory.value
        chains = finished.done.nonzero()[:, 0]
        moving = *end.groups, *trajectory.groups, *metric.groups
        *adaptation.groups, stats = self.steps.learn(*moving, *adaptation.groups, *self._stages())
        stats = stats[chains].cpu()
        self._acceptance_rate = float(stats[:, STATS.index("acceptance_rate")].mean())
        self._keep(chains.cpu(), finished.proposal.theta[chains], stats)
        counts[chains.cpu()] += 1
        close_windows(metric.value, adaptation.value, counts, chains.cpu(), self._ends)
        noise = self.streams.normals(self.num_params, chains.tolist())
        moving = *end.groups, *trajectory.groups, *metric.groups
        groups = self.steps.begin(*moving, *adaptation.groups, noise, self._row[3:])
        end.groups, trajectory.groups = list(groups[: len(end.groups)]), list(groups[len(end.groups) :])

    def _step_size(self) -> Tensor:
        return cast(Tensor, self.state.adaptation.value.step_size).clone()

    def _stages(self) -> tuple[Tensor, Tensor, Tensor]:
        return stages_of(self.state.counts, self._num_warmup, self._ends, self.density.device)


def _begun_anew(loop: HamiltonianLoop, tuning: Mapping[str, Tensor]) -> State:
    """Return the state of chains whose first trajectories start anew, with step sizes and mass matrices found before."""
    end, trajectory = loop.state.end.value, loop.state.trajectory.value
    step_size, metric = tuning["step_size"], metric_of(tuning["inverse_mass"])
    adaptation = initial_adaptation(trajectory.proposal.theta, step_size, loop.settings.mass_matrix)
    begun = _begun(loop, end, trajectory, metric, adaptation, loop.streams.normals(loop.num_params))
    return State(*begun, loop.state.counts, loop.state.num_rejected)


def _begun(
    loop: HamiltonianLoop, end: Any, trajectory: Any, metric: Metric, adaptation: Adaptation, noise: Tensor
) -> tuple[Packed, Packed, Packed, Packed]:
    """Begin the trajectories of all chains."""
    begin = vmap(loop.kernel.begin, in_dims=(0, 0, 0, 0, 0, 1))
    end, trajectory = begin(end, trajectory, metric, adaptation.step_size, noise, loop._row[3:])
    return Packed(end), Packed(trajectory), Packed(metric), Packed(adaptation)


def _acceptance(loop: HamiltonianLoop, step_size: Tensor) -> Tensor:
    """Return the acceptance probability ``[C]`` of one leapfrog step from the current points."""
    end, trajectory, metric, *_ = loop.state
    moving = *end.groups, *trajectory.groups, *metric.groups
    groups = loop.steps.leap(*moving, step_size, loop._row[0], *loop._tensors)
    phase = end.with_groups(groups[:-1]).value.phase
    return (trajectory.value.control.energy - vmap(energy)(metric.value, phase)).exp()


@dataclass(frozen=True)
class HamiltonianSampler:
    """What starts a loop over a Hamiltonian kernel; see :class:`bnnzoo.inference.markov.protocols.Sampler`."""

    kernel: Kernel
    settings: HamiltonianSettings

    def groups(self, num_chains: int, spread: bool) -> list[range]:
        """Return all chains as one batch in this process, and on workers ``num_groups`` batches: chains adapt by themselves."""
        return even_groups(num_chains, (self.settings.num_groups or num_chains) if spread else 1)

    def begin(self, density: LogDensity, theta: Tensor, seed: int, first_chain: int, kind: str | None = None) -> Loop:
        """Start chains at ``theta[C, P]``, in native code where that pays for compiling it and the model can be compiled.

        Raises
        ------
        ValueError
            If a checkpoint asks for native code, and the model cannot be compiled.
        """
        wanted = self.settings.in_native_code(density) if kind is None else kind == NATIVE
        native = self._native_chains(density, theta, seed, first_chain) if wanted else None
        if kind == NATIVE and native is None:
            raise not_compiled_here()
        return native or HamiltonianLoop(self.kernel, density, self.settings, theta, seed, first_chain)

    def _native_chains(self, density: LogDensity, theta: Tensor, seed: int, first_chain: int) -> NativeChains | None:
        return compiled_or_none(
            gradient_of(density),
            lambda gradient: NativeChains(self.kernel, gradient, self.settings, theta, seed, first_chain),
        )
