"""Adapters at zero change nothing, are all that is inferred and saved, and are refused where they do not fit."""

import numpy as np
import pytest
import torch
from torch import nn

import bnnzoo as bz
from bnnzoo.core.program.sites import ModelError


class _Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.head = nn.Linear(4, 1)

    def forward(self, x):
        return self.head(self.attention(x, x, x, need_weights=False)[0].mean(1))


NETWORKS = {
    "linear": (lambda: bz.models.mlp(3, (8, 8)), (5, 3)),
    "convolution": (
        lambda: nn.Sequential(nn.Conv2d(2, 4, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(16, 1)),
        (5, 2, 4, 4),
    ),
    "attention": (_Attention, (5, 3, 4)),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_zero_adapters_change_nothing_and_gradients_reach_adapters_only(name):
    make, shape = NETWORKS[name]
    net, x = make().eval(), torch.randn(shape)
    before = {key: value.clone() for key, value in net.state_dict().items()}
    adapted = bz.models.lora(net, rank=1)
    torch.testing.assert_close(adapted(x), net(x))
    for value in adapted.parameters():
        if value.requires_grad:
            value.data.normal_()
    adapted(x).square().sum().backward()
    trained = {key for key, value in adapted.named_parameters() if value.grad is not None}
    assert trained == set(bz.models.adapter_state(adapted))
    assert all(float(adapted.get_parameter(key).grad.abs().sum()) > 0 for key in trained)
    assert not torch.allclose(adapted(x), net(x))
    assert all(torch.equal(value, net.state_dict()[key]) for key, value in before.items())


def test_an_adapted_layer_has_the_weight_with_the_product():
    adapted = bz.models.lora(nn.Linear(3, 2), rank=1, alpha=0.5)
    adapted.up.weight.data.normal_()
    x = torch.randn(4, 3)
    weight = adapted.base.weight + 0.5 * adapted.up.weight @ adapted.down.weight
    torch.testing.assert_close(adapted(x), x @ weight.mT + adapted.base.bias)


def _problem(make=NETWORKS["linear"][0], shape=(20, 3)):
    net, x = make(), torch.randn(shape, generator=torch.Generator().manual_seed(0))
    adapted = bz.models.lora(net.eval(), rank=1)
    return bz.models.supervised(adapted, bz.priors.normal(0.3), bz.likelihoods.gaussian(0.5)), x, x.flatten(1)[:, 0]


SHORT = bz.MAP(num_steps=20, polish_steps=0)


@pytest.mark.parametrize(
    "method",
    [
        bz.Laplace(map=SHORT),
        bz.DiagonalLaplace(map=SHORT),
        bz.KFACLaplace(map=SHORT),
        bz.LowRankLaplace(map=SHORT),
        bz.LastLayerLaplace(map=SHORT),
        bz.MeanFieldVI(num_steps=20),
        bz.SWAG(num_steps=60, batch_size=10, init=None),
        bz.DeepEnsemble(num_members=2, num_steps=20),
        pytest.param(bz.SGHMC(num_chains=1, num_warmup=10, num_draws=10), marks=pytest.mark.slow),
    ],
    ids=lambda method: type(method).__name__,
)
@pytest.mark.filterwarnings("ignore::bnnzoo.inference.FitWarning")
def test_methods_infer_adapters_alone(method):
    model, x, y = _problem()
    posterior = bz.fit(model, method, x, y, progress=False)
    names = {site.name.removeprefix("net.") for site in posterior.density.sites}
    assert names == set(bz.models.adapter_state(model.net))
    tree = bz.predict(posterior, x[:2], num_draws=2)
    assert np.isfinite(tree["predictions"]["y"]).all()


@pytest.mark.filterwarnings("ignore::bnnzoo.inference.FitWarning")
@pytest.mark.parametrize("name", ["convolution", "attention"])
@pytest.mark.filterwarnings("ignore::bnnzoo.inference.FitWarning")
def test_other_layers_are_inferred_too(name):
    make, shape = NETWORKS[name]
    model, x, y = _problem(make, (8, *shape[1:]))
    posterior = bz.fit(model, bz.Laplace(map=SHORT), x, y, progress=False)
    assert np.isfinite(bz.predict(posterior, x[:2], num_draws=2)["predictions"]["y"]).all()


def test_kronecker_factors_of_attention_adapters_are_refused():
    model, x, y = _problem(_Attention, (8, 3, 4))
    sentence = (
        r"but 'attention\.\S+' belongs to the MultiheadAttention layer 'attention'\. "
        r"Use DiagonalLaplace\(\), LastLayerLaplace\(\), LowRankLaplace\(\) or Laplace\(\)\."
    )
    with pytest.raises(ModelError, match=sentence):
        bz.fit(model, bz.KFACLaplace(map=SHORT), x, y, progress=False)


def test_a_fit_starts_at_the_trained_network():
    model, x, y = _problem()
    posterior = bz.fit(model, bz.MAP(init=model.net.state_dict(), num_steps=0, polish_steps=0), x, y, progress=False)
    found = bz.predict(posterior, x)["conditional"]["mean"].to_numpy()[0, 0]
    np.testing.assert_allclose(found, model.net(x).squeeze(-1).detach(), rtol=1e-6)


def test_adapters_are_saved_without_the_network(tmp_path):
    make, x = NETWORKS["linear"][0], torch.randn(4, 3)
    net = make()
    adapted = bz.models.lora(net, rank=2, layers=["2"])
    adapted.get_parameter("2.up.weight").data.normal_()
    state = bz.models.adapter_state(adapted)
    assert sum(value.numel() for value in state.values()) == 2 * (8 + 8)
    other = bz.models.lora(net, rank=2, layers=["2"])
    other.load_state_dict(state, strict=False)
    torch.testing.assert_close(other(x), adapted(x))
    model, x, y = _problem()
    posterior = bz.fit(model, SHORT, x, y, progress=False)
    posterior.save(tmp_path / "adapters")
    again = bz.load(tmp_path / "adapters", model, x, y)
    assert again.theta.shape[-1] == sum(v.numel() for v in bz.models.adapter_state(model.net).values())
    torch.testing.assert_close(again.theta, posterior.theta)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"layers": ["encoder.*"]}, r"'encoder.\*', which matches no Linear"),
        ({"layers": []}, "matches no Linear"),
        ({"rank": 0}, "rank must be a whole number, one or more"),
        ({"rank": 4}, "rank=4 is above what layer '0' can have, 3"),
        ({"rank": 1, "alpha": -1.0}, "alpha must be a positive number"),
    ],
)
def test_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        bz.models.lora(bz.models.mlp(3, (8,), out_features=8), **settings)


def test_other_networks_are_refused():
    with pytest.raises(TypeError, match=r"must be a torch\.nn\.Module, but is str"):
        bz.models.lora("net")
    with pytest.raises(ValueError, match="a convolution of 2 groups"):
        bz.models.lora(nn.Conv2d(2, 2, 3, groups=2), rank=1)
    with pytest.raises(ValueError, match="separate weights for keys and values"):
        bz.models.lora(nn.MultiheadAttention(4, 2, kdim=3), rank=1)
    with pytest.raises(ValueError, match="the network has no adapters"):
        bz.models.adapter_state(nn.Linear(2, 1))
