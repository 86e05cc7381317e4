"""Selective prediction: the risk if the most uncertain observations are rejected."""

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.stats import beta

from bnnzoo.trees import aligned, refuse_no_count

__all__ = ["aurc", "risk_coverage_curve", "risk_threshold"]

type Array = NDArray[np.floating]


def risk_coverage_curve(uncertainty: xr.DataArray, loss: xr.DataArray) -> xr.Dataset:
    """Mean loss of the most certain observations, against the fraction that is kept.

    Parameters
    ----------
    uncertainty : DataArray [obs_id]
        Observations are rejected in order of this, the most uncertain first.
    loss : DataArray [obs_id]
        Such as ``misclassified(tree)`` or a squared error.

    Returns
    -------
    Dataset
        ``risk[coverage]`` for 1/N, ..., 1, and ``risk_oracle`` for rejection by the loss itself. Equally uncertain
        observations share their mean loss, so their order does not matter.

    Raises
    ------
    ValueError
        If lengths differ, there are no observations, or a value is not finite.

    References
    ----------
    R. El-Yaniv, Y. Wiener, On the foundations of noise-free selective classification, JMLR, 2010.

    Examples
    --------
    >>> uncertainty = xr.DataArray([0.1, 0.9, 0.2, 0.3], dims="obs_id")
    >>> loss = xr.DataArray([0.0, 1.0, 0.0, 1.0], dims="obs_id")
    >>> risk_coverage_curve(uncertainty, loss)["risk"].values.round(4)
    array([0.    , 0.    , 0.3333, 0.5   ])
    """
    scores, losses = _checked(uncertainty, loss)
    coverage = np.arange(1, len(losses) + 1) / len(losses)
    variables = {"risk": _risks(scores, losses), "risk_oracle": _risks(losses, losses)}
    return xr.Dataset({name: ("coverage", values) for name, values in variables.items()}, {"coverage": coverage})


def aurc(
    uncertainty: xr.DataArray, loss: xr.DataArray, *, num_resamples: int = 1000, level: float = 0.95, seed: int = 0
) -> xr.Dataset:
    """Area under the risk-coverage curve: the mean risk over all coverages.

    Parameters
    ----------
    uncertainty, loss : DataArray [obs_id]
        As for :func:`risk_coverage_curve`.
    num_resamples : int
        Number of bootstrap resamples of the observations.
    level : float
        Probability of the interval.
    seed : int

    Returns
    -------
    Dataset
        ``value`` with its percentile interval ``low`` and ``high``, in units of the loss, and ``excess``: the
        value minus that of the oracle, which rejects by the loss itself and is a lower bound.

    Raises
    ------
    ValueError
        If lengths differ, there are no observations, or a value is not finite.

    References
    ----------
    Y. Geifman, G. Uziel, R. El-Yaniv, Bias-reduced uncertainty estimation for deep neural classifiers, ICLR 2019.

    Examples
    --------
    >>> uncertainty = xr.DataArray([0.1, 0.9, 0.2, 0.3], dims="obs_id")
    >>> loss = xr.DataArray([0.0, 1.0, 0.0, 1.0], dims="obs_id")
    >>> float(aurc(uncertainty, loss)["excess"])
    0.0
    """
    scores, losses = _checked(uncertainty, loss)
    refuse_no_count("num_resamples", num_resamples)
    if not 0 < level < 1:
        raise ValueError(f"num_resamples={num_resamples} must be positive, and level={level} between 0 and 1.")
    rng = np.random.default_rng(seed)
    rows = (rng.integers(len(losses), size=len(losses)) for _ in range(num_resamples))
    low, high = np.quantile([_risks(scores[r], losses[r]).mean() for r in rows], [(1 - level) / 2, (1 + level) / 2])
    value = float(_risks(scores, losses).mean())
    excess = value - float(_risks(losses, losses).mean())
    return xr.Dataset({"value": value, "low": float(low), "high": float(high), "excess": excess})


def risk_threshold(
    uncertainty: xr.DataArray, loss: xr.DataArray, risk: float, *, confidence: float | None = None
) -> xr.Dataset:
    r"""Largest uncertainty to accept for a wanted risk; predictions that are more uncertain are rejected.

    Without ``confidence`` the threshold is read off the risk-coverage curve of these observations, and the risk of new ones is
    higher on average, because the threshold was chosen here. With ``confidence`` it has a guarantee: a binary search over the
    sorted uncertainties accepts a threshold if the exact binomial upper bound of its risk, which is wrong with probability
    :math:`(1 - confidence) / \lceil \log_2 (m + 1) \rceil` for m thresholds, is at most ``risk``. The true risk is then at
    most ``risk`` with probability ``confidence``, if new observations come from the same distribution as these.

    Parameters
    ----------
    uncertainty : DataArray [obs_id]
        Of held-out observations.
    loss : DataArray [obs_id]
        Such as ``misclassified(tree)``; 0 or 1 if ``confidence`` is given.
    risk : float
        Wanted mean loss of the predictions that are kept.
    confidence : float, optional
        Probability of the guarantee. Default: none.

    Returns
    -------
    Dataset
        ``threshold``: keep predictions with ``uncertainty <= threshold``; minus infinity if no threshold will do.
        ``coverage``, the fraction kept, ``risk``, their mean loss (NaN if none is kept), and, with ``confidence``, the
        ``bound`` of the risk.

    Raises
    ------
    ValueError
        If lengths differ, a value is not finite, ``confidence`` is not between 0 and 1, or losses are not 0 or 1 with it.

    References
    ----------
    Y. Geifman, R. El-Yaniv, Selective classification for deep neural networks, NeurIPS 2017.

    Examples
    --------
    >>> uncertainty = xr.DataArray([0.1, 0.9, 0.2, 0.3], dims="obs_id")
    >>> loss = xr.DataArray([0.0, 1.0, 0.0, 1.0], dims="obs_id")
    >>> found = risk_threshold(uncertainty, loss, 0.1)
    >>> float(found["threshold"]), float(found["coverage"])
    (0.2, 0.5)
    """
    scores, losses = _checked(uncertainty, loss)
    thresholds, groups = np.unique(scores, return_inverse=True)
    kept, lost = np.bincount(groups).cumsum(), np.bincount(groups, losses).cumsum()
    if confidence is None:
        allowed = np.flatnonzero(lost <= risk * kept)
        return _at_threshold(int(allowed[-1]) if len(allowed) else -1, thresholds, kept, lost)
    if not 0 < confidence < 1:
        raise ValueError(f"confidence={confidence} must be between 0 and 1.")
    if not np.isin(losses, (0.0, 1.0)).all():
        raise ValueError(
            "A threshold with a guarantee needs losses that are 0 or 1, such as misclassified(tree), but some are not: leave "
            "confidence out, or pass loss > tolerance."
        )
    # Clopper and Pearson's upper bounds, of which a binary search reads so many that all hold at once
    error = (1 - confidence) / max(1, np.ceil(np.log2(len(kept) + 1)))
    bounds: Array = np.where(lost < kept, beta.ppf(1 - error, lost + 1, np.maximum(kept - lost, 1)), 1.0)
    # where the search for the last bound below the risk ends, -1 if it accepts none
    place, low, high = -1, 0, len(bounds) - 1
    while low <= high:
        middle = (low + high) // 2
        if bounds[middle] <= risk:
            place, low = middle, middle + 1
        else:
            high = middle - 1
    return _at_threshold(place, thresholds, kept, lost).assign(bound=float(bounds[place]) if place >= 0 else np.nan)


def _at_threshold(place: int, thresholds: Array, kept: NDArray[np.integer], lost: Array) -> xr.Dataset:
    if place < 0:
        return xr.Dataset({"threshold": -np.inf, "coverage": 0.0, "risk": np.nan})
    values = {"threshold": thresholds[place], "coverage": kept[place] / kept[-1], "risk": lost[place] / kept[place]}
    return xr.Dataset({name: float(value) for name, value in values.items()})


def _checked(uncertainty: xr.DataArray, loss: xr.DataArray) -> tuple[Array, Array]:
    loss = aligned(loss, uncertainty, "loss", "the uncertainties", apart_from=())
    scores, losses = (values.to_numpy().ravel().astype(float) for values in (uncertainty, loss))
    if not len(losses):
        raise ValueError("There are no observations: give one uncertainty and one loss for each.")
    if not (np.isfinite(scores).all() and np.isfinite(losses).all()):
        raise ValueError("Uncertainties and losses must be finite, but some are not.")
    return scores, losses


def _risks(scores: Array, losses: Array) -> Array:
    """Return the mean loss of the n observations with the smallest scores, for n = 1, ..., N."""
    _, group, counts = np.unique(scores, return_inverse=True, return_counts=True)
    mean_of_group = np.bincount(group, losses) / counts
    kept = np.arange(1, len(losses) + 1)
    risks: Array = np.repeat(mean_of_group, counts).cumsum() / kept
    return risks
