"""The No-U-Turn sampler: its stack of leaves, its statistics, and the divergences it reports."""

import warnings

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

from bnnzoo.inference import NUTS, DivergenceWarning, fit
from bnnzoo.inference.markov.hamiltonian.kernel import Metric, Phase
from bnnzoo.inference.markov.hamiltonian.nuts import NUTSKernel, _stack_places
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


P, HEIGHT = 3, 4
MASS = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)


def turned(momenta: torch.Tensor) -> bool:
    """Tell whether the sum of momenta ``[L, P]``, less half of both ends', points against the velocity of an end."""
    rho = momenta.sum(0) - 0.5 * (momenta[0] + momenta[-1])
    return bool((rho @ (momenta[0] / MASS) <= 0) | (rho @ (momenta[-1] / MASS) <= 0))


def phase(momentum: torch.Tensor) -> Phase:
    zero = torch.zeros(P, dtype=torch.float64)
    return Phase(zero, momentum, zero, zero.sum())


def walk(num: int, seed: int) -> torch.Tensor:
    """Return momenta ``[num, P]`` of which some parts turn and others do not, whatever their length."""
    generator = torch.Generator().manual_seed(seed)
    noise, steps = torch.randn(2, num, P, generator=generator, dtype=torch.float64)
    return noise + 0.6 * steps.cumsum(0)


@pytest.mark.parametrize("direction", [1.0, -1.0])
def test_a_subtree_turns_where_one_of_its_balanced_parts_does(direction: float) -> None:
    kernel, metric = NUTSKernel(HEIGHT + 1), Metric(1 / MASS, MASS.sqrt())
    half, found = torch.tensor(0.5, dtype=torch.float64), []
    for seed in range(30):
        momenta = walk(2**HEIGHT, seed)
        subtree, tree = kernel.finished_trajectory(phase(momenta[0]))
        control = tree.control._replace(direction=half.sign() * direction, length=torch.tensor(2**HEIGHT))
        for leaf, momentum in enumerate(momenta):
            subtree = kernel.leapfrog(subtree, control, phase(momentum), metric, half)
            expected = any(turned(momenta[first : leaf + 1]) for first in balanced_parts(leaf))
            assert bool(subtree.turning) == expected, (seed, leaf)
            found.append(expected)
    assert 30 < sum(found) < len(found) - 30


def test_a_tree_turns_where_the_whole_trajectory_does() -> None:
    kernel, metric = NUTSKernel(6), Metric(1 / MASS, MASS.sqrt())
    one, turns = torch.tensor(1.0, dtype=torch.float64), []
    for seed in range(40):
        momenta, direction = walk(4, seed), 1.0 if seed % 2 else -1.0
        old, new = (momenta[:2], momenta[2:]) if direction > 0 else (momenta[2:].flip(0), momenta[:2].flip(0))
        subtree, tree = kernel.finished_trajectory(phase(old[0]))
        left, right = (old[0], old[1]) if direction > 0 else (old[1], old[0])
        tree = tree._replace(
            control=tree.control._replace(direction=direction * one),
            left=phase(left),
            right=phase(right),
            momentum_sum=old.sum(0),
            depth=torch.tensor(1),
        )
        subtree = subtree._replace(phase=phase(new[1]), momentum_sum=new.sum(0), log_weight=0 * one)
        _, grown = kernel.propose(subtree, tree, metric, torch.tensor([0.5, 0.5], dtype=torch.float64))
        assert bool(grown.done) == turned(momenta), seed
        assert torch.equal(grown.left.momentum, momenta[0]) and torch.equal(grown.right.momentum, momenta[-1])
        turns.append(turned(momenta))
    assert 5 < sum(turns) < 35


@pytest.mark.parametrize("broken", ["turning", "diverging"])
def test_a_subtree_that_turns_or_diverges_is_discarded(broken: str) -> None:
    kernel, metric = NUTSKernel(6), Metric(1 / MASS, MASS.sqrt())
    one, momenta = torch.ones(P, dtype=torch.float64), walk(2, 0)
    subtree, tree = kernel.finished_trajectory(phase(momenta[0]))
    elsewhere = phase(momenta[1])._replace(theta=one)
    heavy = subtree._replace(proposal=elsewhere, phase=elsewhere, log_weight=100 * one.sum(), stop=torch.tensor(True))
    uniforms = torch.tensor([0.5, 0.5], dtype=torch.float64)
    _, kept = kernel.propose(heavy._replace(**{broken: torch.tensor(True)}), tree, metric, uniforms)
    _, taken = kernel.propose(heavy, tree, metric, uniforms)
    assert bool(kept.done) and bool((kept.proposal.theta == 0).all()) and bool((taken.proposal.theta == 1).all())


def test_a_direction_does_not_depend_on_whether_the_subtree_was_accepted() -> None:
    """The first number decides on the proposal, the second on where the tree grows next."""
    kernel, metric = NUTSKernel(6), Metric(1 / MASS, MASS.sqrt())
    (subtree, tree), half = kernel.finished_trajectory(phase(MASS)), torch.tensor(0.5, dtype=torch.float64)
    subtree = subtree._replace(log_weight=tree.log_weight + half.log(), proposal=phase(MASS)._replace(theta=MASS))
    for first in (0.45, 0.55):  # the subtree has half the weight of the tree
        for second in (0.1, 0.9):
            uniforms = torch.tensor([first, second], dtype=torch.float64)
            _, grown = kernel.propose(subtree, tree, metric, uniforms)
            assert float(grown.control.direction) == (1.0 if second > 0.5 else -1.0)
            assert bool((grown.proposal.theta == MASS).all()) == (first < 0.5)


def players(at_bats: Tensor, hits: Tensor) -> None:
    """A centred hierarchy of 18 players (Efron and Morris, 1975): where all are alike, a usual step is far too long."""
    loc, scale = pyro.sample("loc", dist.Normal(-1.0, 1.0)), pyro.sample("scale", dist.HalfCauchy(1.0))
    with pyro.plate("players", len(hits)):
        log_odds = pyro.sample("log_odds", dist.Normal(loc, scale))
        pyro.sample("hits", dist.Binomial(at_bats, logits=log_odds), obs=hits)


@pytest.mark.parametrize("num_chains", [2, 4])
def test_no_chain_ends_warm_up_where_it_stays_for_good(num_chains: int) -> None:
    """Two chains had stood still for all draws; such a model still has stays of dozens of draws, and warns."""
    hits = torch.tensor([18.0, 17, 16, 15, 14, 14, 13, 12, 11, 11, 10, 10, 10, 10, 10, 9, 8, 7])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        posterior = fit(players, NUTS(num_chains=num_chains), torch.full_like(hits, 45.0), hits, seed=0)
    assert min(len(chain[:, 0].unique()) for chain in posterior.draws()) > 200
    assert float(posterior.info.sample_stats["acceptance_rate"].mean(1).min()) > 0.2
