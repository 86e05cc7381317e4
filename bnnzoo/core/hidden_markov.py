"""Log density of Pyro's hidden Markov models of discrete states, by a parallel scan over time."""

from typing import Any

from torch import Tensor

from bnnzoo.core.log_sums import chain_product, log_sum_exp

__all__ = ["hidden_markov_log_prob"]


def hidden_markov_log_prob(distribution: Any, value: Tensor) -> Tensor:
    """Return the log density ``[*batch]`` of ``value[*batch, T, *event]`` under a ``pyro.distributions.DiscreteHMM``.

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
