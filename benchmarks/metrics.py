"""Mass matrices of a sampler on posteriors of posteriordb: effective draws a gradient, with and without those of warm-up.

Run: python -m benchmarks.metrics NUTS|MAMS|ChEESHMC|MCLMC [seeds] [posterior ...]   (needs posteriordb's data below BNNZOO_DATA)
or:  python -m benchmarks.metrics Pathfinder SAMPLER [seeds] [posterior ...]        for a sampler as typed, and on its paths

Default settings but for ``mass_matrix``: warm-up of at most 1,000 draws and 1,000 kept, double precision. Effective draws
are the minimum of bulk and tail over the scalars that posteriordb names; gradients are leapfrog steps, whatever the load of the
machine. Means are held against those of posteriordb's reference draws.
"""

import statistics
import sys
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import arviz as az
import torch

import bnnzoo as bz
from benchmarks.pairs import write
from benchmarks.posteriordb import POSTERIORS, arguments_of, moments_of, scalars
from benchmarks.warm_up import longest_stay

KINDS = ("diagonal", "auto", "low_rank", "fisher")
"""The first two of samplers other than NUTS."""
SLOW = ("arma-arma11", "hmm_example-hmm_example", "hudson_lynx_hare-lotka_volterra")
"""Posteriors with loops over time, which are measured when they are asked for."""


def measured(sampler: str, name: str, kind: Any, seed: int, on_paths: bool = False) -> dict[str, float]:
    """Sample a posterior, from the paths of Pathfinder or as typed, and return what a row of a table needs."""
    textbook, expected = POSTERIORS[name], moments_of(name)
    data = [torch.from_numpy(value) for value in arguments_of(name)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        how: dict[str, Any] = {"seed": seed, "dtype": torch.float64, "progress": False}
        method = getattr(bz, sampler)(mass_matrix=kind)
        paths = bz.Pathfinder(
            num_paths=method.num_chains, resample=False
        )  # as ``init`` makes it, whose cost is not in the fit's
        start = bz.fit(textbook.model, paths, *data, **how) if on_paths else None
        posterior = bz.fit(textbook.model, replace(method, init=start), *data, **how)
    tree = bz.to_datatree(posterior)["posterior"]
    found = scalars({str(site): tree[site].values for site in tree.data_vars})
    known = {scalar: found[scalar] for scalar in expected}
    limits: tuple[dict[str, Any], ...] = ({"method": "bulk"}, {"method": "tail", "prob": (0.05, 0.95)})
    return {
        "ess": min(float(az.ess(value, **kind)) for value in known.values() for kind in limits),
        "gradients": int(posterior.info.sample_stats["n_steps"].sum()),
        "all_gradients": posterior.info.num_gradients + (start.info.num_gradients if start else 0),
        "gradients_of_paths": start.info.num_gradients if start else 0,
        "divergent": int(posterior.info.sample_stats["diverging"].sum()),
        "longest_stay": max(longest_stay(value) for value in known.values()),
        "mean_off": max(
            abs(float(value.mean()) - expected[scalar][0]) / expected[scalar][1] for scalar, value in known.items()
        ),
    }


def ratios(kinds: Sequence[str], rows: dict[str, dict[str, dict[str, float]]]) -> dict[str, dict[str, float]]:
    """Return medians over posteriors of effective draws a gradient, relative to the diagonal."""
    return {
        kind: {
            what: statistics.median(row[kind][what] / row["diagonal"][what] for row in rows.values())
            for what in ("per_1000_gradients", "with_warm_up")
        }
        for kind in kinds
    }


def begun(sampler: str, seeds: int, names: list[str]) -> None:
    """Measure a sampler as typed and on paths on every posterior, and write what was found."""
    rows: dict[str, dict[str, dict[str, float]]] = {}
    for name in names or [each for each in POSTERIORS if each not in SLOW]:
        ways = {"as typed": False, "Pathfinder": True}
        runs = {way: [measured(sampler, name, "auto", seed, on) for seed in range(seeds)] for way, on in ways.items()}
        rows[name] = {
            way: {
                "warm_up": statistics.median(run["all_gradients"] - run["gradients"] for run in found),
                "paths": statistics.median(run["gradients_of_paths"] for run in found),
                "per_1000_gradients": statistics.median(1e3 * run["ess"] / run["gradients"] for run in found),
                "with_warm_up": statistics.median(1e3 * run["ess"] / run["all_gradients"] for run in found),
                **{f"worst_{key}": max(run[key] for run in found) for key in ("divergent", "mean_off")},
            }
            for way, found in runs.items()
        }
        for way, row in rows[name].items():
            print(name, way, {key: round(value, 3) for key, value in row.items()}, flush=True)
        medians = {
            what: statistics.median(row["Pathfinder"][what] / row["as typed"][what] for row in rows.values())
            for what in ("warm_up", "per_1000_gradients", "with_warm_up")
        }
        write(f"metrics_Pathfinder_{sampler}", {"seeds": seeds, "ratios": medians, "posteriors": rows})
    print("median over posteriors, relative to the sampler as typed:", medians)


def main(sampler: str, seeds: int, names: list[str]) -> None:
    """Measure every kind of mass matrix on every posterior, and write what was found."""
    kinds = KINDS if sampler == "NUTS" else KINDS[:2]
    rows: dict[str, dict[str, dict[str, float]]] = {}
    for name in names or [each for each in POSTERIORS if each not in SLOW]:
        runs = {kind: [measured(sampler, name, kind, seed) for seed in range(seeds)] for kind in kinds}
        rows[name] = {
            kind: {
                "per_1000_gradients": statistics.median(1e3 * run["ess"] / run["gradients"] for run in found),
                "with_warm_up": statistics.median(1e3 * run["ess"] / run["all_gradients"] for run in found),
                **{key: statistics.median(run[key] for run in found) for key in ("ess", "divergent")},
                **{f"worst_{key}": max(run[key] for run in found) for key in ("longest_stay", "mean_off")},
            }
            for kind, found in runs.items()
        }
        for kind, row in rows[name].items():
            print(name, kind, {key: round(value, 3) for key, value in row.items()}, flush=True)
        write(f"metrics_{sampler}", {"seeds": seeds, "ratios": ratios(kinds, rows), "posteriors": rows})
    print("median over posteriors, relative to the diagonal:", ratios(kinds, rows))


if __name__ == "__main__":
    of, *rest = sys.argv[1:]
    run, of, rest = (begun, rest[0], rest[1:]) if of == "Pathfinder" else (main, of, rest)
    run(of, int(rest[0]) if rest else 3, rest[1:])
