"""Airfoil self-noise and bike sharing: deep ensembles, and microcanonical chains from their members, against published runs.

Eighty percent of the rows are for training; inputs and target are standardised by them. The network has four hidden layers of 16
units, a noise scale that depends on the inputs and the prior N(0, 1), as in the published runs. Seconds are processor time of fit
and predictions.

Run: python -m benchmarks.microcanonical choose TABLE                   (the activation, on a fifth of the training part)
     python -m benchmarks.microcanonical score TABLE FOLDER [seed ...]  (both methods; FOLDER keeps the densities of each chain)
     python -m benchmarks.microcanonical chains TABLE FOLDER            (log density by number of chains)

TABLE is airfoil or bike: airfoil.csv and bike/hour.csv in BNNZOO_DATA.
"""

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.special import logsumexp
from scipy.stats import norm
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import train_test_split

import bnnzoo as bz
from benchmarks.pairs import RESULTS, processor_seconds, write
from benchmarks.peers.rows import rows_of

DATA = Path(os.environ.get("BNNZOO_DATA", "."))
HIDDEN = (16, 16, 16, 16)
ACTIVATIONS = ("relu", "tanh")
NUMBERS = (1, 2, 5, 10, 20, 30, 50)
REPEATS = 200


class Table(NamedTuple):
    """A table and what is fitted to it.

    Attributes
    ----------
    ensemble : DeepEnsemble
    chains : MCLMC
        Its chains start from the members.
    published : dict
        Root mean squared error and negative log density of scikit-learn-contrib's bde (2026) and others on the same split.
    """

    ensemble: bz.DeepEnsemble
    chains: bz.MCLMC
    published: dict[str, tuple[float, float | None]]


TABLES = {
    "airfoil": Table(
        bz.DeepEnsemble(8, num_steps=4000),
        bz.MCLMC(num_chains=8, num_warmup=500, num_draws=125, steps_per_draw=2500, energy_variance=0.05),
        {"deep ensemble": (0.365, 0.176), "microcanonical ensemble": (0.1215, -0.913)},
    ),
    "bike": Table(
        bz.DeepEnsemble(10, num_steps=60_000, batch_size=512),
        bz.MCLMC(num_chains=10, num_warmup=100, num_draws=100, steps_per_draw=200, energy_variance=0.05),
        {
            "random forest": (0.2440, None),
            "XGBoost": (0.2143, None),
            "TabPFN v2": (0.2103, -0.6856),
            "deep ensemble": (0.2880, -0.4550),
            "microcanonical ensemble": (0.2261, -0.7315),
        },
    ),
}


def standardised(rows: NDArray[np.floating], seed: int) -> bz.datasets.Split:
    """Return four fifths of the rows for training and the rest, whose last column is the target, in units of the former."""
    train, test = train_test_split(rows, test_size=0.2, random_state=seed)
    return bz.datasets.Split(train[:, :-1], train[:, -1], test[:, :-1], test[:, -1]).standardized()


def predicted(method: Any, activation: Any, part: bz.datasets.Split, seed: int) -> tuple[xr.DataTree, float]:
    """Fit to the training part and predict the other; return the tree and the processor seconds."""
    net = bz.models.mlp(part.x_test.shape[1], HIDDEN, 2, activation=activation)
    model = bz.models.supervised(net, bz.priors.normal(1.0), bz.likelihoods.heteroscedastic_gaussian())
    began = processor_seconds()
    posterior = bz.fit(model, method, part.x_train, part.y_train, seed=seed, progress=False)
    tree = bz.predict(posterior, part.x_test, part.y_test, num_draws=None, seed=seed)
    return tree, processor_seconds() - began


def scores(tree: xr.DataTree, y: NDArray[np.floating]) -> dict[str, float]:
    """Return root mean squared error, log scores of the mixture and of a Gaussian with its moments, and coverage."""
    moments = bz.uncertainty.decompose(tree)
    mean = tree["conditional"]["mean"].mean(("chain", "draw")).to_numpy()
    sd = np.sqrt(moments["total"].to_numpy())
    return {
        "rmse": float(np.sqrt(np.mean((mean - y) ** 2))),
        "nll": float(bz.calibration.nll(tree).mean()),
        "nll of a Gaussian": float(-norm(mean, sd).logpdf(y).mean()),
        "coverage of 90% intervals": float(bz.calibration.coverage_curve(tree, levels=[0.9])["coverage"].squeeze()),
    }


def by_chain(tree: xr.DataTree) -> NDArray[np.floating]:
    """Return the log density of each test row by each chain alone ``[chain, row]``."""
    log_density = next(iter(tree["predictions_log_likelihood"].data_vars.values()))
    log_density = log_density.transpose("chain", "draw", ...).to_numpy()
    return logsumexp(log_density, axis=1) - np.log(log_density.shape[1])


def read(table: str) -> dict[str, Any]:
    """Return what has been measured of a table."""
    path = RESULTS / f"microcanonical_{table}.json"
    return json.loads(path.read_text()) if path.exists() else {}


def note(table: str, **found: Any) -> None:
    """Add to what has been measured."""
    write(f"microcanonical_{table}", read(table) | found)


def choose(table: str) -> None:
    """Choose the activation with which the ensemble best predicts a fifth of the training part."""
    train, _ = train_test_split(rows_of(table, DATA), test_size=0.2, random_state=0)
    part, found = standardised(train, seed=1), {}
    for activation in ACTIVATIONS:
        tree, seconds = predicted(TABLES[table].ensemble, activation, part, 0)
        found[activation] = scores(tree, part.y_test) | {"seconds": seconds}
        print(activation, found[activation], flush=True)
    note(table, choice=found, activation=min(found, key=lambda each: found[each]["nll"]))


def score(table: str, folder: Path, seeds: Sequence[int]) -> None:
    """Score both methods on the test rows with each seed that has no score yet."""
    chosen, known = TABLES[table], read(table)
    part = standardised(rows_of(table, DATA), seed=0)
    line = LinearRegression().fit(part.x_train, part.y_train).predict(part.x_test)
    floor = float(np.sqrt(np.mean((line - part.y_test) ** 2)))
    methods = {"DeepEnsemble": chosen.ensemble, "MCLMC": replace(chosen.chains, init=chosen.ensemble)}
    runs = known.get("runs", [])
    for (name, method), seed in ((each, seed) for each in methods.items() for seed in seeds):
        if any((run["seed"], run["settings"]) == (seed, repr(method)) for run in runs):
            continue
        tree, seconds = predicted(method, known["activation"], part, seed)
        run = {"method": name, "seed": seed, **scores(tree, part.y_test), "seconds": seconds, "settings": repr(method)}
        runs.append(run)
        print({key: value for key, value in run.items() if key != "settings"}, flush=True)
        if name == "MCLMC":
            folder.mkdir(parents=True, exist_ok=True)
            np.save(folder / f"{table}_{seed}.npy", by_chain(tree))
        note(table, runs=runs, linear=floor, published=chosen.published)


def chains(table: str, folder: Path) -> None:
    """Write the log density by number of chains, with the standard deviation over random choices of chains of all seeds."""
    random = np.random.default_rng(0)
    known = np.concatenate([np.load(path) for path in sorted(folder.glob(f"{table}_*.npy"))])
    found = []
    for number in (each for each in NUMBERS if each <= len(known)):
        picked = [random.choice(len(known), number, replace=False) for _ in range(REPEATS)]
        values = [float(np.mean(logsumexp(known[each], axis=0) - np.log(number))) for each in picked]
        found.append({"chains": number, "log density": float(np.mean(values)), "sd": float(np.std(values))})
    print(found)
    note(table, chains=found)


if __name__ == "__main__":
    command, table, *rest = sys.argv[1:]
    if command == "choose":
        choose(table)
    elif command == "score":
        score(table, Path(rest[0]), [*map(int, rest[1:])] or range(5))
    else:
        chains(table, Path(rest[0]))
