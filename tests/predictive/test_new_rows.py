"""New rows in models that know the rows of the fit by their number, or by latent values of their own."""

import warnings

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

import bnnzoo as bz
from bnnzoo.core.data.conversion import DataError
from bnnzoo.core.model.density import build_density
from bnnzoo.core.posterior.info import FitInfo
from bnnzoo.core.posterior.posterior import Draws
from bnnzoo.core.program.sites import ModelError, ModelWarning

X = torch.linspace(-1.0, 1.0, 20, dtype=torch.float64)


def posterior_of(model) -> Draws:
    density = build_density(model, X, X)
    return Draws(density, FitInfo("mcmc"), torch.zeros(1, 2, density.num_params))


def fixed_size(x: Tensor, y: Tensor | None = None) -> None:
    w = pyro.sample("w", dist.Normal(0.0, 1.0))
    with pyro.plate("data", 20):
        pyro.sample("y", dist.Normal(w * x, 1.0), obs=y)


def own_values(x: Tensor, y: Tensor | None = None) -> None:
    with pyro.plate("data", len(x)):
        z = pyro.sample("z", dist.Normal(0.0, 1.0))
        pyro.sample("y", dist.Normal(z * x, 1.0), obs=y)


def test_a_plate_of_fixed_size_is_refused_for_another_number_of_rows() -> None:
    posterior = posterior_of(fixed_size)
    with pytest.raises(
        ValueError, match=r"^The model predicts 20 rows.* where x has 1: .* pyro\.plate\('data', len\(x\)\)"
    ):
        bz.predict(posterior, X[:1])
    assert bz.predict(posterior, X + 1.0)["predictions"].sizes["obs_id"] == 20


COUNTS = torch.full((20,), 8.0, dtype=torch.float64)


def successes(x: Tensor, n: Tensor, y: Tensor | None = None) -> None:
    w = pyro.sample("w", dist.Normal(0.0, 1.0))
    with pyro.plate("data", len(x)):
        pyro.sample("y", dist.Binomial(n, logits=w * x), obs=y)


def noise_is_known(x: Tensor, sd: Tensor, y: Tensor | None = None) -> None:
    w = pyro.sample("w", dist.Normal(0.0, 1.0))
    with pyro.plate("data", len(x)):
        pyro.sample("y", dist.Normal(w * x, sd), obs=y)


@pytest.mark.parametrize(
    ("model", "value", "sentence"),
    [
        (successes, 2.5, r"a total_count of 2\.5 in row 3, which Binomial does not allow: its constraint is Integer"),
        (successes, -2.0, r"a total_count of -2 in row 3, which Binomial"),
        (
            noise_is_known,
            -0.5,
            r"a scale of -0\.5 in row 3, which Normal does not allow: its constraint is GreaterThan",
        ),
    ],
)
def test_parameters_that_a_distribution_does_not_allow_are_refused(model, value: float, sentence: str) -> None:
    """Numbers were drawn, of 2.5 trials from 0.5 to 2.5."""
    density = build_density(model, X, COUNTS, COUNTS)
    posterior = Draws(density, FitInfo("mcmc"), torch.linspace(-1, 1, 50, dtype=torch.float64).reshape(1, 50, 1))
    wrong = COUNTS.clone()
    wrong[3] = value
    with pytest.raises(ModelError, match=rf"^Site 'y' has {sentence}"):
        bz.predict(posterior, X, wrong)
    assert bool(bz.predict(posterior, X, COUNTS)["predictions"]["y"].notnull().all())


def test_parameters_of_components_that_are_summed_out_are_refused_too() -> None:
    """The site's distribution is then an average, and 2.5 trials were predicted in silence."""

    def model(n: Tensor, y: Tensor | None = None) -> None:
        p = pyro.sample("p", dist.Beta(2.0, 2.0))
        with pyro.plate("data", len(n)):
            z = pyro.sample("z", dist.Bernoulli(0.5))
            pyro.sample("y", dist.Binomial(n, p * (1 - 0.5 * z)), obs=y)

    density = build_density(model, COUNTS, COUNTS / 2)
    posterior = Draws(density, FitInfo("mcmc"), torch.linspace(-1, 1, 50, dtype=torch.float64).reshape(1, 50, 1))
    wrong = COUNTS.clone()
    wrong[3] = 2.5
    with pytest.raises(
        ModelError, match=r"^Site 'y' has a total_count of 2\.5 in row 3, which Binomial does not allow"
    ):
        bz.predict(posterior, wrong)
    assert bool(bz.predict(posterior, COUNTS)["predictions"]["y"].notnull().all())


def test_scales_that_are_zero_or_nan_are_the_models_own() -> None:
    """They may have underflowed, or have no value at an input, and the other rows have predictions."""

    def model(x: Tensor, y: Tensor | None = None) -> None:
        w = pyro.sample("w", dist.Normal(0.0, 1.0))
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(w, x.sqrt()), obs=y)

    density = build_density(model, X.abs() + 0.1, X)
    posterior = Draws(density, FitInfo("mcmc"), torch.zeros(1, 4, 1))
    drawn = bz.predict(posterior, torch.tensor([1.0, 0.0, -1.0, 4.0], dtype=torch.float64))["predictions"]["y"]
    assert drawn.isnull().all(("chain", "draw")).values.tolist() == [False, False, True, False]
    assert bool((drawn[..., 1] == 0).all())


def test_parameters_that_some_draws_do_not_allow_lose_no_prediction() -> None:
    def model(x: Tensor, y: Tensor | None = None) -> None:
        sd = pyro.sample("sd", dist.Normal(1.0, 1.0))
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(x, sd), obs=y)

    density = build_density(model, X, X)
    draws = torch.linspace(-0.5, 2.0, 12, dtype=torch.float64).reshape(1, 12, 1)
    tree = bz.predict(Draws(density, FitInfo("mcmc"), draws), X)
    assert tree["predictions"]["y"].shape == (1, 12, 20)


def test_latent_values_of_the_fitted_rows_are_pointed_out_for_others() -> None:
    posterior = posterior_of(own_values)
    sentence = r"^Site 'z' has a value for each row that was fitted, and x differs .* wrong for other units"
    with pytest.warns(ModelWarning, match=sentence):
        bz.predict(posterior, X + 1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bz.predict(posterior, X)
        bz.predict(posterior, X, X + 3.0)


def test_latent_values_are_known_of_as_many_rows_as_were_fitted() -> None:
    posterior = posterior_of(own_values)
    sentence = (
        r"^Site 'z' has a value for each of the 20 rows that were fitted, and none for these 3\. Predict the rows"
    )
    with pytest.raises(DataError, match=sentence):
        bz.predict(posterior, X[:3])


def vector_of_rows(x: Tensor, y: Tensor | None = None) -> None:
    z = pyro.sample("z", dist.Normal(torch.zeros(20), 1.0).to_event(1))
    with pyro.plate("data", len(x)):
        pyro.sample("y", dist.Normal(z * x, 1.0), obs=y)


def as_many_weights_as_rows(x: Tensor, y: Tensor | None = None) -> None:
    z = pyro.sample("z", dist.Normal(torch.zeros(20), 1.0).to_event(1))
    with pyro.plate("data", len(x)):
        pyro.sample("y", dist.Normal(x * z.sum(), 1.0), obs=y)


def test_a_vector_with_a_value_for_each_row_is_pointed_out_and_one_of_that_length_is_not() -> None:
    with pytest.warns(ModelWarning, match=r"^Site 'z' has a value for each row that was fitted, and x differs"):
        bz.predict(posterior_of(vector_of_rows), X + 1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bz.predict(posterior_of(as_many_weights_as_rows), X + 1.0)


def test_rows_within_mappings_are_looked_at_too() -> None:
    def in_a_mapping(data: dict[str, Tensor], y: Tensor | None = None) -> None:
        fixed_size(data["x"], y)

    density = build_density(in_a_mapping, {"x": X}, X)
    posterior = Draws(density, FitInfo("mcmc"), torch.zeros(1, 2, 1))
    with pytest.raises(ValueError, match=r"predicts 20 rows.* where d.*\['x'\] has 1"):
        bz.predict(posterior, {"x": X[:1]})
    assert bz.predict(posterior, {"x": torch.tensor(1.0, dtype=X.dtype)})["predictions"].sizes["obs_id"] == 20
