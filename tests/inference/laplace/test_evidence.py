"""Hyperparameters of highest evidence against the maximum of the exact evidence of a linear model."""

import math

import pytest
import torch
from torch import nn

from bnnzoo.inference import MAP, Laplace, LastLayerLaplace, maximise_evidence
from bnnzoo.models import likelihoods, mlp, priors, supervised

X = torch.randn(30, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Y = X @ torch.tensor([2.0, -1.0, 0.5], dtype=torch.float64) + 0.3 * torch.randn(
    30, generator=torch.Generator().manual_seed(1), dtype=torch.float64
)


def linear(scale: float, noise: float):
    return supervised(nn.Linear(3, 1, bias=False), priors.normal(scale), likelihoods.gaussian(scale=noise))


def exact_log_evidence(scale: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    covariance = scale**2 * X @ X.mT + noise**2 * torch.eye(30)
    return torch.distributions.MultivariateNormal(torch.zeros(30), covariance).log_prob(Y)


def test_finds_the_maximum_of_the_exact_evidence() -> None:
    log_values = torch.zeros(2, requires_grad=True)
    optimiser = torch.optim.LBFGS([log_values], max_iter=100, line_search_fn="strong_wolfe")

    def loss():
        optimiser.zero_grad()
        value = -exact_log_evidence(*log_values.exp())
        value.backward()
        return value

    optimiser.step(loss)
    scale, noise = log_values.detach().exp()
    method = Laplace(MAP(num_steps=10))
    found = maximise_evidence(linear, method, X, Y, start={"scale": 1.0, "noise": 1.0}, tolerance=0.005)
    assert found.values["scale"] == pytest.approx(float(scale), rel=0.01)
    assert found.values["noise"] == pytest.approx(float(noise), rel=0.01)
    assert found.log_evidence == pytest.approx(float(exact_log_evidence(scale, noise)), abs=1e-3)
    for values, log_evidence in found.path[:5]:
        exact = exact_log_evidence(*(torch.tensor(v) for v in values.values()))
        assert log_evidence == pytest.approx(float(exact), abs=1e-6)


def test_mode_held_fixed_stays_where_it_was() -> None:
    def model(scale: float):
        return supervised(mlp(3, (4,)), priors.normal(scale), likelihoods.gaussian(scale=0.5))

    method = LastLayerLaplace(MAP(num_steps=50, polish_steps=20))
    found = maximise_evidence(model, method, X, Y, start={"scale": 20.0}, refit=False, tolerance=0.2)
    again = maximise_evidence(model, method, X, Y, start={"scale": 20.0}, refit=False, max_fits=1)
    assert torch.equal(found.posterior.loc, again.posterior.loc)
    assert found.log_evidence == max(value for _, value in found.path) > again.log_evidence


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"start": {"scale": -1.0}}, r"start\['scale'\]=-1.0: write a positive number"),
        ({"start": {"scale": math.inf}}, r"start\['scale'\]=inf"),
        ({"start": {}}, "start is empty: name the hyperparameters"),
        ({"start": {"scale": 1.0}, "tolerance": 0.0}, r"maximise_evidence\(tolerance=0.0\): write a positive number"),
        ({"start": {"scale": 1.0}, "max_fits": 0}, r"maximise_evidence\(max_fits=0\): write 1 or more"),
    ],
)
def test_refusals(settings, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        maximise_evidence(linear, Laplace(), X, Y, **settings)
