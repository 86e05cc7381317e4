"""Order of the rows that steps see, as a function of a key and the number of the step."""

from dataclasses import dataclass

import torch
from torch import Tensor

from bnnzoo.inference.markov.noise import shifted, uniforms, words

__all__ = ["RowOrder", "permuted"]

NUM_ROUNDS = 6
"""Rounds of a permutation; a Feistel network of four cannot be told from a random permutation by its values alone."""


@dataclass(frozen=True)
class RowOrder:
    """Mini-batches of one chain, each of which can be computed on its own, in native code too.

    Attributes
    ----------
    num_data : int
    size : int
        Rows of a mini-batch, fewer than ``num_data``.
    independent : bool
        Draw the rows of each batch with replacement, in place of passes over the data. A pass is a new permutation cut into
        batches, without a short last one; the errors of its batches cancel, so that chains receive less noise than the variance
        of a single gradient says.
    """

    num_data: int
    size: int
    independent: bool = False

    def rows(self, key: Tensor, steps: Tensor) -> Tensor:
        """Return the rows ``[K, B]`` of steps ``[K]``.

        Examples
        --------
        >>> rows = RowOrder(7, 3).rows(torch.tensor(5), torch.arange(2))
        >>> rows.shape, len(rows.unique())
        (torch.Size([2, 3]), 6)
        """
        places, steps = torch.arange(self.size, device=steps.device), steps[:, None]
        if self.independent:
            found = self.num_data * uniforms(key, steps * self.size + places, torch.float64)
            return found.to(torch.int64)
        place = steps % (self.num_data // self.size)
        return permuted(words(key, steps - place), place * self.size + places, self.num_data)


def permuted(keys: Tensor, places: Tensor, num: int) -> Tensor:
    """Return where random permutations of the numbers below ``num`` take some of them.

    A round turns the numbers by an offset, writes them as ``(high, low)``, changes the low bits by random bits that depend on the
    high ones, and exchanges the two, as a Feistel network does. Numbers beyond the largest full grid only turn.

    Parameters
    ----------
    keys : Tensor [K, 1]
        One for each permutation.
    places : Tensor [K, B]
    num : int
        2 or more.

    References
    ----------
    Luby and Rackoff (1988), How to construct pseudorandom permutations from pseudorandom functions, SIAM Journal on Computing 17.

    Examples
    --------
    >>> sorted(permuted(torch.tensor([[3]]), torch.arange(5)[None], 5).flatten().tolist())
    [0, 1, 2, 3, 4]
    """
    bits = num.bit_length() // 2
    width, height = 1 << bits, num >> bits
    for number in range(NUM_ROUNDS):
        turn, inner = (words(keys, torch.full_like(keys, 2 * number + i)) for i in range(2))
        turned = places + shifted(turn, 1) % num
        turned = torch.where(turned >= num, turned - num, turned)
        high, low = turned >> bits, turned & (width - 1)
        changed = (low ^ shifted(words(inner, high), 64 - bits)) * height + high
        places = torch.where(turned < width * height, changed, turned)
    return places
