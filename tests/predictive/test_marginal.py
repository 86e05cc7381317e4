"""Closed-form predictions against quadrature, exact predictives and draws of the same linearised model."""

import math

import numpy as np
import pytest
import torch

from bnnzoo.inference import MAP, DiagonalLaplace, KFACLaplace, Laplace, LastLayerLaplace, fit
from bnnzoo.models import likelihoods, mlp, priors, supervised
from bnnzoo.predictive import function_moments, marginal_predictive, predict
from bnnzoo.predictive.marginal import pairwise_probit
from bnnzoo.testing.targets import linear_gaussian
from tests.helpers.densities import cases

SHORT = MAP(num_steps=200)
NUM_NODES = 60


def quadrature(mean: torch.Tensor, covariance: torch.Tensor) -> torch.Tensor:
    """Return the mean of softmax under a Gaussian of two or three logits by Gauss-Hermite quadrature of differences."""
    nodes, weights = (torch.from_numpy(v) for v in np.polynomial.hermite_e.hermegauss(NUM_NODES))
    contrast = torch.cat([-torch.ones(len(mean) - 1, 1), torch.eye(len(mean) - 1)], 1)
    root = torch.linalg.cholesky(contrast @ covariance @ contrast.mT)
    grid = torch.cartesian_prod(*[nodes] * len(root)).reshape(-1, len(root))
    weight = torch.cartesian_prod(*[weights] * len(root)).reshape(-1, len(root)).prod(1)
    differences = contrast @ mean + grid @ root.mT
    logits = torch.cat([torch.zeros(len(grid), 1), differences], 1)
    return (weight[:, None] * logits.softmax(1)).sum(0) / weight.sum()


def test_probit_is_within_two_hundredths_of_quadrature_for_two_classes() -> None:
    errors = []
    for gap in torch.linspace(-6, 6, 13):
        for variance in (0.01, 0.5, 2.0, 8.0, 30.0):
            mean, covariance = torch.tensor([float(gap), 0.0]), torch.diag(torch.tensor([variance, 1e-12]))
            errors.append((pairwise_probit(mean, covariance) - quadrature(mean, covariance)).abs().max())
    assert max(errors) < 0.02


def test_covariances_between_logits_bring_the_probabilities_nearer_to_quadrature() -> None:
    generator = torch.Generator().manual_seed(0)
    pairwise, separate = [], []
    for _ in range(30):
        mean, root = 2 * torch.randn(3, generator=generator), torch.randn(3, 3, generator=generator)
        covariance = 2 * root @ root.mT + 4.0  # what all logits share
        exact = quadrature(mean, covariance)
        pairwise.append(float((pairwise_probit(mean, covariance) - exact).abs().max()))
        shrunk = mean / (1 + math.pi / 8 * covariance.diagonal()).sqrt()
        separate.append(float((shrunk.softmax(0) - exact).abs().max()))
    assert max(pairwise) < 0.12
    assert np.mean(pairwise) < 0.6 * np.mean(separate)


@pytest.fixture(scope="module")
def mode():
    torch.set_default_dtype(torch.float64)
    x = torch.randn(12, 3, generator=torch.Generator().manual_seed(1))
    model = supervised(mlp(3, (4,)), priors.normal(0.5), likelihoods.gaussian())
    return model, x, x[:, 0] * x[:, 1], fit(model, MAP(num_steps=100), x, x[:, 0] * x[:, 1])


@pytest.mark.parametrize("method", [Laplace, LastLayerLaplace, KFACLaplace, DiagonalLaplace])
def test_moments_are_those_of_many_draws(mode, method) -> None:
    if method is KFACLaplace:
        pytest.importorskip("curvlinops")
    model, x, y, found = mode
    posterior = fit(model, method(MAP(init=found, num_steps=0, polish_steps=0)), x, y)
    exact = marginal_predictive(posterior, x)["marginal"]
    draws = predict(posterior, x, num_draws=4000)["conditional"]
    sd = np.sqrt(exact["epistemic_variance"])
    assert (abs(draws["mean"].mean(("chain", "draw")) - exact["mean"]) < 5 * sd / 4000**0.5).all()
    total = draws["mean"].var(("chain", "draw")) + draws["variance"].mean(("chain", "draw"))
    np.testing.assert_allclose(total, exact["variance"], rtol=0.2)


@pytest.mark.parametrize("name", ["categorical", "bernoulli", "poisson"])
def test_other_families_are_near_many_draws(name: str) -> None:
    model, data = cases()[name]
    posterior = fit(model, Laplace(SHORT), *data)
    found = marginal_predictive(posterior, *data[:1])["marginal"]
    draws = predict(posterior, *data[:1], num_draws=2000)["conditional"]
    if name == "poisson":
        error = draws["mean"].std(("chain", "draw")) / 2000**0.5
        assert (abs(draws["mean"].mean(("chain", "draw")) - found["mean"]) < 5 * error).all()
        epistemic, noise = draws["mean"].var(("chain", "draw")), draws["variance"].mean(("chain", "draw"))
        np.testing.assert_allclose(found["epistemic_variance"], epistemic, rtol=0.5)
        np.testing.assert_allclose(found["variance"] - found["epistemic_variance"], noise, rtol=0.1)
    else:
        assert found["probs"].dims == ("obs_id", "class_id")
        assert abs(draws["probs"].mean(("chain", "draw")) - found["probs"]).max() < 0.05


def test_exact_on_a_linear_gaussian_model() -> None:
    target = linear_gaussian()
    posterior = fit(target.model, Laplace(), *target.data)
    x = torch.randn(6, 3)
    found = marginal_predictive(posterior, x)["marginal"]
    mean, variance = target.predictive(x)
    np.testing.assert_allclose(found["mean"], mean, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(found["variance"], variance, rtol=1e-6)


def test_refusals() -> None:
    model, data = cases()["mixture"]
    with pytest.raises(ValueError, match=r"no closed form for a MixtureSameFamily likelihood.*Use predict"):
        marginal_predictive(fit(model, Laplace(SHORT), *data), *data)
    with pytest.raises(ValueError, match="needs one Gaussian, and the posterior of MAP is none"):
        marginal_predictive(fit(model, SHORT, *data), *data)


@pytest.mark.parametrize("predictive", [marginal_predictive, function_moments])
def test_inputs_of_another_width_are_refused(predictive) -> None:
    target = linear_gaussian(num_inputs=3)
    posterior = fit(target.model, Laplace(), *target.data, progress=False)
    with pytest.raises(
        ValueError, match=r"argument 1 has shape \(5, 4\), but the model was fitted to \(40, 3\): only the number"
    ):
        predictive(posterior, torch.zeros(5, 4))
