"""What a posterior says about rows of data, as labelled arrays: draws of y, their moments and log densities."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import xarray as xr
from torch import Tensor

from bnnzoo.core.density import LogDensity
from bnnzoo.core.minibatch import as_tensors, unequal_rows
from bnnzoo.core.types import Data, Model
from bnnzoo.predictive import datatree
from bnnzoo.predictive.evaluate import Arrays, can_split_rows, evaluate, plan
from bnnzoo.predictive.latent import Drawn, numpy_arrays
from bnnzoo.predictive.random_blocks import draw_blocks, evaluate_random

__all__ = ["Rows", "new_data", "row_groups"]


@dataclass(frozen=True)
class Rows:
    """Rows to be predicted: the model's arguments, what of them is observed, and whether rows can be split."""

    data: Data
    raw: Data
    observed: Mapping[str, Tensor]
    num_rows: int
    splits: bool

    @classmethod
    def of(cls, density: LogDensity, theta: Tensor, raw: Data) -> "Rows":
        """Convert and inspect the arguments ``raw`` by running the model once at ``theta[P]``."""
        data = new_data(density, raw)
        try:
            nodes = density.nodes(theta, *data)
            lengths = {v.shape[0] if v.ndim else 0 for v in density.conditional(theta, *data).values()}
            density.pointwise(theta, *data)
        except Exception as error:
            if explanation := unequal_rows(data):
                raise ValueError(explanation) from error
            raise
        absent = [name for name in density.observed if name not in nodes]
        if absent:
            raise ValueError(f"With this data the model has no site {absent[0]!r}, which it had when it was fitted.")
        observed = {name: nodes[name]["value"] for name in density.observed if nodes[name]["is_observed"]}
        num_rows = lengths.pop() if len(lengths) == 1 else 0
        splits = num_rows > 1 and can_split_rows(density, theta, data, num_rows)
        return cls(data, raw, observed, num_rows, splits)


def new_data(density: LogDensity, raw: Data) -> Data:
    """Return arguments for new rows as tensors; refuse inputs of another width than those the model was fitted to."""
    data = as_tensors(raw, density.dtype, density.device)
    _refuse_other_widths(data, density.data)
    return data


def row_groups(
    draws: Drawn, rows: Rows, chunk_size: int | None, density: LogDensity | None = None
) -> dict[str, xr.Dataset]:
    """Return what is said about the rows, in the groups of training data.

    Parameters
    ----------
    draws : Drawn
    rows : Rows
    chunk_size : int, optional
        Draws x rows evaluated together.
    density : LogDensity, optional
        The likelihood to use, such as one with linearised outputs; the posterior's own unless given.
    """
    if not draws.posterior.density.observed:
        return {}
    density, theta = density or draws.posterior.density, draws.flat
    likelihoods = [*rows.observed, *(density.factors if rows.observed else ())]

    def moments_and_likelihood(theta: Tensor, *data: Any) -> dict[str, Tensor]:
        moments = {f"moment {name}": value for name, value in density.conditional(theta, *data).items()}
        pointwise = density.pointwise(theta, *data) if likelihoods else {}
        return moments | {f"likelihood {name}": pointwise[name] for name in likelihoods}

    def drawn(theta: Tensor, *data: Any) -> dict[str, Tensor]:
        return {f"draw {name}": value for name, value in density.predictive(theta, *data).items()}

    def both(theta: Tensor, *data: Any) -> dict[str, Tensor]:  # not the likelihood: y must not change what is drawn
        return drawn(theta, *data) | density.conditional(theta, *data)

    where = (theta[0], rows.data, rows.num_rows)
    tiles = draw_blocks(both, *where, splits=rows.splits)
    if chunk_size is None:
        found = evaluate_random(drawn, theta, *where[1:], tiles, draws.seed, besides=moments_and_likelihood)
    else:
        blocks = plan(moments_and_likelihood, *where, splits=rows.splits, chunk_size=chunk_size)
        found = evaluate(moments_and_likelihood, theta, *where[1:], blocks)
        found |= evaluate_random(drawn, theta, *where[1:], tiles, draws.seed)
    values = draws.per_draw(found)
    inputs, columns = _inputs(density.model, rows)
    return {
        "posterior_predictive": datatree.by_row(_starting_with("draw ", values)),
        "conditional": datatree.conditional(_starting_with("moment ", values)),
        "log_likelihood": datatree.by_row(_starting_with("likelihood ", values)),
        "observed_data": datatree.by_row(numpy_arrays(rows.observed), draws=False),
        "constant_data": datatree.constant(inputs, rows.num_rows, columns),
    }


def _starting_with(prefix: str, arrays: Arrays) -> Arrays:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def _inputs(model: Model, rows: Rows) -> tuple[Arrays, dict[str, list[str]]]:
    """Return the arguments that are not observations, and the column names of those that came as data frames."""
    arrays: Arrays = {}
    columns: dict[str, list[str]] = {}
    for name, value, raw in zip(_argument_names(model, len(rows.data)), rows.data, rows.raw, strict=True):
        if not isinstance(value, Tensor) or any(_same(value, y) for y in rows.observed.values()):
            continue
        arrays[name] = value.detach().cpu().numpy()
        if hasattr(raw, "columns"):
            columns[name] = [str(column) for column in raw.columns]
    return arrays, columns


def _same(a: Tensor, b: Tensor) -> bool:
    # a likelihood may have cast the observation, so the kinds need not agree
    return a.shape == b.shape and bool((a == b).all())


def _argument_names(model: Model, count: int) -> list[str]:
    try:
        parameters = list(inspect.signature(model).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [parameter.name for parameter in parameters if parameter.kind in positional]
    return [*names, *(f"argument_{i}" for i in range(len(names), count))][:count]


def _refuse_other_widths(data: Data, fitted: Data) -> None:
    for place, (new, old) in enumerate(zip(data, fitted, strict=False)):
        if isinstance(new, Tensor) and isinstance(old, Tensor) and new.shape[1:] != old.shape[1:]:
            raise ValueError(
                f"argument {place + 1} has shape {tuple(new.shape)}, but the model was fitted to {tuple(old.shape)}: "
                "only the number of rows may differ."
            )
