"""Random numbers that are functions of a key and a counter, so that they can be drawn anywhere, native code included."""

import math

import numpy as np
import torch
from torch import Tensor

__all__ = ["keys_of", "keys_of_chains", "normals", "shifted", "uniforms", "words"]

WORD = 1 << 64
GOLDEN_GAMMA, FIRST, SECOND = 0x9E3779B97F4A7C15 - WORD, 0xBF58476D1CE4E5B9 - WORD, 0x94D049BB133111EB - WORD
"""Constants of SplitMix64 (Steele, Lea and Flood 2014), as signed numbers: their products wrap around alike."""

DIGITS = {torch.float32: 23, torch.float64: 52}
"""Binary digits of a uniform number; half a unit is added, so that it is neither 0 nor 1, and still exact."""


def keys_of(seed: int, chain: int, num_keys: int) -> Tensor:
    """Return the keys ``[num_keys]`` of one chain's random streams, which depend on nothing but its number and the seed."""
    words = np.random.SeedSequence((seed, chain)).generate_state(num_keys, np.uint64)
    return torch.from_numpy(words.astype(np.int64))


def keys_of_chains(seed: int, chains: range, num_keys: int) -> Tensor:
    """Return the keys ``[C, num_keys]`` of some chains of a fit."""
    return torch.stack([keys_of(seed, chain, num_keys) for chain in chains])


def uniforms(key: Tensor, counter: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the numbers from (0, 1) at places ``counter[...]`` of the stream of ``key[]``."""
    return (shifted(words(key, counter), 64 - DIGITS[dtype]).to(dtype) + 0.5) * 2.0 ** -DIGITS[dtype]


def normals(key: Tensor, counter: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the standard normal numbers at places ``counter[...]`` of the stream of ``key[]``, by Box and Muller's transform."""
    radius = (-2 * uniforms(key, 2 * counter, dtype).log()).sqrt()
    return radius * (2 * math.pi * uniforms(key, 2 * counter + 1, dtype)).cos()


def words(key: Tensor, counter: Tensor) -> Tensor:
    """Return the 64 random bits at places ``counter[...]`` of the stream of ``key[]``, as integers."""
    word = key + counter * GOLDEN_GAMMA
    word = (word ^ shifted(word, 30)) * FIRST
    word = (word ^ shifted(word, 27)) * SECOND
    return word ^ shifted(word, 31)


def shifted(word: Tensor, places: int) -> Tensor:
    """Shift bits to the right and fill with zeros, where a shift of signed numbers copies the sign."""
    return (word >> places) & ((1 << (64 - places)) - 1)
