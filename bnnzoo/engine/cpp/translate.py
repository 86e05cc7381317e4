"""From a graph with loops to the source of one C++ function that changes its arguments."""

import operator
from collections.abc import Callable, Collection, Mapping
from functools import cache
from typing import Any

import torch
from torch.fx import GraphModule, Node

from bnnzoo.engine.cpp.decomposed import DECOMPOSED, MORE
from bnnzoo.engine.cpp.factorisations import FUNCTIONS, exchanged, factorised, products, solved, solved_by_both
from bnnzoo.engine.cpp.formulas import COMPARISONS, FORMULAS, HEADER
from bnnzoo.engine.cpp.pointwise import FILLS, chosen, counted, filled, pointwise
from bnnzoo.engine.cpp.products import affine, product
from bnnzoo.engine.cpp.reductions import EXTREMES, MEANS, REDUCTIONS, averaged, extreme, reduced
from bnnzoo.engine.cpp.scatters import (
    PARTS,
    SCANS,
    accumulated,
    copied_anew,
    padded,
    part_seen,
    repeated,
    reversed_along,
    scattered,
    with_part,
)
from bnnzoo.engine.cpp.scope import ALIGNMENT, CppFunction, Handler, Scope
from bnnzoo.engine.cpp.values import TYPES, Buffer, Cannot, View
from bnnzoo.engine.cpp.views import seen
from bnnzoo.engine.cpp.writes import copied, gathered, joined, looped, put, put_in_place, taken
from bnnzoo.engine.layout import NARROW
from bnnzoo.engine.simplify import is_random
from bnnzoo.engine.torch_private import WHILE_LOOP, OpOverload, core_decompositions, schema

__all__ = ["ENTRY", "for_native", "source_of"]

aten = torch.ops.aten

ENTRY = "bnnzoo_run"


def _part(scope: Scope, node: Node) -> Any:
    return scope.of(node.args[0])[node.args[1]]


SEEN = [
    aten.view.default,
    aten.permute.default,
    aten.expand.default,
    aten.unsqueeze.default,
    aten.squeeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.select.int,
    aten.slice.Tensor,
    aten.split_with_sizes.default,
    aten.split.Tensor,
    aten.unbind.int,
    aten.diagonal.default,
]

HANDLERS: dict[Any, Handler] = {
    **dict.fromkeys((*FORMULAS, *COMPARISONS), pointwise),
    **dict.fromkeys(FILLS, filled),
    **dict.fromkeys(REDUCTIONS, reduced),
    **dict.fromkeys(MEANS, averaged),
    **dict.fromkeys(EXTREMES, extreme),
    **dict.fromkeys(SEEN, seen),
    aten.where.self: chosen,
    **dict.fromkeys((aten.arange.default, aten.arange.start_step), counted),
    **dict.fromkeys(PARTS, with_part),
    **dict.fromkeys(SCANS, accumulated),
    **dict.fromkeys((aten.scatter_add.default, aten.scatter.src, aten.scatter.value), scattered),
    aten.as_strided.default: part_seen,
    aten.constant_pad_nd.default: padded,
    aten.copy.default: copied_anew,
    aten.flip.default: reversed_along,
    aten.repeat.default: repeated,
    aten.linalg_cholesky_ex.default: factorised,
    aten.linalg_solve_triangular.default: solved,
    aten.linalg_lu_factor_ex.default: exchanged,
    aten.linalg_lu_solve.default: solved_by_both,
    aten.bmm.default: products,
    aten.mm.default: product,
    aten.addmm.default: affine,
    aten.cat.default: joined,
    aten.copy_.default: copied,
    aten.index_put_.default: put_in_place,
    aten.index_put.default: put,
    aten.index.Tensor: taken,
    aten.gather.default: gathered,
    operator.getitem: _part,
    WHILE_LOOP: looped,
}
"""How each operation is written; graphs that hold others are left to torch's compiler."""


@cache
def for_native() -> Mapping[Any, Callable[..., Any]]:
    """Return how operations that are not written here are written with those that are, or nearer to them.

    Random ones stay whole: torch would write draws of a Bernoulli distribution with other random numbers than its own.
    """
    own = core_decompositions(MORE)
    others = {name: each for name, each in own.items() if name not in HANDLERS and not is_random(name)}
    return {**others, **DECOMPOSED}


def source_of(graph: GraphModule, moving: Collection[int] = ()) -> str:
    """Return the C++ source of ``void bnnzoo_run(void** arguments, void* sgemm, void* dgemm)``.

    Parameters
    ----------
    graph : GraphModule
    moving : collection of int
        Arguments with a value of their own at each of many runs. If there are any, the function takes ``int64_t num_runs``,
        and ``const int64_t* steps``, the bytes from one value of an argument to the next, as well.

    Raises
    ------
    Cannot
        If the graph holds an operation that is not written here.
    """
    nodes = [node for node in graph.graph.nodes if node.op == "placeholder"]
    program, changed = CppFunction(), _changed(graph)
    arguments = [_argument(i, node, node not in changed and i not in moving) for i, node in enumerate(nodes)]
    scope = Scope(program, graph, [_long_innermost(program, view) for view in arguments], HANDLERS)
    scope.run()
    once = [_pointer(view, i) for i, view in enumerate(arguments) if i not in moving]
    lines = [*once, *program.first_lines]
    if not moving:
        return _function([*lines, *scope.render()], program.arena_size)
    begin = "for (int64_t run = 0; run < num_runs; ++run) {"
    each = [_pointer(view, i, moves=True) for i, view in enumerate(arguments) if i in moving]
    return _function([*lines, begin, *each, *scope.render(), "}"], program.arena_size, MORE_ARGUMENTS)


MORE_ARGUMENTS = ", int64_t num_runs, const int64_t* steps"


def _pointer(view: View, place: int, moves: bool = False) -> str:
    kind = TYPES[view.dtype]
    address = f"((char*)arguments[{place}] + run * steps[{place}])" if moves else f"arguments[{place}]"
    return f"{kind}* const {view.buffer.name} = ({kind}*){address};"


def _function(lines: list[str], arena_size: int, more: str = "") -> str:
    kinds = [
        f"typedef void (*{letter}gemm_t)(const char*, const char*, const int*, const int*, const int*, const {kind}*, "
        f"const {kind}*, const int*, const {kind}*, const int*, const {kind}*, {kind}*, const int*);"
        for letter, kind in (("s", "float"), ("d", "double"))
    ]
    begin = [f'extern "C" EXPORTED void {ENTRY}(void** arguments, void* sgemm, void* dgemm{more}) {{']
    memory = [
        f"char* const memory = (char*)malloc({arena_size + ALIGNMENT});",
        f"char* const arena = memory + ({ALIGNMENT} - (uintptr_t)memory % {ALIGNMENT});",
    ]
    return "\n".join([HEADER, FUNCTIONS, *kinds, *begin, *memory, *lines, "free(memory);", "}", ""])


def _argument(number: int, node: Node, is_constant: bool) -> View:
    value = node.meta["val"]
    if value.dtype not in TYPES:
        raise Cannot(f"an argument of type {value.dtype}")
    shape, strides = tuple(value.shape), tuple(value.stride())
    extent = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    return View(Buffer(f"in{number}", value.dtype, max(extent, 0), is_constant), shape, strides)


def _long_innermost(program: CppFunction, view: View) -> View:
    """Turn a matrix of constants that is higher than wide, so that loops run along its long dimension."""
    if not view.buffer.is_constant or len(view.shape) != 2 or not view.shape[1] < min(view.shape[0], NARROW):
        return view
    turned = program.packed(View(view.buffer, view.shape[::-1], view.strides[::-1], view.offset))
    return View(turned.buffer, view.shape, turned.strides[::-1], turned.offset)


def _changed(graph: GraphModule) -> set[Node]:
    """Return the arguments of a graph that it may change."""
    writes = [
        node
        for node in graph.graph.nodes
        if node.target is WHILE_LOOP or (isinstance(node.target, OpOverload) and bool(schema(node.target).is_mutable))
    ]
    found = {each for node in writes for each in node.all_input_nodes if node.target is not WHILE_LOOP}
    found |= {each for node in writes if node.target is WHILE_LOOP for each in node.args[2]}
    views = [node for node in graph.graph.nodes if node.op == "call_function"]
    for node in reversed(views):  # what a changed view looks at changes
        if node in found:
            found |= set(node.all_input_nodes)
    return found
