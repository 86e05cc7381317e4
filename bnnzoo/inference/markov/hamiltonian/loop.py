"""The one loop that drives Hamiltonian kernels: all chains in one batch, none waiting for another."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.func import vmap
from torch.utils import _pytree as pytree

from bnnzoo.core.density import LogDensity
from bnnzoo.inference.markov.adaptation import (
    Adaptation,
    growth_of_narrowest,
    identity_metric,
    initial_adaptation,
    metric_from,
    window_ends,
)
from bnnzoo.inference.markov.hamiltonian.chains import NativeChains
from bnnzoo.inference.markov.hamiltonian.kernel import Kernel, Phase, energy
from bnnzoo.inference.markov.hamiltonian.native import gradient_of
from bnnzoo.inference.markov.hamiltonian.settings import FIRST_STEP_SIZE, MAX_SEARCH, LoopSettings, retuned
from bnnzoo.inference.markov.hamiltonian.steps import STATS, batched_begin, batched_leap, batched_learn, batched_merge
from bnnzoo.inference.markov.protocols import Loop
from bnnzoo.inference.markov.settings import even_groups, refuse_counts, refuse_tuning, usual_steps
from bnnzoo.inference.markov.snapshots import from_arrays, to_arrays
from bnnzoo.inference.markov.streams import ChainStreams
from bnnzoo.lowering.lowered import LoopStep, looped_value_and_grad
from bnnzoo.lowering.packed import Packed

__all__ = ["ChainLoop", "HamiltonianSampler", "LoopSettings"]

NATIVE_PAYS_FROM = 10_000
"""Leapfrog steps of a chain from which compiling the whole chain takes less time than it saves."""


class ChainLoop:
    """Chains of one kernel in one batch, with all their state; see :class:`bnnzoo.inference.markov.protocols.Loop`.

    Parameters
    ----------
    kernel : Kernel
    density : LogDensity
    settings : LoopSettings
    theta : Tensor
        Starting points ``[C, P]`` at which the density is finite.
    seed : int
    first_chain : int
        Number of the first chain among all chains of the fit: chains are seeded one by one.
    """

    stats_names = STATS

    def __init__(
        self,
        kernel: Kernel,
        density: LogDensity,
        settings: LoopSettings,
        theta: Tensor,
        seed: int,
        first_chain: int,
    ) -> None:
        self.kernel, self.density, self.settings = kernel, density, settings
        self.num_chains, num_params = theta.shape
        self.streams = ChainStreams(seed, first_chain, self.num_chains, 5, density.dtype, density.device)
        self.counts = torch.zeros(self.num_chains, dtype=torch.int64)
        self._acceptance_rate = 0.0
        self.draws = theta.new_zeros(self.num_chains, settings.num_draws, num_params)
        self.stats = torch.zeros(self.num_chains, settings.num_draws, len(STATS), dtype=torch.float64)
        self._total = settings.num_warmup + settings.num_draws
        self._ends = window_ends(settings.num_warmup)
        self._tensors = [value for value in density.data if isinstance(value, Tensor)]
        self._start(theta)

    @property
    def num_leaps(self) -> int:
        """Number of leapfrog steps that every chain has taken."""
        return self.streams.num_rows

    def advance(self) -> None:
        """Go on until at least one chain has its next draw."""
        done = False
        with torch.no_grad():
            while not done:
                self._leap_until_stop()
                done = self._merge_stopped()
            self._finish_draws()

    def numbers(self) -> dict[str, float]:
        """Return what a progress bar shows besides the number of draws."""
        return {"acceptance": self._acceptance_rate, "step size": float(self._step_size().mean())}

    def snapshot(self) -> dict[str, Any]:
        """Return all that :meth:`restore` needs to go on with the very next step, as arrays."""
        return to_arrays(self._everything())

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Go on where a loop of the same chains was when ``snapshot`` was taken."""
        found = from_arrays(snapshot, like=self._everything())
        self.streams.restore(found["streams"])
        self.counts = found["counts"]
        self.state = State(*found["state"])
        for step, num_calls in zip(self._steps, found["calls"], strict=True):
            step.num_calls = num_calls

    def _everything(self) -> dict[str, Any]:
        return {
            "state": self.state,
            "counts": self.counts,
            "streams": self.streams.state(),
            "calls": [step.num_calls for step in self._steps],
        }

    @property
    def _steps(self) -> tuple[LoopStep, ...]:
        return self._leap, self._merge, self._learn, self._begin

    def _start(self, theta: Tensor) -> None:
        """Begin the first trajectory of all chains."""
        value, gradient = self.density.value_and_grad(theta, *self.density.data)
        step_size = torch.full_like(value, self.settings.step_size or FIRST_STEP_SIZE)
        metric = identity_metric(theta, self.settings.mass_matrix)
        adaptation = initial_adaptation(theta, step_size, self.settings.mass_matrix)
        leaf, tree = vmap(self.kernel.start)(Phase(theta, torch.zeros_like(theta), gradient, value))
        self._next_uniforms()
        noise = self.streams.normals(self.density.num_params)
        begin = vmap(self.kernel.begin, in_dims=(0, 0, 0, 0, 0, 1))
        leaf, tree = begin(leaf, tree, metric, step_size, noise, self._row[3:])
        self.state = State(Packed(leaf), Packed(tree), Packed(metric), Packed(adaptation))
        self._lower(noise)
        if self.settings.step_size is None:
            self._search_step_size()

    def _lower(self, noise: Tensor) -> None:
        """Turn the kernel's steps into functions of whole batches."""
        density, row = self.density, self._row
        leaf, tree, metric, adaptation = self.state
        gradient, looped = density.batched_value_and_grad, looped_value_and_grad(density.log_joint)
        fallback = batched_leap(self.kernel, looped)
        steps = usual_steps(density.num_params)
        leaps = steps * self._total
        # chains seldom stop together in long trajectories, often in short ones
        merges = min(leaps, self.kernel.num_merges(steps) * self.num_chains * self._total)
        leap_args = (leaf, tree, metric, self._step_size(), row[0], *self.density.data)
        leap = batched_leap(self.kernel, gradient)
        self._leap = LoopStep(leap, *leap_args, fallback=fallback, at_least=leaps)
        self._merge = LoopStep(batched_merge(self.kernel), leaf, tree, metric, row[1:3], at_least=merges)
        learn = batched_learn(self.settings.target_accept)
        self._learn = LoopStep(learn, leaf, tree, metric, adaptation, *self._stages(), at_least=self._total)
        begin_args = (leaf, tree, metric, adaptation, noise, row[3:])
        self._begin = LoopStep(batched_begin(self.kernel), *begin_args, at_least=self._total)

    def _leap_until_stop(self) -> None:
        """Move every chain by leapfrog steps until one of them has to be taken on."""
        leaf, tree, metric, _ = self.state
        fixed, groups = (*tree.groups, *metric.groups, self._step_size()), leaf.groups
        stop = False
        while not stop:
            self._next_uniforms()
            *groups, any_stop = self._leap(*groups, *fixed, self._row[0], *self._tensors)
            stop = bool(any_stop)
        leaf.groups = groups

    def _merge_stopped(self) -> bool:
        """Take on the chains that have stopped and return whether any has a draw."""
        leaf, tree, metric, _ = self.state
        *groups, any_done = self._merge(*leaf.groups, *tree.groups, *metric.groups, self._row[1:3])
        leaf.groups, tree.groups = groups[: len(leaf.groups)], groups[len(leaf.groups) :]
        return bool(any_done)

    def _finish_draws(self) -> None:
        """Keep the draws of chains that are done, learn from them, and begin their next trajectories."""
        leaf, tree, metric, adaptation = self.state
        finished = tree.value
        chains = finished.done.nonzero()[:, 0]
        *adaptation.groups, stats = self._learn(
            *leaf.groups, *tree.groups, *metric.groups, *adaptation.groups, *self._stages()
        )
        stats = stats[chains].cpu()
        self._acceptance_rate = float(stats[:, STATS.index("acceptance_rate")].mean())
        self._keep(chains.cpu(), finished.proposal.theta[chains], stats)
        noise = self.streams.normals(self.density.num_params, chains.tolist())
        groups = self._begin(*leaf.groups, *tree.groups, *metric.groups, *adaptation.groups, noise, self._row[3:])
        leaf.groups, tree.groups = list(groups[: len(leaf.groups)]), list(groups[len(leaf.groups) :])

    def _step_size(self) -> Tensor:
        step_size: Tensor = self.state.adaptation.value.step_size
        return step_size.clone()

    def _stages(self) -> tuple[Tensor, Tensor, Tensor]:
        """Say which chains adapt their step size, which adapt it for the last time, and which collect moments."""
        first, last = (self._ends[0], self._ends[-1]) if self._ends else (0, 0)
        warm = self.counts < self.settings.num_warmup
        stages = warm, self.counts == self.settings.num_warmup - 1, (self.counts >= first) & (self.counts < last)
        device = self.density.device
        return stages[0].to(device), stages[1].to(device), stages[2].to(device)

    def _keep(self, chains: Tensor, theta: Tensor, stats: Tensor) -> None:
        """Write down the draws ``[N, P]`` of some chains, and end windows of the adaptation."""
        place = self.counts[chains] - self.settings.num_warmup
        kept = (place >= 0) & (place < self.settings.num_draws)
        self.draws[chains[kept], place[kept]] = theta[kept]
        self.stats[chains[kept], place[kept]] = stats[kept].double()
        self.counts[chains] += 1
        ends_window = torch.isin(self.counts[chains], torch.tensor(self._ends[1:], dtype=self.counts.dtype))
        for chain in chains[ends_window].tolist():
            self._close_window(chain)

    def _close_window(self, chain: int) -> None:
        """Take over the mass matrix estimated in the window that ends, and forget the window."""
        metric, adaptation = self.state.metric, self.state.adaptation
        learnt: Adaptation = _of_chain(adaptation.value, chain)
        new = metric_from(learnt.moments)
        growth = growth_of_narrowest(_of_chain(metric.value, chain), new)
        step = retuned(learnt.step, growth, self._ends.index(int(self.counts[chain])), len(self._ends))
        empty = pytree.tree_map(torch.zeros_like, learnt.moments)
        _write_chain(metric.value, chain, new)
        _write_chain(adaptation.value, chain, Adaptation(step.log_step.exp(), step, empty))

    def _search_step_size(self) -> None:
        """Double or halve each chain's step until the acceptance of one leapfrog step crosses 0.8."""
        step = self._step_size()
        upwards = self._acceptance(step) > 0.8
        searching = torch.ones_like(upwards)
        for _ in range(MAX_SEARCH):
            step = torch.where(searching, torch.where(upwards, 2 * step, step / 2), step)
            searching &= (self._acceptance(step) > 0.8) == upwards
            if not bool(searching.any()):
                break
        theta = self.state.leaf.value.phase.theta
        self.state.adaptation.groups = Packed(initial_adaptation(theta, step, self.settings.mass_matrix)).groups

    def _acceptance(self, step_size: Tensor) -> Tensor:
        """Return the acceptance probability ``[C]`` of one leapfrog step from where the chains are."""
        leaf, tree, metric, _ = self.state
        groups = self._leap(*leaf.groups, *tree.groups, *metric.groups, step_size, self._row[0], *self._tensors)
        phase = leaf.with_groups(groups[:-1]).value.phase
        return (tree.value.control.energy - vmap(energy)(metric.value, phase)).exp()

    def _next_uniforms(self) -> None:
        self._row = self.streams.uniforms()


class State(NamedTuple):
    """Everything of the chains that changes, besides counts and random streams."""

    leaf: Packed
    tree: Packed
    metric: Packed
    adaptation: Packed


def _of_chain(state: Any, chain: int) -> Any:
    return pytree.tree_map(lambda value: value[chain].clone(), state)


def _write_chain(state: Any, chain: int, new: Any) -> None:
    """Write one chain's values into the views that make up ``state``."""
    for values, value in zip(pytree.tree_leaves(state), pytree.tree_leaves(new), strict=True):
        values[chain] = value


@dataclass(frozen=True)
class HamiltonianSampler:
    """What begins a :class:`ChainLoop`; see :class:`bnnzoo.inference.markov.protocols.Sampler`."""

    kernel: Kernel
    settings: LoopSettings
    num_groups: int | None

    def groups(self, num_chains: int, spread: bool) -> list[range]:
        """Return all chains as one batch at home, and on workers as many batches as asked for: they do not need each other."""
        return even_groups(num_chains, (self.num_groups or num_chains) if spread else 1)

    def begin(self, density: LogDensity, theta: Tensor, seed: int, first_chain: int) -> Loop:
        """Start chains at ``theta[C, P]``, in native code where that pays for compiling it."""
        steps = usual_steps(density.num_params) * (self.settings.num_warmup + self.settings.num_draws)
        pays = density.device.type == "cpu" and steps >= NATIVE_PAYS_FROM
        gradient = gradient_of(density) if pays else None
        if gradient is not None:
            return NativeChains(self.kernel, gradient, self.settings, theta, seed, first_chain)
        return ChainLoop(self.kernel, density, self.settings, theta, seed, first_chain)

    def refuse_impossible(self, name: str) -> None:
        """Raise ValueError if the settings of the method ``name`` cannot be."""
        refuse_tuning(name, self.settings)
        refuse_counts(name, {"num_groups": (1 if self.num_groups is None else self.num_groups, 1)})
