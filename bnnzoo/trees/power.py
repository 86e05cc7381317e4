"""The power of a comparison: which difference of two methods would show, and how many rows or splits tell them apart."""

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtr, stdtrit

__all__ = ["PairedComparison", "corrected_error", "detectable_difference"]

CLEAR = 2.0  # standard errors from which on a difference is called clear, where they are known well
MOST = 10**9  # rows, which nobody has
MOST_SPLITS = 10**4
LEVEL, POWER = 0.05, 0.8
QUANTILE_OF_POWER = 0.842  # of the normal distribution


def detectable_difference(standard_error: float, num_entries: float = math.inf) -> float:
    """Return the smallest true difference that is found to be clear in 80% of comparisons like this one.

    Parameters
    ----------
    standard_error : float
        Of the difference of two methods on the same rows, folds or splits.
    num_entries : float
        Folds or splits by which the standard error is known. Default: as for rows, of which there are many.

    References
    ----------
    Card, Henderson, Khandelwal, Jia, Mahowald and Jurafsky (2020), With little power comes great responsibility, EMNLP.

    Examples
    --------
    >>> round(detectable_difference(0.02), 3)
    0.057
    >>> round(detectable_difference(0.02, 5), 3)  # splits
    0.074
    """
    if not num_entries > 1:
        return math.nan
    quantile = QUANTILE_OF_POWER if math.isinf(num_entries) else float(stdtrit(num_entries - 1, POWER))
    return (_clear_from(num_entries) + quantile) * standard_error


def _clear_from(num_entries: float) -> float:
    return CLEAR if math.isinf(num_entries) else float(stdtrit(num_entries - 1, 1 - LEVEL / 2))


def corrected_error(values: ArrayLike, overlap: float) -> float:
    r"""Return the standard error of the mean over splits of the same rows.

    .. math:: \sqrt{\left(\frac{1}{J} + \frac{n_{test}}{n_{train}}\right) s^2}

    with the variance :math:`s^2` over J splits. The training parts overlap, so that splits are not independent; the usual
    standard error :math:`s / \sqrt{J}` is too small.

    Parameters
    ----------
    values : array_like [J]
    overlap : float
        :math:`n_{test} / n_{train}`, such as 1/9 where a tenth is held out.

    References
    ----------
    Nadeau and Bengio (2003), Inference for the generalization error, Machine Learning 52.

    Examples
    --------
    >>> round(corrected_error([1.0, 2.0, 3.0], 20 / 80), 4)
    0.7638
    """
    found = np.asarray(values, dtype=float)
    return math.nan if len(found) < 2 else float(np.sqrt((1 / len(found) + overlap) * found.var(ddof=1)))


@dataclass(frozen=True)
class PairedComparison:
    """The mean difference of two methods' scores, the larger the better, on the same rows, folds or splits.

    Attributes
    ----------
    difference, standard_error : float
        NaN where there is none.
    num_rows : int
        Rows of which it is the mean, over all folds; 0 if unknown.
    num_entries : int, optional
        Folds or splits by which the standard error is known; None: it is that of rows.
    overlap : float, optional
        Test rows over training rows of random splits, of which there may be more; None: for rows, and for folds.
    """

    difference: float
    standard_error: float
    num_rows: int
    num_entries: int | None = None
    overlap: float | None = None

    @classmethod
    def of_rows(cls, gaps: ArrayLike, *, lags: int = 0) -> "PairedComparison":
        """Return the comparison on rows.

        Parameters
        ----------
        gaps : array_like [N]
            Differences by row.
        lags : int
            Of autocovariances that count, for forecasts of several steps: one less than the horizon (Diebold and Mariano 1995).
        """
        found = np.asarray(gaps, dtype=float).ravel()
        centred, number = found - found.mean(), len(found)
        if number < 2:
            return cls(float(found.mean()), math.nan, number)
        shared = sum(float(centred[k:] @ centred[: number - k]) for k in range(1, min(lags, number - 1) + 1))
        square = float(centred @ centred)
        error = math.sqrt(max(square, square + 2 * shared) / (number - 1) / number)
        return cls(float(found.mean()), error, number)

    @classmethod
    def of_folds(cls, gaps: ArrayLike, folds: ArrayLike) -> "PairedComparison":
        """Return the comparison on the folds of a cross-validation, whose training parts overlap.

        Parameters
        ----------
        gaps : array_like [N]
            Differences by row.
        folds : array_like [N]
            Number or name of each row's fold.
        """
        found = np.asarray(gaps, dtype=float).ravel()
        _, codes = np.unique(np.asarray(folds), return_inverse=True)
        means = np.bincount(codes, found) / np.bincount(codes)
        error = corrected_error(means, 1 / max(1, len(means) - 1))
        return cls(float(found.mean()), error, len(found), len(means))

    @classmethod
    def of_splits(cls, gaps: ArrayLike, overlap: float) -> "PairedComparison":
        """Return the comparison on random splits of the same rows.

        Parameters
        ----------
        gaps : array_like [J]
            Differences of the means over the test part of each split.
        overlap : float
            See :func:`corrected_error`.
        """
        found = np.asarray(gaps, dtype=float)
        return cls(float(found.mean()), corrected_error(found, overlap), 0, len(found), overlap)

    @property
    def clear_from(self) -> float:
        """The size from which on a difference is called clear: two standard errors, or what a t test at the 5% level says."""
        return _clear_from(self.num_entries or math.inf) * self.standard_error if self._is_known else math.nan

    @property
    def detectable(self) -> float:
        """The smallest true difference that is found to be clear in 80% of comparisons like this one."""
        return detectable_difference(self.standard_error, self.num_entries or math.inf)

    @property
    def probability_worse(self) -> float:
        """The probability that the true difference is negative; NaN without a standard error.

        Of a normal distribution, for folds and splits of a t distribution. That is too sure of itself where observations are
        fewer than 100, or models predict much alike (Sivula, Magnusson, Matamoros and Vehtari 2025, Bayesian Analysis).
        """
        if not self.standard_error > 0:
            return math.nan
        standardised = -self.difference / self.standard_error
        if self.num_entries is None:
            return NormalDist().cdf(standardised)
        return float(stdtr(self.num_entries - 1, standardised))

    @property
    def num_needed(self) -> float:
        """How many rows, or splits, it takes to find a difference of this size clear in 80% of comparisons; infinite for none.

        More folds of the same rows do not help: for folds it counts rows. Nor does a large number of splits, since all are of the
        same rows: it is infinite where no number of splits suffices.
        """
        if not self._is_known:
            return math.nan
        if self.difference == 0:
            return math.inf
        if self.overlap is None:
            needed = self.num_rows * (self.detectable / self.difference) ** 2
            return math.inf if needed > MOST else math.ceil(needed)
        spread = self.standard_error / math.sqrt(1 / (self.num_entries or 1) + self.overlap)
        return _splits_needed(abs(self.difference), spread, self.overlap)

    @property
    def about_needed(self) -> str:
        """`num_needed` to two digits; empty where no number suffices, or none is known."""
        return f"{float(f'{self.num_needed:.2g}'):,.0f}" if math.isfinite(self.num_needed) else ""

    def is_clear(self, least: float = 0.0) -> bool:
        """Tell whether the difference is clear, and no smaller than ``least``."""
        return self._is_known and abs(self.difference) >= max(self.clear_from, least)

    def verdict(self, least: float = 0.0) -> str:
        """Return which of the two is better, in a word; ``least`` is that of :meth:`is_clear`."""
        return "no clear difference" if not self.is_clear(least) else "better" if self.difference > 0 else "worse"

    def weighed(self, least: float = 0.0) -> str:
        """Return the difference with its standard error and :meth:`in_words`."""
        power = self.in_words(least)
        return f"{self.difference:+.3f}, standard error {self.standard_error:.3f}{power and f'; {power}'}"

    def in_words(self, least: float = 0.0) -> str:
        """Say which difference would show and, where this one does not, how many rows or splits it takes; empty if not known.

        Parameters
        ----------
        least : float
            Size below which no difference is called clear, however many observations there are.

        Examples
        --------
        >>> PairedComparison(0.1, 0.02, 100).in_words()
        '100 observations show differences from 0.057 on'
        >>> PairedComparison(0.02, 0.02, 100).in_words()
        '100 observations show differences from 0.057 on, and one of this size takes about 810'
        >>> PairedComparison(0.02, 0.02, 0, 10, 1 / 9).in_words()
        '10 splits show differences from 0.063 on, and one of this size no number of splits of these rows'
        """
        if not self._is_known:
            return ""
        entries = "observations" if self.num_entries is None else "folds" if self.overlap is None else "splits"
        number = self.num_entries or self.num_rows
        said = f"{number} {entries} show differences from {max(least, self.detectable):.2g} on"
        if abs(self.difference) >= self.clear_from or abs(self.difference) < least:
            return said
        if not self.about_needed:
            never = entries == "splits" and self.difference != 0
            return f"{said}, and one of this size no number of splits of these rows" if never else said
        unit = " observations" if entries == "folds" else ""
        return f"{said}, and one of this size takes about {self.about_needed}{unit}"

    @property
    def _is_known(self) -> bool:
        return not math.isnan(self.standard_error) and not math.isnan(self.difference)


def _splits_needed(difference: float, spread: float, overlap: float) -> float:
    """Return the smallest number of splits that find a difference clear; infinite if 10,000 do not."""

    def suffice(number: int) -> bool:
        return detectable_difference(spread * math.sqrt(1 / number + overlap), number) <= difference

    if not suffice(MOST_SPLITS):
        return math.inf
    low, high = 1, MOST_SPLITS  # the first does not suffice
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if suffice(middle) else (middle, high)
    return high
