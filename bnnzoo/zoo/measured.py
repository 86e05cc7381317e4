"""Measurements of predictions by a card's reference posterior and its new observations."""

from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.spatial import KDTree

from bnnzoo.calibration import ece, miscalibration_area, nll
from bnnzoo.core.verdict.chain_functions import MIN_EFFECTIVE
from bnnzoo.core.verdict.quantities import SMALL_PROBABILITY
from bnnzoo.diagnostics import function_space
from bnnzoo.diagnostics.function_space import function_values
from bnnzoo.trees import SAMPLE_DIMS, num_draws
from bnnzoo.zoo.card import Card
from bnnzoo.zoo.data import CardData
from bnnzoo.zoo.reference import reference
from bnnzoo.zoo.score import score

__all__ = ["beyond_the_data", "is_off", "measured", "sd_ratios"]

OFF_MEAN, OFF_RATIO, ERRORS = 0.3, 1.33, 3.0
"""A posterior is off if a mean is further away, in sds, or an sd by a larger factor, beyond so many Monte Carlo errors."""

FAR = 0.99
"""Quantile of the distances of observations from their nearest neighbours, beyond which a row lies beyond the data."""


def measured(tree: xr.DataTree, card: Card, data: CardData) -> dict[str, Any]:
    """Return distances, ratios of sds, log density and calibration of predictions, those that they have.

    Parameters
    ----------
    tree : DataTree
        Predictions for the card's test rows.
    card : Card
        With a reference posterior.
    data : CardData
        Of the card.
    """
    found: dict[str, Any] = {}
    is_class, drawn = "probs" in tree["conditional"], next(iter(tree["conditional"].data_vars.values()))
    is_point = num_draws(drawn) == 1
    if not is_point:
        inside, beyond = sd_ratios(tree, card, data)
        found["distance"] = float(score(tree, card.name)["ratio"].sel(measure="wasserstein"))
        found |= {"sd_inside": inside, "sd_beyond": beyond, "off": is_off(tree, card)}
    if "predictions_log_likelihood" in tree.children:
        found["log_density"] = -float(nll(tree).mean())
        if is_class or not is_point:  # a single draw of a real outcome has no intervals
            found["calibration"] = float(ece(tree) if is_class else miscalibration_area(tree))
    return found


def is_off(tree: xr.DataTree, card: Card) -> bool:
    """Tell whether a mean or a standard deviation of a prediction is wrong, beyond Monte Carlo error.

    Parameters
    ----------
    tree : DataTree
    card : Card
        With a reference posterior.
    """
    values, exact = _moments(tree, card)
    mean, sd = values.mean(SAMPLE_DIMS), values.std(SAMPLE_DIMS)
    if tree.attrs.get("sampling", "mcmc") == "mcmc" and values.sizes["draw"] >= 4:
        found = function_space(tree)
        mcse_mean, mcse_sd = found["mcse_mean"], found["mcse_sd"]
        if float(found["ess_bulk"].min()) < MIN_EFFECTIVE:  # whatever their means
            return True
    else:
        mcse_mean, mcse_sd = sd / np.sqrt(num_draws(values)), sd / np.sqrt(2 * num_draws(values))
    small = SMALL_PROBABILITY if "class_id" in values.dims else 0.0
    known = np.hypot(exact["sd"], small)
    error = ERRORS * np.hypot(mcse_mean, exact["mcse_mean"])
    ran_away = num_draws(values) >= MIN_EFFECTIVE and bool((error > known).any())  # errors that hide any difference
    ratio, ratio_error = np.hypot(sd, small) / known, ERRORS * np.hypot(mcse_sd, exact["mcse_sd"]) / known
    return ran_away or bool(
        (abs(mean - exact["mean"]) - error > OFF_MEAN * known).any()
        or (ratio - ratio_error > OFF_RATIO).any()
        or (ratio + ratio_error < 1 / OFF_RATIO).any()
    )


def sd_ratios(tree: xr.DataTree, card: Card, data: CardData) -> tuple[float | None, float | None]:
    """Return standard deviations over the reference's, as geometric means over rows inside the data and beyond.

    Parameters
    ----------
    tree : DataTree
    card : Card
        With a reference posterior.
    data : CardData

    Returns
    -------
    tuple of float
        None where the card has no such rows.
    """
    values, exact = _moments(tree, card)
    ratios = values.std(SAMPLE_DIMS).clip(1e-12) / exact["sd"]
    logs = ratios.copy(data=np.log(ratios.to_numpy()))
    rows = logs.mean([dim for dim in logs.dims if dim != "obs_id"]).to_numpy()
    beyond = beyond_the_data(data)
    inside, outside = (float(np.exp(part.mean())) if part.size else None for part in (rows[~beyond], rows[beyond]))
    return inside, outside


def beyond_the_data(data: CardData) -> NDArray[np.bool_]:
    """Return which test rows are further from their nearest training observation than these are from each other.

    Parameters
    ----------
    data : CardData
        Its inputs are compared in units of their standard deviations.

    Examples
    --------
    >>> line = np.linspace(0.0, 1.0, 20)
    >>> beyond_the_data(CardData({"x": line, "y": line}, {"x": np.array([0.5, 3.0])}, "A line.")).tolist()
    [False, True]
    """
    inputs = data.test_inputs
    train, test = (
        np.column_stack([np.asarray(part[name], dtype=float).reshape(len(part[name]), -1) for name in inputs])
        for part in (data.train, data.test)
    )
    scale = np.where(np.ptp(train, 0) > 0, train.std(0), 1.0)
    tree = KDTree(train / scale)
    apart = tree.query(train / scale, k=2)[0][:, 1]
    return np.asarray(tree.query(test / scale)[0] > np.quantile(apart, FAR) + 1e-9)


def _moments(tree: xr.DataTree, card: Card) -> tuple[xr.DataArray, xr.Dataset]:
    """Return draws of the predictions that are compared, and the moments of the reference, rows in the same order."""
    values, exact = function_values(tree), reference(card.name)["summary"].to_dataset()
    if "class_id" in values.dims:
        exact = exact.isel(class_id=[1] if values.sizes["class_id"] == 1 else slice(None))
        exact = exact.assign_coords(class_id=values["class_id"])
    return values, exact.assign_coords(obs_id=values["obs_id"])
