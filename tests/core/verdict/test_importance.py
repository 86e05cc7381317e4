"""Importance weights of an approximation's draws."""

import math

import torch

from bnnzoo.core.verdict.importance import log_weights_of, shift_by_weights


def test_the_largest_weight_is_truncated_at_the_root_of_their_number_times_the_mean() -> None:
    ratios = torch.zeros(100, dtype=torch.float64)
    ratios[3] = 20.0
    weights = log_weights_of(ratios).exp()
    mean = ratios.exp().mean()
    assert math.isclose(float(weights[3] / weights[0]), float(math.sqrt(100) * mean), rel_tol=1e-9)
    assert math.isclose(float(weights.sum()), 1.0, rel_tol=1e-12)
    small = torch.linspace(0.0, 1.0, 100, dtype=torch.float64)
    assert torch.allclose(log_weights_of(small), small - small.logsumexp(0))


def test_moments_move_to_those_of_the_posterior() -> None:
    """Draws of N(0, 2**2), weighted to N(0.5, 1)."""
    values = 2 * torch.randn(20_000, 1, generator=torch.Generator().manual_seed(0)).double()
    ratios = (-((values - 0.5) ** 2) / 2 + values**2 / 8)[:, 0]
    found = shift_by_weights(values, ratios)
    assert abs(float(found.mean) + 0.5) < 4 * float(found.mean_error)
    assert abs(float(found.log_sd) - math.log(2.0)) < 4 * float(found.log_sd_error)
