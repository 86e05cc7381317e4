"""Runs that are killed and resumed: the draws are those of an uninterrupted run, and a damaged checkpoint is refused."""

import os
import shutil
import signal
import subprocess
import sys
import time
from importlib.metadata import version
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
from bnnzoo.inference import MAMS, Laplace, fit
from bnnzoo.inference.markov import checkpoint as checkpoints
from bnnzoo.inference.markov.checkpoint_blocks import Block
from bnnzoo.inference.markov.hamiltonian.hamiltonian_sampler import HamiltonianChains
from bnnzoo.inference.markov.lockstep.trajectory_chains import TrajectoryChains
from tests.helpers.checkpointing import METHODS, QUICK, TARGET, blocks_of, fitted, killed
from tests.helpers.native import when_native_pays

pytest.importorskip("zarr")

REPOSITORY = Path(__file__).parents[3]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


@pytest.fixture(autouse=True)
def blocks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "SECONDS_BETWEEN_BLOCKS", 0.0)


@pytest.mark.parametrize("name", [n if n == "MAMS" else pytest.param(n, marks=pytest.mark.slow) for n in METHODS])
def test_a_killed_run_is_resumed_as_if_nothing_had_happened(name: str, tmp_path: Path) -> None:
    method = METHODS[name]
    whole = fitted(method)
    for num_draws in (7, 24):
        killed(method, tmp_path / "run.zarr", num_draws)
    resumed = fitted(method, tmp_path / "run.zarr")
    assert torch.equal(resumed.draws(), whole.draws())
    assert resumed.info.num_gradients == whole.info.num_gradients
    for statistic, value in whole.info.sample_stats.items():
        assert torch.equal(resumed.info.sample_stats[statistic], value), statistic
    blocks = blocks_of(tmp_path / "run.zarr")
    assert blocks[0][0] == 0 and blocks[-1][1] == 12
    assert all(before[1] == after[0] for before, after in pairwise(blocks))


@pytest.mark.slow
def test_a_run_goes_on_in_one_batch_where_native_code_would_be_chosen_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    method, path = METHODS["HMC"], tmp_path / "run.zarr"
    whole = fitted(method)
    killed(method, path, 24)
    when_native_pays(monkeypatch, 0)
    assert torch.equal(fitted(method, path).draws(), whole.draws())


SLOWER = ("StochasticMCLMC", "ChEESHMC", "MCLMC")


@pytest.mark.parametrize("engines", [("graph", "native"), ("native", "graph")])
@pytest.mark.parametrize("name", ["NUTS", "SGHMC", "MAMS", *(pytest.param(n, marks=pytest.mark.slow) for n in SLOWER)])
def test_a_run_is_resumed_by_another_engine(name: str, engines: tuple[str, str], tmp_path: Path) -> None:
    path, method = tmp_path / "run.zarr", METHODS[name]
    killed(method, path, 24, engine=engines[0])
    resumed, whole = fitted(method, path, engine=engines[1]), fitted(method, engine=engines[1])
    torch.testing.assert_close(resumed.draws(), whole.draws(), rtol=1e-6, atol=1e-6)
    assert resumed.info.engine is not None and resumed.info.engine.engine == engines[1]


def test_a_state_of_another_version_is_refused(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = TrajectoryChains._resumable
    monkeypatch.setattr(TrajectoryChains, "_resumable", lambda loop: now(loop) | {"new": 1})
    begun = (
        rf"was begun by bnnzoo {version('bnnzoo')} with torch .*, whose chains keep another state than those of this "
    )
    with pytest.raises(ValueError, match=rf"{begun}version \(KeyError"):
        fitted(METHODS["MAMS"], copy)


def test_a_finished_run_is_read_back_without_a_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = fitted(METHODS["MAMS"], tmp_path / "run.zarr")

    def never(loop: TrajectoryChains) -> None:
        raise AssertionError("a step was taken")

    monkeypatch.setattr(TrajectoryChains, "advance", never)
    assert torch.equal(fitted(METHODS["MAMS"], tmp_path / "run.zarr").draws(), whole.draws())


def test_blocks_are_arrays_that_anyone_can_read(tmp_path: Path) -> None:
    posterior = fitted(METHODS["MAMS"], tmp_path / "run.zarr")
    last = max((tmp_path / "run.zarr" / "chains-0-1").glob("block-*"))
    block = xr.open_zarr(last, consolidated=False)
    assert block["draws"].dims == ("chain", "draw", "param")
    np.testing.assert_array_equal(block["draws"], posterior.draws()[:, block.attrs["start"] :])


@pytest.mark.slow
def test_interrupted_run_keeps_its_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    method, path = METHODS["NUTS"], tmp_path / "run.zarr"
    whole = fitted(method)
    advance = HamiltonianChains.advance

    def interrupted(loop: HamiltonianChains) -> None:
        advance(loop)
        if int(loop.counts.min()) > 25:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(HamiltonianChains, "advance", interrupted)
        part = fitted(method, path)
    assert not part.info.complete
    assert torch.equal(part.draws(), whole.draws()[:, : part.draws().shape[1]])
    assert torch.equal(fitted(method, path).draws(), whole.draws())


def other_model(x: Tensor, y: Tensor | None = None) -> None:
    w = pyro.sample("w", dist.Normal(0.0, 3.0).expand([3]).to_event(1))
    with pyro.plate("data", len(x)):
        pyro.sample("y", dist.Normal(x @ w, 0.5), obs=y)


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the checkpoint of a killed run; tests that change it take a copy."""
    path = tmp_path_factory.mktemp("begun") / "run.zarr"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoints, "SECONDS_BETWEEN_BLOCKS", 0.0)
        killed(METHODS["MAMS"], path, 25)
    return path


@pytest.fixture
def copy(begun: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(begun, tmp_path / "copy.zarr"))


@pytest.mark.parametrize(
    ("model", "method", "data", "seed", "sentence"),
    [
        (TARGET.model, METHODS["MAMS"], TARGET.data, 4, r"its seed: 3; of this one: 4\. Repeat the call"),
        (
            TARGET.model,
            MAMS(**QUICK, target_accept=0.9),
            TARGET.data,
            3,
            r"its settings: .*0\.7.*; of this one: .*0\.9",
        ),
        (TARGET.model, METHODS["MAMS"], (TARGET.data[0], TARGET.data[1] + 1), 3, r"belongs to another fit: its data: "),
        (other_model, METHODS["MAMS"], TARGET.data, 3, r"the log prior at a random point was"),
    ],
)
def test_a_checkpoint_of_another_fit(
    model: Any, method: Method, data: Any, seed: int, sentence: str, begun: Path
) -> None:
    with pytest.raises(ValueError, match=sentence):
        fit(model, method, *data, seed=seed, checkpoint=begun)


@pytest.mark.parametrize("place", [0, 2])
def test_a_missing_block_is_refused_by_the_name_of_the_next(place: int, copy: Path) -> None:
    blocks = sorted(copy.glob("chains-0-1/block-*"))
    assert len(blocks) > 4
    (start, stop), after = blocks_of(copy)[place], blocks[place + 1]
    shutil.rmtree(blocks[place])
    sentence = rf"lacks a block before .*{after.name}: it begins at draw {stop}, but the blocks before it end at draw {start}\."
    with pytest.raises(ValueError, match=sentence):
        fitted(METHODS["MAMS"], copy)


def test_a_missing_last_block_is_refused(copy: Path) -> None:
    *_, before, last = sorted(copy.glob("chains-0-1/block-*"))
    shutil.rmtree(last)
    with pytest.raises(
        ValueError, match=rf"{before.name} of the checkpoint is damaged: {before.name}/state cannot be read"
    ):
        fitted(METHODS["MAMS"], copy)


def chunk_of(folder: Path) -> Path:
    return next(path for path in sorted((folder / "draws" / "c").rglob("*")) if path.is_file())


def removed(folder: Path) -> None:
    (folder / "zarr.json").unlink()


def without_chunks(folder: Path) -> None:
    shutil.rmtree(folder / "draws" / "c")  # zarr would read zeros


def cut_short(folder: Path) -> None:
    chunk = chunk_of(folder)
    chunk.write_bytes(chunk.read_bytes()[:-3])


def scrambled(folder: Path) -> None:
    chunk = chunk_of(folder)
    chunk.write_bytes(bytes(255 - byte for byte in chunk.read_bytes()))


def header_cut_short(folder: Path) -> None:
    header = folder / "draws" / "zarr.json"
    header.write_text(header.read_text()[:40])


def moved(folder: Path) -> None:
    header = folder / "zarr.json"
    header.write_text(header.read_text().replace('"stop": 1', '"stop": 2'))


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (removed, r"{block} cannot be read"),
        (without_chunks, r"the values of 'draws' are not those that were written"),
        (cut_short, r"{block}/draws cannot be read \(\w+: .*\)"),
        (scrambled, r"{block}/draws cannot be read \(\w+: .*\)"),
        (header_cut_short, r"{block}/draws cannot be read \(\w+: .*\)"),
        (moved, r"it holds 1 draws, not those from 0 to 2"),
    ],
)
def test_a_damaged_block_is_refused_by_name(damage: Any, sentence: str, copy: Path) -> None:
    first = min(copy.glob("chains-0-1/block-*"))
    assert blocks_of(copy)[0] == (0, 1)
    damage(first)
    with pytest.raises(
        ValueError, match=rf"{first.name} of the checkpoint is damaged: {sentence.format(block=first.name)}"
    ):
        fitted(METHODS["MAMS"], copy)


@pytest.mark.slow
def test_no_room_leaves_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    method, path, write = METHODS["MAMS"], tmp_path / "run.zarr", checkpoints.write_block

    def full(place: Path, block: Block) -> None:
        if int(place.name.removeprefix("block-")) == 15:
            raise OSError(28, "No space left on device")
        write(place, block)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "write_block", full)
        with pytest.raises(
            OSError, match=r"Block 15 of the checkpoint .* could not be written .*No space left.* make room"
        ):
            fitted(method, path)
    assert not list(path.glob("chains-*/.*"))
    assert torch.equal(fitted(method, path).draws(), fitted(method).draws())


def test_methods_that_cannot_be_resumed_say_so(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"Laplace cannot go on from a checkpoint; samplers of chains can, such as NUTS"
    ):
        fitted(Laplace(), tmp_path / "run.zarr")
    assert not (tmp_path / "run.zarr").exists()


PREAMBLE = """
import signal, sys, torch
from pathlib import Path
torch.set_default_dtype(torch.float64)
from bnnzoo.inference import NUTS
from bnnzoo.inference.markov import checkpoint
from tests.helpers.checkpointing import fitted
checkpoint.SECONDS_BETWEEN_BLOCKS = 0.05
"""
INTERRUPTED = f"""{PREAMBLE}
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored by what a shell starts in the background
posterior = fitted(NUTS(num_chains=2, num_warmup=10, num_draws=100_000), Path(sys.argv[1]))
assert bool((posterior.draws() != 0).all())
print(posterior.info.complete, len(posterior.draws()), posterior.draws().shape[1])
"""


def started(script: str, path: Path, **options: Any) -> subprocess.Popen[Any]:
    return subprocess.Popen([sys.executable, "-c", script, str(path)], cwd=REPOSITORY, env=ENVIRONMENT, **options)


@pytest.mark.slow
def test_ctrl_c_ends_a_process_with_its_draws(tmp_path: Path) -> None:
    path = tmp_path / "run.zarr"
    process = started(INTERRUPTED, path, stdout=subprocess.PIPE, text=True)
    while process.poll() is None and not any(stop > 0 for _, stop in blocks_of(path)):  # until draws are kept
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    try:
        printed, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    complete, num_chains, num_draws = printed.split()
    assert process.returncode == 0 and (complete, num_chains) == ("False", "2")
    assert 0 < int(num_draws) < 100_000


KILLING = f"""{PREAMBLE}
import os, random, shutil, time
from bnnzoo.inference import HMC, MAMS, MCLMC, NUTS
from bnnzoo.inference.markov.lockstep.langevin_chains import LangevinSettings
from bnnzoo.inference.markov.chain_settings import HamiltonianSettings, LockstepSettings
from bnnzoo.engine import choose
setting, seconds, wanted, path = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
if setting == "compiled":
    choose.COMPILE_SECONDS = 0.0
if setting == "native":
    for settings in (HamiltonianSettings, LangevinSettings, LockstepSettings):
        settings.native_pays_from = 0
method = eval(sys.argv[5])
rng, kills = random.Random(0), 0
while True:
    child = os.fork()  # the parent has computed nothing yet, so that its threads are none
    if child == 0:
        fitted(method, path)
        os._exit(0)
    if kills < wanted:
        time.sleep(rng.uniform(0.0, seconds))
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status):
        assert os.WEXITSTATUS(status) == 0
        if kills >= wanted:
            break
        shutil.rmtree(path)
    else:
        kills += 1
posterior = fitted(method, path)
torch.save((posterior.draws(), dict(posterior.info.sample_stats), posterior.info.num_gradients), path / "resumed.pt")
whole = fitted(method)
torch.save((whole.draws(), dict(whole.info.sample_stats), whole.info.num_gradients), path / "whole.pt")
print(kills)
"""
"""Forks a run again and again and kills each at a random time but for the last; prints the number of kills."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("setting", "seconds", "kills", "method"),
    [
        ("", 1.5, 22, "NUTS(num_chains=2, num_warmup=100, num_draws=2000)"),
        ("", 1.5, 22, "HMC(num_chains=2, num_warmup=100, num_draws=2000)"),
        ("", 1.5, 22, "MAMS(num_chains=2, num_warmup=100, num_draws=1000)"),
        ("", 1.5, 22, "MCLMC(num_chains=2, num_warmup=100, num_draws=1000)"),
        ("compiled", 5.0, 6, "NUTS(num_chains=2, num_warmup=100, num_draws=2000)"),
        ("native", 5.0, 6, "NUTS(num_chains=2, num_warmup=1000, num_draws=100000)"),
    ],
)
def test_killed_at_random_times(setting: str, seconds: float, kills: int, method: str, tmp_path: Path) -> None:
    """A hundred kills in all; each run ends with the draws, statistics and counts of a run that nobody killed."""
    path = tmp_path / "run.zarr"
    command = [sys.executable, "-W", "ignore", "-c", KILLING, setting, str(seconds), str(kills), str(path), method]
    done = subprocess.run(command, cwd=REPOSITORY, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == kills
    (draws, stats, num_gradients), whole = (torch.load(path / f"{name}.pt") for name in ("resumed", "whole"))
    assert torch.equal(draws, whole[0]) and num_gradients == whole[2]
    assert stats.keys() == whole[1].keys() and all(torch.equal(stats[name], whole[1][name]) for name in stats)
    assert all(before[1] == after[0] for before, after in pairwise(blocks_of(path)))
