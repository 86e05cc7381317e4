"""Long runs stored block by block, so that the same call resumes a run that was killed.

A store is a folder with a zarr group for each batch of chains, and in it a group for each block of draws. A block is written
under a temporary name and renamed: it exists whole or not at all, together with the state of the chains right after its last
draw. A kill loses only what came after the last block.
"""

import json
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.reading.fingerprint import VALUES, fingerprint
from bnnzoo.inference.markov.checkpoint_blocks import Block, pack, read_block, unpack, write_block
from bnnzoo.inference.markov.checkpoint_folder import Fingerprint, WriterLock, attributes_of, begun_by, open_chains
from bnnzoo.inference.markov.protocols import Loop

__all__ = ["Checkpoint", "fingerprint_of"]

SECONDS_BETWEEN_BLOCKS = 10.0


def fingerprint_of(config: Mapping[str, Any], density: LogDensity, seed: int) -> Fingerprint:
    """Return what must agree for a store to belong to a fit, in words by name."""
    whole = fingerprint(density)
    found = {}
    for name, value in whole.items():
        if name != VALUES:
            words = (f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else value
            found[name] = ", ".join(words)
    found[VALUES] = json.dumps(whole[VALUES])
    return {"settings": json.dumps(config, sort_keys=True), "seed": str(seed), "dtype": str(density.dtype), **found}


class Checkpoint:
    """The blocks of one batch of chains; a context manager that locks them against other processes.

    Parameters
    ----------
    path : Path
        Folder of the store; made if it does not exist.
    fingerprint : dict
    first_chain : int
        Number of the batch's first chain.
    loop : Loop
        Chains about to start. If the store has blocks of theirs, the loop is restored to the end of the last one.
    num_warmup : int

    Raises
    ------
    ValueError
        If the folder is not a checkpoint, belongs to another fit, holds a state of another version, or has a damaged or missing
        block.
    RuntimeError
        If another process writes to the same chains.
    """

    def __init__(self, path: Path, fingerprint: Fingerprint, first_chain: int, loop: Loop, num_warmup: int) -> None:
        self._loop, self._num_warmup = loop, num_warmup
        self._folder = open_chains(path, first_chain, loop.num_chains, fingerprint)
        self._lock = WriterLock(self._folder)
        try:
            for leftover in self._folder.glob(".partial-*"):
                shutil.rmtree(leftover)
            self._num_blocks, self._num_saved = self._restore()
        except BaseException:
            self._lock.release()
            raise
        self._last = time.monotonic()

    def __enter__(self) -> "Checkpoint":
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def save_if_due(self) -> None:
        """Write a block if the last one is old enough."""
        if time.monotonic() - self._last >= SECONDS_BETWEEN_BLOCKS:
            self.save()

    def save(self) -> None:
        """Write the draws since the last block and the current state of the chains.

        Raises
        ------
        OSError
            If they cannot be written; earlier blocks stay as they are.
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
        blocks = {name: value.cpu().numpy() for name, value in arrays.items()} | {"state": pack(state)}
        try:
            write_block(self._block(self._num_blocks), Block(self._num_saved, kept, blocks))
        except OSError as error:
            raise OSError(
                f"Block {self._num_blocks} of the checkpoint {self._folder} could not be written ({error}). "
                f"The {self._num_saved} draws of each chain before it are safe: make room and make the same call again."
            ) from error
        self._forget_state(self._num_blocks - 1)
        self._num_blocks, self._num_saved, self._last = self._num_blocks + 1, kept, time.monotonic()

    def _restore(self) -> tuple[int, int]:
        """Restore the loop to the end of the last block; return the number of the next block and the number of saved draws."""
        numbers = sorted(int(block.name.removeprefix("block-")) for block in self._folder.glob("block-*"))
        if not numbers:
            return 0, 0
        stop = 0
        for number in numbers:
            block = read_block(self._block(number), state=number == numbers[-1])
            if block.start != stop:
                raise ValueError(
                    f"The checkpoint lacks a block before {self._block(number)}: it begins at draw {block.start}, but the "
                    f"blocks before it end at draw {stop}. Restore the missing one from a copy, or begin again in another "
                    f"folder."
                )
            stop = block.stop
            self._loop.draws[:, block.start : stop] = torch.from_numpy(block.arrays["draws"]).to(self._loop.draws)
            for i, name in enumerate(self._loop.stats_names):
                self._loop.stats[:, block.start : stop, i] = torch.from_numpy(block.arrays[name])
        state = unpack(block.arrays["state"])
        end = stop + state["ahead.draws"].shape[1]
        self._loop.draws[:, stop:end] = torch.from_numpy(state["ahead.draws"]).to(self._loop.draws)
        self._loop.stats[:, stop:end] = torch.from_numpy(state["ahead.stats"])
        try:
            self._loop.restore(state)
        except (KeyError, ValueError, RuntimeError) as error:  # a leaf is missing, or has another shape
            raise ValueError(
                f"The checkpoint {self._folder} was begun by {begun_by(self._folder.parent)}, whose chains keep another state "
                f"than those of this version ({type(error).__name__}: {error}). Continue the run with the version that began "
                f"it, or begin again in another folder."
            ) from error
        for number in numbers[:-1]:  # a kill may have come right after a block was written
            self._forget_state(number)
        return numbers[-1] + 1, stop

    def _forget_state(self, number: int) -> None:
        """Delete the state of a block once a newer one replaces it, and the whole block if it holds nothing else."""
        block = self._block(number)
        if not block.exists():
            return
        attributes = attributes_of(block)
        if attributes["start"] == attributes["stop"]:
            # a kill in the middle of it leaves what the next opening deletes, not half a block
            doomed = block.rename(block.with_name(f".partial-{block.name}"))
            shutil.rmtree(doomed, ignore_errors=True)
        else:
            shutil.rmtree(block / "state", ignore_errors=True)

    def _block(self, number: int) -> Path:
        return self._folder / f"block-{number:06d}"
