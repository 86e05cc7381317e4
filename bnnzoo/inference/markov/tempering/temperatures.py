"""Inverse temperatures: where they begin, and how they are spread so that neighbours exchange states equally often."""

import torch
from torch import Tensor

__all__ = ["equalised", "first_temperatures", "rounds"]

POWER = 4
"""First temperatures are powers of evenly spaced numbers: likelihoods change most near the prior."""

SHARE, SHORTEST = 0.5, 10
"""Of warm-up, after which temperatures stay; draws of the shortest round."""

LEAST = 1e-3
"""Rejection rate that a pair counts at least, so that it keeps its place."""


def first_temperatures(num: int) -> Tensor:
    """Return the inverse temperatures ``[K]`` with which warm-up begins.

    Examples
    --------
    >>> first_temperatures(3)
    tensor([0.0000, 0.0625, 1.0000], dtype=torch.float64)
    """
    return torch.linspace(0.0, 1.0, num, dtype=torch.float64) ** POWER


def rounds(num_warmup: int) -> tuple[int, ...]:
    """Return the numbers of draws after which temperatures are chosen anew: each round is as long as all before it.

    Examples
    --------
    >>> rounds(1000)
    (15, 31, 62, 125, 250, 500)
    """
    ends, end = [], SHARE * num_warmup
    while end >= SHORTEST:
        ends.append(int(end))
        end /= 2
    return tuple(reversed(ends))


def equalised(temperatures: Tensor, rejection: Tensor) -> Tensor:
    r"""Return inverse temperatures ``[K]`` between which states would be exchanged equally often.

    The communication barrier up to each temperature, :math:`\Lambda(\beta_k) = \sum_{j < k} r_j`, the sum of rejection rates,
    hardly depends on where the temperatures between are. They are moved to where it takes evenly spaced values, along a
    monotone cubic spline.

    Parameters
    ----------
    temperatures : Tensor [K]
        Those of the round.
    rejection : Tensor [K - 1]
        Mean probability with which exchanges of neighbours were rejected.

    Examples
    --------
    >>> equalised(torch.tensor([0.0, 0.5, 1.0]).double() ** 4, torch.tensor([0.2, 0.2]).double())
    tensor([0.0000, 0.0625, 1.0000], dtype=torch.float64)
    """
    from scipy.interpolate import PchipInterpolator  # noqa: PLC0415 - it imports scipy.optimize, a third of a second

    barrier = torch.cat([rejection.new_zeros(1), rejection.clamp(min=LEAST).cumsum(0)])
    spline = PchipInterpolator(barrier.numpy(), temperatures.numpy() ** (1 / POWER))
    found = torch.from_numpy(spline(torch.linspace(0.0, float(barrier[-1]), len(barrier), dtype=torch.float64)))
    found = found.clamp(0.0, 1.0) ** POWER
    found[0], found[-1] = 0.0, 1.0
    return found
