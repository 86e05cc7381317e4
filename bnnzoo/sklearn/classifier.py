"""A Bayesian neural network as a scikit-learn classifier."""

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d, validate_data

from bnnzoo.models import likelihoods
from bnnzoo.models.likelihoods import Likelihood
from bnnzoo.sklearn.estimator import BNNEstimator

__all__ = ["BNNClassifier"]

type Array = NDArray[np.floating]


class BNNClassifier(ClassifierMixin, BNNEstimator):
    """Classification by a Bayesian neural network, fitted by any method of bnnzoo.

    The network has an output for each class, and its likelihood is categorical.

    Parameters
    ----------
    method : Method, optional
        Inference method, such as ``bnnzoo.NUTS()``. Default: ``bnnzoo.DeepEnsemble()``.
    hidden, activation, prior, network, num_draws, random_state, progress
        As for :class:`BNNRegressor`.
    likelihood : Likelihood, optional
        Default: ``bnnzoo.likelihoods.categorical()``.
    standardize : bool
        Whether to standardise the columns of X by the training data.

    Attributes
    ----------
    classes_ : ndarray [K]
    scaler_ : StandardScaler
        Of the columns of X; it changes nothing without ``standardize``.
    posterior_ : Posterior
    tree_ : DataTree
        The posterior and its predictions for the training data, for ArviZ.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> import numpy as np
    >>> from bnnzoo.sklearn import BNNClassifier
    >>> x = np.linspace(-1, 1, 40)[:, None]
    >>> y = np.where(x[:, 0] > 0, "right", "left")
    >>> model = BNNClassifier(bz.MAP(num_steps=50), hidden=(5,)).fit(x, y)
    >>> model.predict([[-0.9], [0.9]]).tolist()
    ['left', 'right']
    """

    def fit(self, X: Any, y: Any) -> Self:
        """Fit the network.

        Parameters
        ----------
        X : array_like [n, features]
        y : array_like [n]
            Labels of any kind.

        Returns
        -------
        BNNClassifier
            Itself.

        Raises
        ------
        ValueError
            If all labels are the same.
        """
        x, y = validate_data(self, X, y, dtype=[np.float64, np.float32])
        check_classification_targets(y)
        self.classes_, places = np.unique(column_or_1d(y, warn=True), return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"BNNClassifier needs two classes or more, and y has 1 class: {self.classes_.tolist()[0]!r}."
            )
        self._fit(x, places.astype(np.int64))
        return self

    def predict_proba(self, X: Any) -> Array:
        """Return the posterior predictive probability of each class, in the order of `classes_`.

        Parameters
        ----------
        X : array_like [n, features]

        Returns
        -------
        ndarray [n, K]
        """
        probs = self.predict_tree(X, keep=("conditional/probs",))["conditional"]["probs"]
        found: Array = probs.mean(("chain", "draw")).to_numpy().astype(float)
        return found / found.sum(-1, keepdims=True)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class of each row.

        Parameters
        ----------
        X : array_like [n, features]

        Returns
        -------
        ndarray [n]
        """
        places = self.predict_proba(X).argmax(-1)
        found: NDArray[Any] = self.classes_[places]
        return found

    def _num_outputs(self) -> int:
        return len(self.classes_)

    def _default_likelihood(self) -> Likelihood:
        return likelihoods.categorical()
