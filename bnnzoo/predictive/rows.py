"""Predictions for rows of data as labelled arrays: draws of y, their moments and log densities."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from bnnzoo.core.data.arguments import argument_names
from bnnzoo.core.data.codes import refusing_bad_codes
from bnnzoo.core.data.conversion import DataError
from bnnzoo.core.data.gaps import SEEN, has_gaps
from bnnzoo.core.data.minibatch import as_tensors
from bnnzoo.core.data.sizes import refuse_beyond_memory
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.model.misfits import explaining_misfits, refuse_no_rows
from bnnzoo.core.model.replay import Node
from bnnzoo.core.model.terms import first_failure, moments_of, pointwise_of
from bnnzoo.core.program.statements import impossible_parameters, of_impossible_parameter
from bnnzoo.core.reading.conditioned import PredictiveDensity
from bnnzoo.core.reading.outcomes import not_observed
from bnnzoo.core.reading.reading import conformed
from bnnzoo.core.types import Data, Model
from bnnzoo.predictive import datatree
from bnnzoo.predictive.blocks import (
    RANDOM_ROWS,
    Arrays,
    Blocks,
    Function,
    block_length,
    nodes_or_nan,
    plan,
    rows_of,
    rows_together,
    widened,
)
from bnnzoo.predictive.independence import can_split_rows, row_values, values_of
from bnnzoo.predictive.kept_groups import EVERYTHING, KeptGroups
from bnnzoo.predictive.labels import Labels, row_labels
from bnnzoo.predictive.latent import PosteriorDraws, deterministic_nodes, numpy_arrays
from bnnzoo.predictive.row_functions import RowFunctions
from bnnzoo.predictive.sweep import Sweep, evaluate

__all__ = ["Rows", "as_fitted", "as_groups", "new_data", "refuse_all_lost", "row_groups"]

FEW_DRAWS = 64
"""Draws whose factors are evaluated together."""

OTHER_DRAWS = 10
"""Draws at which a parameter that is not allowed at the first is looked at again: it may be the draw's fault."""


@dataclass(frozen=True)
class Rows:
    """Rows to be predicted: the model's arguments, what it observes and computes there, and whether rows can be split.

    ``whole`` are moments and log densities at the draw at which the model was run, and ``together`` how many rows share a random
    stream.
    """

    data: Data
    raw: Data
    observed: Mapping[str, Tensor]
    deterministic: Mapping[str, Node]
    num_rows: int
    splits: bool
    moments: tuple[str, ...]
    whole: Mapping[str, Tensor]
    together: int = RANDOM_ROWS

    @classmethod
    def of(
        cls,
        density: LogDensity,
        theta: Tensor,
        raw: Data,
        chunk_size: int | None = None,
        traced: Callable[[Data], Function | None] = lambda _: None,
    ) -> "Rows":
        """Convert and inspect the arguments ``raw`` by running the model at the first of ``theta[M, P]``, on all rows and blocks.

        These have the sizes of those in which rows are predicted, ``chunk_size`` among them. Where ``traced`` returns what
        the model gives for rows, the model need not run on blocks.
        """
        data = new_data(density, raw)
        with explaining_misfits(density.model, data), refusing_bad_codes(density.model, data):
            try:
                nodes = nodes_or_nan(density, theta[0], *data)
            except Exception as error:  # the model's own code may raise anything
                if reason := _rows_without_values(density, data):
                    raise DataError(reason) from error
                raise
            absent = [name for name in density.observed if name not in nodes]
            if absent:
                raise ValueError(
                    f"With this data the model has no site {absent[0]!r}, which it had when it was fitted."
                )
            _refuse_impossible_parameters(density, theta, data, nodes)
            moments = moments_of(nodes, density.observed)
            terms = pointwise_of(nodes, [name for name in (*density.observed, *density.factors) if name in nodes])
            whole = values_of(density, nodes)
        seen = {name: nodes[name] for name in density.observed if nodes[name]["is_observed"]}
        observed = {name: node[SEEN if SEEN in node else "value"] for name, node in seen.items()}
        lengths = {v.shape[0] if v.ndim else 0 for v in (moments or terms).values()}
        num_rows = lengths.pop() if len(lengths) == 1 else 0
        splits = bool(moments) and num_rows > 1 and not isinstance(density, PredictiveDensity)  # whose draws are joint
        together = rows_together(moments, num_rows, len(theta))
        sizes = [block_length(num_rows, size) for size in (together, chunk_size or num_rows)]
        splits = splits and can_split_rows(whole, traced(data) or row_values(density), theta[0], data, num_rows, sizes)
        return cls(data, raw, observed, deterministic_nodes(nodes), num_rows, splits, tuple(moments), whole, together)

    def variables(self, density: LogDensity) -> dict[str, list[str]]:
        """Return the names of the variables in each group that can be told beforehand."""
        observed = list(self.observed)
        return {
            "posterior_predictive": list(density.observed),
            "conditional": list(self.moments),
            "log_likelihood": [*observed, *(density.factors if observed else ())],
            "observed_data": observed,
            "deterministic": list(self.deterministic),
        }

    def read(self, rows: slice) -> Data:
        """Return the arguments for some of the rows."""
        return rows_of(self.data, rows, self.num_rows)

    def sweep(self, functions: RowFunctions, theta: Tensor, seed: int, *, is_repeated: bool = False) -> Sweep:
        """Return all that is wanted of the rows at ``theta[M, P]``, as :meth:`RowFunctions.sweep` does."""
        splits, together = self.splits, self.together
        return functions.sweep(
            theta, self.read, self.num_rows, seed, splits=splits, together=together, is_repeated=is_repeated
        )

    def labelled(self, group: xr.Dataset) -> xr.Dataset:
        """Return a group with the index of the rows, if they came with one, along ``obs_id``."""
        index = row_labels(self.raw, self.num_rows) if group.sizes.get("obs_id") == self.num_rows else None
        return group if index is None else group.assign_coords(obs_id=index)


def _refuse_impossible_parameters(density: LogDensity, theta: Tensor, batch: Data, nodes: Mapping[str, Node]) -> None:
    """Refuse rows at which a distribution has a parameter that it does not allow, such as a negative scale, at every draw tried.

    Validation is off while a model is evaluated, and torch draws numbers from such a distribution.
    """
    for name in density.observed:
        for parameter, where in impossible_parameters(nodes[name]["fn"]).items():
            for each in theta[1 :: max(1, len(theta) // OTHER_DRAWS)]:
                if not bool(where.any()):
                    break
                found = impossible_parameters(nodes_or_nan(density, each, *batch)[name]["fn"]).get(parameter)
                where = where & (torch.zeros_like(where) if found is None else found)
            if bool(where.any()):
                raise of_impossible_parameter(name, nodes[name]["fn"], parameter, where)


def _rows_without_values(density: LogDensity, batch: Data) -> str:
    """Say that a site has values for the rows of the fit, where other numbers of rows were given; empty if none has."""
    own = [site.name for site in density.sites if set(site.plates) & set(density.row_plates)]
    pairs = [
        (len(new), len(old))
        for new, old in zip(batch, density.data, strict=False)
        if isinstance(new, Tensor) and isinstance(old, Tensor) and new.ndim and old.ndim
    ]
    changed = [new for new, old in pairs if new != old == density.num_data]
    if not own or not changed:
        return ""
    return (
        f"Site {own[0]!r} has a value for each of the {density.num_data} rows that were fitted, and none for these {changed[0]}. "
        f"Predict the rows of the fit, or integrate {own[0]!r} out of the likelihood, so that no row has a value of its own."
    )


def new_data(density: LogDensity, raw: Data) -> Data:
    """Return arguments for new rows as tensors; refuse inputs of another width than those the model was fitted to."""
    return as_fitted(density, as_tensors(raw, density.dtype, density.device, gaps=has_gaps(density.data)))


def as_fitted(density: LogDensity, given: Data) -> Data:
    """Return tensors for new rows in the types of those of the fit; refuse other widths."""
    refuse_no_rows(density.model, given)
    given = conformed(given, density.data)
    for place, (new, old) in enumerate(zip(given, density.data, strict=False)):
        if isinstance(new, Tensor) and isinstance(old, Tensor) and new.shape[1:] != old.shape[1:]:
            if old.ndim != 2 or new.ndim not in (1, 2):
                hint = ""
            elif new.ndim == 2:
                hint = f" Give the {old.shape[1]} columns of the fit, in their order."
            elif old.shape[1] == 1:
                hint = " Write x[:, None] for one column."
            else:
                hint = " Write x[None, :] for one row." if len(new) == old.shape[1] else ""
            raise ValueError(
                f"argument {place + 1} has shape {tuple(new.shape)}, but the model was fitted to {tuple(old.shape)}: "
                f"only the number of rows may differ.{hint}"
            )
    return given


def row_groups(
    draws: PosteriorDraws,
    rows: Rows,
    chunk_size: int | None,
    labels: Labels,
    densities: Sequence[LogDensity] = (),
    kept: KeptGroups = EVERYTHING,
) -> dict[str, xr.Dataset]:
    """Return the predictions for the rows, under the names of the groups for training data.

    Parameters
    ----------
    draws : PosteriorDraws
    rows : Rows
    chunk_size : int, optional
        Draws x rows evaluated together.
    labels : Labels
    densities : sequence of LogDensity
        The likelihood to use, such as one with linearised outputs; or one for each component of a mixture. Default: the
        posterior's own.
    kept : KeptGroups
        Which variables are computed.
    """
    density = draws.posterior.density
    if not density.observed:
        # the log likelihood of a model whose likelihood is made of pyro.factor sites alone: no outcome can be drawn
        if not density.factors:
            return {}
        found = evaluate(density.pointwise, draws.flat, rows.data, rows.num_rows, Blocks(FEW_DRAWS, None))
        inputs, columns = _inputs(density.model, rows)
        groups = {
            "log_likelihood": datatree.by_row(draws.per_draw(found)),
            "constant_data": datatree.constant(inputs, rows.num_rows, columns, labels),
        }
        return {name: rows.labelled(group) for name, group in groups.items()}
    # for each draw an outcome, its moments, class probabilities among them, and its log density
    places = {name: "conditional" if name in rows.moments else "log_likelihood" for name in rows.whole}
    num_bytes = sum(rows.whole[name].nbytes for name, group in places.items() if kept.has_any(group))
    if kept.has_any("posterior_predictive"):
        num_bytes += rows.num_rows * len(density.observed) * draws.flat.element_size()
    refuse_beyond_memory(
        float(len(draws.flat)) * num_bytes,
        f"{len(draws.flat)} draws x {rows.num_rows} rows",
        "Choose a smaller num_draws, write the tree to disk with predict(..., store='run.zarr'), or predict some of the rows "
        "at a time with measure_predictions",
    )
    functions = [RowFunctions.of(each, rows.observed, kept) for each in densities or (density,)]
    if len(functions) == 1:
        found = _evaluated(functions[0], draws.flat, rows, draws.seed, chunk_size)
    else:
        assert draws.members is not None
        members = draws.members.flatten()
        found = {}  # the draws of each component by its own functions, back where they came from
        for number, own in enumerate(functions):
            chosen = (members == number).nonzero()[:, 0]
            if not len(chosen):
                continue
            part = _evaluated(own, draws.flat[chosen.to(draws.flat.device)], rows, draws.seed + number, chunk_size)
            for name, values in part.items():
                if name not in found:
                    found[name] = np.empty((len(members), *values.shape[1:]), values.dtype)
                found[name] = widened(found[name], values)
                found[name][chosen.numpy()] = values
    refuse_all_lost(draws, rows, found)
    return {name: rows.labelled(group) for name, group in as_groups(draws, rows, found, labels, kept).items()}


def refuse_all_lost(draws: PosteriorDraws, rows: Rows, found: Arrays) -> None:
    """Refuse predictions of which not one is a number, with the reason at the first draw.

    Raises
    ------
    ValueError
        If the model fails there.
    """
    drawn = [each for variable, each in found.items() if variable.group == "posterior_predictive"]
    if not drawn or any(each.dtype.kind != "f" or not np.isnan(each[0]).all() for each in drawn):
        return
    if all(np.isnan(each).all() for each in drawn):
        density, theta = draws.posterior.density, draws.flat
        if failure := first_failure(lambda: density.nodes(theta[0], *rows.data)):
            raise ValueError(
                f"There are no predictions, since the model cannot be evaluated at any of the {len(theta)} draws: {failure}. "
                f"Fit with dtype=torch.float64, or with priors that stay away from such points."
            )


def as_groups(
    draws: PosteriorDraws, rows: Rows, found: Arrays, labels: Labels, kept: KeptGroups = EVERYTHING
) -> dict[str, xr.Dataset]:
    """Return values ``[C * S, B, ...]`` for the rows, their observations and their inputs as groups; rows count from 0."""
    values = draws.per_draw(found)
    inputs, columns = _inputs(draws.posterior.density.model, rows)
    groups = {
        "posterior_predictive": datatree.by_row(_in_group("posterior_predictive", values)),
        "conditional": datatree.conditional(_in_group("conditional", values)),
        "log_likelihood": datatree.by_row(_in_group("log_likelihood", values)),
        "observed_data": datatree.by_row(numpy_arrays(rows.observed), draws=False),
        "constant_data": datatree.constant(inputs, rows.num_rows, columns, labels),
    }
    return {name: kept.of(name, group) for name, group in groups.items()}


def _evaluated(functions: RowFunctions, theta: Tensor, rows: Rows, seed: int, chunk_size: int | None) -> Arrays:
    """Return draws of y, moments and log densities at ``theta[M, P]``; each run of the model gives as much as it can."""
    if chunk_size is None or functions.draws_functions:
        return rows.sweep(functions, theta, seed)(rows.read)
    where = rows.data, rows.num_rows
    pure = plan(functions.pure, theta[0], *where, splits=rows.splits, chunk_size=chunk_size)
    drawn = functions.blocks(theta, rows.read, rows.num_rows, splits=rows.splits, together=rows.together)
    return evaluate(functions.pure, theta, *where, pure) | evaluate(functions.drawn, theta, *where, drawn, seed)


def _in_group(group: str, arrays: Arrays) -> Arrays:
    return {variable.name: array for variable, array in arrays.items() if variable.group == group}


def _inputs(model: Model, rows: Rows) -> tuple[Arrays, dict[str, list[str]]]:
    """Return the arguments that are not observations, and the column names of those that came as data frames."""
    arrays: Arrays = {}
    columns: dict[str, list[str]] = {}
    for name, value, raw in zip(argument_names(model, len(rows.data)), rows.data, rows.raw, strict=True):
        # a likelihood may have cast the observation, so the kinds need not agree
        if not isinstance(value, Tensor) or any(
            value.shape == y.shape and bool(((value == y) | (value.isnan() & y.isnan())).all())
            for y in rows.observed.values()
        ):
            continue
        if name in not_observed(model):
            continue
        arrays[name] = value.detach().cpu().numpy()
        if hasattr(raw, "columns"):
            columns[name] = [str(column) for column in raw.columns]
    return arrays, columns
