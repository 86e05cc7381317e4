"""Runs that are broken off and go on: the draws are those of an uninterrupted run, and nothing damaged is taken for whole."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
import xarray as xr
from torch import Tensor

from bnnzoo.core.method import Method
from bnnzoo.core.posterior import Posterior
from bnnzoo.inference import HMC, MAMS, MCLMC, NUTS, ChEESHMC, Laplace, fit
from bnnzoo.inference.markov import checkpoint as checkpoints
from bnnzoo.inference.markov.hamiltonian.loop import ChainLoop
from bnnzoo.inference.markov.lockstep.langevin import LangevinLoop
from bnnzoo.inference.markov.lockstep.loop import LockstepLoop
from bnnzoo.testing import linear_gaussian

pytest.importorskip("zarr")

SHORT: dict[str, Any] = {"num_chains": 2, "num_warmup": 20, "num_draws": 12}
METHODS = [NUTS(**SHORT), HMC(**SHORT), MAMS(**SHORT), MCLMC(**SHORT), ChEESHMC(**SHORT)]
LOOPS = (ChainLoop, LockstepLoop, LangevinLoop)
TARGET = linear_gaussian()


class Killed(BaseException):
    """What nothing catches, as a process's end."""


@pytest.fixture(autouse=True)
def blocks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "SECONDS_BETWEEN_BLOCKS", 0.0)


def fitted(method: Method, path: Path | None = None, **settings: Any) -> Posterior:
    return fit(TARGET.model, method, *TARGET.data, checkpoint=path, **{"seed": 3} | settings)


def kill_after(monkeypatch: pytest.MonkeyPatch, num_draws: int) -> None:
    """Let loops die in the middle of the step after every chain has ``num_draws`` draws, warm-up included."""

    def dying(advance: Any) -> Any:
        def advance_or_die(loop: Any) -> None:
            advance(loop)
            if int(loop.counts.min()) > num_draws:
                raise Killed

        return advance_or_die

    for loop in LOOPS:
        monkeypatch.setattr(loop, "advance", dying(loop.advance))


def killed(method: Method, path: Path, num_draws: int, **settings: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        kill_after(patch, num_draws)
        with pytest.raises(Killed):
            fitted(method, path, **settings)


def written(path: Path) -> list[tuple[int, int]]:
    blocks = sorted(path.glob("chains-*/block-*"))
    return [(int(a["start"]), int(a["stop"])) for a in map(checkpoints._attributes, blocks)]


def slow_but(name: str, method: Method) -> Any:
    return pytest.param(
        method, id=type(method).__name__, marks=[] if type(method).__name__ == name else [pytest.mark.slow]
    )


@pytest.mark.parametrize("method", [slow_but("MAMS", method) for method in METHODS])
def test_a_broken_run_goes_on_as_if_nothing_had_happened(method: Method, tmp_path: Path) -> None:
    whole = fitted(method)
    for num_draws in (7, 24):
        killed(method, tmp_path / "run.zarr", num_draws)
    resumed = fitted(method, tmp_path / "run.zarr")
    assert torch.equal(resumed.draws(), whole.draws())
    assert resumed.info.num_gradients == whole.info.num_gradients
    for name, value in whole.info.sample_stats.items():
        assert torch.equal(resumed.info.sample_stats[name], value), name
    blocks = written(tmp_path / "run.zarr")
    assert blocks[0][0] == 0 and blocks[-1][1] == 12
    assert all(before[1] == after[0] for before, after in pairwise(blocks))


def test_a_finished_run_is_read_back_without_a_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = fitted(METHODS[2], tmp_path / "run.zarr")

    def never(loop: LockstepLoop) -> None:
        raise AssertionError("a step was taken")

    monkeypatch.setattr(LockstepLoop, "advance", never)
    assert torch.equal(fitted(METHODS[2], tmp_path / "run.zarr").draws(), whole.draws())


def test_blocks_are_arrays_that_anyone_can_read(tmp_path: Path) -> None:
    posterior = fitted(METHODS[2], tmp_path / "run.zarr")
    last = max((tmp_path / "run.zarr" / "chains-0-1").glob("block-*"))
    block = xr.open_zarr(last, consolidated=False)
    assert block["draws"].dims == ("chain", "draw", "param")
    np.testing.assert_array_equal(block["draws"], posterior.draws()[:, block.attrs["start"] :])


@pytest.mark.slow
def test_interrupted_run_keeps_its_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, path = fitted(METHODS[0]), tmp_path / "run.zarr"
    advance = ChainLoop.advance

    def interrupted(loop: ChainLoop) -> None:
        advance(loop)
        if int(loop.counts.min()) > 25:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ChainLoop, "advance", interrupted)
        part = fitted(METHODS[0], path)
    assert not part.info.complete
    assert torch.equal(part.draws(), whole.draws()[:, : part.draws().shape[1]])
    assert torch.equal(fitted(METHODS[0], path).draws(), whole.draws())


def other_model(x: Tensor, y: Tensor | None = None) -> None:
    w = pyro.sample("w", dist.Normal(0.0, 3.0).expand([3]).to_event(1))
    with pyro.plate("data", len(x)):
        pyro.sample("y", dist.Normal(x @ w, 0.5), obs=y)


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a checkpoint that was broken off; nothing writes to it where it is refused."""
    path = tmp_path_factory.mktemp("begun") / "run.zarr"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoints, "SECONDS_BETWEEN_BLOCKS", 0.0)
        killed(METHODS[2], path, 3)
    return path


@pytest.mark.parametrize(
    ("model", "method", "data", "seed", "sentence"),
    [
        (TARGET.model, METHODS[2], TARGET.data, 4, r"its seed: 3; of this one: 4\. Make the call"),
        (
            TARGET.model,
            MAMS(**SHORT, target_accept=0.9),
            TARGET.data,
            3,
            r"its settings: .*0\.7.*; of this one: .*0\.9",
        ),
        (TARGET.model, METHODS[2], (TARGET.data[0], TARGET.data[1] + 1), 3, r"is of another fit: its data: "),
        (other_model, METHODS[2], TARGET.data, 3, r"its log density at a fixed point: "),
    ],
)
def test_a_checkpoint_of_another_fit(
    model: Any, method: Method, data: Any, seed: int, sentence: str, begun: Path
) -> None:
    with pytest.raises(ValueError, match=sentence):
        fit(model, method, *data, seed=seed, checkpoint=begun)


def test_a_folder_that_is_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    with pytest.raises(ValueError, match=r"exists and is no checkpoint of bnnzoo\. Give checkpoint=\.\.\. the name"):
        fitted(METHODS[0], tmp_path)
    assert os.listdir(tmp_path) == ["mine.txt"]


@pytest.mark.parametrize("damage", ["values", pytest.param("gone", marks=pytest.mark.slow)])
def test_a_truncated_checkpoint(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "run.zarr"
    killed(METHODS[2], path, 25)
    first = min(path.glob("chains-0-1/block-*"))
    if damage == "gone":
        (first / "zarr.json").unlink()
    else:
        shutil.rmtree(first / "draws" / "c")  # zarr would read zeros
    sentence = "it cannot be read" if damage == "gone" else "the values of 'draws' are not those that were written"
    with pytest.raises(ValueError, match=rf"block-\d+ of the checkpoint is damaged: {sentence}"):
        fitted(METHODS[2], path)


def test_no_room_leaves_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, whole, write = tmp_path / "run.zarr", fitted(METHODS[2]), checkpoints._write_block

    def full(block: Path, *args: Any) -> None:
        if int(block.name.removeprefix("block-")) == 15:
            raise OSError(28, "No space left on device")
        write(block, *args)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "_write_block", full)
        with pytest.raises(
            OSError, match=r"Block 15 of the checkpoint .* could not be written .*No space left.* make room"
        ):
            fitted(METHODS[2], path)
    assert not list(path.glob("chains-*/.partial*"))
    assert torch.equal(fitted(METHODS[2], path).draws(), whole.draws())


def test_methods_that_do_not_go_on_say_so(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"Laplace cannot go on from a checkpoint; samplers of chains can, such as NUTS"
    ):
        fitted(Laplace(), tmp_path / "run.zarr")
    assert not (tmp_path / "run.zarr").exists()


SCRIPT = """
import sys, torch
torch.set_default_dtype(torch.float64)
from tests.inference import test_checkpoint as t
t.checkpoints.SECONDS_BETWEEN_BLOCKS = 0.05
t.fitted(t.NUTS(num_chains=2, num_warmup=100, num_draws=300), t.Path(sys.argv[1]))
"""


INTERRUPTED = """
import signal, sys, torch
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored by what a shell starts in the background
torch.set_default_dtype(torch.float64)
from tests.inference import test_checkpoint as t
t.checkpoints.SECONDS_BETWEEN_BLOCKS = 0.05
posterior = t.fitted(t.NUTS(num_chains=2, num_warmup=10, num_draws=100_000), t.Path(sys.argv[1]))
assert bool((posterior.draws() != 0).all())
print(posterior.info.complete, len(posterior.draws()), posterior.draws().shape[1])
"""


@pytest.mark.slow
def test_ctrl_c_ends_a_process_with_its_draws(tmp_path: Path) -> None:
    path = tmp_path / "run.zarr"
    command = [sys.executable, "-c", INTERRUPTED, str(path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        command, cwd=Path(__file__).parents[2], env=environment, stdout=subprocess.PIPE, text=True
    )
    while process.poll() is None and not any(stop > 0 for _, stop in written(path)):  # until draws are kept
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    try:
        printed, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    complete, num_chains, num_draws = printed.split()
    assert process.returncode == 0 and (complete, num_chains) == ("False", "2")
    assert 0 < int(num_draws) < 100_000


def newest(path: Path) -> str:
    return max((block.name for block in path.glob("chains-*/block-*")), default="")


@pytest.mark.slow
def test_killed_at_random_times(tmp_path: Path) -> None:
    path, rng, kills = tmp_path / "run.zarr", random.Random(0), 0
    command = [sys.executable, "-c", SCRIPT, str(path)]
    while True:
        before = newest(path)
        process = subprocess.Popen(command, cwd=Path(__file__).parents[2], env={**os.environ, "OMP_NUM_THREADS": "1"})
        while process.poll() is None and newest(path) == before:
            time.sleep(0.02)
        try:
            assert process.wait(timeout=rng.uniform(0.0, 2.0) if kills < 8 else None) == 0
            break
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
    assert kills > 0
    whole = fitted(NUTS(num_chains=2, num_warmup=100, num_draws=300))
    assert torch.equal(fitted(NUTS(num_chains=2, num_warmup=100, num_draws=300), path).draws(), whole.draws())
    blocks = written(path)
    assert all(before[1] == after[0] for before, after in pairwise(blocks))
