"""Check that a model means the same by some of its rows as by all of them, which mini-batches and folds take for granted."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from bnnzoo.core.data.conversion import DataError
from bnnzoo.core.data.minibatch import select
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.model.replay import Node, common_scale, log_prob, scaled_sum
from bnnzoo.core.model.terms import scales_itself, summed_by_row
from bnnzoo.core.program.numerics import NumericalFailure
from bnnzoo.core.program.sites import ModelError, is_deterministic, is_subsample
from bnnzoo.core.reading.conditioned import PredictsGivenData
from bnnzoo.core.reading.streamed import StreamedDensity, num_held
from bnnzoo.engine import pytree

__all__ = ["observations_in_words", "refuse_dependent_parts"]

MAX_ROWS = 2048
"""Rows that stand for all: a part is compared with them."""

TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-8}


def observations_in_words(density: LogDensity) -> str:
    """Return how many observations a model has, and of which sites if there are several.

    Examples
    --------
    >>> from bnnzoo.core.model.density import build_density
    >>> from bnnzoo.testing import linear_gaussian
    >>> observations_in_words(build_density(linear_gaussian().model, *linear_gaussian().data))
    '40 observations'
    """
    found = f"{density.num_data} observations"
    if isinstance(density, StreamedDensity) or len(density.likelihood) < 2:
        return found
    with torch.no_grad():
        terms = density.pointwise(density.init(1, 0)[0], *density.data)
    return (
        f"{found} ({', '.join(f'{summed_by_row([term], term).numel()} of {name!r}' for name, term in terms.items())})"
    )


def refuse_dependent_parts(density: LogDensity, size: int, what: str, *, may_scale: bool = True) -> None:
    """Refuse to cut the rows of a model whose terms are not those of its rows.

    At two points the model runs on all rows, or on 2,048 of them, and on a random part of these. Every row's term must be the
    same in both, and so must everything that is no row's term: priors, factors outside of the plate, scales.

    Parameters
    ----------
    density : LogDensity
    size : int
        Rows of a part; a check needs two rows at least.
    what : str
        Why rows are cut, as the message begins, such as ``"batch_size=40"``.
    may_scale : bool
        Whether a plate of the rows may scale its part up itself, by ``subsample_size``.

    Raises
    ------
    ModelError
        Naming the site, and what to write instead.
    """
    if isinstance(density.model, PredictsGivenData):
        return  # which says so itself, and predicts rows given others
    held = num_held(density)
    generator = torch.Generator().manual_seed(0)
    all_rows = torch.randperm(held, generator=generator)[:MAX_ROWS].sort().values
    size = max(1, min(size, len(all_rows) - 1))
    whole = density.data if len(all_rows) == held else select(density.data, all_rows.to(density.device), held)
    if len(all_rows) < 2:
        return
    # rows that hold the largest code of no argument, so that a model that counts groups counts others there; where no row is
    # below every largest code, one argument after the other has to do
    codes = [
        value
        for value in pytree.tree_leaves(whole)
        if isinstance(value, Tensor) and value.shape == all_rows.shape and not value.is_floating_point() and value.any()
    ]
    below = [value < value.max() for value in codes]
    candidates = [torch.stack(below).all(0), *below] if below else []
    other_groups = next((rows for rows in candidates if bool(rows.any())), None)
    for theta, choosable in zip(density.init(2, 0), (None, other_groups), strict=True):
        rows = torch.randperm(len(all_rows), generator=generator).to(density.device)
        rows = (rows if choosable is None else rows[choosable[rows]])[:size]
        try:
            expected = _nodes(density, theta, whole, len(all_rows), what)
        except ModelError:  # no fault of the parts, or a density with arguments beside the model's
            return
        found = _nodes(density, theta, select(whole, rows, len(all_rows)), len(rows), what)
        if expected is not None and found is not None:
            _compare(density, expected, found, rows, len(all_rows), what, may_scale)


def _nodes(
    density: LogDensity, theta: Tensor, batch: tuple[Any, ...], num_rows: int, what: str
) -> Mapping[str, Node] | None:
    """Return the nodes of a run; None if the model cannot be evaluated there, which says nothing of its rows."""
    try:
        with torch.no_grad():
            nodes = density.nodes(theta, *batch)
            for node in nodes.values():
                if node["type"] == "sample" and not is_subsample(node) and not is_deterministic(node):
                    log_prob(node)  # observations that are not cut fail here, and values of other numbers of groups
            return nodes
    except NumericalFailure:
        return None
    except (RuntimeError, ValueError, IndexError, TypeError, DataError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ModelError(
            f"{what} cuts the rows of the model's arguments, and the model cannot be run on {num_rows} of its "
            f"{density.num_data} rows ({type(error).__name__}: {reason}). Every argument with one row for each observation is "
            f"cut, and no other: pass all data of the rows as arguments of that length, keep what is not by row, such as a "
            f"number of groups, in a closure, or take all rows."
        ) from error


def _compare(
    density: LogDensity,
    expected: Mapping[str, Node],
    found: Mapping[str, Node],
    rows: Tensor,
    num_rows: int,
    what: str,
    may_scale: bool,
) -> None:
    advice = "take all rows, or write the model so that each row's term depends on that row alone"
    if expected.keys() != found.keys():
        name = next(iter(expected.keys() ^ found.keys()))
        raise ModelError(
            f"{what} cuts the rows, but site {name!r} of the model is there for some rows and not for others: {advice}."
        )
    for name, node in expected.items():
        if node["type"] != "sample" or is_subsample(node) or is_deterministic(node):
            continue
        other = found[name]
        if name not in density.likelihood:
            if not _close(scaled_sum(node), scaled_sum(other)):
                raise ModelError(
                    f"{what} cuts the rows, but the log density of site {name!r}, which is not one of the rows, is "
                    f"{float(scaled_sum(node)):.6g} with {num_rows} rows and {float(scaled_sum(other)):.6g} with {len(rows)} of "
                    f"them. Compute what it takes from the data beforehand, outside of the model, or take all rows."
                )
            continue
        terms, some = log_prob(node), log_prob(other)
        if len(terms) != num_rows or len(some) != len(rows) or terms[rows].shape != some.shape:
            raise ModelError(
                f"{what} cuts the rows, but site {name!r} has {len(terms)} terms for {num_rows} rows and {len(some)} for "
                f"{len(rows)} of them. Put it into a plate over the rows, with its data as arguments of the model, or take all "
                f"rows."
            )
        if not _close(terms[rows], some):
            raise ModelError(
                f"{what} cuts the rows, but the log density of a row at site {name!r} depends on the other rows, such as by a "
                f"mean, a lag or a sum over rows, or an argument that is no row is cut because it has {density.num_data} "
                f"entries: {advice}."
            )
        _refuse_other_scale(name, node, other, num_rows / len(rows), what, may_scale)


def _refuse_other_scale(name: str, node: Node, other: Node, ratio: float, what: str, may_scale: bool) -> None:
    before, after = (torch.as_tensor(common_scale(each), dtype=torch.float64) for each in (node, other))
    if may_scale and scales_itself(other):
        before = before * ratio
    if not _close(before, after):
        raise ModelError(
            f"{what} cuts the rows, and site {name!r} is scaled by {float(before):.4g} with all rows and by {float(after):.4g} "
            f"with a part of them. Mini-batches are scaled up here: leave out poutine.scale by the number of rows, and "
            f"subsample_size, or take all rows."
        )


def _close(a: Tensor, b: Tensor) -> bool:
    """Compare values up to rounding; what is not finite in both agrees."""
    tolerance = TOLERANCE.get(a.dtype, 1e-3)
    size = float(a.abs().nan_to_num(0.0, 0.0, 0.0).max()) if a.numel() else 0.0
    return torch.allclose(a.double(), b.double(), rtol=tolerance, atol=tolerance * max(1.0, size), equal_nan=True)
