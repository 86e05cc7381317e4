"""Airfoil self-noise and bike sharing: deep ensembles, and microcanonical chains from their members, against published runs.

Eighty percent of the rows are for training; inputs and target are standardised by them. The network has four hidden layers of 16
units, a noise scale that depends on the inputs and the prior N(0, 1), as in the published runs. Seconds are processor time of fit
and predictions.

Run: python -m benchmarks.microcanonical choose TABLE                   (the activation, on a fifth of the training part)
     python -m benchmarks.microcanonical score TABLE FOLDER [seed ...]  (both methods; FOLDER keeps the densities of each chain)
     python -m benchmarks.microcanonical chains TABLE FOLDER            (log density by number of chains)
     python -m benchmarks.microcanonical bias TABLE FOLDER [seed ...]   (against an exact sampler; FOLDER keeps the chains)

TABLE is airfoil or bike: airfoil.csv and bike/hour.csv in BNNZOO_DATA. Log densities of these networks drift for longer than runs
take. Bias is therefore measured within short runs of all samplers from the same draws, paired by start: it is the one of
directions that mix within such a run. Other seeds take other draws to start from; name those before to pool all.
"""

import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
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
BIAS_CHAINS, BIAS_STARTS, BIAS_DRAWS = 4, 12, 4
BETWEEN = 20.0
"""Distance between draws of short runs, in posterior sds: half the decoherence length, or two trajectories of mean length."""

EXACT = 0.4
"""Step of the exact sampler in those of the long ones, of whose trajectories it is to accept some 70%."""


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


def samplers(chains: bz.MCLMC, start: Any) -> dict[str, tuple[Any, Any]]:
    """Return the samplers of the comparison, the exact one first, each with what it goes on from.

    All have the scales, and those without a Metropolis step the decoherence length, of the chains with long steps. Energy
    changes grow with the sixth power of the step, by which the shorter steps follow from these. Draws are ``BETWEEN`` apart.
    """
    scales = start.info.tuning
    step, variance = scales["step_size"], chains.energy_variance
    length = torch.full_like(step, BETWEEN / 2)
    exact = {"step_size": EXACT * step, "trajectory_length": length, "inverse_mass": scales["inverse_mass"]}
    found: dict[str, tuple[Any, Any]] = {"MAMS": (bz.MAMS(num_draws=2 * BIAS_DRAWS), exact)}
    for wanted in (variance, variance / 10, variance / 100):
        shorter = (wanted / variance) ** (1 / 6) * step
        steps = round(BETWEEN / float(shorter[0]))
        method = replace(chains, num_draws=BIAS_DRAWS, energy_variance=wanted, steps_per_draw=steps)
        found[f"MCLMC, energy variance {wanted:g}"] = (method, scales | {"step_size": shorter})
    return found


def short_runs(method: Any, tuning: Any, start: Any, data: Any, seed: int) -> Any:
    """Return chains of a sampler, tuned like this, from draws of the second half of other chains; each seed has its own draws."""
    size = start.theta.shape[1]
    theta = start.theta[:, size // 2 + seed :: size // (2 * BIAS_STARTS)][:, :BIAS_STARTS]
    init = replace(start, theta=theta, info=replace(start.info, tuning=tuning))
    number = theta.shape[0] * theta.shape[1]
    going_on = replace(method, num_chains=number, num_warmup=0, init=init)
    return bz.fit(start.density.model, going_on, *data, seed=seed, progress=False)


def kept_draws(run: Any) -> Any:
    """Return the draws of short runs that are ``BETWEEN`` apart, without the first, after which log densities have settled."""
    every = run.theta.shape[1] // BIAS_DRAWS
    kept = slice(2 * every - 1, None, every)
    stats = {name: value[:, kept] for name, value in run.info.sample_stats.items()}
    return replace(run, theta=run.theta[:, kept], info=replace(run.info, sample_stats=stats))


def quantities(run: Any, part: bz.datasets.Split) -> tuple[xr.Dataset, NDArray[np.floating]]:
    """Return what is compared ``[chain, draw]``, and the log density of each test row by each chain alone ``[chain, row]``."""
    train, test = (
        bz.predict(run, *data, num_draws=None, seed=0)
        for data in ((part.x_train, part.y_train), (part.x_test, part.y_test))
    )
    likelihoods, densities = (
        next(iter(tree["predictions_log_likelihood"].data_vars.values())) for tree in (train, test)
    )
    sd = np.sqrt(train["conditional"]["variance"])
    values = {
        "log posterior density": train["sample_stats"]["lp"],
        "log likelihood": likelihoods.sum("obs_id"),
        "mean noise sd": sd.mean("obs_id"),
        "mean log noise sd": np.log(sd).mean("obs_id"),
        "median test log density of a draw": densities.median("obs_id"),
    }
    return xr.Dataset(values).astype(float), by_chain(test)


def compared(run: xr.Dataset, exact: xr.Dataset) -> dict[str, dict[str, Any]]:
    """Return the difference of each mean from that of the exact run, paired by start, with its standard error over starts.

    Its units are those of the quantity, and sds over the exact draws of one short run, and over all that start from one member.
    """
    found = {}
    for name in exact.data_vars:
        gaps = (run[name].mean("draw") - exact[name].mean("draw")).to_numpy()
        difference, error = float(gaps.mean()), float(gaps.std(ddof=1) / np.sqrt(len(gaps)))
        short = float(np.sqrt(exact[name].var("draw", ddof=1).mean()))
        long = float(np.sqrt(np.mean([each.var(ddof=1) for _, each in exact[name].groupby("member")])))
        found[str(name)] = {
            "mean": float(run[name].mean()),
            "difference": difference,
            "standard error": error,
            "difference by draw": (run[name] - exact[name]).mean("chain").to_numpy().tolist(),
            "sd in a run": short,
            "difference in sds of a run": difference / short,
            "standard error in sds of a run": error / short,
            "sd of a member": long,
            "difference in sds of a member": difference / long,
            "standard error in sds of a member": error / long,
        }
    return found


def held_out(run: NDArray[np.floating], exact: NDArray[np.floating]) -> dict[str, float]:
    """Return differences of log densities ``[chain, row]`` on average over rows: of one chain, and of the mixture of all."""
    each, chains = (run - exact).mean(1), np.arange(len(exact))

    def mixture(kept: NDArray[np.integer]) -> float:
        one, other = (logsumexp(densities[kept], axis=0) for densities in (run, exact))
        return float((one - other).mean())

    without = np.array([mixture(chains[chains != left]) for left in chains])
    return {
        "one chain": float(each.mean()),
        "standard error of one chain": float(each.std(ddof=1) / np.sqrt(len(each))),
        "mixture": mixture(chains),
        "standard error of the mixture": float(np.sqrt((len(chains) - 1) * without.var())),
    }


def settled(start: Any) -> dict[str, Any]:
    """Return how the log density of long chains has settled: by quarters, and R-hat and effective draws of each last half."""
    values = start.info.sample_stats["lp"].double()
    halves = values[:, values.shape[1] // 2 :].unflatten(1, (2, -1)).numpy()
    found = [bz.diagnostics.convergence(xr.DataArray(each, dims=("chain", "draw"))) for each in halves]
    return {
        "settings": start.info.config,
        "gradients": start.info.num_gradients,
        "log posterior density by quarters": values.unflatten(1, (4, -1)).mean(-1).tolist(),
        "R-hat": [float(each["rhat"]) for each in found],
        "effective draws": [float(each["ess_bulk"]) for each in found],
    }


def bias(table: str, folder: Path, seeds: Sequence[int]) -> None:
    """Run each sampler from the same draws of chains with long steps, and write how it differs from the exact one."""
    chosen, part = TABLES[table], standardised(rows_of(table, DATA), seed=0)
    model, data = model_for(part, read(table)["activation"]), (part.x_train, part.y_train)
    folder.mkdir(parents=True, exist_ok=True)

    def once(path: Path, run: Callable[[], Any]) -> Any:
        if not path.exists():
            run().save(path)
        return bz.load(path, model, *data)

    members = replace(chosen.ensemble, num_members=BIAS_CHAINS)
    first = replace(chosen.chains, num_chains=BIAS_CHAINS, num_draws=400, steps_per_draw=250, init=members)
    start = once(folder / f"{table}_start.safetensors", lambda: bz.fit(model, first, *data, progress=False))
    runs: dict[str, Any] = {"start": settled(start)}
    exact: Any = None
    for name, (method, tuning) in samplers(chosen.chains, start).items():
        ran = [
            once(folder / f"{table}_{name}_{seed}.safetensors", partial(short_runs, method, tuning, start, data, seed))
            for seed in seeds
        ]
        values, densities = zip(*(quantities(kept_draws(each), part) for each in ran), strict=True)
        pooled = xr.concat(values, "chain").assign_coords(chain=np.arange(sum(map(len, densities))))
        pooled = pooled.assign_coords(member=("chain", pooled["chain"].to_numpy() // BIAS_STARTS % BIAS_CHAINS))
        exact = exact or (pooled, np.concatenate(densities))
        stats = [each.info.sample_stats for each in ran]
        runs[name] = {
            "starts": pooled.sizes["chain"],
            "steps per draw": float(stats[0]["n_steps"].double().mean()),
            "gradients": sum(each.info.num_gradients for each in ran),
            "statistics": {key: float(torch.cat([each[key] for each in stats]).double().mean()) for key in stats[0]},
            "quantities": compared(pooled, exact[0]),
            "test log density": held_out(np.concatenate(densities), exact[1]),
        }
        print(name, json.dumps(runs[name], indent=1), flush=True)
        write("microcanonical_step", {table: runs})


if __name__ == "__main__":
    command, table, *rest = sys.argv[1:]
    if command == "choose":
        choose(table)
    elif command == "score":
        score(table, Path(rest[0]), [*map(int, rest[1:])] or range(5))
    elif command == "bias":
        bias(table, Path(rest[0]), [*map(int, rest[1:])] or [0])
    else:
        chains(table, Path(rest[0]))
