"""Measurements behind small tables on the pages of methods: flows, widths of SWAG, limits of distances, active learning.

Run: python -m benchmarks.method_tables flow|swag|limits|active
"""

import runpy
import sys
import warnings
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.special import gammaln

import bnnzoo as bz
from benchmarks.pairs import write
from bnnzoo.testing import Target, banana, linear_gaussian, skewed

NUM_DRAWS = 4000
BATCHES, RATES = (1, 2, 5, 10), (None, 0.001, 0.002, 0.004, 0.01)
COMPARISONS, ROWS = 200, 12
DISTANCES = ("mean_difference", "log_sd_ratio", "wasserstein")

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


def autoregressive(
    rng: np.random.Generator, x: NDArray[np.floating], chains: int, draws: int, rho: float
) -> xr.DataTree:
    """Return draws of f = x w with w ~ N(0, 1), whose chains are autoregressive."""
    noise = rng.normal(size=(draws, chains, x.shape[1]))
    weights = noise.copy()
    for t in range(1, draws):
        weights[t] = rho * weights[t - 1] + np.sqrt(1 - rho**2) * noise[t]
    mean = (("chain", "draw", "obs_id"), weights.transpose(1, 0, 2) @ x.T)
    return xr.DataTree.from_dict({"conditional": xr.Dataset({"mean": mean})})


def limits() -> Row:
    """Return how often equal posteriors lie below the limit and below twice the floor, and both over their 95% quantile."""
    found: Row = {}
    cases = product((1, 2, 4), ((400, 0.8), (44, 0.8), (400, 0.0)), (1, ROWS))
    for seed, (chains, (effective, rho), directions) in enumerate(cases):
        rng = np.random.default_rng(seed)
        draws = round(effective / chains * (1 + rho) / (1 - rho))
        pairs = []
        for _ in range(COMPARISONS):
            x = np.eye(ROWS) if directions == ROWS else rng.normal(size=(ROWS, 1))
            one, other = (autoregressive(rng, x, chains, draws, rho) for _ in range(2))
            pairs.append(bz.diagnostics.compare_posteriors({"one": one, "other": other}, reference="one"))
        for name in DISTANCES:
            distance, limit, floor = (
                np.array([float(pair[key].mean()) for pair in pairs])
                for key in (name, f"{name}_limit", f"{name}_floor")
            )
            needed = np.quantile(distance, 0.95)
            kind = "together" if directions == 1 else "independently"
            found[f"{kind}, {chains} chains, {effective} effective draws, rho {rho}, {name}"] = {
                "below_limit": float((distance <= limit).mean()),
                "below_twice_the_floor": float((distance <= 2 * floor).mean()),
                "limit_over_needed": float(limit.mean() / needed),
                "twice_the_floor_over_needed": float(2 * floor.mean() / needed),
            }
    return found


def active() -> Row:
    """Run the gallery's page, and return accuracies less those with random labels, by acquisition and number of labels."""
    page = Path(__file__).parents[1] / "examples" / "uncertainty" / "plot_active_learning.py"
    shown = runpy.run_path(str(page))
    found: Row = {}
    for name, accuracy in shown["results"].items():
        gains = (accuracy - shown["results"]["random"])[:, 1:]
        found[name] = {
            "labels": shown["labels"][1:].tolist(),
            "difference": gains.mean(0).tolist(),
            "standard_error": (gains.std(0) / len(gains) ** 0.5).tolist(),
            "runs_better": (gains > 0).sum(0).tolist(),
        }
    return found


TABLES: dict[str, Callable[[], Row]] = {"flow": flow, "swag": swag, "limits": limits, "active": active}


if __name__ == "__main__":
    for table in sys.argv[1:]:
        results = TABLES[table]()
        for name, row in results.items():
            print(name, row, flush=True)
        write(f"methods_{table}", {"results": results})
