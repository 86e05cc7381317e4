"""The Gaussians that are nearest to each posterior: what `MeanFieldVI` and `FullRankVI` should find."""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.strangers import references
from benchmarks.strangers.catalogue import STRANGERS
from benchmarks.strangers.independent import NearestGaussian, Unconstrained, nearest_gaussian

RESULTS = Path(__file__).parents[1] / "results"
FILES = {"MeanFieldVI": RESULTS / "strangers_factorised.json", "FullRankVI": RESULTS / "strangers_full_rank.json"}
NUM_DRAWS = 16384
SMALLEST = 1e-6
"""Curvature, of the largest, below which a direction is taken to be flat where the search starts."""


def nearest(names: list[str]) -> None:
    """Write the nearest Gaussians of every model with a reference, from which the search starts."""
    known = references.stored()
    for method, file in FILES.items():
        for name in names or [name for name, found in known.items() if found["good"] and name not in stored(method)]:
            try:
                found = described(name, known[name], factorised=method == "MeanFieldVI")
            except Exception as error:
                print(f"{name}: {type(error).__name__}: {str(error)[:200]}", flush=True)
                continue
            file.write_text(json.dumps(stored(method) | {name: found}, indent=0) + "\n")
            print(method, name, found["bound"], flush=True)


def stored(method: str) -> dict[str, Any]:
    """Return what is there for a method."""
    file = FILES[method]
    found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    return found


def described(name: str, reference: dict[str, Any], factorised: bool) -> dict[str, Any]:
    """Return the bound of the nearest Gaussian, and means and standard deviations of each site under it."""
    density, best = found_for(name, reference, factorised)
    values = {site: each.reshape(NUM_DRAWS, -1) for site, each in density.values(best.draws(NUM_DRAWS)).items()}
    sites = {site: {"mean": each.mean(0).tolist(), "sd": each.std(0).tolist()} for site, each in values.items()}
    return {"bound": best.bound, "sites": sites}


def found_for(name: str, reference: dict[str, Any], factorised: bool) -> tuple[Unconstrained, NearestGaussian]:
    """Return the density of a model, and the Gaussian that is nearest to it."""
    density = Unconstrained(STRANGERS[name])
    loc = start(density, reference)
    curvature = -torch.autograd.functional.hessian(density, loc)
    if factorised:
        return density, nearest_gaussian(density, loc, curvature.diagonal().abs().clamp(min=1e-12).rsqrt().diag(), True)
    values, vectors = torch.linalg.eigh((curvature + curvature.mT) / 2)
    values = values.abs().clamp(min=SMALLEST * float(values.abs().max()))
    root = torch.linalg.cholesky(vectors / values @ vectors.mT)
    return density, nearest_gaussian(density, loc, root, False)


def start(density: Unconstrained, reference: dict[str, Any]) -> Tensor:
    """Return the unconstrained values ``[P]`` of the reference's medians."""
    found = []
    for site in density.sites:
        median = torch.tensor(reference["sites"][site.name]["quantiles"][1], dtype=torch.float64)
        found.append(site.transform.inv(median.reshape(site.value_shape)).flatten())
    return torch.cat(found)
