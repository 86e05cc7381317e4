"""Graphs of what a function did: they compute what it computes, and refuse what depends on values."""

import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from bnnzoo.engine.graphs import trace
from bnnzoo.engine.tracer import loop_written_down, operations_of
from bnnzoo.engine.value_and_grad import value_and_grad_of

DATA = torch.arange(6.0).view(2, 3)


def counted(x: Tensor) -> Tensor:
    start = torch.tensor(1.0)
    start.add_(2.0)  # a constant that is written into after it was made
    return x * start


def squeezed(x: Tensor) -> Tensor:
    y = x[None] @ x[:, None]
    y.squeeze_(0).unsqueeze_(-1)
    return y.t_() + x


def turned_in_place(x: Tensor) -> Tensor:
    y = x[None] * x[:, None]
    y.transpose_(0, 1).unsqueeze_(0).squeeze_((0,))
    return y.sin()


def written_in_part(x: Tensor) -> Tensor:
    y = (x[None] * x[:, None]).clone()
    y[:, :2] = x[:2].sin()
    y += x
    return y.relu_()


def differentiated_and_written_in_part(x: Tensor) -> Tensor:
    return value_and_grad_of(lambda z: (written_in_part(z) * torch.arange(3)).sum(), x)[1]


def with_constant_branch(x: Tensor) -> Tensor:
    return x.exp() if torch.tensor([1.0, 2.0]).sum().item() > 2 else x


def several(x: Tensor) -> Tensor:
    low, high = x.aminmax()
    first, *_ = x.unbind()
    return torch.cat([x - low, (high * first)[None], *x.split(2)])


def differentiated(x: Tensor) -> Tensor:
    value = torch.func.vmap(torch.func.grad(lambda row: (row.sin() * row.sum()).prod()))
    return value(x * torch.ones(4, 1)).sum(0)


def large(x: Tensor) -> Tensor:
    return (x * torch.ones(5000, 3)).mul_(2.0).add_(x).sum(0)


def diagonal_written(x: Tensor, size: int = 3) -> Tensor:
    """As in Gaussian processes of Pyro; autograd takes the diagonal of a gradient, here a constant, by its place in memory."""

    def kernel_sum(z: Tensor) -> Tensor:
        kernel = z[0] * torch.ones(size, size) + z[1] * torch.eye(size)
        kernel.view(-1)[:: size + 1] += z[2]
        return kernel.sum()

    return value_and_grad_of(kernel_sum, x)[1]


def long_diagonal_written(x: Tensor) -> Tensor:
    return diagonal_written(x, 70)


FUNCTIONS: list[Callable[[Tensor], Tensor]] = [
    counted,
    squeezed,
    turned_in_place,
    written_in_part,
    differentiated_and_written_in_part,
    with_constant_branch,
    several,
    differentiated,
    large,
    diagonal_written,
    long_diagonal_written,
]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_graphs_compute_what_functions_compute(function: Callable[[Tensor], Tensor]) -> None:
    graph, _ = trace(lambda x: (function(x),), [torch.tensor([0.5, -0.2, 2.0])])
    x = torch.tensor([-1.5, 0.7, 0.3])
    for _ in range(2):  # and leave their constants as they are
        torch.testing.assert_close(graph(x)[0], function(x))


def test_complex_numbers_stay_complex() -> None:
    def function(x: Tensor) -> Tensor:
        return (
            torch.fft.rfft(x).abs() + (x[0] * torch.tensor(1j)).imag + torch.fft.rfft(torch.arange(3.0)).abs()
        ).sum()

    graph, _ = trace(lambda x: (function(x),), [torch.ones(3)])
    x = torch.tensor([-1.5, 0.7, 0.3])
    torch.testing.assert_close(graph(x)[0], function(x))


def test_inputs_constants_and_numbers_may_be_results() -> None:
    graph = operations_of(lambda x: (x, DATA, 2.0), [torch.ones(3)], {})
    x = torch.zeros(3)
    assert graph(x)[0] is x and graph(x)[1] is DATA and graph(x)[2] == 2.0


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x if x.sum() > 0 else -x,
        lambda x: x * x.max().item(),
        lambda x: x * torch.randn(()).item(),
        lambda x: x if torch.equal(x, x + 1) else -x,
    ],
)
def test_values_of_what_varies_are_refused(function: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(RuntimeError, match="The value of a tensor that depends on the inputs is asked for"):
        operations_of(lambda x: (function(x),), [torch.ones(3)], {})


def test_numbers_of_a_generator_are_refused() -> None:
    def function(x: Tensor) -> Tensor:
        return x + torch.randn(3, generator=torch.Generator().manual_seed(0))

    with pytest.raises(RuntimeError, match=r"^Numbers are drawn from a torch\.Generator, which no graph can hold"):
        trace(lambda x: (function(x),), [torch.ones(3)])


def test_operations_can_be_written_with_others() -> None:
    table = {torch.ops.aten.tanh.default: lambda x: 1 - 2 / ((2 * x).exp() + 1)}
    graph = operations_of(lambda x: (x.tanh(),), [torch.ones(3)], table)
    targets = {node.target for node in graph.graph.nodes if node.op == "call_function"}
    assert torch.ops.aten.tanh.default not in targets and torch.ops.aten.exp.default in targets
    torch.testing.assert_close(graph(DATA[0])[0], DATA[0].tanh())


TRACES = """
import sys, torch
from bnnzoo.engine.graphs import trace
from bnnzoo.engine.value_and_grad import value_and_grad_of
trace(lambda x: value_and_grad_of(lambda z: (z * torch.ones(5000, 3)).sin().sum(), x), [torch.ones(3)])
print(*(name for name in ("torch._dynamo", "torch._inductor", "sympy") if name in sys.modules))
"""


COMPILES = """
import sys, torch
from bnnzoo.engine.loops import Chunk
def body(x, p):
    rows = torch.stack([x, x.softmax(0).flip(0), torch.logaddexp(x, p), torch.xlogy(p, x.exp())])
    return rows.sum(0).clamp(-1, 1).double().tanh().to(x.dtype) + torch.arange(3).sum() / 3 + 1
chunk = Chunk(lambda x, p: x.sum() < 2, body, torch.zeros(3), torch.ones(3), compiles=True)
assert chunk.how == "compiled", chunk.report
print(*(name for name in ("torch._dynamo", "torch._inductor", "sympy") if name in sys.modules))
"""


@pytest.mark.parametrize("program", [TRACES, COMPILES], ids=["tracing", "compiling"])
def test_it_does_not_import_torchs_compiler(program: str) -> None:
    """That takes more than a second, as long as a small fit."""
    run = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert run.stdout.split() == []


def test_a_loop_is_one_operation() -> None:
    def function(x: Tensor) -> tuple[Tensor, ...]:
        found = loop_written_down(lambda x, y: x.sum() < 9, lambda x, y: (x + y,), (x,), (2 * x,))
        assert found is not None
        return (found[0] * 2,)

    graph = operations_of(function, [torch.ones(3)], {}, with_loops=True)
    torch.testing.assert_close(graph(torch.ones(3))[0], torch.tensor([6.0, 6.0, 6.0]))
    torch.testing.assert_close(graph(torch.full((3,), 0.5))[0], torch.tensor([7.0, 7.0, 7.0]))


@pytest.mark.parametrize("size", [3, 5000])
def test_a_loop_that_takes_tensors_of_outside_is_refused(size: int) -> None:
    def function(x: Tensor) -> tuple[Tensor, ...]:
        y = 2 * x
        return loop_written_down(lambda x: x.sum() < 9, lambda x: (x + y,), (x,), ()) or ()

    with pytest.raises(
        RuntimeError, match=r"A function of a loop takes a tensor of outside that is not in its state or"
    ):
        operations_of(function, [torch.ones(size)], {}, with_loops=True)
