"""Refits without some of the observations, in the form in which ArviZ asks for them."""

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import xarray as xr
from arviz_stats.loo.wrapper import SamplingWrapper
from numpy.typing import NDArray

from bnnzoo.core.density import LogDensity
from bnnzoo.core.executors import run_on
from bnnzoo.core.method import Method
from bnnzoo.core.minibatch import select
from bnnzoo.core.posterior import Posterior
from bnnzoo.core.types import Data
from bnnzoo.diagnostics.loo import sum_by_row
from bnnzoo.engine.fits import fits_to_come
from bnnzoo.inference import fit
from bnnzoo.inference.fit import fit_alike
from bnnzoo.labelled import SAMPLE_DIMS
from bnnzoo.predictive import predict

__all__ = ["Refit", "Refits", "by_row", "fit_again", "held_out_log_likelihood"]

type Rows = NDArray[np.intp]


@dataclass(frozen=True)
class Refit:
    """One fit to all observations but some.

    Attributes
    ----------
    method : Method
    left_out : ndarray [M]
        Numbers of the rows on which the fit is judged.
    seed : int
    num_draws : int, optional
        Draws a chain with which the rows are predicted; default: as for :func:`bnnzoo.predict`.
    num_refits : int
        How many there are of its kind, which share what is compiled.
    """

    method: Method
    left_out: Rows
    seed: int
    num_draws: int | None = None
    num_refits: int = 1

    def __call__(self, density: LogDensity) -> xr.DataArray:
        """Fit the model without the rows and return their log likelihood ``[chain, draw, obs_id]``."""
        rows = torch.from_numpy(self.left_out)
        kept = torch.ones(density.num_data, dtype=torch.bool)
        kept[rows] = False
        others = select(density.data, kept.nonzero()[:, 0].to(density.device), density.num_data)
        (posterior,) = fit_again(density, self.method, [others], [self.seed], self.num_refits)
        data = select(density.data, rows.to(density.device), density.num_data)
        tree = predict(posterior, *data, num_draws=self.num_draws, weights=False)
        return by_row(tree["predictions_log_likelihood"].to_dataset()).assign_coords(obs_id=self.left_out)


def fit_again(
    density: LogDensity, method: Method, datasets: Sequence[Data], seeds: Sequence[int], num_fits: int = 1
) -> list[Posterior]:
    """Fit the model of a density to other data, in its precision and on its device.

    Parameters
    ----------
    density : LogDensity
        Of one of the fits' kind, see :func:`bnnzoo.core.kinds.first_of_kind`, where they share what is compiled.
    method : Method
    datasets : sequence of tuple
    seeds : sequence of int
        One for each data set.
    num_fits : int
        How many there are in all.
    """
    settings: dict[str, Any] = {"progress": False, "device": density.device, "dtype": density.dtype}
    with fits_to_come(num_fits):
        found: Sequence[Posterior | None] = [None] * len(datasets)
        if density.kind is not None:
            found = fit_alike(density, method, datasets, seeds)
        return [
            fit(density.model, method, *data, seed=seed, **settings) if posterior is None else posterior
            for posterior, data, seed in zip(found, datasets, seeds, strict=True)
        ]


def held_out_log_likelihood(
    refits: Sequence[Refit], density: LogDensity, executor: Executor | None
) -> list[xr.DataArray]:
    """Return the log likelihood ``[chain, draw, obs_id]`` of the rows that each refit left out.

    Parameters
    ----------
    refits : sequence of Refit
    density : LogDensity
        The model given all data.
    executor : concurrent.futures.Executor, optional
        Where the refits run; default: one after the other in this process.
    """
    if executor is None:
        return [refit(density) for refit in refits]
    return run_on(executor, Refit.__call__, refits, density, f"{len(refits)} refits")


class Refits(SamplingWrapper):
    """Refits of one model by one method, as ArviZ's cross-validation asks for them; those made before are looked up.

    Parameters
    ----------
    tree : DataTree
        Of the fit to all data, with ``log_likelihood``.
    density : LogDensity
        The model given all data.
    refit : Refit
        Whose method, seed and number of draws all refits share.
    """

    def __init__(self, tree: xr.DataTree, density: LogDensity, refit: Refit) -> None:
        super().__init__(density.model, idata_orig=tree)
        self._density, self._refit = density, refit
        self._made: dict[tuple[int, ...], xr.DataArray] = {}

    def prepare(self, left_out: Sequence[Rows], executor: Executor | None) -> None:
        """Make refits ahead, on an executor where there is one."""
        of_size = Counter(len(rows) for rows in left_out)  # rows of other numbers are compiled anew
        refits = [replace(self._without(rows), num_refits=of_size[len(rows)]) for rows in left_out]
        made = held_out_log_likelihood(refits, self._density, executor)
        self._made |= {_key(rows): values for rows, values in zip(left_out, made, strict=True)}

    def sel_observations(self, idx: Any) -> tuple[Rows, Rows]:
        """Return the rows to leave out twice: as what is fitted without them, and as what is predicted."""
        rows = np.atleast_1d(np.asarray(idx, dtype=np.intp))
        return rows, rows

    def sample(self, modified_observed_data: Rows) -> xr.DataArray:
        """Return the log likelihood ``[chain, draw, obs_id]`` of rows given all others."""
        key = _key(modified_observed_data)
        if key not in self._made:
            self._made[key] = self._without(modified_observed_data)(self._density)
        return self._made[key]

    def get_inference_data(self, fitted_model: xr.DataArray) -> xr.DataTree:
        """Return the log likelihood in a tree, in which ArviZ looks for the relative efficiency of its draws."""
        by_draw = fitted_model.sum("obs_id").to_dataset(name="log_likelihood")
        return xr.DataTree.from_dict({"posterior": by_draw, "refit": fitted_model.to_dataset(name="log_likelihood")})

    def log_likelihood__i(self, excluded_obs: Rows, idata__i: xr.DataTree) -> xr.DataArray:
        """Return the log likelihood of the rows that were left out."""
        found: xr.DataArray = idata__i["refit"].to_dataset()["log_likelihood"]
        return found

    def _without(self, rows: Rows) -> Refit:
        shared = self._refit
        return Refit(shared.method, rows, shared.seed, shared.num_draws)


def _key(rows: Rows) -> tuple[int, ...]:
    return tuple(int(row) for row in rows)


def by_row(log_likelihood: xr.Dataset) -> xr.DataArray:
    """Return the log likelihood ``[chain, draw, obs_id]`` of a group, summed over outputs and observed sites.

    Raises
    ------
    ValueError
        If a site has no rows.
    """
    for name, site in log_likelihood.items():
        if "obs_id" not in site.dims:
            raise ValueError(
                f"Site {name!r} is one observation without rows, so none can be left out. Put it inside a plate with one entry "
                f"for each row."
            )
    first, *others = [sum_by_row(site) for site in log_likelihood.data_vars.values()]
    total: xr.DataArray = sum(others, first)
    return total.transpose(*SAMPLE_DIMS, "obs_id").rename("log_likelihood")
