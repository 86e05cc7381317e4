"""Random numbers of chains: each chain has a stream that depends on the seed and the chain's number alone."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["ChainStreams"]

BLOCK = 256
"""Rows of uniform numbers drawn at a time."""


class ChainStreams:
    """Uniform and normal random numbers for the chains of a batch; a chain's numbers do not depend on its batch.

    Parameters
    ----------
    seed : int
    first_chain, num_chains : int
        The chains of the fit that are in this batch.
    width : int
        Number of uniform numbers that a chain uses at a time.
    dtype, device
        Of the tensors returned. The numbers are generated on the CPU, so that they do not depend on the device.
    """

    def __init__(
        self, seed: int, first_chain: int, num_chains: int, width: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self._generators = [_generators(seed, first_chain + c) for c in range(num_chains)]
        self._width, self._dtype, self._device = width, dtype, device
        self._block = torch.zeros(BLOCK, width, num_chains, dtype=dtype, device=device)
        self.num_rows = 0

    def uniforms(self) -> Tensor:
        """Return the next numbers from (0, 1), ``[width, C]``."""
        place = self.num_rows % BLOCK
        if place == 0:
            shape = (BLOCK, self._width)
            blocks = [torch.rand(shape, generator=uniform, dtype=self._dtype) for uniform, _ in self._generators]
            self._block = torch.stack(blocks, 2).to(self._device)
        self.num_rows += 1
        return self._block[place]

    def normals(self, size: int, chains: list[int] | None = None) -> Tensor:
        """Return standard normal numbers ``[C, size]`` for some chains (default: all), and zeros for the others."""
        noise = torch.zeros(len(self._generators), size, dtype=self._dtype)
        for chain in range(len(self._generators)) if chains is None else chains:
            noise[chain].normal_(generator=self._generators[chain][1])
        return noise.to(self._device)

    def state(self) -> dict[str, Any]:
        """Return what :meth:`restore` needs to continue with the very next number, as arrays."""
        pairs = zip(*self._generators, strict=True)
        uniform, normal = (torch.stack([generator.get_state() for generator in kind]).numpy() for kind in pairs)
        return {
            "uniform": uniform,
            "normal": normal,
            "block": self._block.cpu().numpy(),
            "rows": np.array(self.num_rows),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue where a stream of the same chains was when ``state`` was taken."""
        for (uniform, normal), a, b in zip(self._generators, state["uniform"], state["normal"], strict=True):
            uniform.set_state(torch.from_numpy(np.array(a)))
            normal.set_state(torch.from_numpy(np.array(b)))
        self._block = torch.from_numpy(np.array(state["block"])).to(self._device)
        self.num_rows = int(state["rows"])


def _generators(seed: int, chain: int) -> tuple[torch.Generator, torch.Generator]:
    seeds = np.random.SeedSequence((seed, chain)).generate_state(2, np.uint64)
    uniform, normal = (torch.Generator().manual_seed(int(s >> np.uint64(1))) for s in seeds)
    return uniform, normal
