import pyro.distributions as dist
import pytest
import torch

from bnnzoo.models import likelihoods, mlp, priors, supervised
from bnnzoo.models.placement import place

DISTRIBUTIONS = {
    "plain": dist.Gamma(2.0, 1.0),
    "half": dist.HalfCauchy(2.0),
    "event": dist.HalfNormal(torch.ones(3)).to_event(1),
    "transformed": priors.gamma_precision(0.25, 0.05),
}


def devices(value):
    """The kinds of device of all tensors inside a distribution."""
    if isinstance(value, torch.Tensor):
        return {value.device.type}
    parts = value if isinstance(value, list) else vars(value).values() if hasattr(value, "__dict__") else ()
    return set().union(
        *(devices(part) for part in parts if isinstance(part, list | torch.Tensor) or hasattr(part, "__dict__"))
    )


@pytest.mark.parametrize("distribution", DISTRIBUTIONS.values(), ids=DISTRIBUTIONS.keys())
def test_every_parameter_moves_and_the_original_stays(distribution):
    with torch.device("meta"):
        moved = place(distribution)
    assert devices(moved) == {"meta"}
    assert devices(distribution) == {"cpu"}


@pytest.mark.parametrize("distribution", DISTRIBUTIONS.values(), ids=DISTRIBUTIONS.keys())
def test_in_place_it_is_the_same_distribution(distribution):
    value = distribution.sample()
    torch.testing.assert_close(place(distribution).log_prob(value), distribution.log_prob(value))


@pytest.mark.parametrize(
    "prior", [priors.layerwise(), priors.ard(priors.gamma_precision(0.5, 0.1)), priors.horseshoe()]
)
def test_a_whole_model_runs_on_another_device(prior):
    model = supervised(mlp(3, (4,)), prior, likelihoods.gaussian())
    with torch.device("meta"):
        assert model(torch.zeros(5, 3)).device.type == "meta"


@pytest.mark.gpu
@pytest.mark.parametrize(
    "prior", [priors.layerwise(), priors.ard(priors.gamma_precision(0.5, 0.1)), priors.horseshoe()]
)
def test_a_whole_model_runs_on_a_gpu(prior):
    model = supervised(mlp(3, (4,)), prior, likelihoods.gaussian())
    with torch.device("cuda"):
        assert model(torch.zeros(5, 3), torch.zeros(5)).device.type == "cuda"
