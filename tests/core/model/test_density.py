"""The extracted density against Pyro's own, against finite differences, and against itself batched and compiled."""

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer.mcmc.util import initialize_model
from torch import Tensor

from bnnzoo.core.data.conversion import DataError
from bnnzoo.core.model.density import LogDensity, build_density
from bnnzoo.core.parameters.hierarchy import hyperparameter_sites
from bnnzoo.core.program.sites import DIMENSIONS, ModelError
from bnnzoo.engine.value_and_grad import looped_value_and_grad
from bnnzoo.models import random_module
from bnnzoo.models.priors import normal
from tests.helpers.densities import cases

NAMES = list(cases())
QUICK = ("hierarchical", "ordered", "simplex", "masked_and_scaled", "factors", "two_sites")


def density_of(name: str) -> LogDensity:
    model, data = cases()[name]
    return build_density(model, *data)


def points(density: LogDensity, num: int = 3) -> Tensor:
    return torch.randn(num, density.num_params, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("a/b", r"Site 'a/b' has a name that a tree of results cannot hold.*scope\(\)"),
        ("", "Site '' has a name that a tree"),
        (" a", "Site ' a' has a name that a tree"),
        ("a\n", r"Site 'a\\n' has a name that a tree"),
        *((name, f"Site '{name}' has the name of a dimension of the tree: rename it") for name in sorted(DIMENSIONS)),
    ],
)
@pytest.mark.parametrize("kind", ["latent", "observed", "deterministic"])
def test_names_that_a_tree_cannot_hold_are_refused(name: str, sentence: str, kind: str) -> None:
    def model() -> None:
        w = pyro.sample(name if kind == "latent" else "w", dist.Normal(0.0, 1.0))
        if kind == "observed":
            pyro.sample(name, dist.Normal(w, 1.0), obs=torch.tensor(1.0))
        if kind == "deterministic":
            pyro.deterministic(name, 2 * w)

    with pytest.raises(ModelError, match=sentence):
        build_density(model)


@pytest.mark.parametrize("name", NAMES)
def test_equals_minus_pyros_potential(name: str) -> None:
    model, data = cases()[name]
    density = density_of(name)
    _, potential, *_ = initialize_model(model, data)
    for theta in points(density):
        unconstrained = density.unconstrained(theta)
        expected = -potential(unconstrained)
        torch.testing.assert_close(density.log_joint(theta, *data), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in NAMES])
def test_gradient_matches_finite_differences(name: str) -> None:
    _, data = cases()[name]
    density = density_of(name)
    theta = 0.3 * points(density, 2)
    _, gradient = density.value_and_grad(theta, *cases()[name][1])
    steps = 1e-5 * torch.eye(density.num_params)
    ahead = torch.stack([density.log_joint(theta[0] + step, *data) for step in steps])
    behind = torch.stack([density.log_joint(theta[0] - step, *data) for step in steps])
    torch.testing.assert_close(gradient[0], (ahead - behind) / 2e-5, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_batched_equals_looped(name: str) -> None:
    density = density_of(name)
    theta = points(density)
    values, gradients = density.value_and_grad(theta, *cases()[name][1])
    expected = looped_value_and_grad(density.log_joint)(theta, *cases()[name][1])
    torch.testing.assert_close(values, expected[0], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(gradients, expected[1], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_prior_and_likelihood_add_up(name: str) -> None:
    _, data = cases()[name]
    density = density_of(name)
    theta = points(density, 1)[0]
    scale = 0.5 if name == "masked_and_scaled" else 1.0
    parts = density.log_prior(theta) + scale * density.log_likelihood(theta, *data).sum()
    torch.testing.assert_close(parts, density.log_joint(theta, *data), rtol=1e-12, atol=1e-12)


def test_mini_batch_counts_for_the_whole() -> None:
    _, (x, y) = cases()["regression"]
    density = density_of("regression")
    theta = points(density, 1)[0]
    rows = torch.tensor([0, 3, 7, 11])
    expected = density.log_prior(theta) + 20 / 4 * density.log_likelihood(theta, x, y)[rows].sum()
    torch.testing.assert_close(density.log_joint(theta, x[rows], y[rows]), expected)


def test_constrain_and_unconstrain_are_inverse() -> None:
    for name in NAMES:
        density = density_of(name)
        theta = points(density, 1)[0]
        torch.testing.assert_close(density.unconstrain(density.constrain(theta)), theta, rtol=1e-8, atol=1e-8)


def test_deterministic_sites() -> None:
    _, data = cases()["factors"]
    density = density_of("factors")
    theta = points(density, 1)[0]
    torch.testing.assert_close(density.deterministics(theta, *data)["double"], 2 * theta)


def test_each_observed_site_has_its_own_moments() -> None:
    _, (x, *_) = cases()["two_sites"]
    density = density_of("two_sites")
    found = density.conditional(points(density, 1)[0], x)
    assert {"y.mean", "y.variance", "z.probs"} <= set(found)
    assert found["z.probs"].shape == (20, 2)


def test_a_density_without_data() -> None:
    def model() -> None:
        pyro.sample("z", dist.Gamma(2.0, 1.0))

    density = build_density(model)
    theta = torch.tensor([0.3])
    expected = dist.Gamma(2.0, 1.0).log_prob(theta.exp()) + theta
    torch.testing.assert_close(density.log_joint(theta), expected[0])
    assert density.num_data == 0 and density.log_likelihood(theta).shape == (0,)


def test_starts_do_not_touch_the_global_stream() -> None:
    density = density_of("regression")
    before = torch.get_rng_state()
    first, again = density.init(3, seed=1), density.init(3, seed=1)
    torch.testing.assert_close(first, again)
    assert first.shape == (3, density.num_params)
    assert torch.equal(before, torch.get_rng_state())


def _counts() -> None:
    pyro.sample("count", dist.Poisson(3.0))


def _point_mass() -> None:
    pyro.sample("fixed", dist.Delta(torch.tensor(1.0)))


def _subsampled() -> None:
    pyro.sample("z", dist.Normal(0.0, 1.0))
    with pyro.plate("rows", 10, subsample_size=3):
        pyro.sample("y", dist.Normal(0.0, 1.0), obs=torch.zeros(3))


def _moving_support() -> None:
    top = pyro.sample("top", dist.HalfNormal(1.0))
    pyro.sample("z", dist.Uniform(torch.tensor(-1.0), top))


def _nothing() -> None:
    pyro.sample("y", dist.Normal(0.0, 1.0), obs=torch.tensor(1.0))


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (_counts, r"Latent site 'count' is discrete \(Poisson\)"),
        (_point_mass, r"Latent site 'fixed' is a point mass \(Delta\).*pyro\.deterministic\('fixed', value\)"),
        (_subsampled, r"Plate 'rows' subsamples 3 of 10 rows inside the model.*batch_size"),
        (_moving_support, r"support of latent site 'z' depends on another latent site.*Uniform\(0, 1\)"),
        (_nothing, r"The model has no latent sites"),
    ],
)
def test_models_that_are_refused(model: object, sentence: str) -> None:
    with pytest.raises(ModelError, match=sentence):
        build_density(model)


def test_arguments_of_different_lengths() -> None:
    model, (x, y) = cases()["regression"]
    with pytest.raises(DataError, match=r"argument 1 of the model has 20, argument 2 of the model has 7"):
        build_density(model, x, y[:7])


def test_missing_and_misshapen_values() -> None:
    density = density_of("regression")
    values = density.constrain(points(density, 1)[0])
    with pytest.raises(ValueError, match="No value for latent site 'w1'; given are sigma"):
        density.unconstrain({"sigma": values["sigma"]})
    with pytest.raises(ValueError, match=r"'w1' has shape \(4, 3\), but its value has \(2,\)"):
        density.unconstrain({**values, "w1": torch.zeros(2)})


@pytest.mark.parametrize("default", [torch.float32, torch.float64])
def test_constants_of_the_model_take_the_dtype_asked_for(default: torch.dtype) -> None:
    model, (x, y) = cases()["regression"]
    torch.set_default_dtype(default)
    for dtype in (torch.float32, torch.float64):
        density = build_density(model, x.to(dtype), y.to(dtype), dtype=dtype)
        value, gradient = density.value_and_grad(density.init(2, seed=0), x.to(dtype), y.to(dtype))
        assert value.dtype == gradient.dtype == dtype
        assert torch.get_default_dtype() == default


def test_network_weights_start_from_their_prior_without_a_call_of_the_model() -> None:
    calls = []

    def model(x: Tensor, y: Tensor) -> None:
        calls.append(1)
        f = random_module("net", net, normal(0.1))(x).squeeze(-1)
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(f, 1.0), obs=y)

    net = torch.nn.Linear(3, 1)
    _, (x, y) = cases()["regression"]
    density = build_density(model, x, y)
    assert density.init(50, seed=1).std() < 0.2
    assert len(calls) == 1


def scaled_by_a_latent(y: Tensor) -> None:
    scale = pyro.sample("scale", dist.HalfNormal(1.0))
    with pyro.poutine.scale(scale=scale):
        mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
    with pyro.plate("data", len(y)):
        pyro.sample("y", dist.Normal(mu, 1.0), obs=y)


def hierarchical(y: Tensor) -> None:
    scale = pyro.sample("scale", dist.HalfNormal(1.0))
    mu = pyro.sample("mu", dist.Normal(0.0, scale))
    with pyro.plate("data", len(y)):
        pyro.sample("y", dist.Normal(mu, 1.0), obs=y)


def with_a_factor(y: Tensor) -> None:
    mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
    pyro.factor("penalty", -(mu**4))
    with pyro.plate("data", len(y)):
        pyro.sample("y", dist.Normal(mu, 1.0), obs=y)


def independent(y: Tensor) -> None:
    with pyro.poutine.scale(scale=0.5):
        mu = pyro.sample("mu", dist.Normal(0.0, 2.0).mask(torch.tensor(True)))
    sigma = pyro.sample("sigma", dist.LogNormal(0.0, 1.0))
    with pyro.plate("data", len(y)):
        pyro.sample("y", dist.Normal(mu, sigma), obs=y)


@pytest.mark.parametrize("model", [scaled_by_a_latent, hierarchical, with_a_factor, independent])
def test_the_prior_of_independent_sites_does_not_run_the_model(model: object) -> None:
    calls = 0

    def counted(y: Tensor) -> None:
        nonlocal calls
        calls += 1
        model(y)

    y = torch.tensor([0.5, -1.0, 2.0])
    density = build_density(counted, y)
    theta = points(density, 1)[0]
    calls = 0
    prior = density.log_prior(theta)
    assert calls == (0 if model is independent else 1)
    expected = density.log_joint(theta, y) - density.log_likelihood(theta, y).sum()
    torch.testing.assert_close(prior, expected, rtol=1e-12, atol=1e-12)


def test_which_coordinates_of_a_likelihood_depend_on_theta_is_found_once() -> None:
    calls = 0

    def counted(y: Tensor) -> None:
        nonlocal calls
        calls += 1
        with_fixed_scale(y)

    def with_fixed_scale(y: Tensor) -> None:
        mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
        with pyro.plate("data", len(y)):
            pyro.sample("y", dist.Normal(mu, 1.0), obs=y)

    density = build_density(counted, torch.tensor([0.5, -1.0]))
    calls = 0
    assert density.active == density.active == {"y": (True, False)}
    assert calls == 1
    assert build_density(independent, torch.tensor([0.5, -1.0])).active == {"y": (True, True)}


def test_a_draw_of_the_prior_that_rounding_puts_outside_its_support_is_read_as_any_other() -> None:
    """Gaps of ordered values are exp(N(0, 50)), which is below their rounding error in two draws of five."""

    def model() -> None:
        base = dist.Normal(torch.zeros(6), 50.0).to_event(1)
        pyro.sample("means", dist.TransformedDistribution(base, dist.transforms.OrderedTransform()))

    density = build_density(model, dtype=torch.float32)
    assert hyperparameter_sites(density) == ()
    assert density.log_joint(torch.zeros(6)).isfinite()
