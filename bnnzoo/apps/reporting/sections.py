"""The model of a report: its sites in a table and, if graphviz is installed, as a picture."""

import base64
import inspect
from collections.abc import Mapping
from typing import Any

import pyro
import torch
import xarray as xr

from bnnzoo.apps.reporting.page_blocks import Block, Code, Grid, Picture, Sentences
from bnnzoo.apps.reporting.results import Fitted
from bnnzoo.core.posterior.posterior import Posterior
from bnnzoo.core.program.sites import innermost, is_deterministic

__all__ = ["model_blocks"]

KINDS = {"posterior": "latent", "weights": "network weights", "observed_data": "observed"}
COLUMNS = ("site", "kind", "distribution", "shape", "plates")


def model_blocks(fitted: Fitted, posterior: Posterior | None) -> tuple[Block, ...]:
    """Return what is known of the model: from a posterior everything, from a tree the names and shapes of its sites."""
    if posterior is None:
        return _from_tree(fitted)
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
            _plates(node),
        )
        for name, node in nodes.items()
        if node["type"] == "sample" and hasattr(node["value"], "shape") and not _is_plate(node)
    ]
    note = f"{density.num_params} parameters; {density.num_data} observations. Values that differ within a site are a range."
    blocks: list[Block] = [Grid("", note, COLUMNS, tuple(rows))] if rows else []
    drawn = _picture(density.model, density.data) if density.has_data else None
    blocks.append(
        drawn or Sentences(("There is no picture of the model: it needs the package graphviz and its program dot.",))
    )
    return (*blocks, *_source(density.model))


def _from_tree(fitted: Fitted) -> tuple[Block, ...]:
    rows = []
    for group, kind in KINDS.items():
        for name, values in _variables(fitted.train, group).items():
            shape = tuple(size for dim, size in values.sizes.items() if dim not in ("chain", "draw"))
            rows.append((str(name), kind, "–", _shape(shape), "–"))
    note = "From the first tree. Trees hold no model: pass posterior= for the distributions of its sites."
    return (Grid("", note, COLUMNS, tuple(rows)),) if rows else (Sentences(("The trees name no site of the model.",)),)


def _variables(tree: xr.DataTree, group: str) -> Mapping[Any, xr.DataArray]:
    return tree[group].data_vars if group in tree.children else {}


def _kind(node: Mapping[str, Any], is_weight: bool) -> str:
    if is_deterministic(dict(node)):
        return "deterministic"
    return "observed" if node["is_observed"] else "network weights" if is_weight else "latent"


def _is_plate(node: Mapping[str, Any]) -> bool:
    return type(node["fn"]).__name__ == "_Subsample"


def _distribution(fn: Any) -> str:
    """Return the name of a distribution, with parameters that are the same everywhere; others as a range."""
    base = innermost(fn)
    named = {name: getattr(base, name, None) for name in getattr(base, "arg_constraints", {})}
    shown = [f"{name}={_range(value)}" for name, value in named.items() if isinstance(value, torch.Tensor)]
    return f"{type(base).__name__}({', '.join(shown)})"


def _range(value: torch.Tensor) -> str:
    low, high = float(value.min()), float(value.max())
    return f"{low:.3g}" if low == high else f"{low:.3g}…{high:.3g}"


def _shape(shape: tuple[int, ...] | torch.Size) -> str:
    return " × ".join(map(str, shape)) or "scalar"


def _plates(node: Mapping[str, Any]) -> str:
    return ", ".join(frame.name for frame in node["cond_indep_stack"] if frame.vectorized) or "–"


def _picture(model: Any, data: Any) -> Picture | None:
    """Return Pyro's picture of the model, None where it cannot be drawn."""
    try:
        image = pyro.render_model(model, model_args=tuple(data), render_distributions=True).pipe(format="svg")
    except Exception:  # no graphviz, no program dot, or a model that Pyro's tracing of dependencies cannot run
        return None
    uri = f"data:image/svg+xml;base64,{base64.b64encode(image).decode()}"
    return Picture("Sites of the model", "Open nodes are latent, filled ones observed; boxes are plates.", uri, uri)


def _source(model: Any) -> tuple[Code, ...]:
    """Return the source of a model that is a function in a file."""
    try:
        return (Code("Source of the model", inspect.getsource(model)),) if inspect.isfunction(model) else ()
    except OSError:
        return ()
