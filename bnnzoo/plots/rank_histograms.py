"""Histograms of the ranks of calibration by simulation, with simultaneous bands."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from arviz_plots.plot_collection import PlotCollection
from numpy.typing import NDArray
from scipy.special import bdtr

from bnnzoo.docstrings import with_shared_entries
from bnnzoo.plots.curves import (
    PLOT,
    Visuals,
    bands,
    curves,
    draw_band,
    draw_labels,
    draw_line,
    draw_titles,
    new_collection,
)
from bnnzoo.trees import refuse_no_probability
from bnnzoo.trees.ranks import pits_of_tree

__all__ = ["plot_ranks", "simultaneous_band"]

NUM_SIMULATED = 4000
"""Histograms of uniform ranks from which the band is found: its probability is then known to a third of a percent."""


@with_shared_entries(PLOT)
def plot_ranks(
    data: xr.DataTree,
    *,
    var_names: Sequence[str] | None = None,
    num_bins: int | None = None,
    prob: float = 0.95,
    plot_collection: PlotCollection | None = None,
    backend: str | None = None,
    visuals: Visuals = None,
    **pc_kwargs: Any,
) -> PlotCollection:
    """Plot histograms of the ranks of truths among draws, which are uniform if the method is right.

    A hump says that draws are too wide, a bowl that they are too narrow, a slope that they are too high or too low. All bars of a
    histogram of uniform ranks lie inside the band together with the given probability.

    Parameters
    ----------
    data : DataTree
        From :func:`bnnzoo.validation.sbc`.
    var_names : sequence of str, optional
        Quantities, such as ``"b"`` for all its entries or ``"b[0]"``. Default: all.
    num_bins : int, optional
        Default: a tenth of the number of simulations, from 4 to 20.
    prob : float
        Probability of the band.
    visuals : mapping of str to mapping or False, optional
        Settings of a part, or False to leave it out: ``line``, ``band``, ``ref_line``, ``title``, ``xlabel``, ``ylabel``.

    Raises
    ------
    ValueError
        If the tree has no ranks, or none of a quantity that is asked for.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian(num_inputs=1)
    >>> ranks = bz.validation.sbc(target.model, bz.Laplace(bz.MAP(num_steps=50)), *target.data, num_simulations=8, progress=False)
    >>> plot = plot_ranks(ranks, backend="none")
    >>> "band" in plot.viz.children
    True
    """
    refuse_no_probability(prob, "plot_ranks")
    if num_bins is not None and num_bins < 2:
        raise ValueError(f"plot_ranks(num_bins={num_bins}): write 2 or more.")
    pits = pits_of_tree(data, "plot_ranks")
    if var_names is not None:
        wanted = [var_names] if isinstance(var_names, str) else list(var_names)
        if missing := [name for name in wanted if not any(_is_of(each, name) for each in pits)]:
            raise ValueError(f"The tree has no ranks of {', '.join(missing)}; it has those of {', '.join(pits)}.")
        pits = {each: pit for each, pit in pits.items() if any(_is_of(each, name) for name in wanted)}
    number = len(next(iter(pits.values())))
    num_bins = num_bins or int(np.clip(number // 10, 4, 20))
    edges = np.linspace(0.0, 1.0, num_bins + 1)
    steps = np.repeat(edges, 2)
    heights = {name: np.histogram(pit, edges)[0] * num_bins / number for name, pit in pits.items()}
    drawn = curves({name: (steps, np.r_[0.0, np.repeat(height, 2), 0.0]) for name, height in heights.items()})
    low, high = (bound * num_bins / number for bound in simultaneous_band(number, num_bins, prob))
    ends = np.array([0.0, 1.0])
    uniform = dict.fromkeys(pits, (ends, np.ones(2)))
    collection = new_collection(drawn, plot_collection, backend, pc_kwargs, facet=True)
    band = np.stack([ends, np.full(2, low), np.full(2, high)])
    draw_band(collection, "band", bands(dict.fromkeys(pits, band)), visuals, {"color": "gray"})
    draw_line(collection, "ref_line", curves(uniform), visuals, {"color": "gray", "linestyle": "C1"})
    draw_line(collection, "line", drawn, visuals, {})
    draw_labels(collection, drawn, visuals, "rank of the truth", "relative frequency")
    draw_titles(collection, drawn, visuals)
    return collection


def simultaneous_band(number: int, num_bins: int, prob: float) -> tuple[float, float]:
    """Return between which counts all bins of a histogram of ``number`` uniform ranks lie with probability ``prob`` together.

    Examples
    --------
    >>> simultaneous_band(500, 10, 0.95)
    (32.0, 69.0)
    """
    counts: NDArray[np.integer] = np.random.default_rng(0).multinomial(
        number, np.full(num_bins, 1 / num_bins), size=NUM_SIMULATED
    )
    places = np.arange(number + 1)
    below = bdtr(places, number, 1 / num_bins)
    above = np.concatenate([[1.0], 1 - below[:-1]])
    tails = np.minimum(below, above)
    level = float(np.quantile(tails[counts].min(1), 1 - prob))  # of the bin that is furthest out
    inside = places[tails >= level]
    return float(inside[0]), float(inside[-1])


def _is_of(scalar: str, name: str) -> bool:
    return scalar == name or scalar.startswith(f"{name}[")
