"""Chains of a Hamiltonian kernel in native code, side by side in threads."""

import time
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from bnnzoo.core.turns import aside
from bnnzoo.engine.cores import in_threads, num_cores, one_arithmetic_thread
from bnnzoo.engine.loops import Stretch
from bnnzoo.engine.stretches import FIRST_BUDGET, next_budget, words_of
from bnnzoo.inference.markov.adaptation import (
    Adaptation,
    growth_of_narrowest,
    metric_from,
    metric_of,
    retuned_step_size,
    window_ends,
)
from bnnzoo.inference.markov.hamiltonian.kernel import Kernel, Metric
from bnnzoo.inference.markov.hamiltonian.native import (
    NUM_STREAMS,
    Chain,
    Plan,
    begun,
    chain_loop,
)
from bnnzoo.inference.markov.hamiltonian.starting import begin, started
from bnnzoo.inference.markov.hamiltonian.steps import STATS
from bnnzoo.inference.markov.native import Gradient
from bnnzoo.inference.markov.noise import keys_of
from bnnzoo.inference.markov.settings import HamiltonianSettings
from bnnzoo.inference.markov.snapshots import from_arrays, to_arrays

__all__ = ["NativeChains"]

STEPS_TRIED = 3
"""Leapfrog steps after which newly compiled code must be where the graph is that it was made from."""

STEP_SIZE_TRIED = 1e-3
"""Of these steps: none leads to where rounding grows."""


class NativeChains:
    """Chains that run one by one in native code; see :class:`bnnzoo.inference.markov.protocols.Loop`.

    Draws depend on neither the number of threads nor the lengths of stretches: random numbers are functions of the seed, the
    chain's number and its own counters.

    Parameters
    ----------
    kernel : Kernel
    gradient : Gradient
        Of the log density.
    settings : HamiltonianSettings
    theta : Tensor
        Starting points ``[C, P]`` at which the density is finite.
    seed : int
    first_chain : int
        Number of the first chain among all chains of the fit.
    num_threads : int, optional
        Chains that run at a time. Default: one for each core that this process may use.
    compiles : bool
        False to run the traced graphs, whose draws differ by rounding only.
    """

    kind, stats_names = "native", STATS

    def __init__(
        self,
        kernel: Kernel,
        gradient: Gradient,
        settings: HamiltonianSettings,
        theta: Tensor,
        seed: int,
        first_chain: int,
        num_threads: int | None = None,
        compiles: bool = True,
    ) -> None:
        self.kernel, self.settings = kernel, settings
        self.num_chains = len(theta)
        self.num_threads = min(num_threads or num_cores(), self.num_chains)
        self.draws = theta.new_zeros(self.num_chains, settings.num_draws, theta.shape[1])
        self.stats = torch.zeros(self.num_chains, settings.num_draws, len(STATS), dtype=torch.float64)
        self._ends, self._budget = window_ends(settings.num_warmup), FIRST_BUDGET
        self._total = settings.num_warmup + settings.num_draws
        self._num_copied = [0] * self.num_chains
        keys = [keys_of(seed, first_chain + c, NUM_STREAMS) for c in range(self.num_chains)]
        chains, plans = started(kernel, gradient, settings, theta, keys)
        going, body = chain_loop(kernel, gradient.graph, settings.target_accept)
        key = (kernel, settings.target_accept, words_of(gradient.graph))
        self.stretch = Stretch(going, body, _example(chains[0]), plans[0], key, compiles)
        self._states = [self.stretch.pack(chain) for chain in chains]
        self._plans = [self.stretch.pack_fixed(plan) for plan in plans]
        with one_arithmetic_thread():
            for state, plan in zip(self._states, self._plans, strict=True):
                begin(kernel, settings, self.stretch, state, plan)
        # views of what the native code changes; truth values in them are those of now, and nothing here reads them later
        self._chains: list[Chain] = [self.stretch.unpack(state) for state in self._states]
        self._fixed: list[Plan] = [self.stretch.unpack_fixed(plan) for plan in self._plans]
        for chain in range(self.num_chains):
            self._begin(chain)

    def is_native(self) -> bool:
        """Return whether the chains were compiled; a step on a copy of the first one raises if the compiled code fails."""
        if self.stretch.how == "compiled":
            state = [tensor.clone() for tensor in self._states[0]]
            self.stretch.unpack(state).counters.budget.fill_(1)
            with one_arithmetic_thread():
                self.stretch(state, self._plans[0])
        return self.stretch.how == "compiled"

    @property
    def counts(self) -> Tensor:
        """Number of draws ``[C]`` of each chain, warm-up included, that have reached ``draws``."""
        return torch.minimum(self._native_counts(), self.settings.num_warmup + torch.tensor(self._num_copied))

    @property
    def num_gradients(self) -> int:
        """Number of leapfrog steps that all chains have taken together."""
        return sum(self._leaps())

    @property
    def num_rejected(self) -> int:
        """Number of proposed points at which the log density could not be computed."""
        return sum(int(chain.counters.rejected) for chain in self._chains)

    def advance(self) -> None:
        """Run a stretch of every chain that is not done. An interrupt waits until these stretches end."""
        began, leaps = time.perf_counter(), self._leaps()
        under_way = [c for c in range(self.num_chains) if int(self._chains[c].counters.draws) < self._total]
        try:
            with aside():
                in_threads(self._run, under_way, self.num_threads)
        finally:  # an interrupt has waited for the stretches under way: their draws are kept, too
            for chain in under_way:
                _end_stretch(self, chain)
        rounds = -(-len(under_way) // self.num_threads)
        seconds = max((time.perf_counter() - began) / rounds, 1e-9)
        taken = max(now - before for now, before in zip(self._leaps(), leaps, strict=True))
        self._budget = next_budget(self._budget, taken, seconds)

    @property
    def tuned(self) -> dict[str, Tensor]:
        """Step size ``[C]`` and inverse mass ``[C, P]`` or ``[C, P, P]`` of each chain."""
        sizes = torch.stack([chain.adaptation.step_size for chain in self._chains])
        return {"step_size": sizes, "inverse_mass": torch.stack([plan.metric.inverse_mass for plan in self._fixed])}

    def adopt(self, tuning: Mapping[str, Tensor]) -> None:
        """Start the first trajectories anew, with step sizes and mass matrices found before."""
        metrics = metric_of(tuning["inverse_mass"])
        for number in range(self.num_chains):
            _write(self._fixed[number].metric, Metric(*(value[number] for value in metrics)))
            self._chains[number].adaptation.step_size.copy_(tuning["step_size"][number])
            self._begin(number)

    def progress_fields(self) -> dict[str, float]:
        """Return what a progress bar shows besides the number of draws."""
        return _shown(self._chains)

    def snapshot(self) -> dict[str, Any]:
        """Return everything :meth:`restore` needs to continue with the very next step, as arrays."""
        return to_arrays(self._everything())

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Continue where a loop of the same chains was when ``snapshot`` was taken."""
        found = from_arrays(snapshot, like=self._everything())
        for now, then in zip(pytree.tree_leaves(self._everything()), pytree.tree_leaves(found), strict=True):
            now.copy_(then)
        self._num_copied = (self._native_counts() - self.settings.num_warmup).clamp(min=0).tolist()

    def _leaps(self) -> list[int]:
        return [int(chain.counters.leaps) for chain in self._chains]

    def _native_counts(self) -> Tensor:
        return torch.stack([chain.counters.draws for chain in self._chains])

    def _everything(self) -> dict[str, Any]:
        states = [_without_buffers(*each) for each in zip(self._states, self._chains, strict=True)]
        return {"state": states, "plan": [(plan.metric, plan.schedule) for plan in self._fixed]}

    def _run(self, chain: int) -> None:
        self._chains[chain].counters.budget.fill_(self._budget)
        self.stretch(self._states[chain], self._plans[chain])

    def _begin(self, number: int) -> None:
        """Begin a chain's next trajectory, which waits for the new mass matrix where a window has ended."""

        def beginning(chain: Chain) -> Chain:
            end, trajectory = begun(self.kernel, chain, self._fixed[number])
            return chain._replace(end=end, trajectory=trajectory)

        self.stretch.change(self._states[number], beginning)


def _end_stretch(loop: NativeChains, number: int) -> None:
    """Copy new draws to where they are kept, and end a window of the adaptation."""
    chain, plan = loop._chains[number], loop._fixed[number]
    count = int(chain.counters.draws)
    new = slice(loop._num_copied[number], max(count - loop.settings.num_warmup, 0))
    rows = new.stop - new.start
    loop.draws[number, new], loop.stats[number, new] = chain.draws[:rows], chain.stats[:rows]
    loop._num_copied[number] = new.stop
    plan.schedule.first.fill_(loop.settings.num_warmup + new.stop)
    if count == int(plan.schedule.until) and count < loop._total:
        if count in loop._ends[1:]:
            _close_window(chain, plan, loop._ends)
        plan.schedule.until.fill_(min(end for end in (*loop._ends, loop._total) if end > count))
        loop._begin(number)


def _without_buffers(state: list[Tensor], chain: Chain) -> list[Tensor]:
    """Return the tensors of a chain but for its draws and statistics, which a checkpoint stores once."""
    buffers = [chain.draws.data_ptr(), chain.stats.data_ptr()]
    return [tensor for tensor in state if tensor.data_ptr() not in buffers]


def _example(chain: Chain) -> Chain:
    adaptation = chain.adaptation._replace(step_size=torch.full_like(chain.adaptation.step_size, STEP_SIZE_TRIED))
    return chain._replace(adaptation=adaptation, counters=chain.counters._replace(budget=torch.tensor(STEPS_TRIED)))


def _shown(chains: list[Chain]) -> dict[str, float]:
    """Return the mean acceptance probability of the last trajectories and the mean step size."""
    rates = [float(c.end.sum_acceptance / c.end.num_steps.clamp(min=1)) for c in chains]
    sizes = [float(c.adaptation.step_size) for c in chains]
    return {"acceptance": sum(rates) / len(rates), "step size": sum(sizes) / len(sizes)}


def _close_window(chain: Chain, plan: Plan, ends: tuple[int, ...]) -> None:
    """Give a chain the mass matrix estimated in the window that ends now, and forget the window."""
    learnt, new = chain.adaptation, metric_from(chain.adaptation.moments)
    growth = growth_of_narrowest(plan.metric, new)
    step = retuned_step_size(learnt.step, growth, int(chain.counters.draws) == ends[1])
    empty = pytree.tree_map(torch.zeros_like, learnt.moments)
    _write(plan.metric, new)
    _write(learnt, Adaptation(step.log_step.exp(), step, empty))


def _write(views: Any, values: Any) -> None:
    for view, value in zip(pytree.tree_leaves(views), pytree.tree_leaves(values), strict=True):
        view.copy_(value)
