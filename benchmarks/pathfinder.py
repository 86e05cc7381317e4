"""Pathfinder against MeanFieldVI: evaluations, and distances from the references of strangers' models.

Run: python -m benchmarks.pathfinder run|table [model ...]
"""

import functools
import json
import sys
import time
import warnings
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.strangers import counts, course, dynamics, hierarchies  # noqa: F401 (each enters its models)
from benchmarks.strangers.catalogue import STRANGERS
from benchmarks.strangers.namespaces import pyro_names
from benchmarks.strangers.references import stored

RESULTS = Path(__file__).parent / "results" / "pathfinder.json"
METHODS = ("Pathfinder", "MeanFieldVI")
NUM_DRAWS = 4000
LEFT_OUT = {"Lotka-Volterra": "a minute a fit", "logistic growth": "half a minute a fit"}
VALUE = 1 / 3
"""Evaluations of the density with its gradient that one without it costs, by the usual count of operations."""


def run(names: list[str]) -> None:
    """Fit each model by both methods, one after the other, as typed."""
    known = stored()
    rows = json.loads(RESULTS.read_text())["fits"] if RESULTS.exists() and names else []
    for name in names or [each for each in STRANGERS if known.get(each, {}).get("good") and each not in LEFT_OUT]:
        rows = [row for row in rows if row["model"] != name]
        for method in METHODS:
            row = fitted(name, method, known[name])
            rows.append(row)
            print(json.dumps(row), flush=True)
    RESULTS.write_text(json.dumps({"summary": summary(rows), "left_out": LEFT_OUT, "fits": rows}, indent=1) + "\n")


def fitted(name: str, method: str, reference: dict[str, Any]) -> dict[str, Any]:
    """Return what a fit cost, and how far its draws are from the reference."""
    import torch

    import bnnzoo as bz

    stranger = STRANGERS[name]
    model = functools.wraps(stranger.text)(functools.partial(stranger.text, pyro_names()))
    del model.__wrapped__
    data = [torch.as_tensor(each) for each in stranger.data]
    cpu = time.process_time()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            posterior = bz.fit(model, getattr(bz, method)(), *data, seed=0, progress=False)
        except Exception as error:
            return {"model": name, "method": method, "error": f"{type(error).__name__}: {error}"[:300]}
    info = posterior.info
    values = int(info.config.get("num_values", 0))
    found = {
        "model": name,
        "method": method,
        "num_params": posterior.density.num_params,
        "gradients": info.num_gradients,
        "values": values,
        "in_gradients": round(info.num_gradients + VALUE * values),
        "cpu_seconds": round(time.process_time() - cpu, 2),
        "warnings": sorted(
            {each.category.__name__ for each in caught if each.category.__module__.startswith("bnnzoo")}
        ),
        "pareto_k": round(float(info.config["psis_pareto_k"]), 2) if "psis_pareto_k" in info.config else None,
    }
    values_of = posterior.density.constrain(posterior.draws(NUM_DRAWS).flatten(0, 1)[None])
    return found | distances({site: value.numpy()[0] for site, value in values_of.items()}, reference)


def distances(draws: dict[str, Any], reference: dict[str, Any]) -> dict[str, float]:
    """Return errors over all entries in units of the reference's sds: of means, logarithms of sds, and quantiles.

    The mean distance of the three quantiles, 0.05, 0.5 and 0.95, stands for the 1-Wasserstein distance of a margin.
    """
    means, sds, apart = [], [], []
    for name, site in reference["sites"].items():
        mean, sd = (np.asarray(site[each], float).ravel() for each in ("mean", "sd"))
        values = draws[name].reshape(len(draws[name]), -1).astype(float)
        varies = sd > 0
        levels = np.asarray(site["quantiles"], float).reshape(3, -1)
        own = np.quantile(values, LEVELS, axis=0)
        means.append((np.abs(values.mean(0) - mean) / np.where(varies, sd, 1))[varies])
        sds.append(np.abs(np.log(values.std(0)[varies] / sd[varies])))
        apart.append((np.abs(own - levels) / np.where(varies, sd, 1)).mean(0)[varies])
    return {
        "mean": round(float(np.concatenate(means).mean()), 3),
        "worst_mean": round(float(np.concatenate(means).max()), 3),
        "log_sd": round(float(np.concatenate(sds).mean()), 3),
        "worst_log_sd": round(float(np.concatenate(sds).max()), 3),
        "quantiles": round(float(np.concatenate(apart).mean()), 3),
    }


LEVELS = (0.05, 0.5, 0.95)


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return medians, in how many models which method is nearer, and verdicts."""
    pairs = [
        (a, b)
        for a in rows
        for b in rows
        if a["model"] == b["model"] and (a["method"], b["method"]) == METHODS and "mean" in a and "mean" in b
    ]
    ratios = [a["in_gradients"] / b["in_gradients"] for a, b in pairs]
    trusted = [(a, b) for a, b in pairs if a["pareto_k"] <= 0.7]
    off = {
        method: [pair[i] for pair in pairs if pair[i]["worst_mean"] > 0.3 or pair[i]["worst_log_sd"] > np.log(1.33)]
        for i, method in enumerate(METHODS)
    }
    return {
        "models": len(pairs),
        "evaluations": {
            method: {key: median(pair[i][key] for pair in pairs) for key in ("gradients", "values", "in_gradients")}
            for i, method in enumerate(METHODS)
        },
        "ratio_of_evaluations": round(median(ratios), 3),
        "a_tenth_or_less": sum(each <= 0.1 for each in ratios),
        "ratio_of_gradients": round(median(a["gradients"] / b["gradients"] for a, b in pairs), 3),
        "cpu_seconds": {method: median(pair[i]["cpu_seconds"] for pair in pairs) for i, method in enumerate(METHODS)},
        "nearer": {key: sum(a[key] < b[key] for a, b in pairs) for key in ("mean", "log_sd", "quantiles")},
        "of_good_k": len(trusted),
        "nearer_of_good_k": {key: sum(a[key] < b[key] for a, b in trusted) for key in ("mean", "log_sd", "quantiles")},
        "medians": {
            method: {key: round(median(pair[i][key] for pair in pairs), 3) for key in ("mean", "log_sd", "quantiles")}
            for i, method in enumerate(METHODS)
        },
        "off": {method: len(each) for method, each in off.items()},
        "off_and_silent": {method: [row["model"] for row in each if not said(row)] for method, each in off.items()},
        "right_and_warned": {
            method: [pair[i]["model"] for pair in pairs if pair[i] not in off[method] and said(pair[i])]
            for i, method in enumerate(METHODS)
        },
    }


def said(row: dict[str, Any]) -> bool:
    """Tell whether a fit warned of itself, and not of the model."""
    return bool(set(row["warnings"]) - {"ModelWarning"})


if __name__ == "__main__":
    command, *models = sys.argv[1:]
    if command == "run":
        run(models)
    elif command == "table":
        facts = json.loads(RESULTS.read_text())
        facts["summary"] = summary(facts["fits"])
        RESULTS.write_text(json.dumps(facts, indent=1) + "\n")
        print(json.dumps(facts["summary"], indent=1))
    else:
        raise SystemExit(__doc__)
