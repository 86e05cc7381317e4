"""Exact moments of the targets, found again by other means."""

import numpy as np
import pyro
import pytest
import torch
from scipy.integrate import quad

from bnnzoo.core.model.density import build_density
from bnnzoo.testing import banana, check_model, funnel, ill_conditioned, linear_gaussian, linear_network, skewed

TARGETS = [linear_gaussian(), linear_network(), ill_conditioned(), skewed(), skewed(num_rates=2), banana(), funnel()]


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_targets_are_sound_models(target):
    check_model(target.model, *target.data)


@pytest.mark.parametrize("target", [linear_gaussian(), ill_conditioned()], ids=lambda target: target.name)
def test_joint_density_is_evidence_times_posterior(target):
    density = build_density(target.model, *target.data)
    posterior = torch.distributions.MultivariateNormal(target.mean["w"], target.covariance)
    for w in posterior.sample((5,)):
        evidence = density.log_joint(w, *target.data) - posterior.log_prob(w)
        assert torch.allclose(evidence, target.log_evidence, rtol=1e-9)


def test_a_network_of_one_layer_has_the_same_posterior():
    plain, network = linear_gaussian(), linear_network()
    one, other = build_density(plain.model, *plain.data), build_density(network.model, *network.data)
    w = torch.randn(3)
    assert torch.allclose(one.log_joint(w, *plain.data), other.log_joint(w, *network.data))
    assert torch.allclose(network.mean["net.weight"][0], plain.mean["w"])
    x = torch.randn(4, 3)
    assert all(torch.allclose(a, b) for a, b in zip(plain.predictive(x), network.predictive(x), strict=True))


def test_orthogonal_inputs_make_the_posterior_factorise():
    target = linear_gaussian(correlation=0.0)
    off = target.covariance - torch.diag(target.covariance.diagonal())
    assert off.abs().max() < 1e-12
    correlated = linear_gaussian(correlation=0.8)
    assert (correlated.mean_field_sd() < 0.8 * correlated.sd["w"]).all()


def test_condition_number_is_as_asked_for():
    sd = ill_conditioned(condition=1e4).sd["w"]
    assert 30 < float(sd.max() / sd.min()) < 200


def test_skewed_moments_agree_with_quadrature():
    target = skewed()
    density = build_density(target.model, *target.data)

    def unnormalised(rate: float) -> float:
        theta = density.unconstrain({"rate": torch.tensor(rate)})
        return float(torch.exp(density.log_joint(theta, *target.data) - theta.sum()))  # less the Jacobian of exp

    total, first, second = (quad(lambda r, p=p: r**p * unnormalised(r), 1e-9, 30.0)[0] for p in (0, 1, 2))
    mean, sd = first / total, np.sqrt(second / total - (first / total) ** 2)
    assert np.allclose([target.mean["rate"], target.sd["rate"]], [mean, sd], rtol=1e-6)


def test_correlation_must_be_one():
    with pytest.raises(ValueError, match=r"correlation must lie in \[0, 1\), not 1.0"):
        linear_gaussian(correlation=1.0)


def test_there_must_be_rates():
    with pytest.raises(ValueError, match=r"skewed\(num_rates=0\): write 1 or more, or leave it out"):
        skewed(num_rates=0)


def test_banana_moments_agree_with_draws():
    target = banana(curvature=0.7, width=0.3)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        nodes = [pyro.poutine.trace(target.model).get_trace().nodes for _ in range(4000)]
    for name, sd in target.sd.items():
        drawn = torch.stack([node[name]["value"] for node in nodes])
        assert abs(drawn.mean() - target.mean[name]) < 5 * sd / 4000**0.5
        squares = (drawn - target.mean[name]) ** 2
        assert abs(squares.mean() - sd**2) < 5 * squares.std() / 4000**0.5


@pytest.mark.parametrize("width", [0.0, -1.0, float("nan")])
def test_a_funnel_has_a_width(width: float) -> None:
    with pytest.raises(ValueError, match=r"funnel\(width=(0\.0|-1\.0|nan)\): write a positive standard deviation of v"):
        funnel(width=width)
