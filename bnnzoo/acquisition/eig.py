"""Expected information gain: about predictions, and about parameters."""

from collections.abc import Callable

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.special import logsumexp

from bnnzoo.acquisition.joint_draws import refuse_other_draws
from bnnzoo.trees import (
    Labelled,
    average_probs,
    moment,
    plogp,
    refuse_no_count,
    refuse_other_kind,
    refuse_single_draw,
)

__all__ = ["eig_linear_gaussian", "eig_nested_monte_carlo", "epig"]

type Array = NDArray[np.floating]

MAX_BLOCK = 2**23  # numbers in memory for one block of pool rows


def epig(pool: Labelled, target: Labelled) -> xr.DataArray:
    r"""Expected predictive information gain in nats of each pool observation, about the labels of target inputs.

    The average over target observations of the mutual information :math:`I[y; y_*]` between the two labels, whose joint
    distribution is :math:`\frac1S \sum_s p(y \mid x, \theta_s)\, p(y_* \mid x_*, \theta_s)`. Unlike BALD, it ignores
    information about the parameters that is irrelevant to the targets.

    Parameters
    ----------
    pool, target : DataTree, Dataset or DataArray
        With ``probs[chain, draw, obs_id, class_id]``, for the same draws in the same order.

    Returns
    -------
    DataArray [obs_id]
        Of the pool; higher means more informative.

    Raises
    ------
    ValueError
        If the trees' draws differ, in number or by the seeds they carry, or there is a single draw.

    References
    ----------
    F. Bickford Smith et al., Prediction-oriented Bayesian active learning, AISTATS 2023.

    Examples
    --------
    >>> probs = xr.DataArray([[[[1.0, 0.0]], [[0.0, 1.0]]]], dims=("chain", "draw", "obs_id", "class_id"))
    >>> epig(probs, probs).values.round(6)  # the pool's label is the target's
    array([0.693147])
    """
    ours, theirs = (moment(data, "probs").transpose("chain", "draw", "obs_id", "class_id") for data in (pool, target))
    refuse_single_draw(ours, "epig")
    refuse_other_draws(pool, target, (ours, theirs))
    average = average_probs(pool)
    drawn, targets = _flat(ours), _flat(theirs)
    # the mean over targets [S, T, K] of the mutual information with each pool label [S, N, K]
    draws, rows, classes = drawn.shape
    num_targets = targets.shape[1] * targets.shape[2]
    flat_target = targets.reshape(draws, num_targets)
    own = -plogp(drawn.mean(0)).sum(-1) - plogp(flat_target.mean(0)).sum() / targets.shape[1]
    joint_entropy = np.empty(rows)
    step = max(1, MAX_BLOCK // (classes * num_targets))
    for start in range(0, rows, step):
        block = drawn[:, start : start + step]
        joint = block.reshape(draws, -1).T @ flat_target / draws
        joint_entropy[start : start + step] = -plogp(joint).reshape(block.shape[1], -1).sum(-1) / targets.shape[1]
    values: Array = np.maximum(own - joint_entropy, 0.0)
    template = average.isel(class_id=0, drop=True)
    return template.copy(data=values).rename("epig").assign_attrs(units="nats")


def eig_nested_monte_carlo(
    log_likelihood: Callable[[Array, Array], Array],
    sample: Callable[[Array, np.random.Generator], Array],
    theta: Array,
    *,
    num_outer: int = 1000,
    seed: int = 0,
) -> xr.Dataset:
    r"""Expected information gain :math:`E[\log p(y \mid \theta) - \log p(y)]` in nats, by nested Monte Carlo.

    For a single design. Pairs of :math:`\theta` from ``theta`` and y from the likelihood are drawn; the marginal likelihood
    of each y is estimated by the average over all other draws.

    Parameters
    ----------
    log_likelihood : callable
        ``(y[M, ...], theta[S, P]) -> [M, S]``: log density of every y under every theta.
    sample : callable
        ``(theta[M, P], rng) -> y[M, ...]``: one draw of y for each theta.
    theta : ndarray [S, P]
        Draws from the prior, or from the current posterior.
    num_outer : int
        Number of pairs, at most S.
    seed : int

    Returns
    -------
    Dataset
        ``value`` with its standard error ``mcse`` over outer pairs. Its bias is positive and of order 1/S.

    Raises
    ------
    ValueError
        If there are fewer than two draws, or more outer pairs than draws.

    References
    ----------
    T. Rainforth et al., On nesting Monte Carlo estimators, ICML 2018.

    Examples
    --------
    >>> theta = np.random.default_rng(0).normal(size=(2000, 1))
    >>> result = eig_nested_monte_carlo(
    ...     lambda y, theta: -0.5 * (y[:, None] - theta[:, 0]) ** 2 - 0.5 * np.log(2 * np.pi),
    ...     lambda theta, rng: rng.normal(theta[:, 0]), theta)
    >>> bool(abs(result["value"] - 0.5 * np.log(2)) < 4 * result["mcse"])  # the closed form
    True
    """
    refuse_other_kind(theta, np.ndarray, "theta", "an array with one draw a row")
    count = len(theta)
    refuse_no_count("num_outer", num_outer)
    if count < 2 or not 1 < num_outer <= count:
        raise ValueError(f"num_outer={num_outer} must be between 2 and the number of draws, which is {count}.")
    rng = np.random.default_rng(seed)
    outer = rng.permutation(count)[:num_outer]
    densities = log_likelihood(sample(theta[outer], rng), theta)
    own = densities[np.arange(num_outer), outer]
    others = densities.copy()
    others[np.arange(num_outer), outer] = -np.inf
    gains = own - (logsumexp(others, axis=1) - np.log(count - 1))
    return xr.Dataset({"value": float(gains.mean()), "mcse": float(gains.std(ddof=1) / np.sqrt(num_outer))})


def eig_linear_gaussian(design: xr.DataArray, covariance: Array, noise_scale: float) -> xr.DataArray:
    r"""Expected information gain :math:`\frac12 \log(1 + x^\top \Sigma x / \sigma^2)` in nats of single observations.

    Exact for a linear model :math:`y \sim N(x^\top w, \sigma^2)` with :math:`w \sim N(\mu, \Sigma)`.

    Parameters
    ----------
    design : DataArray [obs_id, param]
        Inputs x of each observation; the last dim indexes the parameters.
    covariance : ndarray [P, P]
        Current covariance of the parameters.
    noise_scale : float
        Standard deviation of the noise.

    Returns
    -------
    DataArray [obs_id]
        Higher means more informative.

    Raises
    ------
    ValueError
        If sizes differ, or the noise is not positive.

    References
    ----------
    D. J. C. MacKay, Information-based objective functions for active data selection, Neural Computation, 1992.

    Examples
    --------
    >>> eig_linear_gaussian(xr.DataArray([[1.0], [3.0]], dims=("obs_id", "param")), np.eye(1), 1.0).values.round(4)
    array([0.3466, 1.1513])
    """
    refuse_other_kind(design, xr.DataArray, "design", "a DataArray whose last dim is that of the columns")
    refuse_other_kind(covariance, np.ndarray, "covariance", "a square array")
    size = design.shape[-1]
    if covariance.shape != (size, size):
        raise ValueError(f"The design has {size} columns, but the covariance has shape {covariance.shape}.")
    if not noise_scale > 0:
        raise ValueError(f"noise_scale must be positive, but is {noise_scale}.")
    values = design.to_numpy()
    variance = np.einsum("...i,ij,...j->...", values, covariance, values)
    gain = design.isel({design.dims[-1]: 0}, drop=True).copy(data=0.5 * np.log1p(variance / noise_scale**2))
    return gain.rename("eig").assign_attrs(units="nats")


def _flat(probs: xr.DataArray) -> Array:
    values = probs.to_numpy().astype(float)
    return values.reshape(-1, *values.shape[2:])
