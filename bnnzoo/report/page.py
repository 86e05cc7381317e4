"""A comparison as one HTML file with everything in it."""

import base64
import io
import json
from collections.abc import Mapping
from importlib.resources import files

from jinja2 import Environment, StrictUndefined
from matplotlib.figure import Figure

from bnnzoo.predictive.datatree import versions
from bnnzoo.report import classification, regression
from bnnzoo.report.distances import has_distances, plot_distances
from bnnzoo.report.latent import plot_latent_sites
from bnnzoo.report.methods import Comparison
from bnnzoo.report.parts import split
from bnnzoo.report.style import colours, look
from bnnzoo.report.summary import columns, findings, rows

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
        HTML without references to other files: pictures are embedded as SVG.
    """
    template = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    source = (files("bnnzoo.report") / "template.html").read_text(encoding="utf-8")
    table = comparison.table
    return template.from_string(source).render(
        comparison=comparison,
        table=table,
        num_rows=len(table.y_train) + len(table.y_test),
        columns=columns(comparison),
        rows=rows(comparison),
        findings=findings(comparison),
        colours=colours(f.name for f in comparison.fitted),
        pictures=pictures(comparison),
        configs={f.name: _config(f.train.attrs) for f in comparison.fitted},
        versions=versions(),
    )


def pictures(comparison: Comparison) -> list[Picture]:
    """Return the pictures of a report in their order, each with title, caption and image as data URI."""
    parts = {fitted.name: split(fitted.test) for fitted in comparison.fitted}
    with look():
        figures = (
            _of_regression(comparison, parts)
            if comparison.table.task == "regression"
            else _of_classes(comparison, parts)
        )
        if has_distances(comparison):
            figures.append(("How far from the reference?", _DISTANCES, plot_distances(comparison)))
        figures.append(("What the methods learned", _LATENT, plot_latent_sites(comparison)))
        return [{"title": title, "caption": caption, "image": _data_uri(figure)} for title, caption, figure in figures]


_DISTANCES = (
    "Distance of each method's predictions from those of the first method: the mean over held-out rows (dot) and the "
    "middle half of rows (band). The black tick is the same distance between two halves of the reference: what is not "
    "clearly to its right was not shown to differ."
)
_LATENT = (
    "Posterior of what is not a network weight (the noise scale in standardised units, or the norm of all weights "
    "where there is nothing else). Weights themselves are not shown, because "
    "relabelling hidden units changes them without changing the network."
)


def _of_regression(comparison: Comparison, parts: Mapping) -> list[tuple[str, str, Figure]]:
    return [
        (
            "Held-out predictions",
            "Each line is the central 90% predictive interval of a held-out row, each dot its mean; on the dashed line "
            "a prediction is exact. Intervals that miss the observation are in full colour: about one in ten should.",
            regression.plot_predictions(comparison),
        ),
        (
            "Noise or ignorance?",
            "The predictive variance is the mean of the variances (pale: noise, which more data would not remove) plus "
            "the variance of the means (full colour: ignorance of the weights, which it would).",
            regression.plot_variance(comparison, dict(parts)),
        ),
        (
            "Calibration",
            "Left: how often central intervals of every level held the observation. Right: where observations fall in "
            "their predictive distributions; above zero on the left end means that too many fall low.",
            regression.plot_calibration(comparison),
        ),
    ]


def _of_classes(comparison: Comparison, parts: Mapping) -> list[tuple[str, str, Figure]]:
    return [
        (
            "Confidence",
            "How probable the predicted class was, for rows predicted rightly (pale) and wrongly (full colour).",
            classification.plot_confidence(comparison),
        ),
        (
            "Noise or ignorance?",
            "Each row's predictive entropy is the expected entropy (the classes overlap) plus the mutual information "
            "between class and weights (the methods do not know). Crosses were predicted wrongly.",
            classification.plot_entropy(comparison, dict(parts)),
        ),
        (
            "Calibration",
            "Left: on the dashed line, what is said to be right with probability p is right in a share p of the rows. "
            "Right: accuracy if only the rows of which a method is most certain are predicted and the rest set aside.",
            classification.plot_reliability(comparison),
        ),
    ]


def _data_uri(figure: Figure) -> str:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    return f"data:image/svg+xml;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def _config(attributes: Mapping) -> str:
    return json.dumps(json.loads(attributes["config"]), indent=2)
