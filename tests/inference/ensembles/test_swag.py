"""SWAG: moments of Gaussian iterates, the covariance between layers, and what is refused."""

from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor, nn

from bnnzoo import likelihoods, models, priors
from bnnzoo.core.fit_warnings import TooNarrowWarning
from bnnzoo.core.method import FitContext
from bnnzoo.core.model.density import build_density
from bnnzoo.core.posterior.posterior import Gaussian, Mixture
from bnnzoo.core.program.sites import ModelError
from bnnzoo.inference import MAP, SWAG, MultiSWAG, fit
from bnnzoo.inference.ensembles.gradient_noise import posterior_rate, prior_precision
from bnnzoo.inference.ensembles.moments import IterateMoments
from bnnzoo.inference.optimise.batches import IndependentBatches
from bnnzoo.inference.optimise.objectives import log_joint_objective
from bnnzoo.inference.optimise.observers import KeptIterates
from bnnzoo.inference.optimise.optimisers import SGD
from bnnzoo.inference.optimise.schedules import Constant
from bnnzoo.inference.optimise.streams import MemberStreams
from bnnzoo.inference.optimise.train import train
from bnnzoo.testing import linear_gaussian
from tests.helpers.executors import InProcess

TARGET = linear_gaussian()
X, Y = TARGET.data
SHORT = {"num_steps": 200, "batch_size": 10}
NETWORK = models.supervised(models.mlp(3, (4,)), priors.normal(1.0), likelihoods.gaussian(0.5))


def gaussian_iterates(size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Draws ``[size, 5]`` of a correlated Gaussian with its mean and covariance."""
    generator = torch.Generator().manual_seed(1)
    root = torch.randn(5, 5, generator=generator)
    mean = torch.linspace(-2.0, 2.0, 5)
    return mean + torch.randn(size, 5, generator=generator) @ root.mT, mean, root @ root.mT


def test_the_covariance_of_gaussian_iterates_is_recovered() -> None:
    size = 5000
    iterates, mean, covariance = gaussian_iterates(size)
    moments = IterateMoments(every=1, after=0, rank=size)
    for step, row in enumerate(iterates, start=1):
        moments(step, row[None], torch.zeros(1))
    assert bool(((moments.mean[0] - mean) / (covariance.diagonal() / size).sqrt()).abs().max() < 4)
    torch.testing.assert_close(moments.variance[0], iterates.var(0))
    (half,) = moments.covariances(scale=1.0, diagonal=0.5)
    sample = iterates.mT.cov()
    torch.testing.assert_close(half.dense(), 0.5 * sample + 0.5 * torch.diag(sample.diagonal()))  # the paper's
    (nearly_all,) = moments.covariances(scale=1.0, diagonal=1e-6)
    standard_error = ((covariance**2 + covariance.diagonal()[:, None] * covariance.diagonal()) / size).sqrt()
    assert bool(((nearly_all.dense() - covariance).abs() < 4 * standard_error).all())
    (double,) = moments.covariances(scale=2.0, diagonal=0.5)
    torch.testing.assert_close(double.dense(), 4 * half.dense())


def test_the_low_rank_part_is_that_of_the_last_iterates() -> None:
    iterates, _, _ = gaussian_iterates(60)
    moments = IterateMoments(every=2, after=20, rank=4)
    for step, row in enumerate(iterates, start=1):
        moments(step, row[None], torch.zeros(1))
    counted = iterates[21::2]
    assert moments.num_iterates == len(counted) == 20
    torch.testing.assert_close(moments.mean[0], counted.mean(0))
    torch.testing.assert_close(moments.deviations[0], (counted[-4:] - counted.mean(0)).mT)


def test_the_gaussian_has_the_moments_of_sgd_iterates() -> None:
    method = SWAG(**SHORT, learning_rate=0.01, init=torch.zeros(1, 3), rank=5)
    posterior = fit(TARGET.model, method, *TARGET.data, seed=3)
    density, kept = build_density(TARGET.model, *TARGET.data), KeptIterates(every=4, after=50)
    train(
        log_joint_objective(density),
        SGD(0.01 / 40, 0.9),
        Constant(),
        IndependentBatches(10),
        torch.zeros(1, 3),
        num_steps=200,
        density=density,
        context=FitContext(3),
        observe=kept,
    )
    iterates = torch.cat(kept.iterates)
    assert posterior.info.config["num_iterates"] == len(iterates)
    torch.testing.assert_close(posterior.loc, iterates.mean(0))
    deviations = iterates[-5:] - iterates.mean(0)
    expected = 0.5 * torch.diag(iterates.var(0)) + 0.5 * deviations.mT @ deviations / 4
    torch.testing.assert_close(posterior.covariance.dense(), expected)


def test_a_draw_takes_one_vector_of_noise_for_all_layers() -> None:
    posterior = fit(NETWORK, SWAG(num_steps=400, learning_rate=0.01, batch_size=5), X, Y)
    first, last = (site.span for site in posterior.density.sites if site.name in ("net.0.weight", "net.2.weight"))
    size = 4000
    draws, dense = posterior.draws(size)[0], posterior.covariance.dense()
    between, found = dense[first, last], draws.mT.cov()[first, last]
    variances = dense.diagonal()
    standard_error = ((between**2 + variances[first, None] * variances[last]) / size).sqrt()
    assert bool(((found - between).abs() < 5 * standard_error).all())
    assert float((between.abs() / standard_error).max()) > 10  # and there is a covariance to be seen


def test_each_member_of_multi_swag_is_swag_around_its_mode() -> None:
    start = torch.randn(2, 3, generator=torch.Generator().manual_seed(0))
    settings = SHORT | {"learning_rate": 0.01}  # that of several members suits all
    both = fit(TARGET.model, MultiSWAG(2, SWAG(**settings, init=start)), *TARGET.data, seed=3)
    assert isinstance(both, Mixture)
    assert both.log_weights is None
    alone = fit(TARGET.model, SWAG(**settings, init=start[:1]), *TARGET.data, seed=3)
    torch.testing.assert_close(both.components[0].loc, alone.loc)
    torch.testing.assert_close(both.components[0].covariance.dense(), alone.covariance.dense())
    assert isinstance(fit(TARGET.model, MultiSWAG(1, SWAG(**SHORT)), *TARGET.data), Gaussian)


def test_multi_swag_finds_several_modes() -> None:
    def two_modes(y: Tensor) -> None:
        a = pyro.sample("a", dist.Normal(0.0, 2.0))
        with pyro.plate("data", len(y)):
            pyro.sample("y", dist.Normal(a**2, 0.5), obs=y)

    y = 1.0 + 0.5 * torch.randn(20, generator=torch.Generator().manual_seed(0))
    posterior = fit(two_modes, MultiSWAG(8, SWAG(**SHORT)), y, seed=3)
    assert {float(each.loc.sign()) for each in posterior.components} == {-1.0, 1.0}
    assert posterior.draws(10).shape == (8, 10, 1)


def test_members_on_an_executor_are_those_of_one_batch() -> None:
    executor, method = InProcess(), MultiSWAG(2, SWAG(**SHORT, init=torch.zeros(2, 3)))
    together = fit(TARGET.model, method, *TARGET.data, seed=5)
    apart = fit(TARGET.model, method, *TARGET.data, seed=5, executor=executor)
    assert executor.num_tasks == 2
    for one, other in zip(apart.components, together.components, strict=True):
        torch.testing.assert_close(one.loc, other.loc, rtol=1e-9, atol=1e-10)
        torch.testing.assert_close(one.covariance.dense(), other.covariance.dense(), rtol=1e-7, atol=1e-12)


def regression(noise: float) -> tuple[Any, Tensor, Tensor]:
    """Return a regression on rows that are all alike, so that every mini-batch has the curvature of all rows."""

    def model(x: Tensor, y: Tensor) -> None:
        w = pyro.sample("w", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        with pyro.plate("rows", len(x)):
            pyro.sample("y", dist.Normal(x @ w, noise), obs=y)

    x = torch.tensor([3.0, 4.0], dtype=torch.float64).expand(200, 2)
    noisy = 1.0 + noise * torch.randn(200, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return model, x, noisy


def test_the_default_learning_rate_is_stable_where_the_likelihood_is_precise() -> None:
    model, x, y = regression(0.01)
    posterior = fit(model, SWAG(num_steps=400), x, y, seed=0, dtype=torch.float64, progress=False)
    mode = torch.linalg.solve(x.mT @ x / 0.01**2 + torch.eye(2), x.mT @ y / 0.01**2)
    sd = torch.linalg.inv(x.mT @ x / 0.01**2 + torch.eye(2)).diagonal().sqrt()
    assert bool(((posterior.loc - mode) / sd).abs().max() < 1.0)
    steepest = 25.0 / 0.01**2 + 1 / 200  # of the loss per observation: |x|^2 / noise^2, and the prior
    assert posterior.info.config["learning_rate"] < 0.25 * 2 * (1 + 0.9) / steepest


def test_a_rate_that_stability_keeps_small_is_announced() -> None:
    scales = torch.cat([torch.ones(20), torch.tensor([30.0])])
    x = scales * torch.randn(400, 21, generator=torch.Generator().manual_seed(0))

    def one_steep_column(x: Tensor, y: Tensor) -> None:
        w = pyro.sample("w", dist.Normal(0.0, 10.0).expand([21]).to_event(1))
        with pyro.plate("rows", len(x)):
            pyro.sample("y", dist.Normal(x @ w, 1.0), obs=y)

    y = x.mean(1) + torch.randn(400, generator=torch.Generator().manual_seed(1))
    with pytest.warns(
        TooNarrowWarning,
        match=r"SWAG's draws will spread far less than the posterior: at the largest stable .* about 5",
    ):
        fit(one_steep_column, SWAG(num_steps=400, momentum=0.0), x, y, progress=False)


@pytest.mark.parametrize(("num_rows", "noise"), [(400, 0.8), (60, 2.0), (2000, 0.1)])
def test_the_default_spread_is_that_of_the_posterior(num_rows: int, noise: float) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(num_rows, 4, generator=generator)
    y = x @ torch.tensor([1.0, -2.0, 0.5, 0.0]) + noise * torch.randn(num_rows, generator=generator)

    def model(x: Tensor, y: Tensor) -> None:
        w = pyro.sample("w", dist.Normal(0.0, 1.0).expand([4]).to_event(1))
        with pyro.plate("rows", len(x)):
            pyro.sample("y", dist.Normal(x @ w, noise), obs=y)

    precision = x.mT @ x / noise**2 + torch.eye(4)
    mean, sd = torch.linalg.solve(precision, x.mT @ y / noise**2), precision.inverse().diagonal().sqrt()
    posterior = fit(model, MultiSWAG(2), x, y, seed=1, progress=False)
    ratio = torch.stack([each.covariance.diagonal().sqrt() / sd for each in posterior.components])
    assert 0.85 < float(ratio.mean()) < 1.15
    assert 0.6 < float(ratio.min()) < float(ratio.max()) < 1.5  # half of a variance is that of the last 20 iterates
    assert all(bool(((each.loc - mean) / sd).abs().max() < 0.3) for each in posterior.components)


def test_the_rate_is_that_of_mandt_hoffman_and_blei_for_a_flat_prior() -> None:
    x = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))

    def model(x: Tensor, y: Tensor) -> None:
        w = pyro.sample("w", dist.Normal(0.0, 1e4).expand([3]).to_event(1))
        with pyro.plate("rows", len(x)):
            pyro.sample("y", dist.Normal(x @ w, 1.0), obs=y)

    y = torch.randn(200, generator=torch.Generator().manual_seed(1))
    mode = torch.linalg.lstsq(x, y[:, None]).solution[:, 0]
    trace = ((y - x @ mode)[:, None] * x).square().sum() / 200
    found = posterior_rate(build_density(model, x, y), mode, 20, 0.9, MemberStreams(0, range(1)))
    assert found == pytest.approx(float(2 * (1 - 0.9) * (20 / 200) * 3 / trace), rel=1e-4)
    assert found == pytest.approx(
        2 * posterior_rate(build_density(model, x, y), mode, 20, 0.8, MemberStreams(0, range(1))) / 4
    )


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"batch_size": 40},
            r"SWAG\(batch_size=40\), but the model has 40 observations: without gradient noise.*less than 40",
        ),
        ({"num_steps": 6}, r"SWAG\(num_steps=6, every=4\) leaves 1 iterates"),
        ({"every": 2000}, r"SWAG\(num_steps=2000, every=2000\) leaves 0 iterates after burn-in"),
        ({"rank": 1}, r"SWAG\(rank=1\): write 2 or more"),
        ({"diagonal": 1.0}, r"SWAG\(diagonal=1\.0\): write a number between 0 and 1"),
        ({"momentum": 1.0}, r"SWAG\(momentum=1\.0\): write a number from 0 to 1, not 1 itself"),
        ({"learning_rate": 10.0, "num_steps": 500}, r"SWAG\(learning_rate=10\.0\): SGD diverged.*Lower learning_rate"),
    ],
)
def test_refuses_impossible_settings(settings, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        fit(TARGET.model, SWAG(**settings), *TARGET.data)


def test_refuses_a_start_at_a_spike() -> None:
    model, x, y = regression(1e-9)
    with pytest.raises(
        ValueError, match=r"SWAG: where SGD starts, .* eigenvalue 2\.5e\+19.*below 3\.8e-20 only.*is a spike"
    ):
        fit(model, SWAG(num_steps=400), x, y, seed=0, dtype=torch.float64, progress=False)


@pytest.mark.filterwarnings("ignore:Site 'y' is one observation")
def test_refuses_models_without_rows() -> None:
    def model(y: Tensor) -> None:
        mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
        pyro.sample("y", dist.Normal(mu, 1.0).expand([4]).to_event(1), obs=y)

    with pytest.raises(
        ValueError, match=r"SWAG needs rows, but no argument of the model has one row for each of its 1"
    ):
        fit(model, SWAG(), torch.arange(4.0))


def test_refuses_batch_norm_with_the_reason_and_the_way_out() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 1)).eval()
    model = models.supervised(net, priors.normal(1.0), likelihoods.gaussian(0.5))
    with pytest.raises(
        ValueError, match=r"layer '1' of network 'net' is BatchNorm1d, whose running.*Replace it with GroupNorm"
    ):
        fit(model, SWAG(init=MAP(num_steps=0, polish_steps=0)), X, Y)


def test_a_default_batch_that_cuts_what_is_no_row_is_told_as_such() -> None:
    """Eight schools: an effect of each school is no argument, so that no school can be left out."""

    def schools(y: Tensor) -> None:
        mu, tau = pyro.sample("mu", dist.Normal(0.0, 10.0)), pyro.sample("tau", dist.HalfCauchy(25.0))
        eta = pyro.sample("eta", dist.Normal(torch.zeros(8), 1.0).to_event(1))
        pyro.sample("y", dist.Normal(mu + tau * eta, 10.0), obs=y)

    with pytest.raises(
        ModelError, match=r"SWAG, whose default is batch_size=2 here, cuts the rows of the model's arguments"
    ):
        fit(schools, SWAG(), torch.linspace(-3, 28, 8))


def test_a_hierarchy_whose_prior_curves_upwards_has_a_rate() -> None:
    """Where an effect is far out in the tail of its prior, eigenvalues of a matrix that overflows had ended the fit."""

    def model(group: Tensor, y: Tensor) -> None:
        tau = pyro.sample("tau", dist.HalfNormal(1.0))
        with pyro.plate("groups", 5):
            effect = pyro.sample("effect", dist.StudentT(1.0, 0.0, 0.1 * tau))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(effect[group], 0.1), obs=y)

    group = torch.arange(30) % 5
    y = 2.0 * (group - 2.0) + torch.linspace(-0.5, 0.5, 30)
    density = build_density(model, group, y)
    theta = torch.tensor([0.0, -4.0, -2.0, 0.0, 2.0, 4.0])
    rate = posterior_rate(density, theta, 10, 0.9, MemberStreams(0, range(1)))
    assert float(prior_precision(density, theta).min()) < 0 < rate < 1
