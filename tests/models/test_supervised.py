import pyro
import pytest
import torch
from pyro import poutine
from pyro.infer import SVI, Trace_ELBO
from pyro.infer.autoguide import AutoNormal

from bnnzoo.models import likelihoods, mlp, priors, supervised


def model():
    return supervised(mlp(3, (4,)), priors.normal(1.0), likelihoods.gaussian())


def test_sites_and_plate():
    trace = poutine.trace(model()).get_trace(torch.randn(5, 3), torch.randn(5))
    weights = ["net.0.weight", "net.0.bias", "net.2.weight", "net.2.bias"]
    assert trace.stochastic_nodes == [*weights, "sigma", "data"]
    assert trace.observation_nodes == ["y"]
    assert trace.nodes["data"]["value"].shape == (5,)


def test_without_a_target_it_draws_one():
    assert model()(torch.randn(5, 3)).shape == (5,)


def test_pyros_own_inference_runs_on_it():
    x, y, net = torch.randn(5, 3), torch.randn(5), model()
    pyro.set_rng_seed(0)
    svi = SVI(net, AutoNormal(net), pyro.optim.Adam({"lr": 0.05}), Trace_ELBO(num_particles=2))
    losses = [svi.step(x, y) for _ in range(60)]
    assert sum(losses[-20:]) / 20 < sum(losses[:20]) / 20
    pyro.clear_param_store()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((lambda x: x, priors.normal(), likelihoods.gaussian()), "net must be a torch.nn.Module, but is function"),
        (
            (mlp(3), 1.0, likelihoods.gaussian()),
            r"prior must be an object such as bnnzoo.priors.normal\(1.0\), but is 1.0",
        ),
        ((mlp(3), priors.normal, likelihoods.gaussian()), r"prior is the function normal: call it"),
        (
            (mlp(3), priors.normal(), likelihoods.gaussian),
            r"likelihood is the function gaussian: call it, as in bnnzoo",
        ),
        ((mlp(3), priors.normal(), "gaussian"), r"likelihood must be an object such as .*, but is 'gaussian'"),
    ],
)
def test_wrong_parts_are_refused_when_the_model_is_made(arguments, message):
    with pytest.raises(TypeError, match=message):
        supervised(*arguments)
