"""Questions to the scores of observations, each with a p-value: what they depend on, and how they are distributed."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import eval_legendre
from scipy.stats import binom, chi2, norm

from bnnzoo.checking.normal_scores import Scores
from bnnzoo.checking.variables import Variables, normal_ranks

__all__ = ["Question", "questions"]

type Array = NDArray[np.floating[Any]]
type Codes = NDArray[np.integer[Any]]

DEGREE, DEGREE_OF_SPREAD = 3, 2
"""Of the polynomials of a variable with which scores are compared."""

MAX_CROSSED, MAX_SLOPES = 4, 2
"""Numeric variables whose products are looked at, and groupings whose slopes are."""

TAIL = 0.005
"""Probability beyond which an observation is in a tail, on either side."""

LAGS = 3
"""Rows up to which neighbours in the order of the data are compared."""

ENOUGH_VALUES = 20
"""Different values of a variable along which neighbours are compared."""


@dataclass(frozen=True)
class Question:
    """One question to the scores of a site.

    Attributes
    ----------
    kind : str
        What is asked: "level", "dispersion", "shape", "outliers", "smallest", "largest", "zeros", "curve", "spread",
        "neighbours", "groups", "spread of groups", "product", "slopes" or "order".
    variables : tuple of str
        Which variables it is about.
    p_value : float
        Averaged over draws of the posterior.
    size : float
        An effect: mean or correlation of normal scores, a ratio for zeros, a count for outliers.
    shape : str
        What a dependence looks like, such as "rise", "fall" or "curve".
    """

    kind: str
    variables: tuple[str, ...]
    p_value: float
    size: float
    shape: str = ""

    @property
    def about(self) -> str:
        """The variables in one text; empty if it is about all rows alike."""
        return ", ".join(self.variables)


def questions(scores: Scores, variables: Variables) -> Iterator[Question]:
    """Yield what is asked of one component of a site.

    Each is a function of independent standard normal numbers if the model is right, whose distribution is known: sums of squares
    of orthonormal contrasts are chi-squared. A p-value is the average over draws of the posterior, as in posterior predictive
    checks of realised discrepancies (Gelman, Meng and Stern 1996).
    """
    location, spread = scores.location, scores.spread
    size = location.shape[1]
    yield _of_contrast("level", (), location, np.full((1, size), size**-0.5))
    if not scores.is_binary:
        yield _of_contrast("dispersion", (), spread, np.full((1, size), size**-0.5))
        yield _of_shape(scores.ranks)
        count_outside = (np.abs(location) > norm.isf(TAIL)).sum(1)
        p_values = np.minimum(1.0, 2 * np.minimum(binom.sf(count_outside - 1, size, 2 * TAIL), scores.largest))
        yield Question("outliers", (), float(p_values.mean()), float(count_outside.mean()))
        for kind, above in zip(("smallest", "largest"), scores.ends, strict=True):
            p_values = 2 * np.minimum(above, 1 - above)
            yield Question(kind, (), float(p_values.mean()), float(1 - 2 * above.mean()))
    if scores.is_discrete and not scores.is_binary and scores.zeros.min() > 0:
        count = float((scores.observed == 0).sum())
        z = (count - scores.zeros) / np.maximum(scores.zeros_sd, 1e-12)
        yield Question(
            "zeros", (), float((2 * norm.sf(np.abs(z))).mean()), count / max(float(scores.zeros.mean()), 1e-12)
        )
    if size > ENOUGH_VALUES:
        yield _of_neighbours("order", (), location, LAGS)
    numbers = {name: each for name, each in variables.numbers.items() if np.ptp(each) > 0}
    for name, values in {"fitted": scores.fitted, **numbers}.items():
        yield from _along(name, values, scores)
    for first, second in combinations(list(numbers)[:MAX_CROSSED], 2):
        rows = _product(numbers[first], numbers[second])
        if len(rows):
            yield _of_contrast("product", (first, second), location, rows)
    for name, codes in variables.groupings.items():
        yield _of_contrast("groups", (name,), location, _indicators(codes))
        if not scores.is_binary:
            yield _of_contrast("spread of groups", (name,), spread, _indicators(codes))
    for name, codes in list(variables.groupings.items())[:MAX_SLOPES]:
        for other, values in list(numbers.items())[:MAX_CROSSED]:
            rows = _slopes(codes, values)
            if len(rows) > 1 and other != name:
                yield _of_contrast("slopes", (other, name), location, rows)


def _along(name: str, values: Array, scores: Scores) -> Iterator[Question]:
    if np.ptp(values) == 0:
        return
    # orthonormal polynomials [3, N] of the variable's normal scores, fewer where it has few values
    normal = normal_ranks(values)
    degree = min(DEGREE, len(np.unique(values)) - 1)
    # an orthonormal basis, in order, of what columns [N, K] add to a constant, without those that add nothing
    q, r = np.linalg.qr(np.stack([normal**k for k in range(degree + 1)], 1))
    signed = q * np.sign(np.where(np.diag(r) == 0, 1.0, np.diag(r)))
    adds = np.abs(np.diag(r)) > 1e-8 * np.abs(np.diag(r)).max()
    adds[0] = False
    basis = signed[:, adds].T if adds.any() else signed[:, 1:2].T
    yield _of_contrast("curve", (name,), scores.location, basis)
    if not scores.is_binary:
        yield _of_contrast("spread", (name,), scores.spread, basis[:DEGREE_OF_SPREAD])
    if len(np.unique(values)) > ENOUGH_VALUES:
        yield _of_neighbours("neighbours", (name,), scores.location[:, np.argsort(values, kind="stable")], 1)


def _of_contrast(kind: str, variables: tuple[str, ...], scores: Array, rows: Array) -> Question:
    """Ask for dependence on orthonormal contrasts ``rows[K, N]``."""
    found = scores @ rows.T
    p_values = chi2.sf((found**2).sum(1), len(rows))
    mean = found.mean(0) / np.sqrt(scores.shape[1])
    size = float(np.sqrt((mean**2).sum())) if len(rows) > 1 else float(mean[0])
    first, rest = mean[0], np.abs(mean[1:]).max(initial=0.0)
    shape = "curve" if abs(first) < rest else "rise" if first > 0 else "fall"
    return Question(kind, variables, float(p_values.mean()), size, shape)


def _of_shape(ranks: Array) -> Question:
    """Ask for the first four moments of ranks, as Neyman's smooth test does."""
    size = ranks.shape[1]
    found = np.stack(
        [np.sqrt(2 * k + 1) * eval_legendre(k, 2 * ranks - 1).sum(1) / np.sqrt(size) for k in (1, 2, 3, 4)], 1
    )
    p_values = chi2.sf((found**2).sum(1), found.shape[1])
    mean = found.mean(0) / np.sqrt(size)
    return Question(
        "shape",
        (),
        float(p_values.mean()),
        float(np.sqrt((mean**2).sum())),
        "skew" if abs(mean[2]) > abs(mean[3]) else "tails",
    )


def _of_neighbours(kind: str, variables: tuple[str, ...], ordered: Array, lags: int) -> Question:
    """Ask for products of neighbours up to some lag, whose sums over N - lag pairs have that variance."""
    pairs = [ordered[:, lag:] * ordered[:, :-lag] for lag in range(1, lags + 1)]
    found = np.stack([each.sum(1) / np.sqrt(each.shape[1]) for each in pairs], 1)
    p_values = chi2.sf((found**2).sum(1), lags)
    correlations = np.array([each.mean() for each in pairs])
    size = correlations[np.abs(correlations).argmax()]
    return Question(kind, variables, float(p_values.mean()), float(size))


def _product(first: Array, second: Array) -> Array:
    """Return what the product adds to polynomials of both variables, ``[1, N]`` or ``[0, N]``."""
    one, other = normal_ranks(first), normal_ranks(second)
    alone = np.stack([np.ones_like(one), one, other, one**2, other**2], 1)
    both = one * other
    rest = both - alone @ np.linalg.lstsq(alone, both)[0]
    length = float(np.linalg.norm(rest))
    return rest[None] / length if length > 1e-3 * np.linalg.norm(both) else np.zeros((0, len(both)))


def _indicators(codes: Codes) -> Array:
    rows = (codes == np.arange(codes.max() + 1)[:, None]).astype(float)
    return rows / np.sqrt(rows.sum(1, keepdims=True))


def _slopes(codes: Codes, values: Array) -> Array:
    """Return a contrast for each level in which the variable varies, from the level's own mean."""
    scores = normal_ranks(values)
    rows = []
    for level in range(int(codes.max()) + 1):
        inside = codes == level
        away = np.where(inside, scores - scores[inside].mean(), 0.0)
        if (length := float(np.sqrt((away**2).sum()))) > 1e-8:
            rows.append(away / length)
    return np.array(rows)
