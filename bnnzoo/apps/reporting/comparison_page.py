"""The report of a comparison on a table."""

import json

import numpy as np

from bnnzoo.apps.reporting.checks import class_grid, confusion_grid, loo_grid, sampler_grid
from bnnzoo.apps.reporting.choices import LIKELIHOODS
from bnnzoo.apps.reporting.comparison import Comparison
from bnnzoo.apps.reporting.figures import effect_pictures, pictures
from bnnzoo.apps.reporting.findings import findings, score_grid
from bnnzoo.apps.reporting.page import Page, footer
from bnnzoo.apps.reporting.page_blocks import Block, Code, Section, Sentences
from bnnzoo.apps.reporting.repeats import repeat_grid
from bnnzoo.apps.reporting.style import colours
from bnnzoo.apps.tables import Table

__all__ = ["render"]

_TREATMENT = {
    "real": "Inputs and target were standardised",
    "positive": "Inputs were standardised, and the target divided by its mean,",
    **dict.fromkeys(("class", "count", "proportion"), "Inputs were standardised"),
}
ON_SCALE = "parameters of the likelihood, such as sigma, are on the scale of the standardised target"
BY_CLASS = "Held-out observations. A dash means that the class was never predicted or never observed."


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
    table = comparison.table
    sections = (
        Section("Findings", (Sentences(tuple(findings(comparison))),)),
        Section("Scores of held-out predictions", (score_grid(comparison),)),
        *_repeated(comparison),
        *(Section(grid.title, (grid,)) for grid in (loo_grid(comparison), sampler_grid(comparison)) if grid),
        *_by_class(comparison),
        *(Section(each.title, (each,)) for each in (*pictures(comparison), *effect_pictures(comparison))),
        Section("Data and settings", _settings(comparison)),
    )
    return Page(
        kicker=f"Bayesian neural network · {table.task}",
        title=f"{table.target}, from {comparison.source}",
        description=f"{comparison.model}.",
        facts=_facts(comparison),
        sections=sections,
        colours=colours(fitted.name for fitted in comparison.fitted),
        simple=tuple(baseline.name for baseline in comparison.baselines),
        footer=footer(),
    ).html()


def _repeated(comparison: Comparison) -> list[Section]:
    if not comparison.repeats:
        return []
    grid = repeat_grid(comparison.repeats, comparison.scores)
    return [Section(grid.title, (grid,))]


def _facts(comparison: Comparison) -> tuple[tuple[str, str], ...]:
    table = comparison.table
    last = ("Classes", len(table.classes)) if table.classes else (f"sd of {table.target}", f"{_sd(table):.4g}")
    facts = {
        "Rows": len(table.y_train) + len(table.y_test),
        "Training": len(table.y_train),
        "Held out": len(table.y_test),
        "Inputs": len(table.features),
        last[0]: last[1],
        "Seed": comparison.seed,
    }
    return tuple((label, str(value)) for label, value in facts.items())


def _sd(table: Table) -> float:
    return table.y_scale * float(np.asarray(table.y_train, dtype=float).std())


def _by_class(comparison: Comparison) -> list[Section]:
    classes = comparison.classes
    if not classes:
        return []
    grids = [make(fitted, classes) for fitted in comparison.fitted for make in (confusion_grid, class_grid)]
    return [Section("Confusion matrices and scores by class", (*grids, Sentences((BY_CLASS,))))]


def _settings(comparison: Comparison) -> tuple[Block, ...]:
    table, fitted = comparison.table, comparison.fitted
    family = LIKELIHOODS[comparison.likelihood]
    standardised = f"; {ON_SCALE}" if family.support == "real" else ""
    introduction = (
        f"{_TREATMENT[family.support]} by the training part. Predictions and scores are in the units of the target, so log "
        f"densities include the Jacobian{standardised}. Next to this page are predictions.csv, the held-out predictions one row "
        f"each, effects.csv, the effects of all inputs, {'splits.csv, all scores, ' if comparison.repeats else ''}"
        "and one netCDF file per method, with the tree of the training data at its root and the predictions for "
        f'held-out observations in held_out: xarray.open_datatree("{fitted[0].name}.nc").'
    )
    blocks: list[Block] = [Sentences((introduction,))]
    for one in fitted:
        settings = json.dumps(json.loads(one.train.attrs["config"]), indent=2)
        blocks.append(Code(f"{one.name}: settings", settings))
    if table.classes:
        blocks.append(Code("Classes", ", ".join(table.classes)))
    if table.notes:
        blocks.append(Sentences((" ".join(table.notes),)))
    blocks.append(Code("Inputs", ", ".join(table.features)))
    blocks.append(Code("Held-out rows (counted from 1)", ", ".join(map(str, table.test_rows))))
    return tuple(blocks)
