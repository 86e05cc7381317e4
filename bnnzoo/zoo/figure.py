"""The picture of a card: its prior predictive and, where there is one, its reference posterior."""

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bnnzoo.predictive import prior_predictive
from bnnzoo.zoo.card import Card
from bnnzoo.zoo.data import CardData
from bnnzoo.zoo.reference import reference, referenced

__all__ = ["card_figure"]

LEVELS = ((0.05, 0.95, 0.15), (0.25, 0.75, 0.3))
"""Lower and upper probability of each band, and how dark it is."""


def card_figure(card: Card, num_draws: int = 200) -> Figure:
    """Draw functions from the prior of a card and its reference posterior, if it has one.

    Bands hold 50% and 90% of the draws of E[y | x, theta], or of the probability of the last class, for each row; lines are
    single draws from the prior. Rows of one input are at their x, others in the order of their posterior, or prior, mean.

    Parameters
    ----------
    card : Card
        Whose data are there.
    num_draws : int
        From the prior.

    Returns
    -------
    Figure

    Examples
    --------
    >>> import bnnzoo as bz
    >>> figure = card_figure(bz.zoo.load("logistic-regression"), num_draws=20)
    >>> [axis.get_title() for axis in figure.axes]
    ['prior', 'reference posterior']
    """
    data = card.data()
    trees = {"prior": _prior(card, data, num_draws)}
    if card.name in referenced():
        trees["reference posterior"] = reference(card.name)
    values = {title: _values(tree) for title, tree in trees.items()}
    place, label = _place(data, list(values.values())[-1])
    figure, axes = plt.subplots(1, len(trees), figsize=(4.2 * len(trees), 3.0), squeeze=False, layout="constrained")
    for axis, (title, draws) in zip(axes[0], values.items(), strict=True):
        order = np.argsort(place)
        for low, high, shade in LEVELS:
            below, above = np.quantile(draws[:, order], [low, high], axis=0)
            axis.fill_between(place[order], below, above, color="C0", alpha=shade, linewidth=0)
        axis.set(title=title, xlabel=label)
    _lines(axes[0, 0], place, values["prior"])
    if "reference posterior" in trees:
        _observations(axes[0, 1], data)
    return figure


def _prior(card: Card, data: CardData, num_draws: int) -> xr.DataTree:
    """Return draws from the prior at the test rows; observations only mark what is observed."""
    rows = len(next(iter(data.test.values())))
    filled = {name: data.test.get(name, values[np.arange(rows) % len(values)]) for name, values in data.train.items()}
    return prior_predictive(card.model(), *filled.values(), num_draws=num_draws, dtype=card.dtype)


def _values(tree: xr.DataTree) -> np.ndarray:
    """Return draws [S, N] of the mean (of several outcomes, the first), or of the probability of the last class."""
    group = tree["conditional"].to_dataset()
    values = group["probs"].isel(class_id=-1) if "probs" in group else group["mean"]
    values = values.isel({dim: 0 for dim in values.dims if dim not in ("chain", "draw", "obs_id")})
    return values.transpose("chain", "draw", "obs_id").to_numpy().reshape(-1, values.sizes["obs_id"])


def _place(data: CardData, draws: np.ndarray) -> tuple[np.ndarray, str]:
    inputs = [np.asarray(each) for each in data.test_inputs.values()]
    if len(inputs) == 1 and inputs[0].ndim == 2 and inputs[0].shape[1] == 1:
        return inputs[0][:, 0], next(iter(data.test_inputs))
    return np.argsort(np.argsort(draws.mean(0))).astype(float), "rows by their mean"


def _lines(axis: Axes, place: np.ndarray, draws: np.ndarray) -> None:
    order = np.argsort(place)
    axis.plot(place[order], draws[:5][:, order].T, color="C1", linewidth=0.8)


def _observations(axis: Axes, data: CardData) -> None:
    """Mark the training data where there is one input: of several outcomes in one array, the first."""
    inputs = [name for name in data.train if name not in data.observed]
    if len(inputs) == 1 and data.train[inputs[0]].shape[1:] == (1,) and len(data.observed) == 1:
        observed = data.train[data.observed[0]]
        axis.plot(data.train[inputs[0]][:, 0], observed.reshape(len(observed), -1)[:, 0], "k.", markersize=3)
