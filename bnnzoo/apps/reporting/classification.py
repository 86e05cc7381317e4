"""Figures of a comparison for classification."""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from bnnzoo.apps.reporting.parts import Parts
from bnnzoo.apps.reporting.results import Results
from bnnzoo.apps.reporting.scores import class_probabilities, observed
from bnnzoo.apps.reporting.style import INK, MUTED, clean, colours, new_figure, shown_rows

__all__ = ["plot_confidence", "plot_entropy", "plot_reliability"]

NUM_BINS = 8


def plot_confidence(results: Results) -> Figure:
    """Plot the probability of the predicted class, for correct and wrong predictions."""
    figure, panels = new_figure(len(results.fitted), share=True)
    colour = colours(f.name for f in results.fitted)
    bins = np.linspace(1 / len(results.classes), 1.0, 16).tolist()
    for axes, fitted in zip(panels, results.fitted, strict=True):
        probs, y = class_probabilities(fitted.test), observed(fitted.test)
        right = probs.argmax(-1) == y
        groups = [probs.max(-1)[right], probs.max(-1)[~right]]
        shades = [(*_rgb(colour[fitted.name]), 0.3), (*_rgb(colour[fitted.name]), 1.0)]
        axes.hist(groups, bins=bins, stacked=True, color=shades, edgecolor="white")
        clean(axes, f"{fitted.name}: {int((~right).sum())} of {len(y)} wrong", "probability of the predicted class")
    panels[0].set_ylabel("observations")
    handles = [Patch(color=INK, alpha=alpha, label=label) for alpha, label in ((0.3, "correct"), (1.0, "wrong"))]
    figure.legend(handles=handles, loc="outside lower center", ncols=2)
    return figure


def plot_reliability(results: Results) -> Figure:
    """Plot reliability (left) and accuracy against coverage (right)."""
    figure, (axes, selective) = new_figure(2, height=3.6)
    colour = colours(f.name for f in results.fitted)
    axes.plot([0, 1], [0, 1], color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
    for fitted in results.fitted:
        probs = class_probabilities(fitted.test)
        confidence, right = probs.max(-1), probs.argmax(-1) == observed(fitted.test)
        bins = [rows for rows in np.array_split(np.argsort(confidence), NUM_BINS) if len(rows)]
        x, y = ([values[rows].mean() for rows in bins] for values in (confidence, right))
        errors = [np.sqrt(max(p * (1 - p), 0.25 / len(rows)) / len(rows)) for p, rows in zip(y, bins, strict=True)]
        axes.errorbar(
            x, y, yerr=errors, color=colour[fitted.name], marker="o", markersize=4, linewidth=1.4, label=fitted.name
        )
        kept = np.arange(1, len(right) + 1)
        accuracy = np.cumsum(right[np.argsort(-confidence, kind="stable")]) / kept
        selective.plot(kept / len(right), accuracy, color=colour[fitted.name], linewidth=1.8)
    axes.set(xlim=(1 / len(results.classes) - 0.02, 1.02), ylim=(-0.02, 1.02))
    axes.legend(loc="lower right")
    clean(axes, "Reliability (bars: one standard error)", "probability of the predicted class", "accuracy")
    clean(selective, "Selective accuracy", "fraction kept, most certain first", "accuracy")
    return figure


def plot_entropy(results: Results, parts: dict[str, Parts]) -> Figure:
    """Plot aleatoric against epistemic uncertainty of each observation; rings are wrong predictions."""
    figure, panels = new_figure(len(results.fitted), share=True)
    colour = colours(f.name for f in results.fitted)
    for axes, fitted in zip(panels, results.fitted, strict=True):
        part = parts[fitted.name]
        seen = fitted.has("predictions_observed_data")
        right = class_probabilities(fitted.test).argmax(-1) == (observed(fitted.test) if seen else np.nan)
        right, shown = right | (not seen), shown_rows(len(right))
        pale, full = (*_rgb(colour[fitted.name]), 0.3), colour[fitted.name]
        for rows, face, edge in ((shown & right, pale, "none"), (shown & ~right, "none", full)):
            axes.scatter(
                part.aleatoric[rows], part.epistemic[rows], s=22, facecolor=face, edgecolor=edge, linewidth=1.2
            )
        clean(axes, fitted.name, "aleatoric (expected entropy, nats)")
    panels[0].set_ylabel("epistemic (mutual information, nats)")
    return figure


def _rgb(colour: str) -> tuple[float, float, float]:
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return red, green, blue
