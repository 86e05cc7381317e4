"""Derivatives without vectors for autograd, beside those of torch.func."""

import torch
from torch import Tensor
from torch.func import hessian, jacrev, vmap

from bnnzoo.engine.value_and_grad import hessian_products, jacobian_of

THETA = torch.tensor([0.3, -1.2, 2.0], dtype=torch.float64)
ROWS = torch.linspace(-1.0, 1.0, 12, dtype=torch.float64).reshape(4, 3)


def outputs(theta: Tensor, rows: Tensor) -> Tensor:
    return torch.stack([(rows @ theta).sin(), (rows**2 @ theta.exp())], -1)


def test_jacobians_are_those_of_torch_by_themselves_and_for_each_row() -> None:
    found, expected = jacobian_of(outputs)(THETA, ROWS), jacrev(outputs)(THETA, ROWS)
    assert found.shape == (4, 2, 3)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(vmap(jacobian_of(outputs), in_dims=(None, 0))(THETA, ROWS), expected)


def test_products_with_a_hessian_are_those_of_torchs() -> None:
    def function(theta: Tensor) -> Tensor:
        return outputs(theta, ROWS).square().sum()

    found = vmap(hessian_products(function, THETA))(ROWS)
    torch.testing.assert_close(found, ROWS @ hessian(function)(THETA))
