"""Moments against scipy's closed forms, quadrature and Monte Carlo, and their safety under vmap and make_fx."""

import math

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import scipy.stats
import torch
from torch.distributions import AffineTransform, ExpTransform, SigmoidTransform
from torch.func import vmap
from torch.fx.experimental.proxy_tensor import make_fx

from bnnzoo.core.likelihood.conditional import moments

EYE = torch.eye(3, dtype=torch.float64)


def mixture(t):
    weights = dist.Categorical(logits=t.expand(4, 3))
    return dist.MixtureSameFamily(weights, dist.StudentT(5.0, t.expand(4, 3), t.exp()))


def mixture_of_classes(t):
    return dist.MixtureSameFamily(dist.Categorical(logits=t[:2]), dist.Categorical(logits=t.expand(2, 3)))


def affine(t):
    return dist.TransformedDistribution(
        dist.StudentT(5.0, t, 1.0), [AffineTransform(2.0, -3.0), AffineTransform(t, 0.5)]
    )


FAMILIES = {
    "normal": lambda t: dist.Normal(t, t.exp()),
    "laplace": lambda t: dist.Laplace(t, t.exp()),
    "student_t": lambda t: dist.StudentT(5.0 + t, t, t.exp()),
    "fisher": lambda t: dist.FisherSnedecor(3.0, 10.0 + t),
    "poisson": lambda t: dist.Poisson(t.exp()),
    "gamma": lambda t: dist.Gamma(t.exp(), 2.0),
    "lognormal": lambda t: dist.LogNormal(t, 0.5),
    "exp_normal": lambda t: dist.TransformedDistribution(dist.Normal(t, 0.5), [ExpTransform()]),
    "logit_normal": lambda t: dist.TransformedDistribution(dist.Normal(t, 0.5), [SigmoidTransform()]),
    "affine": affine,
    "negative_binomial": lambda t: dist.NegativeBinomial(t.exp(), logits=t),
    "zero_inflated": lambda t: dist.ZeroInflatedPoisson(t.exp(), gate=torch.tensor(0.3)),
    "binomial": lambda t: dist.Binomial(5, logits=t),
    "multinomial": lambda t: dist.Multinomial(5, logits=t),
    "multivariate_normal": lambda t: dist.MultivariateNormal(t.expand(4, 3), scale_tril=EYE * t.exp()),
    "multivariate_t": lambda t: dist.MultivariateStudentT(5.0 + t.sum(), t.expand(4, 3), EYE * t.exp()),
    "masked_mixture": lambda t: dist.MaskedMixture(
        torch.tensor([True, False, True]), dist.Normal(t, 1.0), dist.Normal(t, 2.0)
    ),
    "mixture": mixture,
    "events": lambda t: dist.Normal(t.expand(4, 3), t.exp()).to_event(1),
    "expanded": lambda t: dist.Poisson(t.exp()).expand([4, 3]),
    "masked": lambda t: dist.Laplace(t, 1.0).mask(torch.tensor([True, False, True])),
    "bernoulli": lambda t: dist.Bernoulli(logits=t),
    "categorical": lambda t: dist.Categorical(logits=t.expand(4, 3)),
    "one_hot": lambda t: dist.OneHotCategorical(logits=t.expand(4, 3)),
    "mixture_of_classes": mixture_of_classes,
}


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES.keys())
def test_vmap_and_make_fx_agree_with_a_loop(family):
    thetas = torch.linspace(-0.5, 0.9, 6).reshape(2, 3)
    looped = [moments(family(theta)) for theta in thetas]
    with pyro.validation_enabled(False):
        batched = vmap(lambda theta: moments(family(theta)))
        traced = make_fx(batched)(torch.zeros(2, 3))
        for found in (batched(thetas), traced(thetas)):
            assert found.keys() == looped[0].keys()
            for name, value in found.items():
                torch.testing.assert_close(value, torch.stack([one[name] for one in looped]))


@pytest.mark.parametrize(
    "name", [n for n in FAMILIES if n not in ("bernoulli", "categorical", "one_hot", "mixture_of_classes")]
)
def test_mean_and_variance_agree_with_draws(name):
    distribution = FAMILIES[name](torch.tensor([-0.3, 0.2, 0.6]))
    torch.manual_seed(0)
    num_draws = 100_000
    draws = distribution.sample((num_draws,))
    found = moments(distribution)
    centred = draws - found["mean"]
    mean_error = (draws.mean(0) - found["mean"]).abs() / (centred.std(0) / math.sqrt(num_draws))
    variance_error = ((centred**2).mean(0) - found["variance"]).abs() / ((centred**2).std(0) / math.sqrt(num_draws))
    assert found["mean"].shape == found["variance"].shape == distribution.batch_shape + distribution.event_shape
    assert mean_error.max() < 4.5
    assert variance_error.max() < 4.5


@pytest.mark.parametrize(
    "name", ["normal", "laplace", "student_t", "gamma", "lognormal", "exp_normal", "logit_normal", "affine"]
)
def test_entropy_is_minus_the_expected_log_density(name):
    distribution = FAMILIES[name](torch.tensor([-0.3, 0.2, 0.6]))
    torch.manual_seed(0)
    log_density = distribution.log_prob(distribution.sample((100_000,)))
    error = (moments(distribution)["entropy"] + log_density.mean(0)) / (log_density.std(0) / math.sqrt(100_000))
    assert error.abs().max() < 4.5


@pytest.mark.parametrize("df", [0.5, 1.0, 1.5, 2.0, 2.5, 30.0])
def test_student_t_has_no_moments_where_scipy_has_none(df):
    found = moments(dist.StudentT(df, torch.tensor([1.0]), 2.0))
    mean, variance = scipy.stats.t.stats(df, loc=1.0, scale=2.0, moments="mv")
    if df <= 1:
        mean, variance = np.nan, np.nan
    np.testing.assert_allclose(found["mean"], mean)
    np.testing.assert_allclose(found["variance"], variance)
    np.testing.assert_allclose(found["entropy"], scipy.stats.t.entropy(df, loc=1.0, scale=2.0), rtol=1e-12)


def test_student_t_variance_has_a_finite_gradient_where_it_is_infinite():
    df = torch.tensor([1.5, 2.0, 4.0], requires_grad=True)
    scale = torch.ones(3, requires_grad=True)
    variance = moments(dist.StudentT(df, 0.0, scale))["variance"]
    gradients = torch.autograd.grad(variance[2], [df, scale])
    assert all(torch.isfinite(gradient).all() for gradient in gradients)


def test_cauchy_has_infinite_variance():
    assert torch.isinf(moments(dist.Cauchy(torch.zeros(2), 1.0))["variance"]).all()


def test_transformed_normal_matches_the_lognormal_closed_form():
    transformed = moments(FAMILIES["exp_normal"](torch.tensor([-1.0, 0.0, 2.0])))
    closed = moments(FAMILIES["lognormal"](torch.tensor([-1.0, 0.0, 2.0])))
    for name in ("mean", "variance", "entropy"):
        torch.testing.assert_close(transformed[name], closed[name], rtol=1e-10, atol=0.0)


def test_logit_normal_matches_adaptive_quadrature():
    found = moments(dist.TransformedDistribution(dist.Normal(torch.tensor([0.4]), 1.5), [SigmoidTransform()]))
    normal = scipy.stats.norm(0.4, 1.5)
    mean = normal.expect(scipy.special.expit)
    variance = normal.expect(lambda z: (scipy.special.expit(z) - mean) ** 2)
    np.testing.assert_allclose([found["mean"].item(), found["variance"].item()], [mean, variance], rtol=1e-6)


def test_class_probabilities_and_their_entropy():
    probs = torch.tensor([[0.2, 0.3, 0.5], [1.0, 0.0, 0.0]])
    found = moments(dist.Categorical(probs=probs))
    assert found.keys() == {"probs", "entropy"}
    torch.testing.assert_close(found["probs"], probs)
    expected = torch.tensor([scipy.stats.entropy(row) for row in probs.numpy()])
    torch.testing.assert_close(found["entropy"], expected)


def test_bernoulli_has_a_column_for_each_class():
    found = moments(dist.Bernoulli(logits=torch.tensor([-40.0, 0.0, 40.0])))
    expected = torch.tensor([[1.0, math.exp(-40)], [0.5, 0.5], [math.exp(-40), 1.0]])
    torch.testing.assert_close(found["probs"], expected, rtol=1e-12, atol=0.0)
    torch.testing.assert_close(found["entropy"][1], torch.tensor(math.log(2)))


def test_several_binary_labels_keep_their_own_probabilities():
    found = moments(dist.Bernoulli(logits=torch.zeros(5, 3)).to_event(1))
    assert found["probs"].shape == (5, 3, 2)
    torch.testing.assert_close(found["entropy"], torch.full((5,), 3 * math.log(2)))


def test_ordered_logistic_is_read_as_classes():
    distribution = dist.OrderedLogistic(torch.zeros(4), torch.tensor([-1.0, 1.0]))
    torch.testing.assert_close(moments(distribution)["probs"].sum(-1), torch.ones(4))


def test_mixture_moments_follow_the_law_of_total_variance():
    mixture = dist.MixtureSameFamily(
        dist.Categorical(probs=torch.tensor([[0.25, 0.75]])),
        dist.Laplace(torch.tensor([[0.0, 4.0]]), torch.tensor([[1.0, 2.0]])),
    )
    found = moments(mixture)
    torch.testing.assert_close(found["mean"], torch.tensor([3.0]))
    torch.testing.assert_close(found["variance"], torch.tensor([0.25 * 2 + 0.75 * 8 + 0.25 * 9 + 0.75 * 1]))
    assert "entropy" not in found


def test_entropy_of_events_is_summed():
    found = moments(dist.Normal(torch.zeros(5, 3), 2.0).to_event(1))
    assert found["mean"].shape == (5, 3)
    torch.testing.assert_close(found["entropy"], torch.full((5,), 3 * scipy.stats.norm(scale=2.0).entropy()))


@pytest.mark.parametrize(
    "distribution",
    [dist.FoldedDistribution(dist.Normal(torch.zeros(3), 1.0)), dist.VonMises3D(torch.ones(2, 3))],
    ids=["not bijective", "nothing known"],
)
def test_what_is_unknown_is_left_out(distribution):
    assert moments(distribution) == {}


@pytest.mark.parametrize("concentration", [1e-3, 0.5, 2.0, 30.0, 1e4])
def test_the_variance_of_an_angle_is_that_about_its_mean_direction(concentration):
    loc = torch.tensor([0.0, 3.0])
    found = moments(torch.distributions.VonMises(loc, torch.tensor(concentration)))
    grid = torch.linspace(-torch.pi, torch.pi, 2_000_001)
    weights = (concentration * (grid.cos() - 1)).exp()
    expected = (weights * grid**2).sum() / weights.sum()
    torch.testing.assert_close(found["variance"], expected.expand(2), rtol=1e-4, atol=0.0)
    assert torch.equal(found["mean"], loc)
