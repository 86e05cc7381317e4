"""Likelihoods of binary targets, class labels and counts."""

from dataclasses import dataclass

import pyro.distributions as dist
from torch import Tensor

from bnnzoo.core.likelihood.families import LogPoisson
from bnnzoo.models.likelihoods.likelihood import Likelihood, observe
from bnnzoo.models.likelihoods.named import named
from bnnzoo.models.likelihoods.predictor import parts_of, with_offset
from bnnzoo.models.likelihoods.target import refuse_bad_labels, refuse_bad_output, refuse_not_binary, refuse_not_counts
from bnnzoo.models.written import Written, remembers_call

__all__ = ["bernoulli", "categorical", "poisson"]


@dataclass(frozen=True, repr=False)
class _Bernoulli(Written):
    name: str = "likelihoods.bernoulli"

    def __call__(self, output: Tensor, y: Tensor | None = None, offset: Tensor | float | None = None) -> Tensor:
        (logits,) = parts_of(self.name, output, offset, ("its logit",))
        if y is not None:
            refuse_not_binary(self.name, y, output, logits.shape)
            y = y.to(logits.dtype)
        return observe(dist.Bernoulli(logits=logits, validate_args=False).to_event(logits.ndim - 1), y)


@dataclass(frozen=True, repr=False)
class _Categorical(Written):
    name: str = "likelihoods.categorical"

    def __call__(self, output: Tensor, y: Tensor | None = None, offset: Tensor | float | None = None) -> Tensor:
        refuse_bad_output(self.name, output)
        if output.ndim == 1 or output.shape[1] < 2:
            raise ValueError(
                f"{self.name}: the network needs one logit per class, but its output has shape {tuple(output.shape)}: "
                "give it out_features=K for K classes, or use likelihoods.bernoulli() for two."
            )
        if y is not None:
            refuse_bad_labels(self.name, y, output)
        logits = with_offset(self.name, output, offset)
        return observe(dist.Categorical(logits=logits, validate_args=False), y)


@dataclass(frozen=True, repr=False)
class _Poisson(Written):
    name: str = "likelihoods.poisson"

    def __call__(self, output: Tensor, y: Tensor | None = None, offset: Tensor | float | None = None) -> Tensor:
        (log_rate,) = parts_of(self.name, output, offset, ("its log rate",))
        if y is not None:
            refuse_not_counts(self.name, y, output, log_rate.shape)
            y = y.to(log_rate.dtype)
        return observe(LogPoisson(log_rate).to_event(log_rate.ndim - 1), y)


@named("binary", link="logit", synonyms=("binomial", "logistic", "logit", "binary", "probit"))
@remembers_call
def bernoulli() -> Likelihood:
    r"""Binary target with the network's output as logit: :math:`P(y_n = 1) = 1 / (1 + e^{-f_n})`.

    y is 0 or 1 as bool, integer or float, [N], or [N, D] for D independent labels and outputs.

    Returns
    -------
    Likelihood

    Raises
    ------
    ValueError, TypeError
        When the model runs: if y is not 0 or 1 or not of the output's shape.

    Examples
    --------
    >>> import torch
    >>> import bnnzoo as bz
    >>> bz.likelihoods.bernoulli()(torch.zeros(5, 1)).shape
    torch.Size([5])
    """
    return _Bernoulli()


@named("class", "softmax link", link="logit", synonyms=("multinomial", "softmax"))
@remembers_call
def categorical() -> Likelihood:
    r"""Class labels with the network's K outputs as logits: :math:`P(y_n = k) \propto e^{f_{nk}}`.

    y is an integer label 0 to K - 1, [N].

    Returns
    -------
    Likelihood

    Raises
    ------
    ValueError, TypeError
        When the model runs: if the network has one output, or y is not an integer, not [N] or not below K.

    Examples
    --------
    >>> import torch
    >>> import bnnzoo as bz
    >>> bz.likelihoods.categorical()(torch.zeros(5, 3)).shape
    torch.Size([5])
    """
    return _Categorical()


@named("count", "Poisson counts, log link", link="log", synonyms=("count", "counts"))
@remembers_call
def poisson() -> Likelihood:
    r"""Counts with the network's output as log rate: :math:`y_n \sim \mathrm{Poisson}(e^{f_n})`.

    y holds counts 0, 1, ... as integer or float, [N], or [N, D] for D independent counts and outputs.

    Returns
    -------
    Likelihood

    Raises
    ------
    ValueError, TypeError
        When the model runs: if y is negative, not an integer, or not of the output's shape.

    Examples
    --------
    >>> import torch
    >>> import bnnzoo as bz
    >>> bz.likelihoods.poisson()(torch.zeros(5, 1)).shape
    torch.Size([5])
    """
    return _Poisson()
