"""The factorised Gaussian that is nearest to each posterior: its means are those that `MeanFieldVI` should find."""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.strangers import references
from benchmarks.strangers.catalogue import STRANGERS
from benchmarks.strangers.independent import Unconstrained, nearest_factorised

FACTORISED = Path(__file__).parents[1] / "results" / "strangers_factorised.json"
NUM_DRAWS = 4096


def factorised(names: list[str]) -> None:
    """Write the nearest factorised Gaussian of every model with a reference, from which the search starts."""
    known = references.stored()
    for name in names or [name for name, found in known.items() if found["good"] and name not in stored()]:
        try:
            found = nearest(name, known[name])
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {str(error)[:200]}", flush=True)
            continue
        FACTORISED.write_text(json.dumps(stored() | {name: found}, indent=0) + "\n")
        print(name, found["bound"], flush=True)


def stored() -> dict[str, Any]:
    """Return what is there."""
    found: dict[str, Any] = json.loads(FACTORISED.read_text()) if FACTORISED.exists() else {}
    return found


def nearest(name: str, reference: dict[str, Any]) -> dict[str, Any]:
    """Return the bound of the nearest factorised Gaussian, and means and standard deviations of each site under it."""
    density = Unconstrained(STRANGERS[name])
    loc = start(density, reference)
    curvature = -torch.autograd.functional.hessian(density, loc).diagonal()
    best = nearest_factorised(density, loc, curvature.abs().clamp(min=1e-12).rsqrt())
    values = {site: each.reshape(NUM_DRAWS, -1) for site, each in density.values(best.draws(NUM_DRAWS)).items()}
    sites = {site: {"mean": each.mean(0).tolist(), "sd": each.std(0).tolist()} for site, each in values.items()}
    return {"bound": best.bound, "sites": sites}


def start(density: Unconstrained, reference: dict[str, Any]) -> Tensor:
    """Return the unconstrained values ``[P]`` of the reference's medians."""
    found = []
    for site in density.sites:
        median = torch.tensor(reference["sites"][site.name]["quantiles"][1], dtype=torch.float64)
        found.append(site.transform.inv(median.reshape(site.value_shape)).flatten())
    return torch.cat(found)
