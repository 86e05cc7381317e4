"""Sections of the page of any trees: the model, a model in use, and code that repeats the fits."""

import base64
import dataclasses
import inspect
import json
from collections.abc import Mapping
from functools import partial
from typing import Any

import pyro
import torch
import xarray as xr
from matplotlib.figure import Figure

from bnnzoo import inference
from bnnzoo.apps.reporting.results import Fitted, Results
from bnnzoo.apps.reporting.style import MUTED, PALETTE, clean, drawn, new_figure
from bnnzoo.core.posterior.posterior import Posterior
from bnnzoo.core.program.sites import innermost, is_deterministic
from bnnzoo.documents.page import Block, Code, Grid, Picture, Section, Sentences, TableCell
from bnnzoo.inference.config import config_of
from bnnzoo.plots.windows import STATISTICS, shown_statistics

__all__ = ["code", "model_blocks", "window_sections"]

KINDS = {"posterior": "latent", "weights": "network weights", "observed_data": "observed"}
COLUMNS = ("site", "kind", "distribution", "shape", "plates")
WINDOWS = (
    "Statistics of consecutive windows of new rows with their intervals; dashed lines are the values of the reference rows. "
    "Drift shows as intervals that leave the dashed line and stay away from it; single ones do so by chance."
)
SMALL = 0.01  # p-value of a window, before counting how many windows there are
TEST = f"Kolmogorov-Smirnov test, level {SMALL}, Bonferroni"


def model_blocks(fitted: Fitted, posterior: Posterior | None) -> tuple[Block, ...]:
    """Return what is known of the model: from a posterior everything, from a tree the names and shapes of its sites."""
    if posterior is None:
        rows = []
        for group, kind in KINDS.items():
            for name, values in fitted.train[group].data_vars.items() if group in fitted.train.children else ():
                shape = tuple(size for dim, size in values.sizes.items() if dim not in ("chain", "draw"))
                rows.append((str(name), kind, "–", _shape(shape), "–"))
        note = "From the first tree. Trees hold no model: pass posterior= for the distributions of its sites."
        return (
            (Grid("", note, COLUMNS, tuple(rows)),) if rows else (Sentences(("The trees name no site of the model.",)),)
        )
    density = posterior.density
    theta = posterior.draws(1).reshape(-1, density.num_params)[0]
    nodes = density.nodes(theta, *density.data) if density.has_data else {}
    weights = {site.name for site in density.sites if site.is_weight}
    rows = [
        (
            str(name),
            _kind(node, str(name) in weights),
            _distribution(node["fn"]),
            _shape(node["value"].shape),
            (", ".join(frame.name for frame in node["cond_indep_stack"] if frame.vectorized) or "–"),
        )
        for name, node in nodes.items()
        if node["type"] == "sample"
        and hasattr(node["value"], "shape")
        and type(node["fn"]).__name__ != "_Subsample"  # a plate
    ]
    note = f"{density.num_params} parameters; {density.num_data} observations. Values that differ within a site are a range."
    blocks: list[Block] = [Grid("", note, COLUMNS, tuple(rows))] if rows else []
    drawn = _picture(density.model, density.data) if density.has_data else None
    blocks.append(
        drawn or Sentences(("There is no picture of the model: it needs the package graphviz and its program dot.",))
    )
    try:
        source = (
            (Code("Source of the model", inspect.getsource(density.model)),)
            if inspect.isfunction(density.model)
            else ()
        )
    except OSError:
        source = ()
    return (*blocks, *source)


def _kind(node: Mapping[str, Any], is_weight: bool) -> str:
    if is_deterministic(dict(node)):
        return "deterministic"
    return "observed" if node["is_observed"] else "network weights" if is_weight else "latent"


def _distribution(fn: Any) -> str:
    """Return the name of a distribution, with parameters that are the same everywhere; others as a range."""
    base = innermost(fn)
    named = {name: getattr(base, name, None) for name in getattr(base, "arg_constraints", {})}
    shown = []
    for name, value in named.items():
        if isinstance(value, torch.Tensor):
            low, high = f"{float(value.min()):.3g}", f"{float(value.max()):.3g}"
            shown.append(f"{name}={low}" if float(value.min()) == float(value.max()) else f"{name}={low}…{high}")
    return f"{type(base).__name__}({', '.join(shown)})"


def _shape(shape: tuple[int, ...] | torch.Size) -> str:
    return " × ".join(map(str, shape)) or "scalar"


def _picture(model: Any, data: Any) -> Picture | None:
    """Return Pyro's picture of the model, None where it cannot be drawn."""
    try:
        image = pyro.render_model(model, model_args=tuple(data), render_distributions=True).pipe(format="svg")
    except Exception:  # no graphviz, no program dot, or a model that Pyro's tracing of dependencies cannot run
        return None
    uri = f"data:image/svg+xml;base64,{base64.b64encode(image).decode()}"
    return Picture("Sites of the model", "Open nodes are latent, filled ones observed; boxes are plates.", uri, uri)


def window_sections(windows: Mapping[str, xr.Dataset]) -> tuple[Section, ...]:
    """Return a section for each result of :func:`bnnzoo.monitor`.

    Parameters
    ----------
    windows : mapping of str to Dataset
    """
    sections = []
    for name, found in windows.items():
        title = f"Monitoring: {name}" if name else "Monitoring"
        figure = drawn(title, WINDOWS, partial(_figure, found))
        sections.append(Section(title, (Sentences((_verdict(found),)), figure, _grid(found))))
    return tuple(sections)


def _verdict(found: xr.Dataset) -> str:
    """Return how many windows differ from the reference, with their number taken into account."""
    p_values = found["drift_p_value"].to_numpy()
    count = int((p_values < SMALL / len(p_values)).sum())
    if not count:
        return f"No window of {len(p_values)} has other scores than the reference ({TEST})."
    first = int((p_values < SMALL / len(p_values)).argmax())
    return (
        f"{count} of {len(p_values)} windows have other scores than the reference ({TEST}); the "
        f"first is window {first}. The inputs have drifted: look at rows of that window before relying on predictions."
    )


def _figure(found: xr.Dataset) -> Figure:
    names = shown_statistics(found)
    figure, panels = new_figure(len(names), height=2.6)
    for axes, name in zip(panels, names, strict=True):
        x, y = (
            found["window"].to_numpy() if "window" in found.coords else range(found.sizes["window"]),
            found[name].to_numpy(),
        )
        if f"{name}_low" in found:
            low, high = found[f"{name}_low"].to_numpy(), found[f"{name}_high"].to_numpy()
            axes.fill_between(x, low, high, color=PALETTE[0], alpha=0.2, linewidth=0)
        axes.plot(x, y, color=PALETTE[0], marker="o", markersize=3.5, linewidth=1.4)
        if f"reference_{name}" in found:
            axes.axhline(float(found[f"reference_{name}"]), color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
        if name == "drift_p_value":
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter("{x:g}")  # a power of ten would be mathematics, which the style leaves alone
        clean(axes, STATISTICS[name], "window")
    return figure


def _grid(found: xr.Dataset) -> Grid:
    names = shown_statistics(found)
    limit = SMALL / max(1, found.sizes["window"])
    rows: list[tuple[str | TableCell, ...]] = []
    for i in range(found.sizes["window"]):
        texts = {name: f"{float(found[name][i]):.3g}" for name in names}
        cells = (
            TableCell(text, is_warning=name == "drift_p_value" and float(text) < limit) for name, text in texts.items()
        )
        rows.append((str(i), f"{float(found['count'][i]):.0f}", *cells))
    note = f"P-values below {SMALL} divided by the number of windows are marked."
    return Grid("", note, ("window", "rows", *(STATISTICS[name] for name in names)), tuple(rows))


def code(results: Results) -> str:
    """Return a script that fits every method of bnnzoo again and writes the report.

    Parameters
    ----------
    results : Results
        Whose trees hold the class of each method, its settings and its seed.
    """
    known = {one.name: call for one in results.fitted if (call := _fit(one))}
    if not known:
        return "# The trees do not say how they were made."
    lines = ["import bnnzoo as bz", "", "# model, x, y and new rows are yours: trees do not hold the model"]
    lines += (
        ["# ... stands for an object: see the settings above"] if any("=..." in call for call in known.values()) else []
    )
    lines += ["fits = {", *(f"    {name!r}: {call}," for name, call in known.items()), "}"]
    unknown = [one.name for one in results.fitted if one.name not in known]
    lines += [f"# {', '.join(unknown)}: made by other means"] if unknown else []
    training = "{name: bz.posterior_predictive(fit, x, y) for name, fit in fits.items()}"
    if results.rows == "training":
        return "\n".join([*lines, f"trees = {training}", 'bz.report(trees, "report.html")'])
    return "\n".join(
        [
            *lines,
            f"train = {training}",
            "trees = {name: bz.predict(fit, x_new, y_new) for name, fit in fits.items()}",
            'bz.report(trees, "report.html", train=train)',
        ]
    )


def _fit(fitted: Fitted) -> str:
    attributes = fitted.test.attrs
    call = _call(str(attributes.get("inference_method", "")), json.loads(attributes["config"]))
    return f"bz.fit(model, {call}, x, y, seed={attributes.get('seed', 0)})" if call else ""


def _call(kind: str, config: Mapping[str, Any]) -> str:
    """Return the constructor of a method with the settings that are not defaults, empty if there is no such method."""
    found = getattr(inference, kind, None)
    if not (isinstance(found, type) and dataclasses.is_dataclass(found) and hasattr(found, "needs")):
        return ""
    try:
        defaults: Mapping[str, Any] = config_of(found())
    except TypeError:  # of a method that has settings without a default
        defaults = {}
    own = [field.name for field in dataclasses.fields(found)]
    changed = {name: config[name] for name in own if name in config and config[name] != defaults.get(name, ...)}
    return f"bz.{kind}({', '.join(f'{name}={_value(value)}' for name, value in changed.items())})"


def _value(value: Any) -> str:
    """Return a setting as code: of objects that are no methods, three dots."""
    if isinstance(value, Mapping):
        return _call(str(value.get("method", "")), value) or "..."
    return repr(tuple(value) if isinstance(value, list) else value)
