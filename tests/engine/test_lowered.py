"""Traced graphs, compiled graphs, and what happens where there can be neither."""

import functools
import inspect
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor
from torch.fx import Node, symbolic_trace

from bnnzoo.core.model.density import build_density
from bnnzoo.engine import choose, compiling
from bnnzoo.engine import lowered as module
from bnnzoo.engine.lowered import LoopStep, Lowered
from bnnzoo.engine.packed import Packed
from bnnzoo.engine.torch_private import LoweringWarning, inductor
from tests.helpers.densities import cases


def test_traces_once_for_each_combination_of_shapes() -> None:
    calls = []

    def double(x: Tensor, factor: int) -> Tensor:
        calls.append(x.shape)
        return factor * x

    lowered = Lowered(double)
    for size in (2, 2, 3, 2):
        assert lowered(torch.ones(size), 2).tolist() == [2.0] * size
    assert lowered(torch.ones(2), 5).tolist() == [5.0, 5.0]
    assert len(calls) == 3


def test_settings_in_an_object_without_a_hash_are_constants() -> None:
    times = Lowered(lambda x, settings: settings.factor * x)
    one, other = SimpleNamespace(factor=2.0), SimpleNamespace(factor=3.0)
    x = torch.ones(2)
    assert [float(times(x, each)[0]) for each in (one, other, one)] == [2.0, 3.0, 2.0]


def test_the_same_tensor_passed_twice_is_two_inputs() -> None:
    lowered = Lowered(lambda a, b: a + 2 * b)
    x = torch.ones(2)
    assert lowered(x, x).tolist() == [3.0, 3.0]
    assert lowered(x, torch.zeros(2)).tolist() == [1.0, 1.0]


def test_structures_go_in_and_come_out() -> None:
    lowered = Lowered(lambda state: {"sum": state["a"] + state["b"], "rest": (state["a"],)})
    result = lowered({"a": torch.ones(2), "b": torch.ones(2)})
    assert result["sum"].tolist() == [2.0, 2.0] and len(result["rest"]) == 1


def test_packing_keeps_every_leaf() -> None:
    tree = {"a": torch.zeros(3), "b": (torch.ones(3), torch.full((2,), 5.0)), "n": torch.tensor(2)}
    packed = Packed(tree)
    assert [tuple(group.shape) for group in packed.groups] == [(2, 3), (1, 2), (1,)]
    value = packed.value
    assert value["b"][0].tolist() == [1.0] * 3 and value["n"] == 2 and value["b"][1].tolist() == [5.0, 5.0]


def test_constants_are_evaluated_once() -> None:
    matrix = torch.eye(3) * 4.0
    step = Lowered(lambda x: torch.linalg.cholesky(matrix) @ x).specialize(torch.ones(3))
    names = [str(node.target) for node in step.graph.graph.nodes]  # type: ignore[union-attr]
    assert not any("cholesky" in name for name in names)
    assert step(torch.ones(3)).tolist() == [2.0, 2.0, 2.0]


def _operations(function: Callable[..., object], *args: Tensor) -> list[str]:
    graph = Lowered(function).specialize(*args).graph.graph  # type: ignore[union-attr]
    return [str(node.target).split(".")[1] for node in graph.nodes if node.op == "call_function"]


def test_what_changes_nothing_is_taken_out() -> None:
    one, zero = torch.ones(()), torch.zeros(3)

    def function(x: Tensor) -> Tensor:
        same = ((x * one + zero) / 1 - torch.zeros_like(x)) ** 1.0
        return torch.exp(same.reshape(3, 1).squeeze(1).expand(3).unsqueeze(0).sum(0))

    assert _operations(function, torch.randn(3)) == ["exp"]
    x = torch.randn(3)
    torch.testing.assert_close(Lowered(function)(x), x.exp(), rtol=0, atol=0)


def test_what_only_looks_like_nothing_stays() -> None:
    x = torch.arange(6.0).reshape(2, 3)
    for function in (
        lambda x: x * torch.ones(4, 2, 3),  # takes a new shape
        lambda x: x.int() * 1.0,  # takes a new type
        lambda x: 1 - x * 1,
        lambda x: 0 - x,
        lambda x: 1 / x,
        lambda x: x.permute(1, 0).reshape(2, 3),
        lambda x: x[:, 1:].sum(1),
        lambda x: (x > 2).reshape(1, 6).sum(0),  # counts, though over single entries
    ):
        torch.testing.assert_close(Lowered(function)(x), function(x), rtol=0, atol=0)


def test_a_constant_of_one_number_becomes_that_number() -> None:
    scale = torch.full((3,), 2.5)
    step = Lowered(lambda x: x.sin() / scale).specialize(torch.ones(3))
    assert not list(step.flat.named_buffers())  # type: ignore[attr-defined]
    kept = Lowered(lambda x: torch.cat([torch.full((5000,), 2.0), x])).specialize(torch.ones(3))
    assert [b.numel() for _, b in kept.flat.named_buffers()] == [1]  # type: ignore[attr-defined]
    assert kept(torch.ones(3)).sum() == 10003


def test_an_input_is_never_returned_as_it_is() -> None:
    x = torch.ones(3)
    assert Lowered(lambda x: x + 0)(x) is not x


def test_products_with_few_columns_and_what_follows_are_turned_around() -> None:
    g, x, bias = torch.randn(60, 50), torch.randn(60, 8), torch.randn(50)
    narrow = Lowered(lambda g, x: g.T @ x)
    torch.testing.assert_close(narrow(g, x), g.T @ x)
    layer = Lowered(lambda x, w, bias: torch.exp(x @ w + bias) * torch.ones(60, 1) + bias[0])
    w = torch.randn(8, 50)
    torch.testing.assert_close(layer(x, w, bias), torch.exp(x @ w + bias) + bias[0])
    nodes = layer.specialize(x, w, bias).graph.graph.nodes  # type: ignore[union-attr]
    (product,) = [node for node in nodes if node.target is torch.ops.aten.mm.default]
    (sum_,) = product.users
    assert sum_.target is torch.ops.aten.add.Tensor  # entry by entry on the transpose, which is turned back at the end
    wide = Lowered(lambda g, x: x.T @ g).specialize(g, x).graph.graph.nodes  # type: ignore[union-attr]
    assert [n.args[1].op for n in wide if n.target is torch.ops.aten.mm.default] == ["placeholder"]


COMPILED_AGAIN = """
import sys, torch
from torch._dynamo.utils import counters
from bnnzoo.engine.lowered import Lowered
x = torch.ones(7)
compiled = Lowered(lambda x: torch.sin(x) @ x).specialize(x, num_calls=10**9)
assert compiled.how == "compiled"
calls = []
sys.setprofile(lambda frame, event, arg: calls.append(frame) if event == "call" else None)
compiled.flat(x)
sys.setprofile(None)
print(counters["inductor"]["fxgraph_cache_hit"], counters["inductor"]["fxgraph_cache_miss"], len(calls))
"""


@pytest.mark.slow
def test_a_graph_compiled_before_comes_from_the_disk_as_lean(tmp_path: Path) -> None:
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-W", "ignore", "-c", COMPILED_AGAIN]
    runs = [subprocess.run(command, env=environment, check=True, capture_output=True, text=True) for _ in range(2)]
    assert [run.stdout.split()[-3:] for run in runs] == [["0", "1", "1"], ["1", "0", "1"]]


@pytest.mark.slow
def test_numbers_are_not_handed_to_a_compiled_graph() -> None:
    scale, offset = torch.full((4,), 3.0), torch.arange(4.0)
    x = torch.tensor([0.5, -1.0, 2.0, 1.0])
    compiled = Lowered(lambda x: torch.where(x > 0, x, torch.inf) * scale + offset).specialize(x, num_calls=10**9)
    constants = inspect.getclosurevars(compiled.flat).nonlocals["constants"]
    assert [c.tolist() for c in constants] == [offset.tolist()]
    assert torch.equal(compiled.flat(x)[0], torch.where(x > 0, x, torch.inf) * scale + offset)


@pytest.mark.slow
def test_a_compiled_graph_is_entered_without_wrappers() -> None:
    """Fails when inductor wraps its code in a way that compiling.py does not know; the wrapped form works, but slower."""
    compiled = Lowered(lambda x: torch.sin(x) @ x).specialize(torch.ones(7), num_calls=10**9)
    assert compiled.how == "compiled"
    assert compiled.flat.__qualname__.startswith("_entry.")


@pytest.mark.slow
def test_a_graph_with_nan_runs_as_lean() -> None:
    compiled = Lowered(lambda x: torch.sqrt(x)).specialize(-torch.ones(3), num_calls=10**9)
    assert "constants" in inspect.getclosurevars(compiled.flat).nonlocals


def test_equal_operations_are_evaluated_once() -> None:
    assert _operations(lambda x: torch.sin(x).exp() + torch.sin(x).exp(), torch.ones(3)) == ["sin", "exp", "add"]
    assert _operations(lambda x: (x + 1.5) * (x + 2.5), torch.ones(3)) == ["add", "add", "mul"]


def test_random_numbers_are_not_shared() -> None:
    for draw in (torch.randn_like, torch.rand_like, torch.bernoulli):
        a, b = Lowered(lambda x, draw=draw: (draw(x), draw(x)))(torch.full((50,), 0.5))
        assert not torch.equal(a, b)


def test_importing_brings_nothing_slow() -> None:
    slow = ("torch._dynamo", "torch._inductor", "sympy", "triton", "xarray", "pandas", "matplotlib", "sklearn")
    program = (
        "import sys, torch, pyro; before = set(sys.modules); import bnnzoo; "
        f"print([name for name in {slow} if name in sys.modules.keys() - before])"
    )
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True, capture_output=True, text=True)
    assert run.stdout.strip() == "[]"


def test_random_numbers_are_not_constants() -> None:
    lowered = Lowered(lambda x: x + torch.randn(2))
    assert not torch.equal(lowered(torch.zeros(2)), lowered(torch.zeros(2)))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(cases()))
def test_compiled_equals_traced(name: str) -> None:
    model, data = cases()[name]
    density = build_density(model, *data)
    theta = torch.randn(3, density.num_params, generator=torch.Generator().manual_seed(0))
    traced = Lowered(density.batched_value_and_grad).specialize(theta, *data)
    compiled = Lowered(density.batched_value_and_grad).specialize(theta, *data, num_calls=10**9)
    assert (traced.how, compiled.how) == ("traced", "compiled")
    for a, b in zip(traced(theta, *data), compiled(theta, *data), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


VIEWS = {
    "column": lambda x: x[:, 1],
    "columns": lambda x: x[:, 1:3],
    "transpose": lambda x: x.mT,
    "expanded": lambda x: x[:, :1].expand(-1, 4),
    "every second row": lambda x: x[::2],
    "empty": lambda x: x[:0, 1:3],
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_copies_keep_their_strides(view: Callable[[Tensor], Tensor]) -> None:
    x = view(torch.arange(24.0).reshape(6, 4))
    (copy,) = module.clones([x])
    assert torch.equal(copy, x) and copy.shape == x.shape
    assert x.numel() == 0 or (copy.stride() == x.stride() and copy.data_ptr() != x.data_ptr())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["column", "columns", "expanded"])
def test_data_with_gaps_are_compiled(name: str) -> None:
    x = VIEWS[name](torch.randn(6, 4))
    step = LoopStep(lambda x: (torch.sin(x) * 2, x.sum()), x, at_least=10**9)
    torch.testing.assert_close(step(x)[0], torch.sin(x) * 2)
    assert step._specialized.how == "compiled"


@pytest.mark.parametrize(("times", "factor"), [(1, 1.0), (5 * choose.COMPILED_NODES, 5.0)])
def test_compiling_takes_longer_the_more_operations_there_are(times: int, factor: float) -> None:
    graph = symbolic_trace(lambda x: functools.reduce(lambda x, _: torch.sin(x), range(times), x))
    assert choose.seconds_to_compile(len(graph.graph.nodes)) == pytest.approx(factor * choose.COMPILE_SECONDS, rel=1e-2)


@pytest.mark.slow
def test_a_loop_compiles_once_it_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose, "COMPILE_SECONDS", 1e-3)
    step = LoopStep(lambda x: (torch.sin(x) + 1, x.sum()), torch.zeros(4))
    x = torch.ones(4)
    results = [step(x)[0].clone() for _ in range(200)]
    assert step._specialized.how == "compiled"
    for result in results:
        torch.testing.assert_close(result, torch.sin(x) + 1)
    long = LoopStep(lambda x: (torch.sin(x) + 1, x.sum()), torch.zeros(4), at_least=200)
    torch.testing.assert_close(long(x)[0], results[0])
    assert long._specialized.how == "compiled"


def test_without_a_compiler_the_traced_graph_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_compiler(*args: object, **kwargs: object) -> None:
        raise RuntimeError("no C++ compiler found")

    monkeypatch.setattr(compiling, "inductor", lambda: inductor()._replace(compile_fx=no_compiler))
    lowered = Lowered(lambda x: x + 1)
    with pytest.warns(LoweringWarning, match=r"could not be compiled .* \(RuntimeError: no C\+\+ compiler found\)"):
        result = lowered.specialize(torch.zeros(2), num_calls=10**9)(torch.zeros(2))
    assert result.tolist() == [1.0, 1.0]
    graph = lowered.specialize(torch.zeros(2)).graph
    assert (
        graph is not None and lowered.specialize(torch.zeros(2)).flat is not graph
    )  # it is called as one never compiled


def test_a_model_that_cannot_be_traced_still_runs() -> None:
    def branching(x: Tensor) -> Tensor:
        return x + 1 if x.sum().item() > 0 else x - 1

    lowered = Lowered(branching)
    with pytest.warns(LoweringWarning, match="could not be traced into a tensor graph"):
        assert lowered(torch.ones(2)).tolist() == [2.0, 2.0]
    assert lowered(-torch.ones(2)).tolist() == [-2.0, -2.0]


def products_in(lowered: Lowered, *args: Tensor) -> list[Node]:
    """Return the matrix products of a traced graph."""
    nodes = lowered.specialize(*args).graph.graph.nodes  # type: ignore[union-attr]
    return [node for node in nodes if node.target in (torch.ops.aten.mm.default, torch.ops.aten.bmm.default)]


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("turned", [False, True])
def test_products_with_a_vector_are_right_however_the_matrix_lies(batch: int, turned: bool) -> None:
    matrix = torch.randn(batch, 50, 60).mT if turned else torch.randn(batch, 60, 50)
    column, row = torch.randn(batch, 50, 1), torch.randn(batch, 1, 60)
    torch.testing.assert_close(Lowered(torch.bmm)(matrix, column), torch.bmm(matrix, column))
    torch.testing.assert_close(Lowered(torch.bmm)(row, matrix), torch.bmm(row, matrix))


def test_a_batch_of_products_with_vectors_runs_along_the_memory_of_the_matrices() -> None:
    x, w, v = torch.randn(60, 8), torch.randn(3, 50, 8), torch.randn(3, 50, 1)
    layers = Lowered(lambda x, w, v: torch.bmm(torch.tanh(x.expand(3, 60, 8) @ w.mT), v))
    torch.testing.assert_close(layers(x, w, v), torch.bmm(torch.tanh(x @ w.mT), v))
    _, last = products_in(layers, x, w, v)
    assert last.args[1].target is torch.ops.aten.tanh.default  # as it lies: 50 x 60
    along = Lowered(lambda m, v: torch.bmm(m, v))
    (product,) = products_in(along, torch.randn(3, 60, 50), v)
    assert [argument.op for argument in product.args] == ["placeholder", "placeholder"]  # lies well as it is
    assert len(products_in(along, torch.randn(1, 60, 50), v[:1])) == 1  # one alone is fast


def test_a_long_product_that_runs_along_memory_already_is_left_alone() -> None:
    g, x = torch.randn(50, 600), torch.randn(600, 8)
    (product,) = products_in(Lowered(lambda g, x: g @ x), g, x)
    assert [argument.op for argument in product.args] == ["placeholder", "placeholder"]
