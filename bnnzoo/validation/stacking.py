"""Stacking: one predictive distribution from several fits, or from chains that do not mix, weighted by LOO."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from arviz_stats.loo import compare
from arviz_stats.utils import ELPDData
from numpy.typing import NDArray

from bnnzoo.core.settings import Count, check_argument
from bnnzoo.diagnostics.loo import loo
from bnnzoo.trees import SAMPLE_DIMS, refuse_other_kind

__all__ = ["stack", "stack_chains", "stacking_weights"]

MAX_BAD = 0.05  # of observations whose importance weights are too uneven


def stacking_weights(found: Mapping[str, ELPDData]) -> pd.Series:
    r"""Return the weights of a mixture of predictive distributions that has the highest LOO score.

    .. math:: \max_{w \in \Delta} \sum_i \log \sum_k w_k\, p_k(y_i \mid y_{-i})

    Parameters
    ----------
    found : mapping of str to ELPDData
        Pointwise results of LOO or cross-validation of the same observations, such as of :func:`bnnzoo.diagnostics.loo`
        or :func:`bnnzoo.validation.kfold`.

    Returns
    -------
    Series [K]
        By name, in the order given; the sum is one.

    Raises
    ------
    TypeError, ValueError
        If something is no pointwise result, there is none, or the Pareto k of more than a twentieth of the observations of one
        is too high: its LOO is then no estimate, and usually too good.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian()
    >>> posterior = bz.fit(target.model, bz.Laplace(bz.MAP(num_steps=50)), *target.data, progress=False)
    >>> found = bz.diagnostics.loo(bz.posterior_predictive(posterior, *target.data))
    >>> float(bz.validation.stacking_weights({"a": found, "b": found}).sum().round(6))
    1.0
    """
    refuse_other_kind(found, Mapping, "found", "the results of bnnzoo.diagnostics.loo by name")
    for name, each in found.items():
        if getattr(each, "elpd_i", None) is None:
            raise TypeError(
                f"stacking_weights takes pointwise results of leave-one-out or cross-validation, but {name!r} is of type "
                f"{type(each).__name__}: pass bnnzoo.diagnostics.loo(tree), or bnnzoo.validation.kfold(model, method, x, y)."
            )
    if not found:
        raise ValueError("stacking_weights has nothing to weigh: pass the results of two fits or more, by name.")
    for name, each in found.items():
        if getattr(each, "pareto_k", None) is None:  # of cross-validation that refits
            continue
        bad, count = int((~(each.pareto_k <= each.good_k)).sum()), each.pareto_k.size
        if bad > MAX_BAD * count:
            raise ValueError(
                f"The LOO of {name!r} is unreliable, and so would be its weight: the Pareto k of {bad} of {count} "
                f"observations is above {each.good_k:.2f} or NaN. Weigh by refits, bnnzoo.validation.kfold(model, method, x, y)."
            )
    return _weights(found)


def _weights(found: Mapping[str, ELPDData]) -> pd.Series:
    if len(found) == 1:
        return pd.Series(1.0, index=list(found))
    table = compare(dict(found), method="stacking")
    weights = table["weight"].reindex(list(found)).clip(lower=0.0)
    return weights / weights.sum()


def stack(
    trees: Mapping[str, xr.DataTree], weights: Mapping[str, float] | pd.Series, num_draws: int = 1000
) -> xr.DataTree:
    """Return one tree of predictions whose draws come from several trees in proportion to their weights.

    Parameters
    ----------
    trees : mapping of str to DataTree
        Predictions of the same rows, from :func:`bnnzoo.predict` or :func:`bnnzoo.posterior_predictive`.
    weights : mapping of str to float
        Such as of :func:`stacking_weights`.
    num_draws : int
        Draws of the result, divided among the trees with an error below one draw each.

    Returns
    -------
    DataTree
        The groups of predictions with one chain; coordinate ``model`` names the tree of each draw, and every measure
        takes it as it is. Parameters stay out, since different models have different ones.

    Raises
    ------
    ValueError
        If the names differ, a weight is negative, all are zero, or the trees have no predictions of the same rows.

    References
    ----------
    Yao, Vehtari, Simpson and Gelman (2018), Using stacking to average Bayesian predictive distributions, Bayesian
    Analysis 13.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian(num_inputs=2)
    >>> posterior = bz.fit(target.model, bz.Laplace(bz.MAP(num_steps=50)), *target.data, progress=False)
    >>> trees = {name: bz.predict(posterior, *target.data, num_draws=50) for name in ("one", "other")}
    >>> stacked = bz.validation.stack(trees, {"one": 0.25, "other": 0.75}, num_draws=100)
    >>> int((stacked["predictions"]["model"] == "other").sum())
    75
    """
    check_argument("stack", "num_draws", num_draws, Count)
    _refuse_other_rows(trees)
    shares = {str(name): float(weight) for name, weight in weights.items()}
    if shares.keys() != trees.keys():
        raise ValueError(
            f"The trees are {', '.join(trees)}, but the weights are of {', '.join(shares)}: name both alike."
        )
    if (
        not trees
        or not all(np.isfinite(weight) and weight >= 0 for weight in shares.values())
        or not sum(shares.values())
    ):
        raise ValueError(f"The weights {shares} are no shares of a mixture: write numbers from zero up, not all zero.")
    total = sum(shares.values())
    shares = {name: shares[name] / total for name in trees}
    # divide draws in proportion, each remainder going where it is largest
    exact = np.array(list(shares.values())) * num_draws
    whole = np.floor(exact).astype(int)
    whole[np.argsort(whole - exact, kind="stable")[: num_draws - whole.sum()]] += 1
    counts = dict(zip(shares, whole.tolist(), strict=True))
    groups = _common_groups(trees)
    chosen = {name: _thinned(tree, groups, int(counts[name])) for name, tree in trees.items() if counts[name]}
    constant = {group: next(iter(trees.values()))[group].to_dataset() for group in _common_groups(trees, drawn=False)}
    names = np.repeat(list(chosen), [int(counts[name]) for name in chosen])
    joined = {
        group: xr.concat([part[group] for part in chosen.values()], "draw", join="exact").assign_coords(
            draw=np.arange(num_draws), model=("draw", names)
        )
        for group in groups
    }
    tree = xr.DataTree.from_dict(joined | constant)
    tree.attrs = {
        "inference_method": "stacking",
        "sampling": "stacked",
        **{f"weight_{k}": v for k, v in shares.items()},
    }
    return tree


def stack_chains(tree: xr.DataTree, num_draws: int = 1000) -> xr.DataTree:
    """Return a tree whose draws come from its chains in proportion to stacking weights.

    Chains that settle in different modes do not visit them in proportion to their mass, and their R-hat says so. Weighted by
    how well each predicts, they give a predictive distribution no worse than the best chain's.

    Parameters
    ----------
    tree : DataTree
        Of several chains, from :func:`bnnzoo.posterior_predictive` on the training data.
    num_draws : int
        Draws of the result.

    Returns
    -------
    DataTree
        As of :func:`stack`, with models named ``chain 0``, ``chain 1``, ...

    Raises
    ------
    ValueError
        If there is one chain only.

    References
    ----------
    Yao, Vehtari and Gelman (2022), Stacking for non-mixing Bayesian computations: the curse and blessing of multimodal
    posteriors, Journal of Machine Learning Research 23.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian(num_inputs=2)
    >>> posterior = bz.fit(target.model, bz.HMC(num_chains=2, num_warmup=200), *target.data, progress=False)
    >>> stacked = bz.validation.stack_chains(bz.posterior_predictive(posterior, *target.data), num_draws=80)
    >>> stacked["posterior_predictive"].sizes["draw"]
    80
    """
    refuse_other_kind(tree, xr.DataTree, "tree", "what bnnzoo.predict returns")
    chains = tree["posterior"].sizes["chain"] if "posterior" in tree.children else 1
    if chains < 2:
        raise ValueError("stack_chains weighs chains against each other, but the tree has one: fit with num_chains=4.")
    groups = {name: group.to_dataset() for name, group in tree.children.items()}
    parts = {}
    for i in range(chains):
        own = {name: group.isel(chain=[i]) if "chain" in group.dims else group for name, group in groups.items()}
        parts[f"chain {i}"] = xr.DataTree.from_dict(own)
        parts[f"chain {i}"].attrs = dict(tree.attrs)
    return stack(
        parts, _weights({name: loo(part) for name, part in parts.items()}), num_draws
    )  # loo warns of a bad Pareto k


def _common_groups(trees: Mapping[str, xr.DataTree], *, drawn: bool = True) -> list[str]:
    """Return the groups about rows that all trees have: with draws, or those of the data."""
    first = next(iter(trees.values()))
    found = [
        str(name)
        for name, group in first.children.items()
        if "obs_id" in group.dims
        and set(SAMPLE_DIMS).issubset({dim for array in group.data_vars.values() for dim in array.dims}) == drawn
        and name not in ("posterior", "prior")
        and all(name in tree.children for tree in trees.values())
    ]
    if drawn and not found:
        raise ValueError("The trees have no predictions in common: pass trees of predict or posterior_predictive.")
    return found


def _thinned(tree: xr.DataTree, groups: list[str], count: int) -> dict[str, xr.Dataset]:
    """Return evenly spaced draws of all chains as one chain; more than there are repeat."""
    return {group: _picked(tree[group].to_dataset(), count) for group in groups}


def _picked(dataset: xr.Dataset, count: int) -> xr.Dataset:
    chains, draws = (dataset.sizes[dim] for dim in SAMPLE_DIMS)
    places: NDArray[np.intp] = (np.arange(count) * (chains * draws) / count).astype(np.intp)
    chain, draw = (xr.DataArray(index, dims="draw") for index in np.divmod(places, draws))
    of_draws = [name for name, values in dataset.coords.items() if not {*values.dims}.isdisjoint(SAMPLE_DIMS)]
    picked = dataset.drop_vars(of_draws).isel(chain=chain, draw=draw)
    return picked.expand_dims(chain=[0]).transpose("chain", "draw", ...)


def _refuse_other_rows(trees: Mapping[str, xr.DataTree]) -> None:
    refuse_other_kind(trees, Mapping, "trees", "trees by name")
    rows: dict[str, NDArray[Any]] = {}
    for name, tree in trees.items():
        if not isinstance(tree, xr.DataTree):
            raise TypeError(
                f"stack takes trees of predictions, but {name!r} is of type {type(tree).__name__}: pass "
                f"bnnzoo.predict(posterior, x)."
            )
        labels = [np.asarray(group.coords["obs_id"]) for group in tree.children.values() if "obs_id" in group.coords]
        rows |= {name: labels[0]} if labels else {}
    first = next(iter(rows), "")
    for name, others in rows.items():
        if not np.array_equal(others, rows[first]):
            raise ValueError(
                f"The trees {first!r} and {name!r} are about other rows ({len(rows[first])} and {len(others)}, or other labels): "
                f"predict the same rows with each fit."
            )
