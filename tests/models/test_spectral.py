"""The spectral bound holds for any weight, its gradient is right, and distances are kept."""

import pytest
import torch

from bnnzoo.models.spectral import SpectralLinear, residual_mlp


@pytest.mark.parametrize("shape", [(6, 6), (3, 8), (8, 3)])
@pytest.mark.parametrize("scale", [0.1, 1.0, 30.0])
def test_the_norm_is_bounded_and_small_weights_are_left(shape, scale):
    layer = SpectralLinear(shape[1], shape[0], bound=0.9, num_squarings=8)
    layer.weight = torch.nn.Parameter(scale * torch.randn(*shape))
    before, after = (float(torch.linalg.matrix_norm(w.detach(), 2)) for w in (layer.weight, layer.bounded_weight()))
    assert after == pytest.approx(min(before, 0.9), rel=1e-2)
    if before < 0.9:
        torch.testing.assert_close(layer.bounded_weight(), layer.weight.data)


def test_gradient_is_that_of_the_exact_norm():
    layer = SpectralLinear(4, 4, num_squarings=12)
    weight = 3 * torch.randn(4, 4)
    layer.weight = torch.nn.Parameter(weight.clone())
    exact = weight.clone().requires_grad_()
    direction = torch.randn(4, 4)
    (layer.bounded_weight() * direction).sum().backward()
    (exact / (torch.linalg.matrix_norm(exact, 2) / 0.95) * direction).sum().backward()
    torch.testing.assert_close(layer.weight.grad, exact.grad, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("shape", [(5, 5), (3, 6)])
def test_gradient_is_the_derivative_where_singular_values_are_close(shape):
    """Vectors of a power iteration that are taken as constant have another gradient until they have converged."""
    layer = SpectralLinear(shape[1], shape[0], num_squarings=2)
    weight = (torch.eye(*shape) + 0.01 * torch.randn(*shape)).requires_grad_()

    def bounded(weight):
        layer.weight = weight
        return layer.bounded_weight()

    del layer.weight
    assert torch.autograd.gradcheck(bounded, weight)


def test_a_weight_of_zeros_has_a_gradient():
    layer = SpectralLinear(3, 2)
    torch.nn.init.zeros_(layer.weight)
    layer.bounded_weight().sum().backward()
    torch.testing.assert_close(layer.weight.grad, torch.ones(2, 3))


def test_it_has_no_state_and_can_be_batched():
    layer = SpectralLinear(5, 3)
    weights = torch.randn(7, 3, 5)
    x = torch.randn(4, 5)

    def call(weight):
        return torch.func.functional_call(layer, {"weight": weight, "bias": torch.zeros(3)}, (x,))

    torch.testing.assert_close(torch.func.vmap(call)(weights), torch.stack([call(weight) for weight in weights]))


def test_a_block_keeps_distances_between_its_bounds():
    net = residual_mlp(6, width=6, num_blocks=1, bound=0.5)
    torch.nn.init.normal_(net.blocks[0].weight, std=10.0)
    a, b = torch.randn(2, 500, 6)

    def block(z):
        return z + torch.relu(net.blocks[0](z))

    ratio = ((block(a) - block(b)).norm(dim=-1) / (a - b).norm(dim=-1)).detach()
    assert float(ratio.min()) > 0.49
    assert float(ratio.max()) < 1.52


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="bound=0 must be positive, and num_squarings=6 not negative"):
        SpectralLinear(2, 2, bound=0)
    with pytest.raises(ValueError, match="residual_mlp: width must be positive, but is 0"):
        residual_mlp(2, width=0)
