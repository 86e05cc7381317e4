"""Out-of-distribution scores by a Gaussian process on features."""

import warnings
from dataclasses import dataclass
from typing import Self

import numpy as np
import xarray as xr
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.preprocessing import StandardScaler

from bnnzoo.ood.feature_scores import average_score, each_draw, positions

__all__ = ["GaussianProcessScore"]


@dataclass(frozen=True)
class GaussianProcessScore:
    """Posterior standard deviation of a Gaussian process regression of one-hot labels on features.

    Amplitude, length scale and noise maximise the marginal likelihood. Far from the training features, the standard
    deviation returns to its prior value. The cost is cubic in the number of training observations.

    Parameters
    ----------
    processes : tuple
        Scikit-learn's scaler and regressor for each draw.

    References
    ----------
    C. E. Rasmussen, C. K. I. Williams, Gaussian Processes for Machine Learning, 2006; J. van Amersfoort et al., On
    feature collapse and deep kernel learning for single forward pass uncertainty, 2021.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> features = xr.DataArray(rng.normal(size=(40, 2)), dims=("obs_id", "feature"))
    >>> process = GaussianProcessScore.fit(features, features[:, 0] > 0)
    >>> bool(process.score(features + 9.0).min() > process.score(features).max())
    True
    """

    processes: tuple[tuple[StandardScaler, GaussianProcessRegressor], ...]

    @classmethod
    def fit(cls, features: xr.DataArray, labels: xr.DataArray, *, max_rows: int = 500, seed: int = 0) -> Self:
        """Fit one Gaussian process per draw.

        Parameters
        ----------
        features : DataArray [obs_id, feature] or [chain, draw, obs_id, feature]
            Features of the training data.
        labels : DataArray [obs_id]
        max_rows : int
            Largest number of observations to use; a random subset if there are more.
        seed : int
            Seed of the subset.
        """
        known = positions(labels, features)
        if max_rows < 2:
            raise ValueError(f"max_rows={max_rows}: write 2 or more.")
        rows = np.random.default_rng(seed).permutation(len(known))[:max_rows]
        outcome = np.eye(known.max() + 1)[known[rows]]
        return cls(tuple(_fit(values[rows], outcome) for values in each_draw(features)))

    def score(self, features: xr.DataArray) -> xr.DataArray:
        """Return standard deviations ``[obs_id]`` of the latent function; larger means more out of distribution.

        Parameters
        ----------
        features : DataArray [obs_id, feature] or [chain, draw, obs_id, feature]
            Features from the same draws as in training.
        """
        return average_score(features, self.processes, _latent_sd).rename("gaussian_process").assign_attrs(units="1")


def _fit(features: np.ndarray, outcome: np.ndarray) -> tuple[StandardScaler, GaussianProcessRegressor]:
    scaler = StandardScaler().fit(features)
    length = np.sqrt(features.shape[1])
    kernel = ConstantKernel(0.2, (1e-3, 1e3)) * RBF(length, (0.1 * length, 100 * length)) + WhiteKernel(
        0.05, (1e-4, 1.0)
    )
    process = GaussianProcessRegressor(kernel, normalize_y=False, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # hyperparameters may end at their bounds
        return scaler, process.fit(scaler.transform(features), outcome - outcome.mean(0))


def _latent_sd(fitted: tuple[StandardScaler, GaussianProcessRegressor], features: np.ndarray) -> np.ndarray:
    scaler, process = fitted
    _, sd = process.predict(scaler.transform(features), return_std=True)
    noise = process.kernel_.k2.noise_level
    variance = sd.reshape(len(features), -1)[:, 0] ** 2 - noise
    return np.asarray(np.sqrt(np.maximum(variance, 0.0)))
