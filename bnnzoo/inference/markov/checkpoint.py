"""Long runs written down block by block, so that the same call goes on where a killed one stopped.

A store is a folder with a zarr group for each batch of chains, in it a group for each block of draws. A block is written under a
temporary name and renamed: it is there whole or not at all, and with it the state of the chains right after its last draw. What a
kill can lose is what came after the last block.
"""

import hashlib
import io
import json
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bnnzoo.core.density import LogDensity
from bnnzoo.core.fingerprint import fingerprint
from bnnzoo.inference.markov.protocols import Loop

__all__ = ["Checkpoint", "Fingerprint", "fingerprint_of"]

type Fingerprint = dict[str, str]

SECONDS_BETWEEN_BLOCKS = 10.0
FORMAT = 1


def fingerprint_of(config: Mapping[str, Any], density: LogDensity, seed: int) -> Fingerprint:
    """Return what must agree for a store to belong to a fit, as sentences by name."""
    found = {name: _as_text(value) for name, value in fingerprint(density).items()}
    return {"settings": json.dumps(config, sort_keys=True), "seed": str(seed), "dtype": str(density.dtype), **found}


class Checkpoint:
    """The blocks of one batch of chains, and the way back to where they ended.

    Parameters
    ----------
    path : Path
        Folder of the store; made if it is not there.
    fingerprint : dict
    first_chain : int
        Number of the batch's first chain.
    loop : Loop
        Chains about to start. If the store has a block of them, they are taken to its end.
    num_warmup : int

    Raises
    ------
    ValueError
        If the folder is no store, belongs to another fit, or has a damaged block.
    """

    def __init__(self, path: Path, fingerprint: Fingerprint, first_chain: int, loop: Loop, num_warmup: int) -> None:
        self._loop, self._num_warmup = loop, num_warmup
        chains = f"{first_chain}-{first_chain + loop.num_chains - 1}"
        self._folder = path / f"chains-{chains}"
        _open_store(path, fingerprint | {"chains together": chains}, self._folder)
        for leftover in self._folder.glob(".partial-*"):
            shutil.rmtree(leftover)
        self._num_blocks, self._num_saved = self._restore()
        self._last = time.monotonic()

    def save_if_due(self) -> None:
        """Write a block if the last one was long enough ago."""
        if time.monotonic() - self._last >= SECONDS_BETWEEN_BLOCKS:
            self.save()

    def save(self) -> None:
        """Write the draws since the last block, and where the chains are now.

        Raises
        ------
        OSError
            If it cannot be written; the blocks before it stay as they are.
        """
        loop = self._loop
        if self._num_saved == loop.draws.shape[1]:
            return
        kept, most = (min(max(int(c) - self._num_warmup, 0), loop.draws.shape[1]) for c in loop.counts.aminmax())
        new, ahead = slice(self._num_saved, kept), slice(kept, most)
        arrays = {"draws": loop.draws[:, new], **{n: loop.stats[:, new, i] for i, n in enumerate(loop.stats_names)}}
        state = loop.snapshot() | {
            "ahead.draws": loop.draws[:, ahead].cpu().numpy(),
            "ahead.stats": loop.stats[:, ahead].numpy(),
        }
        blocks = {name: value.cpu().numpy() for name, value in arrays.items()}
        try:
            _write_block(self._block(self._num_blocks), blocks | {"state": _packed(state)}, self._num_saved, kept)
        except OSError as error:
            raise OSError(
                f"Block {self._num_blocks} of the checkpoint {self._folder} could not be written ({error}). "
                f"The {self._num_saved} draws of each chain before it are safe: make room and make the same call again."
            ) from error
        self._forget_state(self._num_blocks - 1)
        self._num_blocks, self._num_saved, self._last = self._num_blocks + 1, kept, time.monotonic()

    def _restore(self) -> tuple[int, int]:
        """Take the loop to the end of the last block; return the next block's number and how many draws are written."""
        numbers = sorted(int(block.name.removeprefix("block-")) for block in self._folder.glob("block-*"))
        if not numbers:
            return 0, 0
        stop = 0
        for number in numbers:
            start, stop, arrays = _read_block(self._block(number), last=number == numbers[-1])
            self._loop.draws[:, start:stop] = torch.from_numpy(arrays["draws"]).to(self._loop.draws)
            for i, name in enumerate(self._loop.stats_names):
                self._loop.stats[:, start:stop, i] = torch.from_numpy(arrays[name])
        state = _unpacked(arrays["state"])
        end = stop + state["ahead.draws"].shape[1]
        self._loop.draws[:, stop:end] = torch.from_numpy(state["ahead.draws"]).to(self._loop.draws)
        self._loop.stats[:, stop:end] = torch.from_numpy(state["ahead.stats"])
        self._loop.restore(state)
        for number in numbers[:-1]:  # a kill may have come between a block and this
            self._forget_state(number)
        return numbers[-1] + 1, stop

    def _forget_state(self, number: int) -> None:
        """Drop the state of a block that a newer one has made useless, and the block if it held nothing else."""
        block = self._block(number)
        if not block.exists():
            return
        attributes = _attributes(block)
        if attributes["start"] == attributes["stop"]:
            # a kill in the midst of it leaves what the next opening sweeps away, not half a block
            doomed = block.rename(block.with_name(f".partial-{block.name}"))
            shutil.rmtree(doomed, ignore_errors=True)
        else:
            shutil.rmtree(block / "state", ignore_errors=True)

    def _block(self, number: int) -> Path:
        return self._folder / f"block-{number:06d}"


def _open_store(path: Path, fingerprint: Fingerprint, folder: Path) -> None:
    """Make a new store for a batch of chains, or check that the one there belongs to this fit."""
    if path.exists() and not (path / "zarr.json").is_file():
        raise ValueError(f"{path} exists and is no checkpoint of bnnzoo. Give checkpoint=... the name of a new folder.")
    if not path.exists():
        _new_group(path, {"bnnzoo": FORMAT})
    if folder.exists():
        return _refuse_other(folder, fingerprint)
    others = [other for other in path.glob("chains-*") if _overlap(other.name, folder.name)]
    if others:
        raise ValueError(
            f"The checkpoint {path} holds {others[0].name}, and this fit runs {folder.name} together. Use the executor it was "
            f"begun with, or another folder."
        )
    return _new_group(folder, {"fingerprint": fingerprint})


def _refuse_other(folder: Path, fingerprint: Fingerprint) -> None:
    found: Fingerprint = _attributes(folder)["fingerprint"]
    for name, value in fingerprint.items():
        if found.get(name) != value:
            raise ValueError(
                f"The checkpoint {folder} is of another fit: its {name}: {found.get(name)}; of this one: {value}. Make the call "
                f"it was begun with, or give another folder."
            )


def _new_group(path: Path, attributes: Mapping[str, Any]) -> None:
    partial = path.with_name(f".partial-{path.name}-{os.getpid()}")
    path.parent.mkdir(parents=True, exist_ok=True)
    _zarr().open_group(store=str(partial), mode="w", attributes=dict(attributes))
    try:
        partial.rename(path)
    except OSError:  # another worker was first
        shutil.rmtree(partial)
        if not path.exists():
            raise


def _write_block(path: Path, arrays: Mapping[str, NDArray[Any]], start: int, stop: int) -> None:
    partial = path.with_name(f".partial-{path.name}-{os.getpid()}")
    try:
        attributes = {"start": start, "stop": stop, "sha256": {name: _sha256(value) for name, value in arrays.items()}}
        group = _zarr().open_group(store=str(partial), mode="w", attributes=attributes)
        for name, value in arrays.items():
            dims = ("byte",) if name == "state" else ("chain", "draw", "param")[: value.ndim]
            array = group.create_array(name, shape=value.shape, dtype=value.dtype, dimension_names=dims)
            array[...] = value
        partial.rename(path)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _read_block(path: Path, last: bool) -> tuple[int, int, dict[str, NDArray[Any]]]:
    """Return where a block starts and stops, and its arrays; the state only of the last one."""
    try:
        group = _zarr().open_group(store=str(path), mode="r")
        sums = dict(group.attrs["sha256"])
        arrays = {name: np.asarray(group[name][...]) for name in sums if last or name != "state"}
        start, stop = int(group.attrs["start"]), int(group.attrs["stop"])
    except (KeyError, ValueError, OSError) as error:
        raise ValueError(_damaged(path, f"it cannot be read ({type(error).__name__}: {error})")) from error
    for name, value in arrays.items():
        if _sha256(value) != sums[name]:
            raise ValueError(_damaged(path, f"the values of {name!r} are not those that were written"))
    return start, stop, arrays


def _damaged(path: Path, what: str) -> str:
    return (
        f"The block {path} of the checkpoint is damaged: {what}. Restore it from a copy, or begin again in another folder; the "
        f"other blocks are zarr groups and can be read by themselves."
    )


def _attributes(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((path / "zarr.json").read_text())["attributes"]
    return found


def _overlap(one: str, other: str) -> bool:
    first, last, begin, end = (int(part) for name in (one, other) for part in name.removeprefix("chains-").split("-"))
    return first <= end and begin <= last


def _packed(state: Mapping[str, NDArray[Any]]) -> NDArray[np.uint8]:
    buffer = io.BytesIO()
    np.savez(buffer, **{name: np.asarray(value) for name, value in state.items()})  # type: ignore[arg-type]
    return np.frombuffer(buffer.getvalue(), dtype=np.uint8)


def _unpacked(packed: NDArray[np.uint8]) -> dict[str, NDArray[Any]]:
    with np.load(io.BytesIO(packed.tobytes()), allow_pickle=False) as found:
        return dict(found)


def _as_text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else ", ".join(value)


def _sha256(value: NDArray[Any]) -> str:
    return hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()


def _zarr() -> Any:
    try:
        import zarr
    except ImportError as error:
        raise ImportError("checkpoint=... needs zarr: pip install 'bnnzoo[zarr]'") from error
    return zarr
