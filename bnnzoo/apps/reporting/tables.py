"""Tables of a report about what was fitted: data, methods with their cost, uncertainty and distances from the reference."""

import json

import numpy as np
import xarray as xr

from bnnzoo.apps.reporting.distances import TITLES
from bnnzoo.apps.reporting.findings import wall_time
from bnnzoo.apps.reporting.page_blocks import Cell, Grid
from bnnzoo.apps.reporting.parts import all_parts
from bnnzoo.apps.reporting.results import Fitted, Results
from bnnzoo.apps.reporting.verdicts import pareto
from bnnzoo.diagnostics import elbo

__all__ = ["approximation_grid", "data_grid", "distance_grid", "method_grid", "settings_of", "uncertainty_grid"]

MAX_COLUMNS = 40
NO = "–"


def data_grid(results: Results) -> Grid | None:
    """Return the observations and the inputs that the trees hold, None if they hold none."""
    first = results.fitted[0]
    groups = {"training": (first.train, "observed_data", "constant_data")}
    if results.rows != "training":
        groups[results.rows] = (first.test, "predictions_observed_data", "predictions_constant_data")
    rows = []
    for label, (tree, observed, inputs) in groups.items():
        for group in (observed, inputs):
            for name, values in _columns(tree, group):
                named = results.target if group == observed else name
                rows.append((named, label, *_summary(values, results.classes if group == observed else ())))
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
    columns = ("method", "made by", "draws", "seconds", "compiling", "gradients", "seed", "complete")
    note = "As far as the trees say. Seconds are wall time on the machine of the fit; compiling is a part of them."
    return Grid("", note, columns, tuple((one.name, *_of_method(one)) for one in results.fitted))


def _of_method(fitted: Fitted) -> tuple[str, ...]:
    attributes = fitted.test.attrs
    library = f"{attributes.get('library', '')} {attributes.get('library_version', '')}".strip()
    group = next((g for g in ("predictions", "conditional", "predictions_log_likelihood") if fitted.has(g)), None)
    sizes = fitted.test[group].sizes if group else {}
    return (
        str(attributes.get("inference_method", library or "unknown")),
        f"{sizes.get('chain', 0)} × {sizes.get('draw', 0)}",
        *wall_time(attributes),
        f"{int(attributes['num_gradients']):,}" if "num_gradients" in attributes else NO,
        str(attributes.get("seed", NO)),
        str(attributes["complete"]),
    )


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
            rows.append((one.name, Cell(f"{k:.2f}", is_warning=k > threshold), f"{ess:.0f}", value))
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
    rows: list[tuple[str | Cell, ...]] = []
    for model in found["model"].to_numpy():
        own = found.sel(model=model)
        cells = [
            Cell(
                f"{float(own[name].mean()):.3g} (floor {float(own[f'{name}_floor'].mean()):.3g})",
                is_warning=_is_far(own, name),
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


def _is_far(own: xr.Dataset, name: str) -> bool:
    return bool(own[name].mean() > own[f"{name}_limit"])
