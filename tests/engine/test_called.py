"""Graphs called from Python give what their operations give, to the bit."""

import pytest
import torch

from bnnzoo.engine.called import FUNCTIONS, as_called
from bnnzoo.engine.graphs import trace
from bnnzoo.engine.lowered import Lowered
from bnnzoo.engine.pytree import tree_leaves

X = torch.linspace(0.1, 2.0, 12, dtype=torch.float64).reshape(3, 4)
WHOLE = torch.arange(12).reshape(3, 4)
OTHERS = {  # what an operation takes besides X, where that is not X again
    "addmm": (X[0, :3], X, X.T),
    "bmm": (X[None], X.T[None]),
    "mm": (X, X.T),
    "bitwise_and": (WHOLE, WHOLE + 1),
    "bitwise_or": (WHOLE, WHOLE + 1),
    "bitwise_xor": (WHOLE, WHOLE + 1),
    "bitwise_not": (WHOLE,),
    "all": (X > 1, 1),
    "cat": ([X, X + 1], 1),
    "index_put": (X, [torch.tensor([1, 0])], X[:2]),
    "split_with_sizes": (X, [1, 2], 0),
    "unbind": (X, 1),
    "gather": (X, 1, WHOLE % 4),
    "where": (X > 1, X, -X),
    "stack": ([X, X + 1], 1),
    "masked_fill": (X, X > 1, 0.5),
    "clamp": (X, 0.5, 1.0),
    "clamp_max": (X, 0.5),
    "clamp_min": (X, 0.5),
    "rsub": (X, 0.5),
    "pow": (X, 1.5),
    "reshape": (X, [4, 3]),
    "view": (X, [4, 3]),
    "expand": (X[:, :1], [3, 4]),
    "permute": (X, [1, 0]),
    "transpose": (X, 0, 1),
    "select": (X, 0, 1),
    "squeeze": (X[None], 0),
    "unsqueeze": (X, 1),
    "cumsum": (X, 1),
    "logsumexp": (X, [1], True),
    "amax": (X, [1], True),
    "amin": (X, [0]),
    "mean": (X, [1], True),
}


@pytest.mark.parametrize("operation", FUNCTIONS, ids=str)
def test_a_function_does_what_its_operation_does(operation: object) -> None:
    name, overload = str(operation).split(".")[1:]
    required = [each for each in operation._schema.arguments if not each.kwarg_only and not each.has_default_value()]  # type: ignore[attr-defined]
    given = OTHERS.get(name)
    if given is None or overload == "Tensor_Tensor":
        given = tuple(
            0.7 if str(each.type) == "number" else [1] if "List" in str(each.type) else X for each in required
        )
    if overload == "Scalar" and name.startswith("bitwise"):
        given = (WHOLE, 6)
    if overload == "dim":
        given = (X > 1, 1) if name == "any" else OTHERS.get(name, (X, [1]))
    if overload == "dim_IntList":
        given = (X, [1], True)
    found, expected = (tree_leaves(each(*given)) for each in (FUNCTIONS[operation], operation))  # type: ignore[operator]
    for a, b in zip(found, expected, strict=True):
        assert torch.equal(a, b) and a.dtype == b.dtype and a.stride() == b.stride()


def test_graph_is_the_same_to_the_bit() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = (x @ x.T).tanh().sum(1, keepdim=True).expand(3, 4) * 2.0 + x.exp() - 0.5
        return torch.where(y > 0, y, x.reshape(3, 4)), y.square().mean(), y.argmax(1)

    graph, _ = trace(function, [X.clone()])
    called = as_called(graph)
    assert any(node.target is torch.mm for node in called.graph.nodes)
    assert all(torch.equal(a, b) for a, b in zip(called(X), graph(X), strict=True))
    lowered = Lowered(function).specialize(X)
    assert lowered.graph is not None and lowered.graph is not lowered.flat  # what is compiled are operations


def test_what_torchs_functions_do_not_take_is_left_to_operations() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        columns = x.clone()
        columns[:, torch.tensor([2, 0])] = x[:, :2]
        return columns, x.clamp(max=1.0), torch.ops.aten.sum.dim_IntList(x, None)

    graph, _ = trace(function, [X.clone()])
    called = as_called(graph)
    assert any(None in node.args[1] for node in called.graph.nodes if node.target is torch.ops.aten.index_put.default)
    assert all(torch.equal(a, b) for a, b in zip(called(X), function(X), strict=True))


def test_constants_are_shared() -> None:
    constant = torch.arange(4.0, dtype=torch.float64) ** 2
    graph, _ = trace(lambda x: (x + constant,), [X.clone()])
    called = as_called(graph)
    assert torch.equal(called(X)[0], X + constant)
