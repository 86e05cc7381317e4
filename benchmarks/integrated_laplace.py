"""Hierarchies without a network: `Laplace`, which integrates over their scales, against long runs of `NUTS`.

Means and standard deviations of every number of every site, on its own scale. Each model is held against `NUTS` in the same
parametrisation, whose largest R-hat and least effective sample size are in the file.

Run: python -m benchmarks.integrated_laplace
"""

import warnings
from collections.abc import Callable
from typing import Any

import arviz as az
import numpy as np
import pyro
import pyro.distributions as dist
import torch
from torch import Tensor

import bnnzoo as bz
from benchmarks.pairs import processor_seconds, write
from benchmarks.strangers.hierarchies import DEATHS, EFFECTS, ERRORS, OPERATIONS

EXACT = bz.NUTS(num_chains=4, num_warmup=1000, num_draws=5000)
NUM_DRAWS = 20_000  # of the mixture, as many as of the exact sampler
LEVELS = (8, 10, 12)
"""Of the crossed factors."""


def effects(name: str, count: int, scale: Tensor, centred: bool, mean: Any = 0.0) -> Tensor:
    """Draw effects of groups, or what becomes them by a shift and a scale."""
    with pyro.plate(f"{name}_groups", count):
        if centred:
            return pyro.sample(name, dist.Normal(mean, scale))
        return mean + scale * pyro.sample(f"{name}_raw", dist.Normal(0.0, 1.0))


def schools(errors: Tensor, y: Tensor, centred: bool = False) -> None:
    """Eight schools."""
    mu, tau = pyro.sample("mu", dist.Normal(0.0, 5.0)), pyro.sample("tau", dist.HalfCauchy(5.0))
    theta = effects("theta", len(y), tau, centred, mu)
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal(theta, errors), obs=y)


def houses(county: Tensor, floor: Tensor, y: Tensor, centred: bool = False) -> None:
    """Groups of rows with noise of unknown size and one slope."""
    mu, b = pyro.sample("mu", dist.Normal(0.0, 10.0)), pyro.sample("b", dist.Normal(0.0, 10.0))
    tau, sigma = pyro.sample("tau", dist.HalfCauchy(2.0)), pyro.sample("sigma", dist.HalfCauchy(2.0))
    a = effects("a", 30, tau, centred, mu)
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal(a[county] + b * floor, sigma), obs=y)


def surgical(n: Tensor, deaths: Tensor, centred: bool = False) -> None:
    """Deaths in twelve hospitals."""
    mu, tau = pyro.sample("mu", dist.Normal(0.0, 5.0)), pyro.sample("tau", dist.HalfCauchy(1.0))
    a = effects("a", len(n), tau, centred, mu)
    with pyro.plate("rows", len(deaths)):
        pyro.sample("r", dist.Binomial(n, logits=a), obs=deaths)


def counts(group: Tensor, y: Tensor, centred: bool = False) -> None:
    """Counts with an intercept for each group."""
    intercept, tau = pyro.sample("intercept", dist.Normal(0.0, 2.0)), pyro.sample("tau", dist.HalfNormal(1.0))
    a = effects("a", 25, tau, centred)
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Poisson((intercept + a[group]).exp()), obs=y)


def lines(group: Tensor, x: Tensor, y: Tensor, centred: bool = True) -> None:
    """Intercepts and slopes of groups."""
    mean, slope = pyro.sample("mean", dist.Normal(0.0, 5.0)), pyro.sample("slope", dist.Normal(0.0, 5.0))
    scales = [pyro.sample(name, dist.HalfNormal(2.0)) for name in ("scale_a", "scale_b")]
    sigma = pyro.sample("sigma", dist.HalfNormal(2.0))
    a, b = effects("a", 20, scales[0], centred, mean), effects("b", 20, scales[1], centred, slope)
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal(a[group] + b[group] * x, sigma), obs=y)


def crossed(first: Tensor, second: Tensor, third: Tensor, y: Tensor, centred: bool = False) -> None:
    """Answers with effects of three crossed factors."""
    logit = pyro.sample("intercept", dist.Normal(0.0, 2.0))
    for name, count, codes in zip("abc", LEVELS, (first, second, third), strict=True):
        logit = logit + effects(name, count, pyro.sample(f"scale_{name}", dist.HalfNormal(1.0)), centred)[codes]
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Bernoulli(logits=logit), obs=y)


def cases() -> dict[str, tuple[Callable[..., None], bool, tuple[np.ndarray, ...]]]:
    """Return models, whether they are centred, and data, most of them simulated from the model at scales of 0.3 to 1."""
    rng = np.random.default_rng(0)
    county, floor = rng.integers(0, 30, 300), (rng.random(300) < 0.2) * 1.0
    radon = (1.4 + 0.35 * rng.normal(size=30))[county] - 0.7 * floor + 0.75 * rng.normal(size=300)
    group = np.repeat(np.arange(25), 4)
    counted = rng.poisson(np.exp(0.5 + 0.6 * rng.normal(size=25)[group])) * 1.0
    line, x = np.repeat(np.arange(20), 10), np.tile(np.linspace(-1.0, 1.0, 10), 20)
    height = rng.normal(1.0, 0.8, 20)[line] + rng.normal(-0.5, 0.4, 20)[line] * x + rng.normal(0.0, 0.7, 200)
    codes = [rng.integers(0, count, 200) for count in LEVELS]
    logits = 0.3 + sum(rng.normal(0.0, 0.7, count)[code] for count, code in zip(LEVELS, codes, strict=True))
    answers = (rng.random(200) < 1 / (1 + np.exp(-logits))) * 1.0
    return {
        "eight schools, non-centred": (schools, False, (ERRORS, EFFECTS)),
        "30 groups, centred": (houses, True, (county, floor, radon)),
        "30 groups, non-centred": (houses, False, (county, floor, radon)),
        "surgical, centred": (surgical, True, (OPERATIONS, DEATHS)),
        "surgical, non-centred": (surgical, False, (OPERATIONS, DEATHS)),
        "Poisson": (counts, False, (group, counted)),
        "intercepts and slopes": (lines, True, (line, x, height)),
        "crossed Bernoulli": (crossed, False, (*codes, answers)),
    }


def compared(model: Callable[..., None], centred: bool, data: tuple[np.ndarray, ...]) -> dict[str, Any]:
    """Return the largest difference of means, in standard deviations, and the range of their ratios."""

    def of(*args: Tensor) -> None:
        model(*args, centred=centred)

    began = processor_seconds()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bz.FitWarning)
        posterior = bz.fit(of, bz.Laplace(), *data, seed=0, dtype=torch.float64, progress=False)
        seconds = processor_seconds() - began
        run = bz.fit(of, EXACT, *data, seed=0, dtype=torch.float64, progress=False)
    found, exact = (
        bz.to_datatree(posterior, num_draws=NUM_DRAWS, seed=0)["posterior"],
        bz.to_datatree(run)["posterior"].to_dataset(),
    )
    away: dict[str, float] = {}
    ratios: dict[str, tuple[float, float]] = {}
    for name, values in exact.data_vars.items():
        (mean, sd), (other, width) = (
            (each.mean(("chain", "draw")).to_numpy(), each.std(("chain", "draw")).to_numpy())
            for each in (values, found[name])
        )
        away[str(name)] = float(np.abs((other - mean) / sd).max())
        ratios[str(name)] = float((width / sd).min()), float((width / sd).max())
    return {
        "integrated_over": posterior.info.config["integrated_over"],
        "mean": max(away.values()),
        "mean_of": max(away, key=lambda name: away[name]),
        "least_sd": min(low for low, _ in ratios.values()),
        "largest_sd": max(high for _, high in ratios.values()),
        "means": away,
        "sds": ratios,
        "seconds": seconds,
        "rhat": float(max(az.rhat(exact)[name].max() for name in exact.data_vars)),
        "ess": float(min(az.ess(exact)[name].min() for name in exact.data_vars)),
    }


def main() -> None:
    """Print and write the numbers of each model."""
    results = {}
    for name, case in cases().items():
        results[name] = compared(*case)
        print(name, results[name], flush=True)
    write("methods_integrated", {"results": results, "num_draws": NUM_DRAWS})


if __name__ == "__main__":
    main()
