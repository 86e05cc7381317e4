import pytest
import torch
from torch import nn

from bnnzoo.models import mlp


def test_widths_and_activations_follow_the_arguments():
    net = mlp(3, hidden=(5, 4), out_features=2, activation="relu")
    assert [type(layer) for layer in net] == [nn.Linear, nn.ReLU, nn.Linear, nn.ReLU, nn.Linear]
    assert [tuple(layer.weight.shape) for layer in net if isinstance(layer, nn.Linear)] == [(5, 3), (4, 5), (2, 4)]
    assert net(torch.zeros(7, 3)).shape == (7, 2)


def test_no_hidden_layer_is_a_linear_model():
    assert [type(layer) for layer in mlp(3, hidden=())] == [nn.Linear]


@pytest.mark.parametrize("activation", ["tanh", "relu", "gelu", "silu", "softplus", "sigmoid", nn.Mish])
def test_activations_are_applied_between_layers(activation):
    net, x = mlp(3, (5,), activation=activation), torch.randn(7, 3)
    function = (
        activation()
        if callable(activation)
        else getattr(torch.nn.functional, activation, None) or getattr(torch, activation)
    )
    torch.testing.assert_close(net(x), net[2](function(net[0](x))))


def test_an_unknown_activation_is_refused():
    with pytest.raises(ValueError, match=r"activation must be one of 'tanh', .* or a callable, but is 'swish'"):
        mlp(3, activation="swish")


@pytest.mark.parametrize("arguments", [(0,), (3, (5, -1)), (3, (5,), 0), (3, (2.5,))])
def test_widths_that_are_no_positive_integers_are_refused(arguments):
    with pytest.raises(ValueError, match="widths must be positive integers"):
        mlp(*arguments)


def test_a_single_width_is_told_to_be_a_sequence():
    with pytest.raises(TypeError, match=r"mlp\(hidden=4\): write a sequence .*hidden=\(4,\)"):
        mlp(3, hidden=4)
