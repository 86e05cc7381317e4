"""Documented numbers of two problems beside those of an exact sampler here, with Monte Carlo errors.

The posterior of Neal's network regression has several modes, between which chains do not move, so that Monte Carlo errors are
those of a jackknife over chains: they include how many chains found which mode. For the plane of Foong et al. the function
along the diagonal is compared, with the reference posterior that the card ships; ``foong_chains`` says how far single chains of
some lengths are from it.

Run: BNNZOO_DATA=... python -m benchmarks.documented neal [chains] [temperatures]
     BNNZOO_DATA=... python -m benchmarks.documented foong                      (which samples nothing)
     BNNZOO_DATA=... python -m benchmarks.documented foong_chains [chains]
"""

import sys
import warnings
from itertools import product
from typing import Any

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray

import bnnzoo as bz
from benchmarks.pairs import processor_seconds, write
from bnnzoo.zoo.cards.foong_one_layer import CARD as PLANE
from bnnzoo.zoo.cards.neal_regression import CARD
from bnnzoo.zoo.data import data_folder

PLACES = np.array([[-3.0], [0.0], [3.0]])
DOCUMENTED: dict[str, tuple[float, float | None]] = {
    "log density": (0.830, 0.022),
    "squared error": (0.0187, 0.0034),
    "mean at -3": (-2.10, None),
    "mean at 0": (1.38, None),
    "mean at 3": (2.96, None),
    "10% at -3": (-2.61, None),
    "90% at -3": (-1.62, None),
    "10% at 0": (1.25, None),
    "90% at 0": (1.52, None),
    "10% at 3": (2.61, None),
    "90% at 3": (3.31, None),
}
"""Values and, where they are documented, standard errors over test observations."""

DIAGONAL = (-1.0, -0.6, -0.3, 0.0, 0.3, 0.6, 1.0)
"""First coordinates of points on the diagonal of the plane: the clusters lie around -1 and 1."""


def numbers(test: xr.DataTree, edges: xr.DataTree, y: NDArray[np.floating]) -> dict[str, float]:
    """Return what is documented, from predictions of the test rows and at the three places."""
    mean = test["conditional"]["mean"].mean(("chain", "draw")).to_numpy()
    drawn = edges["predictions"]["y"]
    found = {"log density": -float(bz.calibration.nll(test).mean()), "squared error": float(((mean - y) ** 2).mean())}
    middle = drawn.mean(("chain", "draw")).to_numpy()
    low, high = drawn.quantile([0.1, 0.9], ("chain", "draw")).to_numpy()
    for row, place in enumerate(("-3", "0", "3")):
        found |= {f"mean at {place}": middle[row], f"10% at {place}": low[row], f"90% at {place}": high[row]}
    return {name: float(found[name]) for name in DOCUMENTED}


def jackknife(test: xr.DataTree, edges: xr.DataTree, y: NDArray[np.floating]) -> dict[str, float]:
    """Return the jackknife's standard error over chains of each number."""
    chains = test["conditional"].sizes["chain"]
    kept = [[each for each in range(chains) if each != left] for left in range(chains)]
    found = [numbers(test.isel(chain=some), edges.isel(chain=some), y) for some in kept]
    scale = (chains - 1) ** 0.5
    return {name: float(scale * np.std([each[name] for each in found])) for name in DOCUMENTED}


def neal(chains: int = 8, temperatures: int = 0) -> None:
    """Fit the card's data by NUTS, or by as many ladders of it, and print and write the table."""
    table, began = np.loadtxt(data_folder(CARD.name, "fbm/rdata")), processor_seconds()
    sampler = bz.NUTS(num_chains=chains, num_warmup=1000, num_draws=1000, target_accept=0.95)
    method = bz.Tempered(sampler, num_temperatures=temperatures) if temperatures else sampler
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bz.FitWarning)  # chains are in different modes
        posterior = bz.fit(CARD.model(), method, table[:100, :1], table[:100, 1], dtype=torch.float64, progress=False)
    y = table[100:, 1]
    test, edges = (bz.predict(posterior, *rows, num_draws=None) for rows in ((table[100:, :1], y), (PLACES,)))
    found, errors = numbers(test, edges, y), jackknife(test, edges, y)
    settings: dict[str, Any] = {"chains": chains, "test_rows": len(y), "seconds": processor_seconds() - began}
    if temperatures:
        said = posterior.info.config["tempering"]
        settings |= {
            "temperatures": temperatures,
            **{key: said[key] for key in ("round_trips", "communication_barrier")},
        }
    _table("documented_neal_tempered" if temperatures else "documented_neal", DOCUMENTED, found, errors, settings)


def places() -> tuple[xr.Dataset, NDArray[np.integer], NDArray[np.floating], dict[str, NDArray[np.floating]]]:
    """Return the reference's summary, its rows nearest to ``DIAGONAL``, their inputs, and the published moments there."""
    with np.load(data_folder(PLANE.name, "foong2d/hmc_1HL.npz")) as arrays:
        along = arrays["xlambdas"][:, 0]
        moments = {"mean": arrays["pred_mean_slice"].ravel(), "sd": np.sqrt(arrays["pred_var_slice"]).ravel()}
    tree = bz.zoo.reference(PLANE.name)
    x = tree["predictions_constant_data"]["x"].to_numpy()
    rows = np.array([np.argmin(np.abs(x[:, 0] - place)) for place in DIAGONAL])
    published = {moment: np.interp(x[rows, 0], along, values) for moment, values in moments.items()}
    return tree["summary"].to_dataset(), rows, x[rows], published


def foong() -> None:
    """Print and write the function in the gap and at the clusters: published, and of the reference posterior."""
    here, rows, _, published = places()
    documented, found, errors = {}, {}, {}
    for moment, (number, place) in product(published, enumerate(DIAGONAL)):
        name = f"{moment} at {place:g}"
        documented[name] = (float(published[moment][number]), None)
        found[name], errors[name] = (float(here[each][rows[number]]) for each in (moment, f"mcse_{moment}"))
    _table(
        "documented_foong", documented, found, errors, {"draws": int(bz.zoo.reference(PLANE.name).attrs["num_draws"])}
    )


def foong_chains(chains: int = 16) -> None:
    """Print and write how far the means of single chains are from the reference, in its sds, next to the published ones.

    Trajectories of length 0.2 take a quarter of the steps that those of `HMC` as typed take, which its ``max_steps`` ends.
    """
    here, rows, x, published = places()
    mean, sd = (here[moment].to_numpy()[rows].astype(float) for moment in ("mean", "sd"))
    found = {"published": {"distance": np.abs((published["mean"] - mean) / sd), "log_sd": np.log(published["sd"] / sd)}}
    lengths: dict[str, Any] = {"num_chains": chains, "num_warmup": 1000, "num_draws": 1000}
    methods = {
        "NUTS": bz.NUTS(**lengths),
        "HMC": bz.HMC(**lengths),
        "HMC, short": bz.HMC(**lengths, trajectory_length=0.2),
    }
    costs: dict[str, Any] = {}
    data = PLANE.data().train
    for name, method in methods.items():
        began = processor_seconds()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", bz.FitWarning)  # how far chains are apart is what is asked
            posterior = bz.fit(PLANE.model(), method, data["x"], data["y"], progress=False)
        drawn = (
            bz.predict(posterior, x, num_draws=None)["conditional"]["mean"].transpose("chain", "draw", ...).to_numpy()
        )
        drawn = drawn.reshape(chains, -1, len(rows))
        apart, logs = (drawn.mean(1) - mean) / sd, np.log(drawn.std(1) / sd)
        found[name] = {"distance": (apart**2).mean(0) ** 0.5, "log_sd": (logs**2).mean(0) ** 0.5}
        costs[name] = {
            "largest_distance": np.abs(apart).max(0).tolist(),
            "gradients_of_a_chain": posterior.info.num_gradients / chains,
            "seconds": processor_seconds() - began,
        }
    print("| | " + " | ".join(f"{place:g}" for place in DIAGONAL) + " |\n" + "|---" * (len(DIAGONAL) + 1) + "|")
    for name, row in found.items():
        print(f"| {name} | " + " | ".join(f"{value:.2f}" for value in row["distance"]) + " |")
    shown = {name: {key: value.tolist() for key, value in row.items()} for name, row in found.items()}
    write("documented_foong_chains", {**lengths, "places": DIAGONAL, "root_mean_squares": shown, "costs": costs})


def _table(
    name: str,
    documented: dict[str, tuple[float, float | None]],
    found: dict[str, float],
    errors: dict[str, float],
    settings: dict[str, Any],
) -> None:
    print("| | documented | here | Monte Carlo error |\n|---|---|---|---|")
    for key, (value, error) in documented.items():
        stated = f"{value:g} ± {error}" if error else f"{value:.4g}"
        print(f"| {key} | {stated} | {found[key]:.3f} | {errors[key]:.3f} |")
    write(name, {**settings, "documented": documented, "here": found, "monte_carlo_errors": errors})


if __name__ == "__main__":
    {"neal": neal, "foong": foong, "foong_chains": foong_chains}[sys.argv[1]](*map(int, sys.argv[2:]))
