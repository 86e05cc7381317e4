"""Families of outcomes: Fisher information, follow-up, draws and the wrappers around them."""

import numpy as np
import pyro.distributions as dist
import pytest
import scipy.integrate
import scipy.stats
import torch
from torch.func import grad, vmap

from bnnzoo.core.likelihood.families import Beta, Gamma, LogPoisson, NegativeBinomial, ZeroInflated
from bnnzoo.core.likelihood.readout import read
from bnnzoo.core.likelihood.survival import LogNormal, RightCensored, Weibull, log_upper_tail
from bnnzoo.core.likelihood.weighted import Weighted

ONE = torch.ones(1)
POSITIVE = {
    "gamma": Gamma(0.4 * ONE, 0.9),
    "weibull": Weibull(0.4 * ONE, 0.5),
    "log_normal": LogNormal(0.4 * ONE, -0.5),
}


def matrix(readout, place=0):
    root = readout.roots[place]
    return (root @ root.mT)[0].numpy()


def scores(readout, y, place=0):
    """Return the gradients ``[d, len(y)]`` of the log density about the coordinates at each of y."""
    z = [block.detach().expand(len(y), -1).clone().requires_grad_() for block in readout.coordinates]
    return torch.autograd.grad(readout.build(tuple(z)).log_prob(y).sum(), z[place])[0].T.numpy()


def by_quadrature(readout, density, onto, place=0):
    """Return the Fisher information as an integral of the squared score over y = onto(u), by the trapezoidal rule."""
    u = torch.linspace(-35.0, 35.0, 4001).requires_grad_()
    y = onto(u)
    weight = torch.autograd.grad(y.sum(), u)[0] * (u[1] - u[0]).detach()
    y = y.detach()
    g = np.nan_to_num(scores(readout, y, place))
    return np.einsum("is,js,s->ij", g, g, (density.log_prob(y).exp() * weight).numpy())


@pytest.mark.parametrize("family", POSITIVE.values(), ids=POSITIVE.keys())
def test_fisher_information_of_positive_numbers(family):
    found = read(family)
    assert found.closed_form
    np.testing.assert_allclose(matrix(found), by_quadrature(found, family, torch.exp), rtol=1e-8, atol=1e-9)


def test_fisher_information_of_proportions():
    family = Beta(0.4 * ONE, 1.6)
    found = read(family)
    np.testing.assert_allclose(matrix(found), by_quadrature(found, family, torch.sigmoid), rtol=1e-8)


def test_fisher_information_of_unknown_degrees_of_freedom():
    family = dist.StudentT(5.0 * ONE, 0.3, 2.0)
    found = read(family)
    for place in (0, 1):
        expected = by_quadrature(found, family, torch.sinh, place)
        np.testing.assert_allclose(matrix(found, place), expected, rtol=1e-8, atol=1e-9)


def test_fisher_information_of_counts_has_that_of_the_mean():
    log_mean, log_concentration = torch.tensor([0.7]), torch.tensor([0.4])
    found = read(NegativeBinomial(log_mean.expand(100), log_concentration))
    root = found.roots[0]
    mean, concentration = 0.7, 0.4
    expected = np.exp(mean) / (1 + np.exp(mean - concentration))
    assert abs(float((root @ root.mT)[:, 0, 0].mean()) / expected - 1) < 0.05
    np.testing.assert_allclose(matrix(read(LogPoisson(log_mean))), np.exp([[0.7]]))


@pytest.mark.parametrize("family", [POSITIVE["weibull"], POSITIVE["log_normal"]], ids=["weibull", "log_normal"])
@pytest.mark.parametrize("until", [0.3, 2.0, 9.0])
def test_information_of_follow_up_is_the_integral_over_the_hazard(family, until):
    u = torch.linspace(-30.0, 0.0, 6001)
    t, step = until * u.exp(), float(u[1] - u[0])
    z = torch.stack(family.parameters, -1).expand(len(t), -1).clone().requires_grad_()
    at = type(family)(*z.unbind(-1))
    log_hazard = at.log_prob(t) - at.log_survival(t)
    g = torch.autograd.grad(log_hazard.sum(), z)[0]
    terms = g[:, :, None] * g[:, None, :] * (log_hazard.exp() * t).detach()[:, None, None]
    expected = scipy.integrate.simpson(terms.numpy(), dx=step, axis=0)
    y = torch.tensor([until])
    found = read(RightCensored(family, torch.tensor([True]), y))
    np.testing.assert_allclose(matrix(found), expected, rtol=1e-6, atol=1e-8)
    event = read(RightCensored(family, torch.tensor([False]), y))
    np.testing.assert_array_equal(matrix(event), matrix(found))


@pytest.mark.parametrize("family", [Weibull(0.4, 0.5), LogNormal(0.4, -0.5)], ids=["weibull", "log_normal"])
def test_information_of_follow_up_has_the_expectation_of_the_squared_score(family):
    torch.manual_seed(0)
    times, limits = family.sample((5_000,)), torch.empty(5_000).exponential_(0.5)
    y, censored = torch.minimum(times, limits), times > limits
    found = read(RightCensored(family.expand([5_000]), censored, y))
    root = found.roots[0]
    z = found.coordinates[0].clone().requires_grad_()
    g = torch.autograd.grad(found.build((z,)).log_prob(y).sum(), z)[0]
    squared, information = g[:, :, None] * g[:, None, :], root @ root.mT
    difference = squared - information
    assert bool((difference.mean(0).abs() < 4 * difference.std(0) / 5_000**0.5).all())
    assert bool(((information.mean(0) - family.fisher()).diagonal() < 0).all())  # censoring loses information


def test_draws_have_the_moments():
    torch.manual_seed(0)
    families = [*POSITIVE.values(), Beta(0.4 * ONE, 1.6), NegativeBinomial(0.7 * ONE, 0.4), LogPoisson(0.7 * ONE)]
    families += [ZeroInflated(LogPoisson(0.7 * ONE), -0.3 * ONE), RightCensored(POSITIVE["weibull"], ONE, ONE)]
    for family in families:
        plain = getattr(family, "base_dist", family) if isinstance(family, RightCensored) else family
        draws = family.sample((5_000,))
        assert draws.shape == (5_000, 1)
        assert float((draws.mean() - plain.mean).abs() / (plain.variance / 5_000).sqrt()) < 4
        assert abs(float(draws.var() / plain.variance) - 1) < 0.2


def test_weights_multiply_log_densities_and_information():
    weights, y = torch.tensor([0.0, 1.0, 2.5]), torch.tensor([[0.0, 1.0], [1.0, 0.0], [2.0, 2.0]])
    base = dist.Normal(torch.zeros(3, 2), 2.0).to_event(1)
    found = Weighted(base, weights)
    torch.testing.assert_close(found.log_prob(y), weights * base.log_prob(y))
    torch.testing.assert_close(found.root_log_prob(y) ** 2, weights * base.log_prob(y) ** 2)
    readout = read(found)
    torch.testing.assert_close(readout.weight, weights[:, None].expand(3, 2))
    torch.testing.assert_close(readout.build(readout.coordinates).log_prob(y), found.log_prob(y))
    classes = read(Weighted(dist.Categorical(logits=torch.zeros(3, 4)), weights))
    torch.testing.assert_close(classes.weight, weights)


@pytest.mark.parametrize(("dtype", "rtol"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_the_tail_of_the_normal_and_its_derivative(dtype, rtol):
    r = torch.cat([torch.linspace(-30.0, 60.0, 901), torch.tensor([12.0, 20.0, 1e3])]).to(dtype)
    exact = scipy.stats.norm.logsf(r.double())
    np.testing.assert_allclose(log_upper_tail(r), exact, rtol=rtol, atol=torch.finfo(dtype).eps)
    hazard = np.exp(scipy.stats.norm.logpdf(r.double()) - exact)
    np.testing.assert_allclose(
        -vmap(grad(log_upper_tail))(r), hazard, rtol=max(rtol, 1e-9), atol=torch.finfo(dtype).eps
    )
