"""Simulation-based calibration: whether a method's posteriors are right on average over data that the model makes."""

import warnings
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from bnnzoo.core.data.arguments import changed_settings, positional, refuse_names_of_settings
from bnnzoo.core.data.minibatch import as_tensors
from bnnzoo.core.executors import run_on
from bnnzoo.core.fit_warnings import INSIDE, FitWarning
from bnnzoo.core.method import Method
from bnnzoo.core.model.density import LogDensity, build_density
from bnnzoo.core.posterior.archive import read_to_go_on, write_archive
from bnnzoo.core.program.surroundings import usable_device
from bnnzoo.core.reading.fingerprint import identity
from bnnzoo.core.settings import check_argument, check_settings
from bnnzoo.core.types import Model
from bnnzoo.engine.shares import Share
from bnnzoo.inference.fit import refuse_no_method
from bnnzoo.inference.many import in_blocks, seed_of_fit
from bnnzoo.inference.progress import progress_for
from bnnzoo.trees.multiple_tests import holm
from bnnzoo.trees.ranks import pit_of, scalars_of
from bnnzoo.validation.refits import fits_like
from bnnzoo.validation.sbc_ranks import is_close_to_uniform, p_of
from bnnzoo.validation.shared_calibrations import tree_of_ranks
from bnnzoo.validation.simulated_data import (
    STREAM_OF_DATA,
    CalibrationError,
    places_of_outcomes,
    refuse_truths_of_no_prior,
    truths_around,
)
from bnnzoo.validation.simulations import (
    KEPT,
    SIMULATIONS_PER_TASK,
    Quantities,
    Simulation,
    quantities_in_short,
    ranks_of,
    values_in_short,
)

__all__ = ["sbc"]

FIRST_LOOK = 50
"""Simulations after which a verdict is looked at for the first time."""


def sbc(
    model: Model,
    method: Method,
    *data: Any,
    num_simulations: int | Literal["auto"] = 100,
    num_draws: int = 99,
    max_simulations: int = 1000,
    task: tuple[int, int] | None = None,
    keep: bool = False,
    around: Literal["prior", "posterior"] = "prior",
    quantities: Quantities | None = None,
    path: str | Path | None = None,
    seed: int = 0,
    executor: Executor | None = None,
    progress: bool = True,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    **named: Any,
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
    num_simulations : int or "auto"
        Number of data sets, each of which is fitted. "auto" begins with 50 and doubles them until the verdict is clear: a test at
        a level shared among all looks fails, or every mean rank and spread is known to be close to what it should be.
    num_draws : int
        L, the draws among which each truth is ranked: independent ones of an approximation, evenly spaced ones of Markov
        chains. Choose at most the chains' effective sample size.
    max_simulations : int
        Where "auto" ends.
    task : tuple of int, optional
        Number of this call, from 0, and how many calls share the simulations, each with a ``path`` of its own; see
        :func:`sbc_merged`.
    keep : bool
        Keep the truths, the draws among which they were ranked and the simulated outcomes, for
        :func:`bnnzoo.validation.sbc_again`.
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
    dtype, device, **named
        As for :func:`bnnzoo.fit`.

    Returns
    -------
    DataTree
        Group ``prior_sbc``, or ``posterior_sbc``, with integer ranks ``[chain, draw, ...]``: one chain, and a draw for each
        simulation, as ``az.plot_ecdf_pit`` takes them. The root's attribute ``num_draws`` is L. With ``keep``, groups
        ``sbc_truth``, ``sbc_draws`` ``[chain, draw, sbc_draw, ...]`` and ``sbc_data`` ``[chain, draw, ...]``.

    Warns
    -----
    FitWarning
        Once, of what the fits warned of, with its frequency. Approximations are not compared with their posteriors one by one:
        ranks do that.

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
    given = {**locals()}
    refuse_no_method(method)
    adaptive = num_simulations == "auto"
    total = max_simulations if num_simulations == "auto" else num_simulations
    for each, value in {"max_simulations" if adaptive else "num_simulations": total, "num_draws": num_draws}.items():
        if not isinstance(value, int) or value < 2:
            raise CalibrationError(f"{each}={value!r}; write a whole number, 2 or more.")
    share = Share.given(task)
    if task is not None and path is None:
        raise CalibrationError(
            f"task={task!r} writes its ranks to a file of its own: give path='task-{share.task}.sbc'."
        )
    if task is not None and adaptive:
        raise CalibrationError(
            "Tasks share a number of simulations that is known: write num_simulations=1000 in place of 'auto'."
        )
    numbers = share.numbers(total, "simulations")
    check_argument("sbc", "around", around, Literal["prior", "posterior"])
    check_settings(method)
    target, chosen = usable_device(device), dtype or torch.get_default_dtype()
    refuse_names_of_settings("sbc", model, data, named, changed_settings(sbc, given))
    tensors = as_tensors(positional(model, data, named), chosen, target)
    density = build_density(model, *tensors, dtype=chosen, device=target)
    places = places_of_outcomes(density)
    if around == "prior":
        refuse_truths_of_no_prior(density)
    of_ones_own = quantities_in_short(quantities, density)
    truths = None
    if around == "posterior":
        (around_data,) = fits_like(density, method, 1)([density.data], [seed])
        truths = truths_around(around_data, total)
    simulations = [
        Simulation(
            method,
            places,
            num_draws,
            seed=seed_of_fit(seed, number),
            theta=None if truths is None else truths[number],
            quantities=quantities,
            appended=truths is not None,
            num_simulations=total,
            keep=keep,
        )
        for number in numbers
    ]
    header = _header(method, density, num_draws, around, seed) | {"keep": keep, "quantities": of_ones_own}
    if truths is not None:
        header |= {"truths": "in random order"}  # those of earlier files were in the order of the chains
    if task is not None:
        header |= {"task": asdict(share), "num_simulations": total}
    runs = _Runs(simulations, density, None if path is None else Path(path), header, executor, progress)
    ranks = _until_clear(runs, num_draws) if adaptive else runs(len(simulations))
    runs.warn()
    return tree_of_ranks(ranks, header)


def _until_clear(runs: "_Runs", num_draws: int) -> dict[str, Tensor]:
    """Return the ranks of as many simulations as make the verdict clear, or of all."""
    looks = [FIRST_LOOK * 2**i for i in range(64) if FIRST_LOOK * 2**i < runs.most] + [runs.most]
    for number in looks:
        found = runs(number)
        arrays = [(name, value.cpu().numpy()) for name, value in found.items() if KEPT not in name]
        pits = [pit_of(ranks, num_draws) for name, ranks in arrays for _, ranks in scalars_of(name, ranks)]
        p = np.array([p_of(pit) for pit in pits])
        if bool(holm(p, 0.05 / len(looks)).any()) or all(is_close_to_uniform(pit) for pit in pits):
            break
    return found


class _Runs:
    """Simulations of a calibration, made a block at a time and written to a file where there is one.

    Parameters
    ----------
    simulations : sequence of Simulation
    density : LogDensity
    path : Path or None
    header : dict
        What must agree with that of the file.
    executor : Executor or None
    progress : bool
    """

    def __init__(
        self,
        simulations: Sequence[Simulation],
        density: LogDensity,
        path: Path | None,
        header: dict[str, Any],
        executor: Executor | None,
        progress: bool,
    ) -> None:
        self._simulations, self._density, self._path, self._header = simulations, density, path, header
        self._executor, self._progress, self.most = executor, progress, len(simulations)
        self._fits = fits_like(density, simulations[0].method, simulations[0].num_simulations, judged=False)
        self._found = read_to_go_on(path, header, "ranks of another calibration", error=CalibrationError)
        self._warned: list[FitWarning] = []
        self._num_made = 0

    def warn(self) -> None:
        """Say once what the fits of this process warned of."""
        if self._warned:
            (kind, count), *_ = Counter(type(each) for each in self._warned).most_common(1)
            example = next(each for each in self._warned if type(each) is kind)
            warnings.warn(
                f"{len(self._warned)} warnings from {self._num_made} fits, {count} of them {kind.__name__}, such as: {example}",
                kind,
                skip_file_prefixes=INSIDE,
            )

    def __call__(self, number: int) -> dict[str, Tensor]:
        """Run the simulations that the file does not have, and return the ranks ``[number, ...]`` of the first ones."""
        done = len(next(iter(self._found.values()))) if self._found else 0
        bar = progress_for(self._progress)
        bar.start("simulations", number)
        try:
            for block in in_blocks(self._simulations[done:number]):
                if self._executor is None:
                    self._num_made += len(block)
                    made = ranks_of(block, self._density, self._fits, self._warned)
                else:
                    parts = [block[i : i + SIMULATIONS_PER_TASK] for i in range(0, len(block), SIMULATIONS_PER_TASK)]
                    found = run_on(self._executor, ranks_of, parts, self._density, f"{len(block)} simulations")
                    made = [ranks for part in found for ranks in part]
                new = {name: torch.stack([ranks[name] for ranks in made]) for name in made[0]}
                old = self._found
                self._found = {name: torch.cat([old[name], value]) if old else value for name, value in new.items()}
                done += len(block)
                bar.update(done)
                if self._path is not None:
                    tensors = {name: value.contiguous() for name, value in self._found.items()}
                    write_archive(self._path, tensors, self._header)
        finally:
            bar.stop()
        return {name: value[:number] for name, value in self._found.items()}


def _header(method: Method, density: LogDensity, num_draws: int, around: str, seed: int) -> dict[str, Any]:
    """Return what must agree for ranks to belong together, as plain values."""
    known = identity(density)
    return {
        "kind": "simulation-based calibration",
        "method": type(method).__name__,
        "settings": repr(asdict(method)),  # type: ignore[call-overload]  # methods are dataclasses
        "model": repr({name: known[name] for name in ("latent sites", "observed sites")}),
        "data": repr(known["data"]),
        "model or prior": values_in_short(density),
        "num_draws": num_draws,
        "around": around,
        "seed": seed,
        **STREAM_OF_DATA,
    }
