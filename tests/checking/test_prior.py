"""Priors against data: posteriors that lie where the prior does not expect them, and data that it does not produce."""

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
import xarray as xr
from arviz_stats import psense_summary

import bnnzoo as bz
from bnnzoo.checking.findings import of_conflict, of_prior_prediction
from bnnzoo.checking.prior import Conflict, Sensitivity, conflicts, power_scaling, prior_predictions
from bnnzoo.core.density import LogDensity, build_density


def normal_mean(y: torch.Tensor) -> LogDensity:
    def model(y: torch.Tensor) -> None:
        mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(mu, 1.0), obs=y)

    return build_density(model, y)


@pytest.mark.parametrize("size", [1, 10])
def test_z_is_standard_normal_over_the_prior(size: int) -> None:
    rng, found = np.random.default_rng(0), []
    for seed in range(120):
        y = rng.normal() + rng.normal(size=size)
        theta = y.sum() / (size + 1) + rng.normal(size=(1000, 1)) / np.sqrt(size + 1)
        found += [each.z for each in conflicts(normal_mean(torch.from_numpy(y)), torch.from_numpy(theta), seed)]
    assert len(found) == 120
    assert abs(np.mean(found)) < 4 / np.sqrt(120)
    assert abs(np.var(found) - 1) < 4 * np.sqrt(2 / 120)


def test_a_posterior_far_from_its_prior_is_a_conflict() -> None:
    theta = 6.0 + 0.1 * torch.randn(500, 1, generator=torch.Generator().manual_seed(0)).double()
    (found,) = conflicts(normal_mean(torch.full((5,), 6.0).double()), theta, 0)
    assert found.name == "mu"
    assert found.z > 3.8
    assert found.p_value < 2e-4


def test_priors_that_depend_on_other_sites_and_weights_are_left_out() -> None:
    def model(y: torch.Tensor) -> None:
        tau = pyro.sample("tau", dist.HalfNormal(1.0))
        with pyro.plate("groups", 3):
            mu = pyro.sample("mu", dist.Normal(0.0, tau))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(mu.mean(), 1.0), obs=y)

    density = build_density(model, torch.randn(6))
    theta = torch.randn(50, 4)
    assert [each.name for each in conflicts(density, theta, 0)] == ["tau"]


def tree_of(sd: float, y: np.ndarray) -> xr.DataTree:
    rng = np.random.default_rng(0)
    scale = sd * np.abs(rng.normal(size=(1, 1000, 1)))
    drawn = sd * rng.normal(size=(1, 1000, 1)) + scale * rng.normal(size=(1, 1000, len(y)))
    groups = {
        "prior_predictive": xr.Dataset({"y": (("chain", "draw", "obs_id"), drawn)}),
        "observed_data": xr.Dataset({"y": ("obs_id", y)}),
    }
    return xr.DataTree.from_dict(groups)


def findings(sd: float, y: np.ndarray) -> list[str]:
    found = [of_prior_prediction(each, 0.002) for each in prior_predictions(tree_of(sd, y))]
    return [each.sentence for each in found if each]


def test_data_that_a_prior_hardly_produces_are_told_from_data_of_a_wide_prior() -> None:
    y = np.random.default_rng(1).normal(size=30)
    assert findings(1.0, y) == []
    assert findings(30.0, y) == []
    assert [each.split(":")[0] for each in findings(0.1, y)] == ["The prior hardly produces data like these"]
    vague = findings(5000.0, y)
    assert len(vague) == 1
    assert vague[0].startswith("Data sets from the prior scatter 3,800 times as much as the data (")


def test_power_scaling_is_arvizs_entry_by_entry() -> None:
    def model(y: torch.Tensor) -> None:
        with pyro.plate("k", 2):
            mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(mu[0] + mu[1] * torch.tensor([-1.0, 0.0, 1.0, 0.5]), 1.0), obs=y)

    y = torch.tensor([4.0, 5.0, 5.5, 6.0])
    posterior = bz.fit(model, bz.NUTS(num_warmup=200, num_draws=200), y, progress=False)
    tree = bz.posterior_predictive(posterior, y, weights=False)
    found = power_scaling(tree, ["mu[1]", "mu[0]", "nu", "nu[3]"])
    table = psense_summary(tree, round_to=9)
    assert found.keys() == {"mu[0]", "mu[1]"}
    for name, each in found.items():
        assert tuple(each) == pytest.approx(tuple(table.loc[name, ["prior", "likelihood"]]), abs=1e-8)
        assert each.is_conflict == (table.loc[name, "diagnosis"] == "potential prior-data conflict")
    assert found["mu[0]"].is_conflict
    assert power_scaling(xr.DataTree(), ["mu"]) == {}


def test_power_scaling_is_evidence_and_no_verdict() -> None:
    found = of_conflict(Conflict("mu", 5.1, 1e-7), Sensitivity(0.3, 0.01))
    assert found.is_fault == of_conflict(Conflict("mu", 5.1, 1e-7)).is_fault
    assert "sensitivity 0.30 to the prior and 0.01 to the likelihood, not both above 0.05." in found.sentence
    assert found.evidence["prior_sensitivity"] == 0.3
    assert "Power scaling" not in of_conflict(Conflict("mu", 5.1, 1e-7)).sentence
