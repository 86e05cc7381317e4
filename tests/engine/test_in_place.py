"""Graphs without writes give the same numbers, and what others may see is left to be traced again."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from bnnzoo.engine.graphs import trace
from bnnzoo.engine.in_place import without_writes
from bnnzoo.engine.torch_private import fake_tensors, tracing


def graph_of(function: Callable[[Tensor], Tensor], x: Tensor) -> GraphModule:
    with tracing(fake_tensors()):
        return make_fx(function)(x.clone())


def chain(x: Tensor) -> Tensor:
    return (2 * x).add_(1).mul_(x).exp_() + torch.empty_like(x).fill_(3.0)


def twice_with_views(x: Tensor) -> Tensor:
    y = x + 1
    y.mul_(2)
    view = y[1:]
    first = view.sum()
    y.add_(1)
    return y * first


def masked(x: Tensor) -> Tensor:
    y = x.exp()
    inside = (x > 0).logical_and_(x < 2)
    return y.masked_fill_(inside, 0.0)


def rows(x: Tensor) -> Tensor:
    y = torch.zeros_like(x)
    y.index_put_((torch.tensor([0, 2]),), x[:2])
    return y.cumsum(0)


@pytest.mark.parametrize("function", [chain, twice_with_views, masked, rows], ids=lambda f: f.__name__)
def test_writes_into_new_tensors_are_replaced(function: Callable[[Tensor], Tensor]) -> None:
    x = torch.tensor([0.5, -1.0, 3.0])
    expected, graph = function(x.clone()), graph_of(function, x)
    assert without_writes(graph)
    graph.recompile()
    schemas = [node.target._schema for node in graph.graph.nodes if hasattr(node.target, "_schema")]
    assert schemas and not any(schema.is_mutable for schema in schemas)
    torch.testing.assert_close(graph(x), expected, rtol=0, atol=0)


def through_a_view(x: Tensor) -> Tensor:
    y = x + 1
    y[0].mul_(5)
    return y


def behind_a_view(x: Tensor) -> Tensor:
    y = x + 1
    view = y[1:]
    y.mul_(5)
    return view


def into_the_input(x: Tensor) -> Tensor:
    return x.add_(1) * 2


def of_another_type(x: Tensor) -> Tensor:
    return x.float().mul_(x).double()


@pytest.mark.parametrize(
    "function", [through_a_view, behind_a_view, into_the_input, of_another_type], ids=lambda f: f.__name__
)
def test_what_others_see_or_what_changes_its_type_is_left(function: Callable[[Tensor], Tensor]) -> None:
    x = torch.tensor([0.5, -1.0, 3.0], dtype=torch.float64)
    assert not without_writes(graph_of(function, x))


@pytest.mark.parametrize("function", [through_a_view, behind_a_view, of_another_type, chain], ids=lambda f: f.__name__)
def test_traced_functions_may_write_as_they_like(function: Callable[[Tensor], Tensor]) -> None:
    x = torch.tensor([0.5, -1.0, 3.0], dtype=torch.float64)
    graph, _ = trace(lambda x: (function(x),), [x])
    torch.testing.assert_close(graph(x)[0], function(x.clone()), rtol=0, atol=0)
