"""The blocks of a checkpoint: zarr groups of draws, written whole or not at all, and checked when they are read."""

import hashlib
import io
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Block", "damaged", "pack", "read_block", "sha256", "unpack", "write_block", "zarr_library"]


class Block(NamedTuple):
    """Draws ``start`` to ``stop`` of every chain: arrays by name."""

    start: int
    stop: int
    arrays: dict[str, NDArray[Any]]


def write_block(path: Path, block: Block) -> None:
    """Write a block under a temporary name and rename it.

    Raises
    ------
    OSError
        If it cannot be written; nothing is left of it then.
    """
    partial = path.with_name(f".partial-{path.name}-{os.getpid()}")
    sums = {name: sha256(value) for name, value in block.arrays.items()}
    try:
        attributes = {"start": block.start, "stop": block.stop, "sha256": sums}
        group = zarr_library().open_group(store=str(partial), mode="w", attributes=attributes)
        for name, value in block.arrays.items():
            dims = ("byte",) if name == "state" else ("chain", "draw", "param")[: value.ndim]
            array = group.create_array(name, shape=value.shape, dtype=value.dtype, dimension_names=dims)
            array[...] = value
        partial.rename(path)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def read_block(path: Path, *, state: bool) -> Block:
    """Return a block, with the state of the chains at its end only if asked for.

    Raises
    ------
    ValueError
        If it is damaged; the message names the block, and the array where it is one.
    """
    zarr = zarr_library()
    place = path
    try:
        group = zarr.open_group(store=str(path), mode="r")
        sums = dict(group.attrs["sha256"])
        start, stop = int(group.attrs["start"]), int(group.attrs["stop"])
        arrays = {}
        for name in sums:
            if state or name != "state":
                place = path / name
                arrays[name] = np.asarray(group[name][...])
    except Exception as error:  # a damaged file may fail to decode in any way
        what = f"{place.relative_to(path.parent)} cannot be read ({type(error).__name__}: {error})"
        raise ValueError(damaged(path, what)) from error
    for name, value in arrays.items():
        if sha256(value) != sums[name]:
            raise ValueError(damaged(path, f"the values of {name!r} are not those that were written"))
    if arrays["draws"].shape[1] != stop - start:
        raise ValueError(damaged(path, f"it holds {arrays['draws'].shape[1]} draws, not those from {start} to {stop}"))
    return Block(start, stop, arrays)


def damaged(path: Path, what: str) -> str:
    """Return the sentence that refuses a block."""
    return (
        f"The block {path} of the checkpoint is damaged: {what}. Restore it from a copy, or begin again in another folder; the "
        f"other blocks are zarr groups and can be read by themselves."
    )


def pack(state: Mapping[str, NDArray[Any]]) -> NDArray[np.uint8]:
    """Return arrays by name as one array of bytes."""
    buffer = io.BytesIO()
    np.savez(buffer, **{name: np.asarray(value) for name, value in state.items()})  # type: ignore[arg-type]
    return np.frombuffer(buffer.getvalue(), dtype=np.uint8)


def unpack(packed: NDArray[np.uint8]) -> dict[str, NDArray[Any]]:
    """Return the arrays that :func:`pack` was given."""
    with np.load(io.BytesIO(packed.tobytes()), allow_pickle=False) as found:
        return dict(found)


def sha256(value: NDArray[Any]) -> str:
    """Return the SHA-256 sum of an array's bytes."""
    return hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()


def zarr_library() -> Any:
    """Return the module zarr, an optional extra."""
    try:
        import zarr  # noqa: PLC0415
    except ImportError as error:
        raise ImportError("checkpoint=... needs zarr: pip install 'bnnzoo[zarr]'") from error
    return zarr
