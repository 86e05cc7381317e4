"""Error analysis of a classifier: accuracy, scores of each class, confusion matrix, and the rows to look at first."""

from typing import Literal, get_args

import numpy as np
import sklearn.metrics
import xarray as xr
from numpy.typing import NDArray
from scipy.stats import binomtest

from bnnzoo.calibration.auroc import misclassified
from bnnzoo.calibration.proper_scores import nll_of_probs
from bnnzoo.docstrings import with_shared_entries
from bnnzoo.trees import (
    LABELLED_PROBS,
    Labelled,
    average_probs,
    class_indices,
    entropies,
    moment,
    num_draws,
    observations,
    shannon_entropy,
)

__all__ = ["accuracy", "class_scores", "confusion_matrix", "rank_errors"]

type Positions = NDArray[np.integer]
type Order = Literal["nll", "predictive_entropy", "expected_entropy", "mutual_information"]


@with_shared_entries(LABELLED_PROBS)
def accuracy(data: Labelled, y: xr.DataArray | None = None, *, level: float = 0.95) -> xr.Dataset:
    """Fraction of observations whose most probable class, averaged over draws, is right, with its Wilson interval.

    Parameters
    ----------
    level : float
        Probability of the interval.

    Returns
    -------
    Dataset
        ``value``, ``low`` and ``high``.

    Raises
    ------
    ValueError
        If data are missing, a label is not one of the classes, or ``level`` is not between 0 and 1.

    References
    ----------
    E. B. Wilson, Probable inference, the law of succession, and statistical inference, JASA, 1927.

    Examples
    --------
    >>> probs = xr.DataArray([[[[0.2, 0.8], [0.2, 0.8]]]], dims=("chain", "draw", "obs_id", "class_id"))
    >>> accuracy(probs, xr.DataArray([1, 0], dims="obs_id")).to_array().values.round(3)
    array([0.5  , 0.095, 0.905])
    """
    if not 0 < level < 1:
        raise ValueError(f"level={level} must be between 0 and 1.")
    right = ~misclassified(data, y).to_numpy()
    interval = binomtest(int(right.sum()), right.size).proportion_ci(level, method="wilson")
    return xr.Dataset({"value": float(right.mean()), "low": float(interval.low), "high": float(interval.high)})


@with_shared_entries(LABELLED_PROBS)
def confusion_matrix(data: Labelled, y: xr.DataArray | None = None) -> xr.DataArray:
    """Number of observations of each class by the class predicted for them, ``[observed, predicted]``.

    Parameters
    ----------
    data : DataTree, Dataset or DataArray
        With ``probs[chain, draw, obs_id, class_id]``, which are averaged over draws.

    Returns
    -------
    DataArray [observed, predicted]
        Scikit-learn's, with the labels of ``class_id`` along both dims. Divided by ``.sum("predicted")`` its diagonal is the
        recall, divided by ``.sum("observed")`` the precision.

    Examples
    --------
    >>> probs = xr.DataArray([[[[0.2, 0.8], [0.2, 0.8]]]], dims=("chain", "draw", "obs_id", "class_id"))
    >>> confusion_matrix(probs, xr.DataArray([1, 0], dims="obs_id")).values
    array([[0, 1],
           [0, 1]])
    """
    probs, labels, predicted = _predicted(data, y)
    counts = sklearn.metrics.confusion_matrix(labels, predicted, labels=range(probs.sizes["class_id"]))
    classes = probs["class_id"].to_numpy()
    coords = {"observed": classes, "predicted": classes}
    return xr.DataArray(counts, coords, ("observed", "predicted"), "confusion_matrix", {"units": "observations"})


@with_shared_entries(LABELLED_PROBS)
def class_scores(data: Labelled, y: xr.DataArray | None = None) -> xr.Dataset:
    """Precision, recall, F1 and number of observations of each class, ``[class_id]``.

    Parameters
    ----------
    data : DataTree, Dataset or DataArray
        With ``probs[chain, draw, obs_id, class_id]``; the class with the highest average over draws is the predicted one.

    Returns
    -------
    Dataset
        ``precision``, ``recall``, ``f1`` (between 0 and 1), ``support`` (observations of the class) and ``predicted``
        (predictions of the class), all ``[class_id]``. Precision is NaN for a class that is never predicted, recall for a
        class that is never observed, and F1 for a class that is neither. Macro averages are ``scores.mean()``.

    Examples
    --------
    >>> probs = xr.DataArray([[[[0.2, 0.8], [0.2, 0.8]]]], dims=("chain", "draw", "obs_id", "class_id"))
    >>> class_scores(probs, xr.DataArray([1, 0], dims="obs_id"))["precision"].values
    array([nan, 0.5])
    """
    probs, labels, predicted = _predicted(data, y)
    classes = range(probs.sizes["class_id"])
    precision, recall, f1, support = sklearn.metrics.precision_recall_fscore_support(
        labels, predicted, labels=classes, zero_division=np.nan
    )
    scores = {"precision": precision, "recall": recall, "f1": f1}
    counts = {"support": support, "predicted": np.bincount(predicted, minlength=len(classes))}
    units = dict.fromkeys(scores, "1") | dict.fromkeys(counts, "observations")
    found = {name: ("class_id", values, {"units": units[name]}) for name, values in (scores | counts).items()}
    return xr.Dataset(found, {"class_id": probs["class_id"].to_numpy()})


@with_shared_entries(LABELLED_PROBS)
def rank_errors(data: Labelled, y: xr.DataArray | None = None, *, by: Order = "nll") -> xr.Dataset:
    """Observations ``[obs_id]`` in the order in which a person should look at them, with what is known of each.

    What comes first depends on what one is looking for. ``"nll"``: labels to which the model gives the lowest probability,
    which are wrong labels or bad mistakes. ``"predictive_entropy"``: predictions that are uncertain for any reason.
    ``"expected_entropy"``: inputs on which the classes overlap. ``"mutual_information"``: inputs on which the draws
    disagree, where labels of similar observations would help.

    Parameters
    ----------
    by : {"nll", "predictive_entropy", "expected_entropy", "mutual_information"}
        The largest value comes first; ties keep their order.

    Returns
    -------
    Dataset
        ``position`` (of the row in the tree), ``observed`` and ``predicted`` class, ``probability`` of the predicted class,
        ``misclassified``, ``nll``, and the three entropies in nats, ``[obs_id]``; of a single draw only the predictive
        entropy. ``.to_dataframe()`` makes it a table.

    Raises
    ------
    ValueError
        If data are missing, a label is not one of the classes, or ``by`` is unknown or needs several draws.

    References
    ----------
    C. G. Northcutt, L. Jiang, I. L. Chuang, Confident learning: estimating uncertainty in dataset labels, JAIR, 2021
    (low probability of the label).

    Examples
    --------
    >>> probs = xr.DataArray([[[[0.2, 0.8], [0.3, 0.7]]]], dims=("chain", "draw", "obs_id", "class_id"))
    >>> rank_errors(probs, xr.DataArray([1, 0], dims="obs_id"))["position"].values
    array([1, 0])
    """
    if by not in get_args(Order.__value__):
        raise ValueError(f"by={by!r}: write one of {', '.join(map(repr, get_args(Order.__value__)))}.")
    probs, labels, predicted = _predicted(data, y)
    classes = probs["class_id"].to_numpy()
    described = {
        "position": np.arange(len(labels)),
        "observed": classes[labels],
        "predicted": classes[predicted],
        "probability": probs.to_numpy().max(-1),
        "misclassified": labels != predicted,
        "nll": nll_of_probs(data, y).to_numpy(),
        **{str(name): part.to_numpy() for name, part in _entropies(data, probs).items()},
    }
    if by not in described:
        raise ValueError(f"by={by!r} compares draws, but there is only one: write by='nll' or by='predictive_entropy'.")
    rows = {"obs_id": probs["obs_id"]} if "obs_id" in probs.coords else {}
    table = xr.Dataset({name: ("obs_id", values) for name, values in described.items()}, rows)
    return table.isel(obs_id=np.argsort(-described[by], kind="stable"))


def _predicted(data: Labelled, y: xr.DataArray | None) -> tuple[xr.DataArray, Positions, Positions]:
    """Return average probabilities, and positions of observed and of most probable classes."""
    probs = average_probs(data)
    labels = class_indices(observations(data, y), probs).to_numpy()
    return probs, labels, probs.to_numpy().argmax(-1)


def _entropies(data: Labelled, probs: xr.DataArray) -> xr.Dataset:
    if num_draws(moment(data, "probs")) > 1:
        return entropies(data)
    return xr.Dataset({"predictive_entropy": shannon_entropy(probs)})
