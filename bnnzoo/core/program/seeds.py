"""Seeds of torch's generators."""

from typing import SupportsInt

import numpy as np

__all__ = ["word_of"]


def word_of(seed: SupportsInt) -> int:
    """Return the 32 bits by which torch's generator on the CPU is seeded; those of a larger seed depend on all of its bits.

    Examples
    --------
    >>> word_of(7), word_of(2**32) != word_of(0)
    (7, True)
    """
    number = int(seed)  # numpy's integers, too
    return number if 0 <= number < 2**32 else int(np.random.SeedSequence(number % 2**64).generate_state(1)[0])
