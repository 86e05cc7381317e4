"""Measurements behind small tables on the pages of methods: how near flows come to their targets, and widths of SWAG.

Run: python -m benchmarks.method_tables flow|swag
"""

import sys
import warnings
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
from scipy.special import gammaln

import bnnzoo as bz
from benchmarks.pairs import write
from bnnzoo.testing import Target, banana, linear_gaussian, skewed

NUM_DRAWS = 4000
BATCHES, RATES = (1, 2, 5, 10), (None, 0.001, 0.002, 0.004, 0.01)

type Row = dict[str, Any]


def flow() -> Row:
    """Return bounds, effective draws by importance weights and Pareto k of two families on two targets, for three seeds."""
    found: Row = {}
    for target, method, seed in product((banana(), skewed()), (bz.FullRankVI(), bz.FlowVI()), range(3)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", bz.FitWarning)
            posterior = bz.fit(target.model, method, *target.data, seed=seed, progress=False)
        tree = bz.to_datatree(posterior, num_draws=NUM_DRAWS, seed=seed)
        ratios = (tree["sample_stats"]["lp"] - tree["sample_stats"]["log_q"]).to_numpy().ravel()
        weights = np.exp(ratios - ratios.max())
        row = {
            "gap": log_evidence(target) - float(ratios.mean()),
            "effective_draws": float(weights.sum() ** 2 / (weights**2).sum()),
            "pareto_k": float(bz.diagnostics.psis(tree).pareto_k),
            "sds": {str(site): float(tree["posterior"][site].std()) for site in tree["posterior"].data_vars},
        }
        found.setdefault(f"{target.name}, {type(method).__name__}", []).append(row)
    return found


def log_evidence(target: Target) -> float:
    """Return that of the banana, whose density is normalised, or of a Poisson rate with a Gamma(1.5, 0.5) prior."""
    if not target.data:
        return 0.0
    y = target.data[0].numpy()
    shape, rate = 1.5 + y.sum(), 0.5 + len(y)
    return float(1.5 * np.log(0.5) - gammaln(1.5) + gammaln(shape) - shape * np.log(rate) - gammaln(y + 1).sum())


def swag() -> Row:
    """Return SWAG's standard deviations over the exact ones, by batch size and learning rate, one for each coefficient."""
    target, found = linear_gaussian(), {}
    exact = target.sd["w"].numpy()
    for size, rate in product(BATCHES, RATES):
        method = bz.SWAG(8000, batch_size=size, learning_rate=rate, every=7)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", bz.FitWarning)  # narrow ones are what is shown
            posterior = bz.fit(target.model, method, *target.data, progress=False)
        ratios = posterior.draws(NUM_DRAWS).reshape(-1, len(exact)).std(0).numpy() / exact
        found[f"batch_size {size}, rate {rate or 'default'}"] = {"least": ratios.min(), "largest": ratios.max()}
    return {name: {key: float(value) for key, value in row.items()} for name, row in found.items()}


TABLES: dict[str, Callable[[], Row]] = {"flow": flow, "swag": swag}


if __name__ == "__main__":
    for table in sys.argv[1:]:
        results = TABLES[table]()
        for name, row in results.items():
            print(name, row, flush=True)
        write(f"methods_{table}", {"results": results})
