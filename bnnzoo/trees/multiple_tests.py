"""Several tests at once."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["holm"]


def holm(p_values: ArrayLike, level: float) -> NDArray[np.bool_]:
    """Return which of several hypotheses are rejected, so that the probability of any false rejection is at most ``level``.

    References
    ----------
    Holm (1979), A simple sequentially rejective multiple test procedure, Scandinavian Journal of Statistics 6.

    Examples
    --------
    >>> holm([0.2, 0.001, 0.02, 0.011], 0.05).tolist()
    [False, True, True, True]
    """
    p = np.asarray(p_values, dtype=float)
    order = np.argsort(p)
    smaller = p[order] < level / (len(p) - np.arange(len(p)))
    rejected = np.zeros(len(p), dtype=bool)
    rejected[order] = np.logical_and.accumulate(smaller)
    return rejected
