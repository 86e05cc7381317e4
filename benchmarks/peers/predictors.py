"""Gradient boosting (scikit-learn) and BART (stochtree) with their defaults on airfoil self-noise and bike sharing.

Run: python -m benchmarks.peers.predictors DATA [OUT]      (DATA has airfoil.csv and bike/hour.csv; no bnnzoo)

Rows are split and standardised as in `benchmarks.microcanonical`. BART has one residual standard deviation; boosting gives a mean
alone.
"""

import json
import sys
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
from scipy.special import logsumexp
from scipy.stats import norm
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import train_test_split
from stochtree import BARTModel

from benchmarks.peers.rows import FILES, rows_of

SEEDS = range(5)


def boosting(train, test, seed):
    """Return predictions of boosted trees, which have no density."""
    return HistGradientBoostingRegressor(random_state=seed).fit(train[:, :-1], train[:, -1]).predict(test[:, :-1]), None


def bart(train, test, seed):
    """Return the mean over draws of BART, and the log density of the outcomes."""
    model = BARTModel()
    model.sample(train[:, :-1], train[:, -1], X_test=test[:, :-1], general_params={"random_seed": seed})
    sd = np.sqrt(model.global_var_samples)
    log_density = norm(model.y_hat_test, sd).logpdf(test[:, -1:])
    return model.y_hat_test.mean(1), logsumexp(log_density, axis=1) - np.log(log_density.shape[1])


def main(folder, out):
    """Write the scores and print them."""
    found = {}
    for name in FILES:
        train, test = train_test_split(rows_of(name, folder), test_size=0.2, random_state=0)
        centre, scale = train.mean(0), train.std(0)
        train, test = (train - centre) / scale, (test - centre) / scale
        for method, run in {"gradient boosting": boosting, "BART": bart}.items():
            scores = []
            for seed in SEEDS:
                began = time.process_time()
                mean, log_density = run(train, test, seed)
                seconds = time.process_time() - began
                rmse = float(np.sqrt(np.mean((mean - test[:, -1]) ** 2)))
                nll = None if log_density is None else -float(log_density.mean())
                scores.append({"rmse": rmse, "nll": nll, "seconds": seconds})
            found.setdefault(name, {})[method] = scores
            print(name, method, scores, flush=True)
    versions = {package: version(package) for package in ("scikit-learn", "stochtree", "numpy")}
    out.write_text(json.dumps({"name": "predictors", "scores": found, "versions": versions}, indent=1))


if __name__ == "__main__":
    data, *rest = map(Path, sys.argv[1:])
    main(data, *rest or [Path(__file__).parents[1] / "results" / "predictors.json"])
