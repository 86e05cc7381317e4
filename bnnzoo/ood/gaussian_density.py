"""Deep deterministic uncertainty: the density of features under one Gaussian for each class."""

from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.special import logsumexp
from sklearn.covariance import ledoit_wolf

from bnnzoo.ood.feature_scores import average_score, each_draw, positions

__all__ = ["GaussianDensity"]

type Array = NDArray[np.floating]


class _ClassDensities(NamedTuple):
    """Means ``[K, D]``, Cholesky factors of covariances ``[K, D, D]``, log frequencies ``[K]`` of the classes of a draw."""

    means: Array
    factors: Array
    log_shares: Array


@dataclass(frozen=True)
class GaussianDensity:
    r"""Density :math:`\sum_k \pi_k N(z; \mu_k, \Sigma_k)` of features z, fitted to each class of the training data.

    The negative log density is a measure of epistemic uncertainty if features preserve distances, as in networks with
    spectral normalisation and residual connections. Other networks may map new kinds of inputs onto known features.

    Parameters
    ----------
    classes : tuple
        One fit per draw.
    training_scores : tuple of float
        Negative log densities of the training data, in increasing order.

    References
    ----------
    J. Mukhoti et al., Deep deterministic uncertainty: a new simple baseline, CVPR 2023; O. Ledoit, M. Wolf, A
    well-conditioned estimator for large-dimensional covariance matrices, 2004 (the estimate of the covariances).

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> features = xr.DataArray(rng.normal(size=(100, 2)), dims=("obs_id", "feature"))
    >>> density = GaussianDensity.fit(features, xr.DataArray(np.arange(100) % 2, dims="obs_id"))
    >>> bool((density.score(features + 9.0) > density.score(features)).all())
    True
    """

    classes: tuple[_ClassDensities, ...]
    training_scores: tuple[float, ...]

    @classmethod
    def fit(cls, features: xr.DataArray, labels: xr.DataArray) -> Self:
        """Fit a Gaussian with a Ledoit-Wolf covariance to the features of each class.

        Parameters
        ----------
        features : DataArray [obs_id, feature] or [chain, draw, obs_id, feature]
            Features of the training data. Each draw has its own density, since features of different draws are not
            comparable; scores are averaged.
        labels : DataArray [obs_id]
        """
        known = positions(labels, features)
        unranked = cls(tuple(_fit_classes(rows, known) for rows in each_draw(features)), ())
        return cls(unranked.classes, tuple(np.sort(unranked.score(features).to_numpy()).tolist()))

    def score(self, features: xr.DataArray) -> xr.DataArray:
        """Return negative log densities ``[obs_id]`` in nats; larger means more out of distribution.

        Parameters
        ----------
        features : DataArray [obs_id, feature] or [chain, draw, obs_id, feature]
            Features from the same draws as in training.
        """
        score = average_score(features, self.classes, _negative_log_density)
        return score.rename("negative_log_density").assign_attrs(units="nats")

    def ecdf(self, features: xr.DataArray) -> xr.DataArray:
        """Return the fraction of training observations with a smaller or equal score, ``[obs_id]``.

        Parameters
        ----------
        features : DataArray [obs_id, feature] or [chain, draw, obs_id, feature]
            Features from the same draws as in training.
        """
        score = self.score(features)
        ranks = np.searchsorted(self.training_scores, score.to_numpy(), side="right")
        return score.copy(data=ranks / len(self.training_scores)).rename("ecdf").assign_attrs(units="1")


def _fit_classes(features: Array, labels: NDArray[np.integer]) -> _ClassDensities:
    groups = [features[labels == k] for k in range(labels.max() + 1)]
    covariances = [ledoit_wolf(group)[0] for group in groups]
    floor = 1e-6 * np.mean([np.trace(c) for c in covariances]) / features.shape[1] + 1e-12  # for constant features
    factors = [np.linalg.cholesky(c + floor * np.eye(len(c))) for c in covariances]
    shares = np.array([len(group) for group in groups]) / len(features)
    return _ClassDensities(np.array([group.mean(0) for group in groups]), np.array(factors), np.log(shares))


def _negative_log_density(classes: _ClassDensities, features: Array) -> Array:
    logs = []
    for mean, factor, log_share in zip(*classes, strict=True):
        whitened = solve_triangular(factor, (features - mean).T, lower=True)
        log_norm = np.log(np.diag(factor)).sum() + 0.5 * len(mean) * np.log(2 * np.pi)
        logs.append(log_share - log_norm - 0.5 * (whitened**2).sum(0))
    density: Array = -logsumexp(logs, axis=0)
    return density
