"""Models that are not functions of their latent values are refused before anything is fitted."""

import warnings

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

from bnnzoo.core.model.density import build_density, first_run
from bnnzoo.core.program.sites import ModelError, ModelWarning
from bnnzoo.core.reading.consistency import refuse_inconsistent
from bnnzoo.inference import MAMS, MAP, NUTS, SVI, Laplace, MeanFieldVI, fit
from bnnzoo.models import mlp, supervised
from bnnzoo.models.likelihoods import gaussian
from bnnzoo.models.priors import normal
from bnnzoo.testing import linear_gaussian
from tests.helpers.counting import Counting
from tests.helpers.densities import cases

X = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
Y = X[:, 0]


def refuse(model, *data) -> None:
    refuse_inconsistent(build_density(model, *data))


def weights() -> Tensor:
    return pyro.sample("w", dist.Normal(torch.zeros(3), 1.0).to_event(1))


@pytest.mark.parametrize("name", list(cases()))
def test_sound_models_pass(name: str) -> None:
    model, data = cases()[name][:2]
    refuse(model, *data)


@pytest.mark.parametrize("plate", [True, False])
def test_a_forgotten_squeeze_is_refused(plate: bool) -> None:
    def model(x, y=None):
        f = (x @ weights())[:, None]
        if not plate:
            return pyro.sample("y", dist.Normal(f, 1.0), obs=y)
        with pyro.plate("data", len(x)):
            return pyro.sample("y", dist.Normal(f, 1.0), obs=y)

    with pytest.raises(
        ModelError,
        match=r"Site 'y' observes 40 values of shape \[40\], but its distribution has shape \[40, (1|40)\].*1600 terms.*squeeze",
    ):
        refuse(model, X, Y)


def test_chance_outside_of_sites_is_refused() -> None:
    def model(x, y=None):
        f = x @ weights() + torch.randn(len(x))
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(f, 1.0), obs=y)

    with pytest.raises(
        ModelError, match=r"site 'y' at one and the same point is .* draws random numbers outside of pyro"
    ):
        refuse(model, X, Y)


def test_functional_dropout_is_refused() -> None:
    def model(x, y=None):
        f = torch.nn.functional.dropout(x, 0.5) @ weights()
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(f, 1.0), obs=y)

    with pytest.raises(ModelError, match=r"functional dropout in training mode"):
        refuse(model, X, Y)


def test_a_site_that_comes_and_goes_is_refused() -> None:
    runs = iter(range(100))

    def model(x, y=None):
        w = weights()
        if next(runs) % 2:
            pyro.sample("extra", dist.Normal(0.0, 1.0))
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(x @ w, 1.0), obs=y)

    with pytest.raises(ModelError, match=r"Site 'extra' is sampled in some runs of the model and not in others"):
        refuse(model, X, Y)


def test_a_gradient_lost_in_numpy_is_refused() -> None:
    def model(y):
        mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
        m = torch.as_tensor(np.tanh(mu.detach().numpy()))
        with pyro.plate("data", len(y)):
            pyro.sample("y", dist.Normal(m, 0.1), obs=y)

    with pytest.raises(ModelError, match=r"gradient of the log density is not its derivative.*\.detach\(\)"):
        refuse(model, torch.full((20,), 0.5))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_gradients_of_steep_and_flat_densities_pass(dtype: torch.dtype, scale: float) -> None:
    def model(x, y=None):
        w = pyro.sample("w", dist.Normal(torch.zeros(3, dtype=dtype), 1.0).to_event(1))
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(x @ w, scale), obs=y)

    refuse_inconsistent(build_density(model, X.to(dtype), Y.to(dtype), dtype=dtype))


def test_rows_that_are_one_event_are_pointed_out() -> None:
    def model(x, y=None):
        pyro.sample("y", dist.Normal(x @ weights(), 1.0).to_event(1), obs=y)

    with pytest.warns(ModelWarning, match=r"Site 'y' is one observation of shape \[40\], because \.to_event\(\)"):
        refuse(model, X, Y)


def test_a_network_without_its_target_is_refused() -> None:
    model = supervised(mlp(3), normal(1.0), gaussian())
    with pytest.raises(
        ModelError, match=r"was given x and observes nothing, so that 'y' would be latent.*fit\(model, method, x, y\)"
    ):
        fit(model, MAP(num_steps=3), X)


def test_a_model_that_observes_nothing_of_its_data_is_pointed_out() -> None:
    def forgotten(x, y=None):
        f = x @ weights()
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(f, 1.0))

    sentence = r"^The model was given x, y and observes nothing, .* Site 'y' has one latent value for each of 40 rows: write pyro"
    with pytest.warns(ModelWarning, match=sentence):
        fit(forgotten, MAP(num_steps=3), X, Y)
    with pytest.warns(ModelWarning, match=r"^The model was given x and observes nothing"):
        fit(unsqueezed, MAP(num_steps=3), X)
    with pytest.warns(
        ModelWarning, match=r"^The model was given x and observes nothing, so the fit returns the prior\. Write"
    ):
        fit(lambda x: weights(), MAP(num_steps=3), X)


def test_a_prior_without_data_is_fitted_in_silence() -> None:
    fit(weights, MAP(num_steps=3))


METHODS = {
    "MAP": MAP(num_steps=3),
    "MeanFieldVI": MeanFieldVI(num_steps=3),
    "SVI": SVI(num_steps=3),
    "Laplace": Laplace(MAP(num_steps=3)),
    "NUTS": NUTS(num_chains=2, num_warmup=2, num_draws=2),
    "MAMS": MAMS(num_chains=2, num_warmup=2, num_draws=2),
}


def random_mean(x, y=None):
    f = x @ weights() + torch.randn(len(x), dtype=x.dtype)
    with pyro.plate("data", len(x)):
        pyro.sample("y", dist.Normal(f, 1.0), obs=y)


def numpy_mean(x, y=None):
    f = torch.as_tensor(x.numpy() @ weights().detach().numpy())
    with pyro.plate("data", len(x)):
        pyro.sample("y", dist.Normal(f, 0.1), obs=y)


def detached_mean(x, y=None):
    f = x @ weights().detach()
    with pyro.plate("data", len(x)):
        pyro.sample("y", dist.Normal(f, 0.1), obs=y)


def unsqueezed(x, y=None):
    f = (x @ weights())[:, None]
    with pyro.plate("data", len(x)):
        pyro.sample("y", dist.Normal(f, 1.0), obs=y)


def coming_and_going(x, y=None):
    w = weights()
    if np.random.rand() < 0.5:  # noqa: NPY002 - a model that is random beyond torch
        pyro.sample("extra", dist.Normal(0.0, 1.0))
    with pyro.plate("data", len(x)):
        pyro.sample("y", dist.Normal(x @ w, 1.0), obs=y)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (random_mean, "draws random numbers outside of pyro.sample"),
        (numpy_mean, "The gradient of the log density is not its derivative"),
        (detached_mean, "The gradient of the log density is not its derivative"),
        (unsqueezed, r"observes 40 values of shape \[40\], but its distribution has shape .*squeeze"),
    ],
)
def test_every_method_refuses_a_model_that_is_no_function(model, sentence, method, dtype) -> None:
    with pytest.raises(ModelError, match=sentence):
        fit(model, method, X, Y, dtype=dtype)


@pytest.mark.filterwarnings("ignore::bnnzoo.engine.torch_private.LoweringWarning")
def test_a_site_drawn_by_the_toss_of_a_coin_is_refused_by_name_whenever_it_is_noticed() -> None:
    for seed in range(20):
        np.random.seed(seed)  # noqa: NPY002
        refusal = ""
        try:
            fit(coming_and_going, MAP(num_steps=3), X, Y)
        except ModelError as error:
            refusal = str(error)
        first = np.random.RandomState(seed).rand(2) < 0.5
        expected = "Site 'extra' is sampled in some runs of the model and not in others"
        assert expected in refusal or (not refusal and first[0] == first[1])


def test_the_look_at_a_model_costs_one_more_run_of_it() -> None:
    counting = Counting(linear_gaussian().model)
    density, first = first_run(counting, *linear_gaussian().data)
    assert counting.calls == 1
    assert refuse_inconsistent(density, first, density.init(3, 0)) is not None
    assert counting.calls == 2
    found = refuse_inconsistent(density, first, density.init(3, 0), traced=True)
    assert counting.calls == 4, "one run for the graph, one for the gradient of each site"
    assert torch.equal(found.value, density.value_and_grad(density.init(3, 0), *density.data)[0])
    assert counting.calls == 4


def test_a_model_of_many_rows_is_looked_at_with_a_few() -> None:
    rows = []

    def model(x, y=None):
        rows.append(len(x))
        f = x @ weights() + torch.randn(len(x))
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(f, 1.0), obs=y)

    with pytest.raises(ModelError, match="draws random numbers outside"):
        refuse(model, X.repeat(2500, 1), Y.repeat(2500))
    assert rows == [100_000] * 2 + [256] * 3


def test_an_error_leaves_warnings_out() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(ModelError):
            fit(numpy_mean, NUTS(num_chains=2, num_warmup=2, num_draws=2), X, Y)
    assert caught == []


@pytest.mark.filterwarnings("ignore::bnnzoo.engine.torch_private.LoweringWarning", "ignore::UserWarning")
@pytest.mark.parametrize("seed", range(4))
def test_a_site_behind_a_branch_on_a_latent_value_is_found_wherever_the_first_run_was(seed: int) -> None:
    def model(y: Tensor) -> None:
        mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
        if float(mu) > 0:
            pyro.sample("extra", dist.Normal(0.0, 1.0))
        with pyro.plate("data", len(y)):
            pyro.sample("y", dist.Normal(mu, 0.1), obs=y)

    with pytest.raises(ModelError, match="Site 'extra' is sampled in some runs of the model and not in others"):
        fit(model, MeanFieldVI(num_steps=5), torch.full((20,), 0.5), seed=seed)
