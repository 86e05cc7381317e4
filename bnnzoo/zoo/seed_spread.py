"""Intervals of distances in the zoo's table, from how far they move with the seed."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from math import exp, log, sqrt
from statistics import fmean

from scipy.special import stdtrit

from bnnzoo.zoo.cells import Cell

__all__ = ["SeedSpread", "seed_spreads", "spread_over_seeds"]

FEWEST = 10
"""Degrees of freedom from which on a spread is used."""


@dataclass(frozen=True)
class SeedSpread:
    """Spread of distances between seeds of one cell, pooled over cells.

    Parameters
    ----------
    log_sd : float
        Standard deviation of the logarithm.
    degrees : int
        Degrees of freedom: seeds beyond the first, over all cells.
    """

    log_sd: float
    degrees: int

    def interval(self, distances: Sequence[float]) -> tuple[float, float]:
        """Return where the distance of one more seed lies with 95% probability, widened to hold those that are there.

        Parameters
        ----------
        distances : sequence of float
            Of one cell, a seed each; positive.

        Examples
        --------
        >>> low, high = SeedSpread(0.1, 30).interval([2.0])
        >>> round(low, 2), round(high, 2)
        (1.5, 2.67)
        """
        centre = fmean(map(log, distances))
        half = float(stdtrit(self.degrees, 0.975)) * self.log_sd * sqrt(1 + 1 / len(distances))
        return min(exp(centre - half), *distances), max(exp(centre + half), *distances)


def seed_spreads(cells: Iterable[Cell]) -> dict[str, SeedSpread]:
    """Return the spread of each method's distances; of all methods together for those with few cells of several seeds.

    Methods are left out, all of them, if there are few such cells altogether.

    Parameters
    ----------
    cells : iterable of Cell
    """
    by_method: dict[str, list[Cell]] = {}
    for cell in cells:
        if cell.distance is not None:
            by_method.setdefault(cell.method, []).append(cell)
    own = {method: spread_over_seeds(found) for method, found in by_method.items()}
    pooled = spread_over_seeds(chain.from_iterable(by_method.values()))
    chosen = {method: spread if spread.degrees >= FEWEST else pooled for method, spread in own.items()}
    return {method: spread for method, spread in chosen.items() if spread.degrees >= FEWEST}


def spread_over_seeds(cells: Iterable[Cell]) -> SeedSpread:
    """Return the spread between seeds of the same card and method, pooled over those of several seeds.

    Parameters
    ----------
    cells : iterable of Cell
    """
    known = sorted((cell.card, cell.method, log(cell.distance)) for cell in cells if cell.distance)
    groups = [[value for *_, value in seeds] for _, seeds in groupby(known, key=lambda each: each[:2])]
    squares = sum((value - fmean(values)) ** 2 for values in groups for value in values)
    degrees = sum(len(values) - 1 for values in groups)
    return SeedSpread(sqrt(squares / degrees) if degrees else 0.0, degrees)
