"""Bias of stochastic-gradient chains on networks, against a reference of NUTS, at the same number of gradients.

Ten tanh units with 200 observations of a sine, whose reference is run here with NUTS, and the zoo's two moons (41 parameters, 100
observations), whose reference is the zoo's. Batches of 20. Reported are the geometric mean over new rows of the posterior
variance of f(x), or of the probability, over the reference's, and the distances of ``compare_posteriors`` with their
Monte Carlo floor.

Run: python -m benchmarks.stochastic_bias_network [draws]
"""

import sys
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

import bnnzoo as bz
from benchmarks.pairs import write

CHAINS, BATCH, STEPS = 8, 20, 40


@dataclass(frozen=True)
class Problem:
    """A model, its rows, rows to predict, and the predictions of an exact sampler."""

    model: Any
    data: tuple[Any, ...]
    new: Any
    reference: xr.DataTree


def sine() -> Problem:
    """Return a regression network, with a reference of eight long chains."""
    random = np.random.default_rng(5)
    x = random.uniform(-2, 2, (200, 1))
    y = np.sin(2.5 * x[:, 0]) + 0.2 * random.normal(size=200)
    grid = np.linspace(-2.5, 2.5, 51)[:, None]
    model = bz.models.supervised(bz.models.mlp(1, (10,)), bz.priors.fan_in(2.0), bz.likelihoods.gaussian(0.2))
    exact = bz.NUTS(num_chains=CHAINS, num_warmup=1000, num_draws=1000, target_accept=0.95)
    posterior = bz.fit(model, exact, x, y, seed=0, progress=False)
    print(posterior, flush=True)
    return Problem(model, (x, y), grid, bz.predict(posterior, grid))


def two_moons() -> Problem:
    """Return the zoo's network of 41 parameters with its reference."""
    card = bz.zoo.load("two-moons")
    data = card.data()
    return Problem(card.model(), tuple(data.train.values()), data.test["x"], bz.zoo.reference(card.name))


def variances(tree: xr.DataTree) -> np.ndarray:
    """Return the variance over draws of the conditional mean, or of the probability of the last class, row by row."""
    conditional = tree["conditional"]
    values = conditional["mean"] if "mean" in conditional else conditional["probs"].isel(class_id=-1)
    return values.var(("chain", "draw")).to_numpy()


def summary(problem: Problem, method: Any) -> dict[str, float]:
    """Fit and compare with the reference."""
    began = time.process_time()
    posterior = bz.fit(problem.model, method, *problem.data, seed=1, progress=False)
    tree = bz.predict(posterior, problem.new)
    compared = bz.diagnostics.compare_posteriors({"it": tree, "reference": problem.reference}, "reference")
    mixing = bz.diagnostics.function_space(tree)
    ratios = variances(tree) / variances(problem.reference)
    return {
        "variance_ratio": float(np.exp(np.log(ratios).mean())),
        "lowest": float(ratios.min()),
        "highest": float(ratios.max()),
        "distance": float(compared["wasserstein"].mean()),
        "floor": float(compared["wasserstein_floor"].mean()),
        "max_rhat": float(mixing["rhat"].max()),
        "min_ess": float(mixing["ess_bulk"].min()),
        "gradients_of_a_chain": posterior.info.num_gradients / CHAINS,
        "seconds": time.process_time() - began,
    }


def main(num_draws: int = 500) -> None:
    """Run every sampler on both networks and write what was found."""
    budget: dict[str, Any] = {
        "num_chains": CHAINS, "num_draws": num_draws, "batch_size": BATCH, "steps_per_draw": STEPS, "num_warmup": 150
    }  # fmt: skip
    methods = {
        "StochasticMCLMC": bz.StochasticMCLMC(**budget),
        "StochasticMCLMC, no preconditioning": bz.StochasticMCLMC(**budget, preconditioning=None),
        "SGHMC": bz.SGHMC(**budget),
        "SGHMC, noise corrected": bz.SGHMC(**budget, noise_correction=True),
    }
    runs: dict[str, dict[str, float]] = {}
    for make in (two_moons, sine):
        problem = make()
        for name, method in methods.items():
            runs[f"{make.__name__}: {name}"] = found = summary(problem, method)
            print(make.__name__, name, {key: round(value, 3) for key, value in found.items()}, flush=True)
            write("stochastic_bias_network", {"runs": runs, "draws": num_draws, "batch": BATCH})


if __name__ == "__main__":
    main(*(int(value) for value in sys.argv[1:]))
