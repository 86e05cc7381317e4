"""Weighted mixtures of posteriors: draws, densities and guides against closed forms."""

import math

import pyro
import pytest
import torch

from bnnzoo.core.posterior.posterior import Gaussian, Mixture
from bnnzoo.testing import linear_gaussian
from tests.helpers.exact import narrow_posterior

LOCS, SCALE, WEIGHTS = torch.tensor([-1.0, 0.5, 3.0], dtype=torch.float64), 0.2, (0.1, 0.6, 0.3)


def mixture(log_weights=None):
    target = linear_gaussian()
    one = narrow_posterior(target.model, *target.data, scale=SCALE)
    return Mixture(
        one.density,
        one.info,
        tuple(Gaussian(one.density, one.info, one.loc + m, one.covariance) for m in LOCS),
        log_weights,
    )


def weighted():
    return mixture(torch.tensor(WEIGHTS).log() + 7.0)  # up to a constant


def test_weights_are_normalised_and_equal_by_default():
    torch.testing.assert_close(weighted().weights, torch.tensor(WEIGHTS))
    torch.testing.assert_close(mixture().weights, torch.full((3,), 1 / 3))


def test_equal_weights_change_nothing():
    plain, equal = mixture(), mixture(torch.full((3,), -4.0))
    assert torch.equal(plain.draws(20), equal.draws(20))
    assert plain.draws(20).shape == (3, 20, 3)
    theta = torch.randn(5, 3)
    assert torch.equal(plain.log_prob(theta), equal.log_prob(theta))
    assert torch.equal(equal.members(20)[:, 0], torch.arange(3))


def test_log_prob_is_that_of_the_mixture():
    theta = torch.randn(4, 5, 3)
    normal = torch.distributions.Normal(LOCS[:, None, None, None], SCALE)
    terms = normal.log_prob(theta).sum(-1) + torch.tensor(WEIGHTS).log()[:, None, None]
    torch.testing.assert_close(weighted().log_prob(theta), terms.logsumexp(0))


def test_draws_of_unequal_weights_are_one_chain_with_each_component_in_proportion():
    found, members = weighted().draws(1000), weighted().members(1000)
    assert found.shape == (1, 1000, 3)
    counts = members[0].bincount()
    assert bool(((counts - 1000 * torch.tensor(WEIGHTS)).abs() < 1).all())
    assert bool(((found[0] - LOCS[members[0]][:, None]).abs() < 6 * SCALE).all())
    switches = (members[0].diff() != 0).double().mean()  # in an order drawn at random, and not one block each
    assert abs(float(switches) - (1 - sum(w**2 for w in WEIGHTS))) < 4 * 0.5 / math.sqrt(1000)


def test_draws_repeat_with_the_seed_and_differ_between_seeds():
    assert torch.equal(weighted().draws(50, seed=1), weighted().draws(50, seed=1))
    assert not torch.equal(weighted().members(50, seed=1), weighted().members(50, seed=2))


def test_few_draws_have_the_right_expectation():
    counts = torch.stack([weighted().members(2, seed)[0].bincount(minlength=3) for seed in range(400)]).double()
    error = counts.mean(0) - 2 * torch.tensor(WEIGHTS)
    assert bool((error.abs() < 4 * counts.std(0) / math.sqrt(400)).all())


def test_a_component_without_weight_is_never_drawn():
    found = mixture(torch.tensor([-torch.inf, 0.0, 0.0]))
    assert sorted(found.members(100).unique().tolist()) == [1, 2]
    assert bool(found.log_prob(torch.zeros(3)).isfinite())


def test_the_guide_draws_components_by_their_weights():
    guide, target = weighted().as_guide(), linear_gaussian()
    with torch.random.fork_rng(), pyro.get_param_store().scope():
        torch.manual_seed(0)
        first = torch.stack([guide(*target.data)["w"][0] for _ in range(1000)])
    nearest = (first[:, None] - LOCS).abs().argmin(1).bincount(minlength=3) / 1000
    sd = torch.tensor([math.sqrt(w * (1 - w) / 1000) for w in WEIGHTS])
    assert bool(((nearest - torch.tensor(WEIGHTS)).abs() < 4 * sd).all())


@pytest.mark.parametrize(
    ("log_weights", "sentence"),
    [
        (
            torch.zeros(2),
            r"log_weights=\.\.\.\) has shape \(2,\), but there are 3 components: write one log weight for each",
        ),
        (torch.tensor([0.0, torch.nan, 0.0]), r"log_weights=\[0\.0, nan, 0\.0\]\): write finite numbers, or -inf for"),
        (torch.full((3,), -torch.inf), r"write finite numbers, or -inf for a component of no weight"),
    ],
)
def test_weights_that_are_none_are_refused(log_weights, sentence):
    with pytest.raises(ValueError, match=sentence):
        mixture(log_weights)
