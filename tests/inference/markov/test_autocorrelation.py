"""Autocorrelation times of chains whose autocorrelation is known."""

import pytest
import torch

from bnnzoo.inference.markov.autocorrelation import autocorrelation_time


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9])
def test_autocorrelation_time_of_an_autoregression(correlation: float) -> None:
    noise = torch.randn(8, 20000, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    draws = [noise[:, 0]]
    for new in noise[:, 1:].unbind(1):
        draws.append(correlation * draws[-1] + (1 - correlation**2) ** 0.5 * new)
    time = autocorrelation_time(torch.stack(draws, 1))
    expected = torch.full_like(time, (1 + correlation) / (1 - correlation))
    torch.testing.assert_close(time, expected, rtol=0.15, atol=0.0)


def test_differences_between_chains_do_not_count() -> None:
    noise = torch.randn(4, 5000, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    apart = noise + 100 * torch.arange(4, dtype=torch.float64)[:, None, None]
    torch.testing.assert_close(autocorrelation_time(apart), autocorrelation_time(noise))


def test_a_chain_that_never_moves_has_the_shortest_time() -> None:
    assert autocorrelation_time(torch.zeros(2, 100, 1)).tolist() == [1.0]
