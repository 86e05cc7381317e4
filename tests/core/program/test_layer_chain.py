"""The order of layers is known for sequences of linear layers, and for nothing else."""

import pytest
from torch import nn

from bnnzoo.core.program.layer_chain import layer_chain
from bnnzoo.core.program.network import Network


def chain_of(module: nn.Module, frozen: str = "") -> list[dict[str, str]]:
    return layer_chain(Network("net", module, {n: f"net.{n}" for n, _ in module.named_parameters() if n != frozen}))


def test_nested_sequences_and_layers_in_a_row() -> None:
    inner = nn.Sequential(nn.Linear(2, 3), nn.Dropout(), nn.ReLU())
    found = chain_of(nn.Sequential(inner, nn.Linear(3, 3), nn.Linear(3, 1)))
    assert [layer["weight"] for layer in found] == ["net.0.0.weight", "net.1.weight", "net.2.weight"]
    assert [layer.get("activation") for layer in found] == ["relu", "identity", None]


@pytest.mark.parametrize(
    "module",
    [
        nn.Sequential(nn.Linear(2, 3), nn.LayerNorm(3), nn.Linear(3, 1)),
        nn.Sequential(nn.Conv1d(2, 3, 1), nn.ReLU()),
        nn.Bilinear(2, 2, 1),
        nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Tanh(), nn.Linear(3, 1)),
    ],
    ids=["norm", "convolution", "other", "two activations"],
)
def test_other_networks_have_none(module: nn.Module) -> None:
    assert chain_of(module) == []


def test_shared_and_frozen_weights_are_not_permuted() -> None:
    layer = nn.Linear(2, 2)
    assert chain_of(nn.Sequential(layer, nn.Tanh(), layer)) == []
    assert chain_of(nn.Sequential(layer, nn.Tanh(), nn.Linear(2, 1)), frozen="0.weight") == []
    assert chain_of(nn.Sequential(layer, nn.Tanh(), nn.Linear(2, 1)), frozen="0.bias") == []
