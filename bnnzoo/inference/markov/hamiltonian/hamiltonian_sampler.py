"""Chains of HMC and NUTS: their start, the step size they begin with, windows of adaptation, and their draws."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bnnzoo.core.method import FitContext
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.posterior.posterior import Draws
from bnnzoo.engine.choose import Engine, OneByOneError
from bnnzoo.inference.markov.chain_settings import (
    HamiltonianSettings,
    goes_on,
    groups_of_independent_chains,
    without_init,
)
from bnnzoo.inference.markov.density_gradient import density_gradient
from bnnzoo.inference.markov.hamiltonian.adaptive_chains import AdaptiveChains
from bnnzoo.inference.markov.hamiltonian.hamiltonian_program import (
    NUM_STREAMS,
    HamiltonianProgram,
)
from bnnzoo.inference.markov.hamiltonian.kernel import Kernel
from bnnzoo.inference.markov.noise import keys_of_chains
from bnnzoo.inference.markov.sampling import sample_chains, sample_together

__all__ = ["HamiltonianChains", "HamiltonianMethod", "HamiltonianSampler"]


class HamiltonianChains(AdaptiveChains):
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
        super().__init__(
            kernel, settings, theta, torch.cat([keys_of_chains(own, chains, NUM_STREAMS) for _, own in fits])
        )
        data = [own.data for own, _ in fits for _ in chains] if others else None
        program = HamiltonianProgram(kernel)
        self._set_going(program, density_gradient(density), density, theta, engine, of_copies=data)

    def _gather(self) -> None:
        """Take the draws kept, and in warm-up draws and gradients from which mass matrices are estimated."""
        warm = self.fleet.resting.counters.draws.cpu() <= self._num_warmup
        self.windows.gather(self.fleet, warm)
        self.fleet.gather((self.draws, self.stats), self._num_kept, ~warm)

    def _attend(self) -> None:
        """Give chains at the end of a window the mass matrix estimated in it, and open the next: the last if they converged."""
        resting = self.fleet.resting
        counts, until = resting.counters.draws, resting.schedule.until
        waits = (counts == until) & (counts < self._total)
        for count in counts[waits].unique().tolist():
            chains = (waits & (counts == count)).nonzero()[:, 0].cpu()
            until[chains] = min(end for end in (*self.windows.ends, self._total) if end > count)
            if count in self.windows.ends[1:]:
                converged = self.windows.close(resting, chains, count)
                counts[converged], until[converged] = self.windows.ends[-1], self._total


@dataclass(frozen=True)
class HamiltonianSampler:
    """What starts chains of a Hamiltonian kernel; see :class:`bnnzoo.inference.markov.protocols.Sampler`."""

    kernel: Kernel
    settings: HamiltonianSettings
    engine: Engine = "auto"

    def groups(self, num_chains: int, spread: bool) -> list[range]:
        """Return all chains as one group in this process, and on workers ``num_groups``: chains adapt by themselves."""
        return groups_of_independent_chains(self.settings, num_chains, spread)

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
