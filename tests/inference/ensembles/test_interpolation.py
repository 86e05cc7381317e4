"""The warning of networks that interpolate, and the effective number of parameters behind it."""

import warnings

import pytest
import torch

import bnnzoo as bz
from bnnzoo.core.model.density import build_density
from bnnzoo.inference import TooNarrowWarning
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
