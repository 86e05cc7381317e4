"""The Pareto k of importance weights, against ArviZ's."""

import math

import numpy as np
import pytest
import torch
from arviz_stats.base.array import array_stats

from bnnzoo.core.verdict.pareto import pareto_k, smoothed
from bnnzoo.diagnostics.pareto_smoothing import smoothed_log_weights


@pytest.mark.parametrize("size", [25, 26, 100, 224, 225, 226, 500, 1000, 4000])
@pytest.mark.parametrize("kind", ["normal", "pareto", "rounded", "bounded"])
def test_it_is_that_of_arviz(kind: str, size: int) -> None:
    rng = np.random.default_rng(size)
    for scale in (0.1, 1.0, 3.0):
        noise = rng.normal(size=size)
        ratios = (
            scale
            * {
                "normal": noise,
                "pareto": rng.exponential(size=size),
                "rounded": np.round(noise, 2),
                "bounded": -(noise**2),
            }[kind]
        )
        weights, expected = array_stats.psislw(-ratios[None], axis=(-2, -1))
        assert pareto_k(torch.from_numpy(ratios)) == pytest.approx(float(expected), abs=1e-10, nan_ok=True)
        log_ratios = smoothed(torch.from_numpy(ratios))
        found = (log_ratios - log_ratios.logsumexp(0)).numpy()
        np.testing.assert_allclose(np.sort(found), np.sort(weights[0]), rtol=0, atol=1e-10)
        if kind != "rounded":  # ties may be in any order
            np.testing.assert_allclose(found, weights[0], rtol=0, atol=1e-10)


def test_weights_over_hundreds_of_orders_of_magnitude_have_the_heaviest_tail() -> None:
    ratios = torch.linspace(0.0, 1.0, 1000, dtype=torch.float64) * 1e5
    assert pareto_k(ratios) == math.inf
    assert smoothed_log_weights(ratios.numpy())[1] == math.inf


def test_equal_weights_have_no_tail_and_infinite_ones_none_that_is_known() -> None:
    assert pareto_k(torch.zeros(100, dtype=torch.float64)) == -math.inf
    assert math.isnan(pareto_k(torch.tensor([0.0, math.inf] * 50, dtype=torch.float64)))


def test_draws_of_no_weight_keep_none() -> None:
    ratios = torch.linspace(0, 3, 100, dtype=torch.float64)
    ratios[::10] = -math.inf
    found = smoothed(ratios)
    assert bool((found[::10] == -math.inf).all())
    assert float((found - ratios)[1:50].nan_to_num(0.0).abs().max()) < 1e-12  # the smaller ones stay
