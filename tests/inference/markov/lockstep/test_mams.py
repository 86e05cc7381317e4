"""The Metropolis-adjusted microcanonical sampler: its statistics, and what is refused."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from bnnzoo.inference import MAMS, MCLMC, ChEESHMC, fit
from bnnzoo.testing import linear_gaussian, skewed


def test_statistics_of_mams() -> None:
    target = linear_gaussian()
    method = MAMS(num_chains=3, num_warmup=60, num_draws=30, max_steps=6)
    posterior = fit(target.model, method, *target.data, seed=1)
    stats = posterior.info.sample_stats
    assert set(stats) == {"lp", "energy_error", "acceptance_rate", "n_steps", "diverging", "step_size"}
    expected, _ = posterior.density.value_and_grad(posterior.draws().flatten(0, 1), *target.data)
    torch.testing.assert_close(stats["lp"].flatten(), expected)
    assert bool((stats["n_steps"] == stats["n_steps"][0]).all()) and int(stats["n_steps"].max()) <= 6
    assert len(stats["step_size"].unique()) == 1


def test_a_direction_needs_two_parameters() -> None:
    with pytest.raises(
        ValueError, match=r"MAMS changes the direction .* has 1 unconstrained parameter \(rate\)\. Use NUTS"
    ):
        fit(skewed().model, MAMS(), *skewed().data)


@pytest.mark.parametrize("kind", [MAMS, ChEESHMC, MCLMC])
def test_warm_up_ends_when_chains_have_converged(kind: Any) -> None:
    """Four chains tell that in 150 draws or a few more, and settle what is left in 50 or 100; two take as many as one."""
    target = linear_gaussian()
    for num_chains, fewest, most in ((4, 200, 350), (2, 350, 700)):
        method = kind(num_chains=num_chains, num_draws=20)
        posterior = fit(target.model, method, *target.data, seed=1, progress=False)
        (taken,) = set(posterior.info.tuning["num_warmup"].tolist())
        assert fewest <= taken <= most
    whole = fit(target.model, replace(method, mass_matrix="diagonal"), *target.data, seed=1, progress=False)
    assert whole.info.tuning["num_warmup"].tolist() == [1000] * 2
    assert posterior.info.num_gradients < 0.8 * whole.info.num_gradients
