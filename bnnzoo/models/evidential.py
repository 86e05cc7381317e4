"""Evidential likelihoods: networks that return a distribution over the parameters of their likelihood."""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.nn.functional import softplus

from bnnzoo.models.likelihoods.likelihood import Likelihood, observe, targets_shape
from bnnzoo.models.likelihoods.target import refuse_bad_labels, refuse_bad_output, refuse_not_real

__all__ = [
    "NormalInverseGamma",
    "concentration",
    "dirichlet_evidence",
    "normal_inverse_gamma",
    "normal_inverse_gamma_evidence",
]

type Loss = Literal["marginal", "squared"]


class NormalInverseGamma(NamedTuple):
    """Parameters [...] of a normal-inverse-gamma distribution of mean and variance of y: nu, beta > 0, alpha > 1."""

    gamma: Tensor
    nu: Tensor
    alpha: Tensor
    beta: Tensor


def concentration(output: Tensor) -> Tensor:
    """Concentration [..., K] of a Dirichlet from a network's output [..., K]: one plus softplus, the evidence.

    Examples
    --------
    >>> bool((concentration(torch.tensor([-50.0, 3.0])) >= 1).all())
    True
    """
    return 1 + softplus(output)


def normal_inverse_gamma(output: Tensor) -> NormalInverseGamma:
    """Parameters [...] of a normal-inverse-gamma distribution from a network's output [..., 4].

    Examples
    --------
    >>> bool(normal_inverse_gamma(torch.zeros(2, 4)).alpha.min() > 1)
    True
    """
    gamma, nu, alpha, beta = output.unbind(-1)
    return NormalInverseGamma(gamma, softplus(nu) + 1e-6, softplus(alpha) + 1 + 1e-6, softplus(beta) + 1e-6)


def dirichlet_evidence(regularization: float = 0.01, loss: Loss = "marginal") -> Likelihood:
    r"""Evidential classification: class probabilities :math:`p \sim Dir(a)` with :math:`a = 1 + softplus(f)`.

    Fit it with `MAP`, with one or several members. Methods that treat the log density as a probability do not apply, because
    the regulariser is not normalised. `concentration` computes concentrations from `bnnzoo.predictive.features` of the last
    layer, and `bnnzoo.uncertainty.decompose_dirichlet` splits their uncertainty. Evidence does not measure the distance from
    the data: far from all data it usually grows, although nothing is known there.

    Parameters
    ----------
    regularization : float
        Weight of :math:`KL[Dir(\tilde a) \| Dir(1)]`, where :math:`\tilde a` is a without the evidence for the label.
    loss : {"marginal", "squared"}
        ``"marginal"``: :math:`-\log(a_y / a_0)`, the label's probability with p integrated out; ``"squared"``:
        :math:`E \|p - e_y\|^2`, the expected Brier score.

    Returns
    -------
    Likelihood

    Raises
    ------
    ValueError
        If the weight is negative or the loss unknown; when the model runs, if y is not a class label.

    References
    ----------
    M. Sensoy, L. Kaplan, M. Kandemir, Evidential deep learning to quantify classification uncertainty, NeurIPS 2018;
    V. Bengs, E. Hüllermeier, W. Waegeman, Pitfalls of epistemic uncertainty quantification through loss minimisation,
    NeurIPS 2022.

    Examples
    --------
    >>> dirichlet_evidence()(torch.zeros(5, 3)).shape
    torch.Size([5])
    """
    _refuse_negative("dirichlet_evidence", regularization)
    if loss not in ("marginal", "squared"):
        raise ValueError(f"dirichlet_evidence: loss must be 'marginal' or 'squared', but is {loss!r}.")
    return _DirichletEvidence(regularization, loss)


def normal_inverse_gamma_evidence(regularization: float = 0.01) -> Likelihood:
    r"""Evidential regression: mean and variance of y have a normal-inverse-gamma distribution.

    Integrating them out gives a Student t: :math:`2 \alpha` degrees of freedom, location :math:`\gamma` and squared
    scale :math:`\beta (1 + \nu) / (\nu \alpha)`. The network needs four outputs. As with `dirichlet_evidence`, fit it
    with `MAP`, and do not read evidence as knowledge.

    Parameters
    ----------
    regularization : float
        Weight of :math:`|y - \gamma| (2 \nu + \alpha)`, which removes evidence for wrong predictions.

    Returns
    -------
    Likelihood

    Raises
    ------
    ValueError
        If the weight is negative; when the model runs, if the network does not have four outputs or y is not real.

    References
    ----------
    A. Amini et al., Deep evidential regression, NeurIPS 2020; N. Meinert, J. Gawlikowski, A. Lavin, The unreasonable
    effectiveness of deep evidential regression, AAAI 2023.

    Examples
    --------
    >>> normal_inverse_gamma_evidence()(torch.zeros(5, 4)).shape
    torch.Size([5])
    """
    _refuse_negative("normal_inverse_gamma_evidence", regularization)
    return _NormalInverseGammaEvidence(regularization)


@dataclass(frozen=True)
class _DirichletEvidence:
    regularization: float
    loss: Loss
    name: str = "models.dirichlet_evidence"

    def __call__(self, output: Tensor, y: Tensor | None = None) -> Tensor:
        refuse_bad_output(self.name, output)
        if output.ndim == 1 or output.shape[1] < 2:
            raise ValueError(
                f"{self.name}: the network needs one output per class, but its output has shape {tuple(output.shape)}: "
                "give it out_features=K for K classes."
            )
        if y is not None:
            refuse_bad_labels(self.name, y, output)
        return observe(_EvidentialCategorical(concentration(output), self.regularization, self.loss), y)


@dataclass(frozen=True)
class _NormalInverseGammaEvidence:
    regularization: float
    name: str = "models.normal_inverse_gamma_evidence"

    def __call__(self, output: Tensor, y: Tensor | None = None) -> Tensor:
        refuse_bad_output(self.name, output)
        if output.ndim != 2 or output.shape[1] != 4:
            raise ValueError(
                f"{self.name}: the network needs four outputs, but its output has shape {tuple(output.shape)}: give it "
                "out_features=4."
            )
        parameters = normal_inverse_gamma(output)
        if y is not None:
            refuse_not_real(self.name, y, output, targets_shape(output[:, :1]).shape, outputs_per_target=4)
        return observe(_EvidentialStudentT(parameters, self.regularization), y)


class _EvidentialCategorical(dist.Categorical):
    """The predictive distribution of a label, with minus the loss instead of the log density."""

    def __init__(self, alpha: Tensor, regularization: float, loss: Loss) -> None:
        self.alpha, self.regularization, self.loss = alpha, regularization, loss
        super().__init__(probs=alpha / alpha.sum(-1, keepdim=True), validate_args=False)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        alpha = self.alpha.expand(*batch_shape, self.alpha.shape[-1])
        return _EvidentialCategorical(alpha, self.regularization, self.loss)

    def log_prob(self, value: Tensor) -> Tensor:
        classes = torch.arange(self.alpha.shape[-1], device=self.alpha.device)
        label = (value[..., None] == classes).to(self.alpha.dtype)
        if self.loss == "marginal":
            fit = super().log_prob(value)
        else:
            strength = self.alpha.sum(-1, keepdim=True)
            probs = self.alpha / strength
            brier: Tensor = ((label - probs) ** 2 + probs * (1 - probs) / (strength + 1)).sum(-1)
            fit = -brier
        misleading = label + (1 - label) * self.alpha
        return fit - self.regularization * _kl_to_flat(misleading)


class _EvidentialStudentT(dist.StudentT):
    """The predictive distribution of y, with the regulariser subtracted from its log density."""

    def __init__(self, parameters: NormalInverseGamma, regularization: float) -> None:
        self.parameters, self.regularization = parameters, regularization
        gamma, nu, alpha, beta = parameters
        super().__init__(2 * alpha, gamma, torch.sqrt(beta * (1 + nu) / (nu * alpha)), validate_args=False)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        parameters = NormalInverseGamma(*(parameter.expand(batch_shape) for parameter in self.parameters))
        return _EvidentialStudentT(parameters, self.regularization)

    def log_prob(self, value: Tensor) -> Any:
        gamma, nu, alpha, _ = self.parameters
        return super().log_prob(value) - self.regularization * (value - gamma).abs() * (2 * nu + alpha)


def _kl_to_flat(alpha: Tensor) -> Tensor:
    """Return KL [...] of Dirichlet(alpha [..., K]) from the flat Dirichlet(1, ..., 1)."""
    strength = alpha.sum(-1)
    log_norm = torch.lgamma(strength) - torch.lgamma(alpha).sum(-1)
    flat = torch.lgamma(torch.tensor(float(alpha.shape[-1]), dtype=alpha.dtype, device=alpha.device))
    mean_log = torch.digamma(alpha) - torch.digamma(strength)[..., None]
    return log_norm - flat + ((alpha - 1) * mean_log).sum(-1)


def _refuse_negative(name: str, regularization: float) -> None:
    if not regularization >= 0:
        raise ValueError(f"{name}: regularization must not be negative, but is {regularization}.")
