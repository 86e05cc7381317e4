"""Laplace of models without networks against Newton's iteration and a Hessian that know nothing of the library."""

import math
from collections.abc import Callable

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor
from torch.autograd.functional import hessian

import bnnzoo as bz
from bnnzoo.core.fit_warnings import JointModeWarning, NotConvergedWarning
from bnnzoo.core.method import Method
from bnnzoo.core.model.density import build_density
from bnnzoo.core.parameters.hierarchy import has_weights, hyperparameter_sites, multiplying_sites, scaling_sites
from bnnzoo.core.posterior.posterior import Gaussian

GENERATOR = torch.Generator().manual_seed(3)
X = torch.randn(40, 2, generator=GENERATOR, dtype=torch.float64)
NOISE = torch.randn(40, generator=GENERATOR, dtype=torch.float64)
LINE = 1.0 + X @ torch.tensor([0.5, -1.0], dtype=torch.float64)
GAPS = torch.arange(40) % 7 == 0

SHORT = bz.MAP(num_steps=100)

type LogDensity = Callable[[Tensor], Tensor]


def _prior(theta: Tensor, sd: float) -> Tensor:
    return -0.5 * (theta / sd).square().sum()


def _linear(y: Tensor) -> None:
    a, b = pyro.sample("a", dist.Normal(0.0, 5.0)), pyro.sample("b", dist.Normal(torch.zeros(2), 5.0).to_event(1))
    s = pyro.sample("s", dist.Exponential(1.0))
    pyro.sample("y", dist.Normal(a + X @ b, s), obs=y)


def _linear_density(y: Tensor) -> LogDensity:
    def density(t: Tensor) -> Tensor:
        s = t[3].exp()  # an exponential prior on s, and the Jacobian of log s
        return _prior(t[:3], 5.0) - s + t[3] - 0.5 * ((y - t[0] - X @ t[1:3]) / s).square().sum() - len(y) * t[3]

    return density


def _probit(y: Tensor) -> None:
    a, b = pyro.sample("a", dist.Normal(0.0, 2.0)), pyro.sample("b", dist.Normal(torch.zeros(2), 2.0).to_event(1))
    p = 0.5 * torch.erfc(-(a + X @ b) * 0.5**0.5)
    with pyro.plate("rows"):
        pyro.sample("y", dist.Bernoulli(p), obs=y)


def _probit_density(y: Tensor) -> LogDensity:
    def density(t: Tensor) -> Tensor:
        p = 0.5 * torch.erfc(-(t[0] + X @ t[1:]) * 0.5**0.5)
        return _prior(t, 2.0) + torch.where(y > 0, p.log(), torch.log1p(-p)).sum()

    return density


def _decay(y: Tensor) -> None:
    a, k = pyro.sample("a", dist.Normal(0.0, 5.0)), pyro.sample("k", dist.LogNormal(0.0, 1.0))
    pyro.sample("y", dist.StudentT(4.0, a * torch.exp(-k * X[:, 0].abs()), 0.3), obs=y)


def _decay_density(y: Tensor) -> LogDensity:
    def density(t: Tensor) -> Tensor:
        r = (y - t[0] * torch.exp(-t[1].exp() * X[:, 0].abs())) / 0.3
        return _prior(t[0], 5.0) + _prior(t[1], 1.0) - 2.5 * torch.log1p(r.square() / 4).sum()

    return density


def _imputed(y: Tensor) -> None:
    v = pyro.sample("v", dist.Normal(0.0, 1.0).expand([int(GAPS.sum())]).mask(False))
    a = pyro.sample("a", dist.Normal(0.0, 0.5))
    x = X[:, 0].clone()
    x[GAPS] = v
    pyro.sample("x", dist.Normal(0.0, 1.0), obs=x)
    pyro.sample("y", dist.Normal(a * x, 1.0), obs=y)


def _imputed_density(y: Tensor) -> LogDensity:
    def density(t: Tensor) -> Tensor:
        v, a = t[:-1], t[-1]
        x = X[:, 0].masked_scatter(GAPS, v)
        return _prior(a, 0.5) + _prior(x, 1.0) - 0.5 * (y - a * x).square().sum()

    return density


CASES = {
    "linear": (_linear, _linear_density, LINE + 0.5 * NOISE, [1.0, 0.5, -1.0, -0.7]),
    "probit": (_probit, _probit_density, (LINE + NOISE > 1.0).double(), [0.0, 0.0, 0.0]),
    "decay": (_decay, _decay_density, 2 * torch.exp(-X[:, 0].abs()) + 0.3 * NOISE, [2.0, 0.0]),
    "imputed": (_imputed, _imputed_density, 0.8 * X[:, 0] + NOISE, [0.0] * 6 + [0.5]),
}


def newton(density: LogDensity, start: list[float]) -> tuple[Tensor, Tensor]:
    """Return the mode and the covariance there."""
    theta = torch.tensor(start, dtype=torch.float64)
    for _ in range(100):
        gradient = torch.autograd.functional.jacobian(density, theta)
        step = torch.linalg.solve(-hessian(density, theta), gradient)
        while float(density(theta + step)) < float(density(theta)) - 1e-12:
            step = step / 2
        theta = theta + step
    return theta, torch.linalg.inv(-hessian(density, theta))


@pytest.mark.parametrize("name", CASES)
def test_mode_covariance_and_evidence_are_those_of_an_independent_newton_iteration(name: str) -> None:
    model, density_of, y, start = CASES[name]
    mode, covariance = newton(density_of(y), start)
    posterior = bz.fit(model, bz.Laplace(SHORT), y)
    assert isinstance(posterior, Gaussian)
    assert posterior.info.config["curvature"] == "hessian"
    sd = covariance.diagonal().sqrt()
    assert float(((posterior.loc - mode) / sd).abs().max()) < 1e-6
    found = posterior.covariance.dense()
    assert float(((found - covariance) / (sd[:, None] * sd)).abs().max()) < 1e-6
    log_joint = posterior.density.log_joint(mode, *posterior.density.data)
    expected = log_joint + 0.5 * torch.logdet(2 * math.pi * covariance)
    torch.testing.assert_close(bz.inference.log_marginal_likelihood(posterior), expected, rtol=1e-9, atol=1e-7)


def test_single_precision_has_the_hessian_of_double_precision() -> None:
    y = (LINE + NOISE > 1.0).float()
    mode, covariance = newton(_probit_density(y.double()), [0.0, 0.0, 0.0])

    def model(x: Tensor, y: Tensor) -> None:
        a, b = pyro.sample("a", dist.Normal(0.0, 2.0)), pyro.sample("b", dist.Normal(torch.zeros(2), 2.0).to_event(1))
        pyro.sample("y", dist.Bernoulli(0.5 * torch.erfc(-(a + x @ b) * 0.5**0.5)), obs=y)

    posterior = bz.fit(model, bz.Laplace(), X.float(), y, dtype=torch.float32)
    assert isinstance(posterior, Gaussian)
    assert posterior.loc.dtype == torch.float32
    sd = covariance.diagonal().sqrt()
    assert float(((posterior.loc - mode) / sd).abs().max()) < 1e-3
    torch.testing.assert_close(posterior.covariance.dense().double(), covariance, rtol=1e-3, atol=1e-5)


def test_hessian_that_is_indefinite_gives_way_to_gauss_newton_and_says_so() -> None:
    def model(y: Tensor) -> None:
        a = pyro.sample("a", dist.Normal(0.0, 10.0))
        pyro.sample("y", dist.Normal(a**2, 1.0), obs=y)

    still = bz.MAP(init=torch.tensor([[0.2]]), num_steps=0, polish_steps=0)
    with pytest.warns(NotConvergedWarning) as caught:
        posterior = bz.fit(model, bz.Laplace(still), 3 + NOISE)
    texts = [str(one.message) for one in caught]
    assert any("hessian precision at the mode is not positive definite" in t and "saddle or flat" in t for t in texts)
    assert any("The mode was not reached" in text for text in texts)
    assert posterior.info.config["curvature"] == "ggn"


Y = torch.tensor([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
SD = torch.tensor([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def _schools(y: Tensor) -> None:
    eta = pyro.sample("eta", dist.Normal(torch.zeros(8), torch.ones(8)))
    mu, tau = pyro.sample("mu", dist.Normal(0.0, 10.0)), pyro.sample("tau", dist.HalfCauchy(25.0))
    pyro.sample("obs", dist.Normal(mu + tau * eta, SD.to(eta)), obs=y)


def _slopes(y: Tensor) -> None:
    """Varying intercepts and slopes by a Cholesky factor, and a noise scale."""
    tau = pyro.sample("tau", dist.HalfNormal(torch.ones(2)).to_event(1))
    factor = pyro.sample("L", dist.LKJCholesky(2, 2.0))
    with pyro.plate("group", 4):
        z = pyro.sample("z", dist.Normal(torch.zeros(2), 1.0).to_event(1))
    effects = z @ (tau[:, None] * factor).mT
    sigma = pyro.sample("sigma", dist.HalfNormal(1.0))
    group = torch.arange(40) % 4
    pyro.sample("y", dist.Normal(effects[group, 0] + effects[group, 1] * X[:, 0], sigma), obs=y)


def _decays(y: Tensor) -> None:
    b, k = pyro.sample("b", dist.Normal(torch.zeros(4), 3.0).to_event(1)), pyro.sample("k", dist.LogNormal(0.0, 1.0))
    pyro.sample("y", dist.Normal(b[torch.arange(40) % 4] * torch.exp(-k * X[:, 0].abs()), 0.5), obs=y)


def _uniform(y: Tensor) -> None:
    tau, s = pyro.sample("tau", dist.Uniform(0.0, 100.0)), pyro.sample("s", dist.Uniform(0.0, 100.0))
    with pyro.plate("group", 8):
        e = pyro.sample("e", dist.Normal(0.0, 1.0))
    pyro.sample("y", dist.Normal(pyro.sample("mu", dist.Normal(0.0, 5.0)) + tau * e[torch.arange(40) % 8], s), obs=y)


def _centred(y: Tensor) -> None:
    tau = pyro.sample("tau", dist.HalfNormal(1.0))
    a = pyro.sample("a", dist.Normal(torch.zeros(40), tau).to_event(1))
    pyro.sample("y", dist.Normal(a, 1.0), obs=y)


def test_sites_that_matter_through_others_are_found() -> None:
    assert multiplying_sites(build_density(_schools, Y)) == {"tau": ("eta",)}
    assert multiplying_sites(build_density(_slopes, LINE)) == {"tau": ("z",), "L": ("z",)}
    for model, y in ((_linear, LINE), (_probit, NOISE.sign().clamp(min=0.0)), (_decay, LINE), (_centred, LINE)):
        assert multiplying_sites(build_density(model, y)) == {}
    assert multiplying_sites(build_density(_decays, LINE)) == {"k": ("b",)}
    found = {name: scaling_sites(build_density(model, LINE)) for name, model in (("d", _decays), ("s", _slopes))}
    assert found == {"d": {}, "s": {"tau": ("z",)}}  # a rate of decay and a correlation have no mode at infinity
    assert scaling_sites(build_density(_uniform, LINE)) == {"tau": ("e",)}
    assert scaling_sites(build_density(_schools, Y.float(), dtype=torch.float32)) == {"tau": ("eta",)}
    assert hyperparameter_sites(build_density(_centred, LINE)) == ("tau",)


def _grouped(y: Tensor) -> None:
    mu, tau = pyro.sample("mu", dist.Normal(0.0, 5.0)), pyro.sample("tau", dist.HalfNormal(1.0))
    with pyro.plate("group", 8):
        a = pyro.sample("a", dist.Normal(mu, tau))
    pyro.sample("y", dist.Normal(a[torch.arange(40) % 8], 0.7), obs=y)


def test_mean_of_effects_is_no_hyperparameter_and_keeps_its_width() -> None:
    groups = torch.tensor([-0.6, 0.1, 0.9, 0.3, -0.2, 0.5, 1.2, -0.9])
    y = groups[torch.arange(40) % 8] + 0.7 * NOISE
    assert hyperparameter_sites(build_density(_grouped, y)) == ("tau",)
    posterior = bz.fit(_grouped, bz.HierarchicalLaplace(bz.Laplace(SHORT), integrate=False, tolerance=0.01), y)
    assert isinstance(posterior, Gaussian)
    at = {site.name: site.span.start for site in posterior.density.sites}
    tau = float(posterior.density.constrain(posterior.loc)["tau"])
    means = y.reshape(5, 8).mean(0)  # normal about mu with variance tau^2 + 0.7^2 / 5
    precision = 8 / (tau**2 + 0.49 / 5) + 1 / 25
    assert abs(float(posterior.loc[at["mu"]]) - float(means.sum() / (tau**2 + 0.49 / 5) / precision)) < 1e-4
    assert abs(float(posterior.covariance.diagonal()[at["mu"]]) * precision - 1) < 1e-6


def test_matrices_of_weights_are_networks() -> None:
    def network(y: Tensor) -> None:
        w = pyro.sample("w", dist.Normal(torch.zeros(2, 5), 1.0).to_event(2))
        v = pyro.sample("v", dist.Normal(torch.zeros(5), 1.0).to_event(1))
        pyro.sample("y", dist.Normal(torch.tanh(X @ w) @ v, 0.5), obs=y)

    assert has_weights(build_density(network, LINE))
    assert not has_weights(build_density(_slopes, LINE))
    assert not has_weights(build_density(_linear, LINE))
    assert bz.fit(network, bz.Laplace(SHORT), LINE).info.config["curvature"] == "ggn"


@pytest.mark.parametrize(
    "method", [bz.Laplace(SHORT, integrate=False), bz.DiagonalLaplace(SHORT), bz.LowRankLaplace(5, SHORT)]
)
def test_joint_mode_of_a_non_centred_hierarchy_is_announced(method: Method) -> None:
    with pytest.warns(
        JointModeWarning, match=r"'tau' only matters through 'eta'.*HierarchicalLaplace\(\).*or NUTS\(\)"
    ):
        bz.fit(_schools, method, Y)


def test_the_mode_is_reached_in_single_precision_and_raw_units() -> None:
    """Dollars on calendar years: the search for the mode ends where the Hessian is indefinite, and Newton's method goes on."""
    generator = torch.Generator().manual_seed(1)
    year = 1960 + 60 * torch.rand(120, generator=generator)
    salary = 20_000 + 900 * (year - 1960) + 6_000 * torch.randn(120, generator=generator)

    def model(x: Tensor, y: Tensor) -> None:
        a, b = pyro.sample("a", dist.Normal(0.0, 2e6)), pyro.sample("b", dist.Normal(0.0, 5_000.0))
        sigma = pyro.sample("sigma", dist.HalfCauchy(5_000.0))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(a + b * x, sigma), obs=y)

    exact = bz.fit(model, bz.Laplace(), year, salary, dtype=torch.float64, progress=False)
    found = bz.fit(model, bz.Laplace(), year, salary, progress=False)
    sd = exact.covariance.diagonal().sqrt()
    assert found.info.config["curvature"] == "hessian"
    assert bool(((found.loc.double() - exact.loc) / sd).abs().max() < 0.01)
    torch.testing.assert_close(found.covariance.diagonal().sqrt().double(), sd, rtol=1e-3, atol=0.0)
