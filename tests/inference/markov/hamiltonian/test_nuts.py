"""The No-U-Turn sampler: its stack of leaves, its statistics, and the divergences it reports."""

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch

from bnnzoo.inference import NUTS, DivergenceWarning, fit
from bnnzoo.inference.markov.hamiltonian.nuts import _stack_places
from bnnzoo.testing import funnel, linear_gaussian


def balanced_parts(leaf: int) -> list[int]:
    """Return where the balanced parts of a subtree that end at ``leaf`` begin, the shortest first."""
    widths = [2**k for k in range(1, 10) if (leaf + 1) % 2**k == 0]
    return [leaf + 1 - width for width in widths]


def test_the_stack_holds_the_beginning_of_every_balanced_part() -> None:
    depth = 6
    height = depth - 1
    stack = np.full(height + 1, -1)
    for leaf in range(2**height):
        place, tested = _stack_places(torch.tensor(leaf), height)
        assert (int(place) < height) == (leaf % 2 == 0)
        assert sorted(stack[:height][tested.numpy()], reverse=True) == balanced_parts(leaf)
        stack[int(place)] = leaf


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::bnnzoo.inference.FitWarning")
def test_funnel_reports_divergences() -> None:
    """A chain of this length reports 0.9 on average, so two dozen chains without any are out of the question."""
    method = NUTS(num_chains=24, num_warmup=60, num_draws=60, max_tree_depth=5)
    with pytest.warns(DivergenceWarning, match="trajectories diverged"):
        posterior = fit(funnel().model, method, seed=0)
    assert int(posterior.info.sample_stats["diverging"].sum()) > 0


def test_steps_wider_than_the_posterior_diverge() -> None:
    def narrow() -> None:
        pyro.sample("z", dist.Normal(0.0, 1e-3).expand([2]).to_event(1))

    start = torch.full((2, 2), 1e-3)
    posterior = fit(narrow, NUTS(num_chains=2, num_warmup=0, num_draws=10, step_size=1.0, init=start))
    assert bool(posterior.info.sample_stats["diverging"].all())
    assert bool((posterior.draws() == 1e-3).all())
    careful = fit(narrow, NUTS(num_chains=2, num_warmup=0, num_draws=10, step_size=1e-4, init=start))
    assert not bool(careful.info.sample_stats["diverging"].any())


def test_a_trajectory_is_no_longer_than_the_tree_is_deep() -> None:
    target = linear_gaussian()
    method = NUTS(num_chains=2, num_warmup=0, num_draws=20, step_size=1e-4, max_tree_depth=4)
    stats = fit(target.model, method, *target.data).info.sample_stats
    assert bool((stats["tree_depth"] == 4).all()) and bool((stats["n_steps"] == 15).all())


def test_statistics_are_those_of_the_draws() -> None:
    target = linear_gaussian()
    posterior = fit(target.model, NUTS(num_chains=2, num_warmup=100, num_draws=50), *target.data, seed=4)
    stats = posterior.info.sample_stats
    theta = posterior.draws().flatten(0, 1)
    expected, _ = posterior.density.value_and_grad(theta, *target.data)
    torch.testing.assert_close(stats["lp"].flatten(), expected)
    assert set(stats) == {"lp", "energy", "acceptance_rate", "n_steps", "tree_depth", "diverging", "step_size"}
    assert bool((stats["energy"] >= -stats["lp"]).all())
    assert bool((stats["acceptance_rate"] <= 1).all()) and bool((stats["acceptance_rate"] > 0).all())
    depth, steps = stats["tree_depth"], stats["n_steps"]
    assert bool((steps < 2 ** (depth + 1)).all()) and bool((steps >= 2**depth - 1).all())
    assert len(stats["step_size"][0].unique()) == 1
    assert posterior.info.num_gradients >= int(steps.sum())


@pytest.mark.slow
def test_a_higher_acceptance_asked_for_gives_shorter_steps() -> None:
    target = linear_gaussian()
    careful, bold = (
        fit(target.model, NUTS(num_chains=2, num_warmup=200, num_draws=50, target_accept=rate), *target.data, seed=5)
        for rate in (0.95, 0.6)
    )
    rates = [float(p.info.sample_stats["acceptance_rate"].mean()) for p in (careful, bold)]
    steps = [float(p.info.sample_stats["step_size"].mean()) for p in (careful, bold)]
    assert rates[0] > 0.9 > rates[1] > 0.6
    assert steps[0] < steps[1]


def test_short_run_without_windows() -> None:
    posterior = fit(linear_gaussian().model, NUTS(num_chains=1, num_warmup=10, num_draws=5), *linear_gaussian().data)
    assert np.isfinite(posterior.draws().numpy()).all()
