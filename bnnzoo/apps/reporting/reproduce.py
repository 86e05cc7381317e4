"""Code that repeats the fits of a report, as far as the trees know them."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from bnnzoo import inference
from bnnzoo.apps.reporting.results import Fitted, Results
from bnnzoo.inference.config import config_of

__all__ = ["code"]


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
