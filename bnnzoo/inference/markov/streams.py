"""Random numbers of chains in one batch: each chain has a stream that depends on the seed and the chain's number alone."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from bnnzoo.inference.markov.noise import keys_of, normals, uniforms

__all__ = ["ChainStreams"]

BLOCK = 256
"""Rows of uniform numbers computed at a time."""


class ChainStreams:
    """Uniform and normal random numbers for the chains of a batch; a chain's numbers do not depend on its batch.

    They are functions of a chain's keys and of how many it has used, as in native code; see
    :mod:`bnnzoo.inference.markov.noise`.

    Parameters
    ----------
    seed : int
    first_chain, num_chains : int
        The chains of the fit that are in this batch.
    width : int
        Number of uniform numbers that a chain uses at a time.
    dtype, device
        Of the tensors returned. The numbers are computed on the CPU, so that they do not depend on the device.

    Attributes
    ----------
    keys : Tensor
        Keys ``[C, 2]`` of the uniform and the normal numbers.
    num_rows : int
        Rows of uniform numbers that every chain has used.
    num_normals : Tensor
        Normal numbers ``[C]`` that each chain has used.
    """

    def __init__(
        self, seed: int, first_chain: int, num_chains: int, width: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.keys = torch.stack([keys_of(seed, first_chain + c, 2) for c in range(num_chains)])
        self._width, self._dtype, self._device = width, dtype, device
        self.num_normals = torch.zeros(num_chains, dtype=torch.int64)
        self.num_rows = 0
        self._block = self._block_from(0)

    def uniforms(self) -> Tensor:
        """Return the next numbers from (0, 1), ``[width, C]``."""
        place = self.num_rows % BLOCK
        if place == 0:
            self._block = self._block_from(self.num_rows)
        self.num_rows += 1
        return self._block[place]

    def normals(self, size: int, chains: list[int] | None = None) -> Tensor:
        """Return standard normal numbers ``[C, size]`` for some chains (default: all), and zeros for the others."""
        noise = torch.zeros(len(self.keys), size, dtype=self._dtype)
        rows = torch.arange(len(self.keys)) if chains is None else torch.tensor(chains, dtype=torch.int64)
        places = self.num_normals[rows, None] + torch.arange(size)
        noise[rows] = normals(self.keys[rows, 1:], places, self._dtype)
        self.num_normals[rows] += size
        return noise.to(self._device)

    def go_to(self, num_normals: Tensor, num_rows: int) -> None:
        """Continue behind numbers that were drawn elsewhere."""
        self.num_normals = num_normals.clone()
        if num_rows != self.num_rows:
            self.num_rows = num_rows
            self._block = self._block_from(max(num_rows - 1, 0) // BLOCK * BLOCK)

    def state(self) -> dict[str, Any]:
        """Return what :meth:`restore` needs to continue with the very next number, as arrays."""
        return {
            "keys": self.keys.numpy().copy(),
            "normals": self.num_normals.numpy().copy(),
            "rows": np.array(self.num_rows),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue where a stream of the same chains was when ``state`` was taken."""
        self.keys, self.num_normals = (torch.from_numpy(np.array(state[name])) for name in ("keys", "normals"))
        self.num_rows = int(state["rows"])
        self._block = self._block_from(max(self.num_rows - 1, 0) // BLOCK * BLOCK)

    def _block_from(self, row: int) -> Tensor:
        """Return the uniform numbers ``[BLOCK, width, C]`` from a row on."""
        places = row * self._width + torch.arange(BLOCK * self._width).view(BLOCK, self._width, 1)
        return uniforms(self.keys[:, 0], places, self._dtype).to(self._device)
