"""A Bayesian neural network as a scikit-learn regressor."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.utils.validation import validate_data

from bnnzoo.models import likelihoods
from bnnzoo.models.likelihoods import Likelihood
from bnnzoo.sklearn.estimator import BNNEstimator

__all__ = ["BNNRegressor"]

type Array = NDArray[np.floating]


class BNNRegressor(RegressorMixin, BNNEstimator):
    """Regression by a Bayesian neural network, fitted by any method of bnnzoo.

    Parameters
    ----------
    method : Method, optional
        Inference method, such as ``bnnzoo.NUTS()``. Default: ``bnnzoo.DeepEnsemble()``.
    hidden : sequence of int
        Units of each hidden layer.
    activation : str
        As in :func:`bnnzoo.models.mlp`.
    prior : Prior, optional
        Default: ``bnnzoo.priors.fan_in()``.
    likelihood : Likelihood, optional
        Default: ``bnnzoo.likelihoods.gaussian()``, whose noise is inferred. The target is standardised for it, and
        left as it is for a likelihood that is given.
    network : callable, optional
        Makes another network than a multilayer perceptron: ``(features, outputs) -> torch.nn.Module``.
    standardize : bool
        Whether to standardise the columns of X, and the target, by the training data.
    num_draws : int, optional
        Draws for predictions. Default: all of them, or the number that the posterior chooses.
    random_state : int, RandomState or None
    progress : bool
        Whether to show a progress bar.

    Attributes
    ----------
    posterior_ : Posterior
    tree_ : DataTree
        The posterior and its predictions for the training data, for ArviZ.
    scaler_ : StandardScaler
        Of the columns of X; it changes nothing without ``standardize``.
    y_loc_, y_scale_ : float
        What was subtracted from the target, and divided by. Both concern `posterior_` and the trees.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> import numpy as np
    >>> from bnnzoo.sklearn import BNNRegressor
    >>> x = np.linspace(-1, 1, 40)[:, None]
    >>> model = BNNRegressor(bz.MAP(num_steps=50), hidden=(5,)).fit(x, 3 * x[:, 0])
    >>> model.score(x, 3 * x[:, 0]) > 0.9
    True
    """

    def fit(self, X: Any, y: Any) -> Self:
        """Fit the network.

        Parameters
        ----------
        X : array_like [n, features]
        y : array_like [n]

        Returns
        -------
        BNNRegressor
            Itself.
        """
        x, y = validate_data(self, X, y, dtype=[np.float64, np.float32], y_numeric=True)
        if len(y) < 2:
            raise ValueError("BNNRegressor needs two rows or more, and the data have 1 sample.")
        values = np.asarray(y, float)
        standardises = self.standardize and self.likelihood is None
        self.y_loc_, self.y_scale_ = (float(values.mean()), float(values.std()) or 1.0) if standardises else (0.0, 1.0)
        self._fit(x, ((y - self.y_loc_) / self.y_scale_).astype(x.dtype))
        return self

    def predict(self, X: Any, return_std: bool = False) -> Array | tuple[Array, Array]:
        """Return the posterior predictive mean of each row, and its standard deviation if asked for.

        Parameters
        ----------
        X : array_like [n, features]
        return_std : bool
            Whether to return the standard deviation, too: of the noise and of the mean over draws.

        Returns
        -------
        ndarray [n], or two of them
        """
        moments = self.predict_tree(X, keep=("conditional/mean", "conditional/variance"))["conditional"]
        over = ("chain", "draw")
        mean = moments["mean"].mean(over).to_numpy().astype(float) * self.y_scale_ + self.y_loc_
        if not return_std:
            return mean
        variance = moments["variance"].mean(over) + moments["mean"].var(over)
        return mean, np.sqrt(variance.to_numpy().astype(float)) * self.y_scale_

    def predict_quantiles(self, X: Any, quantiles: Sequence[float] = (0.05, 0.5, 0.95)) -> Array:
        """Return quantiles of the posterior predictive distribution.

        Parameters
        ----------
        X : array_like [n, features]
        quantiles : sequence of float
            Between 0 and 1.

        Returns
        -------
        ndarray [n, quantiles]

        Raises
        ------
        ValueError
            If a quantile is not between 0 and 1.
        """
        if bad := [each for each in quantiles if not 0 <= each <= 1]:
            raise ValueError(f"quantiles has {bad[0]}: write numbers between 0 and 1.")
        group = self.predict_tree(X, keep=("predictions",))["predictions"].to_dataset()
        (name,) = group.data_vars
        draws = group[name]
        found = draws.quantile(list(quantiles), ("chain", "draw")).to_numpy().astype(float)
        return np.moveaxis(found, 0, -1) * self.y_scale_ + self.y_loc_

    def _num_outputs(self) -> int:
        return 1

    def _default_likelihood(self) -> Likelihood:
        return likelihoods.gaussian()
