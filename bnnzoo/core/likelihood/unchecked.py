"""Distributions without checks of their values, and with log densities that ``vmap`` can batch."""

from functools import partial
from typing import Any

import torch
from pyro.distributions import DiscreteHMM
from torch import Tensor
from torch.distributions import Distribution, Multinomial

from bnnzoo.core.log_sums import chain_product, log_sum_exp

__all__ = ["switch_validation_off"]


def switch_validation_off(distribution: Any) -> None:
    """Keep a distribution, and those inside it, from branching on or indexing by the values of tensors.

    Argument checks do so, which tracing cannot follow; so does the log density of a multinomial, which vmap cannot batch.
    """
    distribution._validate_args = False
    if isinstance(distribution, Multinomial):
        distribution.log_prob = partial(_multinomial_log_prob, distribution)  # type: ignore[method-assign]
    if isinstance(distribution, DiscreteHMM):
        distribution.log_prob = partial(_hidden_markov_log_prob, distribution)  # type: ignore[method-assign]
    for value in vars(distribution).values():
        if isinstance(value, Distribution):
            switch_validation_off(value)


def _multinomial_log_prob(distribution: Multinomial, value: Tensor) -> Tensor:
    r"""Return :math:`\log n! - \sum_k \log x_k! + \sum_k x_k \log p_k` ``[...]``, with :math:`0 \log 0 = 0`."""
    logits, value = torch.broadcast_tensors(distribution.logits, value)
    powers = torch.where((value == 0) & (logits == -torch.inf), 0.0, logits) * value
    return torch.lgamma(value.sum(-1) + 1) - torch.lgamma(value + 1).sum(-1) + powers.sum(-1)


def _hidden_markov_log_prob(distribution: Any, value: Tensor) -> Tensor:
    """Return the log density ``[*batch]`` of ``value[*batch, T, *event]`` under a ``pyro.distributions.DiscreteHMM``, by a scan.

    Pyro's own uses an autograd function that ``vmap`` does not know, and multiplies probabilities, which underflow.
    """
    observation = distribution.observation_dist
    value = value.unsqueeze(-1 - observation.event_dim)  # against all states
    emitted = observation.log_prob(value)  # [*batch, T, K]
    steps = distribution.transition_logits + emitted.unsqueeze(-2)  # from the state before, into the state
    first = distribution.initial_logits.unsqueeze(-1) + steps[..., 0, :, :]
    rest = steps[..., 1:, :, :]
    alpha = log_sum_exp(first, -2)
    if rest.shape[-3]:
        alpha = log_sum_exp(alpha.unsqueeze(-1) + chain_product(rest), -2)
    return log_sum_exp(alpha, -1)
