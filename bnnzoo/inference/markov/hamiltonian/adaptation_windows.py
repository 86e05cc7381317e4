"""Warm-up windows: the draws collected in each, and the mass matrix and step size estimated at its end."""

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from bnnzoo.engine import pytree
from bnnzoo.engine.cores import one_blas_thread
from bnnzoo.engine.fleet import Runner
from bnnzoo.inference.markov.adaptation import (
    CAREFUL,
    CAUTION,
    NEAR,
    growing_windows,
    judged,
    restart_step_size,
    window_ends,
)
from bnnzoo.inference.markov.hamiltonian.hamiltonian_program import STATS, HamiltonianResting
from bnnzoo.inference.markov.metrics import (
    MOST_PARAMETERS,
    MassMatrix,
    drifts,
    finite_gradients,
    growth_of_step,
    has_converged,
    metrics_from,
)

__all__ = ["FEWEST_DRAWS", "Windows", "draws_of_two", "may_end", "windows_for"]

OF_DRAWS_ALONE = frozenset({"diagonal", "dense"})
"""Mass matrices that need all of warm-up, in Stan's windows."""

FEWEST_DRAWS = 300
"""Draws of warm-up that every chain has before its last window, if there are so many.

A mode far below the others keeps chains for a while. Of 64 chains of a hidden Markov model with such a mode, 1 was in it when its
draws began with 1,000 iterations of warm-up, 3 with these, and 6 with 200.
"""

MAX_DIVERGING = 0.02
"""Share of the trajectories of a window up to which the chain may have converged: steps are still tried."""


class Windows:
    """Draws, statistics and gradients of chains ``[C]`` in the open window and the one before it.

    Parameters
    ----------
    mass_matrix : MassMatrix
    num_warmup : int
    theta : Tensor
        Starting points ``[C, P]``.

    Attributes
    ----------
    ends : tuple of int
        Numbers of draws after which windows end; at the first one collecting begins.
    skipped : Tensor
        Draws ``[C]`` of warm-up that chains did without, since they had converged.
    """

    def __init__(self, mass_matrix: MassMatrix, num_warmup: int, theta: Tensor) -> None:
        self.mass_matrix, self.ends = mass_matrix, windows_for(mass_matrix, num_warmup)
        most = draws_of_two(self.ends)
        draws = theta.new_zeros(len(theta), most, theta.shape[1])
        stats = torch.zeros(len(theta), most, len(STATS), dtype=torch.float64)
        self.collected, self.counts = [draws, stats, draws.clone()], torch.zeros(len(theta), dtype=torch.int64)
        self.skipped = torch.zeros_like(self.counts)

    def gather(self, fleet: Runner, chains: Tensor) -> None:
        """Take what some chains, truth values ``[C]``, have kept: draws, statistics, and gradients."""
        fleet.gather(self.collected, self.counts, chains)

    def resumable(self) -> dict[str, Any]:
        """Return what a checkpoint needs."""
        most = int(self.counts.max())
        return {
            "collected": [each[:, :most] for each in self.collected],
            "num_collected": self.counts,
            "skipped": self.skipped,
        }

    def resume(self, found: Mapping[str, Any]) -> None:
        """Take what a checkpoint has."""
        self.counts, self.skipped = found["num_collected"], found["skipped"]
        for each, values in zip(self.collected, found["collected"], strict=True):
            each[:, : values.shape[1]] = values

    def close(self, resting: HamiltonianResting, chains: Tensor, end: int) -> Tensor:
        """Estimate mass matrices from this window and the one before, and return the chains that have converged.

        Chains still on their way to the posterior discard both windows.
        """
        numbers, size, converged = self.counts[chains], self.collected[0].shape[2], [chains[:0]]
        for number in numbers.unique().tolist():
            alike = chains[numbers == number]
            away = drifts(self.collected[1][alike, :number, STATS.index("lp")], size) & (end != self.ends[-1])
            self.counts[alike[away]] = 0
            if not bool(away.all()):
                with one_blas_thread() if size <= MOST_PARAMETERS else nullcontext():
                    converged.append(self.adapt(resting, alike[~away], number, end))
        return torch.cat(converged)

    def adapt(self, resting: HamiltonianResting, chains: Tensor, number: int, end: int) -> Tensor:
        """Estimate mass matrices from the last ``number`` draws, and keep those of this window; see :meth:`close`."""
        theta, stats, gradient = (each[chains, :number] for each in self.collected)
        gradient = finite_gradients(gradient)
        metric, gaussian = metrics_from(theta, gradient, self.mass_matrix)
        old, learnt = (
            pytree.tree_map(lambda value: value[chains], state) for state in (resting.metric, resting.adaptation)
        )
        growth = growth_of_step(old, metric, gradient).to(learnt.step_size)
        step = restart_step_size(learnt.step, growth, NEAR)
        new = end - self.ends[self.ends.index(end) - 1]
        step_size, acceptance, diverging = (
            stats[:, -new:, STATS.index(name)].to(learnt.target)
            for name in ("step_size", "acceptance_rate", "diverging")
        )
        learnt = judged(learnt, step_size, acceptance, diverging > 0)._replace(
            step_size=step.log_step.exp(),
            step=step,
            caution=torch.where(gaussian, CAUTION, CAREFUL).to(learnt.caution),
        )
        done = torch.zeros(len(chains), dtype=torch.bool)
        if may_end(self.mass_matrix, end, self.ends[-1]) and new < number:
            stays = has_converged(old, metric, theta, growth, new)
            done = (stays & gaussian).cpu() & (diverging.mean(1).cpu() <= MAX_DIVERGING)
        _write(resting.metric, chains, metric)
        _write(resting.adaptation, chains, learnt)
        kept = 0 if end == self.ends[-1] else new
        for each in self.collected:
            each[chains, :kept] = each[chains, number - kept : number]
        self.counts[chains] = kept
        self.skipped[chains[done]] = self.ends[-1] - end
        return chains[done]


def windows_for(mass_matrix: MassMatrix, num_warmup: int) -> tuple[int, ...]:
    """Return the ends of windows: gradients tell scales from the first draws on, variances need draws of the posterior."""
    return (window_ends if mass_matrix in OF_DRAWS_ALONE else growing_windows)(num_warmup)


def draws_of_two(ends: tuple[int, ...]) -> int:
    """Return how many draws the longest two windows in turn have."""
    return max((end - ends[max(i - 2, 0)] for i, end in enumerate(ends)), default=0)


def may_end(mass_matrix: MassMatrix, end: int, last: int, fewest: int = FEWEST_DRAWS) -> bool:
    """Return whether warm-up may go on to its ``last`` draws from the end of a window."""
    return mass_matrix not in OF_DRAWS_ALONE and fewest <= end < last


def _write(views: Any, chains: Tensor, values: Any) -> None:
    for view, value in zip(pytree.tree_leaves(views), pytree.tree_leaves(values), strict=True):
        view[chains] = value
