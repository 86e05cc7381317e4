"""Tables of a report beside the scores: how the samplers did, leave-one-out, and the classes one by one."""

import json
import warnings

import numpy as np
import xarray as xr
from arviz_stats.sampling_diagnostics import bfmi
from arviz_stats.utils import ELPDData
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

from bnnzoo.apps.reporting.page_blocks import Cell, Grid
from bnnzoo.apps.reporting.results import Fitted, Results
from bnnzoo.apps.reporting.scores import class_probabilities, observed
from bnnzoo.diagnostics import loo
from bnnzoo.trees import detectable_difference

__all__ = ["class_grid", "confusion_grid", "loo_grid", "sampler_grid"]

MIN_BFMI = 0.3
MAX_BAD = 0.05  # share of observations with a high k, above which no comparison is made
GOOD_K = 0.7


def sampler_grid(results: Results) -> Grid | None:
    """Return diagnostics of the Markov chains, None if no method ran any."""
    rows = [(fitted.name, *_of_sampler(fitted)) for fitted in results.fitted if fitted.is_chain]
    note = (
        "Divergences should be 0: otherwise raise target_accept or reparametrise. Trajectories that end at the limit of the tree "
        "depth are right, but move little for their cost: raise max_tree_depth if there are many. E-BFMI below "
        f"{MIN_BFMI} in any chain means that the sampler explores the tails slowly."
    )
    columns = (
        "method",
        "worst R-hat",
        "min ESS",
        "divergences",
        "largest tree depth",
        "at its limit",
        "smallest E-BFMI",
    )
    return Grid("Sampler diagnostics", note, columns, tuple(rows)) if rows else None


def _of_sampler(fitted: Fitted) -> tuple[str, ...]:
    stats = fitted.stats()
    diverging = f"{int(stats['diverging'].sum())}" if "diverging" in stats else "–"
    depth, share = "–", "–"
    if "tree_depth" in stats:
        depths = stats["tree_depth"].to_numpy()
        limit = json.loads(fitted.train.attrs["config"]).get("max_tree_depth")
        depth = f"{depths.max()}"
        share = "–" if limit is None else f"{100 * (depths >= limit).mean():.0f}% at {limit}"
    return f"{fitted.worst_rhat:.3f}", f"{fitted.min_ess:.0f}", diverging, depth, share, _smallest_bfmi(stats)


def _smallest_bfmi(stats: xr.Dataset) -> str:
    if "energy" not in stats or stats.sizes["draw"] < 2:
        return "–"
    return f"{float(np.min(bfmi(stats['energy'].transpose('chain', 'draw').to_numpy()))):.2f}"


def loo_grid(results: Results) -> Grid | None:
    """Return leave-one-out estimates on the training data, None if no method has any."""
    found = {fitted.name: _loo(fitted) for fitted in results.fitted}
    usable = {name: result for name, result in found.items() if not isinstance(result, str)}
    if not usable:
        return None
    unreliable = {name: int((~(result.pareto_k <= GOOD_K)).sum()) for name, result in usable.items()}
    reliable = [name for name, result in usable.items() if unreliable[name] <= MAX_BAD * result.pareto_k.size]
    best = max(reliable, key=lambda name: usable[name].elpd, default=None)
    rows: list[tuple[str | Cell, ...]] = []
    for name, result in sorted(found.items(), key=lambda each: each[0] not in reliable):
        if isinstance(result, str):
            rows.append((name, *["–"] * 4, result))
            continue
        difference = _difference(usable[best], result) if best and name in reliable else "unreliable"
        bad = f"{unreliable[name]} of {result.pareto_k.size}"
        cells = (f"{result.elpd:.1f}", f"{result.se:.1f}", f"{result.p:.1f}") if name in reliable else ("–",) * 3
        rows.append((name, *cells, "best" if name == best else difference, bad))
    note = (
        "Expected log predictive density of the training data, each observation predicted without itself (PSIS-LOO), as by "
        f"bnnzoo.diagnostics.loo. Where Pareto k is above {GOOD_K} for more than a few observations, the estimate is unreliable "
        "and not shown: look at held-out scores, or use bnnzoo.validation.kfold. Differences are shown with their standard error "
        "and, in brackets, the smallest one that so many observations show in 80% of comparisons."
    )
    columns = (
        "method",
        "elpd",
        "standard error",
        "effective parameters",
        "difference from the best",
        f"k above {GOOD_K}",
    )
    return Grid("Leave-one-out cross-validation", note, columns, tuple(rows))


def _difference(best: ELPDData, other: ELPDData) -> str:
    """Return the difference of two sums over the same observations, its standard error, and what so many of them show."""
    gaps = (other.elpd_i - best.elpd_i).to_numpy().ravel()
    error = np.sqrt(len(gaps)) * gaps.std()
    return f"{gaps.sum():+.1f} ± {error:.1f} ({detectable_difference(error):.1f})"


def _loo(fitted: Fitted) -> ELPDData | str:
    """Return the estimate, or why there is none."""
    if "log_likelihood" not in fitted.train.children:
        return "not available"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the table says how many k are too high
        try:
            return loo(fitted.train)
        except ValueError:
            return "not defined for an ensemble" if fitted.train.attrs["sampling"] == "ensemble" else "not available"


def confusion_grid(fitted: Fitted, classes: tuple[str, ...]) -> Grid:
    """Return how often each class was predicted for each observed class."""
    y, predicted = observed(fitted.test).astype(int), class_probabilities(fitted.test).argmax(-1)
    counts = confusion_matrix(y, predicted, labels=range(len(classes)))
    rows = tuple((name, *map(str, row)) for name, row in zip(classes, counts, strict=True))
    return Grid(f"Confusion matrix: {fitted.name}", "", (r"observed \ predicted", *classes), rows)


def class_grid(fitted: Fitted, classes: tuple[str, ...]) -> Grid:
    """Return the scores of each class."""
    y, probs = observed(fitted.test).astype(int), class_probabilities(fitted.test)
    labels = list(range(len(classes)))
    scores = precision_recall_fscore_support(y, probs.argmax(-1), labels=labels, zero_division=np.nan)
    rows = []
    for k, name in enumerate(classes):
        precision, recall, f1, count = (values[k] for values in scores)
        frequency = f"{probs[:, k].mean():.3f} ({(y == k).mean():.3f})"
        cells = ("–" if np.isnan(v) else f"{v:.3f}" for v in (precision, recall, f1))
        rows.append((name, f"{count}", *cells, frequency))
    columns = ("class", "observations", "precision", "recall", "F1", "mean probability (frequency)")
    return Grid(f"Scores by class: {fitted.name}", "", columns, tuple(rows))
