"""Graphs compute in the types in which they were traced, whatever torch's default is when they run."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from bnnzoo.engine.graphs import trace

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "identity matrix": lambda x: x @ torch.eye(3),
    "new tensors": lambda x: x + torch.ones(3) + torch.linspace(0, 1, 3) + torch.arange(0.0, 3.0) + torch.full((3,), 0.1),
    "whole numbers": lambda x: x * (torch.arange(3) / 3).sum() * torch.arange(1, 4).log(),
    "whole numbers of the data": lambda x: (x > 0).long() / 3,
    "sum of comparisons": lambda x: (x > 0).sum(dtype=torch.get_default_dtype()) * torch.ones(()) + (x > 0) * 1.5,
}  # fmt: skip


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS.keys())
@pytest.mark.parametrize(("traced", "run"), [(torch.float32, torch.float64), (torch.float64, torch.float32)])
def test_types_do_not_follow_the_default(
    function: Callable[[Tensor], Tensor], traced: torch.dtype, run: torch.dtype
) -> None:
    torch.set_default_dtype(traced)
    x = torch.tensor([0.3, -1.2, 2.0])
    expected = function(x)
    graph, _ = trace(lambda x: (function(x),), [x])
    torch.set_default_dtype(run)
    (found,) = graph(x)
    assert found.dtype == expected.dtype == traced
    torch.testing.assert_close(found, expected, rtol=4 * torch.finfo(traced).eps, atol=0)
