"""Total, aleatoric and epistemic uncertainty of every prediction of a tree."""

import xarray as xr

from bnnzoo.trees import Labelled, entropies, first_moment
from bnnzoo.uncertainty.variance import aleatoric_variance, epistemic_variance

__all__ = ["decompose"]


def decompose(tree: Labelled) -> xr.Dataset:
    r"""Split the uncertainty of every prediction into ``total = aleatoric + epistemic``.

    Class probabilities are split by entropy, in nats: the entropy of the average, the average entropy, and their
    difference, the mutual information between label and parameters. Real predictions are split by the law of total
    variance, in squared units of y: :math:`Var[y] = E_\theta[Var[y \mid \theta]] + Var_\theta[E[y \mid \theta]]`.

    Parameters
    ----------
    tree : DataTree, Dataset or DataArray
        A tree with a group ``conditional`` (or that group) that has ``probs`` or both ``mean`` and ``variance``, for
        each of at least two draws. An array is treated as ``probs``. It is read one block at a time, so a tree opened
        lazily or in chunks is never loaded as a whole. A stored ``entropy`` is used.

    Returns
    -------
    Dataset
        ``total``, ``aleatoric`` and ``epistemic`` ``[obs_id, ...]``, with their unit in ``attrs["units"]``.

    Raises
    ------
    ValueError
        If a group, variable or dim is missing, there is a single draw, or probabilities do not sum to one.

    References
    ----------
    S. Depeweg et al., Decomposition of uncertainty in Bayesian deep learning, ICML 2018.

    Examples
    --------
    >>> probs = xr.DataArray([[[[0.9, 0.1]], [[0.1, 0.9]]]], dims=("chain", "draw", "obs_id", "class_id"))
    >>> decompose(probs).round(6).to_array().values.ravel()
    array([0.693147, 0.325083, 0.368064])
    """
    if isinstance(tree, xr.DataArray) or first_moment(tree, "probs", "mean") == "probs":
        parts_of_entropy = entropies(tree)
        aleatoric, epistemic = parts_of_entropy["expected_entropy"], parts_of_entropy["mutual_information"]
    else:
        aleatoric, epistemic = aleatoric_variance(tree), epistemic_variance(tree)
    parts = {"total": aleatoric + epistemic, "aleatoric": aleatoric, "epistemic": epistemic}
    named = {name: part.assign_attrs(units=aleatoric.attrs["units"]) for name, part in parts.items()}
    return xr.Dataset(named)
