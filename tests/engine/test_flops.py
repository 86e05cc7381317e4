"""The products in a graph, counted as torch counts them."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from bnnzoo.engine.flops import flops_of
from bnnzoo.engine.value_and_grad import value_and_grad_of

W, BIAS = torch.ones(4, 5), torch.ones(5)
IMAGES, FILTERS = torch.ones(2, 3, 8, 8), torch.ones(6, 3, 3, 3)


def sloped(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    return lambda x: value_and_grad_of(lambda leaf: function(leaf).square().sum(), x)


@pytest.mark.parametrize(
    ("function", "x"),
    [
        (lambda x: x @ W, torch.ones(3, 4)),
        (lambda x: functional.linear(x, W.T, BIAS).tanh() @ W.T, torch.ones(3, 4)),
        (sloped(lambda w: torch.ones(7, 4) @ w), W),
        (lambda x: torch.baddbmm(x, x, x), torch.ones(2, 3, 3)),
        (sloped(lambda x: torch.bmm(x, x)), torch.ones(2, 3, 3)),
        (lambda x: functional.conv2d(x, FILTERS, stride=2, padding=1), IMAGES),
        (sloped(lambda f: functional.conv2d(IMAGES, f)), FILTERS),
        (sloped(lambda x: functional.conv2d(x, FILTERS)), IMAGES),
        (lambda x: functional.conv_transpose2d(x, FILTERS.transpose(0, 1)), IMAGES),
        (lambda x: x.exp().sum(), torch.ones(3)),
    ],
)
def test_it_counts_what_torch_counts(function: Callable[[Tensor], Tensor], x: Tensor) -> None:
    graph = make_fx(function)(x)
    with FlopCounterMode(display=False) as counter:
        graph(x)
    assert flops_of(graph, [x]) == counter.get_total_flops()


def test_groups_of_channels_share_no_products() -> None:
    graph = make_fx(lambda x: functional.conv2d(x, torch.ones(6, 1, 3, 3), groups=3))(IMAGES)
    assert flops_of(graph, [IMAGES]) == 2 * (2 * 6 * 6 * 6) * 9
