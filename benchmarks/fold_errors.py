"""Standard errors of differences in k-fold cross-validation, against the standard deviation over data sets.

Two linear regressions by least squares, with plug-in Gaussian predictive densities: one on the first input, the other on further
inputs as well. Data sets are simulated anew, so the standard deviation is that of the whole comparison, training data included.

python -m benchmarks.fold_errors [data sets]
"""

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.pairs import write
from bnnzoo.trees.power import PairedComparison

SETUPS = ((40, 5, 0.0, 10), (40, 5, 0.3, 10), (40, 5, 0.0, 5), (100, 10, 0.2, 10), (100, 10, 0.0, 5), (200, 1, 0.1, 10))
"""Rows, further inputs, coefficient of the first of these (all others have none), folds."""

type Array = NDArray[np.floating[Any]]


def log_density(x: Array, y: Array, train: NDArray[np.bool_]) -> Array:
    """Return the log density of the rows that are not trained on."""
    slopes = np.linalg.lstsq(x[train], y[train], rcond=None)[0]
    variance = ((y[train] - x[train] @ slopes) ** 2).sum() / (train.sum() - x.shape[1])
    found: Array = -0.5 * np.log(2 * np.pi * variance) - (y[~train] - x[~train] @ slopes) ** 2 / (2 * variance)
    return found


def compared(
    rng: np.random.Generator, num_rows: int, more: int, slope: float, num_folds: int
) -> tuple[PairedComparison, PairedComparison]:
    """Return the comparison by rows, and by folds, on one data set."""
    x = rng.normal(size=(num_rows, 1 + more))
    y = x[:, 0] + slope * x[:, 1] + rng.normal(size=num_rows)
    folds = rng.permutation(np.arange(num_rows) % num_folds)
    gaps = np.empty(num_rows)
    for fold in range(num_folds):
        kept = folds != fold
        gaps[~kept] = log_density(x, y, kept) - log_density(x[:, :1], y, kept)
    return PairedComparison.of_rows(gaps), PairedComparison.of_folds(gaps, folds)


def main() -> None:
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 1500
    rng, table = np.random.default_rng(0), {}
    for setup in SETUPS:
        pairs = [compared(rng, *setup) for _ in range(number)]
        differences = np.array([rows.difference for rows, _ in pairs])
        off = abs(differences - differences.mean())
        found: dict[str, Any] = dict(zip(("rows", "further_inputs", "slope", "folds"), setup, strict=True))
        for name, each in zip(("of_rows", "of_folds"), zip(*pairs, strict=True), strict=True):
            errors, clear = (np.array([getattr(one, key) for one in each]) for key in ("standard_error", "clear_from"))
            ratio = float(np.sqrt((errors**2).mean()) / differences.std())
            found[name] = {"error_over_sd": ratio, "coverage": float((off <= clear).mean())}
        table[", ".join(map(str, setup))] = found
        print(found, flush=True)
    write("fold_errors", {"unit": "1", "data_sets": number, "setups": table})


if __name__ == "__main__":
    main()
