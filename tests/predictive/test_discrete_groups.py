"""Discrete sites in trees: drawn given the data, their probabilities, predictions, and what every method makes of them."""

import dataclasses

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

import bnnzoo as bz
from bnnzoo.core.verdict.verdict import _of_labels
from tests.helpers.discrete_models import MODELS

Y = torch.cat([torch.linspace(-3, -1, 15), torch.linspace(1, 3, 10)]).double()


def mixture(y: Tensor | None, n: int | None = None) -> None:
    w = pyro.sample("w", dist.Dirichlet(torch.ones(2)))
    mu = pyro.sample("mu", dist.Normal(torch.tensor([-2.0, 2.0]), 0.3).to_event(1))
    with pyro.plate("data", n or len(y)):
        z = pyro.sample("z", dist.Categorical(w))
        m = pyro.deterministic("m", mu[z])
        pyro.sample("y", dist.Normal(m, 1.0), obs=y)


def marginal(y: Tensor | None, n: int | None = None) -> None:
    w = pyro.sample("w", dist.Dirichlet(torch.ones(2)))
    mu = pyro.sample("mu", dist.Normal(torch.tensor([-2.0, 2.0]), 0.3).to_event(1))
    with pyro.plate("data", n or len(y)):
        pyro.sample("y", dist.MixtureSameFamily(dist.Categorical(w), dist.Normal(mu, 1.0)), obs=y)


@pytest.fixture(scope="module")
def posterior():
    return bz.fit(mixture, bz.Laplace(), Y, progress=False)


def test_the_tree_holds_the_draws_and_the_probabilities_of_each_row(posterior) -> None:
    tree = bz.posterior_predictive(posterior, Y, num_draws=300)
    assert tree["posterior"]["z"].dims == ("chain", "draw", "obs_id")
    probs = tree["discrete_probs"]["z"]
    assert probs.dims == ("chain", "draw", "obs_id", "z_value")
    values = posterior.density.constrain(posterior.draws(300)[0])
    log = values["w"].log()[:, None] + dist.Normal(values["mu"][:, None], 1.0).log_prob(Y[:, None])
    np.testing.assert_allclose(probs[0], torch.softmax(log, -1), rtol=1e-8, atol=1e-12)
    share = (tree["posterior"]["z"] == 1).mean(("chain", "draw"))
    expected = probs.sel(z_value=1).mean(("chain", "draw"))
    error = np.sqrt(expected * (1 - expected) / 300) + 1e-3
    assert bool((abs(share - expected) <= 4.5 * error).all())
    z = tree["posterior"]["z"].values
    np.testing.assert_allclose(tree["posterior"]["m"], np.take_along_axis(tree["posterior"]["mu"].values, z, -1))


def test_a_tree_is_the_same_for_the_same_seed_and_for_any_block(posterior) -> None:
    one, other = (bz.posterior_predictive(posterior, Y, num_draws=50, chunk_size=size) for size in (None, 40))
    np.testing.assert_array_equal(one["posterior"]["z"], other["posterior"]["z"])
    np.testing.assert_array_equal(one["posterior_predictive"]["y"], other["posterior_predictive"]["y"])


def test_new_rows_have_discrete_sites_given_what_is_known_of_them(posterior) -> None:
    known = bz.predict(posterior, Y[:3], num_draws=200)
    assert dict(known["predictions_discrete"]["z"].sizes) == {"chain": 1, "draw": 200, "obs_id": 3}
    assert float(known["predictions_discrete_probs"]["z"].sel(z_value=1).max()) < 0.05
    unknown = bz.predict(posterior, None, n=3, num_draws=200)
    share = float(unknown["predictions_discrete_probs"]["z"].sel(z_value=1).mean())
    w = float(posterior.density.constrain(posterior.draws(200)[0])["w"][:, 1].mean())
    assert abs(share - w) < 1e-6
    assert float(unknown["predictions"]["y"].std()) > 1.5


def test_leave_one_out_is_that_of_the_marginal_model(posterior) -> None:
    same = bz.fit(marginal, bz.Laplace(), Y, progress=False)
    rows = [bz.posterior_predictive(each, Y, num_draws=1000)["log_likelihood"]["y"] for each in (posterior, same)]
    scores = [bz.diagnostics.loo(bz.posterior_predictive(each, Y, num_draws=1000)).elpd for each in (posterior, same)]
    assert abs(scores[0] - scores[1]) < 0.1
    assert rows[0].dims == rows[1].dims == ("chain", "draw", "obs_id")


@pytest.mark.parametrize(
    "method",
    [
        bz.NUTS(num_chains=2, num_warmup=100, num_draws=100),
        bz.HMC(num_chains=2, num_warmup=1, num_draws=50, step_size=0.1),
        bz.MAMS(num_chains=2, num_warmup=1, num_draws=50, step_size=0.1),
        bz.MeanFieldVI(num_steps=300),
        bz.MAP(num_steps=200),
    ],
    ids=lambda method: type(method).__name__,
)
@pytest.mark.filterwarnings("ignore")  # of chains without warm-up
@pytest.mark.slow
def test_the_fit_is_that_of_the_marginal_model_for_the_same_seed(method) -> None:
    """Draws are those of the model summed by hand, to rounding: warm-ups that doubt rounding at each step are left out."""
    thetas = [bz.fit(model, method, Y, progress=False).draws(seed=1) for model in (mixture, marginal)]
    torch.testing.assert_close(thetas[0], thetas[1], rtol=1e-7, atol=1e-7)


@pytest.mark.slow
def test_svi_sums_discrete_sites_out_as_pyro_does() -> None:
    found = bz.fit(mixture, bz.SVI(num_steps=600, learning_rate=0.05), Y, progress=False)
    exact = bz.fit(marginal, bz.Laplace(), Y, progress=False)
    torch.testing.assert_close(found.draws(500)[0].mean(0), exact.draws(500)[0].mean(0), rtol=0.0, atol=0.15)


def test_mini_batches_count_as_all_rows(posterior) -> None:
    density = posterior.density
    theta = torch.zeros(density.num_params)
    parts = torch.stack([density.log_joint(theta, rows) for rows in Y.split(5)])
    torch.testing.assert_close(parts.mean(), density.log_joint(theta, Y))


def test_a_posterior_is_loaded_with_its_discrete_sites(posterior, tmp_path) -> None:
    posterior.save(tmp_path / "mixture.bnn")
    loaded = bz.load(tmp_path / "mixture.bnn", mixture, Y)
    np.testing.assert_array_equal(
        bz.to_datatree(loaded, num_draws=20)["posterior"]["z"],
        bz.to_datatree(posterior, num_draws=20)["posterior"]["z"],
    )


def test_chains_apart_are_told_of_label_switching() -> None:
    chains = bz.fit(mixture, bz.NUTS(num_chains=1, num_warmup=5, num_draws=5), Y, progress=False)
    assert "discrete site 'z' may have exchanged their roles (label switching)" in _of_labels(chains, 3.0)
    assert _of_labels(chains, 0.5) == ""


@pytest.mark.parametrize("name", ["capture", "sequences", "factorial", "groups", "topics", "changepoint", "missing"])
def test_every_discrete_site_of_a_model_is_in_the_tree(name: str) -> None:
    model, data = MODELS[name]
    fitted = bz.fit(model, bz.MAP(num_steps=20, polish_steps=0), *data, progress=False)
    tree = bz.posterior_predictive(fitted, *data)
    for site, values in tree["discrete_probs"].items():
        np.testing.assert_allclose(values.sum(f"{site}_value"), 1.0, rtol=1e-6)
        assert tree["posterior"][site].dims == values.dims[:-1]


@pytest.mark.parametrize("place", [0, 1], ids=["first", "second"])
def test_states_are_nan_at_draws_that_are_lost(place: int) -> None:
    """Where the first draw was lost the prediction ended in an error; states of others were numbers beside NaN."""

    def model(y: Tensor | None = None, n: int | None = None) -> None:
        rho = pyro.sample("rho", dist.Normal(0.0, 0.1))
        factor = torch.linalg.cholesky(torch.eye(2) + rho * (1 - torch.eye(2)))[1, 1]
        with pyro.plate("data", n or len(y)):
            z = pyro.sample("z", dist.Categorical(logits=factor * torch.tensor([0.5, -0.5])))
            twice = pyro.deterministic("twice", 2 * z)
            pyro.sample("y", dist.Normal(2.0 * twice - 2.0, 1.0), obs=y)

    posterior = bz.fit(model, bz.NUTS(num_chains=1, num_warmup=5, num_draws=3), Y, progress=False)
    theta = torch.tensor([0.1, -0.2, 0.3, 0.0])
    theta[place] = 2.0
    posterior = dataclasses.replace(posterior, theta=theta[None, :, None])
    lost = (np.arange(4) == place)[:, None]
    for tree, group, probs in (
        (bz.posterior_predictive(posterior, Y), "posterior", "discrete_probs"),
        (bz.predict(posterior, Y), "predictions_discrete", "predictions_discrete_probs"),
        (bz.predict(posterior, None, 7), "predictions_discrete", "predictions_discrete_probs"),
    ):
        assert (tree[group]["z"].isnull() == lost).all() and (tree[group]["twice"].isnull() == lost).all()
        assert (tree[probs]["z"].isnull() == lost[..., None]).all()
        assert set(np.unique(tree[group]["z"].values[~tree[group]["z"].isnull().values])) <= {0.0, 1.0}
