"""Shared parts of both estimators: a network as a Pyro model, its fit by any method, and predictions as a tree."""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import nn

from bnnzoo.core.method import Method
from bnnzoo.core.types import Model
from bnnzoo.inference import DeepEnsemble, fit
from bnnzoo.loading import load
from bnnzoo.models import mlp, priors, supervised
from bnnzoo.models.likelihoods import Likelihood
from bnnzoo.models.networks import Activation
from bnnzoo.models.priors import Prior
from bnnzoo.predictive import posterior_predictive, predict

__all__ = ["BNNEstimator"]

type Array = NDArray[np.floating]
type MakesNetwork = Callable[[int, int], nn.Module]

LARGEST_SEED = 2**31 - 1


class BNNEstimator(BaseEstimator):
    """Parameters and parts of :class:`BNNRegressor` and :class:`BNNClassifier`, see there."""

    def __init__(
        self,
        method: Method | None = None,
        *,
        hidden: Sequence[int] = (50,),
        activation: Activation = "tanh",
        prior: Prior | None = None,
        likelihood: Likelihood | None = None,
        network: MakesNetwork | None = None,
        standardize: bool = True,
        num_draws: int | None = None,
        random_state: Any = 0,
        progress: bool = False,
    ) -> None:
        self.method = method
        self.hidden = hidden
        self.activation = activation
        self.prior = prior
        self.likelihood = likelihood
        self.network = network
        self.standardize = standardize
        self.num_draws = num_draws
        self.random_state = random_state
        self.progress = progress

    @property
    def tree_(self) -> xr.DataTree:
        """The posterior and its predictions for the training data, for ArviZ."""
        check_is_fitted(self, "posterior_")
        return posterior_predictive(self.posterior_, *self._train, num_draws=self.num_draws)

    def predict_tree(self, X: Any, keep: Sequence[str] | None = None) -> xr.DataTree:
        """Return predictions for new rows as a tree, on the scale of the target that the network was fitted to.

        Parameters
        ----------
        X : array_like [n, features]
        keep : sequence of str, optional
            Parts to keep, see :func:`bnnzoo.predict`. Default: all of them.
        """
        check_is_fitted(self, "posterior_")
        inputs = self.scaler_.transform(validate_data(self, X, reset=False, dtype=[np.float64, np.float32]))
        return predict(self.posterior_, inputs, num_draws=self.num_draws, keep=keep)

    def _fit(self, x: Array, y: NDArray[Any]) -> None:
        self.scaler_ = StandardScaler(with_mean=self.standardize, with_std=self.standardize)
        self._train = self.scaler_.fit_transform(x), y
        method = DeepEnsemble() if self.method is None else self.method
        dtype = torch.float32 if x.dtype == np.float32 else torch.float64
        self.posterior_ = fit(
            self._model(), method, *self._train, seed=self._seed(), dtype=dtype, progress=self.progress
        )

    def _model(self) -> Model:
        num_features, num_outputs = self.n_features_in_, self._num_outputs()
        prior = priors.fan_in() if self.prior is None else self.prior
        likelihood = self._default_likelihood() if self.likelihood is None else self.likelihood
        if self.network is None:
            network: nn.Module = mlp(num_features, tuple(self.hidden), num_outputs, self.activation)
        else:
            network = self.network(num_features, num_outputs)
        return supervised(network, prior, likelihood)

    def _num_outputs(self) -> int:
        raise NotImplementedError

    def _default_likelihood(self) -> Likelihood:
        raise NotImplementedError

    def _seed(self) -> int:
        if isinstance(self.random_state, int | np.integer):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(LARGEST_SEED))

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy or another process needs; the posterior as the bytes of its file."""
        state = dict(super().__getstate__())
        if "posterior_" in state:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "posterior"
                state["posterior_"].save(path)
                state["posterior_"] = path.read_bytes()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore what `__getstate__` gave, and the posterior on a model made anew."""
        found = state.pop("posterior_", None)
        super().__setstate__(state)
        if found is not None:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "posterior"
                path.write_bytes(found)
                self.posterior_ = load(path, self._model(), *self._train)
