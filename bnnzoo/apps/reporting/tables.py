"""Tables of a report: scores, data, methods and their cost, samplers, leave-one-out, classes, distances."""

import json
import warnings
from math import isnan

import numpy as np
import xarray as xr
from arviz_stats.sampling_diagnostics import bfmi
from arviz_stats.utils import ELPDData
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

from bnnzoo.apps.reporting.costs import COUNTED_GRADIENTS, NO, engine, gradients, wall_time, why_slower
from bnnzoo.apps.reporting.prediction_figures import TITLES
from bnnzoo.apps.reporting.report_verdicts import pareto
from bnnzoo.apps.reporting.results import Baseline, Fitted, Results, all_parts, paired_difference
from bnnzoo.apps.reporting.scores import class_probabilities, observed
from bnnzoo.core.fit_warnings import MAX_RHAT, MIN_ESS
from bnnzoo.diagnostics import elbo, loo
from bnnzoo.documents.page import Grid, TableCell
from bnnzoo.trees.power import PairedComparison

__all__ = [
    "approximation_grid",
    "class_grid",
    "columns",
    "confusion_grid",
    "data_grid",
    "distance_grid",
    "loo_grid",
    "method_grid",
    "rows",
    "sampler_grid",
    "score_grid",
    "settings_of",
    "uncertainty_grid",
]

MAX_COLUMNS = 40  # of an input
MIN_BFMI = 0.3
MAX_BAD = 0.05  # share of observations with a high k, above which no comparison is made
GOOD_K = 0.7


def columns(results: Results, *, brief: bool = False) -> list[tuple[str, str]]:
    """Return the label and definition of each column; ``brief`` omits some for narrow terminals."""
    return [(label, text) for label, text, is_brief in _every_column(results) if is_brief or not brief]


def _every_column(results: Results) -> list[tuple[str, str, bool]]:
    reference = results.fitted[0].name
    return [
        *((score.label, score.explanation, score.is_brief) for score in results.scores),
        (
            f"log density vs {reference}",
            f"Difference of the mean log density from that of {reference}, with its standard error over observations; in "
            "brackets, the smallest difference that so many observations show in 80% of comparisons, and how many observations "
            "it takes for one of the size found.",
            False,
        ),
        (
            "worst R-hat",
            f"Largest R-hat of the predictions, which should be at most {MAX_RHAT}. It does not apply to independent draws.",
            True,
        ),
        ("min ESS", "Smallest effective sample size of a prediction.", True),
        ("gradients", COUNTED_GRADIENTS, False),
        ("seconds", "Wall time of the fit.", True),
        (
            "compiling",
            "How much of it was compiling, which another fit of the model in the same process does without.",
            True,
        ),
    ]


def rows(results: Results, *, brief: bool = False) -> list[tuple[str, list[TableCell]]]:
    """Return the name and the cells of each method, in the order of :func:`columns`."""
    everyone: list[Fitted | Baseline] = [*results.fitted, *results.baselines]
    labels = [score.label for score in results.scores]
    best = {
        score.label: score.best({one.name: one.scores[score.label] for one in results.fitted})
        for score in results.scores
    }
    shown = {
        score.label: score.shown({one.name: one.scores[score.label] for one in everyone}) for score in results.scores
    }
    several = len(results.fitted) > 1
    table = []
    for one in everyone:
        cells = [TableCell(shown[label][one.name], is_best=several and best[label] == one.name) for label in labels]
        if one is results.fitted[0]:
            cell = TableCell("reference")
        else:
            found = paired_difference(one, results.fitted[0])
            numbers = f"{found.difference:+.3f} ± {found.standard_error:.3f} ({found.detectable:.3f}; {found.about_needed or NO})"
            cell = TableCell("–" if isnan(found.difference) else numbers)
        cells.append(cell)
        if isinstance(one, Baseline):
            cells += [TableCell("–")] * 5
        else:
            attributes, rhat, ess = one.test.attrs, one.worst_rhat, one.min_ess
            cells += [
                TableCell("–" if isnan(rhat) else f"{rhat:.3f}", is_warning=rhat > MAX_RHAT),
                TableCell("–" if isnan(ess) else f"{ess:.0f}", is_warning=one.is_chain and ess < MIN_ESS),
                TableCell(gradients(attributes)),
                *(TableCell(text) for text in wall_time(attributes)),
            ]
        kept = zip(cells, _every_column(results), strict=True)
        table.append((one.name, [cell for cell, (_, _, is_brief) in kept if is_brief or not brief]))
    return table


def score_grid(results: Results) -> Grid:
    """Return the table of scores of a page."""
    labels = columns(results)
    table: list[tuple[str | TableCell, ...]] = [(name, *cells) for name, cells in rows(results)]
    return Grid("", "", ("method", *(label for label, _ in labels)), tuple(table), tuple(labels))


def data_grid(results: Results) -> Grid | None:
    """Return the observations and the inputs that the trees hold, None if they hold none."""
    first = results.fitted[0]
    groups = {"training": (first.train, "observed_data", "constant_data")}
    if results.rows != "training":
        groups[results.rows] = (first.test, "predictions_observed_data", "predictions_constant_data")
    rows = []
    for label, (tree, targets, inputs) in groups.items():
        for group in (targets, inputs):
            for name, values in _columns(tree, group):
                named = results.target if group == targets else name
                rows.append((named, label, *_summary(values, results.classes if group == targets else ())))
    note = f"Of inputs with many columns the first {MAX_COLUMNS} are shown." if len(rows) >= MAX_COLUMNS else ""
    columns = ("variable", "rows of", "number", "mean", "sd", "smallest", "largest")
    return Grid("", note, columns, tuple(rows)) if rows else None


def _columns(tree: xr.DataTree, group: str) -> list[tuple[str, np.ndarray]]:
    if group not in tree.children:
        return []
    found: list[tuple[str, np.ndarray]] = []
    for name, array in tree[group].data_vars.items():
        if array.ndim < 2:
            found.append((str(name), array.to_numpy().ravel()))
            continue
        flat = array.to_numpy().reshape(len(array), -1)[:, :MAX_COLUMNS]
        labels = array.coords[array.dims[1]].to_numpy() if array.ndim == 2 and array.dims[1] in array.coords else None
        for j, column in enumerate(flat.T):
            label = str(j if labels is None else labels[j])
            found.append((f"{name}[{label}]" if label.isdigit() else label, column))
    return found[:MAX_COLUMNS]


def _summary(values: np.ndarray, classes: tuple[str, ...]) -> tuple[str, ...]:
    if classes and np.issubdtype(values.dtype, np.number):
        counts = np.bincount(values.astype(int), minlength=len(classes))
        listed = ", ".join(f"{name}: {count}" for name, count in zip(classes, counts, strict=True))
        return str(values.size), listed, NO, NO, NO
    if not np.issubdtype(values.dtype, np.number):
        return str(values.size), f"{len(np.unique(values.astype(str)))} different", NO, NO, NO
    known = values[np.isfinite(values.astype(float))].astype(float)
    if not known.size:
        return str(values.size), NO, NO, NO, NO
    return str(values.size), *(f"{each:.4g}" for each in (known.mean(), known.std(), known.min(), known.max()))


def method_grid(results: Results) -> Grid:
    """Return how the draws of each method were made, and what they cost."""
    columns = ("method", "made by", "draws", "seconds", "compiling", "engine", "gradients", "seed", "complete")
    note = (
        "As far as the trees say. Seconds are wall time on the machine of the fit; compiling is a part of them. "
        "Engine is how arithmetic was run: in native code, as graphs of torch's operations, or as Python. "
        "Gradients in brackets are those of the draws of a Markov chain, without its warm-up."
    )
    note += why_slower({fitted.name: fitted.test.attrs for fitted in results.fitted})
    rows = []
    for fitted in results.fitted:
        attributes = fitted.test.attrs
        library = f"{attributes.get('library', '')} {attributes.get('library_version', '')}".strip()
        group = next((g for g in ("predictions", "conditional", "predictions_log_likelihood") if fitted.has(g)), None)
        sizes = fitted.test[group].sizes if group else {}
        cells = (
            str(attributes.get("inference_method", library or "unknown")),
            f"{sizes.get('chain', 0)} × {sizes.get('draw', 0)}",
            *wall_time(attributes),
            engine(attributes),
            gradients(attributes),
            str(attributes.get("seed", NO)),
            str(attributes["complete"]),
        )
        rows.append((fitted.name, *cells))
    return Grid("", note, columns, tuple(rows))


def settings_of(fitted: Fitted) -> str:
    """Return the settings of a method as text, empty if its tree has none."""
    settings = json.loads(fitted.test.attrs["config"])
    return json.dumps(settings, indent=2) if settings else ""


def approximation_grid(results: Results) -> Grid | None:
    """Return how far approximations are from the posterior, None if none has a density."""
    rows = []
    for one in results.fitted:
        if not one.is_chain and (found := pareto(one)) is not None:
            k, threshold, ess = found
            bound = elbo(one.train)
            value = f"{float(bound['value']):.2f} ± {float(bound['mcse']):.2f}"
            rows.append((one.name, TableCell(f"{k:.2f}", is_warning=k > threshold), f"{ess:.0f}", value))
    note = (
        "Pareto k of the importance weights p(y, θ) / q(θ): at most 0.7 (less for few draws) if weighting could correct the "
        "approximation. ELBO: evidence lower bound in nats with its Monte Carlo standard error; a higher one is closer to the "
        "posterior."
    )
    columns = ("method", "Pareto k", "effective draws after weighting", "ELBO")
    return Grid("Approximations", note, columns, tuple(rows)) if rows else None


def uncertainty_grid(results: Results) -> Grid | None:
    """Return the mean uncertainty and its parts, None if no tree can be split."""
    parts = all_parts(results)
    if not parts:
        return None
    unit = "nats" if results.classes else f"squared units of {results.target}"
    rows = []
    for name, part in parts.items():
        total = part.aleatoric + part.epistemic
        share = 100 * part.epistemic.mean() / max(total.mean(), np.finfo(float).tiny)
        means = (f"{values.mean():.4g}" for values in (total, part.aleatoric, part.epistemic))
        rows.append((name, *means, f"{share:.1f}%", f"{np.quantile(part.epistemic, 0.95):.4g}"))
    columns = ("method", "total", "aleatoric", "epistemic", "epistemic share", "95% quantile of epistemic")
    return Grid("", f"Means over rows, in {unit}.", columns, tuple(rows))


def distance_grid(found: xr.Dataset) -> Grid:
    """Return the mean distances from the reference beside their Monte Carlo floors; those above their limit are marked.

    Parameters
    ----------
    found : Dataset
        Of :func:`bnnzoo.diagnostics.compare_posteriors`.
    """
    names = [str(name) for name in found.data_vars if f"{name}_floor" in found]
    rows: list[tuple[str | TableCell, ...]] = []
    for model in found["model"].to_numpy():
        own = found.sel(model=model)
        cells = [
            TableCell(
                f"{float(own[name].mean()):.3g} (floor {float(own[f'{name}_floor'].mean()):.3g})",
                is_warning=bool(own[name].mean() > own[f"{name}_limit"]),
            )
            for name in names
        ]
        ratio = [f"{float(own['sd_ratio'].mean()):.2f}"] if "sd_ratio" in own else []
        rows.append((str(model), *cells, *ratio))
    note = (
        f"Means over at most two hundred rows, of the distance from {found.attrs['reference']} and of its Monte Carlo floor: the "
        "distance between two halves of the reference. Distances are marked if they are above their limit, which 95% of "
        "mean distances between equal distributions do not exceed."
    )
    ratio = ["sd over that of the reference"] if "sd_ratio" in found else []
    return Grid("", note, ("method", *(TITLES.get(name, name) for name in names), *ratio), tuple(rows))


def sampler_grid(results: Results) -> Grid | None:
    """Return diagnostics of the Markov chains, None if no method ran any."""
    rows = []
    for fitted in results.fitted:
        if not fitted.is_chain:
            continue
        stats = fitted.stats()
        diverging = f"{int(stats['diverging'].sum())}" if "diverging" in stats else "–"
        depth, share = "–", "–"
        if "tree_depth" in stats:
            depths = stats["tree_depth"].to_numpy()
            limit = json.loads(fitted.train.attrs["config"]).get("max_tree_depth")
            depth = f"{depths.max()}"
            share = "–" if limit is None else f"{100 * (depths >= limit).mean():.0f}% at {limit}"
        smallest = "–"
        if "energy" in stats and stats.sizes["draw"] > 1:
            smallest = f"{float(np.min(bfmi(stats['energy'].transpose('chain', 'draw').to_numpy()))):.2f}"
        of_chains = f"{fitted.worst_rhat:.3f}", f"{fitted.min_ess:.0f}"
        rows.append((fitted.name, *of_chains, diverging, depth, share, smallest))
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


def loo_grid(results: Results) -> Grid | None:
    """Return leave-one-out estimates on the training data, None if no method has any."""
    found = {fitted.name: _loo(fitted) for fitted in results.fitted}
    usable = {name: result for name, result in found.items() if not isinstance(result, str)}
    if not usable:
        return None
    unreliable = {name: int((~(result.pareto_k <= GOOD_K)).sum()) for name, result in usable.items()}
    reliable = [name for name, result in usable.items() if unreliable[name] <= MAX_BAD * result.pareto_k.size]
    best = max(reliable, key=lambda name: usable[name].elpd, default=None)
    rows: list[tuple[str | TableCell, ...]] = []
    for name, result in sorted(found.items(), key=lambda each: each[0] not in reliable):
        if isinstance(result, str):
            rows.append((name, *["–"] * 6, result))
            continue
        gap = _loo_gap(usable[best], result) if best and name in reliable else ("unreliable", "–", "–")
        bad = f"{unreliable[name]} of {result.pareto_k.size}"
        cells = (f"{result.elpd:.1f}", f"{result.se:.1f}", f"{result.p:.1f}") if name in reliable else ("–",) * 3
        rows.append((name, *cells, *(("best", "–", "–") if name == best else gap), bad))
    note = (
        "Expected log predictive density of the training data, each observation predicted without itself (PSIS-LOO), as by "
        f"bnnzoo.diagnostics.loo. Where Pareto k is above {GOOD_K} for more than a few observations, the estimate is unreliable "
        "and not shown: look at held-out scores, or use bnnzoo.validation.kfold. Differences are shown with their standard error "
        "and, in brackets, the smallest one that so many observations show in 80% of comparisons; the observations needed show "
        "one of the size found. The probability of being worse is that of a normal distribution of this mean and error, too sure "
        "of itself below 100 observations."
    )
    columns = (
        "method",
        "elpd",
        "standard error",
        "effective parameters",
        "difference from the best",
        "observations needed",
        "probability of being worse",
        f"k above {GOOD_K}",
    )
    return Grid("Leave-one-out cross-validation", note, columns, tuple(rows))


def _loo_gap(best: ELPDData, other: ELPDData) -> tuple[str, str, str]:
    """Return the difference of two sums over the same observations, how many show it, and how probably it is below zero."""
    found = PairedComparison.of_rows((other.elpd_i - best.elpd_i).to_numpy())
    gap, error, least = (found.num_rows * each for each in (found.difference, found.standard_error, found.detectable))
    worse = found.probability_worse
    told = "–" if isnan(worse) else f"{min(max(worse, 0.01), 0.99):.2f}"
    return f"{gap:+.1f} ± {error:.1f} ({least:.1f})", found.about_needed or NO, told


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
