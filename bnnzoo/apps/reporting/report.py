"""``report``: any trees of the same rows as one page."""

from collections.abc import Mapping
from pathlib import Path

import pandas as pd
import xarray as xr

from bnnzoo.apps.reporting.gather import gather
from bnnzoo.apps.reporting.pages import tree_page
from bnnzoo.core.posterior.posterior import Posterior
from bnnzoo.diagnostics.comparison_verdict import Verdict
from bnnzoo.documents.folders import refuse_unwritable
from bnnzoo.engine.files import whole_file
from bnnzoo.trees import refuse_no_trees

__all__ = ["Report", "refuse_bad_reference", "report"]


class Report(Path):
    """The file of a report, with what it says.

    Attributes
    ----------
    verdicts : tuple of Verdict
        On each method but the reference.
    """

    verdicts: tuple[Verdict, ...] = ()


def report(
    trees: Mapping[str, xr.DataTree],
    path: str | Path,
    *,
    train: Mapping[str, xr.DataTree] | None = None,
    reference: str | None = None,
    posterior: Posterior | None = None,
    windows: xr.Dataset | Mapping[str, xr.Dataset] | None = None,
    calibration: Mapping[str, xr.DataTree | pd.DataFrame] | None = None,
    site: str | None = None,
    title: str = "",
    description: str = "",
) -> Report:
    """Write a report of one or several methods that predict the same rows: one HTML file that needs no network.

    It shows what the groups of the trees allow, and says in one sentence for each tree what is missing: data, methods with
    their settings and cost, verdicts on convergence, scores, leave-one-out cross-validation, calibration, the parts of the
    uncertainty, distances from the reference beside their Monte Carlo floor, and code that repeats the fits. Trees may come
    from any library, or from an ensemble of one's own.

    Parameters
    ----------
    trees : mapping of str to DataTree
        Predictions of the same rows, from :func:`bnnzoo.predict` or :func:`bnnzoo.posterior_predictive`, or with groups of the
        same names; also the files of ``bnnzoo compare``.
    path : str or Path
        The file, which is replaced if it exists. Written whole or not at all.
    train : mapping of str to DataTree, optional
        Trees of the training data under the same names, for leave-one-out cross-validation and posterior predictive checks, where
        ``trees`` are about new rows.
    reference : str, optional
        Name of the tree that the others are compared with. Default: the first.
    posterior : Posterior, optional
        One of the fits, for the distributions of the model's sites and a picture of the model, which takes graphviz.
    windows : Dataset or mapping of str to Dataset, optional
        Of :func:`bnnzoo.monitor`, for a section on drift.
    calibration : mapping of str to DataTree or DataFrame, optional
        Simulation-based calibration of methods other than the reference, from :func:`bnnzoo.validation.sbc` or
        :func:`bnnzoo.validation.sbc_verdict`: what it found is part of their verdicts.
    site : str, optional
        Observed site, where the trees have several.
    title, description : str
        Head of the page. Default: what is compared, and nothing.

    Returns
    -------
    Report
        The file, a path; its ``verdicts`` are those of :func:`bnnzoo.diagnostics.verdicts`.

    Raises
    ------
    TypeError, ValueError
        If there are no trees, they are about different rows, sites or classes, or names do not match.
    OSError
        If no file can be written there.

    Examples
    --------
    >>> import tempfile
    >>> from bnnzoo.testing import example_tree
    >>> tree = example_tree("regression", num_chains=1, num_draws=3)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     written = report({"mine": tree}, f"{folder}/report.html")
    ...     written.name, "mine has no group" in written.read_text()
    ('report.html', True)
    """
    refuse_no_trees("trees", trees)
    refuse_bad_reference(reference, list(trees))
    if train is not None:
        refuse_no_trees("train", train)
        if unknown := [name for name in train if name not in trees]:
            raise ValueError(
                f"train has a tree named {unknown[0]!r}, but trees have {', '.join(trees)}: use the same names."
            )
    if posterior is not None and not isinstance(posterior, Posterior):
        raise TypeError(f"posterior is of type {type(posterior).__name__}: pass what bnnzoo.fit returns.")
    every = windows.values() if isinstance(windows, Mapping) and not isinstance(windows, xr.Dataset) else [windows]
    for found in every if windows is not None else ():
        if not (isinstance(found, xr.Dataset) and "drift_p_value" in found):
            raise TypeError(
                f"windows holds a {type(found).__name__} without drift_p_value: pass what bnnzoo.monitor returns."
            )
    target = Path(path)
    refuse_unwritable(target)
    ordered = {reference: trees[reference], **trees} if reference else dict(trees)
    results = gather(ordered, dict(train or {}), site, calibration)
    named = {"": windows} if isinstance(windows, xr.Dataset) else dict(windows or {})
    head = title or (f"Predictions of {next(iter(trees))}" if len(trees) == 1 else "Comparison of methods")
    page = tree_page(results, posterior, named, head, description).html()
    with whole_file(target) as partial:
        partial.write_text(page, encoding="utf-8")
    written = Report(target)
    written.verdicts = results.verdicts
    return written


def refuse_bad_reference(reference: str | None, names: list[str]) -> None:
    """Refuse a reference that is not one of the trees.

    Raises
    ------
    ValueError
    """
    if reference is not None and reference not in names:
        raise ValueError(f"reference={reference!r} is not one of the trees: write one of {', '.join(names)}.")
