"""Airfoil self-noise and bike sharing: deep ensembles, and microcanonical chains from their members, against published runs.

Eighty percent of the rows are for training; inputs and target are standardised by them. The network has four hidden layers of 16
units, a noise scale that depends on the inputs and the prior N(0, 1), as in the published runs. Seconds are processor time of fit
and predictions.

Run: python -m benchmarks.microcanonical choose TABLE                   (the activation, on a fifth of the training part)
     python -m benchmarks.microcanonical score TABLE FOLDER [seed ...]  (both methods; FOLDER keeps the densities of each chain)
     python -m benchmarks.microcanonical chains TABLE FOLDER            (log density by number of chains)
     python -m benchmarks.microcanonical bias TABLE FOLDER              (against an exact sampler; FOLDER keeps the chains)

TABLE is airfoil or bike: airfoil.csv and bike/hour.csv in BNNZOO_DATA. Chains of this network stay near the members from which
they start. Bias is therefore measured within chains: all samplers go on from where the same chains with long steps ended, and each
is compared with the exact one chain by chain. Another call makes the chains in FOLDER longer.
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
BIAS_CHAINS, BIAS_SEED = 4, 0
STEPS_PER_DRAW = 250
STEP = RESULTS / "microcanonical_step.json"


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


def model_for(part: bz.datasets.Split, activation: Any) -> Any:
    """Return the network with its prior and likelihood."""
    net = bz.models.mlp(part.x_test.shape[1], HIDDEN, 2, activation=activation)
    return bz.models.supervised(net, bz.priors.normal(1.0), bz.likelihoods.heteroscedastic_gaussian())


def predicted(method: Any, activation: Any, part: bz.datasets.Split, seed: int) -> tuple[xr.DataTree, float]:
    """Fit to the training part and predict the other; return the tree and the processor seconds."""
    began, model = processor_seconds(), model_for(part, activation)
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


def samplers(table: str, start: Any) -> dict[str, Any]:
    """Return the samplers of the comparison, the exact one first, whose chains start where those of another run ended.

    The long steps go on as they were tuned on the way from the members, the others adapt first.
    """
    long = replace(
        TABLES[table].chains, num_chains=BIAS_CHAINS, num_draws=200, steps_per_draw=STEPS_PER_DRAW, init=start
    )
    tenth, default = (replace(long, num_warmup=300, energy_variance=variance) for variance in (5e-3, 5e-4))
    return {
        "MAMS": bz.MAMS(num_chains=BIAS_CHAINS, num_warmup=150, num_draws=200, max_steps=500, init=start),
        "MCLMC 0.05": replace(long, num_warmup=0),
        "MCLMC 0.0005": default,
        "MCLMC 0.005": tenth,
    }


def longer(method: Any, path: Path, model: Any, part: bz.datasets.Split) -> Any:
    """Return the chains kept in a file, which this call begins, or makes longer by the draws of the method."""
    data = part.x_train, part.y_train
    if path.exists():
        before: Any = bz.load(path, model, *data)
        more: Any = replace(method, init=before, num_warmup=0)
        found = before.followed_by(bz.fit(model, more, *data, seed=BIAS_SEED, progress=False))
    else:
        found = bz.fit(model, method, *data, seed=BIAS_SEED, progress=False)
    found.save(path)
    return found


def quantities(train: xr.DataTree, test: xr.DataTree) -> xr.Dataset:
    """Return what is compared ``[chain, draw]``: of each draw the log densities and the inferred noise, averaged over rows."""

    def of_rows(tree: xr.DataTree) -> xr.DataArray:
        return next(iter(tree["predictions_log_likelihood"].data_vars.values()))

    return xr.Dataset(
        {
            "log posterior density": train["sample_stats"]["lp"],
            "log likelihood": of_rows(train).sum("obs_id"),
            "mean noise sd": np.sqrt(train["conditional"]["variance"]).mean("obs_id"),
            "mean log noise sd": 0.5 * np.log(train["conditional"]["variance"]).mean("obs_id"),
            "test log density of a draw": of_rows(test).mean("obs_id"),
        }
    ).astype(float)


def within(quantity: xr.DataArray) -> xr.Dataset:
    """Return of each chain alone its mean, sd, drift, Monte Carlo error, effective draws and R-hat ``[chain]``, by its halves."""
    half, found = quantity.sizes["draw"] // 2, []
    for chain in quantity.transpose("chain", "draw").to_numpy():
        halves = chain[-2 * half :].reshape(2, half)
        mixed = bz.diagnostics.convergence(xr.DataArray(halves, dims=("chain", "draw")))
        drift = halves[1].mean() - halves[0].mean()
        found.append(mixed.assign(mean=halves.mean(), sd=halves.std(), drift=drift))
    return xr.concat(found, "chain")


def compared(run: xr.Dataset, exact: xr.Dataset) -> dict[str, dict[str, float]]:
    """Return of each quantity the difference of its mean from that of the exact run, paired by chain.

    Standard errors are those of Monte Carlo, and the scatter of differences between chains, which also holds what chains
    have not yet forgotten.
    """
    found = {}
    for name in exact.data_vars:
        own, theirs = within(run[name]), within(exact[name])
        gaps, sd = own["mean"] - theirs["mean"], float(np.sqrt((theirs["sd"] ** 2).mean()))
        chance = float(np.sqrt((own["mcse_mean"] ** 2 + theirs["mcse_mean"] ** 2).sum()) / len(gaps))
        scatter = float(gaps.std(ddof=1) / np.sqrt(len(gaps)))
        found[str(name)] = {
            "mean": float(own["mean"].mean()),
            "difference": float(gaps.mean()),
            "standard error": chance,
            "standard error between chains": scatter,
            "difference in sds": float(gaps.mean()) / sd,
            "standard error in sds": chance / sd,
            "standard error between chains in sds": scatter / sd,
            "sd ratio": float(np.exp(np.log(own["sd"] / theirs["sd"]).mean())),
            "drift in sds": float(own["drift"].mean()) / sd,
            "effective draws": float(own["ess_bulk"].sum()),
            "largest R-hat": float(own["rhat"].max()),
        }
    return found


def held_out(run: NDArray[np.floating], exact: NDArray[np.floating]) -> dict[str, float]:
    """Return the differences of log densities ``[chain, row]`` on average over rows, of one chain and of the mixture."""
    each, chains = (run - exact).mean(1), range(len(exact))

    def mixture(kept: Sequence[int]) -> float:
        one, other = (logsumexp(densities[kept], axis=0) for densities in (run, exact))
        return float((one - other).mean())

    without = np.array([mixture([chain for chain in chains if chain != left]) for left in chains])
    jackknife = np.sqrt((len(chains) - 1) * without.var())
    return {
        "one chain": float(each.mean()),
        "standard error of one chain": float(each.std(ddof=1) / np.sqrt(len(each))),
        "mixture": mixture([*chains]),
        "standard error of the mixture": float(jackknife),
    }


def functions(run: xr.DataTree, exact: xr.DataTree) -> dict[str, float]:
    """Return distances of the means of f(x*) and ratios of its sds, on average over test rows and chains, each chain alone."""
    found = []
    for chain in range(exact["conditional"].sizes["chain"]):
        both = {
            name: xr.DataTree.from_dict({"conditional": tree["conditional"].to_dataset()[["mean"]].isel(chain=[chain])})
            for name, tree in (("run", run), ("exact", exact))
        }
        found.append(bz.diagnostics.compare_posteriors(both, "exact").mean())
    joined = xr.concat(found, "chain").mean()
    return {name: float(joined[name]) for name in ("mean_difference", "mean_difference_floor", "sd_ratio")}


def bias(table: str, folder: Path) -> None:
    """Make all chains longer and write how those of each step differ from the exact ones."""
    chosen, activation = TABLES[table], read(table)["activation"]
    part = standardised(rows_of(table, DATA), seed=0)
    model = model_for(part, activation)
    folder.mkdir(parents=True, exist_ok=True)
    first = replace(
        chosen.chains,
        num_chains=BIAS_CHAINS,
        num_draws=400,
        steps_per_draw=STEPS_PER_DRAW,
        init=replace(chosen.ensemble, num_members=BIAS_CHAINS),
    )
    path, data = folder / f"{table}_start.safetensors", (part.x_train, part.y_train)
    start: Any = bz.load(path, model, *data) if path.exists() else longer(first, path, model, part)
    quarters = start.info.sample_stats["lp"].unflatten(1, (4, -1)).mean(-1)
    runs: dict[str, Any] = {
        "start": {
            "settings": repr(first),
            "gradients": start.info.num_gradients,
            "log posterior density of each chain by quarters": quarters.tolist(),
        }
    }
    exact: Any = None
    for name, method in samplers(table, start).items():
        posterior = longer(method, folder / f"{table}_{name}.safetensors", model, part)
        train = bz.predict(posterior, part.x_train, part.y_train, num_draws=None, seed=BIAS_SEED)
        test = bz.predict(posterior, part.x_test, part.y_test, num_draws=None, seed=BIAS_SEED)
        exact = exact or (quantities(train, test), test)
        stats = {key: float(value.double().mean()) for key, value in posterior.info.sample_stats.items()}
        runs[name] = {
            "settings": repr(replace(method, init=None)),
            "draws": posterior.draws().shape[1],
            "gradients": posterior.info.num_gradients,
            "statistics": stats,
            "quantities": compared(quantities(train, test), exact[0]),
            "test log density": held_out(by_chain(test), by_chain(exact[1])),
            "functions": functions(test, exact[1]),
            **scores(test, part.y_test),
        }
        print(name, json.dumps(runs[name], indent=1), flush=True)
        known = json.loads(STEP.read_text()) if STEP.exists() else {}
        write("microcanonical_step", {key: value for key, value in known.items() if key in TABLES} | {table: runs})


if __name__ == "__main__":
    command, table, *rest = sys.argv[1:]
    if command == "choose":
        choose(table)
    elif command == "score":
        score(table, Path(rest[0]), [*map(int, rest[1:])] or range(5))
    elif command == "bias":
        bias(table, Path(rest[0]))
    else:
        chains(table, Path(rest[0]))
