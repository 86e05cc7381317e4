"""Priors against scipy's densities, their hyperparameters' sites, and what they refuse."""

import math
import pickle

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import scipy.stats
import torch
from pyro import poutine
from torch.distributions import biject_to

from bnnzoo.core.model.density import build_density
from bnnzoo.models import likelihoods, mlp, priors, supervised

WEIGHT, BIAS = torch.zeros(4, 3), torch.zeros(4)


def traced(prior, parameter=WEIGHT, fan_in=3, values=None):
    """The distribution that a prior returns, and the nodes of the hyperparameters it sampled."""
    with poutine.trace() as tracer, poutine.condition(data=values or {}):
        distribution = prior("net.0.weight", parameter, fan_in)
    return distribution, {name: node for name, node in tracer.trace.nodes.items() if node["type"] == "sample"}


@pytest.mark.parametrize(
    ("prior", "weight", "bias"),
    [
        (priors.normal(2.0), scipy.stats.norm(scale=2.0), scipy.stats.norm(scale=2.0)),
        (priors.fan_in(4.0, 0.5), scipy.stats.norm(scale=4 / math.sqrt(3)), scipy.stats.norm(scale=0.5)),
        (priors.laplace(2.0), scipy.stats.laplace(scale=2.0), scipy.stats.laplace(scale=2.0)),
        (priors.student_t(3.0, 2.0), scipy.stats.t(3.0, scale=2.0), scipy.stats.t(3.0, scale=2.0)),
    ],
    ids=["normal", "fan_in", "laplace", "student_t"],
)
def test_fixed_priors_have_scipys_density(prior, weight, bias):
    for parameter, expected in ((WEIGHT, weight), (BIAS, bias)):
        distribution, hyperparameters = traced(prior, parameter)
        value = torch.randn(parameter.shape)
        assert not hyperparameters
        assert distribution.batch_shape == ()
        assert distribution.event_shape == parameter.shape
        np.testing.assert_allclose(distribution.log_prob(value), expected.logpdf(value.numpy()).sum())


def test_layerwise_has_one_scale_per_tensor():
    scale = torch.tensor(0.3)
    distribution, nodes = traced(priors.layerwise(dist.HalfNormal(2.0)), values={"net.0.weight.scale": scale})
    assert list(nodes) == ["net.0.weight.scale"]
    np.testing.assert_allclose(
        nodes["net.0.weight.scale"]["fn"].log_prob(scale), scipy.stats.halfnorm(scale=2.0).logpdf(0.3)
    )
    torch.testing.assert_close(distribution.base_dist.scale, torch.full((4, 3), 0.3))


def test_layerwise_by_fan_in_shrinks_weights_and_not_biases():
    prior, values = priors.layerwise(by_fan_in=True), {"net.0.weight.scale": torch.tensor(0.3)}
    weight, bias = (traced(prior, parameter, 9, values)[0] for parameter in (WEIGHT, BIAS))
    torch.testing.assert_close(weight.base_dist.scale, torch.full((4, 3), 0.1))
    torch.testing.assert_close(bias.base_dist.scale, torch.full((4,), 0.3))


def test_ard_has_one_scale_per_input():
    scale = torch.tensor([0.1, 1.0, 10.0])
    distribution, nodes = traced(priors.ard(), values={"net.0.weight.scale": scale})
    torch.testing.assert_close(distribution.base_dist.scale, scale.expand(4, 3))
    expected = scipy.stats.halfcauchy.logpdf(scale.numpy()).sum()
    np.testing.assert_allclose(nodes["net.0.weight.scale"]["fn"].log_prob(scale), expected)


def test_ard_of_a_convolution_has_one_scale_per_input_channel():
    scale = torch.tensor([0.1, 1.0])
    distribution, _ = traced(priors.ard(), torch.zeros(4, 2, 5, 5), values={"net.0.weight.scale": scale})
    torch.testing.assert_close(distribution.base_dist.scale[0, :, 3, 3], scale)


def test_ard_of_a_bias_has_one_scale():
    _, nodes = traced(priors.ard(), BIAS)
    assert nodes["net.0.weight.scale"]["value"].shape == ()


def test_horseshoe_multiplies_global_and_local_scales():
    local = torch.rand(4, 3)
    values = {"net.0.weight.global_scale": torch.tensor(0.2), "net.0.weight.local_scale": local}
    distribution, nodes = traced(priors.horseshoe(0.5), values=values)
    torch.testing.assert_close(distribution.base_dist.scale, 0.2 * local)
    total = sum(node["fn"].log_prob(node["value"]) for node in nodes.values())
    expected = scipy.stats.halfcauchy.logpdf(0.2, scale=0.5) + scipy.stats.halfcauchy.logpdf(local.numpy()).sum()
    np.testing.assert_allclose(total, expected)


def test_the_slab_bounds_the_horseshoes_scales():
    values = {
        "net.0.weight.global_scale": torch.tensor(0.2),
        "net.0.weight.local_scale": torch.full((4, 3), 1e6),
        "net.0.weight.slab_variance": torch.tensor(4.0),
    }
    distribution, nodes = traced(priors.horseshoe(0.5, slab_scale=3.0, slab_df=4.0), values=values)
    torch.testing.assert_close(distribution.base_dist.scale, torch.full((4, 3), 2.0))
    expected = scipy.stats.invgamma(2.0, scale=2.0 * 9.0).logpdf(4.0)
    np.testing.assert_allclose(nodes["net.0.weight.slab_variance"]["fn"].log_prob(torch.tensor(4.0)), expected)


def test_gamma_precision_is_the_gamma_density_in_the_scale():
    scale = torch.tensor([0.01, 0.05, 1.0, 30.0])
    gamma = scipy.stats.gamma(0.25, scale=1 / (0.25 * 0.05**2))
    assert math.isclose(gamma.mean(), 1 / 0.05**2)
    expected = gamma.logpdf(scale.numpy() ** -2.0) + np.log(2.0 * scale.numpy() ** -3.0)
    np.testing.assert_allclose(priors.gamma_precision(0.25, 0.05).log_prob(scale), expected)
    assert biject_to(priors.gamma_precision(0.25, 0.05).support)(torch.tensor(-3.0)) > 0


def test_by_parameter_takes_the_first_pattern_that_matches():
    prior = priors.by_parameter({"0.*": priors.normal(1.0), "*.weight": priors.normal(2.0)}, default=priors.normal(3.0))
    scales = [prior(f"net.{name}", BIAS, 1).base_dist.scale[0].item() for name in ("0.weight", "2.weight", "2.bias")]
    assert scales == [1.0, 2.0, 3.0]


def test_by_parameter_refuses_a_pattern_that_matches_nothing():
    model = supervised(mlp(3), priors.by_parameter({"1.weight": priors.ard()}, priors.normal()), likelihoods.gaussian())
    with pytest.raises(
        ValueError, match=r"pattern '1.weight' matches no parameter .* are 0.weight, 0.bias, 2.weight, 2.bias"
    ):
        model(torch.zeros(2, 3))


def test_by_parameter_without_default_refuses_an_unmatched_parameter():
    model = supervised(mlp(3), priors.by_parameter({"*.weight": priors.normal()}), likelihoods.gaussian())
    with pytest.raises(ValueError, match=r"no prior for parameter '0.bias'.*give default="):
        model(torch.zeros(2, 3))


ALL = {
    "normal": priors.normal(),
    "fan_in": priors.fan_in(),
    "laplace": priors.laplace(),
    "student_t": priors.student_t(),
    "layerwise": priors.layerwise(),
    "neal": priors.layerwise(priors.gamma_precision(0.25, 0.05), by_fan_in=True),
    "ard": priors.ard(priors.gamma_precision(0.5, 0.1)),
    "horseshoe": priors.horseshoe(),
    "regularised_horseshoe": priors.horseshoe(0.1, slab_scale=2.0),
    "by_parameter": priors.by_parameter({"0.weight": priors.ard()}, priors.fan_in()),
}


QUICK = ("neal", "horseshoe", "by_parameter", *list(ALL)[:2])


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(n, marks=pytest.mark.slow) for n in ALL if n not in QUICK)])
def test_every_prior_gives_one_density_batched_traced_and_by_pyro(name):
    prior = ALL[name]
    x, y = torch.randn(6, 3), torch.randn(6)
    model = supervised(mlp(3, (2,)), prior, likelihoods.gaussian())
    density = build_density(model, x, y)
    theta = density.init(2, seed=0)
    value, gradient = density.value_and_grad(theta, x, y)
    assert torch.isfinite(gradient).all()
    for row, found in zip(theta, value, strict=True):
        conditioned = poutine.condition(model, density.constrain(row))
        log_prob = poutine.trace(conditioned).get_trace(x, y).log_prob_sum()
        jacobian = sum(
            site.transform.log_abs_det_jacobian(
                density.unconstrained(row)[site.name], density.constrain(row)[site.name]
            ).sum()
            for site in density.sites
        )
        torch.testing.assert_close(found, log_prob + jacobian)


@pytest.mark.parametrize("prior", ALL.values(), ids=ALL.keys())
def test_every_prior_can_be_sent_to_another_process(prior):
    pyro.set_rng_seed(0)
    first, _ = traced(prior)
    pyro.set_rng_seed(0)
    second, _ = traced(pickle.loads(pickle.dumps(prior)))
    value = torch.randn(WEIGHT.shape)
    torch.testing.assert_close(first.log_prob(value), second.log_prob(value))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: priors.normal(0.0), "priors.normal: scale must be a positive number, but is 0.0"),
        (lambda: priors.normal("1"), "priors.normal: scale must be a positive number, but is '1'"),
        (lambda: priors.fan_in(1.0, -2.0), "priors.fan_in: bias_scale must be a positive number, but is -2.0"),
        (lambda: priors.laplace(math.inf), "priors.laplace: scale must be a positive number, but is inf"),
        (lambda: priors.student_t(math.nan), "priors.student_t: df must be a positive number, but is nan"),
        (lambda: priors.horseshoe(slab_scale=-1.0), "priors.horseshoe: slab_scale must be a positive number"),
        (lambda: priors.gamma_precision(0.0, 1.0), "priors.gamma_precision: shape must be a positive number"),
        (lambda: priors.layerwise(dist.Normal(0.0, 1.0)), "priors.layerwise: .* only positive values, but Normal"),
        (lambda: priors.ard(dist.Poisson(1.0)), "priors.ard: .* only positive values, but Poisson"),
        (
            lambda: priors.layerwise(dist.HalfNormal(torch.ones(3))),
            r"one scalar distribution, but .* batch shape \(3,\)",
        ),
    ],
)
def test_bad_arguments_are_refused_at_once(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("scale", [1.0, torch.distributions.HalfNormal(1.0)])
def test_a_hyperprior_that_is_no_pyro_distribution_is_refused(scale):
    with pytest.raises(TypeError, match=r"priors.ard: the prior of a scale must be a Pyro distribution, such as pyro"):
        priors.ard(scale)
