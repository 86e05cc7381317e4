"""Recalibration of class probabilities: fitted on held-out observations, applied to trees."""

from dataclasses import dataclass
from typing import Self

import numpy as np
import xarray as xr
from scipy.optimize import minimize, minimize_scalar
from scipy.special import log_softmax, softmax
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from bnnzoo.calibration.rescaling import (
    Array,
    log_probs_and_labels,
    mean_nll,
    refuse_other_classes,
    safe_log,
    with_new_probs,
)
from bnnzoo.trees import Labelled, average_probs, class_indices, observations

__all__ = ["Isotonic", "Platt", "Temperature", "VectorScaling"]


@dataclass(frozen=True)
class Temperature:
    r"""Temperature scaling :math:`p_k \propto \bar p_k^{1/T}`: sharper probabilities for T < 1, flatter ones for T > 1.

    Parameters
    ----------
    temperature : float
        T, positive; 1 is the identity.
    before_averaging : bool
        Scale every draw and then average, instead of scaling the average. This keeps the draws, and with them the split into
        aleatoric and epistemic uncertainty.

    References
    ----------
    C. Guo et al., On calibration of modern neural networks, ICML 2017; R. Rahaman, A. Thiery, Uncertainty
    quantification and deep ensembles, NeurIPS 2021 (averaging makes ensembles underconfident: pool, then calibrate).

    Examples
    --------
    >>> from bnnzoo.testing import example_tree
    >>> held_out = example_tree("classification", num_rows=50)
    >>> Temperature.fit(held_out).transform(held_out)["conditional"]["probs"].sizes["draw"]
    1
    """

    temperature: float
    before_averaging: bool = False

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise ValueError(f"temperature must be positive, but is {self.temperature}.")

    @classmethod
    def fit(cls, data: Labelled, y: xr.DataArray | None = None, *, before_averaging: bool = False) -> Self:
        """Find the temperature with the best log score on held-out observations.

        Parameters
        ----------
        data : DataTree, Dataset or DataArray
            With ``probs[chain, draw, obs_id, class_id]`` of observations that the posterior was not fitted to.
        y : DataArray [obs_id], optional
            Observed labels (default: those of the tree).
        before_averaging : bool
        """
        logits, labels = log_probs_and_labels(data, y, before_averaging)

        def loss(log_temperature: float) -> float:
            probs = softmax(logits / np.exp(log_temperature), axis=-1)
            return mean_nll(probs.mean(0), labels)

        found = minimize_scalar(loss, bounds=(-5.0, 5.0), method="bounded", options={"xatol": 1e-9})
        return cls(float(np.exp(found.x)), before_averaging)

    def transform(self, data: Labelled) -> xr.DataTree:
        """Return a tree with recalibrated ``conditional/probs``, and the observations.

        Parameters
        ----------
        data : DataTree, Dataset or DataArray
            With ``probs[chain, draw, obs_id, class_id]``.
        """
        return with_new_probs(data, lambda p: softmax(safe_log(p) / self.temperature, axis=-1), self.before_averaging)


@dataclass(frozen=True)
class VectorScaling:
    r"""Vector scaling :math:`p_k \propto \exp(w_k \log \bar p_k + b_k)`: a slope and an offset for each class.

    Parameters
    ----------
    weights, bias : tuple of float
        One for each class.

    References
    ----------
    C. Guo et al., On calibration of modern neural networks, ICML 2017.

    Examples
    --------
    >>> from bnnzoo.testing import example_tree
    >>> held_out = example_tree("classification", num_rows=50)
    >>> len(VectorScaling.fit(held_out).weights)
    3
    """

    weights: tuple[float, ...]
    bias: tuple[float, ...]

    @classmethod
    def fit(cls, data: Labelled, y: xr.DataArray | None = None) -> Self:
        """Find the slopes and offsets with the best log score on held-out observations.

        Parameters
        ----------
        data : DataTree, Dataset or DataArray
            With ``probs[chain, draw, obs_id, class_id]`` of observations that the posterior was not fitted to.
        y : DataArray [obs_id], optional
            Observed labels (default: those of the tree).
        """
        (logits,), labels = log_probs_and_labels(data, y, before_averaging=False)
        num_classes = logits.shape[-1]
        outcome = np.eye(num_classes)[labels]

        def loss(parameters: Array) -> tuple[float, Array]:
            weights, bias = parameters.reshape(2, -1)
            log_probs = log_softmax(logits * weights + bias, axis=-1)
            residual = (np.exp(log_probs) - outcome) / len(labels)
            gradient = np.concatenate([(residual * logits).sum(0), residual.sum(0)])
            return -float((outcome * log_probs).sum()) / len(labels), gradient

        start = np.repeat([1.0, 0.0], num_classes)
        found = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 1000})
        weights, bias = found.x.reshape(2, -1)
        return cls(tuple(weights.tolist()), tuple((bias - bias.mean()).tolist()))

    def transform(self, data: Labelled) -> xr.DataTree:
        """Return a tree with recalibrated ``conditional/probs``, and the observations.

        Parameters
        ----------
        data : DataTree, Dataset or DataArray
            With ``probs[chain, draw, obs_id, class_id]``, which are averaged over draws first.
        """
        refuse_other_classes("VectorScaling", len(self.weights), data)
        return with_new_probs(
            data, lambda p: softmax(safe_log(p) * np.array(self.weights) + np.array(self.bias), axis=-1)
        )


@dataclass(frozen=True)
class Platt:
    r"""Platt scaling of two classes: :math:`\mathrm{logit}\, p_1 = a\, \mathrm{logit}\, \bar p_1 + b`.

    Parameters
    ----------
    slope, intercept : float
        a and b; the identity is 1 and 0.

    References
    ----------
    J. Platt, Probabilistic outputs for support vector machines, 1999.

    Examples
    --------
    >>> from bnnzoo.testing import example_tree
    >>> held_out = example_tree("classification", num_rows=50, num_classes=2)
    >>> Platt.fit(held_out).transform(held_out)["conditional"]["probs"].sizes["obs_id"]
    50
    """

    slope: float
    intercept: float

    @classmethod
    def fit(cls, data: Labelled, y: xr.DataArray | None = None) -> Self:
        """Fit an unpenalised logistic regression of the labels of held-out observations on their logits.

        Parameters
        ----------
        data : DataTree, Dataset or DataArray
            With ``probs[chain, draw, obs_id, class_id]`` of two classes.
        y : DataArray [obs_id], optional
            Observed labels (default: those of the tree).

        Raises
        ------
        ValueError
            If there are more than two classes, or only one was observed.
        """
        (log_probs,), labels = log_probs_and_labels(data, y, before_averaging=False)
        if log_probs.shape[-1] != 2:
            raise ValueError(
                f"Platt scaling is for two classes, but there are {log_probs.shape[-1]}: use VectorScaling."
            )
        if len(np.unique(labels)) < 2:
            raise ValueError("Platt scaling needs held-out observations of both classes, but only one was observed.")
        regression = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000)
        regression.fit(log_probs[:, 1:] - log_probs[:, :1], labels)
        return cls(float(regression.coef_[0, 0]), float(regression.intercept_[0]))

    def transform(self, data: Labelled) -> xr.DataTree:
        """Return a tree with recalibrated ``conditional/probs``, and the observations.

        Parameters
        ----------
        data : DataTree, Dataset or DataArray
            With ``probs[chain, draw, obs_id, class_id]``, which are averaged over draws first.
        """
        refuse_other_classes("Platt", 2, data)

        def scaled(probs: Array) -> Array:
            logit = self.slope * (safe_log(probs[..., 1:]) - safe_log(probs[..., :1])) + self.intercept
            return softmax(np.concatenate([np.zeros_like(logit), logit], axis=-1), axis=-1)

        return with_new_probs(data, scaled)


@dataclass(frozen=True)
class Isotonic:
    """Isotonic regression: a non-decreasing function of each class probability, followed by normalisation.

    Frequencies of 0 and 1 among N held-out observations are replaced by 1 / (2 N + 2) and one minus that.

    Parameters
    ----------
    regressions : tuple of IsotonicRegression
        Scikit-learn's, one for each class.

    References
    ----------
    B. Zadrozny, C. Elkan, Transforming classifier scores into accurate multiclass probability estimates, KDD 2002.

    Examples
    --------
    >>> from bnnzoo.testing import example_tree
    >>> held_out = example_tree("classification", num_rows=50)
    >>> float(Isotonic.fit(held_out).transform(held_out)["conditional"]["probs"].sum("class_id").min().round(6))
    1.0
    """

    regressions: tuple[IsotonicRegression, ...]

    @classmethod
    def fit(cls, data: Labelled, y: xr.DataArray | None = None) -> Self:
        """Fit one regression for each class on held-out observations.

        Parameters
        ----------
        data : DataTree, Dataset or DataArray
            With ``probs[chain, draw, obs_id, class_id]`` of observations that the posterior was not fitted to.
        y : DataArray [obs_id], optional
            Observed labels (default: those of the tree).
        """
        probs = average_probs(data)
        labels = class_indices(observations(data, y), probs).to_numpy()
        never = 0.5 / (len(labels) + 1)  # a class that was not observed is improbable, not impossible
        regressions = (
            IsotonicRegression(y_min=never, y_max=1 - never, out_of_bounds="clip") for _ in probs["class_id"]
        )
        columns = zip(regressions, probs.to_numpy().T, strict=True)
        return cls(tuple(regression.fit(p, labels == k) for k, (regression, p) in enumerate(columns)))

    def transform(self, data: Labelled) -> xr.DataTree:
        """Return a tree with recalibrated ``conditional/probs``, and the observations.

        Parameters
        ----------
        data : DataTree, Dataset or DataArray
            With ``probs[chain, draw, obs_id, class_id]``, which are averaged over draws first.
        """
        refuse_other_classes("Isotonic", len(self.regressions), data)

        def scaled(probs: Array) -> Array:
            columns = [
                r.predict(p.ravel()).reshape(p.shape)
                for r, p in zip(self.regressions, np.moveaxis(probs, -1, 0), strict=True)
            ]
            stacked = np.stack(columns, axis=-1)
            normalized: Array = stacked / stacked.sum(-1, keepdims=True)
            return normalized

        return with_new_probs(data, scaled)
