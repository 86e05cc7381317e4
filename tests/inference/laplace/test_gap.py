"""Uncertainty in the gap between two clusters of data, against long Hamiltonian Monte Carlo runs (Foong et al. 2020)."""

from pathlib import Path

import numpy as np
import pytest
import torch

from bnnzoo.inference import MAP, Laplace, MeanFieldVI, fit
from bnnzoo.models import likelihoods, mlp, priors, supervised
from bnnzoo.predictive import predict
from bnnzoo.predictive.linearized import function_moments

pytestmark = pytest.mark.reference


@pytest.fixture(scope="module")
def foong(bnnzoo_data: Path) -> dict[str, torch.Tensor]:
    folder = bnnzoo_data / "foong2d"
    with np.load(folder / "hmc_1HL.npz") as file:
        middle = np.abs(file["lambdas"]) < 0.2
        points, variance = file["xlambdas"][middle], file["pred_var_slice"][middle]
    x, y = (np.loadtxt(folder / f"origin_{name}.txt") for name in "xy")
    values = {"x": x, "y": y, "points": points, "sd": np.sqrt(variance)}
    return {name: torch.from_numpy(value).to(torch.get_default_dtype()) for name, value in values.items()}


@pytest.fixture
def model():
    return supervised(mlp(2, (50,), 1, activation="relu"), priors.fan_in(4.0), likelihoods.gaussian(scale=0.1))


@pytest.mark.filterwarnings("ignore:The mode was not reached")  # its ReLUs have kinks
def test_linearised_laplace_has_the_size_of_the_exact_sd(foong, model) -> None:
    posterior = fit(model, Laplace(MAP(num_steps=2000, polish_steps=2000)), foong["x"], foong["y"])
    _, covariance = function_moments(posterior, foong["points"])
    sd = covariance[:, 0, :, 0].diagonal().sqrt()
    ratio = float(sd.mean() / foong["sd"].mean())
    assert 1 / 1.5 < ratio < 1.5


def test_mean_field_vi_has_less_than_half_of_it(foong, model) -> None:
    posterior = fit(model, MeanFieldVI(num_steps=5000, num_averaged=500), foong["x"], foong["y"])
    draws = predict(posterior, foong["points"], num_draws=500)["conditional"]["mean"].to_numpy()
    assert draws.std((0, 1)).mean() < 0.5 * float(foong["sd"].mean())
