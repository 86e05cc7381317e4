"""Searches in the posterior's own units: data that nobody standardised, and bounds that have settled."""

from collections.abc import Callable

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

import bnnzoo as bz
from bnnzoo.core.model.density import build_density
from bnnzoo.core.posterior.covariance import Dense, LowRankPlusDiagonal
from bnnzoo.inference import FlowVI, FullRankVI, LowRankVI, MeanFieldVI, fit
from bnnzoo.inference.optimise import pathfinder
from bnnzoo.inference.optimise.pathfinder import Frame, Way, frames_near
from bnnzoo.inference.variational.frame import frame_of, has_settled, mean_bound
from bnnzoo.inference.variational.full_rank_vi import FullRank
from bnnzoo.inference.variational.low_rank_vi import LowRank
from bnnzoo.inference.variational.mean_field_vi import MeanField

pytestmark = pytest.mark.filterwarnings("ignore::bnnzoo.core.fit_warnings.FitWarning")  # of families that are too poor


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def line(scales: tuple[float, ...], noise: float) -> tuple[Callable[..., None], tuple[Tensor, Tensor], Tensor, Tensor]:
    """Return a linear model with a wide prior, its data in raw units, and the exact mean and covariance."""

    def model(x: Tensor, y: Tensor) -> None:
        w = pyro.sample("w", dist.Normal(0.0, 1000.0).expand([x.shape[1]]).to_event(1))
        with pyro.plate("rows", len(x)):
            pyro.sample("y", dist.Normal(x @ w, noise), obs=y)

    x = torch.stack([torch.ones(60), *(c + c / 20 * torch.randn(60, generator=generator()) for c in scales)], 1)
    y = 154 + x @ torch.linspace(-1, 1, x.shape[1]) + noise * torch.randn(60, generator=generator())
    precision = x.mT @ x / noise**2 + torch.eye(x.shape[1]) / 1000.0**2
    covariance = torch.linalg.inv(precision)
    return model, (x, y), covariance @ (x.mT @ y) / noise**2, covariance


@pytest.mark.parametrize("scales", [(170.0,), (1960.0,), (40_000.0,)])
def test_gaussians_are_exact_in_raw_units(scales: tuple[float, ...]) -> None:
    model, data, mean, covariance = line(scales, 8.0)
    sd = covariance.diagonal().sqrt()
    full = fit(model, FullRankVI(), *data, progress=False)
    assert bool(((full.loc - mean) / sd).abs().max() < 0.02)
    correlation = full.covariance.dense() / (sd * sd[:, None])
    torch.testing.assert_close(correlation, covariance / (sd * sd[:, None]), rtol=0, atol=0.02)
    field = fit(model, MeanFieldVI(), *data, progress=False)
    best = torch.linalg.inv(covariance).diagonal().rsqrt()
    assert bool(((field.loc - mean) / sd).abs().max() < 0.02)
    torch.testing.assert_close(field.covariance.diagonal().sqrt(), best, rtol=0.02, atol=0)


def test_the_first_model_of_every_course() -> None:
    def model(y: Tensor) -> None:
        mu = pyro.sample("mu", dist.Normal(178.0, 20.0))
        sigma = pyro.sample("sigma", dist.Uniform(0.0, 50.0))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(mu, sigma), obs=y)

    y = 154 + 8 * torch.randn(400, generator=generator())
    for method in (MeanFieldVI(), LowRankVI(1), FullRankVI()):
        posterior = fit(model, method, y, progress=False)
        draws = bz.to_datatree(posterior, num_draws=4000)["posterior"]
        assert abs(float(draws["mu"].mean()) - float(y.mean())) < 0.05
        assert float(draws["mu"].std()) == pytest.approx(float(y.std()) / 20, rel=0.06)
        assert float(draws["sigma"].mean()) == pytest.approx(float(y.std()), rel=0.01)
        assert posterior.info.config["converged"] and posterior.info.config["num_steps"] <= 3500


def regression(x: Tensor, y: Tensor) -> None:
    w = pyro.sample("w", dist.Normal(0.0, 1000.0).expand([2]).to_event(1))
    sigma = pyro.sample("sigma", dist.HalfCauchy(20.0))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Normal(w[0] + w[1] * x, sigma), obs=y)


def test_single_precision_finds_what_double_precision_finds() -> None:
    x = 1960 + 20 * torch.randn(80, generator=generator())
    y = 154 + 0.2 * (x - 1960) + 8 * torch.randn(80, generator=generator().manual_seed(1))
    double = frames_near(build_density(regression, x, y), torch.zeros(1, 3))
    torch.set_default_dtype(torch.float32)  # that of most users; tests run in double precision
    single = frames_near(build_density(regression, x.float(), y.float()), torch.zeros(1, 3))
    assert double is not None and single is not None and single.root.dtype == torch.float32
    unit = torch.eye(3, dtype=torch.float64)
    torch.testing.assert_close(torch.linalg.solve(double.root[0], single.root[0].double()), unit, rtol=0, atol=0.01)
    torch.testing.assert_close(single.scale.double(), double.scale, rtol=0.01, atol=0)
    away = torch.linalg.solve(double.root[0], (single.loc - double.loc)[0])
    assert float(away.abs().max()) < 0.05
    posterior = fit(regression, MeanFieldVI(), x.float(), y.float(), progress=False)
    assert posterior.loc.dtype == torch.float32 and posterior.info.config["converged"]
    torch.testing.assert_close(posterior.covariance.diagonal().sqrt().double(), double.scale[0], rtol=0.03, atol=0)


def test_gaussians_with_next_to_no_mass_or_of_rounding_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten nats below the best one is nothing, two are a part; beyond a hundred nats of error nothing is known."""
    noise = torch.randn(64, generator=generator())
    ratios = [noise - 12.0, noise - 2.0, noise, 1e4 * noise + 300.0]

    def ways(density: object, start: Tensor) -> list[Way]:
        frames = [Frame(torch.full((2,), float(place)), torch.eye(2), torch.ones(2)) for place in range(4)]
        return [Way(frame, frame.loc, None, each) for frame, each in zip(frames, ratios, strict=True)]

    monkeypatch.setattr(pathfinder, "ways_up", ways)
    found = frames_near(build_density(regression, torch.ones(3), torch.ones(3)), torch.zeros(4, 2))
    assert found is not None and found.loc[:, 0].tolist() == [2.0, 1.0]


def test_a_fitted_gaussian_is_a_frame_in_single_precision_too() -> None:
    x = torch.stack([torch.ones(100), torch.arange(1900.0, 2000.0), torch.arange(1900.0, 2000.0) ** 2], 1)
    root = torch.linalg.cholesky(torch.linalg.inv(x.mT @ x / 9.0 + torch.eye(3) * 1e-6)).float()
    loc = torch.zeros(3, dtype=torch.float32)
    frame = frame_of(loc, Dense(root))
    assert torch.equal(frame.root, root) and bool(frame.scale.isfinite().all())
    low_rank = frame_of(loc, LowRankPlusDiagonal(root, root.diagonal() * 1e-6))  # its sum is singular after rounding
    assert bool(low_rank.root.isfinite().all()) and bool((low_rank.scale > 0).all())


def counts(x: Tensor, y: Tensor) -> None:
    b = pyro.sample("b", dist.Uniform(-20.0, 20.0).expand([4]).to_event(1))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Poisson((b[0] + b[1] * x + b[2] * x**2 + b[3] * x**3).exp()), obs=y)


def test_a_poisson_regression_is_not_left_too_wide() -> None:
    """Its bound used to stop 14 nats short, at 2.7 times the width, in silence."""
    x = torch.linspace(-1, 1, 40)
    y = torch.poisson((4.2 + 1.2 * x + 0.2 * x**2 - 0.3 * x**3).exp(), generator=generator())
    posterior = fit(counts, FullRankVI(), x, y, progress=False)
    exact = fit(counts, bz.Laplace(), x, y, progress=False)  # with 2,500 counts the posterior is as good as Gaussian
    ratio = posterior.covariance.diagonal().sqrt() / exact.covariance.diagonal().sqrt()
    assert 0.95 < float(ratio.min()) < float(ratio.max()) < 1.05
    assert posterior.info.num_rejected == 0


def schools(sigma: Tensor, y: Tensor) -> None:
    mu, tau = pyro.sample("mu", dist.Normal(0.0, 5.0)), pyro.sample("tau", dist.HalfCauchy(5.0))
    with pyro.plate("schools", len(y)):
        theta = pyro.sample("theta", dist.Normal(mu, tau))
        pyro.sample("y", dist.Normal(theta, sigma), obs=y)


def test_a_hierarchy_does_not_end_in_the_throat_of_its_funnel() -> None:
    sigma = torch.tensor([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
    y = torch.tensor([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
    posterior = fit(schools, FullRankVI(), sigma, y, progress=False)
    (span,) = (site.span for site in posterior.density.sites if site.name == "tau")
    assert 0.0 < float(posterior.loc[span]) < 2.5  # log tau; the joint mode is at minus infinity


@pytest.mark.parametrize("family", [MeanField(), FullRank(3), LowRank(3, 2)])
def test_parameters_in_a_frame_are_those_of_the_moved_gaussian(family) -> None:
    root = torch.linalg.cholesky(torch.tensor([[4.0, 1.0, 0.5], [1.0, 2.0, 0.2], [0.5, 0.2, 1.0]]))
    frame = Frame(torch.tensor([5.0, -3.0, 100.0]), root, torch.tensor([0.5, 2.0, 3.0]))
    params = family.start(torch.tensor([1.0, 2.0, 3.0]), 0.7)
    loc, covariance = family.gaussian(family.at(params, frame))
    torch.testing.assert_close(loc, frame.loc + root @ torch.tensor([1.0, 2.0, 3.0]))
    if isinstance(family, FullRank):
        torch.testing.assert_close(covariance.dense(), 0.49 * root @ root.mT)
        again = frame_of(loc, covariance)
        torch.testing.assert_close(again.root, 0.7 * root)
        torch.testing.assert_close(
            family.gaussian(family.at(family.start(torch.zeros(3), 1.0), again))[1].dense(), covariance.dense()
        )
    elif isinstance(family, MeanField):
        torch.testing.assert_close(covariance.diagonal().sqrt(), 0.7 * frame.scale)
        torch.testing.assert_close(frame_of(loc, covariance, frame).scale, 0.7 * frame.scale)


def test_the_bound_is_that_of_the_closed_form() -> None:
    model, data, mean, covariance = line((1.0,), 1.0)
    density, family = build_density(model, *data), FullRank(2)
    frame = Frame(mean, torch.linalg.cholesky(covariance), covariance.diagonal().sqrt())
    best = family.at(family.start(torch.zeros(2), 1.0), frame)
    bound = mean_bound(density, family, best[None])
    assert float(bound.std()) < 1e-6  # log p - log q is the evidence, whatever the draw
    wider = family.at(family.start(torch.zeros(2), 1.5), frame)
    fall = (bound - mean_bound(density, family, wider[None]))[0]
    exact = 2 * (0.5 * (1.5**2 - 1) - torch.tensor(1.5).log())
    assert float((fall.mean() - exact).abs()) < 4 * float(fall.std()) / len(fall) ** 0.5
    assert has_settled(bound, bound) and has_settled(bound + 1.0, bound) and not has_settled(bound - 0.1, bound)


def test_pairs_of_draws_that_cannot_be_evaluated_do_not_count() -> None:
    """A fit went down with one point of a thousand at which a Cholesky factorisation failed."""

    def model() -> None:
        r = pyro.sample("r", dist.Normal(torch.zeros(()), 1.0))
        covariance = torch.eye(2) + r * (1 - torch.eye(2))  # positive definite for |r| < 1
        pyro.sample("y", dist.MultivariateNormal(torch.zeros(2), covariance), obs=torch.tensor([0.3, 0.2]))

    density, family = build_density(model), FullRank(1)
    bound = mean_bound(density, family, family.start(torch.zeros(1), 0.5)[None])
    share = float(bound.isneginf().double().mean())
    assert 0.01 < share < 0.1  # 2 P(z > 2) = 0.046 of pairs
    assert not bool(bound.isnan().any())
    assert has_settled(bound, bound) and not has_settled(bound - 0.1, bound)
    fewer = torch.where(torch.arange(bound.shape[1]) < 3, -torch.inf, bound)
    assert has_settled(fewer, bound) and has_settled(bound, fewer)


def test_explicit_settings_are_followed() -> None:
    model, data, _, _ = line((170.0,), 8.0)
    short = fit(model, MeanFieldVI(num_steps=50), *data, progress=False)
    assert short.info.fit_stats["elbo"].shape == (1, 50) and "converged" not in short.info.config
    narrow = fit(model, MeanFieldVI(num_steps=1, init_scale=0.001, learning_rate=1e-9), *data, progress=False)
    torch.testing.assert_close(narrow.covariance.diagonal().sqrt(), torch.full((2,), 0.001))
    network = bz.models.supervised(bz.models.mlp(1, (3,)), bz.priors.normal(1.0), bz.likelihoods.gaussian())
    density = build_density(network, data[0][:, 1:] / 170, data[1] / 100)
    assert frames_near(density, torch.zeros(1, density.num_params)) is None


def test_a_flow_keeps_the_units_of_its_gaussian() -> None:
    model, data, mean, covariance = line((1960.0,), 8.0)
    posterior = fit(model, FlowVI(num_steps=200), *data, progress=False)
    draws = posterior.draws(4000)[0]
    sd = covariance.diagonal().sqrt()
    assert bool(((draws.mean(0) - mean) / sd).abs().max() < 0.1)
    assert bool((draws.std(0) / sd - 1).abs().max() < 0.08)


def test_restarts_have_frames_of_their_own() -> None:
    def two_modes(y: Tensor) -> None:
        a = pyro.sample("a", dist.Normal(0.0, 20.0))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(a**2, 5.0), obs=y)

    y = 100.0 + 5 * torch.randn(50, generator=generator())
    start = torch.tensor([[-8.0], [12.0]])
    posterior = fit(two_modes, MeanFieldVI(num_restarts=2, init=start), y, progress=False)
    means = sorted(float(each.loc) for each in posterior.components)
    assert means[0] == pytest.approx(-float(y.mean().sqrt()), abs=0.01)
    assert means[1] == pytest.approx(float(y.mean().sqrt()), abs=0.01)
