"""Features against a loop over draws, at the mean, and what is refused."""

import numpy as np
import pytest
import torch

import bnnzoo as bz
from bnnzoo.predictive.features import features
from bnnzoo.testing import linear_gaussian


@pytest.fixture(scope="module")
def fitted():
    torch.manual_seed(0)
    x = torch.randn(15, 2)
    model = bz.models.supervised(bz.models.mlp(2, (4, 3)), bz.priors.normal(1.0), bz.likelihoods.gaussian(0.3))
    return bz.fit(model, bz.MAP(num_members=3, num_steps=5, polish_steps=0), x, x[:, 0], progress=False), x


def by_hand(posterior, theta, x):
    values = posterior.density.constrain(theta)
    first = torch.tanh(x @ values["net.0.weight"].T + values["net.0.bias"])
    return torch.tanh(first @ values["net.2.weight"].T + values["net.2.bias"])


def test_against_a_loop_over_draws(fitted):
    posterior, x = fitted
    found = features(posterior, x, chunk_size=4)
    assert found.dims == ("chain", "draw", "obs_id", "feature")
    for draw in range(3):
        expected = by_hand(posterior, posterior.draws()[0, draw], x)
        np.testing.assert_allclose(found[0, draw], expected, rtol=1e-10)


def test_at_the_mean_and_of_a_named_layer(fitted):
    posterior, x = fitted
    mean = posterior.draws().mean((0, 1))
    np.testing.assert_allclose(features(posterior, x, at_mean=True), by_hand(posterior, mean, x), rtol=1e-10)
    assert features(posterior, x, layer="0").sizes["feature"] == 4
    np.testing.assert_allclose(features(posterior, x, layer="3"), features(posterior, x))


def test_bad_input_is_named(fitted):
    posterior, x = fitted
    with pytest.raises(ValueError, match="no layer '9'; it has 0, 1, 2, 3, 4"):
        features(posterior, x, layer="9")
    with pytest.raises(ValueError, match="no network 'body'; it has net"):
        features(posterior, x, network="body")
    target = linear_gaussian()
    linear = bz.fit(target.model, bz.Laplace(), *target.data, progress=False)
    with pytest.raises(ValueError, match=r"needs a network, but the model has none \(latent sites: .*random_module"):
        features(linear, x)
