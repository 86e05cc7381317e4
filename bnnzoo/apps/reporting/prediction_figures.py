"""Figures of predictions: regression, classification, and distances from the reference."""

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from scipy.stats import beta

from bnnzoo.apps.reporting.gather import some_rows
from bnnzoo.apps.reporting.results import Fitted, Parts, Results
from bnnzoo.apps.reporting.scores import class_probabilities, draws_of, interval, observed, predictive_mean
from bnnzoo.apps.reporting.style import INK, MUTED, clean, colours, is_narrow, new_figure, shown_rows
from bnnzoo.diagnostics import compare_posteriors

__all__ = [
    "TITLES",
    "distances",
    "has_distances",
    "plot_calibration",
    "plot_confidence",
    "plot_distances",
    "plot_entropy",
    "plot_predictions",
    "plot_reliability",
    "plot_variance",
]

NUM_BINS = 8  # of confidence, with as many rows each
MIN_DRAWS = 8  # for distances, since halves of the reference are compared with each other
TITLES = {
    "mean_difference": "Means: difference / sd",
    "log_sd_ratio": "Standard deviations: |log ratio|",
    "wasserstein": "Distributions: Wasserstein-1",
    "total_variation": "Averages: total variation",
    "disagreement": "Most probable class differs",
}


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
        first, *others = sds
        shown = shown_rows(len(sds[first]))
        for name in others:
            rows.scatter(
                sds[first][shown], sds[name][shown], s=14, color=colour[name], alpha=0.75, linewidth=0, label=name
            )
        top = float(max(values.max() for values in sds.values()))
        rows.plot([0, top], [0, top], color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
        rows.set(xlim=(0, None), ylim=(0, None))
        rows.legend(loc="upper left")
        clean(rows, "Epistemic sd per observation", first, "other methods")
    else:
        rows.hist(sds[names[0]], bins=20, color=colour[names[0]], edgecolor="white")
        clean(rows, "Epistemic standard deviation", f"sd of {results.target}", "observations")
    return figure


def plot_calibration(results: Results) -> Figure:
    """Plot the coverage of central intervals (left) and the probability integral transform (right)."""
    figure, (curve, transform) = new_figure(2, height=3.6)
    colour = colours(f.name for f in results.fitted)
    num_rows = len(observed(results.fitted[0].test))
    levels = np.linspace(0.02, 0.98, 49)
    # the band that contains the coverage of calibrated predictions with probability 0.95
    hits = levels * num_rows
    low, high = beta.ppf(0.025, hits + 0.5, num_rows - hits + 0.5), beta.ppf(0.975, hits + 0.5, num_rows - hits + 0.5)
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


def has_distances(results: Results) -> bool:
    """Tell whether the reference and another method have enough draws."""
    first, *others = (_has_enough(fitted) for fitted in results.fitted)
    return first and any(others)


def distances(results: Results) -> xr.Dataset:
    """Return the distances from the reference, and their Monte Carlo floors, of at most two hundred rows."""
    trees = {one.name: some_rows(one.test) for one in results.fitted if _has_enough(one)}
    return compare_posteriors(trees, next(iter(trees)))


def plot_distances(results: Results, found: xr.Dataset) -> Figure:
    """Plot the mean and interquartile range of each distance over held-out observations, the Monte Carlo floor and limit."""
    reference, others = results.fitted[0].name, [str(name) for name in found["model"].to_numpy()]
    shown = [str(name) for name in found.data_vars if f"{name}_floor" in found]
    figure, panels = new_figure(len(shown), height=1.3 + 0.45 * len(others))
    colour = colours(f.name for f in results.fitted)
    for axes, distance in zip(panels, shown, strict=True):
        for place, name in enumerate(others):
            values, floor = (found[key].sel(model=name).to_numpy().ravel() for key in (distance, f"{distance}_floor"))
            low, high = np.nanquantile(values, [0.25, 0.75])
            axes.hlines(place, low, high, color=colour[name], linewidth=5, alpha=0.3)
            axes.plot(np.nanmean(values), place, "o", color=colour[name], markersize=8)
            axes.plot(np.nanmean(floor), place, "|", color=INK, markersize=16, markeredgewidth=2)
            limit = float(found[f"{distance}_limit"].sel(model=name))
            axes.plot(limit, place, "x", color=INK, markersize=8, markeredgewidth=1.5)
        axes.set_yticks(range(len(others)), others if axes is panels[0] or is_narrow() else [""] * len(others))
        axes.set(ylim=(len(others) - 0.4, -0.6), xlim=(0, None))
        axes.grid(visible=False, axis="y")
        axes.locator_params(axis="x", nbins=4)
        clean(axes, TITLES.get(distance, distance), f"distance from {reference}")
    return figure


def _has_enough(fitted: Fitted) -> bool:
    names = {*fitted.test["conditional"].data_vars} if fitted.has("conditional") else set()
    return bool(names & {"mean", "probs"}) and fitted.test["conditional"].sizes["draw"] >= MIN_DRAWS
