"""Moment-matched leave-one-out against posteriors without the observation, in closed form and refitted."""

import warnings

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch

import bnnzoo as bz
from bnnzoo.diagnostics.loo import UnreliableLooWarning
from bnnzoo.validation import moment_match, reloo

GENERATOR = torch.Generator().manual_seed(0)
X = torch.cat([torch.ones(20, 1), torch.randn(20, 2, generator=GENERATOR, dtype=torch.float64)], 1)
X[0] = torch.tensor([1.0, 4.0, -3.0])
Y = X @ torch.tensor([1.0, 0.5, -0.5], dtype=torch.float64)
Y = Y + torch.randn(20, generator=GENERATOR, dtype=torch.float64)
Y[0] += 8.0  # far out in both


def line(x, y):
    w = pyro.sample("w", dist.Normal(torch.zeros(3), 3.0).to_event(1))
    with pyro.plate("data", len(x)):
        pyro.sample("y", dist.Normal(x @ w, 1.0), obs=y)


def with_scale(x, y):
    w = pyro.sample("w", dist.Normal(torch.zeros(3), 3.0).to_event(1))
    sigma = pyro.sample("sigma", dist.HalfNormal(2.0))
    with pyro.plate("data", len(x)):
        pyro.sample("y", dist.Normal(x @ w, sigma), obs=y)


def exact() -> np.ndarray:
    """Return the log predictive density of each row of the line given the others."""
    found = []
    for row in range(len(X)):
        x, y = X[torch.arange(len(X)) != row], Y[torch.arange(len(X)) != row]
        covariance = torch.linalg.inv(x.mT @ x + torch.eye(3) / 9)
        scale = (1 + X[row] @ covariance @ X[row]).sqrt()
        found.append(float(dist.Normal(X[row] @ covariance @ x.mT @ y, scale).log_prob(Y[row])))
    return np.array(found)


def exact_with_scale() -> np.ndarray:
    """Return the log predictive density of each row given the others, where the scale is unknown, by quadrature over it."""
    log_scale = torch.linspace(-4.0, 3.0, 4001, dtype=torch.float64)
    sigma = log_scale.exp()

    def log_evidence(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        covariance = 9 * x @ x.mT + sigma[:, None, None].square() * torch.eye(len(x), dtype=torch.float64)
        at_each = dist.MultivariateNormal(torch.zeros(len(x), dtype=torch.float64), covariance).log_prob(y)
        return (at_each + dist.HalfNormal(torch.tensor(2.0).double()).log_prob(sigma) + log_scale).logsumexp(0)

    x, y = X.double(), Y.double()
    others = [torch.arange(len(x)) != row for row in range(len(x))]
    return np.array([float(log_evidence(x, y) - log_evidence(x[rest], y[rest])) for rest in others])


def silent(function, *arguments, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*arguments, **settings)


@pytest.mark.parametrize("method", [bz.NUTS(), bz.Laplace(), bz.Pathfinder()], ids=["NUTS", "Laplace", "Pathfinder"])
def test_an_outlier_has_the_density_that_the_others_give_it(method) -> None:
    posterior = bz.fit(line, method, X, Y, seed=1, progress=False)
    plain = silent(bz.diagnostics.loo, bz.posterior_predictive(posterior, X, Y))
    found = silent(moment_match, posterior)
    true = exact()
    assert float(plain.pareto_k[0]) > 0.7 and float(plain.elpd_i[0]) > true[0] + 1.5  # 2 to 3 nats too good
    assert abs(float(found.elpd_i[0]) - true[0]) < 0.25
    np.testing.assert_allclose(found.elpd_i[1:], true[1:], rtol=0, atol=0.1)
    assert abs(found.elpd - true.sum()) < 0.3 < abs(plain.elpd - true.sum())
    assert float(found.elpd) == pytest.approx(float(found.elpd_i.sum()))
    assert float(found.se) == pytest.approx(np.sqrt(20) * float(found.elpd_i.std()))
    assert found.p - plain.p == pytest.approx(plain.elpd - found.elpd)


def test_where_weights_are_fine_nothing_changes() -> None:
    x, y = X[1:], Y[1:]
    posterior = bz.fit(line, bz.NUTS(), x, y, progress=False)
    plain = bz.diagnostics.loo(bz.posterior_predictive(posterior, x, y))
    assert bool((plain.pareto_k < 0.7).all())
    found = moment_match(posterior)
    np.testing.assert_array_equal(found.elpd_i, plain.elpd_i)
    assert found.elpd == plain.elpd


def test_an_outlier_has_its_density_where_the_scale_is_unknown() -> None:
    """A refit would be no reference: its few draws near the outlier decide, and seeds differ by four nats."""
    posterior = bz.fit(with_scale, bz.NUTS(num_draws=2000), X, Y, progress=False)
    plain = silent(bz.diagnostics.loo, bz.posterior_predictive(posterior, X, Y))
    found, true = silent(moment_match, posterior), exact_with_scale()
    assert float(plain.pareto_k[0]) > 0.7
    assert abs(float(found.elpd_i[0]) - true[0]) < 0.3
    assert abs(float(plain.elpd_i[0]) - true[0]) > 0.5
    np.testing.assert_allclose(found.elpd_i[1:], true[1:], rtol=0, atol=0.15)


def test_refits_are_left_for_what_cannot_be_matched() -> None:
    silenced = silent(reloo, line, bz.Laplace(), X, Y, moment_match=True)
    posterior = bz.fit(line, bz.Laplace(), X, Y, progress=False)
    matched = silent(moment_match, posterior)
    assert float(matched.pareto_k[0]) < 0.7  # no refit: k would be zero
    assert float(silenced.pareto_k[0]) == pytest.approx(float(matched.pareto_k[0]))
    assert float(silenced.elpd_i[0]) == pytest.approx(float(matched.elpd_i[0]))
    strict = silent(reloo, line, bz.Laplace(), X, Y, moment_match=True, k_threshold=0.01)
    assert float(strict.pareto_k[0]) == 0.0


def test_what_is_still_unreliable_is_said_with_its_rows() -> None:
    posterior = bz.fit(line, bz.Laplace(), X, Y, progress=False)
    with pytest.warns(UnreliableLooWarning, match=r"of 20 .*above 0\.10 also where draws .*rows 4, .*reloo\("):
        found = moment_match(posterior, k_threshold=0.1)
    assert found.warning


def test_methods_without_leave_one_out_are_refused() -> None:
    with pytest.raises(ValueError, match="ensemble"):
        moment_match(silent(bz.fit, line, bz.MAP(num_members=30), X, Y, progress=False))


def test_two_outcomes_a_row_are_left_out_together() -> None:
    def model(x, y, z):
        w = pyro.sample("w", dist.Normal(torch.zeros(3), 3.0).to_event(1))
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(x @ w, 1.0), obs=y)
            pyro.sample("z", dist.Normal(x @ w, 10.0), obs=z)

    found = silent(moment_match, bz.fit(model, bz.Laplace(), X, Y, Y, progress=False))
    assert found.elpd_i.shape == (20,)
    alone = silent(moment_match, bz.fit(line, bz.Laplace(), X, Y, progress=False))
    assert float(found.elpd_i[0]) == pytest.approx(float(alone.elpd_i[0]) - np.log(10) - 0.92 - 0.4, abs=0.6)


def test_a_threshold_that_is_no_number_is_refused() -> None:
    posterior = bz.fit(line, bz.Laplace(), X, Y, progress=False)
    with pytest.raises(TypeError, match=r"^moment_match\(k_threshold='high'\): write a number or None\.$"):
        moment_match(posterior, k_threshold="high")
