import copy
import pickle

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from pyro.infer import Predictive
from pyro.infer.reparam import LocScaleReparam
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention import SDPBackend, sdpa_kernel

from bnnzoo.core.model.density import build_density
from bnnzoo.core.program.network import NETWORK_KEY
from bnnzoo.models import likelihoods, mlp, priors, random_module, supervised

NORMAL = priors.normal(1.0)


def sampled(net, prior=NORMAL, name="net"):
    """The network's callable, and the values and records of the sites it sampled."""
    with poutine.trace() as tracer:
        call = random_module(name, net, prior)
    nodes = {n: node for n, node in tracer.trace.nodes.items() if node["type"] == "sample"}
    return call, {n: node["value"] for n, node in nodes.items()}, {n: node["infer"] for n, node in nodes.items()}


def test_the_callable_computes_with_the_sampled_values():
    net, x = mlp(3, (4,)), torch.randn(5, 3)
    call, values, _ = sampled(net)
    assert {name: value.shape for name, value in values.items()} == {
        f"net.{name}": parameter.shape for name, parameter in net.named_parameters()
    }
    expected = torch.tanh(x @ values["net.0.weight"].T + values["net.0.bias"]) @ values["net.2.weight"].T
    torch.testing.assert_close(call(x), expected + values["net.2.bias"])


def test_the_users_network_stays_as_it_was():
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    before = copy.deepcopy(net.state_dict())
    call, _values, _ = sampled(net)
    call(torch.randn(5, 3))
    assert net.training
    assert all(parameter.requires_grad and parameter.grad is None for parameter in net.parameters())
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


def test_the_record_is_complete_and_the_same_at_every_call():
    net = mlp(3, (4,))
    first, second = (next(iter(sampled(net)[2].values()))[NETWORK_KEY] for _ in range(2))
    assert first is second
    assert first.name == "net"
    assert dict(first.sites) == {name: f"net.{name}" for name, _ in net.named_parameters()}
    assert first.module is net


def test_tied_parameters_are_one_site():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.encode, self.decode = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)
            self.decode.weight = self.encode.weight

        def forward(self, x):
            return self.decode(self.encode(x))

    x = torch.randn(5, 3)
    call, values, _ = sampled(Tied())
    weight = values.pop("net.encode.weight")
    assert not values
    torch.testing.assert_close(call(x), x @ weight.T @ weight.T)


def test_buffers_keep_the_networks_values():
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).eval()
    net[1].running_mean.fill_(2.0)
    x = torch.randn(5, 3)
    call, values, _ = sampled(net)
    own = {name.removeprefix("net."): value for name, value in values.items()}
    torch.testing.assert_close(call(x), functional_call(net, own, (x,)))
    assert net[1].num_batches_tracked == 0


def test_frozen_parameters_keep_the_networks_values():
    net = mlp(3, (4,))
    net[0].requires_grad_(False)
    x = torch.randn(5, 3)
    call, values, infer = sampled(net)
    assert set(values) == {"net.2.weight", "net.2.bias"}
    assert set(infer["net.2.weight"][NETWORK_KEY].sites) == {"2.weight", "2.bias"}
    hidden = torch.tanh(net[0](x))
    torch.testing.assert_close(call(x), hidden @ values["net.2.weight"].T + values["net.2.bias"])


@pytest.mark.parametrize("net_dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("x_dtype", [torch.float32, torch.float64])
def test_the_network_computes_in_the_dtype_of_its_input(net_dtype, x_dtype):
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).eval().to(net_dtype)
    call, _, _ = sampled(net)
    assert call(torch.zeros(5, 3, dtype=x_dtype)).dtype == x_dtype


def test_integer_inputs_are_left_alone():
    call, values, _ = sampled(nn.Embedding(7, 2))
    torch.testing.assert_close(call(torch.tensor([3, 0])), values["net.weight"][[3, 0]])


def fan_ins(net):
    seen = {}

    def prior(site_name, parameter, fan_in):
        seen[site_name.removeprefix("net.")] = fan_in
        return NORMAL(site_name, parameter, fan_in)

    sampled(net, prior)
    return seen


@pytest.mark.parametrize(
    ("layer", "weight"),
    [
        (nn.Linear(7, 3), 7),
        (nn.Conv2d(6, 4, (3, 2), groups=2), 18),
        (nn.ConvTranspose1d(6, 4, 5, groups=2), 15),
        (nn.Bilinear(2, 3, 4), 6),
    ],
    ids=lambda value: type(value).__name__,
)
def test_fan_in_counts_the_inputs_of_one_output_unit(layer, weight):
    assert fan_ins(layer) == {"weight": weight, "bias": weight}


def test_fan_in_of_layers_without_a_matrix_is_one():
    assert fan_ins(nn.LayerNorm(5)) == {"weight": 1, "bias": 1}
    assert fan_ins(nn.Embedding(7, 3)) == {"weight": 1}


def test_hyperparameters_are_no_weights():
    _, values, infer = sampled(mlp(3, (4,)), priors.layerwise())
    weights = {name for name in values if NETWORK_KEY in infer[name]}
    assert weights == {"net.0.weight", "net.0.bias", "net.2.weight", "net.2.bias"}
    assert values.keys() - weights == {f"{name}.scale" for name in weights}


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (nn.BatchNorm1d(4), r"layer '1' is BatchNorm1d in training mode: its output for one row .* Call net.eval\(\)"),
        (nn.BatchNorm1d(4, track_running_stats=False), "layer '1' is BatchNorm1d without running statistics"),
        (
            nn.AlphaDropout(0.5),
            r"layer '1' is AlphaDropout\(p=0.5.*\) in training mode: its dropout is noise .* Call net",
        ),
        (nn.GRU(4, 4, num_layers=2, dropout=0.1), r"layer '1' is GRU\(.*\) in training mode: its dropout"),
        (nn.LazyLinear(4), "layer '1' is lazy and has no shape yet: call the network on data once"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_layers_that_couple_rows_or_add_noise_are_refused(layer, message):
    net = nn.Sequential(nn.Linear(3, 4), layer)
    with pytest.raises(ValueError, match=r"random_module\('net'\): " + message):
        random_module("net", net, NORMAL)


@pytest.mark.parametrize("layer", [nn.BatchNorm1d(4), nn.Dropout(0.5), nn.GRU(4, 4, 2, dropout=0.1)])
def test_they_are_accepted_in_eval_mode(layer):
    sampled(nn.Sequential(nn.Linear(3, 4), layer).eval())


def test_dropout_layers_are_accepted_and_inactive():
    net = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.9), nn.Linear(4, 1)).train()
    outputs = []
    for _ in range(2):
        with pyro.poutine.seed(rng_seed=0):
            outputs.append(random_module("net", net, NORMAL)(torch.ones(50, 3)))
    assert torch.equal(*outputs)
    assert net.training


def test_a_network_that_is_one_bad_layer_is_named():
    with pytest.raises(ValueError, match=r"random_module\('net'\): the network is BatchNorm1d in training mode"):
        random_module("net", nn.BatchNorm1d(3), NORMAL)


def test_a_call_inside_a_plate_is_refused():
    with pyro.plate("rows", 5), pytest.raises(ValueError, match=r"inside plate 'rows'.*before entering the plate"):
        random_module("net", nn.Linear(3, 1), NORMAL)
    for _ in pyro.plate("loop", 2):
        with pytest.raises(ValueError, match="inside plate 'loop'"):
            random_module("net", nn.Linear(3, 1), NORMAL)


@pytest.mark.parametrize("name", ["", "a.b", "a/b", 3])
def test_bad_names_are_refused(name):
    with pytest.raises(ValueError, match=r"must be a non-empty string without '.' and '/'"):
        random_module(name, nn.Linear(3, 1), NORMAL)


def test_what_is_no_network_is_refused():
    with pytest.raises(TypeError, match=r"random_module\('net'\) needs a torch.nn.Module, but got function"):
        random_module("net", lambda x: x, NORMAL)


def test_a_network_without_trainable_parameters_is_refused():
    with pytest.raises(ValueError, match=r"no parameters with requires_grad=True. Call net.requires_grad_"):
        random_module("net", nn.Tanh(), NORMAL)


def test_a_prior_function_that_was_not_called_is_refused():
    with pytest.raises(TypeError, match=r"prior is the function layerwise: call it, as in bnnzoo.priors.normal\(1.0\)"):
        random_module("net", nn.Linear(3, 1), priors.layerwise)


@pytest.mark.parametrize("distribution", [dist.Normal(0.0, 1.0), dist.Normal(torch.zeros(1, 3), 1.0)])
def test_a_prior_of_the_wrong_shape_is_refused(distribution):
    with pytest.raises(
        ValueError, match=r"prior of site 'net.weight' must .* write distribution.expand\(parameter.shape\)"
    ):
        random_module("net", nn.Linear(3, 1), lambda site_name, parameter, fan_in: distribution)


def regression(net):
    return supervised(net, NORMAL, likelihoods.gaussian(0.5))


def test_the_density_is_that_of_the_weights_written_out():
    def by_hand(x, y=None):
        w = pyro.sample("w", dist.Normal(0.0, 1.0).expand([1, 3]).to_event(2))
        b = pyro.sample("b", dist.Normal(0.0, 1.0).expand([1]).to_event(1))
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal((x @ w.T + b).squeeze(-1), 0.5), obs=y)

    x, y, theta = torch.randn(6, 3), torch.randn(6), torch.randn(4)
    ours, theirs = (build_density(model, x, y) for model in (regression(nn.Linear(3, 1)), by_hand))
    torch.testing.assert_close(ours.log_joint(theta, x, y), theirs.log_joint(theta, x, y))
    assert [site.is_weight for site in ours.sites] == [True, True]
    assert [site.is_weight for site in theirs.sites] == [False, False]


def test_a_first_call_inside_transforms_leaves_a_clean_network():
    x, y = torch.randn(6, 3), torch.randn(6)
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)).eval()
    theta = torch.randn(2, build_density(regression(copy.deepcopy(net)), x, y).num_params)
    model = regression(net)
    shapes = {f"net.{name}": parameter.shape for name, parameter in net.named_parameters()}

    def log_joint(theta):
        parts = theta.split([shape.numel() for shape in shapes.values()])
        values = {name: part.reshape(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}
        return poutine.trace(poutine.condition(model, values)).get_trace(x, y).log_prob_sum()

    with pyro.validation_enabled(False):
        inside = make_fx(vmap(grad(log_joint)))(theta)(theta)
        torch.testing.assert_close(inside, torch.stack([grad(log_joint)(row) for row in theta]))
    sampled(net)[0](x)


def test_non_centring_by_reparam_changes_variables_and_nothing_else():
    x, y = torch.randn(6, 3), torch.randn(6)
    model = supervised(nn.Linear(3, 1, bias=False), priors.layerwise(dist.HalfNormal(1.0)), likelihoods.gaussian(0.5))
    centred = build_density(model, x, y)
    standard = build_density(poutine.reparam(model, {"net.weight": LocScaleReparam(0.0)}), x, y)
    scale, noise = torch.tensor(0.3), torch.randn(1, 3)
    a = centred.unconstrain({"net.weight.scale": scale, "net.weight": scale * noise})
    b = standard.unconstrain({"net.weight.scale": scale, "net.weight_decentered": noise})
    torch.testing.assert_close(centred.log_joint(a, x, y) + 3 * scale.log(), standard.log_joint(b, x, y))
    torch.testing.assert_close(centred.conditional(a, x)["mean"], standard.conditional(b, x)["mean"])
    assert standard.observed == ("y",)


def test_it_is_an_ordinary_pyro_model():
    x = torch.randn(6, 3)
    pyro.set_rng_seed(0)
    draws = Predictive(regression(nn.Linear(3, 1)), num_samples=4)(x)
    assert draws["y"].shape == (4, 6)
    assert draws["net.weight"].squeeze().shape == (4, 3)


def test_a_model_survives_pickling_between_processes():
    x, y, theta = torch.randn(6, 3), torch.randn(6), torch.randn(22)
    model = supervised(mlp(3, (4,)), priors.by_parameter({"*.bias": NORMAL}, priors.fan_in()), likelihoods.gaussian())
    sent = pickle.loads(pickle.dumps(model))
    expected = build_density(model, x, y).log_joint(theta, x, y)
    torch.testing.assert_close(build_density(sent, x, y).log_joint(theta, x, y), expected)


def test_attention_runs_on_the_density():
    layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
    net = nn.Sequential(nn.Linear(3, 8), nn.Unflatten(1, (2, 4)), layer, nn.Flatten(), nn.Linear(8, 1))
    x, y = torch.randn(6, 3), torch.randn(6)
    density = build_density(regression(net), x, y)
    theta = density.init(2, seed=0)
    with sdpa_kernel(SDPBackend.MATH):  # the only attention kernel of torch that vmap can batch
        value, gradient = density.batched_value_and_grad(theta, x, y)
    torch.testing.assert_close(value, torch.stack([density.log_joint(row, x, y) for row in theta]))
    step = 1e-6 * torch.nn.functional.one_hot(torch.tensor(5), density.num_params)
    difference = density.log_joint(theta[0] + step, x, y) - density.log_joint(theta[0] - step, x, y)
    torch.testing.assert_close(gradient[0, 5], difference / 2e-6, rtol=1e-4, atol=1e-6)
