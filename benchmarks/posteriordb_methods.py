"""Twenty posteriors of posteriordb by ten methods, as typed: errors against reference draws, and what each fit says of itself.

Run: python -m benchmarks.posteriordb_methods run|table [posterior ...]      (needs posteriordb's data below BNNZOO_DATA)

``run`` goes on where it ended. Fits are in single precision with seed 0, each with a limit of time; two samplers run in double
precision, too, and are counted by themselves.
"""

import json
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import arviz as az
import numpy as np
import torch
from numpy.typing import NDArray

import bnnzoo as bz
from benchmarks.pairs import write
from benchmarks.posteriordb import POSTERIORS, arguments_of, file_of, scalars
from benchmarks.strangers.runner import run, stored, work
from benchmarks.strangers.table import NOT_OF_THE_FIT, counted, failure, markdown
from bnnzoo.core.method import Method

FITS = Path(__file__).parent / "results" / "posteriordb_methods.jsonl"
METHODS: dict[str, Callable[[], Method]] = {
    "NUTS": bz.NUTS,
    "NUTS, diagonal": partial(bz.NUTS, mass_matrix="diagonal"),
    "NUTS, dense": partial(bz.NUTS, mass_matrix="dense"),
    "MAMS": bz.MAMS,
    "Tempered": lambda: bz.Tempered(bz.NUTS()),
    "Pathfinder": bz.Pathfinder,
    "Laplace": bz.Laplace,
    "MeanFieldVI": bz.MeanFieldVI,
    "FullRankVI": bz.FullRankVI,
    "FlowVI": bz.FlowVI,
}
DOUBLE: dict[str, Callable[[], Method]] = {"NUTS, double": bz.NUTS, "MAMS, double": bz.MAMS}
"""In double precision: where single precision fails the sampler, and where the sampler does."""
CHAINS = frozenset({"NUTS", "NUTS, diagonal", "NUTS, dense", "MAMS", "Tempered", *DOUBLE})
NUM_DRAWS = 20_000
"""Draws by which approximations are described."""
QUANTILES = {"q05": 0.05, "q25": 0.25, "q50": 0.5, "q75": 0.75, "q95": 0.95}
OFF, STRICT = (0.3, 1.33), (0.1, 1.07)
"""A fit is off if a mean is further away, in posterior sds, or an sd by a larger factor, beyond three Monte Carlo errors."""
FEWEST = 100
"""Chains with fewer effective draws of any scalar are off whatever their means."""
REFERENCE_DRAWS = 10_000
"""Nearly independent draws of posteriordb's references."""
WITHOUT_VARIANCE = frozenset({"one_comp_mm_elim_abs-one_comp_mm_elim_abs"})
"""Where a ridge of Cauchy priors leaves a scalar without a variance: medians and 90% intervals are held to the same limits."""


def fitted(name: str, method: str) -> dict[str, Any]:
    """Fit a posterior as a user types it, and return what came out and what was said."""
    textbook, found = POSTERIORS[name], {"model": name, "method": method}
    data = arguments_of(name)
    known = file_of(f"summary/{name}.summary.json")["params"]
    wall, cpu = time.perf_counter(), time.process_time()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            sampler, dtype = (METHODS | DOUBLE)[method](), torch.float64 if method in DOUBLE else None
            posterior = bz.fit(textbook.model, sampler, *data, seed=0, dtype=dtype)
        except Exception as error:
            return found | {"error": f"{type(error).__name__}: {error}"[:500]}
    found |= {"wall_seconds": round(time.perf_counter() - wall, 2), "cpu_seconds": round(time.process_time() - cpu, 2)}
    ours = [each for each in caught if each.category.__module__.startswith("bnnzoo")]
    found["warnings"] = sorted({each.category.__name__ for each in ours})
    found["sentences"] = [str(each.message)[:300] for each in ours]
    found["gradients"] = posterior.info.num_gradients
    try:
        if method == "Pathfinder":  # its draws are weighted already
            found["pareto_k"] = round(float(posterior.info.config["psis_pareto_k"]), 3)
        elif method not in CHAINS:
            found["pareto_k"] = round(float(bz.diagnostics.psis(bz.to_datatree(posterior)).pareto_k), 3)
        tree = bz.to_datatree(posterior, num_draws=None if method in CHAINS else NUM_DRAWS)["posterior"]
        draws = scalars({str(site): tree[site].values.astype(float) for site in tree.data_vars})
        found["scalars"] = {}
        for scalar in known:
            found["scalars"][scalar] = summary(draws[scalar], method in CHAINS)
    except Exception as error:
        found["error"] = f"after the fit: {type(error).__name__}: {error}"[:500]
    return found


def summary(values: NDArray[np.floating], is_of_chains: bool) -> dict[str, float]:
    """Return mean, standard deviation, effective draws and quantiles of the draws ``[C, S]`` of a scalar."""
    ess = min(float(az.ess(each)) for each in (values, (values - values.mean()) ** 2)) if is_of_chains else values.size
    quantiles = dict(zip(QUANTILES, np.quantile(values, list(QUANTILES.values())).tolist(), strict=True))
    return {"mean": float(values.mean()), "sd": float(values.std()), "ess": float(ess)} | quantiles


def judged(fit: dict[str, Any], known: dict[str, dict[str, float]]) -> dict[str, Any]:
    """Return how far a fit is from posteriordb's reference draws, and the verdict."""
    row = {key: value for key, value in fit.items() if key not in ("scalars", "sentences")}
    if "scalars" not in fit:
        return row | {"verdict": failure(fit["error"])}
    place = spread_by_quantiles if fit["model"] in WITHOUT_VARIANCE else spread_by_moments
    worst = {"mean": 0.0, "log_sd": 0.0, "quantiles": 0.0}
    off = strictly_off = False
    for scalar, expected in known.items():
        given = fit["scalars"][scalar]
        (centre, scale), (found, width) = place(expected), place(given)
        distance, log = abs(found - centre) / scale, abs(np.log(max(width / scale, 1e-9)))
        errors = np.sqrt(1 / REFERENCE_DRAWS + 1 / given["ess"]) * np.array([1.0, 0.71]) * max(width / scale, 1.0)
        off |= exceeds(distance, log, errors, OFF) or given["ess"] < FEWEST
        strictly_off |= off or exceeds(distance, log, errors, STRICT)  # few draws make wide errors, and no fit right
        quantiles = np.mean([abs(given[q] - expected[q]) for q in QUANTILES]) / scale
        for key, value in zip(worst, (distance, log, quantiles), strict=True):
            worst[key] = max(worst[key], float(value))
    least = min(each["ess"] for each in fit["scalars"].values())
    said = "warned" if set(fit["warnings"]) - NOT_OF_THE_FIT else "silent"
    verdict = f"{'off' if off else 'right'}, {said}"
    return row | {"ess": round(least)} | worst | {"within_the_narrow_limits": not strictly_off, "verdict": verdict}


def exceeds(distance: float, log: float, errors: Any, limits: tuple[float, float]) -> bool:
    """Return whether a distance, or the logarithm of a ratio, is beyond its limit and three Monte Carlo errors."""
    far, wide = distance > max(limits[0], 3 * errors[0]), log > max(np.log(limits[1]), 3 * errors[1])
    return bool(far or wide or not np.isfinite(distance))


def spread_by_moments(scalar: dict[str, float]) -> tuple[float, float]:
    return scalar["mean"], scalar["sd"]


def spread_by_quantiles(scalar: dict[str, float]) -> tuple[float, float]:
    """Return the median, and the width of the 90% interval over that of a normal distribution."""
    return scalar["q50"], (scalar["q95"] - scalar["q05"]) / 3.29


def table() -> None:
    """Print and write the verdicts of all fits."""
    rows = [judged(fit, file_of(f"summary/{fit['model']}.summary.json")["params"]) for fit in stored(FITS)]
    methods = by_method(rows)
    write("posteriordb_methods", {"methods": methods, "fits": rows})
    print(markdown(methods))
    for method, found in methods.items():
        print(method, found)
    for row in rows:
        if row["verdict"] in ("off, silent", "right, warned", "failed", "refused"):
            print(row)


def by_method(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return what is said of each method, of all of them in single precision, and of those in double precision."""
    single = {method: [row for row in rows if row["method"] == method] for method in METHODS}
    double = {method: [row for row in rows if row["method"] == method] for method in DOUBLE}
    groups = single | {"all": [row for some in single.values() for row in some]} | double
    return {name: described(some) for name, some in groups.items() if some}


def described(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return verdicts by number, and medians of errors and costs over the fits that ended."""
    ended = [row for row in rows if "mean" in row]
    narrow = sum(row["within_the_narrow_limits"] for row in ended)
    keys = ("mean", "log_sd", "quantiles", "gradients")
    return (
        counted(rows) | {"narrow": narrow} | {key: median(row[key] for row in ended) if ended else None for key in keys}
    )


if __name__ == "__main__":
    command, *names = sys.argv[1:]
    if command == "run":
        run(names or list(POSTERIORS), METHODS | DOUBLE, FITS, "benchmarks.posteriordb_methods")
    elif command == "worker":
        work([(name, method) for name, method in json.loads(names[0])], fitted)
    elif command == "table":
        table()
    else:
        raise SystemExit(__doc__)
