"""The pages of a comparison on a table and of any trees."""

import json
from collections.abc import Mapping

import numpy as np
import xarray as xr

from bnnzoo.apps.reporting.choices import LIKELIHOODS
from bnnzoo.apps.reporting.comparison import Comparison
from bnnzoo.apps.reporting.figures import UNCERTAINTY, effect_pictures, pictures
from bnnzoo.apps.reporting.gather import MAX_DIAGNOSED
from bnnzoo.apps.reporting.prediction_figures import distances, has_distances
from bnnzoo.apps.reporting.repeated_splits import repeat_grid
from bnnzoo.apps.reporting.report_findings import differences, findings, missing
from bnnzoo.apps.reporting.report_verdicts import verdict, warning
from bnnzoo.apps.reporting.results import Results, TreeResults
from bnnzoo.apps.reporting.sections import code, model_blocks, window_sections
from bnnzoo.apps.reporting.style import MAX_ROWS, colours
from bnnzoo.apps.reporting.tables import (
    approximation_grid,
    class_grid,
    confusion_grid,
    data_grid,
    distance_grid,
    loo_grid,
    method_grid,
    sampler_grid,
    score_grid,
    settings_of,
    uncertainty_grid,
)
from bnnzoo.core.posterior.posterior import Posterior
from bnnzoo.documents.page import Block, Code, Grid, Page, Section, Sentences, footer
from bnnzoo.predictive.datatree import versions

__all__ = ["render", "tree_page"]

_TREATMENT = {
    "real": "Inputs and target were standardised",
    "positive": "Inputs were standardised, and the target divided by its mean,",
    **dict.fromkeys(("class", "count", "proportion"), "Inputs were standardised"),
}
ON_SCALE = "parameters of the likelihood, such as sigma, are on the scale of the standardised target"
BY_CLASS = Sentences(("Held-out observations. A dash means that the class was never predicted or never observed.",))


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
    table, by_class = comparison.table, _by_class(comparison)
    repeats = repeat_grid(comparison.repeats, comparison.scores) if comparison.repeats else None
    sections = (
        Section("Findings", (Sentences(tuple(findings(comparison))),)),
        Section("Scores of held-out predictions", (score_grid(comparison),)),
        *(Section(grid.title, (grid,)) for grid in (repeats, loo_grid(comparison), sampler_grid(comparison)) if grid),
        *([Section("Confusion matrices and scores by class", (*by_class, BY_CLASS))] if by_class else []),
        *(Section(each.title, (each,)) for each in (*pictures(comparison), *effect_pictures(comparison))),
        Section("Data and settings", _settings(comparison)),
    )
    sd = table.y_scale * float(np.asarray(table.y_train, dtype=float).std())
    facts = {
        "Rows": len(table.y_train) + len(table.y_test),
        "Training": len(table.y_train),
        "Held out": len(table.y_test),
        "Inputs": len(table.features),
        **({"Classes": len(table.classes)} if table.classes else {f"sd of {table.target}": f"{sd:.4g}"}),
        "Seed": comparison.seed,
    }
    return Page(
        kicker=f"Bayesian neural network · {table.task}",
        title=f"{table.target}, from {comparison.source}",
        description=f"{comparison.model}.",
        facts=tuple((label, str(value)) for label, value in facts.items()),
        sections=sections,
        colours=colours(fitted.name for fitted in comparison.fitted),
        simple=tuple(baseline.name for baseline in comparison.baselines),
        footer=footer(versions()),
    ).html()


def _by_class(results: Results) -> list[Grid]:
    grids = (confusion_grid, class_grid) if results.classes else ()
    return [make(one, results.classes) for one in results.fitted for make in grids]


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


def tree_page(
    results: TreeResults,
    posterior: Posterior | None,
    windows: Mapping[str, xr.Dataset],
    title: str,
    description: str,
) -> Page:
    """Return the page of some results.

    Parameters
    ----------
    results : TreeResults
    posterior : Posterior, optional
        One of the fits, for the model.
    windows : mapping of str to Dataset
        Of :func:`bnnzoo.monitor`.
    title, description : str
    """
    sentences = [*(each.paragraph(score=False) for each in results.verdicts), *differences(results)]
    sentences += [text for one in results.fitted if (text := warning(one))]
    if results.rows == "training":
        sentences.append(
            "Scores are of the training data themselves and flatter methods that fit closely: predict held-out rows, or look at "
            "leave-one-out cross-validation."
        )
    if not sentences:
        sentences.append("No diagnostic that applies to these trees complains.")
    found = distances(results) if has_distances(results) else None
    tables = {UNCERTAINTY: uncertainty_grid(results)}
    if found is not None:
        tables[f"Distance from {results.fitted[0].name}"] = distance_grid(found)
    drawn = pictures(results, found)
    sections = (
        Section("Findings", (Sentences(tuple(sentences)),)),
        _scores(results),
        *_of_fit(results, posterior),
        *[Section(each.title, tuple(block for block in (tables.get(each.title), each) if block)) for each in drawn],
        *window_sections(windows),
        *(Section("What is missing", (Sentences(gaps),)) for gaps in (missing(results),) if gaps),
        Section("Code", (Code("How to repeat the fits", code(results), is_open=True), Sentences((_NOTE,)))),
    )
    rows = next((g.sizes["obs_id"] for g in results.fitted[0].test.children.values() if "obs_id" in g.sizes), 0)
    facts = {"Methods": len(results.fitted), f"{results.rows} rows": rows, "Target": results.target}
    if results.classes:
        facts["Classes"] = len(results.classes)
    return Page(
        kicker=f"Bayesian neural network · {'classification' if results.classes else 'regression'}",
        title=title,
        description=description,
        facts=tuple((label, str(value)) for label, value in facts.items()),
        sections=sections,
        colours=colours(one.name for one in results.fitted),
        footer=footer(versions()),
    )


_NOTE = (
    f"Figures draw at most {MAX_ROWS} rows one by one, evenly spaced; R-hat, effective sample sizes and distances are of at most "
    f"{MAX_DIAGNOSED}. Scores are of all rows, and of at most 2,000 draws."
)


def _scores(results: TreeResults) -> Section:
    title = f"Scores of predictions of {results.rows} rows"
    if not results.fitted[0].has("predictions_observed_data"):
        text = "The trees hold no observations of the rows they predict, so predictions cannot be scored."
        return Section(title, (Sentences((text,)),))
    return Section(title, (score_grid(results), *_by_class(results)))


def _of_fit(results: TreeResults, posterior: Posterior | None) -> list[Section]:
    data, loo = data_grid(results), loo_grid(results)
    settings = [Code(f"{one.name}: settings", text) for one in results.fitted if (text := settings_of(one))]
    convergence: list[Block] = [Sentences(tuple(verdict(one) for one in results.fitted))]
    convergence += [grid for grid in (sampler_grid(results), approximation_grid(results)) if grid]
    return [
        Section("Model", model_blocks(results.fitted[0], posterior)),
        *([Section("Data", (data,))] if data else []),
        Section("Methods", (method_grid(results), *settings)),
        Section("Convergence", tuple(convergence)),
        *([Section(loo.title, (loo,))] if loo else []),
    ]
