"""The Pareto k of importance weights, against ArviZ's."""

import math

import pytest
import torch
from arviz_stats.base.array import array_stats

from bnnzoo.core import pareto
from bnnzoo.core.pareto import pareto_k
from bnnzoo.testing import linear_gaussian
from tests.helpers.exact import exact_posterior


@pytest.mark.parametrize("scale", [0.1, 0.5, 1.0, 2.0])
def test_it_is_that_of_arviz(scale: float) -> None:
    ratios = scale * torch.randn(500, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    _, expected = array_stats.psislw(-ratios.numpy()[None], axis=(-2, -1))
    assert pareto_k(ratios) == pytest.approx(float(expected), abs=1e-6)


def test_equal_weights_have_no_tail_and_infinite_ones_none_that_is_known() -> None:
    assert pareto_k(torch.zeros(100, dtype=torch.float64)) == -math.inf
    assert math.isnan(pareto_k(torch.tensor([0.0, math.inf] * 50, dtype=torch.float64)))


def test_draws_are_evaluated_as_many_at_a_time_as_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    posterior = exact_posterior(linear_gaussian())
    whole = pareto.log_ratios(posterior)
    assert whole is not None
    monkeypatch.setattr(pareto, "MANY", 7 * posterior.density.num_data)
    torch.testing.assert_close(pareto.log_ratios(posterior), whole)
