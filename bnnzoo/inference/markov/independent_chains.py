"""Chains that learn nothing from one another and never wait for Python: what is left to say is their program and its start."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from bnnzoo.core.method import FitContext
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.posterior.posterior import Draws
from bnnzoo.engine.choose import Engine
from bnnzoo.engine.program import Program
from bnnzoo.engine.runner import runner
from bnnzoo.inference.markov.chain_settings import ChainSettings, groups_of_independent_chains, without_init
from bnnzoo.inference.markov.density_gradient import density_gradient
from bnnzoo.inference.markov.noise import keys_of_chains
from bnnzoo.inference.markov.running import RunningChains
from bnnzoo.inference.markov.sampling import sample_chains

__all__ = ["IndependentChains", "IndependentSampler", "sample_independent"]


class IndependentChains(RunningChains):
    """Chains of a program whose cycle is a draw, for samplers that need nothing else; a :class:`.Loop`.

    The state in ``moving`` counts gradients as ``taken`` and points at which the log density could not be computed as
    ``rejected``. The state in ``resting`` counts draws as ``counters.draws``, and holds what chains learn in warm-up as fields
    named in ``learnt``.

    Parameters
    ----------
    density : LogDensity
    settings : ChainSettings
    theta : Tensor
        Starting points ``[C, P]``.
    seed : int
    first_chain : int
        Number of the first chain among all chains of the fit: its random numbers depend on it and the seed alone.
    engine : {"auto", "native", "graph", "python"}
    """

    program: ClassVar[Program]
    num_streams: ClassVar[int] = 1
    """Random streams of each chain, for which ``keys[C, num_streams]`` are the keys."""
    learnt: ClassVar[tuple[str, ...]] = ("step_size",)
    steps_per_draw: ClassVar[int] = 1
    """Expected steps of a draw, which decide whether compiling pays."""

    def __init__(
        self,
        density: LogDensity,
        settings: ChainSettings,
        theta: Tensor,
        seed: int,
        first_chain: int = 0,
        engine: Engine = "auto",
    ) -> None:
        chains = range(first_chain, first_chain + len(theta))
        super().__init__(settings, theta, keys_of_chains(seed, chains, self.num_streams))
        self.fleet = runner(
            self.program,
            density_gradient(density),
            *self.begun(settings, theta),
            self.row,
            engine=engine,
            native_pays=settings.in_native_code(density),
            num_steps=self.steps_per_draw * self._total,
            num_cycles=self._total,
            log=self.log,
        )

    @abstractmethod
    def begun(self, settings: ChainSettings, theta: Tensor) -> tuple[Any, Any]:
        """Return the two parts of the state, ``[C, ...]``, of chains that begin at ``theta[C, P]``."""

    @property
    def num_gradients(self) -> int:
        """Number of gradients that all chains have evaluated together."""
        return int(self.fleet.moving.taken.sum())

    @property
    def num_rejected(self) -> int:
        """Number of points at which the log density could not be computed."""
        return int(self.fleet.moving.rejected.sum())

    @property
    def tuned(self) -> dict[str, Tensor]:
        """What each chain has learnt, ``[C, ...]`` each."""
        return {name: getattr(self.fleet.resting, name).clone() for name in self.learnt}

    def adopt(self, tuning: Mapping[str, Tensor]) -> None:
        """Go on with what was learnt before."""
        self.fleet.write(resting=self.fleet.resting._replace(**{name: tuning[name] for name in self.learnt}))

    def progress_fields(self) -> dict[str, float]:
        """Return means of what the chains have learnt."""
        return {name.replace("_", " "): float(value.mean()) for name, value in self.tuned.items()}

    def _attend(self) -> None:
        """Nothing: no chain waits for anything."""


@dataclass(frozen=True)
class IndependentSampler:
    """What starts such chains, here or on workers; a :class:`bnnzoo.inference.markov.protocols.Sampler`."""

    chains: type[IndependentChains]
    settings: ChainSettings
    engine: Engine = "auto"

    def groups(self, num_chains: int, spread: bool) -> list[range]:
        """Return all chains as one group in this process, and on workers ``num_groups``."""
        return groups_of_independent_chains(self.settings, num_chains, spread)

    def begin(self, density: LogDensity, theta: Tensor, seed: int, first_chain: int) -> IndependentChains:
        """Start chains at ``theta[C, P]``."""
        return self.chains(density, self.settings, theta, seed, first_chain, self.engine)


def sample_independent(
    chains: type[IndependentChains], settings: ChainSettings, density: LogDensity, context: FitContext
) -> Draws:
    """Run chains with the settings of a method and return their draws ``[C, S, P]``; see :func:`.sample_chains`."""
    return sample_chains(settings, IndependentSampler(chains, without_init(settings), context.engine), density, context)
