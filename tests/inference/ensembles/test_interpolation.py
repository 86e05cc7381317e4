"""The warning of networks that interpolate, and the effective number of parameters behind it."""

import warnings

import pytest
import torch

import bnnzoo as bz
from bnnzoo.core.model.density import build_density
from bnnzoo.inference import TooNarrowWarning
from bnnzoo.inference.ensembles.gradient_noise import number_of_effective
from bnnzoo.inference.ensembles.interpolation import effective_parameters, warn_of_interpolation
from bnnzoo.testing import linear_gaussian

TARGET = linear_gaussian()


def data(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = 4 * torch.rand(size, 1, generator=generator) - 2
    return x, x[:, 0].sin() + 0.3 * torch.randn(size, generator=generator)


def test_the_effective_number_of_parameters_is_that_of_ridge_regression() -> None:
    x, _ = TARGET.data
    fisher = x.mT @ x / TARGET.noise**2
    expected = torch.linalg.solve(fisher + torch.eye(3), fisher).trace()
    found = effective_parameters(build_density(TARGET.model, *TARGET.data), TARGET.mean["w"])
    assert found == pytest.approx(float(expected), rel=1e-9)


@pytest.mark.parametrize("precision", [(0.0, 2.0, 3.0), (-1.0, 0.0, 3.0), (0.0, 0.0, 0.0)])
def test_a_parameter_without_prior_curvature_counts_whole(precision: tuple[float, ...]) -> None:
    """Where gradients determine all parameters, the trace exists at a precision of 0; less than that counts as 0."""
    gradients, prior = TARGET.data[0], torch.tensor(precision, dtype=torch.float64).clamp(min=0.0)
    fisher = gradients.mT @ gradients
    expected = torch.linalg.solve(fisher + prior.diag(), fisher).trace()
    found = number_of_effective(gradients, torch.tensor(precision, dtype=torch.float64))
    assert found == pytest.approx(float(expected), rel=1e-6)


def test_outputs_that_depend_on_no_parameter_use_none_up() -> None:
    assert number_of_effective(torch.zeros(4, 2), torch.zeros(2)) == 0.0


def test_an_ensemble_is_fitted_with_a_laplace_prior() -> None:
    """Its log density has no curvature but at 0, so that a linear model uses as many parameters as it has."""
    model = bz.models.supervised(bz.models.mlp(1, ()), bz.priors.laplace(1.0), bz.likelihoods.gaussian(0.3))
    posterior = bz.fit(model, bz.DeepEnsemble(2, num_steps=100), *data(12), progress=False)
    assert effective_parameters(posterior.density, posterior.theta[0, 0]) == pytest.approx(
        2.0, abs=3e-5
    )  # 12 eigenvalues of rounding error


def test_an_ensemble_that_interpolates_says_that_its_intervals_are_too_narrow() -> None:
    model = bz.models.supervised(bz.models.mlp(1, (50,)), bz.priors.normal(10.0), bz.likelihoods.gaussian())
    sentence = r"nearly interpolate: a member uses about \d+ effective parameters for 12 obs.*MixtureOf\(Laplace\(\)\)"
    with pytest.warns(TooNarrowWarning, match=sentence):
        bz.fit(model, bz.DeepEnsemble(2, num_steps=1000), *data(12), progress=False)


def test_an_ensemble_with_enough_observations_or_known_noise_is_quiet() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = bz.models.supervised(bz.models.mlp(1, (5,)), bz.priors.normal(1.0), bz.likelihoods.gaussian())
        bz.fit(model, bz.DeepEnsemble(2, num_steps=500), *data(100), progress=False)
        known = bz.models.supervised(bz.models.mlp(1, (50,)), bz.priors.normal(10.0), bz.likelihoods.gaussian(0.3))
        warn_of_interpolation(density := build_density(known, *data(12)), torch.zeros(density.num_params))


def test_classifiers_have_no_noise_scale() -> None:
    model = bz.models.supervised(bz.models.mlp(1, (50,), 2), bz.priors.normal(1.0), bz.likelihoods.categorical())
    x, y = data(12)
    density = build_density(model, x, (y > 0).long())
    assert effective_parameters(density, torch.zeros(density.num_params)) is None
