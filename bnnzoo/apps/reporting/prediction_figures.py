"""Figures of a comparison for regression."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import beta

from bnnzoo.apps.reporting.parts import Parts
from bnnzoo.apps.reporting.results import Results
from bnnzoo.apps.reporting.scores import draws_of, interval, observed, predictive_mean
from bnnzoo.apps.reporting.style import INK, MUTED, clean, colours, new_figure, shown_rows

__all__ = ["plot_calibration", "plot_predictions", "plot_variance"]


def plot_predictions(results: Results) -> Figure:
    """Plot predictions with 90% intervals against observations; intervals that miss are in full colour."""
    figure, panels = new_figure(len(results.fitted), share=True)
    colour = colours(f.name for f in results.fitted)
    target = results.target
    for axes, fitted in zip(panels, results.fitted, strict=True):
        y, mean = observed(fitted.test), predictive_mean(fitted.test)
        lower, upper = interval(fitted.test)
        missed, shown = (y < lower) | (y > upper), shown_rows(len(y))
        ends = [y.min(), y.max()]
        axes.plot(ends, ends, color=MUTED, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
        for rows, alpha in ((shown & ~missed, 0.28), (shown & missed, 0.9)):
            axes.vlines(y[rows], lower[rows], upper[rows], color=colour[fitted.name], alpha=alpha, linewidth=1.4)
        axes.scatter(y[shown], mean[shown], s=13, color=colour[fitted.name], edgecolor="white", linewidth=0.4, zorder=3)
        clean(axes, f"{fitted.name}: {int(missed.sum())} of {len(y)} missed", f"observed {target}")
    panels[0].set_ylabel(f"predicted {target}")
    return figure


def plot_variance(results: Results, parts: dict[str, Parts]) -> Figure:
    """Plot the mean predictive variance by part (left), and epistemic sds against those of the reference (right)."""
    figure, (bars, rows) = new_figure(2, height=3.6)
    colour = colours(one.name for one in results.fitted)
    names = list(parts)
    for place, (name, part) in enumerate(parts.items()):
        aleatoric, epistemic = float(part.aleatoric.mean()), float(part.epistemic.mean())
        bars.barh(place, aleatoric, color=colour[name], alpha=0.3, height=0.6)
        bars.barh(place, epistemic, left=aleatoric, color=colour[name], height=0.6)
        share = f"{100 * epistemic / max(aleatoric + epistemic, np.finfo(float).tiny):.1f}% epistemic"
        bars.annotate(
            share, (aleatoric + epistemic, place), (5, 0), textcoords="offset points", va="center", fontsize=9
        )
    bars.set_yticks(range(len(names)), names)
    bars.invert_yaxis()
    bars.margins(x=0.3, y=0.5 if len(names) == 1 else 0.05)
    bars.grid(visible=False, axis="y")
    clean(bars, "Mean predictive variance", f"variance of {results.target}")
    sds = {name: np.sqrt(part.epistemic) for name, part in parts.items()}
    if len(names) > 1:
        _against_the_first(rows, sds, colour)
    else:
        rows.hist(sds[names[0]], bins=20, color=colour[names[0]], edgecolor="white")
        clean(rows, "Epistemic standard deviation", f"sd of {results.target}", "observations")
    return figure


def _against_the_first(axes: Axes, sds: dict[str, np.ndarray], colour: dict[str, str]) -> None:
    first, *others = sds
    shown = shown_rows(len(sds[first]))
    for name in others:
        axes.scatter(sds[first][shown], sds[name][shown], s=14, color=colour[name], alpha=0.75, linewidth=0, label=name)
    top = float(max(values.max() for values in sds.values()))
    axes.plot([0, top], [0, top], color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
    axes.set(xlim=(0, None), ylim=(0, None))
    axes.legend(loc="upper left")
    clean(axes, "Epistemic sd per observation", first, "other methods")


def plot_calibration(results: Results) -> Figure:
    """Plot the coverage of central intervals (left) and the probability integral transform (right)."""
    figure, (curve, transform) = new_figure(2, height=3.6)
    colour = colours(f.name for f in results.fitted)
    num_rows = len(observed(results.fitted[0].test))
    levels = np.linspace(0.02, 0.98, 49)
    low, high = _binomial_band(levels, num_rows)
    curve.fill_between(levels, low, high, color=MUTED, alpha=0.18, linewidth=0)
    curve.plot([0, 1], [0, 1], color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
    transform.fill_between(levels, low - levels, high - levels, color=MUTED, alpha=0.18, linewidth=0)
    transform.axhline(0, color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
    for fitted in results.fitted:
        pit = (draws_of(fitted.test) < observed(fitted.test)).mean(0)
        covered = [(np.abs(pit - 0.5) <= level / 2).mean() for level in levels]
        curve.plot(levels, covered, color=colour[fitted.name], linewidth=1.8, label=fitted.name)
        below = [(pit <= level).mean() - level for level in levels]
        transform.plot(levels, below, color=colour[fitted.name], linewidth=1.8)
    curve.legend(loc="upper left")
    clean(curve, "Coverage of central intervals", "nominal", "observed")
    clean(transform, "Probability integral transform", "probability", "empirical minus nominal")
    curve.annotate(
        "grey: 95% band for calibrated predictions",
        (0.98, 0.03),
        xycoords="axes fraction",
        ha="right",
        color=INK,
        fontsize=8,
    )
    return figure


def _binomial_band(levels: np.ndarray, num_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the band that contains the coverage of calibrated predictions with probability 0.95."""
    hits = levels * num_rows
    return beta.ppf(0.025, hits + 0.5, num_rows - hits + 0.5), beta.ppf(0.975, hits + 0.5, num_rows - hits + 0.5)
