"""Verdicts: which fits agree with the reference, and which of the others said so."""

import builtins
import json
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.strangers import nearest, references, runner
from benchmarks.strangers.catalogue import STRANGERS

RESULTS = Path(__file__).parents[1] / "results" / "strangers.json"
MEAN, RATIO = 0.3, 1.33
"""A fit is off if a mean is further away, in posterior sds, or an sd by a larger factor, beyond three Monte Carlo errors."""
NOT_OF_THE_FIT = {"ModelWarning", "TreeDepthWarning"}
"""What is said about the model, such as that a factor has no observations, or about costs: that draws are right but slow."""
FULL_RANK_K, FULL_RANK = 0.5, (0.2, 1.2)
"""Pareto k below which means and sds of a full-rank Gaussian should be this near, and how near."""
MIXED = 100
"""Chains with fewer effective draws for any entry are off whatever their means."""


def table() -> None:
    """Print and write the verdicts of all fits that have a reference."""
    known = references.stored()
    fits = {(each["model"], each["method"]): each for each in runner.stored()}
    rows = [judged(fit, known[name]) for (name, _), fit in fits.items() if name in known and known[name]["good"]]
    found = {method: counted([row for row in rows if row["method"] == method]) for method in runner.METHODS}
    found["all"] = counted(rows)
    best = {method: nearest.stored(method) for method in nearest.FILES}
    families = {method: against_nearest(method, rows, fits, each) for method, each in best.items()}
    families["FullRankVI"] |= small_k(rows, known, best["FullRankVI"])
    left_out = sorted({name for name, _ in fits} - {name for name in known if known[name]["good"]})
    facts = {"methods": found, "families": families, "without_reference": left_out, "fits": rows}
    RESULTS.write_text(json.dumps(facts, indent=1) + "\n")
    print(markdown(found))
    for row in rows:
        if row["verdict"] in ("off, silent", "right, warned", "failed"):
            print(f"{row['verdict']}: {row['model']}, {row['method']}: {row}")
    print(families)
    print("Without a reference:", left_out)


def judged(fit: dict[str, Any], reference: dict[str, Any]) -> dict[str, Any]:
    """Return how far a fit is from its reference, and the verdict."""
    kept = ("model", "method", "warnings", "pareto_k", "gradients", "wall_seconds", "cpu_seconds", "error")
    row = {key: fit[key] for key in kept if fit.get(key) is not None}
    if "sites" not in fit:
        return row | {"verdict": failure(fit["error"])}
    distance, ratio, off = compared(fit, reference)
    if fit["method"] in ("NUTS", "MAMS") and fit["ess"] < MIXED:
        off = True
    said = "warned" if set(fit["warnings"]) - NOT_OF_THE_FIT else "silent"
    return row | {"mean": distance, "sd_ratio": ratio, "verdict": f"{'off' if off else 'right'}, {said}"}


def failure(error: str) -> str:
    """Return whether a fit ran out of time, was refused in the library's own words, or failed.

    FloatingPointError is the library's, too: torch raises none.
    """
    if error.startswith("more than"):
        return "out of time"
    kind = error.split(":")[0]
    return "failed" if kind in set(dir(builtins)) - {"FloatingPointError"} or not kind.endswith("Error") else "refused"


def compared(fit: dict[str, Any], reference: dict[str, Any]) -> tuple[float, float, bool]:
    """Return the worst distance in units of scale, the worst ratio of the scales, and whether either is off."""
    known = STRANGERS.get(fit["model"])
    distances, logs, off = [0.0], [0.0], False
    for name, site in reference["sites"].items():
        place_and_scale = quantiles_of if known and name in known.without_variance else moments_of
        varies = np.array(site["sd"], float) > 0
        (mean, sd, errors), (mean_of, sd_of, errors_of) = (
            [each[..., varies] for each in place_and_scale(one)] for one in (site, fit["sites"][name])
        )
        distance = np.abs(mean_of - mean) / sd
        log = np.log(np.maximum(sd_of / sd, 1e-9))
        off |= bool(((distance > MEAN) & (distance > 3 * np.hypot(errors[0], sd_of / sd * errors_of[0]))).any())
        off |= bool(((np.abs(log) > np.log(RATIO)) & (np.abs(log) > 3 * np.hypot(errors[1], errors_of[1]))).any())
        off |= not np.isfinite(distance).all() or not np.isfinite(log).all()
        distances.extend(distance)
        logs.extend(log)
    worst = max(logs, key=abs)
    return round(float(max(distances)), 3), round(float(np.exp(worst)), 3), off


def moments_of(site: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Return mean, standard deviation, and the errors ``[2, D]`` of the mean in sds and of the logarithm of the sd."""
    mean, sd = (np.array(site[key], float) for key in ("mean", "sd"))
    return mean, sd, np.sqrt(np.array([[1.0], [0.5]]) / effective(site))


def quantiles_of(site: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Return the median, the width of the 90% interval over that of a normal one, and their errors as those of a normal one."""
    low, median_, high = (np.array(each, float) for each in site["quantiles"])
    return median_, (high - low) / 3.29, np.sqrt(np.array([[1.57], [0.78]]) / effective(site))


def effective(site: dict[str, Any]) -> Any:
    """Return the numbers ``[D]`` of effective draws, of which independent ones have as good as infinitely many."""
    ess = np.array(site["ess"], float)
    return np.where(np.isfinite(ess), ess, 1e9)


def small_k(rows: list[dict[str, Any]], known: dict[str, Any], best: dict[str, Any]) -> dict[str, Any]:
    """Return how many full-rank Gaussians with a small Pareto k are near, and the others with the ratio of the nearest one."""
    small = [row for row in rows if row["method"] == "FullRankVI" and row.get("pareto_k", np.inf) < FULL_RANK_K]
    far = [row for row in small if row["mean"] > FULL_RANK[0] or abs(np.log(row["sd_ratio"])) > np.log(FULL_RANK[1])]
    found = []
    for row in far:
        name = row["model"]
        sites = (
            {site: each | {"ess": [np.inf] * len(each["mean"])} for site, each in best[name]["sites"].items()}
            if name in best
            else None
        )
        optimum = compared({"model": name, "sites": sites}, known[name])[:2] if sites else None
        found.append([name, row["mean"], row["sd_ratio"], row["verdict"], optimum])
    return {"small_k": len(small), "far": found}


def against_nearest(
    method: str, rows: list[dict[str, Any]], fits: dict[Any, Any], best: dict[str, Any]
) -> dict[str, Any]:
    """Return how many Gaussians have the means of the nearest one, full-rank ones its sds as well, and who does not warn."""
    found: dict[str, Any] = {"known": 0, "near": 0, "far_warned": 0, "far_silent": []}
    for row in rows:
        if row["method"] != method or row["model"] not in best or "mean" not in row:
            continue
        sites, distances, logs = fits[row["model"], method]["sites"], [0.0], [0.0]
        for name, site in best[row["model"]]["sites"].items():
            (mean, sd), (mean_of, sd_of) = (
                [np.array(e[key], float) for key in ("mean", "sd")] for e in (site, sites[name])
            )
            varies = sd > 0
            distances.extend((np.abs(mean_of - mean)[varies] / sd[varies]).tolist())
            logs.extend(np.abs(np.log(sd_of[varies] / sd[varies])).tolist())
        row["from_nearest"], ratio = round(max(distances), 3), round(float(np.exp(max(logs))), 3)
        is_near = row["from_nearest"] <= MEAN
        if method == "FullRankVI":
            row["ratio_to_nearest"], is_near = ratio, is_near and ratio <= FULL_RANK[1]
        found["known"] += 1
        if is_near:
            found["near"] += 1
        elif row["verdict"].endswith("warned"):
            found["far_warned"] += 1
        else:
            found["far_silent"].append([row["model"], row["from_nearest"], ratio])
    return found


def counted(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return how often each verdict was given, the rates of warnings, and median seconds."""
    kinds = ("right, silent", "right, warned", "off, warned", "off, silent", "refused", "failed", "out of time")
    found: dict[str, Any] = {kind: sum(row["verdict"] == kind for row in rows) for kind in kinds}
    off, right = found["off, warned"] + found["off, silent"], found["right, silent"] + found["right, warned"]
    seconds = [row["cpu_seconds"] for row in rows if "cpu_seconds" in row]
    return found | {
        "fits": len(rows),
        "announced": round(found["off, warned"] / off, 3) if off else None,
        "false_alarms": round(found["right, warned"] / right, 3) if right else None,
        "median_cpu_seconds": round(median(seconds), 2) if seconds else None,
    }


def markdown(found: dict[str, Any]) -> str:
    """Return the table of the documentation."""
    columns = ("right, silent", "right, warned", "off, warned", "off, silent", "refused", "failed", "out of time")
    lines = ["| method | fits | " + " | ".join(columns) + " | processor seconds |", "|---" * (len(columns) + 3) + "|"]
    for method, row in found.items():
        counts = " | ".join(str(row[column]) for column in columns)
        lines.append(f"| {method} | {row['fits']} | {counts} | {row['median_cpu_seconds']} |")
    return "\n".join(lines)


def which(rows: list[dict[str, Any]]) -> dict[str, str]:
    """Return what a method costs and how far it ends from the reference, as cells of a row for each: the guide's table.

    Processor seconds that half and nine tenths of the fits take; medians over fits of the largest distance of a mean and of the
    largest factor between sds; the share of fits within the limits.
    """
    found = {}
    for method in runner.METHODS:
        fits = [row for row in rows if row["method"] == method]
        seconds = [row["cpu_seconds"] for row in fits if "cpu_seconds" in row]
        known = [row for row in fits if "mean" in row]
        factor = np.exp(median(abs(np.log(row["sd_ratio"])) for row in known))
        right = sum(row["verdict"].startswith("right") for row in fits)
        cells = (
            f"{median(seconds):.1f}",
            f"{np.quantile(seconds, 0.9):.0f}",
            f"{median(row['mean'] for row in known):.2f}",
        )
        found[method] = " | ".join((*cells, f"{factor:.2f}", f"{right} of {len(fits)}"))
    return found
