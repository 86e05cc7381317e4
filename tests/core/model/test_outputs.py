"""Outputs of a likelihood as functions of theta: whether rows are independent, and Jacobians row by row."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from bnnzoo.core.model.density import build_density
from bnnzoo.core.model.outputs import row_jacobians, rows_are_independent
from bnnzoo.core.parameters.restricted import restricted
from bnnzoo.testing import linear_gaussian

X = torch.randn(6, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
THETA = torch.tensor([0.3, -1.2], dtype=torch.float64)


def by_numpy(theta: Tensor, x: Tensor) -> Tensor:
    """Leave torch, which vmap cannot follow and no derivative can."""
    return torch.from_numpy(np.asarray(x.detach()) @ np.asarray(theta.detach()))[:, None]


MODELS: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], bool]] = {
    "each row alone": (lambda theta, x: torch.tanh(x @ theta)[:, None], True),
    "squeezed": (lambda theta, x: (x @ theta[:, None]).squeeze().reshape(-1, 1), True),
    "unknown to vmap": (by_numpy, True),
    "centred": (lambda theta, x: ((x - x.mean(0)) @ theta)[:, None], False),
    "summed from the first row on": (lambda theta, x: (x @ theta).cumsum(0)[:, None], False),
    "summed from the last row on": (lambda theta, x: (x @ theta).flip(0).cumsum(0).flip(0)[:, None], False),
    "scaled by the number of rows": (lambda theta, x: (x @ theta)[:, None] / len(x), False),
    "pairs of rows": (lambda theta, x: (x @ theta).reshape(-1, 2).flip(1).reshape(-1, 1), False),
    "always six rows": (lambda theta, x: theta.sum() * X[:, :1], False),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("num_rows", [2, 6])
def test_models_that_mix_rows_are_told_apart(name: str, num_rows: int) -> None:
    function, expected = MODELS[name]
    whole = function(THETA, X[:num_rows])
    assert rows_are_independent(whole, function, THETA, (X[:num_rows],), num_rows) is expected


def test_one_row_is_not_split() -> None:
    function, _ = MODELS["each row alone"]
    assert not rows_are_independent(function(THETA, X[:1]), function, THETA, (X[:1],), 1)


@pytest.mark.parametrize("name", ["each row alone", "squeezed"])
def test_row_jacobians_are_those_of_all_rows(name: str) -> None:
    function, _ = MODELS[name]
    expected = torch.func.jacrev(function)(THETA, X)
    torch.testing.assert_close(row_jacobians(function, (X,), len(X))(THETA, X), expected)


def test_a_restricted_density_varies_some_entries_of_a_site_and_no_others() -> None:
    target = linear_gaussian()
    density = build_density(target.model, *target.data)
    theta, index = torch.tensor([0.5, -0.2, 0.7]), torch.tensor([0, 2])
    some = restricted(density, theta, index)
    moved = torch.tensor([1.5, 2.5])
    expected = density.log_likelihood(theta.index_copy(0, index, moved), *target.data)
    torch.testing.assert_close(some.log_likelihood(moved, *target.data), expected)
    fixed = restricted(density, theta, index[:0])
    assert not any(value.requires_grad for value in fixed.constrain(moved[:0].requires_grad_()).values())


def test_a_restricted_density_wants_its_index_in_order() -> None:
    target = linear_gaussian()
    density = build_density(target.model, *target.data)
    with pytest.raises(
        ValueError, match=r"index=\[2, 0\]: write each entry of theta that varies once, in ascending order"
    ):
        restricted(density, torch.zeros(3), torch.tensor([2, 0]))


def test_rounding_in_single_precision_does_not_couple_rows() -> None:
    generator = torch.Generator().manual_seed(0)
    x, theta = (torch.randn(*size, generator=generator, dtype=torch.float32) for size in ((400, 300), (300, 50)))

    def function(theta: Tensor, x: Tensor) -> Tensor:
        """Sum one row in another order than many, as convolutions are."""
        return x.flip(1) @ theta.flip(0) if len(x) == 1 else x @ theta

    assert rows_are_independent(function(theta, x), function, theta, (x,), len(x))

    def centred(theta: Tensor, x: Tensor) -> Tensor:
        return function(theta, x - x.mean(0))

    assert not rows_are_independent(centred(theta, x), centred, theta, (x,), len(x))
