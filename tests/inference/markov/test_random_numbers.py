"""Every random number of a run decides one thing: no place of a stream is used twice, within a chain or by two of them."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from bnnzoo.engine.fleet import of_copy
from bnnzoo.engine.program import Copy, native_loop
from bnnzoo.inference.markov import noise
from bnnzoo.inference.markov.chain_settings import HamiltonianSettings
from bnnzoo.inference.markov.hamiltonian import hamiltonian_program
from bnnzoo.inference.markov.hamiltonian.hamiltonian_sampler import HamiltonianChains
from bnnzoo.inference.markov.hamiltonian.kernel import Control, Kernel, Metric, Phase
from bnnzoo.inference.markov.lockstep import lockstep_program
from bnnzoo.inference.markov.lockstep.dynamics import Newtonian, Point
from bnnzoo.inference.markov.lockstep.langevin_chains import LangevinChains, LangevinSettings
from bnnzoo.inference.markov.lockstep.lockstep_program import LockstepProgram
from bnnzoo.inference.markov.lockstep.motions import Common, LockstepState
from tests.helpers.closed_forms import density, exact_draws

NUM_PARAMS = density().num_params
KEYS, WORDS = 2**20, 2000
"""Distance of the keys that stand for streams, and random numbers that a chain can write down."""


def keys_of(seed: int, chain: int, num_keys: int) -> Tensor:
    return KEYS * (1 + num_keys * chain + torch.arange(num_keys))


def uniforms(key: Tensor, counter: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the place in the stream in place of the number there."""
    return (key + counter).to(dtype)


def normals(key: Tensor, counter: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the first of the two places that a normal number is made of, and a half."""
    return (key + 2 * counter).to(dtype) + 0.5


@pytest.fixture(autouse=True)
def _places_for_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (hamiltonian_program, lockstep_program):
        monkeypatch.setattr(module, "normals", normals)
        monkeypatch.setattr(module, "uniforms", uniforms)
    monkeypatch.setattr(noise, "keys_of", keys_of)


def check_used_once(seen: Iterable[Tensor], num_normals: int, num_uniforms: int) -> None:
    """Check that so many numbers were used, and that no place of a stream was used twice."""
    numbers = torch.cat([each.flatten() for each in seen])
    is_normal = numbers % 1 == 0.5
    assert int(is_normal.sum()) == num_normals and int((~is_normal).sum()) == num_uniforms
    places = torch.cat([numbers.floor(), numbers[is_normal].floor() + 1])
    assert len(places.unique()) == len(places)


class End(NamedTuple):
    """The moving end of a trajectory, with the random numbers that have led there."""

    phase: Phase
    num_steps: Tensor
    sum_acceptance: Tensor
    diverging: Tensor
    stop: Tensor
    words: Tensor
    num_words: Tensor


class Trajectory(NamedTuple):
    """A trajectory in two legs."""

    control: Control
    proposal: Phase
    depth: Tensor
    done: Tensor


@dataclass(frozen=True)
class Spy:
    """A kernel that stays where it is, takes two legs of two leaps for a draw, and writes down all random numbers it is given."""

    def finished_trajectory(self, phase: Phase) -> tuple[End, Trajectory]:
        zero = torch.zeros_like(phase.log_density)
        count, no = torch.zeros_like(zero, dtype=torch.int64), torch.zeros_like(zero, dtype=torch.bool)
        end = End(phase, count, zero, no, no, phase.theta.new_zeros(WORDS), count)
        control = Control(zero, torch.ones_like(zero), torch.ones_like(count))
        return end, Trajectory(control, phase, count, torch.ones_like(no))

    def begin(
        self, end: End, trajectory: Trajectory, metric: Metric, step_size: Tensor, noise: Tensor, uniforms: Tensor
    ) -> tuple[End, Trajectory]:
        end = written(written(end, noise), uniforms)
        fresh = end._replace(num_steps=torch.zeros_like(end.num_steps), stop=torch.zeros_like(end.stop))
        no, depth = torch.zeros_like(trajectory.done), torch.zeros_like(trajectory.depth)
        return fresh, trajectory._replace(done=no, depth=depth)

    def leapfrog(self, end: End, control: Control, phase: Phase, metric: Metric, uniform: Tensor) -> End:
        end = written(end, uniform.view(1))
        num_steps = end.num_steps + 1
        return end._replace(num_steps=num_steps, stop=num_steps % 2 == 0, sum_acceptance=num_steps * 1.0)

    def propose(self, end: End, trajectory: Trajectory, metric: Metric, uniforms: Tensor) -> tuple[End, Trajectory]:
        end, depth = written(end, uniforms), trajectory.depth + 1
        return end._replace(stop=torch.zeros_like(end.stop)), trajectory._replace(depth=depth, done=depth == 2)

    def num_proposals(self, num_steps: int) -> int:
        return 2


def written(end: End, values: Tensor) -> End:
    places = end.num_words + torch.arange(len(values))
    return end._replace(words=end.words.index_put((places,), values), num_words=end.num_words + len(values))


SETTINGS = HamiltonianSettings(num_warmup=20, num_draws=10, step_size=0.1)
NUM_CHAINS, TOTAL = 2, 30


@pytest.mark.parametrize("engine", ["native", "graph"])
def test_chains_of_a_hamiltonian_kernel(engine: Any) -> None:
    loop = HamiltonianChains(Spy(), density(), SETTINGS, exact_draws(NUM_CHAINS), 0, 0, engine)
    while int(loop.counts.min()) < TOTAL:
        if engine == "native":
            loop.fleet._budget = 7  # type: ignore[union-attr]  # chunks end anywhere
        loop.advance()
    end = loop.fleet.moving.end
    assert isinstance(Spy(), Kernel) and loop.fleet.how == ("compiled" if engine == "native" else "traced")
    seen = [words[: int(num)] for words, num in zip(end.words, end.num_words, strict=True)]
    check_used_once(seen, NUM_CHAINS * TOTAL * NUM_PARAMS, NUM_CHAINS * TOTAL * (2 + 4 + 2 * 2))


@dataclass(frozen=True, eq=False)
class Recording:
    """What moves a chain in lockstep nowhere, and writes down the random numbers it is given."""

    noise_per_step: bool
    seen: list[Tensor]
    stats_names = ("lp",)
    dynamics: Newtonian = Newtonian()  # noqa: RUF009 - has no state

    def begin(self, start: Point, noise: Tensor) -> Point:
        self.seen.append(noise)
        return start

    def num_steps(self, draw: Tensor, common: Common) -> Tensor:
        return draw + 1

    def refresh_partly(self, point: Point, nu: Tensor, noise: Tensor) -> Point:
        self.seen.append(noise)
        return point

    def end(
        self, start: Point, moving: LockstepState, common: Common, num_steps: Tensor, uniform: Tensor
    ) -> tuple[Point, Tensor]:
        self.seen.append(uniform)
        return start, torch.zeros(1).double()


@pytest.mark.parametrize("per_step", [False, True])
def test_chains_in_lockstep(per_step: bool) -> None:
    """Draws of 1, 2, ..., 8 steps, by the loop of native code; the first momenta are numbers of their own."""
    settings = LangevinSettings(num_warmup=0, num_draws=8, step_size=0.1, steps_per_draw=1)
    chains = LangevinChains(density(), settings, exact_draws(NUM_CHAINS), 0, engine="python")
    moving, resting = (of_copy(each, 1) for each in (chains.fleet.moving, chains.fleet.resting))
    seen: list[Tensor] = []
    resting = resting._replace(stats=torch.zeros(1).double())
    copy = Copy(moving, resting, torch.tensor(10_000), torch.tensor(0), (torch.zeros(9, NUM_PARAMS), torch.zeros(9, 1)))
    program = LockstepProgram(Recording(per_step, seen))
    graph = torch.fx.symbolic_trace(lambda theta: (theta.sum(), torch.zeros_like(theta)))
    going, body = native_loop(program, graph)
    while bool(going(copy, ((), ()))):
        copy = body(copy, ((), ()))
    numbers = 36 if per_step else 8
    first = normals(resting.keys[2], torch.arange(NUM_PARAMS), torch.float64)
    check_used_once([*seen, first], (numbers + 1) * NUM_PARAMS, 8)
    assert int(copy.num_rows) == 8 and int(copy.moving.num_steps) == 36
