"""The report of a comparison as one self-contained HTML file."""

import base64
import io
import json
from collections.abc import Mapping
from importlib.resources import files

from jinja2 import Environment, StrictUndefined
from matplotlib.figure import Figure

from bnnzoo.predictive.datatree import versions
from bnnzoo.reporting import classification, regression
from bnnzoo.reporting.chains import has_chains, plot_chains
from bnnzoo.reporting.checks import class_grid, confusion_grid, loo_grid, sampler_grid
from bnnzoo.reporting.distances import has_distances, plot_distances
from bnnzoo.reporting.latent import plot_latent_sites
from bnnzoo.reporting.methods import Comparison
from bnnzoo.reporting.parts import split
from bnnzoo.reporting.predictive_check import has_replicates, plot_predictive_check
from bnnzoo.reporting.style import colours, look
from bnnzoo.reporting.summary import columns, findings, rows

__all__ = ["Picture", "pictures", "render"]

type Picture = dict[str, str]


def render(comparison: Comparison) -> str:
    """Return the report as one self-contained HTML document.

    Parameters
    ----------
    comparison : Comparison

    Returns
    -------
    str
        HTML without references to other files; figures are embedded as SVG.
    """
    template = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    source = (files("bnnzoo.reporting") / "template.html").read_text(encoding="utf-8")
    table = comparison.table
    return template.from_string(source).render(
        comparison=comparison,
        table=table,
        num_rows=len(table.y_train) + len(table.y_test),
        columns=columns(comparison),
        rows=rows(comparison),
        findings=findings(comparison),
        grids=[grid for grid in (loo_grid(comparison), sampler_grid(comparison)) if grid],
        class_grids=[
            (confusion_grid(fitted, table.classes), class_grid(fitted, table.classes))
            for fitted in (comparison.fitted if table.classes else ())
        ],
        colours=colours(f.name for f in comparison.fitted),
        pictures=pictures(comparison),
        configs={f.name: _config(f.train.attrs) for f in comparison.fitted},
        versions=versions(),
    )


def pictures(comparison: Comparison) -> list[Picture]:
    """Return the figures of a report in order, each with its title, caption and image as data URI."""
    parts = {fitted.name: split(fitted.test) for fitted in comparison.fitted}
    with look():
        figures = (
            _of_regression(comparison, parts)
            if comparison.table.task == "regression"
            else _of_classes(comparison, parts)
        )
        if has_replicates(comparison):
            figures.append(("Posterior predictive check", _REPLICATES, plot_predictive_check(comparison)))
        if has_distances(comparison):
            figures.append(("Distance from the reference", _DISTANCES, plot_distances(comparison)))
        figures.append(("Posterior of the other parameters", _LATENT, plot_latent_sites(comparison)))
        figures += [(f"Chains of {f.name}", _CHAINS, plot_chains(f)) for f in comparison.fitted if has_chains(f)]
        return [{"title": title, "caption": caption, "image": _data_uri(figure)} for title, caption, figure in figures]


_DISTANCES = (
    "Distance of each method's predictions from those of the first method: mean (dot) and interquartile range (band) over "
    "held-out observations. The black tick is the same distance between two halves of the reference; a dot that is not "
    "clearly to its right is no evidence of a difference."
)
_REPLICATES = (
    "Targets of the training part, and data of the same size drawn from the fitted model. Systematic differences, such as "
    "replicates below zero for a positive target, are features of the data that the model cannot produce."
)
_CHAINS = (
    "Trace: chains should look alike and show no trend. Ranks of each chain's draws among all draws: flat near the dashed line "
    "for chains that agree. Energy: the change per transition should be as wide as the energy itself."
)
_LATENT = (
    "Posterior of the parameters that are not network weights (the noise scale in standardised units, or the norm of all "
    "weights if there are no others). Weights are not shown, because relabelling hidden units changes them without "
    "changing the network."
)


def _of_regression(comparison: Comparison, parts: Mapping) -> list[tuple[str, str, Figure]]:
    return [
        (
            "Held-out predictions",
            "Central 90% predictive interval (line) and mean (dot) of each held-out observation; predictions on the dashed "
            "line are exact. Intervals that miss the observation are in full colour: about one in ten should.",
            regression.plot_predictions(comparison),
        ),
        (
            "Aleatoric and epistemic uncertainty",
            "The predictive variance is the mean of the variances (pale: aleatoric, noise that more data would not remove) "
            "plus the variance of the means (full colour: epistemic, which more data would reduce).",
            regression.plot_variance(comparison, dict(parts)),
        ),
        (
            "Calibration",
            "Left: coverage of central predictive intervals against their nominal level. Right: empirical distribution of "
            "the probability integral transform minus the uniform; positive values on the left mean that too many "
            "observations fall low.",
            regression.plot_calibration(comparison),
        ),
    ]


def _of_classes(comparison: Comparison, parts: Mapping) -> list[tuple[str, str, Figure]]:
    return [
        (
            "Confidence",
            "Probability of the predicted class, for correct (pale) and wrong (full colour) predictions.",
            classification.plot_confidence(comparison),
        ),
        (
            "Aleatoric and epistemic uncertainty",
            "The predictive entropy of an observation is the expected entropy (aleatoric: the classes overlap) plus the "
            "mutual information between class and weights (epistemic). Rings are wrong predictions.",
            classification.plot_entropy(comparison, dict(parts)),
        ),
        (
            "Calibration",
            "Left: accuracy against predicted probability; calibrated probabilities lie on the dashed line. Right: accuracy "
            "if only the most certain observations are predicted, and the others rejected.",
            classification.plot_reliability(comparison),
        ),
    ]


def _data_uri(figure: Figure) -> str:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    return f"data:image/svg+xml;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def _config(attributes: Mapping) -> str:
    return json.dumps(json.loads(attributes["config"]), indent=2)
