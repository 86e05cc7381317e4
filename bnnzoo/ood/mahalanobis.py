"""Distances of features to the training data: to the nearest class mean, or to the nearest observations."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from sklearn.covariance import ledoit_wolf
from sklearn.neighbors import NearestNeighbors

from bnnzoo.ood.feature_scores import average_score, each_draw, positions
from bnnzoo.trees import aligned, refuse_other_kind

__all__ = ["Mahalanobis", "NearestFeatures", "sum_of_layers"]

type Array = NDArray[np.floating]


class _Classes(NamedTuple):
    """Class means ``[K, D]`` and Cholesky factors ``[K, D, D]`` of their covariances, or ``[1, D, D]`` of a common one."""

    means: Array
    factors: Array


@dataclass(frozen=True)
class Mahalanobis:
    r"""Squared Mahalanobis distance :math:`\min_k (z - \mu_k)^\top \Sigma_k^{-1} (z - \mu_k)` to the nearest class mean.

    By default all classes share one covariance, which suits linear last layers and needs fewer observations than one for each
    class.

    Parameters
    ----------
    classes : tuple
        One fit per draw.

    References
    ----------
    K. Lee et al., A simple unified framework for detecting out-of-distribution samples and adversarial attacks,
    NeurIPS 2018.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> features = xr.DataArray(rng.normal(size=(100, 2)), dims=("obs_id", "feature"))
    >>> distance = Mahalanobis.fit(features, xr.DataArray(np.arange(100) % 2, dims="obs_id"))
    >>> bool((distance.score(features + 9.0) > distance.score(features)).all())
    True
    """

    classes: tuple[_Classes, ...]

    @classmethod
    def fit(cls, features: xr.DataArray, labels: xr.DataArray, *, shared_covariance: bool = True) -> Self:
        """Compute class means and their covariance (Ledoit-Wolf), one for all classes or one for each.

        Parameters
        ----------
        features : DataArray [obs_id, feature] or [chain, draw, obs_id, feature]
            Features of the training data, from one layer. Each draw has its own fit; scores are averaged.
        labels : DataArray [obs_id]
        shared_covariance : bool
            False gives each class its own covariance, estimated from its own observations.
        """
        known = positions(labels, features)
        return cls(tuple(_fit_classes(rows, known, shared_covariance) for rows in each_draw(features)))

    def score(self, features: xr.DataArray) -> xr.DataArray:
        """Return squared distances ``[obs_id]``; larger means more out of distribution, D features have typical values of D.

        Parameters
        ----------
        features : DataArray [obs_id, feature] or [chain, draw, obs_id, feature]
            Features from the same draws as in training.
        """
        return average_score(features, self.classes, _nearest_distance).rename("mahalanobis").assign_attrs(units="1")


@dataclass(frozen=True)
class NearestFeatures:
    """Distance to the k-th nearest training observation, for features scaled to length one.

    Parameters
    ----------
    neighbors : tuple of NearestNeighbors
        Scikit-learn's, one for each draw.

    References
    ----------
    Y. Sun et al., Out-of-distribution detection with deep nearest neighbors, ICML 2022.

    Examples
    --------
    >>> features = xr.DataArray([[1.0, 0.0], [1.0, 0.1], [1.0, -0.1]], dims=("obs_id", "feature"))
    >>> nearest = NearestFeatures.fit(features, num_neighbors=1)
    >>> nearest.score(xr.DataArray([[0.0, 1.0]], dims=("obs_id", "feature"))).values.round(2)
    array([1.34])
    """

    neighbors: tuple[NearestNeighbors, ...]

    @classmethod
    def fit(cls, features: xr.DataArray, num_neighbors: int = 10) -> Self:
        """Keep the training features for the search.

        Parameters
        ----------
        features : DataArray [obs_id, feature] or [chain, draw, obs_id, feature]
        num_neighbors : int
            k; at most the number of observations.
        """
        rows = features.sizes.get("obs_id", 0)
        if not 1 <= num_neighbors <= max(rows, 1):
            raise ValueError(f"num_neighbors={num_neighbors} must be between 1 and the {rows} observations.")
        return cls(
            tuple(NearestNeighbors(n_neighbors=num_neighbors).fit(_scaled(rows)) for rows in each_draw(features))
        )

    def score(self, features: xr.DataArray) -> xr.DataArray:
        """Return distances ``[obs_id]``, between 0 and 2; larger means more out of distribution.

        Training rows find themselves.

        Parameters
        ----------
        features : DataArray [obs_id, feature] or [chain, draw, obs_id, feature]
            Features from the same draws as in training.
        """
        score = average_score(features, self.neighbors, lambda search, rows: search.kneighbors(_scaled(rows))[0][:, -1])
        return score.rename("nearest_features").assign_attrs(units="1")


def sum_of_layers(scores: Sequence[xr.DataArray], references: Sequence[xr.DataArray]) -> xr.DataArray:
    """Return the sum ``[obs_id]`` of the scores of several layers, each standardised by held-out in-distribution data.

    Distances differ in scale between layers with different numbers of features. Standardisation gives all layers equal
    weight, and needs no out-of-distribution data.

    Parameters
    ----------
    scores : sequence of DataArray [obs_id]
        Scores of new observations, one array per layer.
    references : sequence of DataArray [obs_id]
        Scores of held-out in-distribution observations, for the same layers.

    Raises
    ------
    ValueError
        If the numbers of layers differ, or layers have scores of other rows.

    Examples
    --------
    >>> one, two = (xr.DataArray(values, dims="obs_id") for values in ([1.0, 3.0], [10.0, 30.0]))
    >>> sum_of_layers([one, two], [one, two]).values
    array([-2.,  2.])
    """
    for argument, values in (("scores", scores), ("references", references)):
        refuse_other_kind(values, list | tuple, argument, "a list with the scores of each layer")
        for each in values:
            refuse_other_kind(each, xr.DataArray, f"An entry of {argument}", "what score returns")
    if len(scores) != len(references) or not scores:
        raise ValueError(f"There are scores of {len(scores)} layers, but references of {len(references)}.")
    standardized = [(s - r.mean()) / r.std() for s, r in zip(scores, references, strict=True)]
    total = standardized[0]
    for layer, other in enumerate(standardized[1:], 2):
        total = total + aligned(other, total, f"the score of layer {layer}", "the layers before", apart_from=())
    return total.rename("sum_of_layers")


def _fit_classes(features: Array, labels: NDArray[np.integer], shared: bool) -> _Classes:
    known = range(labels.max() + 1)
    means = np.array([features[labels == k].mean(0) for k in known])
    centred = features - means[labels]
    groups = [centred] if shared else [centred[labels == k] for k in known]
    return _Classes(means, np.array([_factor(group) for group in groups]))


def _factor(centred: Array) -> Array:
    covariance = ledoit_wolf(centred, assume_centered=True)[0]
    floor = 1e-6 * np.trace(covariance) / len(covariance) + 1e-12  # for constant features
    return np.linalg.cholesky(covariance + floor * np.eye(len(covariance)))


def _nearest_distance(classes: _Classes, features: Array) -> Array:
    factors = np.broadcast_to(classes.factors, (len(classes.means), *classes.factors.shape[1:]))
    pairs = zip(classes.means, factors, strict=True)
    whitened = [solve_triangular(factor, (features - mean).T, lower=True) for mean, factor in pairs]
    distances: Array = np.min([(w**2).sum(0) for w in whitened], axis=0)
    return distances


def _scaled(features: Array) -> Array:
    lengths = np.linalg.norm(features, axis=-1, keepdims=True)
    return np.asarray(features / np.where(lengths > 0, lengths, 1.0))
