"""Refits without some of the observations, in the form in which ArviZ asks for them."""

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import xarray as xr
from arviz_stats.loo.wrapper import SamplingWrapper
from numpy.typing import NDArray
from torch import Tensor

from bnnzoo.core.data.minibatch import select
from bnnzoo.core.executors import run_on
from bnnzoo.core.method import Method
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.posterior.posterior import Posterior
from bnnzoo.core.types import Data
from bnnzoo.diagnostics.loo import sum_by_row
from bnnzoo.inference.many import ManyFits, in_blocks
from bnnzoo.predictive import predict
from bnnzoo.trees import SAMPLE_DIMS
from bnnzoo.validation.padding import Padding, padding_that_pays

__all__ = ["Refit", "Refits", "by_row", "fits_like", "held_out_log_likelihood"]

type Rows = NDArray[np.intp]

REFITS_PER_TASK = 5

OF_ROWS = "predictions_log_likelihood"


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
    """

    method: Method
    left_out: Rows
    seed: int
    num_draws: int | None = None

    def kept(self, density: LogDensity) -> Tensor:
        """Return the numbers of the other rows."""
        kept = torch.ones(density.num_data, dtype=torch.bool)
        kept[torch.from_numpy(self.left_out)] = False
        return kept.nonzero()[:, 0].to(density.device)

    def fitted(self, density: LogDensity, padding: Padding | None) -> Data:
        """Return the arguments of the model without the rows."""
        rows = self.kept(density)
        return select(density.data, rows, density.num_data) if padding is None else padding.fitted(density, rows)

    def judged(self, posterior: Posterior, density: LogDensity, padding: Padding | None) -> xr.DataArray:
        """Return the log likelihood ``[chain, draw, obs_id]`` of the rows."""
        rows = torch.from_numpy(self.left_out).to(density.device)
        data = select(density.data, rows, density.num_data) if padding is None else padding.judged(density, rows)
        tree = predict(posterior, *data, num_draws=self.num_draws, keep=(OF_ROWS,))
        return by_row(tree[OF_ROWS].to_dataset()).assign_coords(obs_id=self.left_out)


def _made(refits: Sequence[Refit], density: LogDensity) -> list[xr.DataArray]:
    """Fit the model without the rows of each refit, some refits side by side, and return the log likelihood of the rows.

    What counts is how a method predicts: that it is an approximation has been said of the fit to all rows.
    """
    method, kept = refits[0].method, (each.kept(density) for each in refits)
    padding = padding_that_pays(density, method, [density.num_data - len(each.left_out) for each in refits], kept)
    fitted = density if padding is None else replace(density, model=padding.model)
    fits = fits_like(fitted, method, len(refits), judged=False)
    found: list[xr.DataArray] = []
    for block in in_blocks(refits):
        posteriors = fits([each.fitted(density, padding) for each in block], [each.seed for each in block])
        found += [each.judged(posterior, density, padding) for each, posterior in zip(block, posteriors, strict=True)]
    return found


def fits_like(density: LogDensity, method: Method, number: int, *, judged: bool = True) -> ManyFits:
    """Return what fits the model of a density to other data, in its precision and on its device, ``number`` times."""
    return ManyFits(density.model, method, number, device=density.device, dtype=density.dtype, judged=judged)


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
    if executor is None or not refits:
        return _made(refits, density) if refits else []
    parts = [refits[i : i + REFITS_PER_TASK] for i in range(0, len(refits), REFITS_PER_TASK)]
    return [each for part in run_on(executor, _made, parts, density, f"{len(refits)} refits") for each in part]


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
        refits = [self._without(rows) for rows in left_out]
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
            (self._made[key],) = _made([self._without(modified_observed_data)], self._density)
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
