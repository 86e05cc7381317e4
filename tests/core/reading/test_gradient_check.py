"""The gradient of each latent site before a fit: lost, without effect because the site acts by steps, or right."""

import warnings
from collections.abc import Callable

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from torch import Tensor

import bnnzoo as bz
from bnnzoo.core.model.density import build_density
from bnnzoo.core.model.replay import discover
from bnnzoo.core.program.sites import ModelError, ModelWarning
from bnnzoo.core.reading.consistency import refuse_inconsistent
from bnnzoo.core.reading.gradient_check import Terms
from bnnzoo.engine.torch_private import LoweringWarning
from tests.helpers.densities import cases

T = torch.linspace(0.0, 1.0, 50)
Y = torch.where(T < 0.8, 0.0, 2.0) + 0.1 * torch.sin(40 * T)


def latent(name: str, scale: float = 1.0) -> Tensor:
    return pyro.sample(name, dist.Normal(0.0, scale))


def observe(mean: Tensor, y: Tensor, scale: Tensor | float = 1.0) -> None:
    with pyro.plate("data", len(y)):
        pyro.sample("y", dist.Normal(mean, scale), obs=y)


def rounded(t: Tensor, y: Tensor) -> None:
    observe(torch.round(latent("k", 5.0)) + 0 * t, y)


def changepoint(t: Tensor, y: Tensor) -> None:
    tau = pyro.sample("tau", dist.Uniform(0.0, 1.0))
    observe(torch.where(t < tau, latent("a", 3.0), latent("b", 3.0)), y)


def late_changepoint(t: Tensor, y: Tensor) -> None:
    tau = pyro.sample("tau", dist.Normal(1950.0, 30.0))
    observe(torch.where(1900 + 100 * t < tau, latent("a", 3.0), latent("b", 3.0)), y)


def rounded_mean_of_a_latent(t: Tensor, y: Tensor) -> None:
    k = latent("k", 5.0)
    observe(pyro.sample("m", dist.Normal(torch.round(k), 1.0)) + 0 * t, y)


def binary_network(t: Tensor, y: Tensor) -> None:
    w = pyro.sample("w", dist.Normal(torch.zeros(8), 1.0).to_event(1))
    v = pyro.sample("v", dist.Normal(torch.zeros(8), 1.0).to_event(1))
    observe(torch.sign(t[:, None] * w + w.flip(0)) @ v, y)


STEPS = {
    "rounded": (rounded, "k", "y"),
    "changepoint": (changepoint, "tau", "y"),
    "changepoint in years": (late_changepoint, "tau", "y"),
    "prior by steps": (rounded_mean_of_a_latent, "k", "m"),
    "signs": (binary_network, "w", "y"),
}


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_site_that_acts_by_steps_is_pointed_out(name: str, dtype: torch.dtype) -> None:
    model, site, term = STEPS[name]
    data = T.to(dtype), Y.to(dtype)
    sentence = (
        rf"^Site '{site}' acts by steps: other values of it .* the log density of '{term}' by up to .* torch\.sigmoid"
    )
    with pytest.warns(ModelWarning, match=sentence):
        refuse_inconsistent(build_density(model, *data, dtype=dtype))


@pytest.mark.parametrize(
    "method",
    [
        bz.NUTS(num_chains=2, num_warmup=3, num_draws=3),
        bz.MeanFieldVI(num_steps=3),
        bz.Laplace(bz.MAP(num_steps=3)),
        bz.MAP(num_steps=3),
    ],
    ids=lambda method: type(method).__name__,
)
def test_every_method_that_follows_gradients_points_it_out(method: object) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        bz.fit(changepoint, method, T, Y, progress=False)
    assert any("Site 'tau' acts by steps" in str(each.message) for each in caught)


def detached_scale(t: Tensor, y: Tensor) -> None:
    s = pyro.sample("s", dist.HalfNormal(1.0))
    w = pyro.sample("w", dist.Normal(0.0, s.detach()).expand([40]).to_event(1))
    observe(w.sum() + 0 * t, y)


def half_detached(t: Tensor, y: Tensor) -> None:
    s = pyro.sample("s", dist.LogNormal(0.0, 1.0))
    observe(latent("a") * s + 0 * t, y, s.detach())


def by_number(t: Tensor, y: Tensor) -> None:
    s = pyro.sample("s", dist.LogNormal(0.0, 1.0))
    observe(latent("a") * s + 0 * t, y, float(s))


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("model", [detached_scale, half_detached, by_number], ids=lambda model: model.__name__)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_gradient_lost_at_one_site_among_many_is_refused_by_name(model: Callable, dtype: torch.dtype) -> None:
    data = T.to(dtype), Y.to(dtype)
    with pytest.raises(ModelError, match=r"not its derivative at site 's': along a random direction"):
        refuse_inconsistent(build_density(model, *data, dtype=dtype))


def clamped(t: Tensor, y: Tensor) -> None:
    observe(latent("a").clamp(min=0.0) + latent("b").abs() + torch.relu(latent("c")) * t, y)


def hierarchy(t: Tensor, y: Tensor) -> None:
    m, s = latent("m"), pyro.sample("s", dist.HalfCauchy(1.0))
    observe(pyro.sample("g", dist.Normal(m, s).expand([5]).to_event(1)).repeat(10), y)


def absolute(t: Tensor, y: Tensor) -> None:
    with pyro.plate("data", 20):
        pyro.sample("y", dist.Laplace(latent("m"), 1.0), obs=torch.linspace(-2.0, 2.0, 20).to(y))


def unused(t: Tensor, y: Tensor) -> None:
    latent("spare")
    observe(latent("a") + 0 * t, y)


def hinged(t: Tensor, y: Tensor) -> None:
    tau = pyro.sample("tau", dist.Uniform(0.0, 1.0))
    observe(latent("a") + latent("b") * torch.relu(t - tau), y)


def improper(t: Tensor, y: Tensor) -> None:
    a = pyro.sample("a", dist.ImproperUniform(dist.constraints.real, (), ()))
    latent("spare")
    observe(a + 0 * t, y)


SOUND = {model.__name__: (model, (T, Y)) for model in (absolute, clamped, hierarchy, unused, hinged, improper)}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", SOUND)
def test_kinks_and_sites_without_effect_pass_in_silence(name: str, dtype: torch.dtype) -> None:
    model, data = SOUND[name]
    refuse_inconsistent(build_density(model, *(each.to(dtype) for each in data), dtype=dtype))


@pytest.mark.parametrize("name", list(cases()))
def test_terms_add_up_to_the_log_density(name: str) -> None:
    model, data = cases()[name][:2]
    density = build_density(model, *data)
    terms = Terms.of(density, discover(density.model, density.data, density.device))
    theta = density.init(1, 3)[0]
    torch.testing.assert_close(terms(theta, *density.data).sum(), density.log_joint(theta, *density.data))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_scale_that_is_annealed_from_run_to_run_is_refused() -> None:
    calls = 0

    def model(t: Tensor, y: Tensor) -> None:
        nonlocal calls
        calls += 1
        a = latent("a")
        with poutine.scale(scale=min(1.0, calls / 1000)):
            observe(a + 0 * t, y)

    with pytest.raises(
        ModelError, match=r"site 'y' at one and the same point is .* changes from run to run, as by a counter"
    ):
        bz.fit(model, bz.MAP(num_steps=3), T, Y, progress=False)


@pytest.mark.filterwarnings(f"ignore::{LoweringWarning.__module__}.LoweringWarning", "ignore::UserWarning")
def test_steps_in_a_model_that_cannot_be_batched_are_pointed_out() -> None:
    def model(t: Tensor, y: Tensor) -> None:
        k = int(latent("k", 5.0))
        observe(latent("a") + float(k) + 0 * t, y)

    with pytest.warns(ModelWarning, match=r"^Site 'k' acts by steps"):
        refuse_inconsistent(build_density(model, T, Y))


def test_an_entry_of_a_vector_that_is_cut_off_is_noticed() -> None:
    def model(t: Tensor, y: Tensor) -> None:
        w = pyro.sample("w", dist.Normal(torch.zeros(30), 1.0).to_event(1))
        observe(torch.cat([w[:29], w[29:].detach()]).sum() * t, y)

    with pytest.raises(ModelError, match="not its derivative at site 'w'"):
        bz.fit(model, bz.MAP(num_steps=1), T.double(), Y.double(), progress=False, dtype=torch.float64)


@pytest.mark.parametrize("cut", [False, True])
def test_where_single_precision_ends_a_gradient_is_asked_for_in_double(cut: bool) -> None:
    generator = np.random.RandomState(39)
    age = torch.tensor(generator.randint(18, 80, 80), dtype=torch.float32)
    cost = torch.tensor(generator.gamma(1.5, np.exp(5 + 0.03 * age.numpy()) / 1.5), dtype=torch.float32)

    def model(age: Tensor, cost: Tensor) -> None:
        a, b = pyro.sample("a", dist.Normal(0.0, 10.0)), pyro.sample("b", dist.Normal(0.0, 1.0))
        shape = pyro.sample("shape", dist.Exponential(1.0))
        mean = torch.exp(a + (b.detach() if cut else b) * age)
        with pyro.plate("rows", len(age)):
            pyro.sample("cost", dist.Gamma(shape, shape / mean), obs=cost)

    density = build_density(model, age, cost, dtype=torch.float32)
    starts = torch.tensor([[0.5, 1.0, 0.3]], dtype=torch.float32)  # exp(80) is there, and 1 / exp(80)^2 is not
    if cut:
        with pytest.raises(ModelError, match="is not its derivative at site 'b'"):
            refuse_inconsistent(density, starts=starts)
    else:
        assert refuse_inconsistent(density, starts=starts) is not None
