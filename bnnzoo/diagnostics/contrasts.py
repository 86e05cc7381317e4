"""Contrasts of one-dimensional margins: location, spread, tails and modes of draws against those of a reference."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import gaussian_kde, t

from bnnzoo.diagnostics.split_distances import Array, blocks_of_draws

__all__ = ["Contrast", "ModeLost", "contrast", "lost_mode"]

NUM_BLOCKS = 40
"""Blocks of consecutive draws over all chains, each left out in turn by the jackknife."""
LEVELS = (0.01, 0.16, 0.5, 0.84, 0.99)
MATERIAL = {"location": 0.15, "spread": 0.1, "tails": 0.15}
"""Smallest differences that are said: in units of the reference's scale, and of logarithms of widths."""
FALSE_ALARMS = 0.001
"""Probability that equal posteriors are told apart, over all margins and contrasts of one comparison."""
VALLEY, SMALLEST_MODE, SHARE_KEPT = 0.5, 0.05, 0.3
"""Modes are apart where the density between them falls below half of the lower one; each has 5% of the draws. One is lost if less
than 30% of its share is left."""
LARGEST_RATIO = 1e6
"""Of widths: draws that are all alike have none."""
GRID = 200


@dataclass(frozen=True)
class Contrast:
    """Differences ``[K]`` of K margins from those of a reference, and their standard errors.

    Attributes
    ----------
    location : ndarray
        Difference of centres, means of the quantiles at 16%, 50% and 84%, over the reference's scale, half the width
        of its central 68%.
    spread : ndarray
        Logarithm of the ratio of the widths of the central 68%.
    tails : ndarray
        The same of the central 98%, less ``spread``.
    errors : mapping of str to ndarray
        Monte Carlo standard errors of the three.
    threshold : float
        Number of standard errors beyond which a difference counts.
    """

    location: Array
    spread: Array
    tails: Array
    errors: dict[str, Array]
    threshold: float

    def beyond(self, name: str) -> NDArray[np.bool_]:
        """Tell of each margin whether a difference is both material and beyond Monte Carlo error."""
        size = np.abs(getattr(self, name))
        found: NDArray[np.bool_] = (size > MATERIAL[name]) & (size > self.threshold * self.errors[name])
        return found


@dataclass(frozen=True)
class ModeLost:
    """A mode of the reference that other draws lack."""

    place: float
    share: float
    kept: float


def contrast(draws: Array, reference: Array, *, average: bool = False, num_margins: int | None = None) -> Contrast:
    """Compare margins.

    Standard errors are those of a jackknife over blocks of consecutive draws, so that they include autocorrelation up to the
    length of a block and disagreement between chains. A difference counts from a quantile of Student's t on, at a level that
    is shared by all margins.

    Parameters
    ----------
    draws, reference : ndarray [C, S, K]
        At least four draws a chain.
    average : bool
        Whether an entry is added for the averages of the K differences, which are tested as one more margin.
    num_margins : int, optional
        Margins that share the level, where others are compared beside these. Default: these.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> found = contrast(0.5 * rng.normal(size=(4, 500, 1)), rng.normal(size=(4, 500, 1)))
    >>> found.beyond("spread").tolist(), found.beyond("location").tolist()
    ([True], [False])
    """
    whole, base = _quantiles(_flat(draws)), _quantiles(_flat(reference))
    scale = (base[3] - base[1]) / 2
    found = _differences(whole, base, scale, average)
    errors: dict[str, Array] = {name: np.zeros(len(value)) for name, value in found.items()}
    fewest = NUM_BLOCKS
    for changed, fixed, is_reference in ((draws, base, False), (reference, whole, True)):
        chains = np.arange(changed.shape[0] * changed.shape[1]).reshape(changed.shape[:2])
        blocks = blocks_of_draws([*chains], NUM_BLOCKS)
        left = np.stack([_quantiles(np.delete(_flat(changed), block, axis=0)) for block in blocks])
        fewest = min(fewest, len(left))
        pairs = [(fixed, one) if is_reference else (one, fixed) for one in left]
        replicas = [_differences(one, other, scale, average) for one, other in pairs]
        for name in errors:
            values = np.stack([each[name] for each in replicas])
            errors[name] = errors[name] + (len(values) - 1) * values.var(0)
    level = FALSE_ALARMS / (2 * len(found) * (num_margins or draws.shape[-1] + average))
    threshold = float(t.isf(level, fewest - 1))
    return Contrast(**found, errors={name: np.sqrt(value) for name, value in errors.items()}, threshold=threshold)


def lost_mode(draws: Array, reference: Array) -> ModeLost | None:
    """Return the largest mode of a margin that draws lack, None if they have all.

    Parameters
    ----------
    draws, reference : ndarray [S]

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> both = np.concatenate([rng.normal(-3, 1, 700), rng.normal(3, 1, 300)])
    >>> round(lost_mode(both[:700], both).share, 1), lost_mode(both, both) is None
    (0.3, True)
    """
    lost = []
    for low, high in _modes(reference):
        share, kept = (float(((low <= values) & (values < high)).mean()) for values in (reference, draws))
        if kept < SHARE_KEPT * share:
            inside = reference[(low <= reference) & (reference < high)]
            lost.append(ModeLost(float(np.median(inside)), share, kept))
    return max(lost, key=lambda each: each.share, default=None)


def _modes(values: Array) -> list[tuple[float, float]]:
    """Return the intervals that hold the modes of draws ``[S]``; none if there is only one."""
    low, high = np.quantile(values, [0.01, 0.99])
    inside = values[(low <= values) & (values <= high)]
    if not high > low or np.unique(inside).size < 10:
        return []
    grid = np.linspace(low, high, GRID)
    density = gaussian_kde(inside[:: max(1, len(inside) // 2000)], "silverman")(grid)
    cuts = [-np.inf]
    left = 0
    while left < GRID - 1:  # go on to the deepest point that is a valley between two peaks
        valleys = [
            place
            for place in range(left + 1, GRID - 1)
            if density[place] <= density[place - 1]
            and density[place] < density[place + 1]
            and density[place] < VALLEY * min(density[left:place].max(), density[place:].max())
        ]
        if not valleys:
            break
        place = min(valleys, key=lambda each: density[each] / min(density[left:each].max(), density[each:].max()))
        cuts.append(float(grid[place]))
        left = place
    bounds = list(zip(cuts, [*cuts[1:], np.inf], strict=True))
    shares = [((a <= values) & (values < b)).mean() for a, b in bounds]
    return bounds if len(bounds) > 1 and min(shares) >= SMALLEST_MODE else []


def _differences(values: Array, base: Array, scale: Array, average: bool) -> dict[str, Array]:
    with np.errstate(divide="ignore", invalid="ignore"):
        spread, far = (
            np.log(np.clip((values[high] - values[low]) / (base[high] - base[low]), 1 / LARGEST_RATIO, LARGEST_RATIO))
            for low, high in ((1, 3), (0, 4))
        )
        found = {"location": (values[1:4].mean(0) - base[1:4].mean(0)) / scale, "spread": spread, "tails": far - spread}
    finite = {name: np.where(np.isfinite(value), value, 0.0) for name, value in found.items()}
    return {name: np.append(value, value.mean()) if average else value for name, value in finite.items()}


def _quantiles(values: Array) -> Array:
    found: Array = np.quantile(values, LEVELS, axis=0)
    return found


def _flat(draws: Array) -> Array:
    return draws.reshape(-1, draws.shape[-1])
