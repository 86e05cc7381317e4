"""Figures of the effects of inputs."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bnnzoo.apps.reporting.comparison import Comparison
from bnnzoo.apps.reporting.effects import Effect
from bnnzoo.apps.reporting.style import clean, colours, new_figure

__all__ = ["CAPTION", "plot_effects", "shown_inputs"]

MAX_PANELS = 12
CAPTION = (
    "Mean prediction at each value of one input, averaged over the other inputs of training rows, with the 90% interval of that "
    "average over draws. A flat line means that the input does not matter on average; a band that widens, that data are few "
    "there. The average hides interactions and includes combinations of inputs that may not occur."
)


def shown_inputs(comparison: Comparison) -> list[str]:
    """Return the inputs with the largest effects under any method, in the order of the table."""
    every = [effect for fitted in comparison.fitted for effect in fitted.effects]
    sizes: dict[str, float] = {}
    for effect in every:
        sizes[effect.name] = max(sizes.get(effect.name, 0.0), effect.size)
    largest = sorted(sizes, key=lambda name: -sizes[name])[:MAX_PANELS]
    return [name for name in sizes if name in largest]


def plot_effects(comparison: Comparison, k: int = 0) -> Figure:
    """Plot the effect of each input on the target, or on the probability of class ``k``: a panel for each input."""
    names = shown_inputs(comparison)
    figure, panels = new_figure(len(names), height=2.6)
    colour = colours(fitted.name for fitted in comparison.fitted)
    many = len(comparison.fitted)
    for axes, name in zip(panels, names, strict=True):
        for place, fitted in enumerate(comparison.fitted):
            effect = next(each for each in fitted.effects if each.name == name)
            _draw(axes, effect, k, colour[fitted.name], fitted.name, (place - (many - 1) / 2) * 0.6 / many)
        clean(axes, name, "")
    low, high = (f(axes.get_ylim()[i] for axes in panels) for i, f in ((0, min), (1, max)))
    for axes in panels:
        axes.set_ylim(low, high)  # so that effects can be compared
    panels[0].set_ylabel(f"P({comparison.classes[k]})" if comparison.classes else comparison.target)
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
