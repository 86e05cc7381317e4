"""The folder of a checkpoint: what is refused, and who may write to it."""

import os
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from bnnzoo.inference.markov.checkpoint_folder import (
    FORMAT,
    WriterLock,
    attributes_of,
    begun_by,
    open_chains,
    open_store,
)
from tests.helpers.checkpointing import METHODS, fitted

zarr = pytest.importorskip("zarr")
REPOSITORY = Path(__file__).parents[3]


def test_a_folder_that_is_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    with pytest.raises(ValueError, match=r"exists and is no checkpoint of bnnzoo\. Give checkpoint=\.\.\. the name"):
        fitted(METHODS["NUTS"], tmp_path)
    assert os.listdir(tmp_path) == ["mine.txt"]


def test_a_zarr_store_of_another_program(tmp_path: Path) -> None:
    path = tmp_path / "other.zarr"
    zarr.open_group(store=str(path), mode="w", attributes={"title": "precious"})
    with pytest.raises(ValueError, match=r"other\.zarr exists and is no checkpoint of bnnzoo"):
        fitted(METHODS["NUTS"], path)
    assert os.listdir(path) == ["zarr.json"]


@pytest.mark.parametrize(
    ("versions", "said"),
    [
        ({"begun_by": {"bnnzoo": "9.1", "torch": "3.0"}}, r"bnnzoo 9\.1 with torch 3\.0"),
        ({"begun_by": {"bnnzoo": "unknown", "torch": "3.0"}}, r"torch 3\.0"),
        ({}, "another version of bnnzoo or torch"),
    ],
)
def test_a_store_of_another_version(versions: dict[str, dict[str, str]], said: str, tmp_path: Path) -> None:
    path = tmp_path / "run.zarr"
    zarr.open_group(store=str(path), mode="w", attributes={"bnnzoo": FORMAT + 1, **versions})
    with pytest.raises(
        ValueError,
        match=rf"begun by {said}, has format {FORMAT + 1}, and this version of bnnzoo reads format {FORMAT}\.",
    ):
        open_store(path)


def test_a_store_says_what_began_it(tmp_path: Path) -> None:
    open_store(tmp_path / "run.zarr")
    assert begun_by(tmp_path / "run.zarr") == f"bnnzoo {version('bnnzoo')} with torch {version('torch')}"


@pytest.mark.parametrize("contents", ["", "{", "[]", '{"attributes": 3}'])
def test_a_damaged_header_is_named(contents: str, tmp_path: Path) -> None:
    path = tmp_path / "run.zarr"
    chains = open_chains(path, 0, 2, {"seed": "3"})
    (chains / "zarr.json").write_text(contents)
    with pytest.raises(ValueError, match=r"The file .*run\.zarr/chains-0-1/zarr\.json of the checkpoint is damaged \("):
        open_chains(path, 0, 2, {"seed": "3"})
    (path / "zarr.json").write_text(contents)
    with pytest.raises(ValueError, match=r"The file .*run\.zarr/zarr\.json of the checkpoint is damaged \("):
        open_store(path)


def test_a_place_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        OSError, match=r"The checkpoint .*run\.zarr cannot be written \(.*\)\. Give checkpoint=\.\.\. the name"
    ):
        fitted(METHODS["NUTS"], tmp_path / "file" / "run.zarr")


def test_a_place_that_may_not_be_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(OSError, match=r"The checkpoint .*run\.zarr cannot be written \(.*Permission denied.*\)\. Give"):
        open_store(tmp_path / "run.zarr")


def test_chains_that_ran_in_other_batches(tmp_path: Path) -> None:
    path = tmp_path / "run.zarr"
    open_chains(path, 0, 4, {"seed": "3"})
    with pytest.raises(ValueError, match=r"holds chains-0-3, and this fit runs chains-2-5 together\. Use the executor"):
        open_chains(path, 2, 4, {"seed": "3"})
    assert attributes_of(open_chains(path, 4, 4, {"seed": "3"}))["fingerprint"]["chains together"] == "4-7"


HOLDS_THE_LOCK = """
import sys, time
from importlib.metadata import version
from pathlib import Path
from bnnzoo.inference.markov.checkpoint_folder import WriterLock, open_chains
lock = WriterLock(open_chains(Path(sys.argv[1]), 0, 2, {"seed": "3"}))
print("locked", flush=True)
time.sleep(600)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no locks of this kind")
def test_one_process_writes_and_a_dead_one_is_no_obstacle(tmp_path: Path) -> None:
    path = tmp_path / "run.zarr"
    command = [sys.executable, "-c", HOLDS_THE_LOCK, str(path)]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        try:
            with pytest.raises(
                RuntimeError, match=rf"Another process \(pid {process.pid}\) writes to the checkpoint .*run"
            ):
                WriterLock(path / "chains-0-1")
        finally:
            process.send_signal(signal.SIGKILL)
    assert (path / "chains-0-1" / ".lock").read_text() == str(process.pid)
    lock = WriterLock(path / "chains-0-1")
    assert (path / "chains-0-1" / ".lock").read_text() == str(os.getpid())
    lock.release()
    assert not (path / "chains-0-1" / ".lock").exists()


def test_a_second_fit_is_refused_until_the_first_has_ended(tmp_path: Path) -> None:
    method, path = METHODS["MAMS"], tmp_path / "run.zarr"
    fitted(method, path)
    lock = WriterLock(path / "chains-0-1")
    with pytest.raises(RuntimeError, match=rf"Another process \(pid {os.getpid()}\) writes to the checkpoint"):
        fitted(method, path)
    lock.release()
    assert fitted(method, path).info.complete
