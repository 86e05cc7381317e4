"""Calibration of class probabilities: reliability curves and expected calibration errors."""

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.stats import norm

from bnnzoo.docstrings import with_shared_entries
from bnnzoo.trees import LABELLED_PROBS, Labelled, average_probs, class_indices, observations, refuse_no_count

__all__ = ["classwise_ece", "ece", "reliability_curve"]

type Array = NDArray[np.floating]


@with_shared_entries(LABELLED_PROBS)
def reliability_curve(
    data: Labelled,
    y: xr.DataArray | None = None,
    *,
    class_index: int | None = None,
    num_bins: int = 15,
    equal_mass: bool = False,
) -> xr.Dataset:
    """Mean predicted probability and observed frequency in bins, ``[bin]``, of class probabilities averaged over draws.

    Parameters
    ----------
    class_index : int, optional
        Position of the class whose probability is assessed (default: the most probable class of each observation).
    num_bins : int
    equal_mass : bool
        Use bins with about equally many observations, instead of bins of equal width.

    Returns
    -------
    Dataset
        ``confidence`` (mean probability), ``frequency`` (of the class; for the most probable class this is the
        accuracy) and ``count`` of each non-empty bin.

    Raises
    ------
    ValueError
        If data are missing, a label is not one of the classes, or ``num_bins`` is not positive.

    References
    ----------
    M. H. DeGroot, S. E. Fienberg, The comparison and evaluation of forecasters, The Statistician, 1983.

    Examples
    --------
    >>> probs = xr.DataArray([[[[0.25, 0.75], [0.25, 0.75]]]], dims=("chain", "draw", "obs_id", "class_id"))
    >>> curve = reliability_curve(probs, xr.DataArray([1, 0], dims="obs_id"))
    >>> curve["confidence"].values, curve["frequency"].values
    (array([0.75]), array([0.5]))
    """
    probs = average_probs(data)
    labels = class_indices(observations(data, y), probs).to_numpy()
    if class_index is not None and not 0 <= class_index < probs.sizes["class_id"]:
        raise ValueError(f"class_index={class_index}, but there are {probs.sizes['class_id']} classes, counted from 0.")
    confidence, outcome = _assessed(probs.to_numpy(), labels, class_index)
    return _curve(confidence, outcome, num_bins, equal_mass)


def ece(
    data: Labelled,
    y: xr.DataArray | None = None,
    *,
    num_bins: int = 15,
    equal_mass: bool = False,
    debiased: bool = False,
) -> xr.DataArray:
    r"""Expected calibration error :math:`\sum_b \frac{n_b}{N} |conf_b - acc_b|` of the most probable class.

    Parameters
    ----------
    data : DataTree, Dataset or DataArray
        With ``probs[chain, draw, obs_id, class_id]``, which are averaged over draws.
    y : DataArray [obs_id], optional
        Observed labels (default: those of the tree).
    num_bins : int
    equal_mass : bool
        Use bins with about equally many observations, instead of bins of equal width.
    debiased : bool
        Frequencies in bins are random, so even the true probabilities have a positive error. Subtract an estimate of
        this bias: with :math:`d_b = conf_b - acc_b` and its standard error :math:`s_b`, the excess of
        :math:`E|d_b + s_b Z|` over :math:`|d_b|` for standard normal Z. This removes about half of the bias of true
        probabilities, and nearly all of it if probabilities are far from calibrated. The result may be slightly negative.

    Returns
    -------
    DataArray
        Scalar, between 0 and 1.

    Raises
    ------
    ValueError
        If data are missing, a label is not one of the classes, or ``num_bins`` is not positive.

    References
    ----------
    M. P. Naeini, G. F. Cooper, M. Hauskrecht, Obtaining well calibrated probabilities using Bayesian binning, 2015;
    A. Kumar, P. Liang, T. Ma, Verified uncertainty calibration, NeurIPS 2019 (the debiased estimate).

    Examples
    --------
    >>> probs = xr.DataArray([[[[0.25, 0.75], [0.25, 0.75]]]], dims=("chain", "draw", "obs_id", "class_id"))
    >>> float(ece(probs, xr.DataArray([1, 0], dims="obs_id")))
    0.25
    """
    curve = reliability_curve(data, y, num_bins=num_bins, equal_mass=equal_mass)
    return xr.DataArray(_error(curve, debiased), name="ece", attrs={"units": "1"})


def classwise_ece(
    data: Labelled,
    y: xr.DataArray | None = None,
    *,
    num_bins: int = 15,
    equal_mass: bool = False,
    debiased: bool = False,
) -> xr.DataArray:
    """Expected calibration error of each class probability, ``[class_id]``; its mean is the class-wise ECE.

    Parameters
    ----------
    data, y, num_bins, equal_mass, debiased
        As for :func:`ece`.

    Returns
    -------
    DataArray [class_id]
        Between 0 and 1.

    Raises
    ------
    ValueError
        If data are missing, a label is not one of the classes, or ``num_bins`` is not positive.

    References
    ----------
    M. Kull et al., Beyond temperature scaling, NeurIPS 2019.

    Examples
    --------
    >>> probs = xr.DataArray([[[[0.25, 0.75], [0.25, 0.75]]]], dims=("chain", "draw", "obs_id", "class_id"))
    >>> classwise_ece(probs, xr.DataArray([1, 0], dims="obs_id")).values
    array([0.25, 0.25])
    """
    probs = average_probs(data)
    labels = class_indices(observations(data, y), probs).to_numpy()
    assessed = [_assessed(probs.to_numpy(), labels, k) for k in range(probs.sizes["class_id"])]
    errors = [_error(_curve(*pair, num_bins, equal_mass), debiased) for pair in assessed]
    coords = {"class_id": probs["class_id"]} if "class_id" in probs.coords else {}
    return xr.DataArray(errors, dims="class_id", coords=coords, name="classwise_ece", attrs={"units": "1"})


def _assessed(probs: Array, labels: NDArray[np.integer], class_index: int | None) -> tuple[Array, Array]:
    """Return the probability of the assessed class for each observation, and whether it was observed."""
    chosen = probs.argmax(-1) if class_index is None else np.full(len(probs), class_index)
    return probs[np.arange(len(probs)), chosen], (labels == chosen).astype(float)


def _curve(confidence: Array, outcome: Array, num_bins: int, equal_mass: bool) -> xr.Dataset:
    refuse_no_count("num_bins", num_bins)
    levels = np.linspace(0, 1, num_bins + 1)[1:-1]
    edges = np.quantile(confidence, levels) if equal_mass else levels
    bins = np.searchsorted(edges, confidence)  # bins are open on the left and closed on the right
    counts = np.bincount(bins, minlength=num_bins)
    filled = counts > 0
    means = [np.bincount(bins, values, num_bins)[filled] / counts[filled] for values in (confidence, outcome)]
    return xr.Dataset({
        "confidence": ("bin", means[0]), "frequency": ("bin", means[1]), "count": ("bin", counts[filled]),
    })  # fmt: skip


def _error(curve: xr.Dataset, debiased: bool) -> float:
    gap = abs(curve["confidence"] - curve["frequency"]).to_numpy()
    counts = curve["count"].to_numpy()
    if debiased:
        spread = np.sqrt((curve["frequency"] * (1 - curve["frequency"])).to_numpy() / counts)
        gap = 2 * gap - _folded_normal_mean(gap, spread)
    return float(gap @ counts / counts.sum())


def _folded_normal_mean(loc: Array, scale: Array) -> Array:
    """Return E|loc + scale Z| for standard normal Z."""
    ratio = np.divide(loc, scale, out=np.full_like(loc, np.inf), where=scale > 0)
    mean: Array = 2 * scale * norm.pdf(ratio) + loc * (1 - 2 * norm.cdf(-ratio))
    return mean
