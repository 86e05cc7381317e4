"""The report of any trees."""

from collections.abc import Mapping

import xarray as xr

from bnnzoo.apps.reporting.checks import class_grid, confusion_grid, loo_grid, sampler_grid
from bnnzoo.apps.reporting.distances import distances, has_distances
from bnnzoo.apps.reporting.figures import UNCERTAINTY, pictures
from bnnzoo.apps.reporting.findings import differences, score_grid
from bnnzoo.apps.reporting.gather import MAX_DIAGNOSED
from bnnzoo.apps.reporting.missing import missing
from bnnzoo.apps.reporting.page import Page, footer
from bnnzoo.apps.reporting.page_blocks import Block, Code, Grid, Section, Sentences
from bnnzoo.apps.reporting.reproduce import code
from bnnzoo.apps.reporting.results import TreeResults
from bnnzoo.apps.reporting.sections import model_blocks
from bnnzoo.apps.reporting.style import MAX_ROWS, colours
from bnnzoo.apps.reporting.tables import (
    approximation_grid,
    data_grid,
    distance_grid,
    method_grid,
    settings_of,
    uncertainty_grid,
)
from bnnzoo.apps.reporting.verdicts import verdict, warning
from bnnzoo.apps.reporting.windows import window_sections
from bnnzoo.core.posterior.posterior import Posterior

__all__ = ["tree_page"]


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
    sections = (
        Section("Findings", (Sentences(_findings(results)),)),
        _scores(results),
        *_of_fit(results, posterior),
        *_of_predictions(results),
        *window_sections(windows),
        *(Section("What is missing", (Sentences(gaps),)) for gaps in (missing(results),) if gaps),
        Section("Code", (Code("How to repeat the fits", code(results), is_open=True), Sentences((_NOTE,)))),
    )
    return Page(
        kicker=f"Bayesian neural network · {'classification' if results.classes else 'regression'}",
        title=title,
        description=description,
        facts=_facts(results),
        sections=sections,
        colours=colours(one.name for one in results.fitted),
        footer=footer(),
    )


_NOTE = (
    f"Figures draw at most {MAX_ROWS} rows one by one, evenly spaced; R-hat, effective sample sizes and distances are of at most "
    f"{MAX_DIAGNOSED}. Scores are of all rows, and of at most 2,000 draws."
)


def _facts(results: TreeResults) -> tuple[tuple[str, str], ...]:
    rows = next((g.sizes["obs_id"] for g in results.fitted[0].test.children.values() if "obs_id" in g.sizes), 0)
    facts = {"Methods": len(results.fitted), f"{results.rows} rows": rows, "Target": results.target}
    if results.classes:
        facts["Classes"] = len(results.classes)
    return tuple((label, str(value)) for label, value in facts.items())


def _findings(results: TreeResults) -> tuple[str, ...]:
    sentences = [*(each.paragraph(score=False) for each in results.verdicts), *differences(results)]
    sentences += [text for one in results.fitted if (text := warning(one))]
    if results.rows == "training":
        sentences.append(
            "Scores are of the training data themselves and flatter methods that fit closely: predict held-out rows, or look at "
            "leave-one-out cross-validation."
        )
    if not sentences:
        sentences.append("No diagnostic that applies to these trees complains.")
    return tuple(sentences)


def _scores(results: TreeResults) -> Section:
    title = f"Scores of predictions of {results.rows} rows"
    if not results.fitted[0].has("predictions_observed_data"):
        text = "The trees hold no observations of the rows they predict, so predictions cannot be scored."
        return Section(title, (Sentences((text,)),))
    by_class: list[Grid] = []
    for one in results.fitted if results.classes else ():
        by_class += [confusion_grid(one, results.classes), class_grid(one, results.classes)]
    return Section(title, (score_grid(results), *by_class))


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


def _of_predictions(results: TreeResults) -> list[Section]:
    """Return figures, and the tables that belong to them."""
    found = distances(results) if has_distances(results) else None
    tables = {UNCERTAINTY: uncertainty_grid(results)}
    if found is not None:
        tables[f"Distance from {results.fitted[0].name}"] = distance_grid(found)
    drawn = pictures(results, found)
    return [Section(each.title, tuple(block for block in (tables.get(each.title), each) if block)) for each in drawn]
