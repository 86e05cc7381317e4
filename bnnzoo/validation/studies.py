"""Simulation studies: bias, coverage, length of intervals and log score of methods, by sample size."""

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from bnnzoo.core.data.arguments import changed_settings, positional, refuse_names_of_settings
from bnnzoo.core.data.minibatch import as_tensors, has_rows, select
from bnnzoo.core.executors import run_on
from bnnzoo.core.fit_warnings import FitWarning
from bnnzoo.core.method import Method
from bnnzoo.core.model.density import LogDensity, build_density
from bnnzoo.core.posterior.archive import read_to_go_on, write_archive
from bnnzoo.core.posterior.posterior import Posterior
from bnnzoo.core.program.surroundings import isolated, usable_device
from bnnzoo.core.reading.fingerprint import identity
from bnnzoo.core.types import Data, Model
from bnnzoo.engine.choose import FITS_TOGETHER
from bnnzoo.inference.fit import refuse_bad_call
from bnnzoo.inference.many import ManyFits, seed_of_fit
from bnnzoo.inference.progress import progress_for
from bnnzoo.validation.refits import fits_like
from bnnzoo.validation.simulated_data import (
    STREAM_OF_DATA,
    outcomes_drawn,
    places_of_outcomes,
    refuse_truths_of_no_prior,
    seed_of_data,
    truth_from_prior,
)
from bnnzoo.validation.simulations import SIMULATIONS_PER_TASK, draws_of, quietly, values_in_short

__all__ = ["study"]

NUM_DRAWS = 400
"""Draws of each posterior by which its mean and its quantiles are known."""


def study(
    model: Model,
    methods: Mapping[str, Method],
    *data: Any,
    sizes: Sequence[int] | None = None,
    num_repeats: int = 100,
    truth: Mapping[str, Any] | None = None,
    levels: Sequence[float] = (0.5, 0.9),
    path: str | Path | None = None,
    seed: int = 0,
    executor: Executor | None = None,
    progress: bool = True,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    **named: Any,
) -> xr.Dataset:
    r"""Fit methods to data sets simulated from a model, and return how far their estimates and intervals are off.

    .. math:: \tilde\theta \sim p(\theta) \text{ or fixed}, \quad \tilde y \sim p(y \mid \tilde\theta, x), \quad
        \text{bias} = \mathrm{E}[\hat\theta - \tilde\theta], \quad
        \text{coverage} = P(\tilde\theta \in [\hat q_{\alpha/2}, \hat q_{1 - \alpha/2}])

    Every method sees the same data sets. Estimates are posterior means, intervals have equal tails.

    Parameters
    ----------
    model, *data
        As for :func:`bnnzoo.fit`. The inputs are the design; the values of the outcomes do not matter.
    methods : mapping of str to Method
    sizes : sequence of int, optional
        Sample sizes: so many rows of the design are drawn at random, with replacement where there are fewer. Default: all rows.
    num_repeats : int
        Data sets for each sample size.
    truth : mapping of str to array_like, optional
        Values of latent sites behind all data sets. Sites that are left out, by default all of them, are drawn from their prior
        for each data set.
    levels : sequence of float
        Probabilities of the intervals.
    path : str or Path, optional
        File for what is done, written every few fits; the same call goes on from there.
    seed : int
    executor : concurrent.futures.Executor, optional
        Where fits run; default: in this process.
    progress : bool
        Show a progress bar where standard error is a terminal.
    dtype, device, **named
        As for :func:`bnnzoo.fit`.

    Returns
    -------
    Dataset
        By ``inference_method``, ``size`` and ``quantity``, which are the scalars of the latent sites that are no network weights:
        ``bias``, ``rmse`` and their standard errors ``bias_se`` and ``rmse_se``; by ``level``, too: ``coverage``, ``coverage_se``
        and ``length``, the mean length of the intervals. By method and size: ``log_score``, the mean log predictive density of an
        observation of new data from the same parameters, ``log_score_se``, and ``num_warnings``, of a fit on average.

    Raises
    ------
    ValueError
        If a number is out of range, the model's observations cannot be simulated, or the file holds another study.

    References
    ----------
    Morris, White and Crowther (2019), Using simulation studies to evaluate statistical methods, Statistics in Medicine 38.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian(num_inputs=1)
    >>> found = study(target.model, {"laplace": bz.Laplace()}, *target.data, sizes=(10, 40), num_repeats=4, progress=False)
    >>> dict(found["coverage"].sizes)
    {'inference_method': 1, 'size': 2, 'quantity': 1, 'level': 2}
    """
    given = {**locals()}
    if not isinstance(methods, Mapping):
        raise TypeError(
            f"methods is a {type(methods).__name__}; write methods by name, {{'nuts': NUTS(), 'laplace': Laplace()}}."
        )
    for method in methods.values():
        refuse_bad_call("study", model, method, seed, dtype)
    if isinstance(sizes, np.ndarray | Tensor):
        sizes = sizes.tolist()
    elif isinstance(sizes, list | tuple):
        sizes = tuple(int(size) if isinstance(size, np.integer) else size for size in sizes)
    _refuse_bad_numbers(methods, sizes, num_repeats, levels)
    refuse_names_of_settings("study", model, data, named, changed_settings(study, given))
    target, chosen = usable_device(device), dtype or torch.get_default_dtype()
    tensors = as_tensors(positional(model, data, named), chosen, target)
    density = build_density(model, *tensors, dtype=chosen, device=target)
    if truth is not None and not isinstance(truth, Mapping):
        raise TypeError(f"truth is a {type(truth).__name__}; write values by latent site, truth={{'slope': 1.0}}.")
    given = _given(density, truth or {})
    _refuse_uncut(density, sizes)
    refuse_truths_of_no_prior(density, given)
    sizes = (density.num_data,) if sizes is None else tuple(sizes)
    known = identity(density)
    header = {
        "kind": "simulation study",
        "methods": repr({name: asdict(method) for name, method in methods.items()}),  # type: ignore[call-overload]
        "sites": repr({name: known[name] for name in ("latent sites", "observed sites")}),
        "data": repr(known["data"]),
        "model and prior": values_in_short(density),
        "truth": repr({name: value.tolist() for name, value in given.items()}),
        "levels": list(levels),
        "seed": seed,
        **STREAM_OF_DATA,
    }
    found = read_to_go_on(None if path is None else Path(path), header, "another study", "differ")
    design = _Design(given, places_of_outcomes(density), tuple(levels), seed)
    judged = [site for site in density.sites if not site.is_weight]
    names = [f"{site.name}{list(i) if i else ''}" for site in judged for i in np.ndindex(tuple(site.shape))]
    if not names:
        raise ValueError(
            "study judges latent sites that are no network weights, and this model has none: compare methods of networks by "
            "bz.validation.sbc, which ranks what they predict, or give the network a noise scale to be learnt."
        )
    bar = progress_for(progress)
    bar.start("fits", num_repeats * len(sizes) * len(methods))
    done = 0
    try:
        for size in sizes:
            for name, method in methods.items():
                key, fits = f"{name}/{size}", fits_like(density, method, num_repeats)
                while len(found.get(key, ())) < num_repeats:
                    first = len(found.get(key, ()))
                    block = range(first, min(first + FITS_TOGETHER, num_repeats))
                    if executor is None:
                        rows = design.rows_of(density, fits, size, block)
                    else:
                        parts = [
                            (design, method, num_repeats, size, block[i : i + SIMULATIONS_PER_TASK])
                            for i in range(0, len(block), SIMULATIONS_PER_TASK)
                        ]
                        rows = torch.cat(run_on(executor, _rows_of_part, parts, density, f"{len(block)} fits"))
                    found[key] = torch.cat([found[key], rows]) if key in found else rows
                    if path is not None:
                        write_archive(Path(path), {each: value.contiguous() for each, value in found.items()}, header)
                    bar.update(done + block.stop)
                done += num_repeats
    finally:
        bar.stop()
    cut = {key: value[:num_repeats].numpy() for key, value in found.items()}
    return _dataset(cut, list(methods), list(sizes), names, list(levels))


@dataclass(frozen=True)
class _Design:
    """What data sets are simulated from, and what is asked of a fit to one of them.

    Attributes
    ----------
    given : mapping of str to Tensor
        Values of latent sites that are the same for all data sets.
    places : mapping of str to int
        Number of the argument that each observed site observes.
    levels : tuple of float
    seed : int
    """

    given: Mapping[str, Tensor]
    places: Mapping[str, int]
    levels: tuple[float, ...]
    seed: int

    def rows_of(self, density: LogDensity, fits: ManyFits, size: int, numbers: range) -> Tensor:
        """Return what is kept of the fits to some data sets of a size, ``[n, K]``."""
        simulated = []  # parameters [P], data drawn given them, and new data at the same inputs
        for number in numbers:
            with isolated(seed_of_data(self._seed(size, number)), density.device), torch.no_grad():
                if size <= density.num_data:
                    rows = torch.randperm(density.num_data)[:size].sort().values
                else:
                    rows = torch.randint(density.num_data, (size,)).sort().values
                inputs = select(density.data, rows.to(density.device), density.num_data)
                truth = truth_from_prior(density, self.given, inputs)
                seen, fresh = (outcomes_drawn(density, truth, inputs, self.places) for _ in range(2))
                simulated.append((truth, seen, fresh))
        datasets, seeds = [data for _, data, _ in simulated], [self._seed(size, number) for number in numbers]
        warned: list[FitWarning] = []
        pairs = zip(simulated, quietly(lambda: fits(datasets, seeds), warned), strict=True)
        share = len(warned) / len(numbers)
        return torch.stack([self._judged(truth, fresh, posterior, share) for (truth, _, fresh), posterior in pairs])

    def _seed(self, size: int, number: int) -> int:
        return seed_of_fit(self.seed + 7919 * size, number)

    def _judged(self, truth: Tensor, fresh: Data, posterior: Posterior, warned: float) -> Tensor:
        """Return errors ``[Q]``, hits and lengths of the intervals of each level ``[Q]``, log score and number of warnings."""
        density, theta = posterior.density, draws_of(posterior, NUM_DRAWS)
        values = self._scalars(density, torch.cat([truth.to(theta)[None], theta])).double()
        true, drawn = values[0], values[1:]
        parts = [drawn.mean(0) - true]
        for level in self.levels:
            ends = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=drawn.dtype, device=drawn.device)
            low, high = torch.quantile(drawn, ends, 0)
            parts += [((low <= true) & (true <= high)).double(), high - low]
        with torch.no_grad():
            rows = density.over_points("log likelihood", density.log_likelihood)(theta, *fresh)
        score = (rows.logsumexp(0) - math.log(len(theta))).mean().double()
        return torch.cat([*(part.cpu() for part in parts), torch.tensor([float(score), warned], dtype=torch.float64)])

    def _scalars(self, density: LogDensity, theta: Tensor) -> Tensor:
        values = density.constrain(theta)
        kept = [values[site.name].reshape(len(theta), -1) for site in density.sites if not site.is_weight]
        return torch.cat(kept, 1)


def _rows_of_part(part: tuple[_Design, Method, int, int, range], density: LogDensity) -> Tensor:
    """Return what is kept of the fits of a task of an executor."""
    design, method, num_repeats, size, numbers = part
    return design.rows_of(density, fits_like(density, method, num_repeats), size, numbers)


def _refuse_uncut(density: LogDensity, sizes: Sequence[int] | None) -> None:
    """Refuse sample sizes of a model whose rows cannot be left out."""
    if sizes is None or list(sizes) == [density.num_data]:
        return
    if not any(has_rows(each, density.num_data) for each in density.data) or density.num_data == 1:
        raise ValueError(
            f"sizes={tuple(sizes)}: the model has no rows that could be drawn, but one joint observation. Leave sizes out, and "
            f"call study for a design of each size."
        )
    own = [site.name for site in density.sites if any(plate in density.row_plates for plate in site.plates)]
    if own:
        raise ValueError(
            f"sizes={tuple(sizes)}: rows have values of site {own[0]!r}, and cannot be left out. Leave sizes out, and "
            f"call study for a design of each size."
        )


def _given(density: LogDensity, truth: Mapping[str, Any]) -> dict[str, Tensor]:
    sites = {site.name: site for site in density.sites}
    found = {}
    for name, value in truth.items():
        if name not in sites:
            raise ValueError(
                f"truth names {name!r}, which is no latent site of the model ({density.sites_in_short()})."
            )
        try:
            tensor = torch.as_tensor(value, dtype=density.dtype, device=density.device)
        except (TypeError, ValueError):
            raise ValueError(
                f"truth gives {name!r} the value {value!r}; write a number, or an array of them."
            ) from None
        if tensor.shape != sites[name].shape:
            raise ValueError(
                f"truth gives {name!r} the shape {tuple(tensor.shape)}, but the site has {tuple(sites[name].shape)}."
            )
        if not bool(sites[name].support.check(tensor).all()):
            raise ValueError(f"truth gives {name!r} the value {tensor.tolist()}, which is outside its support.")
        found[name] = tensor
    return found


def _dataset(
    found: Mapping[str, np.ndarray[Any, Any]],
    methods: list[str],
    sizes: list[int],
    names: list[str],
    levels: list[float],
) -> xr.Dataset:
    number = len(names)
    tables: dict[str, list[Any]] = {}
    for name in methods:
        for size in sizes:
            rows = found[f"{name}/{size}"]
            repeats = len(rows)
            errors, rest = rows[:, :number], rows[:, number:-2].reshape(repeats, len(levels), 2, number)
            hits, lengths = rest[:, :, 0].mean(0), rest[:, :, 1].mean(0)
            mse = (errors**2).mean(0)
            made = {
                "bias": errors.mean(0),
                "bias_se": errors.std(0) / np.sqrt(repeats),
                "rmse": np.sqrt(mse),
                "rmse_se": (errors**2).std(0) / np.sqrt(repeats) / (2 * np.sqrt(np.maximum(mse, 1e-300))),
                "coverage": hits.T,
                "coverage_se": np.sqrt(hits * (1 - hits) / repeats).T,
                "length": lengths.T,
                "log_score": rows[:, -2].mean(),
                "log_score_se": rows[:, -2].std() / np.sqrt(repeats),
                "num_warnings": rows[:, -1].mean(),
            }
            for each, value in made.items():
                tables.setdefault(each, []).append(value)
    lead = (len(methods), len(sizes))
    dims = {1: ("quantity",), 2: ("quantity", "level"), 0: ()}
    arrays = {}
    for each, values in tables.items():
        array = np.stack([np.asarray(value) for value in values])
        arrays[each] = (("inference_method", "size", *dims[array.ndim - 1]), array.reshape(*lead, *array.shape[1:]))
    coords = {"inference_method": methods, "size": sizes, "quantity": names, "level": levels}
    return xr.Dataset(arrays, coords, attrs={"num_repeats": repeats})


def _refuse_bad_numbers(
    methods: object, sizes: Sequence[int] | None, num_repeats: object, levels: Sequence[float]
) -> None:
    if not methods:
        raise ValueError("There are no methods. Write {'nuts': NUTS(), 'laplace': Laplace()}.")
    if not isinstance(num_repeats, int) or num_repeats < 2:
        raise ValueError(f"num_repeats={num_repeats!r}; write a whole number, 2 or more.")
    for name, value in {"sizes": sizes, "levels": levels}.items():
        if value is not None and (isinstance(value, str) or not isinstance(value, Sequence)):
            raise ValueError(f"{name}={value!r}; write a tuple, {name}=({value!r},).")
    if sizes is not None and (not sizes or any(not isinstance(size, int) or size < 1 for size in sizes)):
        raise ValueError(f"sizes={sizes!r}; write sample sizes such as (50, 200).")
    if sizes is not None and len(set(sizes)) < len(sizes):
        raise ValueError(f"sizes={sizes!r} names a sample size twice; write each once.")
    if not levels or any(not 0 < level < 1 for level in levels):
        raise ValueError(f"levels={levels!r}; write probabilities of intervals between 0 and 1, such as (0.5, 0.9).")
