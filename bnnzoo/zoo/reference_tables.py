"""A reference posterior as tables for any program: draws, summaries, entropies and the covariance of its predictions."""

import numpy as np
import pandas as pd
import xarray as xr
from arviz_stats.sampling_diagnostics import mcse

from bnnzoo.trees import SAMPLE_DIMS, entropies, shannon_entropy
from bnnzoo.trees.class_entropy import SMALLEST_PROB
from bnnzoo.zoo.reference import predicted

__all__ = ["covariance_table", "draws_table", "entropy_table", "summary_table"]

LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
DIGITS = "%.6g"
WHOLE_RUN = ("mean", "sd", "mcse_mean", "mcse_sd", "rhat", "ess_bulk", "ess_tail")


def draws_table(tree: xr.DataTree) -> str:
    """Return draws of predictions as CSV: ``chain``, ``draw``, and a column for each row, or for each row and class or outcome.

    Rows, classes and outcomes are counted from 1.

    Parameters
    ----------
    tree : DataTree
        With ``mean`` or ``probs`` in the group ``conditional``.

    Examples
    --------
    >>> values = (("chain", "draw", "obs_id"), [[[1.0, 2.0]]])
    >>> print(draws_table(xr.DataTree.from_dict({"conditional": xr.Dataset({"mean": values})})))
    chain,draw,mean[1],mean[2]
    1,1,1.0,2.0
    <BLANKLINE>
    """
    draws = predicted(tree)
    chains, numbers = np.indices(draws.shape[:2]) + 1
    names = _names(draws)
    table = pd.DataFrame(draws.to_numpy().reshape(-1, len(names)), columns=names)
    table.insert(0, "chain", chains.ravel())
    table.insert(1, "draw", numbers.ravel())
    return table.to_csv(index=False, lineterminator="\n")


def summary_table(tree: xr.DataTree) -> str:
    """Return a line for each prediction as CSV: moments and diagnostics of the whole run, and quantiles of the stored draws.

    The columns are ``row``, and ``class`` or ``outcome``, counted from 1; ``mean``, ``sd``, their Monte Carlo standard errors,
    R-hat and effective sample sizes; and the quantiles ``q5``, ``q25``, ``q50``, ``q75`` and ``q95`` with their Monte Carlo
    standard errors.

    Parameters
    ----------
    tree : DataTree
        A reference.

    Examples
    --------
    >>> from bnnzoo.zoo.reference import reference
    >>> lines = summary_table(reference("linear-regression")).splitlines()
    >>> lines[0].split(",")[:5], len(lines)
    (['row', 'mean', 'sd', 'mcse_mean', 'mcse_sd'], 41)
    """
    draws, whole = predicted(tree), tree["summary"].to_dataset()
    if draws.sizes.get("class_id") == 2:  # the first of two was not diagnosed: it is one less the second
        whole = whole.fillna(whole.isel(class_id=1, drop=True))
    columns = {name: whole[name].transpose(*draws.dims[2:]) for name in WHOLE_RUN}
    columns |= {f"q{100 * level:g}": draws.quantile(level, SAMPLE_DIMS) for level in LEVELS}
    columns |= {f"mcse_q{100 * level:g}": mcse(draws, method="quantile", prob=level) for level in LEVELS}
    kinds = ("row", "class" if "class_id" in draws.dims else "outcome")
    places = dict(zip(kinds, _places(draws).T, strict=False))  # real predictions of one outcome have rows alone
    return _as_csv(places | {name: values.to_numpy().ravel() for name, values in columns.items()})


def entropy_table(tree: xr.DataTree) -> str | None:
    """Return the entropies of class probabilities in nats, a line for each row as CSV, or None of real predictions.

    The columns are ``row``, ``predictive_entropy``, ``expected_entropy`` and ``mutual_information``, which are total, aleatoric
    and epistemic, and their Monte Carlo standard errors. That of the entropy of average probabilities is by the delta method.

    Parameters
    ----------
    tree : DataTree
        A reference.
    """
    draws = predicted(tree)
    if "class_id" not in draws.dims:
        return None
    found = entropies(draws)
    average = draws.mean(SAMPLE_DIMS).clip(SMALLEST_PROB)
    total = -(draws * average.copy(data=np.log(average))).sum("class_id")
    aleatoric = shannon_entropy(draws)
    parts = {"predictive_entropy": total, "expected_entropy": aleatoric, "mutual_information": total - aleatoric}
    columns = {name: found[name] for name in parts}
    columns |= {f"mcse_{name}": mcse(values, method="mean") for name, values in parts.items()}
    rows = {"row": np.arange(draws.sizes["obs_id"]) + 1}
    return _as_csv(rows | {name: values.to_numpy() for name, values in columns.items()})


def covariance_table(tree: xr.DataTree) -> str:
    """Return the covariance of all predictions over draws as CSV: a line and a column for each, named as in :func:`draws_table`.

    Parameters
    ----------
    tree : DataTree
        With ``mean`` or ``probs`` in the group ``conditional``.

    Examples
    --------
    >>> values = (("chain", "draw", "obs_id"), [[[1.0, 2.0], [3.0, 6.0]]])
    >>> print(covariance_table(xr.DataTree.from_dict({"conditional": xr.Dataset({"mean": values})})))
    mean[1],mean[2]
    2,4
    4,8
    <BLANKLINE>
    """
    draws = predicted(tree)
    names = _names(draws)
    covariance = np.cov(draws.to_numpy().reshape(-1, len(names)).astype(float), rowvar=False).reshape(len(names), -1)
    return _as_csv(dict(zip(names, covariance, strict=True)))


def _places(draws: xr.DataArray) -> np.ndarray:
    """Return the row, and the class or outcome, of each prediction, counted from 1."""
    shape = draws.shape[2:]
    return np.stack(np.unravel_index(np.arange(np.prod(shape)), shape), 1) + 1


def _names(draws: xr.DataArray) -> list[str]:
    return [f"{draws.name}[{','.join(map(str, place))}]" for place in _places(draws)]


def _as_csv(columns: dict[str, np.ndarray]) -> str:
    return pd.DataFrame(columns).to_csv(index=False, lineterminator="\n", float_format=DIGITS)
