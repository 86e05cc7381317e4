"""Chains of a Hamiltonian kernel in native code, side by side in threads."""

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from bnnzoo.inference.markov.adaptation import (
    Adaptation,
    growth_of_narrowest,
    metric_from,
    window_ends,
)
from bnnzoo.inference.markov.hamiltonian.kernel import Kernel
from bnnzoo.inference.markov.hamiltonian.native import (
    NUM_STREAMS,
    Chain,
    Gradient,
    Plan,
    begun,
    chain_loop,
)
from bnnzoo.inference.markov.hamiltonian.settings import LoopSettings, retuned
from bnnzoo.inference.markov.hamiltonian.starting import started
from bnnzoo.inference.markov.hamiltonian.steps import STATS
from bnnzoo.inference.markov.noise import keys_of
from bnnzoo.inference.markov.snapshots import from_arrays, to_arrays
from bnnzoo.lowering.cores import num_cores, one_arithmetic_thread
from bnnzoo.lowering.loops import Stretch

__all__ = ["NativeChains"]

SECONDS_PER_STRETCH = 0.1
"""What a stretch is made to take, so that an interrupt is answered and progress moves."""

FIRST_BUDGET, MAX_GROWTH = 64, 4


class NativeChains:
    """Chains that run one by one in native code; see :class:`bnnzoo.inference.markov.protocols.Loop`.

    Draws depend on neither the number of threads nor the lengths of stretches: random numbers are functions of the chain's
    number and its own counters.

    Parameters
    ----------
    kernel : Kernel
    gradient : Gradient
        Of the log density.
    settings : LoopSettings
    theta : Tensor
        Starting points ``[C, P]`` at which the density is finite.
    seed : int
    first_chain : int
        Number of the first chain among all chains of the fit.
    num_threads : int, optional
        Chains that run at a time; one for each core this process may use unless given.
    compiles : bool
        False to run the traced graphs, which draw the same but for rounding.
    """

    stats_names = STATS

    def __init__(
        self,
        kernel: Kernel,
        gradient: Gradient,
        settings: LoopSettings,
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
        key = (kernel, settings.target_accept, gradient.graph.code)
        self.stretch = Stretch(going, body, chains[0], plans[0], key, compiles)
        self._states = [self.stretch.pack(chain) for chain in chains]
        self._plans = [self.stretch.pack_fixed(plan) for plan in plans]
        for chain in range(self.num_chains):
            self._begin(chain)

    @property
    def counts(self) -> Tensor:
        """Number of draws of each chain, warm-up included."""
        return torch.stack([self._chain(c).counters.draws for c in range(self.num_chains)])

    @property
    def num_leaps(self) -> int:
        """Number of leapfrog steps of a chain, on average."""
        return sum(int(self._chain(c).counters.leaps) for c in range(self.num_chains)) // self.num_chains

    def advance(self) -> None:
        """Run a stretch of every chain that is not done; an interrupt waits for these."""
        began = time.perf_counter()
        under_way = [c for c in range(self.num_chains) if int(self._chain(c).counters.draws) < self._total]
        try:
            with one_arithmetic_thread():
                self._run_all(under_way)
        finally:  # what an interrupt left half way is whole, too: the stretches under way were waited for
            for chain in under_way:
                self._end_stretch(chain)
        rounds = -(-len(under_way) // self.num_threads)
        seconds = max((time.perf_counter() - began) / rounds, 1e-9)
        self._budget = max(1, int(self._budget * min(SECONDS_PER_STRETCH / seconds, MAX_GROWTH)))

    def numbers(self) -> dict[str, float]:
        """Return what a progress bar shows besides the number of draws."""
        last = [self._chain(c) for c in range(self.num_chains)]
        rates = [float(c.leaf.sum_acceptance / c.leaf.num_steps.clamp(min=1)) for c in last]
        sizes = [float(c.adaptation.step_size) for c in last]
        return {"acceptance": sum(rates) / len(rates), "step size": sum(sizes) / len(sizes)}

    def snapshot(self) -> dict[str, Any]:
        """Return all that :meth:`restore` needs to go on with the very next step, as arrays."""
        return to_arrays(self._everything())

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Go on where the same chains were when ``snapshot`` was taken."""
        found = from_arrays(snapshot, like=self._everything())
        for now, then in zip(pytree.tree_leaves(self._everything()), pytree.tree_leaves(found), strict=True):
            now.copy_(then)
        self._num_copied = (self.counts - self.settings.num_warmup).clamp(min=0).tolist()

    def _everything(self) -> dict[str, Any]:
        plans = [self.stretch.unpack_fixed(plan) for plan in self._plans]
        states = [[t for t in state if t.ndim < 2 or len(t) != self.settings.num_draws + 1] for state in self._states]
        return {"state": states, "plan": [(plan.metric, plan.schedule) for plan in plans]}

    def _chain(self, chain: int) -> Chain:
        found: Chain = self.stretch.unpack(self._states[chain])
        return found

    def _plan(self, chain: int) -> Plan:
        found: Plan = self.stretch.unpack_fixed(self._plans[chain])
        return found

    def _run(self, chain: int) -> None:
        self._chain(chain).counters.budget.fill_(self._budget)
        self.stretch(self._states[chain], self._plans[chain])

    def _run_all(self, chains: list[int]) -> None:
        if self.num_threads == 1:
            for chain in chains:
                self._run(chain)
            return
        with ThreadPoolExecutor(self.num_threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            running = [pool.submit(self._run, chain) for chain in chains]
            wait(running)
        for each in running:
            each.result()

    def _end_stretch(self, number: int) -> None:
        """Copy new draws to where they are kept, and end a window of the adaptation."""
        chain, plan = self._chain(number), self._plan(number)
        count = int(chain.counters.draws)
        new = slice(self._num_copied[number], max(count - self.settings.num_warmup, 0))
        self.draws[number, new], self.stats[number, new] = chain.draws[new], chain.stats[new]
        self._num_copied[number] = new.stop
        if count == int(plan.schedule.until) and count < self._total:
            if count in self._ends[1:]:
                self._close_window(chain, plan)
            plan.schedule.until.fill_(min(end for end in (*self._ends, self._total) if end > count))
            self._begin(number)

    def _begin(self, number: int) -> None:
        """Begin a chain's next trajectory, which waits for the new mass matrix where a window has ended."""
        chain = self._chain(number)
        leaf, tree = begun(self.kernel, chain, self._plan(number))
        self.stretch.write(self._states[number], chain._replace(leaf=leaf, tree=tree))

    def _close_window(self, chain: Chain, plan: Plan) -> None:
        """Take over the mass matrix estimated in the window that ends, and forget the window."""
        learnt, place = chain.adaptation, self._ends.index(int(chain.counters.draws))
        new = metric_from(learnt.moments)
        step = retuned(learnt.step, growth_of_narrowest(plan.metric, new), place, len(self._ends))
        empty = pytree.tree_map(torch.zeros_like, learnt.moments)
        _write(plan.metric, new)
        _write(learnt, Adaptation(step.log_step.exp(), step, empty))


def _write(views: Any, values: Any) -> None:
    for view, value in zip(pytree.tree_leaves(views), pytree.tree_leaves(values), strict=True):
        view.copy_(value)
