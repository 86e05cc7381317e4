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

from bnnzoo.labelled import aligned
from bnnzoo.ood.features import average_score, each_draw, positions

__all__ = ["Mahalanobis", "NearestFeatures", "sum_of_layers"]

type Array = NDArray[np.floating]


class _Tied(NamedTuple):
    """Class means ``[K, D]`` and the Cholesky factor ``[D, D]`` of the common covariance."""

    means: Array
    factor: Array


@dataclass(frozen=True)
class Mahalanobis:
    r"""Squared Mahalanobis distance :math:`\min_k (z - \mu_k)^\top \Sigma^{-1} (z - \mu_k)` to the nearest class mean.

    All classes share one covariance, which suits linear last layers and needs fewer observations than one per class.

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

    classes: tuple[_Tied, ...]

    @classmethod
    def fit(cls, features: xr.DataArray, labels: xr.DataArray) -> Self:
        """Compute class means and their common covariance (Ledoit-Wolf).

        Parameters
        ----------
        features : DataArray [obs_id, feature] or [chain, draw, obs_id, feature]
            Features of the training data, from one layer. Each draw has its own fit; scores are averaged.
        labels : DataArray [obs_id]
        """
        known = positions(labels, features)
        return cls(tuple(_fit_tied(rows, known) for rows in each_draw(features)))

    def score(self, features: xr.DataArray) -> xr.DataArray:
        """Return squared distances ``[obs_id]``; larger means more out of distribution, D features have typical values of D.

        Parameters
        ----------
        features : DataArray [obs_id, feature] or [chain, draw, obs_id, feature]
            Features from the same draws as in training.
        """
        return average_score(features, self.classes, _tied_distance).rename("mahalanobis").assign_attrs(units="1")


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
        """Return distances ``[obs_id]``, between 0 and 2; larger is stranger. Training rows find themselves.

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
    if len(scores) != len(references) or not scores:
        raise ValueError(f"There are scores of {len(scores)} layers, but references of {len(references)}.")
    standardized = [(s - r.mean()) / r.std() for s, r in zip(scores, references, strict=True)]
    total = standardized[0]
    for layer, other in enumerate(standardized[1:], 2):
        total = total + aligned(other, total, f"the score of layer {layer}", "the layers before", apart_from=())
    return total.rename("sum_of_layers")


def _fit_tied(features: Array, labels: NDArray[np.integer]) -> _Tied:
    means = np.array([features[labels == k].mean(0) for k in range(labels.max() + 1)])
    covariance = ledoit_wolf(features - means[labels], assume_centered=True)[0]
    floor = 1e-6 * np.trace(covariance) / len(covariance) + 1e-12  # for constant features
    return _Tied(means, np.linalg.cholesky(covariance + floor * np.eye(len(covariance))))


def _tied_distance(tied: _Tied, features: Array) -> Array:
    whitened = [solve_triangular(tied.factor, (features - mean).T, lower=True) for mean in tied.means]
    distances: Array = np.min([(w**2).sum(0) for w in whitened], axis=0)
    return distances


def _scaled(features: Array) -> Array:
    lengths = np.linalg.norm(features, axis=-1, keepdims=True)
    return np.asarray(features / np.where(lengths > 0, lengths, 1.0))
