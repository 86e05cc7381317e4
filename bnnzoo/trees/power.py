"""The power of a comparison: which difference of two methods would show, and how many rows it takes to tell them apart."""

import math
from statistics import NormalDist

__all__ = ["detectable_difference", "power_in_words", "probability_worse", "rows_to_tell_apart"]

CLEAR = 2.0  # standard errors from which on a difference is called clear
MOST_ROWS = 10**9  # rows, which nobody has
QUANTILE_OF_POWER = 0.842  # quantile of the normal distribution for a power of 80%


def detectable_difference(standard_error: float) -> float:
    """Return the smallest true difference that is found to be clear in 80% of comparisons like this one.

    Parameters
    ----------
    standard_error : float
        Of the difference of two methods on the same rows.

    References
    ----------
    Card, Henderson, Khandelwal, Jia, Mahowald and Jurafsky (2020), With little power comes great responsibility, EMNLP.

    Examples
    --------
    >>> round(detectable_difference(0.02), 3)
    0.057
    """
    return (CLEAR + QUANTILE_OF_POWER) * standard_error


def probability_worse(difference: float, standard_error: float) -> float:
    """Return the probability that a model is worse than another, given the difference of their scores, by a normal approximation.

    It is too sure of itself where observations are fewer than 100, or models predict much alike.

    Parameters
    ----------
    difference : float
        Score of the model less that of the other, the larger the better.
    standard_error : float
        Of the difference. NaN is returned for none.

    References
    ----------
    Sivula, Magnusson, Matamoros and Vehtari (2025), Uncertainty in Bayesian leave-one-out cross-validation based model
    comparison, Bayesian Analysis.

    Examples
    --------
    >>> round(probability_worse(-3.0, 2.0), 2)
    0.93
    """
    return NormalDist().cdf(-difference / standard_error) if standard_error > 0 else math.nan


def rows_to_tell_apart(difference: float, standard_error: float, num_rows: int) -> float:
    """Return how many rows it takes to find a difference of this size clear in 80% of comparisons; infinite for none.

    Parameters
    ----------
    difference, standard_error : float
        Of means over ``num_rows`` rows, of the same two methods.
    num_rows : int

    Examples
    --------
    >>> round(rows_to_tell_apart(0.02, 0.02, 100))
    808
    """
    if difference == 0:
        return math.inf
    return math.ceil(num_rows * (detectable_difference(standard_error) / difference) ** 2)


def power_in_words(difference: float, standard_error: float, num_rows: int, least: float = 0.0) -> str:
    """Say which difference would show on so many observations and, where this one does not, how many it takes.

    Parameters
    ----------
    difference, standard_error : float
    num_rows : int
    least : float
        Size below which no difference is called clear, however many observations there are.

    Examples
    --------
    >>> power_in_words(0.1, 0.02, 100)
    '100 observations show differences from 0.057 on'
    >>> power_in_words(0.02, 0.02, 100)
    '100 observations show differences from 0.057 on, and one of this size takes about 810'
    """
    said = f"{num_rows} observations show differences from {max(least, detectable_difference(standard_error)):.2g} on"
    needed = rows_to_tell_apart(difference, standard_error, num_rows)
    if abs(difference) >= CLEAR * standard_error or abs(difference) < least or not needed < MOST_ROWS:
        return said
    return f"{said}, and one of this size takes about {float(f'{needed:.2g}'):,.0f}"
