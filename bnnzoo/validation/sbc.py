"""Simulation-based calibration: whether a method's posteriors are right on average over data that the model makes."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
import xarray as xr
from torch import Tensor

from bnnzoo.core.archive import read_archive, write_archive
from bnnzoo.core.arguments import positional
from bnnzoo.core.density import LogDensity, build_density
from bnnzoo.core.executors import run_on
from bnnzoo.core.fingerprint import identity
from bnnzoo.core.method import Method
from bnnzoo.core.minibatch import as_tensors, usable_device
from bnnzoo.core.settings import check_argument, check_settings
from bnnzoo.core.types import Model
from bnnzoo.inference.fit import refuse_no_method
from bnnzoo.inference.many import seed_of_fit
from bnnzoo.inference.progress import progress_for
from bnnzoo.labelled import holm, refuse_other_kind
from bnnzoo.validation.refits import fits_like
from bnnzoo.validation.simulations import Quantities, Simulation, draws_of, places_of_outcomes, ranks_of

__all__ = ["sbc", "sbc_verdict"]

SIMULATIONS_PER_WRITE, SIMULATIONS_PER_TASK = 20, 5


def sbc(
    model: Model,
    method: Method,
    *data: Any,
    num_simulations: int = 100,
    num_draws: int = 99,
    around: Literal["prior", "posterior"] = "prior",
    quantities: Quantities | None = None,
    path: str | Path | None = None,
    seed: int = 0,
    executor: Executor | None = None,
    progress: bool = True,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> xr.DataTree:
    r"""Return the ranks of true parameters among a method's draws, over data sets simulated from the model.

    .. math:: \tilde\theta \sim p(\theta), \quad \tilde y \sim p(y \mid \tilde\theta), \quad
        \theta_1, \ldots, \theta_L \sim q(\theta \mid \tilde y), \quad r = \sum_l 1[f(\theta_l) < f(\tilde\theta)]

    If q is the posterior, the rank of every quantity f is uniform on 0, ..., L. Ranks are taken of each latent value that is no
    network weight, of the log likelihood, which depends on the data and sees what the others miss, and of the first few
    conditional means, through which the weights are judged.

    Parameters
    ----------
    model, method, *data
        As for :func:`bnnzoo.fit`. The observations say where simulated ones go; their values do not matter with
        ``around="prior"``.
    num_simulations : int
        Number of data sets, each of which is fitted.
    num_draws : int
        L, the draws among which each truth is ranked: independent ones of an approximation, evenly spaced ones of Markov
        chains. Choose at most the chains' effective sample size.
    around : str
        "prior" draws the parameters from the prior. "posterior" draws them from the method's posterior given the data, and
        adds the simulated rows to those there are: it asks about the data at hand, where priors are wide.
    quantities : callable, optional
        ``(values, *data) -> {name: Tensor}`` with further test quantities of the latent values, by site.
    path : str or Path, optional
        File for the ranks so far, written every few simulations; the same call goes on from there.
    seed : int
        Of simulations and fits.
    executor : concurrent.futures.Executor, optional
        Where simulations run; default: one after the other in this process.
    progress : bool
        Show a progress bar where standard error is a terminal.
    dtype, device
        As for :func:`bnnzoo.fit`.

    Returns
    -------
    DataTree
        Group ``prior_sbc``, or ``posterior_sbc``, with integer ranks ``[chain, draw, ...]``: one chain, and a draw for each
        simulation, as ``az.plot_ecdf_pit`` takes them. The root's attribute ``num_draws`` is L.

    Raises
    ------
    ValueError
        If a number is out of range, the model's observations cannot be simulated, the method gives fewer draws than are
        asked for, or the file holds another calibration.

    References
    ----------
    Talts, Betancourt, Simpson, Vehtari and Gelman (2018), Validating Bayesian inference algorithms with simulation-based
    calibration, arXiv 1804.06788. Modrák, Moon, Kim, Bürkner, Huurre, Faltejsková, Gelman and Vehtari (2023),
    Simulation-based calibration checking for Bayesian computation: the choice of test quantities shapes sensitivity, Bayesian
    Analysis. Säilynoja, Schmitt, Bürkner and Vehtari (2025), Posterior SBC: simulation-based calibration checking
    conditional on data, arXiv 2502.03279.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian(num_inputs=1)
    >>> ranks = bz.validation.sbc(target.model, bz.Laplace(bz.MAP(num_steps=50)), *target.data, num_simulations=2, progress=False)
    >>> dict(ranks["prior_sbc"]["w"].sizes)
    {'chain': 1, 'draw': 2, 'w_dim_0': 1}
    """
    refuse_no_method(method)
    _refuse_bad_counts(num_simulations, num_draws)
    check_argument("sbc", "around", around, Literal["prior", "posterior"])
    check_settings(method)
    target, dtype = usable_device(device), dtype or torch.get_default_dtype()
    tensors = as_tensors(positional(model, data, {}), dtype, target)
    density = build_density(model, *tensors, dtype=dtype, device=target)
    places = places_of_outcomes(density)
    truths = None
    if around == "posterior":
        truths = draws_of(*fits_like(density, method, 1)([density.data], [seed]), num_simulations)
    simulations = [
        Simulation(
            method,
            places,
            num_draws,
            seed=seed_of_fit(seed, number),
            theta=None if truths is None else truths[number],
            quantities=quantities,
            appended=truths is not None,
            num_simulations=num_simulations,
        )
        for number in range(num_simulations)
    ]
    header = _header(method, density, num_draws, around, seed)
    ranks = _ranks(simulations, density, None if path is None else Path(path), header, executor, progress)
    return _tree(ranks, f"{around}_sbc", header)


def sbc_verdict(tree: xr.DataTree, prob: float = 0.95) -> pd.DataFrame:
    """Return for every test quantity whether its ranks are uniform, and if not, in which way.

    Parameters
    ----------
    tree : DataTree
        From :func:`sbc`.
    prob : float
        Probability with which no quantity of a right method is flagged, however many there are (Holm's correction of
        ArviZ's test of uniformity, ``pot_c``).

    Returns
    -------
    DataFrame
        By quantity: ``mean`` and ``sd`` of the ranks divided by L, 0.5 and 0.289 if uniform; ``p`` of the test; ``uniform``;
        and ``finding``, such as "draws too narrow".

    Raises
    ------
    ValueError
        If the tree has no ranks.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian(num_inputs=1)
    >>> ranks = bz.validation.sbc(target.model, bz.Laplace(bz.MAP(num_steps=50)), *target.data, num_simulations=8, progress=False)
    >>> bool(bz.validation.sbc_verdict(ranks).loc["w[0]", "uniform"])
    True
    """
    refuse_other_kind(tree, xr.DataTree, "tree", "what sbc returned, as in sbc_verdict(sbc(model, method, x, y))")
    group = next((name for name in ("prior_sbc", "posterior_sbc") if name in tree.children), None)
    if group is None:
        raise ValueError(
            f"sbc_verdict takes the ranks that sbc returned, but the tree has neither prior_sbc nor posterior_sbc (groups: "
            f"{', '.join(tree.children) or 'none'}). Write sbc_verdict(sbc(model, method, x, y))."
        )
    dataset, num_draws = tree[group].to_dataset(), int(tree.attrs["num_draws"])
    rng = np.random.default_rng(0)  # ranks are counts, and the test is of a continuous distribution
    rows = {}
    for name, ranks in _scalars(dataset):
        pit = xr.DataArray((ranks + rng.uniform(size=len(ranks))) / (num_draws + 1), dims="draw")
        p, _, _ = pit.azstats.uniformity_test(dim="draw")
        rows[name] = {"mean": float(pit.mean()), "sd": float(pit.std()), "p": float(p)}
    table = pd.DataFrame.from_dict(rows, orient="index")
    table["uniform"] = ~holm(table["p"], 1 - prob)
    table["finding"] = [_finding(row, dataset.sizes["draw"]) for row in table.itertuples()]
    return table


def _finding(row: Any, num_simulations: int) -> str:
    """Say in which way ranks are not uniform: by the larger of two standardised differences."""
    if row.uniform:
        return "none"
    location = (row.mean - 0.5) / np.sqrt(1 / 12 / num_simulations)
    spread = (row.sd**2 - 1 / 12) / np.sqrt(1 / 180 / num_simulations)
    if abs(location) > abs(spread):
        return "draws too low" if location > 0 else "draws too high"
    return "draws too narrow" if spread > 0 else "draws too wide"


def _scalars(dataset: xr.Dataset) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """Yield the name and the ranks ``[draw]`` of every scalar."""
    for name, array in dataset.items():
        values = array.isel(chain=0).to_numpy()
        for index in np.ndindex(values.shape[1:]):
            yield f"{name}{list(index) if index else ''}", values[(slice(None), *index)]


def _ranks(
    simulations: Sequence[Simulation],
    density: LogDensity,
    path: Path | None,
    header: dict[str, Any],
    executor: Executor | None,
    progress: bool,
) -> dict[str, Tensor]:
    """Run the simulations that the file does not have, and return all ranks ``[num_simulations, ...]``."""
    found = _read(path, header)
    fits = fits_like(density, simulations[0].method, len(simulations))
    done = len(next(iter(found.values()))) if found else 0
    bar = progress_for(progress)
    bar.start("simulations", len(simulations))
    try:
        while done < len(simulations):
            block = simulations[done : done + SIMULATIONS_PER_WRITE]
            if executor is None:
                made = ranks_of(block, density, fits)
            else:
                parts = [block[i : i + SIMULATIONS_PER_TASK] for i in range(0, len(block), SIMULATIONS_PER_TASK)]
                what = f"{len(block)} simulations"
                made = [ranks for part in run_on(executor, ranks_of, parts, density, what) for ranks in part]
            new = {name: torch.stack([ranks[name] for ranks in made]) for name in made[0]}
            found = {name: torch.cat([found[name], value]) if found else value for name, value in new.items()}
            done += len(block)
            bar.update(done)
            if path is not None:
                write_archive(path, {name: value.contiguous() for name, value in found.items()}, header)
    finally:
        bar.stop()
    return {name: value[: len(simulations)] for name, value in found.items()}


def _read(path: Path | None, header: dict[str, Any]) -> dict[str, Tensor]:
    if path is None or not path.exists():
        return {}
    ranks, written = read_archive(path)
    different = [name for name, value in header.items() if written.get(name) != value]
    if different:
        raise ValueError(
            f"{path} holds ranks of another calibration: its {different[0]} differs. Write to another file, or make the same "
            f"call again."
        )
    return ranks


def _header(method: Method, density: LogDensity, num_draws: int, around: str, seed: int) -> dict[str, Any]:
    """Return what must agree for ranks to belong together, as plain values."""
    known = identity(density)
    return {
        "kind": "simulation-based calibration",
        "method": type(method).__name__,
        "settings": repr(asdict(method)),  # type: ignore[call-overload]  # methods are dataclasses
        "model": repr({name: known[name] for name in ("latent sites", "observed sites")}),
        "data": repr(known["data"]),
        "num_draws": num_draws,
        "around": around,
        "seed": seed,
    }


def _tree(ranks: dict[str, Tensor], group: str, header: dict[str, Any]) -> xr.DataTree:
    arrays = {
        name: xr.DataArray(
            value.cpu().numpy()[None], dims=("chain", "draw", *(f"{name}_dim_{i}" for i in range(value.ndim - 1)))
        )
        for name, value in ranks.items()
    }
    dims = {
        dim: np.arange(size) for array in arrays.values() for dim, size in zip(array.dims, array.shape, strict=True)
    }
    tree = xr.DataTree.from_dict({group: xr.Dataset(arrays).assign_coords(dims)})
    tree.attrs = {"inference_method": header["method"], "num_draws": header["num_draws"], "seed": header["seed"]}
    return tree


def _refuse_bad_counts(num_simulations: int, num_draws: int) -> None:
    for name, value in {"num_simulations": num_simulations, "num_draws": num_draws}.items():
        if not isinstance(value, int) or value < 2:
            raise ValueError(f"{name}={value!r}; write a whole number, 2 or more.")
