"""Starts and scales of chains in lockstep: data in raw units, and models that keep their own."""

import math

import arviz as az
import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

import bnnzoo as bz
from bnnzoo.core.method import FitContext, Method
from bnnzoo.core.model.density import LogDensity, build_density
from bnnzoo.inference.markov.lockstep import pilot as module
from bnnzoo.inference.markov.lockstep.pilot import pilot

pytestmark = pytest.mark.filterwarnings("ignore::bnnzoo.core.fit_warnings.ChainsApartWarning")  # 150 draws are few

YEARS = 1700 + torch.arange(0, 321, 8.0, dtype=torch.float64)
WARMTH = 8 + 0.004 * (YEARS - 1700) + 0.4 * torch.randn(41, generator=torch.Generator().manual_seed(0)).double()


def trend(x: Tensor, y: Tensor) -> None:
    """A line with a wide prior, whose intercept and slope are correlated at 0.999."""
    a, b = pyro.sample("a", dist.Normal(0.0, 100.0)), pyro.sample("b", dist.Normal(0.0, 10.0))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal(a + b * x, 0.4), obs=y)


def exact(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return means and standard deviations of intercept and slope."""
    design = torch.stack([torch.ones_like(x), x], 1)
    covariance = torch.linalg.inv(design.mT @ design / 0.16 + torch.diag(torch.tensor([1e-4, 1e-2]).to(x)))
    return covariance @ (design.mT @ y) / 0.16, covariance.diagonal().sqrt()


def normal(y: Tensor) -> None:
    mu, sigma = pyro.sample("mu", dist.Normal(178.0, 20.0)), pyro.sample("sigma", dist.Exponential(1.0))
    pyro.sample("y", dist.Normal(mu, sigma), obs=y)


def density_of(model: object, *data: Tensor) -> LogDensity:
    return build_density(model, *data, dtype=torch.float64, device="cpu")


@pytest.mark.parametrize(
    "method",
    [bz.MAMS(num_warmup=150, num_draws=150), bz.ChEESHMC(num_warmup=150, num_draws=150)],
    ids=lambda m: type(m).__name__,
)
def test_a_trend_over_calendar_years_is_found_as_typed(method: Method) -> None:
    posterior = bz.fit(trend, method, YEARS, WARMTH, progress=False)
    mean, sd = exact(YEARS, WARMTH)
    for i, draws in enumerate(posterior.draws().permute(2, 0, 1).numpy()):
        ess = float(az.ess(draws))
        assert ess > 100
        assert abs(draws.mean() - float(mean[i])) < 5 * float(sd[i]) / math.sqrt(ess)
        assert abs(draws.std() / float(sd[i]) - 1) < 5 / math.sqrt(2 * float(az.ess((draws - draws.mean()) ** 2)))


def test_heights_in_single_precision_leave_no_chain_behind() -> None:
    y = (154 + 8 * torch.randn(350, generator=torch.Generator().manual_seed(1))).float()
    draws = bz.fit(normal, bz.MAMS(num_warmup=200, num_draws=200), y, progress=False).draws()
    np.testing.assert_allclose(draws[..., 0].mean(1).numpy(), float(y.mean()), atol=0.2)


def test_scales_are_those_of_the_posterior_and_starts_lie_within_it() -> None:
    found = pilot(bz.MAMS(num_chains=6), density_of(trend, YEARS, WARMTH), FitContext(seed=0))
    mean, sd = exact(YEARS, WARMTH)
    assert found.root is not None
    torch.testing.assert_close(found.root.square().sum(1).sqrt(), sd, rtol=0.01, atol=0.0)
    z = (found.theta - mean) / sd
    assert bool((z.abs() < 4).all())
    assert len(z[:, 0].unique()) == 6


@pytest.mark.parametrize(
    "settings",
    [
        bz.MAMS(step_size=0.1),
        bz.MAMS(num_warmup=0, step_size=0.1),
        bz.MAMS(init=torch.zeros(4, 2, dtype=torch.float64)),
    ],
    ids=["step size", "no warm-up", "init"],
)
def test_what_is_given_in_the_units_of_the_model_keeps_them(settings: bz.MAMS) -> None:
    assert pilot(settings, density_of(trend, YEARS, WARMTH), FitContext(seed=0)).root is None


def test_draws_that_cost_too_much_are_moved_to_the_middle(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sharp edge half a standard deviation from the mode, which a Gaussian does not know."""

    def edge() -> None:
        a = pyro.sample("a", dist.Normal(torch.zeros(2), 1.0).to_event(1))
        pyro.factor("edge", -1e4 * (a - 0.5).clamp(min=0.0).sum())

    monkeypatch.setattr(module, "MAX_HALVINGS", 3)
    found = pilot(bz.MAMS(num_chains=40), density_of(edge), FitContext(seed=0))
    assert float(found.theta.max()) < 0.51
    assert bool((found.theta != 0).any())


def test_no_chain_starts_in_the_throat_of_a_funnel() -> None:
    """One of four that did made all others take its steps: R-hat was above 3 after 3 million gradients.

    With these seeds one or two of the four ways lead there; where all do, nothing better is known.
    """
    effect = torch.tensor([28.0, 8, -3, 7, -1, 1, 18, 12]).double()
    error = torch.tensor([15.0, 10, 16, 11, 9, 11, 10, 18]).double()

    def schools() -> None:
        mu, tau = pyro.sample("mu", dist.Normal(0.0, 5.0)), pyro.sample("tau", dist.HalfCauchy(5.0))
        with pyro.plate("schools", 8):
            theta = pyro.sample("theta", dist.Normal(mu, tau))
            pyro.sample("y", dist.Normal(theta, error), obs=effect)

    density = density_of(schools)
    for seed in (0, 2, 3):
        log_tau = pilot(bz.MAMS(), density, FitContext(seed=seed)).theta[:, 1]
        assert float(log_tau.min()) > -2.0
