"""What is around a call of bnnzoo does not reach the model; what a condition gives is an outcome or a constant."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from torch import Tensor

import bnnzoo as bz
from bnnzoo.core.model.density import build_density
from bnnzoo.core.model.prior_terms import log_jacobian, prior_terms
from bnnzoo.core.posterior.posterior import Gaussian
from bnnzoo.core.program.seeds import word_of
from bnnzoo.core.program.sites import ModelError
from bnnzoo.core.program.surroundings import on_device
from bnnzoo.core.program.turns import device_of_caller, plain_torch
from tests.helpers.pyro_density import pyro_log_joint

Y = torch.linspace(-1.0, 2.0, 8, dtype=torch.float64)


def model(y: Tensor | None = None) -> None:
    s = pyro.sample("s", dist.HalfNormal(1.0))
    m = pyro.sample("m", dist.Normal(0.0, 2.0 * s))
    with pyro.plate("data", 8):
        pyro.sample("y", dist.Normal(m, s), obs=y)


def fitted() -> Gaussian:
    return bz.fit(model, bz.Laplace(), Y, progress=False)


def test_fits_and_predictions_inside_of_pyros_own_contexts_are_those_outside() -> None:
    expected = fitted()
    tree = bz.posterior_predictive(expected, Y, num_draws=5)
    with poutine.trace() as tracer, pyro.plate("outer", 3):
        found = fitted()
        inside = bz.posterior_predictive(found, Y, num_draws=5)
        pyro.sample("after", dist.Normal(0.0, 1.0))
    assert torch.equal(found.draws(5), expected.draws(5))
    assert set(tracer.trace.nodes) == {"outer", "after"} and tracer.trace.nodes["after"]["value"].shape == (3,)
    for group in ("posterior_predictive", "log_likelihood", "conditional", "sample_stats"):
        assert inside[group].to_dataset().identical(tree[group].to_dataset())


def test_models_run_one_thread_at_a_time() -> None:
    posterior = fitted()
    theta = posterior.draws(8)[0]
    expected = torch.stack([posterior.density.log_joint(point, Y) for point in theta])

    def evaluate(_: int) -> Tensor:
        return torch.stack([posterior.density.log_joint(point, Y) for point in theta])

    with ThreadPoolExecutor(4) as executor:
        for found in executor.map(evaluate, range(24)):
            assert torch.equal(found, expected)


@pytest.mark.parametrize(
    ("name", "handler"),
    [
        ("scale", lambda: poutine.scale(scale=0.25)),
        ("mask", lambda: poutine.mask(mask=False)),
        ("condition", lambda: poutine.condition(data={"s": torch.tensor(0.5)})),
        ("reparam", lambda: poutine.reparam(config={})),
    ],
)
def test_handlers_around_a_fit_that_would_make_another_model_are_refused(name: str, handler) -> None:
    sentence = (
        rf"^poutine\.{name} is around the call of bnnzoo.* Put it around the model: poutine\.{name}\(model, \.\.\.\)"
    )
    posterior = fitted()
    for call in (fitted, lambda: bz.to_datatree(posterior), lambda: bz.posterior_predictive(posterior, Y)):
        with handler(), pytest.raises(ModelError, match=sentence):
            call()


@pytest.mark.parametrize("context", [torch.inference_mode, lambda: torch.autocast("cpu")])
def test_inference_mode_and_autocasting_are_left_and_restored(context) -> None:
    """Neither its missing gradients nor its rounding reaches a fit or a prediction, tensors made inside included."""
    posterior = fitted()
    with context():
        modes = torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu")
        inside = bz.fit(model, bz.Laplace(), Y.clone(), progress=False)
        trees = [bz.posterior_predictive(inside, Y.clone(), num_draws=5) for _ in range(2)]
        new = [bz.predict(inside, num_draws=5) for _ in range(4)]
        assert (torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu")) == modes
    assert torch.equal(inside.draws(5), posterior.draws(5))
    expected = bz.posterior_predictive(posterior, Y, num_draws=5)
    for tree in trees:
        assert tree["log_likelihood"].to_dataset().identical(expected["log_likelihood"].to_dataset())
    for tree in new:
        assert (
            tree["predictions"].to_dataset().identical(bz.predict(posterior, num_draws=5)["predictions"].to_dataset())
        )


def test_predictions_inside_of_a_transformation_are_those_outside() -> None:
    """Under vmap the same posterior would draw for many, and a model that calls it would seem to have changed."""
    posterior = fitted()
    expected = bz.predict(posterior, num_draws=5), bz.posterior_predictive(posterior, Y, num_draws=5)
    inside = []

    def function(x: Tensor) -> Tensor:
        inside.append((bz.predict(posterior, num_draws=5), bz.posterior_predictive(posterior, Y, num_draws=5)))
        return x.square()

    torch.func.vmap(torch.func.grad(function), randomness="different")(Y)
    for found, tree in zip(inside[0], expected, strict=True):
        for name in tree.children:
            assert found[name].to_dataset().identical(tree[name].to_dataset())


@pytest.mark.filterwarnings("ignore:The model could not be traced:bnnzoo.engine.torch_private.LoweringWarning")
def test_a_model_may_predict_in_its_body() -> None:
    posterior = fitted()
    expected = bz.predict(posterior, num_draws=5)["predictions"].to_dataset()
    level = float(expected["y"].mean())

    def outer(y: Tensor | None = None) -> None:
        found = bz.predict(posterior, num_draws=5)["predictions"].to_dataset()
        assert found.identical(expected)
        m = pyro.sample("m", dist.Normal(float(found["y"].mean()), 1.0))
        with pyro.plate("data", 8):
            pyro.sample("y", dist.Normal(m, 0.5), obs=y)

    found = bz.fit(outer, bz.Laplace(), Y, progress=False)
    precision = 1.0 + len(Y) / 0.25
    mean = (level + float(Y.sum()) / 0.25) / precision
    np.testing.assert_allclose(found.loc.numpy(), [mean], rtol=1e-6)
    assert bz.predict(posterior, num_draws=5)["predictions"].to_dataset().identical(expected)


def test_a_latent_site_that_is_conditioned_is_a_constant() -> None:
    density = build_density(poutine.condition(model, {"s": torch.tensor(0.5)}), Y)
    assert density.observed == ("y",) and [site.name for site in density.sites] == ["m"]
    theta = torch.randn(1)
    assert density.log_joint(theta, Y).item() == pytest.approx(pyro_log_joint(density, theta).item(), rel=1e-12)
    constant = dist.HalfNormal(1.0).log_prob(torch.tensor(0.5))
    assert density.log_prior(theta).item() == pytest.approx(
        float(dist.Normal(0.0, 1.0).log_prob(theta[0]) + constant), rel=1e-12
    )
    assert sum(prior_terms(density, theta).values()) + log_jacobian(density, theta) == density.log_prior(theta)
    tree = bz.posterior_predictive(bz.fit(density.model, bz.Laplace(), Y, progress=False), Y, num_draws=5)
    assert set(tree["log_likelihood"].data_vars) == set(tree["posterior_predictive"].data_vars) == {"y"}
    assert set(tree["conditional"].data_vars) == {"mean", "variance", "entropy"}


def test_a_parameter_that_is_conditioned_below_another_is_a_constant_beside_outcomes() -> None:
    density = build_density(poutine.condition(model, {"m": torch.tensor(0.5)}), Y)
    assert density.observed == ("y",)
    theta = torch.randn(1)
    assert density.log_joint(theta, Y).item() == pytest.approx(pyro_log_joint(density, theta).item(), rel=1e-12)


def test_outcomes_that_a_condition_gives_are_outcomes() -> None:
    given = build_density(poutine.condition(model, {"y": Y}))
    assert given.observed == ("y",) and given.num_data == 8

    def scale(guess: float) -> None:
        weight = pyro.sample("weight", dist.Normal(guess, 1.0))
        pyro.sample("measurement", dist.Normal(weight, 0.75))

    density = build_density(pyro.condition(scale, data={"measurement": torch.tensor(9.5)}), 8.5)
    assert density.observed == ("measurement",) and density.num_data == 1
    both = build_density(poutine.condition(model, {"y": Y, "s": torch.tensor(1.0)}))
    assert both.observed == ("y",)


def test_seeds_beyond_32_bits_and_of_numpy_are_seeds() -> None:
    posterior = fitted()
    assert not torch.equal(posterior.draws(4, 2**32), posterior.draws(4, 0))
    assert not torch.equal(posterior.draws(4, 2**32 + 5), posterior.draws(4, 5))
    assert [word_of(kind(7)) for kind in (np.int32, np.int64, np.uint8)] == [7, 7, 7]


def test_numbers_of_a_generator_are_drawn_where_it_is() -> None:
    """Torch would ask the CPU's generator for numbers on the default device, and refuse."""
    draws = {
        torch.rand: (3,),
        torch.randn: (3,),
        torch.randint: (5, (3,)),
        torch.randperm: (3,),
    }
    for function, args in draws.items():
        expected = function(*args, generator=torch.Generator().manual_seed(1))
        with on_device(torch.device("meta")):
            found = function(*args, generator=torch.Generator().manual_seed(1))
            assert function(*args).device.type == "meta"
        assert torch.equal(found, expected)


def test_torchs_default_device_is_the_callers_and_not_the_librarys() -> None:
    @plain_torch()
    def inside() -> tuple[str, str]:
        return torch.zeros(1).device.type, device_of_caller().type

    assert inside() == ("cpu", "cpu")
    with torch.device("meta"):
        assert device_of_caller().type == "meta"
        assert inside() == ("cpu", "meta")
        assert torch.zeros(1).device.type == "meta"
    assert inside() == ("cpu", "cpu")
