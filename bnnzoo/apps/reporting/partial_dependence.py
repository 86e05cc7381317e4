"""Partial dependence of predictions on each input, with bands over the draws of the posterior."""

from collections.abc import Iterator

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bnnzoo.apps.reporting.results import Array, Effect, Results
from bnnzoo.apps.reporting.style import clean, colours, new_figure
from bnnzoo.apps.tables import Table
from bnnzoo.core.posterior.posterior import Posterior
from bnnzoo.effects import predictions

__all__ = ["CAPTION", "effects_frame", "effects_of", "plot_effects", "shown_inputs"]

NUM_POINTS = 15  # of other inputs
MAX_VALUES = 8  # an input with at most so many different values is evaluated at each
MAX_DRAWS = 200  # over all chains
MAX_ROWS, MAX_EVALUATIONS = 100, 20_000  # training rows that effects are averaged over; rows in all
BAND = (0.05, 0.95)
MAX_PANELS = 12  # inputs with the largest effects
CAPTION = (
    "Mean prediction at each value of one input, averaged over the other inputs of training rows, with the 90% interval of that "
    "average over draws. A flat line means that the input does not matter on average; a band that widens, that data are few "
    "there. The average hides interactions and includes combinations of inputs that may not occur."
)


def effects_of(posterior: Posterior, table: Table) -> tuple[Effect, ...]:
    r"""Return the partial dependence of the prediction on each input of a table.

    .. math:: \bar f_j(v) = \frac{1}{R} \sum_r E[y \mid x_j = v, x_{-j} = x_{r,-j}, \theta]

    for training rows r, with its mean and 90% interval over draws of :math:`\theta`.

    Parameters
    ----------
    posterior : Posterior
        Of a network that was fitted to the table.
    table : Table

    References
    ----------
    Friedman (2001), Greedy function approximation: a gradient boosting machine, Annals of Statistics 29.
    """
    inputs = list(_inputs(table))
    points = sum(len(blocks) for _, _, blocks in inputs)
    count = min(len(table.x_train), MAX_ROWS, max(5, MAX_EVALUATIONS // max(1, points)))
    rows = table.x_train[np.linspace(0, len(table.x_train) - 1, count).round().astype(int)]
    x = np.concatenate([_replaced(rows, block) for _, _, blocks in inputs for block in blocks])
    # mean predictions, or class probabilities, [M, K, points] over the rows of each point
    num_chains, available = posterior.draws().shape[:2]
    columns = list(range(x.shape[1]))
    predicted = predictions(
        posterior,
        newdata=pd.DataFrame(x).assign(point=np.repeat(np.arange(points), len(rows))),
        by="point",
        num_draws=min(available, max(1, MAX_DRAWS // num_chains)),
        encode=lambda frame: (torch.from_numpy(frame[columns].to_numpy(copy=True)),),
    )
    averages = predicted.draws.reshape(-1, max(1, len(table.classes) - (len(table.classes) == 2)), points)
    if not table.classes:
        averages = table.y_loc + table.y_scale * averages
    elif len(table.classes) == 2:
        averages = np.concatenate([1 - averages, averages], 1)  # of two classes one has an effect
    ends = np.cumsum([len(blocks) for _, _, blocks in inputs])
    found = zip(inputs, np.split(averages, ends[:-1], axis=2), strict=True)
    return tuple(_effect(name, values, average) for (name, values, _), average in found)


def _effect(name: str, values: Array | tuple[str, ...], average: Array) -> Effect:
    """Return the effect from averages ``[M, K, G]``."""
    low, high = np.quantile(average, BAND, axis=0)
    return Effect(name, values, average.mean(0), low, high)


def effects_frame(named: dict[str, tuple[Effect, ...]], classes: tuple[str, ...]) -> pd.DataFrame:
    """Return all effects as one table: a row for each method, input, value and class."""
    parts = [
        pd.DataFrame({"method": name, "input": effect.name, "value": list(effect.values)})
        .assign(**({"class": classes[k]} if classes else {}))
        .assign(mean=effect.mean[k], lower_90=effect.low[k], upper_90=effect.high[k])
        for name, effects in named.items()
        for effect in effects
        for k in range(len(effect.mean))
    ]
    return pd.concat(parts, ignore_index=True)


type Block = dict[int, float]  # columns of the encoded inputs, and the values that replace theirs


def _inputs(table: Table) -> Iterator[tuple[str, Array | tuple[str, ...], list[Block]]]:
    """Yield each column of the table with values of it, and what they are among the encoded inputs."""
    numeric = len(table.x_loc)  # numeric columns come first
    for j, name in enumerate(table.features[:numeric]):
        grid = np.unique(table.x_train[:, j])
        if len(grid) > MAX_VALUES:
            low, high = np.quantile(table.x_train[:, j], [0.025, 0.975])
            grid = np.linspace(low, high, NUM_POINTS)
        yield name, grid * table.x_scale[j] + table.x_loc[j], [{j: float(value)} for value in grid]
    columns: dict[str, list[int]] = {}
    for j, name in enumerate(table.features[numeric:], numeric):
        columns.setdefault(name.partition("=")[0], []).append(j)
    for name, places in columns.items():
        labels = tuple(table.features[j].partition("=")[2] for j in places)
        yield name, labels, [{j: float(j == chosen) for j in places} for chosen in places]


def _replaced(rows: Array, block: Block) -> Array:
    changed = rows.copy()
    changed[:, list(block)] = list(block.values())
    return changed


def shown_inputs(results: Results) -> list[str]:
    """Return the inputs with the largest effects under any method, in the order of the table."""
    every = [effect for fitted in results.fitted for effect in fitted.effects]
    sizes: dict[str, float] = {}
    for effect in every:
        sizes[effect.name] = max(sizes.get(effect.name, 0.0), effect.size)
    largest = sorted(sizes, key=lambda name: -sizes[name])[:MAX_PANELS]
    return [name for name in sizes if name in largest]


def plot_effects(results: Results, k: int = 0) -> Figure:
    """Plot the effect of each input on the target, or on the probability of class ``k``: a panel for each input."""
    names = shown_inputs(results)
    figure, panels = new_figure(len(names), height=2.6)
    colour = colours(fitted.name for fitted in results.fitted)
    many = len(results.fitted)
    for axes, name in zip(panels, names, strict=True):
        for place, fitted in enumerate(results.fitted):
            effect = next(each for each in fitted.effects if each.name == name)
            _draw(axes, effect, k, colour[fitted.name], fitted.name, (place - (many - 1) / 2) * 0.6 / many)
        clean(axes, name, "")
    low, high = (f(axes.get_ylim()[i] for axes in panels) for i, f in ((0, min), (1, max)))
    for axes in panels:
        axes.set_ylim(low, high)  # so that effects can be compared
    panels[0].set_ylabel(f"P({results.classes[k]})" if results.classes else results.target)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=min(4, many))
    return figure


def _draw(axes: Axes, effect: Effect, k: int, colour: str, label: str, shift: float) -> None:
    low, mean, high = effect.low[k], effect.mean[k], effect.high[k]
    if isinstance(effect.values, tuple) or len(effect.values) == 2:  # two numbers are names of groups
        names = [each if isinstance(each, str) else f"{each:g}" for each in effect.values]
        x = np.arange(len(names)) + shift
        axes.errorbar(x, mean, [mean - low, high - mean], fmt="o", markersize=4, color=colour, label=label)
        axes.set_xticks(range(len(names)), names, rotation=30 if len(names) > 3 else 0)
        axes.set_xlim(-0.6, len(names) - 0.4)
        return
    axes.fill_between(effect.values, low, high, color=colour, alpha=0.18, linewidth=0)
    axes.plot(effect.values, mean, color=colour, linewidth=1.6, label=label)
