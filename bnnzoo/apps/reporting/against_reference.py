"""Verdicts in words on the methods of a report, held against the first of them."""

from collections.abc import Mapping, Sequence

import pandas as pd
import xarray as xr

from bnnzoo.apps.reporting.results import Fitted
from bnnzoo.diagnostics.verdict import Verdict
from bnnzoo.diagnostics.verdicts import verdicts
from bnnzoo.validation import sbc_verdict

__all__ = ["against_reference"]

OF_ROWS = (
    "conditional",
    "predictions_log_likelihood",
    "predictions_constant_data",
    "predictions",
    "predictions_observed_data",
)
OF_FIT = ("posterior", "log_likelihood", "log_prior", "sample_stats", "posterior_predictive", "observed_data")


def against_reference(
    fitted: Sequence[Fitted], calibration: Mapping[str, xr.DataTree | pd.DataFrame] | None = None
) -> tuple[Verdict, ...]:
    """Return a verdict on each method but the first, which is the reference; none where there is only one.

    Parameters
    ----------
    fitted : sequence of Fitted
    calibration : mapping of str to DataTree or DataFrame, optional
        Simulation-based calibration of some of the methods: what ``sbc`` or ``sbc_verdict`` returned.

    Raises
    ------
    ValueError
        If calibration is of no method, of the first, or holds something else.
    """
    tables = {
        name: sbc_verdict(found) if isinstance(found, xr.DataTree) else found
        for name, found in (calibration or {}).items()
    }
    if len(fitted) < 2 and not tables:
        return ()
    trees = {one.name: _compared(one) for one in fitted}
    return tuple(verdicts(trees, fitted[0].name, calibration=tables).values())


def _compared(fitted: Fitted) -> xr.DataTree:
    """Return sites of the fit, and predictions of the rows of the report."""
    groups = {name: fitted.test[name].to_dataset() for name in OF_ROWS if fitted.has(name)}
    groups |= {name: fitted.train[name].to_dataset() for name in OF_FIT if name in fitted.train.children}
    tree = xr.DataTree.from_dict(groups)
    tree.attrs |= fitted.train.attrs | {"sampling": fitted.test.attrs.get("sampling", "mcmc")}
    return tree
