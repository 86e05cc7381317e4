"""Bias of samplers on a network: moments of f(x*) and of the noise scale, next to a long run of an exact sampler.

The unadjusted sampler is run at several energy variances, the exact one once more with another seed: what separates those two is
Monte Carlo error alone. Distances are in posterior standard deviations; next to each stands the distance that Monte Carlo error
would make. Results are no times, so the machine does not matter.

Run: python -m benchmarks.bias [draws]
"""

import sys
from dataclasses import dataclass
from typing import Any

import arviz as az
import numpy as np
import torch

import bnnzoo as bz
from benchmarks.pairs import save
from benchmarks.regression import function_values, problem, pyro_model

CHAINS, WARMUP, EXACT_DRAWS = 16, 400, 1_000


@dataclass(frozen=True)
class Moments:
    """Mean and log sd of every quantity ``[Q]``, with their Monte Carlo standard errors, and the smallest effective size."""

    mean: np.ndarray
    mean_error: np.ndarray
    log_sd: np.ndarray
    log_sd_error: np.ndarray
    min_ess: float


def moments(method: Any, seed: int) -> Moments:
    """Sample and summarise f(x*) and log sigma."""
    p = problem()
    posterior = bz.fit(pyro_model(p), method, p.x, p.y, seed=seed, progress=False)
    sites = {name: value.numpy() for name, value in posterior.density.constrain(posterior.draws()).items()}
    values = np.concatenate([function_values(p, sites), np.log(sites["sigma"])[..., None]], -1)
    data = az.from_dict({"posterior": {"q": values.astype(float)}})
    sd = values.std((0, 1))
    found = {kind: az.mcse(data, method=kind)["q"].to_numpy() for kind in ("mean", "sd")}
    ess = float(az.ess(data)["q"].min())
    return Moments(values.mean((0, 1)), found["mean"], np.log(sd), found["sd"] / sd, ess)


def distance(found: Moments, exact: Moments) -> dict[str, float]:
    """Return the root mean squared distance over quantities, and what Monte Carlo error alone would make of it."""
    sd = np.exp(exact.log_sd)
    gaps = {
        "mean": ((found.mean - exact.mean) / sd, np.hypot(found.mean_error, exact.mean_error) / sd),
        "log_sd": (found.log_sd - exact.log_sd, np.hypot(found.log_sd_error, exact.log_sd_error)),
    }
    result = {"min_ess": found.min_ess}
    for name, (gap, error) in gaps.items():
        result |= {name: _rms(gap), f"{name}_by_chance": _rms(error)}
    return result | {"average_log_sd": float(gaps["log_sd"][0].mean()), "log_sigma": float(gaps["mean"][0][-1])}


def _rms(values: np.ndarray) -> float:
    return float(np.sqrt((values**2).mean()))


def main(draws: int = 400) -> None:
    """Measure every sampler once and write the distances."""
    candidates: dict[str, Any] = {
        "exact, another seed": bz.MAMS(num_chains=CHAINS, num_warmup=WARMUP, num_draws=EXACT_DRAWS)
    } | {
        f"energy variance {variance:g}": bz.MCLMC(
            num_chains=CHAINS, num_warmup=WARMUP, num_draws=draws, energy_variance=variance
        )
        for variance in (5e-4, 5e-3, 5e-2)
    }
    exact = moments(candidates["exact, another seed"], seed=0)
    facts = {}
    for name, method in candidates.items():
        facts[name] = distance(moments(method, seed=1), exact)
        print(name, {key: round(value, 4) for key, value in facts[name].items()}, flush=True)
    found = {name: [fact["mean"]] for name, fact in facts.items()}
    save(
        "bias",
        "posterior sds, root mean square of f(x*)",
        found,
        "exact, another seed",
        distances=facts,
        exact_min_ess=exact.min_ess,
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(*(int(value) for value in sys.argv[1:]))
