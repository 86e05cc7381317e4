"""Make reference posteriors: ``python -m bnnzoo.zoo.make_reference NAME``."""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray

from bnnzoo.core.data.minibatch import as_tensors
from bnnzoo.core.method import FitContext, Method
from bnnzoo.core.model.density import build_density
from bnnzoo.diagnostics import compare_posteriors, function_space
from bnnzoo.inference import MAMS, NUTS
from bnnzoo.inference.config import config_of
from bnnzoo.inference.starts import starting_points
from bnnzoo.predictive.save_tree import save_tree
from bnnzoo.trees import SAMPLE_DIMS
from bnnzoo.zoo.card import Card
from bnnzoo.zoo.catalogue import load
from bnnzoo.zoo.data import ZooError, fingerprint
from bnnzoo.zoo.reference import FOLDER, as_stored, checksum, predicted, with_all_classes

__all__ = ["check", "far_apart", "main", "make_reference", "stored", "write"]

MAX_RHAT, MIN_ESS, MIN_TAIL, MIN_CHAINS = 1.01, 1000.0, 400.0, 8
MAX_CHECKS = 2  # runs of another sampler, since one in twenty of equal posteriors exceeds its limit
KEPT_DRAWS = 128  # of each chain
MAX_SITE = 8  # numbers of a latent site that is stored
KEPT_BITS = 13  # of a mantissa: relative errors of 1e-4, far below the Monte Carlo error


def make_reference(
    card: Card, *, seed: int = 0, folder: str | Path | None = None, all_draws: bool = False
) -> xr.DataTree:
    """Run a card's long run, judge it in function space, and return what is stored of it.

    Parameters
    ----------
    card : Card
        With a ``long_run``.
    seed : int
    folder : str or Path, optional
        The user's folder of data, for cards that need it.
    all_draws : bool
        Keep all of them, with all moments of predictions and all sites but weights, and not 128 of each chain.

    Raises
    ------
    ZooError
        If the card has no long run, or the run has not converged.
    """
    if card.long_run is None:
        raise ZooError(
            f"Card {card.name!r} has no long run: give it long_run=, an exact sampler with {MIN_CHAINS} chains."
        )
    posterior = card.fit(card.long_run, seed=seed, folder=folder)
    tree = card.predict(posterior, folder=folder, weights=False)
    return stored(card, tree, folder, all_draws=all_draws)


def stored(card: Card, tree: xr.DataTree, folder: str | Path | None = None, *, all_draws: bool = False) -> xr.DataTree:
    """Return what is stored of a long run, after judging it.

    Raises
    ------
    ZooError
        If the run has too few chains, or its predictions have not converged.
    """
    function, values = function_space(tree), predicted(tree)
    judged = {
        "max_rhat": float(function["rhat"].max()),
        "min_ess_bulk": float(function["ess_bulk"].min()),
        "min_ess_tail": float(function["ess_tail"].min()),
    }
    chains = values.sizes["chain"]
    bulk, tail = judged["min_ess_bulk"], judged["min_ess_tail"]
    if chains < MIN_CHAINS or judged["max_rhat"] >= MAX_RHAT or bulk <= MIN_ESS or tail <= MIN_TAIL:
        raise ZooError(
            f"The long run of {card.name!r} is no reference: {chains} chains, R-hat {judged['max_rhat']:.4f} and effective "
            f"sample sizes {bulk:.0f} and, in the tails, {tail:.0f} of its predictions, and it needs {MIN_CHAINS}, less than "
            f"{MAX_RHAT}, and more than {MIN_ESS:.0f} and {MIN_TAIL:.0f}. Give the card a longer long_run."
        )
    moments = {"mean": values.mean(SAMPLE_DIMS), "sd": values.std(SAMPLE_DIMS)}
    groups = {
        **(_all_draws(tree) if all_draws else _some_draws(tree)),
        "summary": xr.Dataset(moments).merge(function, join="outer").astype("float32"),
        "predictions_constant_data": tree["predictions_constant_data"].to_dataset().astype("float32"),
    }
    result = xr.DataTree.from_dict({name: group for name, group in groups.items() if group.data_vars})
    result.attrs = _attributes(card, tree, folder) | judged
    if all_draws:
        result.attrs["command"] += " --all-draws FOLDER"
    result.attrs["sha256"] = checksum(result)
    return result


def check(card: Card, tree: xr.DataTree, *, seed: int = 0, folder: str | Path | None = None) -> xr.DataTree:
    """Hold a reference against a run of another exact sampler, and note which one and how far apart they are.

    NUTS checks MAMS and MAMS checks NUTS, each with as many chains, which start far apart, where the model's own do: weights are
    drawn from their prior, all else is uniform on (-2, 2). A distance beyond its limit is looked at in one more run.

    Parameters
    ----------
    card : Card
    tree : DataTree
        What :func:`make_reference` returned.
    seed : int
        Of the other run.
    folder : str or Path, optional
        As for :func:`make_reference`.

    Raises
    ------
    ZooError
        If the average Wasserstein distance exceeds its limit in both runs, see :func:`bnnzoo.diagnostics.compare_posteriors`.
    """
    chains = tree["conditional"].sizes["chain"]
    other: Method = MAMS(num_chains=chains, num_warmup=1000, num_draws=4000)
    if tree.attrs["method"] == "MAMS":
        other = NUTS(num_chains=chains, num_warmup=1000, num_draws=1000)
    name, stored_draws = type(other).__name__, with_all_classes(tree)
    for runs in range(1, MAX_CHECKS + 1):
        method = far_apart(other, card, seed + runs, folder) if isinstance(other, MAMS) else other
        run = card.predict(card.fit(method, seed=seed + runs, folder=folder), folder=folder, weights=False)
        short = xr.DataTree.from_dict({"conditional": _thinned(predicted(run)).to_dataset()})
        found = compare_posteriors({name: short, "reference": stored_draws}, "reference").table().loc[name]
        distance, limit = (float(found.to_dict()[each]) for each in ("wasserstein", "wasserstein_limit"))
        if distance <= limit:
            result = tree.copy()
            about = {"checked_by": name, "checked_distance": distance, "checked_limit": limit, "checked_runs": runs}
            result.attrs |= about
            return result
    raise ZooError(
        f"The long run of {card.name!r} is no reference: {name} is {distance:.3f} away from it, and equal posteriors are "
        f"within {limit:.3f}; so it was in each of {MAX_CHECKS} runs. One of the two samplers has not converged; give the card "
        "a longer long_run."
    )


def far_apart(method: MAMS, card: Card, seed: int, folder: str | Path | None = None) -> MAMS:
    """Return MAMS with the model's own starts: by itself it starts at draws of Gaussians near the posterior, if it finds any."""
    data = as_tensors(tuple(card.data(folder).train.values()), card.dtype, torch.device("cpu"))
    density = build_density(card.model(), *data, dtype=card.dtype)
    return replace(method, init=starting_points(None, method.num_chains, density, FitContext(seed=seed)))


def write(tree: xr.DataTree, path: Path) -> None:
    """Write a reference to a file, whole or not at all."""
    compressed = {"zlib": True, "complevel": 9, "shuffle": True}
    encoding = {
        f"/{name}": dict.fromkeys(map(str, group.data_vars), compressed) for name, group in tree.children.items()
    }
    save_tree(tree, path, encoding=encoding)


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the references of the cards named on the command line; return 0, or 2 if one of them was refused."""
    parser = argparse.ArgumentParser(prog="python -m bnnzoo.zoo.make_reference", description=__doc__)
    parser.add_argument("names", nargs="+", metavar="NAME", help="name of a card")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", type=Path, help="folder of data, for cards that need it (default: BNNZOO_DATA)")
    parser.add_argument("--out", type=Path, help="folder of the files (default: that of the package)")
    parser.add_argument(
        "--all-draws", type=Path, metavar="FOLDER", help="write all draws, to another folder than --out"
    )
    parser.add_argument("--check", action="store_true", help="hold the reference against another exact sampler first")
    parser.add_argument("--stored", action="store_true", help="check the file that is there, and make none")
    asked = parser.parse_args(arguments)
    if asked.all_draws and (asked.out or asked.stored):
        parser.error("--all-draws FOLDER is where the files go, and makes them anew: leave out --out and --stored.")
    target: Path = asked.all_draws or asked.out or FOLDER
    target.mkdir(parents=True, exist_ok=True)  # before the long run
    failed = False
    for name in asked.names:
        try:
            if asked.stored:
                tree = as_stored(FOLDER / f"{name}.nc")
            else:
                tree = make_reference(
                    load(name), seed=asked.seed, folder=asked.data, all_draws=asked.all_draws is not None
                )
            if asked.check or asked.stored:
                tree = check(load(name), tree, seed=asked.seed, folder=asked.data)
        except ZooError as error:
            print(f"Error: {error}", file=sys.stderr)
            failed = True
            continue
        write(tree, target / f"{name}.nc")
        about = f"R-hat {tree.attrs['max_rhat']:.4f}, effective sample size {tree.attrs['min_ess_bulk']:.0f}"
        print(f"{name}: {about}{_checked(tree)}", flush=True)
    return 2 if failed else 0


def _checked(tree: xr.DataTree) -> str:
    if "checked_by" not in tree.attrs:
        return ""
    about = tree.attrs
    return f"; {about['checked_by']} {about['checked_distance']:.3f} away (limit {about['checked_limit']:.3f})"


def _some_draws(tree: xr.DataTree) -> dict[str, xr.Dataset]:
    """Return thinned draws of predictions, without the last class, and of small sites."""
    kept = predicted(tree).isel(class_id=slice(-1), missing_dims="ignore")
    return {"conditional": _thinned(kept).to_dataset(), "posterior": _scalars(tree)}


def _all_draws(tree: xr.DataTree) -> dict[str, xr.Dataset]:
    """Return all draws of the moments of predictions, without the last class, and of all sites but weights."""
    kept = tree["conditional"].to_dataset().isel(class_id=slice(-1), missing_dims="ignore")
    sites = tree["posterior"].to_dataset() if "posterior" in tree.children else xr.Dataset()
    return {"conditional": kept.astype("float32"), "posterior": sites.astype("float32")}


def _thinned(values: xr.DataArray) -> xr.DataArray:
    """Return some draws of each chain, evenly spaced, in single precision with few bits."""
    kept = min(KEPT_DRAWS, values.sizes["draw"])
    some = values.isel(draw=np.linspace(0, values.sizes["draw"] - 1, kept).round().astype(int))
    return some.copy(data=_rounded(some.to_numpy())).assign_coords(draw=np.arange(kept))


def _rounded(values: NDArray[np.floating]) -> NDArray[np.float32]:
    """Round to `KEPT_BITS` bits of mantissa, so that files compress."""
    drop = 23 - KEPT_BITS
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    return ((bits + np.uint32(1 << (drop - 1))) & np.uint32(0xFFFFFFFF << drop & 0xFFFFFFFF)).view(np.float32)


def _scalars(tree: xr.DataTree) -> xr.Dataset:
    if "posterior" not in tree.children:
        return xr.Dataset()
    sites = tree["posterior"].to_dataset()
    return xr.Dataset(
        {
            name: _thinned(values)
            for name, values in sites.data_vars.items()
            if values.isel(chain=0, draw=0).size <= MAX_SITE and {*SAMPLE_DIMS} <= {*values.dims}
        }
    )


def _attributes(card: Card, tree: xr.DataTree, folder: str | Path | None) -> dict[str, str | int | float]:
    data = card.data(folder)
    about: dict[str, str | int | float] = {
        "card": card.name,
        "card_version": card.version,
        "command": f"python -m bnnzoo.zoo.make_reference {card.name} --seed {tree.attrs['seed']}",
        "method": type(card.long_run).__name__,
        "settings": json.dumps(config_of(card.long_run)) if card.long_run is not None else "{}",
        "num_draws": int(predicted(tree).sizes["chain"] * predicted(tree).sizes["draw"]),
        "fingerprint": json.dumps(fingerprint(data.train) + fingerprint(data.test)),
        "sampling": "mcmc",
    }
    return about | {str(k): v for k, v in tree.attrs.items() if str(k).endswith("version") or k == "seed"}


if __name__ == "__main__":
    sys.exit(main())
