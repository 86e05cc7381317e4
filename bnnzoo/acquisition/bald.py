"""Acquisition functions for the observations of a pool, one by one and in batches."""

from typing import Literal, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from bnnzoo.trees import (
    Labelled,
    entropies,
    first_moment,
    gaussian_mixture_entropy,
    laplace_mixture_entropy,
    margin,
    max_probability,
    moment,
    plogp,
    refuse_no_count,
    refuse_other_kind,
    refuse_single_draw,
)

__all__ = ["Batch", "bald", "batch_bald", "least_confidence", "select", "smallest_margin"]

type Array = NDArray[np.floating]

MIXTURES = {"gaussian": gaussian_mixture_entropy, "laplace": laplace_mixture_entropy}


def bald(
    data: Labelled, *, noise: Literal["gaussian", "laplace"] = "gaussian", tolerance: float = 1e-4
) -> xr.DataArray:
    r"""Mutual information :math:`I[y; \theta \mid x]` in nats between the label of each pool observation and the parameters.

    For real targets the predictive density is a mixture of one component for each draw, whose entropy is computed by
    quadrature. One row of 1,000 draws takes about 10 ms.

    Parameters
    ----------
    data : DataTree, Dataset or DataArray
        The pool, at least two draws, with ``probs[chain, draw, obs_id, class_id]``, or with ``mean`` and ``variance``
        ``[chain, draw, obs_id]`` of a real target.
    noise : {"gaussian", "laplace"}
        Likelihood of real targets.
    tolerance : float
        Of the entropy of real targets, in nats.

    Returns
    -------
    DataArray [obs_id]
        Higher means more informative.

    Raises
    ------
    ValueError
        If there is a single draw, or ``noise`` is unknown.

    References
    ----------
    N. Houlsby et al., Bayesian active learning for classification and preference learning, 2011.

    Examples
    --------
    >>> probs = xr.DataArray([[[[0.9, 0.1]], [[0.1, 0.9]]]], dims=("chain", "draw", "obs_id", "class_id"))
    >>> bald(probs).values.round(6)
    array([0.368064])
    """
    if isinstance(data, xr.DataArray) or first_moment(data, "probs", "mean") == "probs":
        return entropies(data)["mutual_information"].rename("bald")
    if noise not in MIXTURES:
        raise ValueError(
            f"noise={noise!r}: write {' or '.join(map(repr, MIXTURES))}, as in the likelihood of the model."
        )
    return MIXTURES[noise](data, tolerance)["epistemic"].rename("bald")


def least_confidence(data: Labelled) -> xr.DataArray:
    r"""One minus the largest class probability, :math:`1 - \max_k \bar p_k`, of each pool observation.

    Parameters
    ----------
    data : DataTree, Dataset or DataArray
        With ``probs[chain, draw, obs_id, class_id]`` of the pool.

    Returns
    -------
    DataArray [obs_id]
        Between 0 and 1 - 1/K; higher means more informative.

    References
    ----------
    D. D. Lewis, W. A. Gale, A sequential algorithm for training text classifiers, SIGIR 1994.

    Examples
    --------
    >>> probs = xr.DataArray([[[[0.9, 0.1]], [[0.7, 0.3]]]], dims=("chain", "draw", "obs_id", "class_id"))
    >>> least_confidence(probs).values.round(6)
    array([0.2])
    """
    return (1 - max_probability(data)).rename("least_confidence").assign_attrs(units="1")


def smallest_margin(data: Labelled) -> xr.DataArray:
    """Margin sampling: one minus the difference of the two largest class probabilities of each pool observation.

    Parameters
    ----------
    data : DataTree, Dataset or DataArray
        With ``probs[chain, draw, obs_id, class_id]`` of the pool.

    Returns
    -------
    DataArray [obs_id]
        Between 0 and 1; higher means more informative.

    References
    ----------
    T. Scheffer, C. Decomain, S. Wrobel, Active hidden Markov models for information extraction, IDA 2001.

    Examples
    --------
    >>> probs = xr.DataArray([[[[0.9, 0.1]], [[0.7, 0.3]]]], dims=("chain", "draw", "obs_id", "class_id"))
    >>> smallest_margin(probs).values.round(6)
    array([0.4])
    """
    return (1 - margin(data)).rename("smallest_margin").assign_attrs(units="1")


def select(score: xr.DataArray, batch_size: int) -> NDArray[np.integer]:
    """Positions of the observations with the highest scores, best first; ties go to the first.

    Parameters
    ----------
    score : DataArray [obs_id]
    batch_size : int

    Returns
    -------
    ndarray [batch_size]

    Raises
    ------
    ValueError
        If there are fewer observations than that.

    Examples
    --------
    >>> select(xr.DataArray([0.1, 0.7, 0.4], dims="obs_id"), 2)
    array([1, 2])
    """
    refuse_other_kind(score, xr.DataArray, "score", "a DataArray with one score for each row, as measures return it")
    _refuse_bad_batch_size(batch_size, score.size)
    return np.argsort(-score.to_numpy(), kind="stable")[:batch_size]


class Batch(NamedTuple):
    """Positions ``[batch_size]`` in the pool, in the order of selection, and the joint information of the first n."""

    positions: NDArray[np.integer]
    information: Array


def batch_bald(data: Labelled, batch_size: int, *, num_configurations: int = 10_000, seed: int = 0) -> Batch:
    r"""Choose a batch with the largest joint mutual information between its labels and the parameters, greedily.

    The highest single scores often belong to near copies of one observation. The joint mutual information
    :math:`I[y_1, \dots, y_b; \theta]` accounts for redundancy, and greedy selection is near-optimal. The joint
    entropy is a sum over all :math:`K^b` label configurations if there are at most ``num_configurations``, and otherwise
    an average over that many configurations drawn from the predictive distribution.

    Parameters
    ----------
    data : DataTree, Dataset or DataArray
        With ``probs[chain, draw, obs_id, class_id]`` of the pool, at least two draws, which are loaded into memory.
    batch_size : int
    num_configurations : int
    seed : int
        Seed of the configurations that are drawn.

    Returns
    -------
    Batch
        ``positions`` and ``information`` (joint, in nats, of the first 1, ..., b; with Monte Carlo noise if
        configurations are drawn).

    Raises
    ------
    ValueError
        If there is a single draw, or the pool is smaller than the batch.

    References
    ----------
    A. Kirsch, J. van Amersfoort, Y. Gal, BatchBALD, NeurIPS 2019.

    Examples
    --------
    >>> p = [[[[0.9, 0.1], [0.9, 0.1], [0.8, 0.2]], [[0.1, 0.9], [0.1, 0.9], [0.2, 0.8]]]]
    >>> batch_bald(xr.DataArray(p, dims=("chain", "draw", "obs_id", "class_id")), 2).positions
    array([0, 1])
    """
    probs = moment(data, "probs").transpose("chain", "draw", "obs_id", "class_id")
    refuse_single_draw(probs, "batch_bald")
    values = probs.to_numpy().astype(float).reshape(-1, probs.sizes["obs_id"], probs.sizes["class_id"])
    refuse_no_count("num_configurations", num_configurations)
    _refuse_bad_batch_size(batch_size, values.shape[1])
    expected: Array = -plogp(values).sum(-1).mean(0)
    rng = np.random.default_rng(seed)
    positions: list[int] = []
    information: list[float] = []
    joint: Array = np.ones((1, len(values)))
    weights: Array = np.ones(1)  # of the label configurations in the rows of joint, p(labels | theta_s)
    for _ in range(batch_size):
        scores = _joint_entropies(joint, weights, values) - expected - float(expected[positions].sum())
        scores[positions] = -np.inf
        positions.append(int(scores.argmax()))
        information.append(float(scores.max()))
        # configurations with one more label: all, or as many as allowed, drawn from the predictive distribution
        probs_of_row = values[:, positions[-1]]
        joint = (joint[:, None] * probs_of_row.T[None]).reshape(-1, joint.shape[1])
        weights = np.repeat(weights, probs_of_row.shape[1])
        if len(joint) > num_configurations:
            mass = joint.mean(1) * weights
            kept = rng.choice(len(joint), num_configurations, p=mass / mass.sum())
            joint, weights = joint[kept], weights[kept] * mass.sum() / (num_configurations * mass[kept])
    return Batch(np.array(positions), np.array(information))


def _joint_entropies(joint: Array, weights: Array, values: Array) -> Array:
    """Return the joint entropy ``[rows]`` of the labels chosen so far and the label of each row.

    ``joint[m, s]`` is the probability of configuration m given draw s, and ``weights[m]`` its importance weight, one over
    the probability with which it was drawn (1 if all configurations are listed).
    """
    draws = values.shape[0]
    entropies = np.zeros(values.shape[1])
    for start in range(0, values.shape[1], 256):  # rows, to bound the size of [M, rows, K]
        block = np.einsum("ms,srk->mrk", joint, values[:, start : start + 256], optimize=True) / draws
        entropies[start : start + 256] = -np.einsum("m,mrk->r", weights, plogp(block))
    return entropies


def _refuse_bad_batch_size(batch_size: int, pool: int) -> None:
    refuse_no_count("batch_size", batch_size)
    if batch_size > pool:
        raise ValueError(
            f"batch_size={batch_size}, but the pool has {pool} observations: write a number from 1 to {pool}."
        )
