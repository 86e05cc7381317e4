"""Two ways to tell that a prior contradicts the data: a calibrated z, which ``bnnzoo.check`` goes by, and power scaling.

The ten models of :mod:`benchmarks.misspecified` with data from themselves, and the one whose prior is of other units. Counted are
data sets in which any latent value without a hierarchy is called a conflict: by z, at the level of the check, and by the rule of
Kallioinen et al. (2024), sensitivities to prior and likelihood both above 0.05.

    python -m benchmarks.prior_conflict [data sets of each] [first seed]
"""

import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import bnnzoo as bz
from benchmarks.misspecified import RIGHT, WRONG, Case
from benchmarks.pairs import write
from bnnzoo.checking.check import PRIOR_LEVEL
from bnnzoo.checking.prior_conflict import conflicts, power_scaling
from bnnzoo.trees.multiple_tests import holm

OTHER_UNITS = "prior of other units"


def called(case: Case, seed: int) -> tuple[bool, bool]:
    """Tell of one data set whether there is a conflict by z, and by power scaling."""
    data = [
        torch.from_numpy(each).double() if each.dtype.kind == "f" else torch.from_numpy(each)
        for each in case.columns.values()
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        posterior = bz.fit(case.model, bz.NUTS(), *data, seed=seed, progress=False)
        tree = bz.posterior_predictive(posterior, *data, weights=False)
    found = list(conflicts(posterior.density, posterior.draws().flatten(0, 1), seed))
    scaled = power_scaling(tree, [each.name for each in found])
    assert len(scaled) == len(found)
    by_z = holm([each.p_value for each in found], PRIOR_LEVEL)
    return bool(np.any(by_z)), any(each.is_conflict for each in scaled.values())


def measured(
    name: str, make: Callable[[np.random.Generator], Case], place: int, number: int, first: int
) -> dict[str, Any]:
    """Return how many of ``number`` data sets each rule calls a conflict."""
    answers = [called(make(np.random.default_rng([seed, place])), seed) for seed in range(first, first + number)]
    by_z, by_power = (sum(each) for each in zip(*answers, strict=True))
    print(f"{name:24} of {number}: {by_z:3} by z, {by_power:3} by power scaling", flush=True)
    return {"data_sets": number, "by_z": by_z, "by_power_scaling": by_power}


def main() -> None:
    number, first = (int(given) for given in (*sys.argv[1:], *("10", "10000")[len(sys.argv) - 1 :]))
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    right = {name: measured(name, make, place, number, first) for place, (name, make) in enumerate(RIGHT.items())}
    wrong = measured(OTHER_UNITS, WRONG[OTHER_UNITS], list(WRONG).index(OTHER_UNITS), number, first)
    write("prior_conflict", {"first_seed": first, "right": right, "wrong": wrong})


if __name__ == "__main__":
    main()
