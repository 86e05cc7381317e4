"""Posteriors of models with discrete latent sites: samplers agree, approximations take them, and all draw the discrete sites."""

import arviz as az
import numpy as np
import pytest
import torch
from torch import Tensor

import bnnzoo as bz
from bnnzoo.core.model.density import build_density
from bnnzoo.core.posterior.posterior import Posterior
from tests.helpers.discrete_models import MODELS, by_hand

NAMES = [
    "mixture",
    "sticks",
    "chain",
    "factorial",
    "stays",
    "topics",
    "capture",
    "changepoint",
    "missing",
    "guessing",
]


def log_densities(posterior: Posterior) -> Tensor:
    """Return the log joint density at each draw ``[C, S]``, which is the same however the classes are numbered."""
    density, theta = posterior.density, posterior.draws()
    flat = [density.log_joint(row, *density.data) for row in theta.flatten(0, 1)]
    return torch.stack(flat).detach().reshape(theta.shape[:2])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of short chains, which the comparison allows for
@pytest.mark.parametrize("name", NAMES)
def test_samplers_agree_about_the_log_density(name: str) -> None:
    model, data = MODELS[name]
    num_draws = 2000 if name == "sticks" else 500  # whose components change places
    size = {"num_chains": 4, "num_warmup": 500, "num_draws": num_draws}
    means, errors = [], []
    for method in (bz.NUTS(**size), bz.MAMS(**size)):
        found = log_densities(bz.fit(model, method, *data, progress=False))
        effective = float(az.ess(found.numpy()))
        assert effective > 100
        means.append(float(found.mean()))
        errors.append(float(found.std()) / effective**0.5)
    assert abs(means[0] - means[1]) <= 4.5 * np.hypot(*errors)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # an approximation of few steps says so
@pytest.mark.parametrize("method", [bz.MeanFieldVI(num_steps=50), bz.Laplace()], ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("name", NAMES)
def test_approximations_draw_the_discrete_sites(name: str, method: object) -> None:
    model, data = MODELS[name]
    tree = bz.posterior_predictive(bz.fit(model, method, *data, progress=False), *data, num_draws=20)
    assert len(tree["discrete_probs"])
    for site, probs in tree["discrete_probs"].items():
        np.testing.assert_allclose(probs.sum(f"{site}_value"), 1.0, rtol=1e-6)
        assert tree["posterior"][site].dims == probs.dims[:-1]


def test_a_hundred_documents_have_the_density_of_their_words() -> None:
    model, _ = MODELS["topics"]
    words = torch.randint(5, (10, 100), generator=torch.Generator().manual_seed(0))
    density = build_density(model, words)
    theta = torch.randn(density.num_params, generator=torch.Generator().manual_seed(1))
    expected = by_hand("topics", density.constrain(theta), words)
    torch.testing.assert_close(density.log_likelihood(theta, words), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_hundred_documents_are_sorted_by_their_topics() -> None:
    model, _ = MODELS["topics"]
    generator = torch.Generator().manual_seed(0)
    first, second = torch.randint(2, (10, 50), generator=generator), 3 + torch.randint(2, (10, 50), generator=generator)
    posterior = bz.fit(
        model, bz.NUTS(num_chains=1, num_warmup=200, num_draws=100), torch.cat([first, second], 1), progress=False
    )
    share = bz.to_datatree(posterior)["posterior"]["theta"].mean(("chain", "draw")).to_numpy()[..., 0]
    halves = share[:50].mean(), share[50:].mean()
    assert abs(halves[0] - halves[1]) > 0.5
