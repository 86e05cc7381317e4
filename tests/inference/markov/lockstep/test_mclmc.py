"""Microcanonical Langevin Monte Carlo: what its settings fix, and what is refused."""

import pyro
import pyro.distributions as dist
import pytest
import torch

from bnnzoo.inference import MCLMC, fit
from bnnzoo.predictive import to_datatree
from bnnzoo.testing import linear_gaussian, skewed


def test_settings_that_are_given_are_kept() -> None:
    target = linear_gaussian()
    method = MCLMC(num_chains=2, num_warmup=40, num_draws=5, step_size=0.3, steps_per_draw=3)
    stats = fit(target.model, method, *target.data, dtype=torch.float64).info.sample_stats
    assert set(stats) == {"lp", "energy_error", "n_steps", "diverging", "step_size"}
    assert bool((stats["step_size"] == 0.3).all()) and bool((stats["n_steps"] == 3).all())


def test_a_direction_needs_two_parameters() -> None:
    with pytest.raises(
        ValueError, match=r"MCLMC changes the direction .* has 1 unconstrained parameter \(rate\)\. Use NUTS"
    ):
        fit(skewed().model, MCLMC(), *skewed().data)


def test_a_draw_ends_however_long_directions_last() -> None:
    target = linear_gaussian()
    method = MCLMC(num_chains=1, num_warmup=20, num_draws=2, decoherence_length=1e12)
    tree = to_datatree(fit(target.model, method, *target.data))
    assert (tree["sample_stats"]["n_steps"] == 1000).all()


def test_a_chain_that_leaves_the_finite_region_returns_to_its_last_draw() -> None:
    def cliff() -> None:
        z = pyro.sample("z", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        pyro.factor("cliff", (1.0 - z.square().sum()).sqrt().log())

    start = torch.zeros(1, 2)
    method = MCLMC(num_chains=1, num_warmup=0, num_draws=100, step_size=0.7, init=start)
    posterior = fit(cliff, method)
    diverging = posterior.info.sample_stats["diverging"][0]
    assert 0 < int(diverging.sum()) < 100 and posterior.info.num_rejected == int(diverging.sum())
    assert posterior.info.rejected_at == "site 'cliff' has log probability nan"
    draws = torch.cat([start, posterior.theta[0]])
    assert bool((draws.square().sum(1) < 1).all())
    assert torch.equal((draws[1:] == draws[:-1]).all(1), diverging)
