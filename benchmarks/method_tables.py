"""Measurements behind small tables on the pages of methods.

How near flows come to their targets, widths of SWAG, the noise of gradients of the bound, rates of concrete dropout, and what
labels chosen by BALD gain.

Run: python -m benchmarks.method_tables flow|swag|estimators|relaxation|acquisition
"""

import sys
import warnings
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import torch
from scipy.special import gammaln
from sklearn.datasets import load_digits
from torch import Tensor, nn

import bnnzoo as bz
from benchmarks.pairs import write
from bnnzoo.core.model.density import LogDensity, build_density
from bnnzoo.inference.variational.elbo import PathwiseBound
from bnnzoo.inference.variational.mean_field_bound import MeanFieldBound, gaussian_sites
from bnnzoo.inference.variational.mean_field_vi import MeanField
from bnnzoo.inference.variational.noisy_layers import noisy_layers
from bnnzoo.testing import Target, banana, dropout_network, linear_gaussian, skewed

NUM_DRAWS = 4000
BATCHES, RATES = (1, 2, 5, 10), (None, 0.001, 0.002, 0.004, 0.01)
NUM_NOISES, SCALES = 1000, (0.05, 0.3)
RELAXATIONS = (0.03, 0.1, 0.3)
NUM_RUNS, NUM_ROUNDS, NUM_LABELS, POOL = 10, 6, 15, 1000

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


def estimators() -> Row:
    """Return the share of the gradient's variance that estimators of the bound leave, by network, rows and sd of the weights."""
    mlp = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
    convolutional = nn.Sequential(nn.Conv2d(2, 3, 3), nn.Tanh(), nn.Flatten(), nn.Linear(12, 1, bias=False))
    cases = {"small": (mlp, (128, 3)), "fewer rows": (mlp, (32, 3)), "convolutional": (convolutional, (128, 2, 4, 4))}
    found: Row = {}
    for (name, (net, shape)), scale in product(cases.items(), SCALES):
        generator = torch.Generator().manual_seed(0)
        x, y = torch.randn(shape, generator=generator), torch.randn(shape[0], generator=generator)
        density = build_density(bz.models.supervised(net, bz.priors.normal(0.8), bz.likelihoods.gaussian(0.5)), x, y)
        loc = 0.4 * torch.randn(density.num_params, generator=generator)
        params = torch.cat([loc, torch.full_like(loc, scale).log()])
        shared = _variance(PathwiseBound(density, MeanField()), params, len(loc), density)
        for estimator in ("local", "flipout"):
            layers = noisy_layers(density, estimator, density.data)  # type: ignore[arg-type]
            bound = MeanFieldBound(density, layers, gaussian_sites(density))
            row = found.setdefault(f"{name}, {shape[0]} rows, sd {scale}", {})
            row[estimator] = _variance(bound, params, len(loc) + bound.num_extra, density) / shared
    return found


def _variance(bound: Callable[..., Tensor], params: Tensor, size: int, density: LogDensity) -> float:
    """Return the variance of the gradient, summed over parameters."""
    noises = torch.randn(NUM_NOISES, size, generator=torch.Generator().manual_seed(1))
    gradient = torch.func.grad(lambda at, noise: bound(at, noise, density.data, None, 1.0))
    return float(torch.func.vmap(gradient, in_dims=(None, 0), chunk_size=100)(params, noises).var(0).sum())


def relaxation() -> Row:
    """Return the rate that concrete dropout learns on a linear model, by its relaxation, next to the best one."""
    target = dropout_network(rate=None, noise=5.0)
    ratio = float((target.sd["net.1.weight"] / target.mean["net.1.weight"])[0, 0])
    found: Row = {"exact": {"rate": 1 - 1 / (1 + ratio**2)}}
    for each in RELAXATIONS:
        method = bz.ConcreteDropout(relaxation=each)
        posterior = bz.fit(target.model, method, *target.data, dtype=torch.float64, progress=False)
        found[f"relaxation {each}"] = {"rate": posterior.info.config["rates"]["net.0"]}
    return found


def acquisition() -> Row:
    """Return how much more accurate digits are classified with labels chosen by BALD than with random ones, by their number."""
    chosen, random = (np.array([_learnt(seed, by_bald) for seed in range(NUM_RUNS)]) for by_bald in (True, False))
    gains = (chosen - random)[:, 1:]  # the first labels are common
    return {
        f"{20 + NUM_LABELS * (number + 1)} labels": {
            "difference": float(gain.mean()),
            "standard_error": float(gain.std(ddof=1) / NUM_RUNS**0.5),
            "better": int((gain > 0).sum()),
            "runs": NUM_RUNS,
        }
        for number, gain in enumerate(gains.T)
    }


def _learnt(seed: int, by_bald: bool) -> list[float]:
    """Return the accuracy on test digits after each round, with the settings of the page on active learning."""
    network = bz.models.mlp(64, (40,), 10, activation="relu")
    model = bz.models.supervised(network, bz.priors.fan_in(8.0), bz.likelihoods.categorical())
    method = bz.MAP(num_members=10, num_steps=100, learning_rate=0.05, polish_steps=0)
    digits, rng = load_digits(), np.random.default_rng(seed)
    x, y, order = digits.data / 16, digits.target, rng.permutation(len(digits.target))
    pool, test = order[:POOL], order[POOL:]
    labelled, accuracies = list(pool[:20]), []
    for _ in range(NUM_ROUNDS):
        posterior = bz.fit(model, method, x[labelled], y[labelled], seed=seed, progress=False)
        wrong = bz.calibration.misclassified(bz.predict(posterior, x[test], y[test]))
        accuracies.append(1 - float(wrong.mean()))
        rest = np.setdiff1d(pool, labelled)
        score = bz.acquisition.bald(bz.predict(posterior, x[rest]))
        if not by_bald:
            score = score.copy(data=rng.random(score.size))
        labelled += list(rest[bz.acquisition.select(score, NUM_LABELS)])
    return accuracies


TABLES: dict[str, Callable[[], Row]] = {
    "flow": flow,
    "swag": swag,
    "estimators": estimators,
    "relaxation": relaxation,
    "acquisition": acquisition,
}


if __name__ == "__main__":
    for table in sys.argv[1:]:
        results = TABLES[table]()
        for name, row in results.items():
            print(name, row, flush=True)
        write(f"methods_{table}", {"results": results})
