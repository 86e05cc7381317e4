"""Models that cannot be evaluated everywhere, or live on curved supports, under every kind of method: they finish, and are right.

Moments of unconstrained parameters are compared with quadrature on a grid, in Monte Carlo standard errors.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor

from bnnzoo.core.method import FitContext, Method
from bnnzoo.core.model.density import LogDensity, build_density
from bnnzoo.core.posterior.posterior import Draws, Posterior
from bnnzoo.inference import HMC, MAMS, MAP, MCLMC, NUTS, ChEESHMC, Laplace, MeanFieldVI, Tempered, fit
from bnnzoo.inference.starts import evaluated_starts
from bnnzoo.testing import check_moments

pytestmark = pytest.mark.filterwarnings("ignore::bnnzoo.inference.FitWarning")  # as short runs may

type Moments = tuple[Tensor, Tensor]
"""Means and variances of the unconstrained parameters ``[P]``."""


def waves(num_rows: int, frequency: float) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.linspace(0.0, 1.0, num_rows, dtype=torch.float64)
    return x, torch.sin(frequency * x) + 0.1 * torch.randn(num_rows, generator=generator, dtype=torch.float64)


def gaussian_process(x: Tensor, y: Tensor) -> None:
    """Regression with a squared exponential kernel, whose length scale and noise are latent."""
    length = pyro.sample("length", dist.LogNormal(-2.0, 1.0))
    noise = pyro.sample("noise", dist.LogNormal(-2.0, 1.0))
    covariance = torch.exp(-0.5 * ((x[:, None] - x) / length) ** 2) + (noise**2 + 1e-6) * torch.eye(len(x))
    factor = torch.linalg.cholesky(covariance)
    pyro.sample("y", dist.MultivariateNormal(torch.zeros(len(x)), scale_tril=factor), obs=y)


def whitened(x: Tensor, y: Tensor) -> None:
    """Regression whose latent function is factorised without the noise: in single precision smooth functions cannot be."""
    length = pyro.sample("length", dist.LogNormal(0.0, 2.0))
    noise = pyro.sample("noise", dist.LogNormal(0.0, 2.0))
    identity = torch.eye(len(x))
    factor = torch.linalg.cholesky(torch.exp(-0.5 * ((x[:, None] - x) / length) ** 2) + 1e-8 * identity)
    covariance = factor @ factor.mT + noise**2 * identity
    pyro.sample("y", dist.MultivariateNormal(torch.zeros(len(x)), covariance), obs=y)


def half_nan() -> None:
    """A log density that is NaN in half of the space, with the border far out in the tail."""
    z = pyro.sample("z", dist.Normal(0.0, 10.0).expand([2]).to_event(1))
    pyro.factor("gamma", 30 * z[0].log() - 10 * z[0] - z[1].square() / 2)


def underflow(y: Tensor) -> None:
    """A scale that underflows to zero a few units away from the posterior."""
    z = pyro.sample("z", dist.Normal(0.0, 3.0).expand([2]).to_event(1))
    scale = (-200 * (z[0] - 1).relu() ** 2 - 200 * (-1 - z[0]).relu() ** 2).exp()
    with pyro.plate("data", len(y)):
        pyro.sample("y", dist.Normal(z[1], scale * (0.5 * z[0]).exp()), obs=y)


def dirichlet(counts: Tensor) -> None:
    probs = pyro.sample("probs", dist.Dirichlet(torch.ones(3)))
    pyro.sample("counts", dist.Multinomial(25, probs), obs=counts)


def correlations(y: Tensor) -> None:
    factor = pyro.sample("factor", dist.LKJCholesky(2, 2.0))
    scale = pyro.sample("scale", dist.LogNormal(0.0, 1.0))
    with pyro.plate("data", len(y)):
        pyro.sample("y", dist.MultivariateNormal(torch.zeros(2), scale_tril=scale * factor), obs=y)


@dataclass(frozen=True)
class Case:
    """A model of two unconstrained parameters, its data, and a box around its posterior with the number of grid points a side."""

    model: Callable[..., None]
    data: tuple[Any, ...]
    box: tuple[tuple[float, float], tuple[float, float]]
    size: int = 120
    dtype: torch.dtype = torch.float64


GENERATOR = torch.Generator().manual_seed(1)
NOISE = torch.randn(30, 2, generator=GENERATOR, dtype=torch.float64)
CASES: Mapping[str, Case] = {
    "GP, 11 rows": Case(gaussian_process, waves(11, 6.0), box=((-4.0, 1.0), (-6.0, 1.0))),
    "GP, 200 rows": Case(gaussian_process, waves(200, 6.0), box=((-2.5, -0.5), (-2.8, -1.8)), size=40),
    "GP, wide prior": Case(whitened, waves(12, 12.0), box=((-4.5, -1.2), (-11.0, 2.0)), dtype=torch.float32),
    "NaN in half of the space": Case(half_nan, (), box=((0.05, 9.0), (-7.0, 7.0))),
    "scale underflows": Case(underflow, (2.0 + NOISE[:, 0],), box=((-2.5, 2.5), (0.0, 4.0))),
    "Dirichlet": Case(
        dirichlet, (torch.tensor([8.0, 5.0, 12.0], dtype=torch.float64),), box=((-4.0, 4.0), (-4.0, 4.0))
    ),
    "LKJ": Case(correlations, (NOISE,), box=((-2.0, 2.0), (-1.0, 1.0))),
}

BUDGET: dict[str, Any] = {"num_warmup": 200, "num_draws": 200}
DRAWS = {("GP, wide prior", "NUTS"): 600, ("GP, wide prior", "MAMS"): 600}
"""Draws where chains are slow, as at a border."""

SAMPLERS: Mapping[str, Method] = {
    "NUTS": NUTS(**BUDGET),
    "HMC": HMC(**BUDGET),
    "MAMS": MAMS(num_chains=8, **BUDGET),
    "ChEES-HMC": ChEESHMC(num_chains=8, **BUDGET),
    "MCLMC": MCLMC(num_chains=8, energy_variance=1e-5, **BUDGET),
    "Tempered": Tempered(HMC(num_warmup=200, num_draws=400), num_temperatures=5),
}
BIAS = {"MCLMC": 0.05}
HOLES = {"GP, wide prior": 0.1}
"""Allowance for a border that rounding decides: between the points of the grid there are holes."""

TAILS = {"GP, wide prior": -3.0}
"""Where a long tail is cut off: beyond, and outside of the box, three draws in a thousand make a third of the variance. Chains of
64,000 draws have the tail's mass right, and variances that are 0.1 to 1.5 too large."""

QUICK = {
    ("NaN in half of the space", "MFVI"), ("GP, 11 rows", "Laplace"), ("Dirichlet", "MAP"), ("scale underflows", "MAP"),
}  # fmt: skip


def table(methods: Any, without: Collection[str] = ()) -> list[Any]:
    """Return every model with every method, all but a few of them marked slow."""
    pairs = [(case, method) for case in CASES if case not in without for method in methods]
    return [pytest.param(*pair, marks=() if pair in QUICK else pytest.mark.slow) for pair in pairs]


@cache
def density_of(case: str) -> LogDensity:
    dtype = CASES[case].dtype
    data = (value.to(dtype) if value.is_floating_point() else value for value in CASES[case].data)
    return build_density(CASES[case].model, *data, dtype=dtype)


@cache
def on_grid(case: str) -> tuple[Tensor, Tensor]:
    """Return the points of the grid ``[N, P]`` and their probabilities ``[N]``; next to none lies at the border."""
    density, box, size = density_of(case), CASES[case].box, CASES[case].size
    axes = [torch.linspace(*side, size, dtype=torch.float64) for side in box]
    theta = torch.cartesian_prod(*axes)
    evaluate = density.value_and_grad
    log_joint = torch.cat([evaluate(rows.to(density.dtype), *density.data)[0].double() for rows in theta.split(size)])
    probs = log_joint.nan_to_num(nan=-torch.inf, posinf=-torch.inf).softmax(0)
    at_border = torch.stack([(theta == theta[0]).any(1), (theta == theta[-1]).any(1)]).any(0)
    assert float(probs[at_border].sum()) < 1e-3, float(probs[at_border].sum())
    return theta, probs


def without_tail(case: str, theta: Tensor) -> Tensor:
    """Return points with the first entry cut off where few draws would decide over its variance."""
    first = theta[..., :1].clamp(min=TAILS.get(case, -torch.inf))
    return torch.cat([first, theta[..., 1:]], -1)


def moments(case: str) -> Moments:
    theta, probs = on_grid(case)
    theta = without_tail(case, theta)
    mean = probs @ theta
    return mean, probs @ (theta - mean) ** 2


def fitted(case: str, method: Method) -> Any:
    posterior = fit(CASES[case].model, method, *CASES[case].data, seed=1, dtype=CASES[case].dtype)
    assert posterior.info.complete
    return posterior


@pytest.mark.filterwarnings("ignore::bnnzoo.engine.torch_private.LoweringWarning")
@pytest.mark.parametrize(("case", "method"), table(SAMPLERS))
def test_samplers_find_the_moments_on_the_grid(case: str, method: str) -> None:
    sampler: Any = SAMPLERS[method]
    if (case, method) in DRAWS:
        sampler = replace(sampler, num_draws=DRAWS[case, method])
    posterior: Draws = fitted(case, sampler)
    mean, variance = moments(case)
    draws = without_tail(case, posterior.theta).numpy()
    accuracy = BIAS.get(method, 0.0) + HOLES.get(case, 0.0)
    check_moments(case, draws, mean.numpy(), variance.sqrt().numpy(), accuracy=accuracy)


@pytest.mark.parametrize(("case", "method"), table(["MFVI"], without={"scale underflows"}))
def test_mean_field_vi_is_where_its_bound_is_stationary(case: str, method: str) -> None:
    """At the optimum ``E[g] = 0`` and ``E[sd z g] = -1``, with the gradient g of the log density at draws ``loc + sd z``."""
    posterior = fitted(case, MeanFieldVI(num_steps=8000 if case == "LKJ" else 2000))
    density = density_of(case)
    draws = posterior.draws(2000, seed=0)[0]
    gradient = torch.cat([density.value_and_grad(rows, *density.data)[1] for rows in draws.split(100)])
    usable = gradient.isfinite().all(1)
    assert float(usable.double().mean()) > 0.9
    draws, gradient = draws[usable], gradient[usable]
    sd = draws.std(0)
    first, second = sd * gradient, (draws - posterior.loc) * gradient
    for value, expected in ((first, 0.0), (second, -1.0)):
        error = value.std(0) / len(value) ** 0.5
        assert bool(((value.mean(0) - expected).abs() < 5 * error + 0.1).all())


def bound(case: str, loc: Tensor, sd: Tensor, size: int) -> float:
    """Return the evidence lower bound of a Gaussian, on a grid of five standard deviations to each side."""
    density, z = density_of(case), torch.linspace(-5.0, 5.0, size, dtype=torch.float64)
    points = loc + sd * torch.cartesian_prod(z, z)
    log_joint = torch.cat([density.value_and_grad(rows.contiguous(), *density.data)[0] for rows in points.split(size)])
    weights = (-0.5 * z**2).softmax(0)
    return float(torch.outer(weights, weights).flatten() @ log_joint + sd.log().sum() + np.log(2 * np.pi) + 1)


@pytest.mark.slow
def test_mean_field_vi_comes_close_to_the_highest_bound_beside_a_wall() -> None:
    """Where one draw in millions meets the wall it decides over the gradient, and no optimiser with noise comes to rest."""
    case = "scale underflows"
    posterior = fitted(case, MeanFieldVI(num_steps=8000))
    start = torch.cat([posterior.loc, posterior.draws(4000, seed=0)[0].std(0).log()])

    def loss(point: np.ndarray) -> float:
        loc, log_sd = torch.from_numpy(point).split(2)
        return -bound(case, loc, log_sd.exp(), 61)

    best = minimize(loss, start.numpy(), method="Nelder-Mead", options={"maxiter": 200})
    assert -loss(start.numpy()) > -best.fun - 0.5


@pytest.mark.parametrize(("case", "method"), table(["MAP"]))
def test_map_finds_the_highest_point(case: str, method: str) -> None:
    posterior: Draws = fitted(case, MAP(num_members=3))
    theta, probs = on_grid(case)
    spacing = torch.tensor([(high - low) / (CASES[case].size - 1) for low, high in CASES[case].box])
    best = posterior.theta[0].double()[posterior.info.sample_stats["lp"][0].argmax()]
    assert bool(((best - theta[probs.argmax()]).abs() <= spacing).all())
    assert float(posterior.info.sample_stats["gradient_norm"].min()) < 1e-2


@pytest.mark.parametrize(("case", "method"), table(["Laplace"]))
def test_laplace_has_the_curvature_at_the_mode(case: str, method: str) -> None:
    posterior = fitted(case, Laplace(curvature="hessian"))
    density = density_of(case)
    gradient = torch.func.grad(lambda theta: density.log_joint(theta, *density.data))
    hessian = torch.func.jacrev(gradient)(posterior.loc)
    tolerance = 1e-4 if CASES[case].dtype == torch.float64 else 2e-2
    found = posterior.covariance.dense()
    torch.testing.assert_close(found, torch.linalg.inv(-hessian), rtol=tolerance, atol=tolerance * float(found.max()))


def border() -> None:
    z = pyro.sample("z", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    pyro.factor("border", 0.0 * z[0].sqrt())


@pytest.mark.parametrize(
    "method",
    [
        NUTS(num_chains=2, num_warmup=20, num_draws=20),
        pytest.param(MAMS(num_chains=2, num_warmup=20, num_draws=20), marks=pytest.mark.slow),
        pytest.param(MCLMC(num_chains=2, num_warmup=20, num_draws=20), marks=pytest.mark.slow),
        MeanFieldVI(num_steps=100, learning_rate=0.3),
    ],
)
def test_rejected_points_are_counted_and_their_site_is_named(method: Method) -> None:
    posterior: Posterior = fit(border, method, dtype=torch.float64)
    info = posterior.info
    assert info.num_rejected > 0 and info.rejected_at == "site 'border' has log probability nan"
    assert f"{info.num_rejected} points rejected (site 'border' has log probability nan)" in repr(info)


def test_the_wide_prior_fails_for_most_of_its_draws() -> None:
    density = density_of("GP, wide prior")
    value, _ = density.value_and_grad(2.0 * torch.randn(1000, 2, dtype=torch.float32), *density.data)
    assert 0.6 < float((~value.isfinite()).double().mean()) < 0.8


def untraceable(y: Tensor) -> None:
    """A model that runs as Python, and fails for negative numbers."""
    z = pyro.sample("z", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    bound = float(z[0].detach())
    np.linalg.cholesky(np.array([[bound]]))
    with pyro.plate("data", len(y)):
        pyro.sample("y", dist.Normal(z.sum(), 1.0), obs=y)


@pytest.mark.filterwarnings("ignore::bnnzoo.engine.torch_private.LoweringWarning")
@pytest.mark.parametrize(
    "method",
    [
        NUTS(num_chains=2, num_warmup=20, num_draws=20),
        pytest.param(MAMS(num_chains=2, num_warmup=20, num_draws=20), marks=pytest.mark.slow),
        MeanFieldVI(num_steps=100, learning_rate=0.3),
        MAP(num_steps=50),
    ],
)
def test_models_that_run_as_python_reject_points_too(method: Method) -> None:
    posterior = fit(untraceable, method, torch.full((5,), -3.0), dtype=torch.float64)
    draws = posterior.theta if isinstance(posterior, Draws) else posterior.loc[None, None]
    assert bool((draws[..., 0] > 0).all())
    assert posterior.info.num_rejected > 0 and posterior.info.rejected_at.startswith(
        "after site 'z' it fails with LinAlg"
    )


def narrow(x: Tensor, y: Tensor) -> None:
    """A model that can be evaluated only where the usual starting range does not reach."""
    z = pyro.sample("z", dist.Normal(0.0, 10.0).expand([2]).to_event(1))
    factor = torch.linalg.cholesky(torch.eye(2) * (z[0] - 5.0))
    with pyro.plate("data", len(y)):
        pyro.sample("y", dist.Normal(z.sum() * x, factor[0, 0]), obs=y)


def test_starts_come_from_the_prior_where_the_usual_range_fails() -> None:
    x = torch.linspace(-1.0, 1.0, 10, dtype=torch.float64)
    posterior = fit(narrow, MAP(num_members=3, num_steps=5), x, x, dtype=torch.float64)
    assert bool((posterior.theta[..., 0] > 5.0).all())


def test_a_start_on_a_cliff_is_drawn_again() -> None:
    density = density_of("scale underflows")
    starts = density.init(4, 1)
    _, gradient = density.value_and_grad(starts, *density.data)
    assert bool((gradient.norm(dim=1) > 1e15).any())
    context = FitContext(seed=1)
    found = evaluated_starts(None, 4, density, context)
    assert bool((found.gradient.norm(dim=1) < 1e15).all())
