"""``measure_predictions``: a measure of many rows, without a tree of all of them."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import xarray as xr

from bnnzoo.core.posterior.posterior import Posterior
from bnnzoo.core.program.turns import one_at_a_time
from bnnzoo.core.types import Whole
from bnnzoo.docstrings import with_shared_entries
from bnnzoo.predictive import datatree
from bnnzoo.predictive.bands import Prediction, measured
from bnnzoo.predictive.kept_groups import kept_of
from bnnzoo.predictive.labels import Labels
from bnnzoo.predictive.latent import draw
from bnnzoo.predictive.left_out import completed
from bnnzoo.predictive.linearized import row_densities
from bnnzoo.predictive.prediction_arguments import (
    PREDICTION,
    in_order,
    refuse_factors_alone,
    refuse_no_posterior,
    refuse_not_positive,
    refuse_settings,
    refuse_words,
)

__all__ = ["measure_predictions"]


@one_at_a_time
@with_shared_entries(PREDICTION)
def measure_predictions(
    posterior: Posterior,
    measure: Callable[[xr.DataTree], xr.Dataset | xr.DataArray],
    *data: Any,
    num_draws: int | None = None,
    seed: Whole | None = None,
    linearized: bool | Literal["auto"] = "auto",
    keep: Sequence[str] | None = None,
    **named: Any,
) -> xr.Dataset:
    """Return a measure of the predictions for each new row, without a tree of all of them.

    The rows are predicted some at a time; each part is measured and dropped. The result is what ``measure(predict(...))`` is.

    Parameters
    ----------
    measure : callable
        From a tree to values with the dim ``obs_id``, such as :func:`bnnzoo.uncertainty.decompose` and
        :func:`bnnzoo.calibration.nll`.
    *data
        As for :func:`predict`.
    keep : sequence of str, optional
        As for :func:`predict`.

    Returns
    -------
    Dataset

    Raises
    ------
    TypeError
        If the measure is no function, or does not give an xarray object.
    ValueError
        If the measure is not one value for each row, or rows cannot be predicted a part at a time.

    Examples
    --------
    >>> import bnnzoo as bz, torch
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian(num_inputs=2)
    >>> posterior = bz.fit(target.model, bz.Laplace(), *target.data, progress=False)
    >>> parts = bz.measure_predictions(posterior, bz.uncertainty.decompose, torch.zeros(1000, 2), num_draws=20)
    >>> dict(parts.sizes), list(parts)
    ({'obs_id': 1000}, ['total', 'aleatoric', 'epistemic'])
    """
    refuse_no_posterior("measure_predictions", posterior)
    refuse_words("measure_predictions", linearized=linearized)
    if not callable(measure):
        raise TypeError(
            f"measure_predictions(measure={measure!r}): write a function of a tree, such as bnnzoo.uncertainty.decompose."
        )
    refuse_not_positive("num_draws", num_draws)
    refuse_factors_alone(posterior.density)
    settings = {"measure": None, "num_draws": num_draws, "seed": seed, "linearized": linearized, "keep": keep}
    refuse_settings(posterior, data, named, "measure_predictions", **settings)
    posterior, data = completed(posterior, data, named)
    raw, draws = in_order(posterior, data), draw(posterior, num_draws, seed)
    labels = Labels.of(posterior.density)
    rows = Prediction(draws, raw, row_densities(posterior, linearized), kept_of(keep), labels)
    return measured(rows, measure, datatree.fit_attributes(posterior.info, draws.seed))
