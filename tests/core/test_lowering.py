"""Traced graphs, compiled graphs, and what happens where there can be neither."""

import pytest
import torch
from torch import Tensor

from bnnzoo.core import compiling, lowering
from bnnzoo.core.density import build_density
from bnnzoo.core.lowering import LoopStep, Lowered, LoweringWarning
from bnnzoo.core.packed import Packed
from tests.core.zoo_of_densities import cases


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
    names = [str(node.target) for node in step.flat.graph.nodes]  # type: ignore[attr-defined]
    assert not any("cholesky" in name for name in names)
    assert step(torch.ones(3)).tolist() == [2.0, 2.0, 2.0]


def test_narrow_products_are_turned_around() -> None:
    g, x = torch.randn(60, 50), torch.randn(60, 8)
    narrow = Lowered(lambda g, x: g.T @ x).specialize(g, x)
    wide = Lowered(lambda g, x: x.T @ g).specialize(g, x)
    products = [
        [n.args[1].op for n in step.flat.graph.nodes if n.target is torch.ops.aten.mm.default]  # type: ignore[attr-defined]
        for step in (narrow, wide)
    ]
    assert products == [["call_function"], ["placeholder"]]
    torch.testing.assert_close(narrow(g, x), g.T @ x)
    torch.testing.assert_close(wide(g, x), x.T @ g)


def test_random_numbers_are_not_constants() -> None:
    lowered = Lowered(lambda x: x + torch.randn(2))
    assert not torch.equal(lowered(torch.zeros(2)), lowered(torch.zeros(2)))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(cases()) - {"ordered", "correlation"}))
def test_compiled_equals_traced(name: str) -> None:
    model, data = cases()[name]
    density = build_density(model, *data)
    theta = torch.randn(3, density.num_params, generator=torch.Generator().manual_seed(0))
    traced = Lowered(density.batched_value_and_grad).specialize(theta, *data)
    compiled = Lowered(density.batched_value_and_grad).specialize(theta, *data, num_calls=10**9)
    assert (traced.how, compiled.how) == ("traced", "compiled")
    for a, b in zip(traced(theta, *data), compiled(theta, *data), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
def test_what_inductor_does_not_know_runs_as_the_traced_graph() -> None:
    model, data = cases()["correlation"]  # the transform of a Cholesky factor picks entries by a mask
    density = build_density(model, *data)
    theta = torch.randn(3, density.num_params, generator=torch.Generator().manual_seed(0))
    traced = Lowered(density.batched_value_and_grad).specialize(theta, *data)
    with pytest.warns(LoweringWarning, match="could not be compiled and runs uncompiled"):
        asked = Lowered(density.batched_value_and_grad).specialize(theta, *data, num_calls=10**9)
    assert asked.how == "traced"
    torch.testing.assert_close(asked(theta, *data), traced(theta, *data))


@pytest.mark.slow
def test_a_loop_compiles_once_it_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lowering, "COMPILE_SECONDS", 1e-3)
    step = LoopStep(lambda x: (torch.sin(x) + 1, x.sum()), torch.zeros(4))
    x = torch.ones(4)
    results = [step(x)[0].clone() for _ in range(200)]
    assert step._specialized.how == "compiled"
    for result in results:
        torch.testing.assert_close(result, torch.sin(x) + 1)


def test_without_a_compiler_the_traced_graph_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_compiler(*args: object, **kwargs: object) -> None:
        raise RuntimeError("no C++ compiler found")

    monkeypatch.setattr(compiling, "compile_fx", no_compiler)
    lowered = Lowered(lambda x: x + 1)
    with pytest.warns(LoweringWarning, match=r"could not be compiled .* \(RuntimeError: no C\+\+ compiler found\)"):
        result = lowered.specialize(torch.zeros(2), num_calls=10**9)(torch.zeros(2))
    assert result.tolist() == [1.0, 1.0]


def test_a_model_that_cannot_be_traced_still_runs() -> None:
    def branching(x: Tensor) -> Tensor:
        return x + 1 if x.sum().item() > 0 else x - 1

    lowered = Lowered(branching)
    with pytest.warns(LoweringWarning, match="could not be traced into a tensor graph"):
        assert lowered(torch.ones(2)).tolist() == [2.0, 2.0]
    assert lowered(-torch.ones(2)).tolist() == [-2.0, -2.0]
