"""Data of the eight models, the same for both languages, in double precision; needs NumPy alone."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.small_models import data as regression

__all__ = ["DATA"]

type Array = NDArray[Any]


def schools() -> tuple[Array, ...]:
    """Return effects of coaching in eight schools, and their standard errors (Rubin, 1981)."""
    return np.array([28.0, 8, -3, 7, -1, 1, 18, 12]), np.array([15.0, 10, 16, 11, 9, 11, 10, 18])


def counties(homes: int = 919, counties: int = 85) -> tuple[Array, ...]:
    """Return logarithms of radon, floors and counties, simulated: sizes of counties differ as those of Minnesota do."""
    rng = np.random.default_rng(0)
    county = rng.choice(counties, homes, p=rng.dirichlet(np.full(counties, 0.7)))
    floor = (rng.random(homes) < 0.17).astype(float)
    levels = 1.5 + 0.33 * rng.standard_normal(counties)
    return levels[county] - 0.7 * floor + 0.75 * rng.standard_normal(homes), floor, county


def classes(rows: int = 500, inputs: int = 20) -> tuple[Array, ...]:
    """Return correlated inputs, and outcomes of a logistic regression."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((rows, inputs)) @ (np.eye(inputs) + rng.standard_normal((inputs, inputs)) / inputs**0.5)
    logits = x @ (0.5 * rng.standard_normal(inputs)) - 0.5
    return x, (rng.random(rows) < 1 / (1 + np.exp(-logits))).astype(float)


def counts(groups: int = 40, rows: int = 8, inputs: int = 3) -> tuple[Array, ...]:
    """Return inputs, groups and counts with intercepts that vary between groups."""
    rng = np.random.default_rng(2)
    group = np.repeat(np.arange(groups), rows)
    x = rng.standard_normal((groups * rows, inputs))
    levels = 1.0 + 0.6 * rng.standard_normal(groups)
    return x, group, rng.poisson(np.exp(levels[group] + x @ np.array([0.4, -0.3, 0.0]))).astype(float)


def gaussian(size: int = 100, correlation: float = 0.9) -> tuple[Array, ...]:
    """Return the Cholesky factor of a covariance: of an autoregression, with scales between 0.1 and 10."""
    steps = np.abs(np.subtract.outer(np.arange(size), np.arange(size)))
    scales = np.geomspace(0.1, 10, size)
    return (np.linalg.cholesky(correlation**steps * np.outer(scales, scales)),)


def returns(steps: int = 200) -> tuple[Array, ...]:
    """Return a series whose logarithm of volatility is a random walk."""
    rng = np.random.default_rng(3)
    volatility = -4.0 + 0.15 * np.cumsum(rng.standard_normal(steps))
    return (100 * np.exp(volatility) * rng.standard_t(10, steps),)


def doubles(rows: int, inputs: int) -> tuple[Array, ...]:
    x, y = regression(rows, inputs)
    return x.astype(float), y.astype(float)


DATA: dict[str, Callable[[], tuple[Array, ...]]] = {
    "linear 100x5": lambda: doubles(100, 5),
    "linear 1000x30": lambda: doubles(1000, 30),
    "schools": schools,
    "counties": counties,
    "logistic": classes,
    "Poisson GLMM": counts,
    "Gaussian": gaussian,
    "volatility": returns,
}
"""The eight models, fixed before any result was seen."""
