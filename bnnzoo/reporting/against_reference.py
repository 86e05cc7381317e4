"""Verdicts in words on the methods of a report, held against the first of them."""

from collections.abc import Sequence

import xarray as xr

from bnnzoo.diagnostics.verdict import Verdict
from bnnzoo.diagnostics.verdicts import verdicts
from bnnzoo.reporting.results import Fitted

__all__ = ["against_reference"]

OF_ROWS = (
    "conditional",
    "predictions_log_likelihood",
    "predictions_constant_data",
    "predictions",
    "predictions_observed_data",
)
OF_FIT = ("posterior", "log_likelihood", "log_prior", "sample_stats", "posterior_predictive", "observed_data")


def against_reference(fitted: Sequence[Fitted]) -> tuple[Verdict, ...]:
    """Return a verdict on each method but the first, which is the reference; none where there is only one.

    Parameters
    ----------
    fitted : sequence of Fitted
    """
    if len(fitted) < 2:
        return ()
    return tuple(verdicts({one.name: _compared(one) for one in fitted}, fitted[0].name).values())


def _compared(fitted: Fitted) -> xr.DataTree:
    """Return sites of the fit, and predictions of the rows of the report."""
    groups = {name: fitted.test[name].to_dataset() for name in OF_ROWS if fitted.has(name)}
    groups |= {name: fitted.train[name].to_dataset() for name in OF_FIT if name in fitted.train.children}
    tree = xr.DataTree.from_dict(groups)
    tree.attrs |= fitted.train.attrs | {"sampling": fitted.test.attrs.get("sampling", "mcmc")}
    return tree
