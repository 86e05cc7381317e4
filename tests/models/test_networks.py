import pytest
import torch
from torch import nn

from bnnzoo.models import convnet, mlp


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


def test_blocks_of_a_convolutional_network_halve_the_image():
    net = convnet((3, 9, 12), 4, channels=(5, 6), hidden=(7,))
    kinds = [type(layer).__name__ for layer in net]
    block = ["Conv2d", "ReLU", "AvgPool2d"]
    assert kinds == [*block, *block, "Flatten", "Linear", "ReLU", "Linear"]
    assert net[7].in_features == 6 * 2 * 3
    image = torch.randn(2, 3, 9, 12)
    torch.testing.assert_close(net(image)[1], net(image[1]))  # images are computed apart


def test_a_convolutional_network_without_blocks_is_a_perceptron():
    assert [type(layer) for layer in convnet((1, 4, 4), 2, channels=(), hidden=())] == [nn.Flatten, nn.Linear]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ((1, 4), 2),
            r"shape must be \(channels, height, width\), and every size a positive integer, but shape is \(1, 4\)",
        ),
        (((1, 4, 4), 0), "every size a positive integer, but .* out_features 0"),
        (((1, 4, 4), 2, (3, -1)), r"channels are \(3, -1\)"),
        (((1, 3, 9), 2), "2 blocks halve 3 x 9 pixels to nothing. Write fewer channels"),
        (((1, 8, 8), 2, (3,), (4,), "swish"), "convnet: activation must be one of 'tanh'"),
    ],
)
def test_a_convolutional_network_that_cannot_be_is_refused(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        convnet(*arguments)


def test_a_single_width_is_told_to_be_a_sequence():
    with pytest.raises(TypeError, match=r"mlp\(hidden=4\): write a sequence .*hidden=\(4,\)"):
        mlp(3, hidden=4)
    with pytest.raises(TypeError, match=r"convnet\(channels=4\): write a sequence with the channels of each block"):
        convnet((1, 8, 8), 2, channels=4)
