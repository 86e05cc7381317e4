"""Evidential heads against numerical integration and torch, their fit, and their known failure."""

import numpy as np
import pytest
import torch
import xarray as xr
from torch.distributions import Dirichlet, kl_divergence

import bnnzoo as bz
from bnnzoo.models.evidential import (
    _EvidentialCategorical,
    _EvidentialStudentT,
    _kl_to_flat,
    concentration,
    dirichlet_evidence,
    normal_inverse_gamma,
    normal_inverse_gamma_evidence,
)
from bnnzoo.predictive.features import features


def test_regulariser_is_the_divergence_of_torch():
    alpha = torch.rand(5, 4) * 5 + 0.1
    torch.testing.assert_close(_kl_to_flat(alpha), kl_divergence(Dirichlet(alpha), Dirichlet(torch.ones(5, 4))))


def test_losses_are_expectations_over_the_dirichlet():
    alpha, y = torch.tensor([[4.0, 2.0, 1.5]]), torch.tensor([1])
    p = Dirichlet(alpha[0]).sample((200_000,))
    marginal = -_EvidentialCategorical(alpha, 0.0, "marginal").log_prob(y)
    squared = -_EvidentialCategorical(alpha, 0.0, "squared").log_prob(y)
    assert float(marginal) == pytest.approx(-float(p[:, 1].mean().log()), abs=0.005)
    brier = ((p - torch.tensor([0.0, 1.0, 0.0])) ** 2).sum(-1)
    assert float(squared) == pytest.approx(float(brier.mean()), abs=5 * float(brier.std()) / 200_000**0.5)


def test_student_t_is_the_integrated_likelihood():
    parameters = normal_inverse_gamma(torch.tensor([[0.5, 1.0, 2.0, 0.3]]))
    gamma, nu, alpha, beta = parameters
    variance = beta / torch.distributions.Gamma(alpha, 1.0).sample((400_000,))
    mean = gamma + torch.sqrt(variance / nu) * torch.randn_like(variance)
    density = torch.exp(torch.distributions.Normal(mean, variance.sqrt()).log_prob(torch.tensor(1.2)))
    exact = torch.exp(_EvidentialStudentT(parameters, 0.0).log_prob(torch.tensor([1.2])))
    assert abs(float(density.mean() - exact)) < 5 * float(density.std()) / 400_000**0.5


def test_regularisers_take_off_evidence_for_what_is_wrong():
    wrong = torch.tensor([[10.0, 1.0]]), torch.tensor([1])
    weights = [float(_EvidentialCategorical(wrong[0], w, "marginal").log_prob(wrong[1])) for w in (0.0, 1.0)]
    assert weights[1] < weights[0]
    right = [float(_EvidentialCategorical(wrong[0], w, "marginal").log_prob(torch.tensor([0]))) for w in (0.0, 1.0)]
    assert right[1] == pytest.approx(right[0])
    parameters = normal_inverse_gamma(torch.zeros(1, 4))
    near, far = (
        float(_EvidentialStudentT(parameters, 0.0).log_prob(y) - _EvidentialStudentT(parameters, 1.0).log_prob(y))
        for y in (torch.tensor([0.0]), torch.tensor([3.0]))
    )
    assert near == 0.0
    assert far == pytest.approx(3 * float(2 * parameters.nu + parameters.alpha))


def test_evidence_grows_where_nothing_is_known():
    """The known failure: on a line through two clusters, evidence is larger far outside than between them."""
    torch.manual_seed(0)
    x = torch.cat([torch.randn(60, 1) * 0.3 - 1, torch.randn(60, 1) * 0.3 + 1])
    y = torch.arange(120) // 60
    model = bz.models.supervised(bz.models.mlp(1, (10,), 2, "relu"), bz.priors.normal(1.0), dirichlet_evidence())
    posterior = bz.fit(model, bz.MAP(num_steps=300, num_members=2, polish_steps=0), x, y, progress=False)
    tree = bz.predict(posterior, x, y)
    probs = tree["conditional"]["probs"].mean(("chain", "draw"))
    assert float((probs.argmax("class_id") == tree["predictions_observed_data"]["y"]).mean()) > 0.95
    places = torch.tensor([[0.0], [1.0], [50.0]])
    output = features(posterior, places, layer="2")
    alpha = xr.apply_ufunc(lambda v: concentration(torch.as_tensor(v)).numpy(), output).rename(feature="class_id")
    epistemic = bz.uncertainty.decompose_dirichlet(alpha)["epistemic"].mean(("chain", "draw")).values
    assert epistemic[1] < epistemic[0]  # less is known between the classes than in one of them
    assert epistemic[2] < 0.2 * epistemic[1]  # and yet most is claimed to be known where there were no data at all


def test_regression_is_fitted_and_split():
    torch.manual_seed(0)
    x = torch.rand(200, 1) * 2 - 1
    y = x[:, 0] + 0.2 * torch.randn(200)
    net = bz.models.mlp(1, (10,), 4)
    model = bz.models.supervised(net, bz.priors.normal(1.0), normal_inverse_gamma_evidence(0.01))
    posterior = bz.fit(model, bz.MAP(num_steps=300, polish_steps=0), x, y, progress=False)
    mean = bz.predict(posterior, x)["conditional"]["mean"].values[0, 0]
    assert np.sqrt(np.mean((mean - x[:, 0].numpy()) ** 2)) < 0.1
    parameters = normal_inverse_gamma(torch.as_tensor(features(posterior, x, layer="2").values))
    arrays = [xr.DataArray(parameter.numpy()[0, 0], dims="obs_id") for parameter in parameters[1:]]
    split = bz.uncertainty.decompose_normal_inverse_gamma(*arrays)
    assert 0.1 < float(split["aleatoric"].mean() ** 0.5) < 0.4


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="dirichlet_evidence: regularization must not be negative, but is -1"):
        dirichlet_evidence(-1)
    with pytest.raises(ValueError, match="loss must be 'marginal' or 'squared', but is 'kl'"):
        dirichlet_evidence(loss="kl")
    with pytest.raises(ValueError, match=r"one output per class, but its output has shape \(5, 1\)"):
        dirichlet_evidence()(torch.zeros(5, 1))
    with pytest.raises(ValueError, match=r"four outputs, but its output has shape \(5, 2\): .*out_features=4"):
        normal_inverse_gamma_evidence()(torch.zeros(5, 2))
