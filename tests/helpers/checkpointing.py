"""Fits that write checkpoints, are killed and resumed; imported by tests and by the processes they start."""

from pathlib import Path
from typing import Any

import pytest

from bnnzoo.core.method import Method
from bnnzoo.core.posterior.posterior import Posterior
from bnnzoo.engine import choose, fleet
from bnnzoo.inference import HMC, MAMS, MCLMC, NUTS, SGHMC, ChEESHMC, StochasticMCLMC, Tempered, fit
from bnnzoo.inference.markov.checkpoint_folder import attributes_of
from bnnzoo.inference.markov.hamiltonian.hamiltonian_sampler import HamiltonianChains
from bnnzoo.inference.markov.lockstep.langevin_chains import LangevinChains
from bnnzoo.inference.markov.lockstep.trajectory_chains import TrajectoryChains
from bnnzoo.inference.markov.stochastic.stochastic_sampler import StochasticChains
from bnnzoo.inference.markov.tempering.ladder import Ladders
from bnnzoo.testing import linear_gaussian

__all__ = ["LOOPS", "METHODS", "QUICK", "TARGET", "Killed", "blocks_of", "fitted", "killed"]

QUICK: dict[str, Any] = {"num_chains": 2, "num_warmup": 20, "num_draws": 12}
METHODS: dict[str, Method] = {
    kind.__name__: kind(**QUICK)  # type: ignore[call-arg]
    for kind in (NUTS, HMC, MAMS, MCLMC, ChEESHMC)
}
METHODS["SGHMC"] = SGHMC(**QUICK, batch_size=10, control_variates="svrg", optimise_steps=20)
METHODS["StochasticMCLMC"] = StochasticMCLMC(**QUICK, batch_size=10, optimise_steps=20)
METHODS["Tempered"] = Tempered(HMC(**QUICK), num_temperatures=3)
LOOPS = (HamiltonianChains, Ladders, TrajectoryChains, LangevinChains, StochasticChains)
TARGET = linear_gaussian()


class Killed(BaseException):
    """What nothing catches, like the end of a process."""


def fitted(method: Method, path: Path | None = None, **settings: Any) -> Posterior:
    """Fit the target, with a checkpoint if there is a path."""
    return fit(TARGET.model, method, *TARGET.data, checkpoint=path, **{"seed": 3} | settings)


def killed(method: Method, path: Path, num_draws: int, **settings: Any) -> None:
    """Fit the target and die right after every chain has more than ``num_draws`` draws, warm-up included."""

    def dying(advance: Any) -> Any:
        def advance_or_die(loop: Any) -> None:
            advance(loop)
            if int(loop.counts.min()) > num_draws:
                raise Killed

        return advance_or_die

    with pytest.MonkeyPatch.context() as patch:
        for module in (fleet, choose):
            patch.setattr(module, "SECONDS_PER_CHUNK", 0.0)  # one cycle of a batch a call, one step in native code
        for loop in LOOPS:
            patch.setattr(loop, "advance", dying(loop.advance))
        with pytest.raises(Killed):
            fitted(method, path, **settings)


def blocks_of(path: Path) -> list[tuple[int, int]]:
    """Return where the blocks of a store begin and end."""
    blocks = sorted(path.glob("chains-*/block-*"))
    return [(int(a["start"]), int(a["stop"])) for a in map(attributes_of, blocks)]
