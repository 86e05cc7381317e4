"""Low-rank Laplace against the dense one, of which it is all or a part."""

from itertools import pairwise

import pytest
import torch

from bnnzoo.core.fit_warnings import NotConvergedWarning
from bnnzoo.core.model.density import build_density
from bnnzoo.inference import MAP, Laplace, LowRankLaplace, fit, log_marginal_likelihood
from bnnzoo.inference.laplace import low_rank
from bnnzoo.inference.laplace.curvature import MonteCarloFisher, precision
from bnnzoo.inference.laplace.family import LaplaceError
from bnnzoo.inference.laplace.low_rank import precision_product
from bnnzoo.models import likelihoods, mlp, priors, supervised
from bnnzoo.predictive import function_moments, marginal_predictive
from bnnzoo.testing.targets import ill_conditioned, linear_gaussian
from tests.helpers.densities import cases

X = torch.randn(30, 2, generator=torch.Generator().manual_seed(1))
LABELS = (X @ torch.tensor([[2.0, -1.0, 0.0], [0.0, 2.0, -1.0]])).argmax(1)
NETWORK = supervised(mlp(2, (5,), 3, activation="tanh"), priors.normal(1.0), likelihoods.categorical())


@pytest.mark.parametrize("curvature", ["ggn", "hessian"])
@pytest.mark.parametrize("target", [linear_gaussian(), ill_conditioned()], ids=lambda t: t.name)
def test_full_rank_is_exact_on_linear_gaussian_models(curvature, target) -> None:
    size = len(target.covariance)
    posterior = fit(target.model, LowRankLaplace(rank=size, curvature=curvature), *target.data)
    torch.testing.assert_close(posterior.loc, target.mean["w"], rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(posterior.covariance.dense(), target.covariance, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(log_marginal_likelihood(posterior), target.log_evidence, rtol=1e-6, atol=1e-6)
    found = marginal_predictive(posterior, target.data[0])["marginal"]
    mean, variance = target.predictive(target.data[0])
    torch.testing.assert_close(torch.from_numpy(found["mean"].to_numpy()), mean, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(torch.from_numpy(found["variance"].to_numpy()), variance, rtol=1e-6, atol=1e-6)


def test_approaches_the_dense_one_with_rank() -> None:
    mode = fit(NETWORK, MAP(num_steps=300), X, LABELS)
    there = MAP(init=mode, num_steps=0, polish_steps=0)
    dense = fit(NETWORK, Laplace(there), X, LABELS)
    exact = dense.covariance.dense()
    divergence, variances, evidence = [], [], []
    for rank in (1, 3, 6, 12, 33):
        posterior = fit(NETWORK, LowRankLaplace(rank, there), X, LABELS)
        found = posterior.covariance.dense()
        white = torch.linalg.solve(exact, found)
        divergence.append(0.5 * float(white.trace() - torch.logdet(white) - len(exact)))
        variances.append(float(function_moments(posterior, X)[1].reshape(90, 90).trace()))
        evidence.append(float(log_marginal_likelihood(posterior)))
        assert (found.diagonal() >= exact.diagonal() * (1 - 1e-9)).all()
    for path in (divergence, variances, evidence):
        assert all(before > after for before, after in pairwise(path))
    assert divergence[-1] < 1e-9
    assert evidence[-1] == pytest.approx(float(log_marginal_likelihood(dense)), abs=1e-6)


@pytest.mark.parametrize(
    "name", ["categorical", "hierarchical", "heteroscedastic", "masked_and_scaled", "convolutional"]
)
@pytest.mark.parametrize("curvature", ["ggn", "hessian", "empirical_fisher", MonteCarloFisher(num_draws=3)], ids=str)
def test_products_are_those_of_the_dense_precision(name: str, curvature, monkeypatch: pytest.MonkeyPatch) -> None:
    model, data = cases()[name]
    density = build_density(model, *data)
    theta = 0.3 * torch.randn(density.num_params)
    matrix = precision(density, theta, curvature)
    v = torch.randn(density.num_params)
    for block in (low_rank.BLOCK, 7):
        monkeypatch.setattr(low_rank, "BLOCK", block)
        product = precision_product(density, theta, curvature)
        torch.testing.assert_close(product(v), matrix @ v, rtol=1e-8, atol=1e-8)


def test_rank_beyond_that_of_the_curvature() -> None:
    x, y = X[:3], X[:3, 0].clone()
    model = supervised(mlp(2, (8,), activation="tanh"), priors.normal(1.0), likelihoods.gaussian(scale=0.1))
    there = MAP(init=fit(model, MAP(num_steps=200), x, y), num_steps=0, polish_steps=0)
    low, dense = fit(model, LowRankLaplace(20, there), x, y), fit(model, Laplace(there), x, y)
    assert int((low.covariance.values > 1e-6).sum()) == 3  # one direction a row
    torch.testing.assert_close(low.covariance.dense(), dense.covariance.dense(), rtol=1e-6, atol=1e-6)


def test_mode_not_reached_is_said() -> None:
    target = linear_gaussian()
    with pytest.warns(NotConvergedWarning, match=r"The mode was not reached"):
        fit(target.model, LowRankLaplace(map=MAP(num_steps=1, polish_steps=0)), *target.data)


def test_refusals() -> None:
    target = linear_gaussian()
    with pytest.raises(ValueError, match=r"LowRankLaplace\(rank=0\): write 1 or more"):
        fit(target.model, LowRankLaplace(rank=0), *target.data)
    with pytest.raises(ValueError, match=r"LowRankLaplace\(damping=-1.0\): write 0 or more"):
        fit(target.model, LowRankLaplace(damping=-1.0), *target.data)
    flat = supervised(torch.nn.Linear(2, 1), priors.student_t(df=1.0, scale=0.01), likelihoods.gaussian(scale=0.1))
    with pytest.raises(LaplaceError, match=r"prior precision of site 'net.weight' at the mode is -.*damping="):
        fit(flat, LowRankLaplace(), X, X.sum(1))


def test_indefinite_hessian_is_said() -> None:
    x, y = torch.zeros(30, 2), 3.0 * torch.ones(30)
    at_a_saddle = MAP(init=torch.zeros(1, 17), num_steps=0, polish_steps=0)
    net = mlp(2, (4,), activation="tanh")
    model = supervised(net, priors.normal(1.0), likelihoods.gaussian(scale=0.1))
    sentence = r"hessian precision at the mode is not positive definite: relative to the prior's .* is -"
    with pytest.raises(LaplaceError, match=sentence):
        fit(model, LowRankLaplace(4, at_a_saddle, curvature="hessian"), x, y)


def test_single_precision() -> None:
    net = mlp(2, (5,), activation="tanh")
    model = supervised(net, priors.normal(1.0), likelihoods.gaussian(scale=0.5))
    mode = fit(model, MAP(num_steps=300), X, X.sum(1)).theta[0]
    method = LowRankLaplace(5, MAP(init=mode, num_steps=0, polish_steps=0))
    double, single = (fit(model, method, X, X.sum(1), dtype=dtype) for dtype in (torch.float64, torch.float32))
    assert single.draws().dtype == torch.float32
    torch.testing.assert_close(single.covariance.values.double(), double.covariance.values, rtol=1e-3, atol=1e-3)
