"""Every random number of a run decides one thing: no place of a stream is used twice, within a chain or by two of them."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from bnnzoo.inference.markov import noise, streams
from bnnzoo.inference.markov.hamiltonian import program
from bnnzoo.inference.markov.hamiltonian.kernel import Control, Kernel, Metric, Phase
from bnnzoo.inference.markov.hamiltonian.sampler import HamiltonianChains
from bnnzoo.inference.markov.lockstep import native as lockstep_native
from bnnzoo.inference.markov.lockstep.chains import _example
from bnnzoo.inference.markov.lockstep.dynamics import Newtonian, Point
from bnnzoo.inference.markov.lockstep.langevin import LangevinLoop, LangevinSettings
from bnnzoo.inference.markov.lockstep.motions import Common, Moving
from bnnzoo.inference.markov.settings import HamiltonianSettings
from tests.helpers.closed_forms import density, exact_draws
from tests.helpers.native import traced

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
    for module in (program, lockstep_native, streams):
        monkeypatch.setattr(module, "normals", normals)
        monkeypatch.setattr(module, "uniforms", uniforms)
    for module in (noise, streams):
        monkeypatch.setattr(module, "keys_of", keys_of)


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

    def leap(self, end: End, control: Control, phase: Phase, metric: Metric, uniform: Tensor) -> End:
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
            loop.fleet._budget = 7  # type: ignore[union-attr]  # stretches end anywhere
        loop.advance()
    end = loop.fleet.moving.end
    assert isinstance(Spy(), Kernel) and loop.fleet.how == ("compiled" if engine == "native" else "traced")
    seen = [words[: int(num)] for words, num in zip(end.words, end.num_words, strict=True)]
    check_used_once(seen, NUM_CHAINS * TOTAL * NUM_PARAMS, NUM_CHAINS * TOTAL * (2 + 4 + 2 * 2))


@dataclass(frozen=True)
class Recording:
    """What moves a chain in lockstep nowhere, and writes down the random numbers it is given."""

    noise_per_step: bool
    accepts: bool
    seen: list[Tensor]
    num_stats: int = 5
    dynamics: Newtonian = Newtonian()  # noqa: RUF009 - has no state

    def begin(self, start: Point, noise: Tensor) -> Point:
        self.seen.append(noise)
        return start

    def turn(self, point: Point, nu: Tensor, noise: Tensor) -> Point:
        self.seen.append(noise)
        return point

    def end(
        self, start: Point, moving: Moving, common: Common, num_steps: Tensor, uniform: Tensor
    ) -> tuple[Point, Tensor]:
        self.seen.extend([uniform] if self.accepts else [])
        return start, torch.zeros(self.num_stats).double()


@pytest.mark.parametrize("per_step", [False, True])
def test_native_chains_in_lockstep(per_step: bool) -> None:
    seen: list[Tensor] = []
    motion: Any = Recording(per_step, not per_step, seen)
    gradient, (theta,) = traced(density()), exact_draws(1)
    chain, plan = _example(motion, gradient, theta, 8)
    counters = chain.counters._replace(budget=torch.tensor(10_000))
    chain = chain._replace(counters=counters, keys=keys_of(0, 0, 2))
    plan = plan._replace(steps=torch.arange(1, 9), until=torch.tensor(8))
    going, body = lockstep_native.chain_loop(motion, gradient.graph)
    while bool(going(chain, plan)):
        chain = body(chain, plan)
    num_normals, num_uniforms = (36 * NUM_PARAMS, 0) if per_step else (8 * NUM_PARAMS, 8)
    check_used_once(seen, num_normals, num_uniforms)


def test_langevin_steps_in_one_batch() -> None:
    settings = LangevinSettings(num_warmup=0, num_draws=3, step_size=0.1, steps_per_draw=20)
    loop = LangevinLoop(density(), settings, exact_draws(NUM_CHAINS), 0)
    seen: list[Tensor] = []
    groups = len(loop._layout.groups)

    def step(*args: Tensor) -> list[Tensor]:
        seen.append(args[groups + 3])
        return [*args[:groups], torch.zeros(NUM_CHAINS).double()]

    loop.step = step  # type: ignore[assignment]
    while int(loop.counts.min()) < 3:
        loop.advance()
    check_used_once(seen, 3 * 20 * NUM_CHAINS * NUM_PARAMS, 0)


def test_numbers_of_a_batch_from_call_to_call() -> None:
    """However many a call returns, and for whichever chains."""
    stream = streams.ChainStreams(0, 3, 4, 3, torch.float64, torch.device("cpu"))
    seen = [stream.uniforms() for _ in range(2 * streams.BLOCK + 3)]
    sizes, some = [5, 1, 8], [[0, 2], [1], [0, 1, 3]]
    seen += [stream.normals(size) for size in sizes]
    seen += [stream.normals(size, chains)[chains] for size, chains in zip(sizes, some, strict=True)]
    check_used_once(seen, 4 * sum(sizes) + 5 * 2 + 1 + 8 * 3, 3 * 4 * (2 * streams.BLOCK + 3))
