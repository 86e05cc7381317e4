"""Ladders of tempered chains, which exchange states after every draw."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bnnzoo.core.model.density import LogDensity
from bnnzoo.engine.choose import Engine
from bnnzoo.inference.markov.chain_settings import HamiltonianSettings, groups_of_independent_chains
from bnnzoo.inference.markov.first_metric import rows_of
from bnnzoo.inference.markov.hamiltonian.adaptive_chains import AdaptiveChains
from bnnzoo.inference.markov.hamiltonian.hamiltonian_program import NUM_STREAMS, STATS
from bnnzoo.inference.markov.hamiltonian.kernel import Kernel, Metric
from bnnzoo.inference.markov.noise import keys_of_chains, uniforms, words
from bnnzoo.inference.markov.tempering.path import PriorPoints, TemperedProgram, path_gradient, prior_points
from bnnzoo.inference.markov.tempering.round_trips import RoundTrips
from bnnzoo.inference.markov.tempering.temperatures import equalised, first_temperatures, rounds

__all__ = ["LOG_LIKELIHOOD", "ROUND_TRIPS", "LadderSampler", "Ladders"]

LOG_LIKELIHOOD, ROUND_TRIPS = "log_likelihood_at_{}", "round_trips"
"""Columns beside the statistics of a draw: the log likelihood at each temperature, and round trips so far."""

BLOCK = 128
"""Draws of the prior that are made at a time."""


class Ladders(AdaptiveChains):
    """Ladders ``[L]`` of chains at K temperatures; a :class:`bnnzoo.inference.markov.protocols.Loop`.

    The first temperature is the prior's, of which draws are independent. At each of the others there is a copy of the chain,
    with a step size and a mass matrix of its own. After each draw neighbours exchange states, even and odd pairs in turn. The
    draws of a ladder are those at the posterior, the last temperature.

    Parameters
    ----------
    kernel : Kernel
    density : LogDensity
    settings : HamiltonianSettings
    num_temperatures : int
    theta : Tensor
        Starting points ``[L, P]`` at which the density is finite.
    seed : int
    first_chain : int
        Number of the first ladder among all ladders of the fit.
    engine : {"auto", "native", "graph", "python"}
    """

    def __init__(
        self,
        kernel: Kernel,
        density: LogDensity,
        settings: HamiltonianSettings,
        num_temperatures: int,
        theta: Tensor,
        seed: int,
        first_chain: int,
        engine: Engine = "auto",
    ) -> None:
        num_copies, chains = num_temperatures - 1, range(first_chain, first_chain + len(theta))
        keys = keys_of_chains(seed, chains, NUM_STREAMS * num_copies + 2)
        columns = (*(LOG_LIKELIHOOD.format(level) for level in range(num_temperatures)), ROUND_TRIPS)
        self.stats_names = (*STATS, *columns)
        super().__init__(kernel, settings, theta, keys[:, :-2].reshape(-1, NUM_STREAMS))
        self._exchange_keys, self._prior_keys = keys[:, -2, None], keys[:, -1]
        self._density, self._path, self._rounds = density, path_gradient(density), rounds(settings.num_warmup)
        self._count, self._block, self._points = 0, -1, PriorPoints(theta, theta, theta)
        self.temperatures = first_temperatures(num_temperatures).repeat(len(theta), 1)
        self.trips = RoundTrips.of(len(theta), num_temperatures)
        self._accepted = self.temperatures.new_zeros(len(theta), num_copies)
        starts = theta.repeat_interleave(num_copies, 0)
        self._set_going(
            TemperedProgram(kernel),
            self._path,
            density,
            starts,
            engine,
            tempering=self._of_copies().to(theta),
        )
        self._latest = [each.new_zeros(len(starts), 1, *each.shape) for each in self.row[:2]]

    @property
    def counts(self) -> Tensor:
        """Number of draws ``[L]`` of each ladder, warm-up included."""
        return torch.full((self.num_chains,), self._count)

    @property
    def row(self) -> tuple[Tensor, ...]:
        """What is kept of a draw at any temperature."""
        theta, stats, gradient = super().row
        return theta, stats[: len(STATS)].clone(), gradient

    @property
    def tuned(self) -> dict[str, Tensor]:
        """Inverse temperatures ``[L, K]``, and step sizes and inverse masses ``[L, K - 1, ...]`` beyond the prior."""
        found = {name: value.unflatten(0, (self.num_chains, -1)) for name, value in super().tuned.items()}
        return {"inverse_temperature": self.temperatures.clone(), **found}

    def adopt(self, tuning: Mapping[str, Tensor]) -> None:
        """Start with temperatures, step sizes and mass matrices found before."""
        super().adopt({name: value.flatten(0, 1) for name, value in tuning.items() if name != "inverse_temperature"})
        # move the copies, where they are, to other temperatures [L, K]
        resting, before = self.fleet.resting, self.fleet.resting.tempering.clone()
        self.temperatures = tuning["inverse_temperature"].double().cpu()
        resting.tempering.copy_(self._of_copies())
        proposal = resting.trajectory.proposal
        proposal.log_density.add_((resting.tempering - before) * proposal.gradient[:, -1])

    def begin_with(self, metric: Metric) -> None:
        """Start with mass matrices ``[L, ...]`` found before at the posterior, and step sizes that suit them."""
        num_copies = self.temperatures.shape[1] - 1
        super().begin_with(rows_of(metric, torch.arange(self.num_chains).repeat_interleave(num_copies)))

    def _of_copies(self) -> Tensor:
        return self.temperatures[:, 1:].flatten()

    def _unknown(self, theta: Tensor) -> Tensor:
        return theta.new_zeros(len(theta), 2 * theta.shape[1] + 1)

    def _schedule(self) -> tuple[int, ...]:
        return *super()._schedule()[:-1], 1

    def _gather(self) -> None:
        """Take draws and gradients from which mass matrices are estimated, or else the latest draw."""
        warm = self.fleet.resting.counters.draws.cpu() <= self._num_warmup
        self.windows.gather(self.fleet, warm)
        self.fleet.gather(self._latest, torch.zeros(len(warm), dtype=torch.int64), ~warm)

    def _attend(self) -> None:
        """Where all copies have their draw: keep that of the posterior, close windows, exchange states."""
        resting = self.fleet.resting
        if self._count == self._total or bool((resting.counters.draws <= self._count).any()):
            return
        self._count += 1
        if self._count in self.windows.ends[1:]:
            self.windows.close(resting, torch.arange(len(resting.keys)), self._count)
        self._exchange(resting)
        if self._count < self._total:
            resting.schedule.until.fill_(self._count + 1)

    def _exchange(self, resting: Any) -> None:
        r"""Exchange states of neighbours by Metropolis's rule.

        With log likelihoods l, the states at k and k + 1 change places with probability
        :math:`\min(1, \exp((\beta_{k+1} - \beta_k)(l_k - l_{k+1})))`. Pairs with even k have their turn after even draws, others
        after odd ones: a state that was exchanged goes on in its direction, where random pairs would send it back half the time.
        """
        proposal, shape = resting.trajectory.proposal, (self.num_chains, -1)
        at_prior = self._prior_points()
        theta = torch.cat([at_prior.theta[:, None], proposal.theta.unflatten(0, shape)], 1)
        gradient = torch.cat([at_prior.gradient[:, None], proposal.gradient.unflatten(0, shape)], 1)
        log_prior = proposal.log_density - resting.tempering * proposal.gradient[:, -1]
        log_prior = torch.cat([at_prior.value[:, None], log_prior.unflatten(0, shape)], 1)
        rest = gradient[..., -1].double().cpu()
        self._keep(rest)
        log_ratio = self.temperatures.diff() * -rest.diff()
        pairs = torch.arange(log_ratio.shape[1])
        self._accepted += log_ratio.exp().clamp(max=1.0).nan_to_num(0.0)
        uniform = uniforms(self._exchange_keys, self._count * len(pairs) + pairs, torch.float64)
        accepted = (pairs % 2 == self._count % 2) & (uniform.log() < log_ratio)
        places = torch.arange(rest.shape[1]).repeat(self.num_chains, 1)
        places[:, :-1] += accepted
        places[:, 1:] -= accepted.long()
        self.trips = self.trips.followed(places, counts=self._count > self._num_warmup)
        self._tune()
        places = places.to(theta.device)
        theta, gradient = (each.take_along_dim(places[..., None], 1) for each in (theta, gradient))
        log_prior = log_prior.take_along_dim(places, 1)
        resting.tempering.copy_(self._of_copies())
        proposal.theta.copy_(theta[:, 1:].flatten(0, 1))
        proposal.gradient.copy_(gradient[:, 1:].flatten(0, 1))
        proposal.log_density.copy_(log_prior[:, 1:].flatten() + resting.tempering * proposal.gradient[:, -1])

    def _prior_points(self) -> PriorPoints:
        """Return the draw of the prior ``[L, ...]`` that belongs to this number of draws."""
        block, place = divmod(self._count, BLOCK)
        if block != self._block:
            seeds = words(self._prior_keys, torch.tensor(block)).tolist()
            self._points = prior_points(self._density, self._path, seeds, BLOCK)
            self._block = block
        return PriorPoints(*(each.unflatten(0, (self.num_chains, BLOCK))[:, place] for each in self._points))

    def _keep(self, rest: Tensor) -> None:
        """Write down the draws at the posterior, and log likelihoods ``[L, K]`` at all temperatures."""
        place = self._count - self._num_warmup - 1
        if place < 0:
            return
        theta, stats = (each.unflatten(0, (self.num_chains, -1))[:, -1, 0] for each in self._latest)
        self.draws[:, place] = theta
        columns = stats.cpu(), rest, self.trips.round_trips[:, None]
        self.stats[:, place] = torch.cat([each.double() for each in columns], 1)
        self._num_kept[:] = place + 1

    def _tune(self) -> None:
        """Choose temperatures anew where a round ends."""
        if self._count not in self._rounds:
            return
        number = self._count - max((end for end in self._rounds if end < self._count), default=0)
        rejection = 1 - self._accepted / number
        pairs = zip(self.temperatures, rejection, strict=True)
        self.temperatures = torch.stack([equalised(*pair) for pair in pairs])
        self._accepted.zero_()

    def _resumable(self) -> dict[str, Any]:
        ladder = {
            "count": self._count,
            "temperatures": self.temperatures,
            "travels": self.trips,
            "accepted": self._accepted,
            "latest": self._latest,
        }
        return super()._resumable() | ladder

    def _resume(self, found: Mapping[str, Any]) -> None:
        super()._resume(found)
        self._count, self._latest, self.trips = found["count"], found["latest"], found["travels"]
        self.temperatures, self._accepted = found["temperatures"], found["accepted"]


@dataclass(frozen=True)
class LadderSampler:
    """What starts ladders; see :class:`bnnzoo.inference.markov.protocols.Sampler`."""

    kernel: Kernel
    settings: HamiltonianSettings
    num_temperatures: int
    engine: Engine = "auto"

    def groups(self, num_chains: int, spread: bool) -> list[range]:
        """Return all ladders as one group in this process, and on workers ``num_groups``: each adapts by itself."""
        return groups_of_independent_chains(self.settings, num_chains, spread)

    def begin(self, density: LogDensity, theta: Tensor, seed: int, first_chain: int) -> Ladders:
        """Start ladders at ``theta[L, P]``."""
        numbers = self.num_temperatures, theta, seed, first_chain
        return Ladders(self.kernel, density, self.settings, *numbers, self.engine)
