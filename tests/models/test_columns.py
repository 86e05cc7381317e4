"""Offsets, weights of rows and censoring: columns beside y, from the fit to predictions and files."""

import warnings
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import scipy.stats
import torch
from torch import nn

import bnnzoo as bz
from bnnzoo.core.model.density import build_density
from bnnzoo.core.model.outputs import linearized
from bnnzoo.core.program.sites import ModelError
from bnnzoo.inference.laplace.curvature import MonteCarloFisher, precision
from bnnzoo.models import likelihoods, priors, supervised

N = 12
WEIGHTS = torch.arange(N) % 3


def model_of(likelihood, outputs=1):
    return supervised(nn.Linear(2, outputs), priors.normal(1.0), likelihood)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, 2))
    return x, rng.poisson(np.exp(x[:, 0])), rng.normal(size=N)


@dataclass(frozen=True)
class WithFactor:
    """A likelihood of a user's own, part of which is a factor."""

    def __call__(self, output, y=None):
        scale = pyro.sample("scale", dist.LogNormal(0.0, 1.0))
        with pyro.plate("data", len(output)):
            if y is not None:
                pyro.factor("tail", -(output.squeeze(-1) ** 2))
            return pyro.sample("y", dist.Normal(output.squeeze(-1), scale), obs=y)


@pytest.mark.parametrize(
    ("likelihood", "outputs", "kind"),
    [
        (likelihoods.poisson(), 1, "counts"),
        (likelihoods.gaussian(), 1, "real"),
        (likelihoods.gaussian(), 2, "pairs"),
        (likelihoods.weibull(), 1, "times"),
        (likelihoods.ordinal(3), 1, "labels"),
        (WithFactor(), 1, "real"),
    ],
)
def test_a_weight_counts_as_so_many_rows(likelihood, outputs, kind):
    torch.manual_seed(0)
    x, noise = torch.randn(N, 2), torch.randn(N, 2)
    targets = {"counts": torch.arange(N) % 4, "real": noise[:, 0], "pairs": noise, "times": noise[:, 0].exp()}
    y = targets.get(kind, torch.arange(N) % 3)
    censored = (torch.arange(N) % 2,) if kind == "times" else ()
    model = model_of(likelihood, outputs)
    weighted = build_density(model, x, y, None, WEIGHTS, *censored)
    repeated = [each.repeat_interleave(WEIGHTS, 0) for each in (x, y, *censored)]
    copies = build_density(model, *repeated[:2], None, None, *repeated[2:])
    theta = weighted.init(1, seed=1)[0]
    torch.testing.assert_close(weighted.log_joint(theta, *weighted.data), copies.log_joint(theta, *copies.data))
    plain = build_density(model, x, y, None, None, *censored)
    each = plain.log_likelihood(theta, *plain.data)
    torch.testing.assert_close(weighted.log_likelihood(theta, *weighted.data), WEIGHTS * each)
    if not plain.factors:
        for curvature in ("ggn", "empirical_fisher"):
            found = [precision(density, theta, curvature) for density in (weighted, copies)]
            torch.testing.assert_close(*found)


def test_a_batch_takes_its_rows_of_every_column(data):
    x, y, offset = (torch.as_tensor(v) for v in data)
    density = build_density(model_of(likelihoods.poisson()), x, y, offset, WEIGHTS)
    theta, rows = density.init(1, seed=0)[0], [3, 7, 8]
    found = density.log_likelihood(theta, *(column[rows] for column in density.data))
    torch.testing.assert_close(found, density.log_likelihood(theta, *density.data)[rows])


COLUMNS = {"offset": pd.Series(np.random.default_rng(1).normal(size=N)), "row_weights": WEIGHTS}


@pytest.fixture(scope="module")
def fitted(data):
    method = bz.MAP(num_steps=20, polish_steps=0)
    frame, y = pd.DataFrame(data[0]), pd.Series(data[1])
    return bz.fit(model_of(likelihoods.poisson()), method, frame, y, progress=False, **COLUMNS), COLUMNS


def test_columns_pass_through_predictions(fitted, data):
    posterior, columns = fitted
    x, y, _ = data
    test = bz.predict(posterior, x, y, **columns)
    assert {*test["predictions_constant_data"].data_vars} == {"x", "offset", "row_weights"}
    rate = bz.predict(posterior, x, offset=0.0)["conditional"]["mean"].to_numpy() * np.exp(columns["offset"].to_numpy())
    np.testing.assert_allclose(test["conditional"]["mean"], rate, rtol=1e-6)
    expected = scipy.stats.poisson(rate).logpmf(y) * WEIGHTS.numpy()
    np.testing.assert_allclose(test["predictions_log_likelihood"]["y"], expected, rtol=1e-5)


@pytest.mark.slow
def test_rows_of_weight_zero_are_left_out_of_loo(data):
    x, y, _ = data
    posterior = bz.fit(
        model_of(likelihoods.poisson()), bz.Laplace(bz.MAP(num_steps=100)), x, y, progress=False, **COLUMNS
    )
    train = bz.posterior_predictive(posterior, x, y, num_draws=200, **COLUMNS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bz.diagnostics.UnreliableLooWarning)  # of twelve rows
        assert bz.diagnostics.loo(train).n_data_points == N - N // 3


def test_rows_without_the_offset_of_the_fit_are_refused(fitted, data):
    posterior, _ = fitted
    with pytest.raises(
        ValueError, match=r"fitted with offset=, and these rows have none: pass offset= .* offset=0.0"
    ) as error:
        bz.predict(posterior, data[0])
    assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match="fitted with offset="):
        bz.posterior_predictive(posterior, *data[:2])


def test_columns_are_part_of_a_file(fitted, data, tmp_path):
    posterior, columns = fitted
    x, y, _ = data
    offset = columns["offset"]
    posterior.save(tmp_path / "fit.bnn")
    same = bz.load(tmp_path / "fit.bnn", posterior.density.model, pd.DataFrame(x), pd.Series(y), **columns)
    without = bz.load(tmp_path / "fit.bnn", posterior.density.model)
    for each in (same, without):
        found, expected = (bz.predict(p, x[:3], offset=offset[:3].to_numpy())["predictions"] for p in (each, posterior))
        assert found.equals(expected)
    with pytest.raises(ValueError, match="argument 3 of the model"):
        bz.load(tmp_path / "fit.bnn", posterior.density.model, x, y, offset=offset + 1.0, row_weights=WEIGHTS)


def test_a_file_of_event_times_is_loaded_without_its_data(tmp_path):
    x, y = torch.randn(N, 2), torch.rand(N) + 0.1
    model = model_of(likelihoods.weibull())
    posterior = bz.fit(model, bz.MAP(num_steps=5, polish_steps=0), x, y, censored=WEIGHTS > 0, progress=False)
    posterior.save(tmp_path / "fit.bnn")
    found = bz.predict(bz.load(tmp_path / "fit.bnn", model), x[:2])["predictions"]["y"]
    assert found.equals(bz.predict(posterior, x[:2])["predictions"]["y"])


def test_draws_from_the_prior_take_columns_by_name(data):
    x, y, offset = data
    model = model_of(likelihoods.poisson())
    tree = bz.prior_predictive(model, x, y, offset=offset, num_draws=3)
    assert "offset" in tree["constant_data"]


REFUSED = [
    (
        likelihoods.poisson(),
        {"censored": torch.zeros(N)},
        TypeError,
        r"supervised: likelihoods.poisson takes no censored=: use likelihoods.weibull\(\) or log_normal\(\)",
    ),
    (
        WithFactor(),
        {"offset": 0.5},
        TypeError,
        "supervised: WithFactor takes no offset=: write offset=None into its __call__",
    ),
    (
        likelihoods.poisson(),
        {"offset": torch.zeros(N - 1)},
        ValueError,
        r"poisson: offset has shape \(11,\), but needs shape \(12,\), one number for each row",
    ),
    (
        likelihoods.poisson(),
        {"offset": torch.tensor([0.0] * (N - 1) + [torch.inf])},
        ValueError,
        "poisson: offset is inf in row 11, which is not a finite number",
    ),
    (likelihoods.poisson(), {"offset": "time"}, TypeError, "poisson: offset must be a tensor, but is str"),
    (
        likelihoods.poisson(),
        {"row_weights": torch.tensor([1.0, -2.0] + [1.0] * (N - 2))},
        ValueError,
        "supervised: row_weights is -2.0 in row 1, but a weight is a number >= 0, and 0 leaves a row out",
    ),
    (
        likelihoods.poisson(),
        {"row_weights": torch.ones(3)},
        ValueError,
        r"supervised: row_weights has shape \(3,\), but needs shape \(12,\)",
    ),
    (likelihoods.poisson(), {"row_weights": [1.0] * N}, TypeError, "row_weights must be a tensor, but is list"),
    (
        likelihoods.weibull(),
        {"censored": torch.full((N,), 2)},
        ValueError,
        "weibull: censored is 2 in row 0, but must be 0, where the event came at y, or 1, where it came later",
    ),
    (
        likelihoods.log_normal(),
        {"censored": torch.zeros(N, 1)},
        ValueError,
        r"log_normal: censored has shape \(12, 1\), but needs shape \(12,\)",
    ),
]


@pytest.mark.parametrize(("likelihood", "columns", "error", "message"), REFUSED)
def test_wrong_columns_are_refused_in_one_sentence(likelihood, columns, error, message):
    with pytest.raises(error, match=message) as caught:
        model_of(likelihood)(torch.zeros(N, 2), torch.arange(1, N + 1), **columns)
    assert "\n" not in str(caught.value)


def test_draws_of_censored_times_are_no_fisher_information():
    model, y = model_of(likelihoods.weibull()), torch.rand(N) + 0.1
    with pytest.raises(ModelError, match=r"MonteCarloFisher draws outcomes.*'y' is censored.*curvature='ggn'"):
        bz.fit(
            model,
            bz.Laplace(bz.MAP(num_steps=5), curvature=MonteCarloFisher()),
            torch.randn(N, 2),
            y,
            censored=WEIGHTS > 0,
            progress=False,
        )


def test_a_linearised_model_keeps_single_precision():
    x, y = torch.randn(N, 2).float(), (torch.rand(N) + 0.1).float()
    model = supervised(nn.Linear(2, 1).float(), priors.normal(1.0), likelihoods.gamma(dist.LogNormal(0.0, 1.0)))
    density = build_density(model, x, y, dtype=torch.float32)
    theta = density.init(1, seed=0)[0].float()
    assert linearized(density, theta).log_likelihood(theta, x, y).dtype == torch.float32
