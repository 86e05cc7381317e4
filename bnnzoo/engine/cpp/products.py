"""Matrix products: as expressions where the sum is short, as loops where the long dimension is summed over."""

from typing import Any

import torch
from torch.fx import Node

from bnnzoo.engine.cpp.formulas import literal
from bnnzoo.engine.cpp.nests import Reduction, Statement
from bnnzoo.engine.cpp.scope import Scope, Value, converted, index_over, innermost
from bnnzoo.engine.cpp.values import TYPES, Affine, Body, Cannot, Lazy, Read, View, contiguous_strides, count
from bnnzoo.engine.cpp.views import broadcast

__all__ = ["affine", "product"]

SHORT = 16
"""Terms up to which a sum is written out, and rows up to which a product is computed one accumulator a row."""

MAX_ROWS_ADDED_UP, MIN_COLUMNS_ADDED_UP = 4, 4
"""Rows up to which, and columns from which on, a product is added up in memory rather than the other matrix turned."""

TERMS_AT_ONCE = 4
"""Terms of a product of matrices that are added up before their sum is: what a row of the result waits for is memory."""

GEMM_FROM = 200_000
"""Multiplications from which on a library's product is faster, where the matrix is not narrow."""


LETTERS = {torch.float32: "s", torch.float64: "d"}


def product(scope: Scope, node: Node) -> Value:
    """Write ``left[M, K] @ right[K, N]``."""
    found = _product(scope, scope.of(node.args[0]), scope.of(node.args[1]))
    return found if isinstance(found, View) else scope.kept(node, found)


def affine(scope: Scope, node: Node) -> Value:
    """Write ``beta added + alpha left[M, K] @ right[K, N]``."""
    found = _product(scope, scope.of(node.args[1]), scope.of(node.args[2]))
    total = found.lazy() if isinstance(found, View) else found
    added = broadcast(scope.lazy(node.args[0]), total.shape)
    alpha, beta = (_factor(node.kwargs.get(name, 1), total.dtype) for name in ("alpha", "beta"))

    def emit(body: Body, index: tuple[Affine, ...]) -> str:
        return body.let(total.dtype, f"{alpha}{total.emit(body, index)} + {beta}{added.emit(body, index)}")

    reads, uses = (*total.reads, *added.reads), (*total.uses, *added.uses)
    return scope.kept(node, Lazy(total.shape, total.dtype, emit, reads, uses, total.cost + added.cost + 1))


def _factor(number: Any, dtype: torch.dtype) -> str:
    return "" if number == 1 else f"{literal(number, dtype)} * "


def _product(scope: Scope, left: Value, right: Value) -> Value:
    (rows, terms), columns = left.shape, right.shape[1]
    if 0 in (rows, terms, columns):
        raise Cannot("a product of nothing")
    if terms <= SHORT:
        return _written_out(scope, left, right)
    if min(rows, columns) > SHORT:
        return _by_loops(scope, scope.memory(left), scope.memory(right))
    if rows <= columns:
        return _by_rows(scope, left, right)
    return _turned(_by_rows(scope, _turned(right), _turned(left)))


def _written_out(scope: Scope, left: Value, right: Value) -> Lazy:
    """Return a product whose sum is short as an expression."""
    (rows, terms), columns = left.shape, right.shape[1]
    if columns >= rows:
        left, right = scope.memory(left), _along(scope, right, 1)
    else:
        left, right = _along(scope, left, 0), scope.memory(right)
    a, b, dtype = left.lazy(), right.lazy(), left.dtype

    def emit(body: Body, index: tuple[Affine, ...]) -> str:
        row, column = index
        factors = [(a.emit(body, (row, Affine({}, k))), b.emit(body, (Affine({}, k), column))) for k in range(terms)]
        return body.let(dtype, " + ".join(f"{x} * {y}" for x, y in factors))

    reads = (_without(left.read, 1), _without(right.read, 0))
    return Lazy((rows, columns), dtype, emit, reads, cost=2 * terms)


def _without(read: Read, dim: int) -> Read:
    """Return how one entry of a product reads a matrix, whose other dimension is gone through at once."""
    strides = (read.strides[0], 0) if dim == 1 else (0, read.strides[1])
    return read._replace(strides=strides, scattered=True)


def _by_rows(scope: Scope, left: Value, right: Value) -> View:
    """Compute a product with few rows and a long sum, all rows at once along the sum."""
    rows, columns = left.shape[0], right.shape[1]
    value = right.lazy() if isinstance(right, View) else right
    if rows <= MAX_ROWS_ADDED_UP and columns >= MIN_COLUMNS_ADDED_UP and innermost(value) == 1:
        return _in_memory(scope, scope.memory(left), value)
    left = _along(scope, left, 1)
    if isinstance(right, View) and right.strides[0] != 1 and columns > 1:
        value = _along(scope, right, 0).lazy()
    shape = (rows, columns)
    view = View(scope.buffer(left.dtype, count(shape)), shape, contiguous_strides(shape))
    index, sizes = index_over((1, 0), value.shape)
    lefts = [_row(left, row) for row in range(rows)]
    uses = [*value.accesses(index), *(each.access((index[0],)) for each in lefts)]
    nest = scope.statements.nest_for(sizes, uses, [view.read.access()])
    entry, depth = converted(nest.body, value, left.dtype, index), 0 if columns == 1 else 1
    for row, read in enumerate(lefts):
        name = scope.program.name("a")
        place = view.read.place((Affine({}, row), index[1]))
        nest.reductions.append(Reduction(name, TYPES[left.dtype], depth, "0", f"{view.buffer.name}[{place}] = {name};"))
        factor = nest.body.load(read.buffer, read.place((index[0],)))
        nest.body.lines.append(f"{name} = {name} + {factor} * {entry};")
    return view


def _in_memory(scope: Scope, left: View, right: Lazy) -> View:
    """Compute a product with few rows term by term, where the columns of the other matrix run along memory."""
    shape = (left.shape[0], right.shape[1])
    view = View(scope.buffer(left.dtype, count(shape)), shape, contiguous_strides(shape))
    index, sizes = index_over((0, 1), right.shape)
    lefts = [_row(left, row) for row in range(shape[0])]
    uses = [*right.accesses(index), *(each.access((index[0],)) for each in lefts)]
    nest = scope.statements.nest_for(sizes, uses, [view.read.access()])
    nest.before.append(f"for (int64_t i = 0; i < {count(shape)}; ++i) {view.buffer.name}[i] = 0;")
    entry = converted(nest.body, right, left.dtype, index)
    for row, read in enumerate(lefts):
        place = f"{view.buffer.name}[{view.read.place((Affine({}, row), index[1]))}]"
        factor = nest.body.load(read.buffer, read.place((index[0],)))
        nest.body.lines.append(f"{place} = {place} + {factor} * {entry};")
    return view


def _row(view: View, row: int) -> Read:
    extent = 1 + (view.shape[1] - 1) * view.strides[1]
    return Read(view.buffer, (view.strides[1],), view.offset + row * view.strides[0], extent)


def _by_loops(scope: Scope, left: View, right: View) -> View:
    """Compute a product of matrices none of which is narrow."""
    (rows, terms), columns = left.shape, right.shape[1]
    if rows * terms * columns >= GEMM_FROM:
        return _by_library(scope, left, right)
    right = _along(scope, right, 1)
    view = View(scope.buffer(left.dtype, rows * columns), (rows, columns), contiguous_strides((rows, columns)))
    kind, i, j = TYPES[left.dtype], Affine({"i": 1}), Affine({"j": 1})
    out = f"{view.buffer.name}[{view.read.place((i, j))}]"

    def adding(number: int) -> list[str]:
        """Return a loop over the columns that adds so many terms from k on: an entry of the result is read and written once."""
        places = [Affine({"k": 1}, ahead) for ahead in range(number)]
        entries = [f"{right.buffer.name}[{right.read.place((each, j))}]" for each in places]
        factors = [f"{left.buffer.name}[{left.read.place((i, each))}]" for each in places]
        return [
            *(f"const {kind} f{ahead} = {factor};" for ahead, factor in enumerate(factors)),
            "#pragma omp simd",
            f"for (int64_t j = 0; j < {columns}; ++j)",
            f"{out} = {out} + ({' + '.join(f'f{ahead} * {entry}' for ahead, entry in enumerate(entries))});",
        ]

    whole = terms - terms % TERMS_AT_ONCE
    lines = [
        f"for (int64_t i = 0; i < {rows * columns}; ++i) {view.buffer.name}[i] = 0;",
        f"for (int64_t i = 0; i < {rows}; ++i) {{",
        f"for (int64_t k = 0; k < {whole}; k += {TERMS_AT_ONCE}) {{",
        *adding(TERMS_AT_ONCE),
        "}",
        f"for (int64_t k = {whole}; k < {terms}; ++k) {{",
        *adding(1),
        "} }",
    ]
    scope.statements.add(Statement(lines, [left.read.access(), right.read.access()], [view.read.access()]))
    return view


def _by_library(scope: Scope, left: View, right: View) -> View:
    """Let the linear algebra library that torch holds compute a product: column by column, ``out^T = right^T left^T``."""
    (rows, terms), columns = left.shape, right.shape[1]
    left, right = _for_library(scope, left), _for_library(scope, right)
    view = View(scope.buffer(left.dtype, rows * columns), (rows, columns), contiguous_strides((rows, columns)))
    (a, lead_a), (b, lead_b) = _transposed(right), _transposed(left)
    kind, letter = TYPES[left.dtype], LETTERS[left.dtype]
    names = f"{right.buffer.name} + {right.offset}, &lda, {left.buffer.name} + {left.offset}, &ldb"
    lines = [
        f"{{ const int m = {columns}, n = {rows}, k = {terms}, lda = {lead_a}, ldb = {lead_b}, ldc = {columns};",
        f"const {kind} one = 1, zero = 0; const char ta = '{a}', tb = '{b}';",
        f"if ({letter}gemm) (({letter}gemm_t){letter}gemm)(&ta, &tb, &m, &n, &k, &one, {names}, &zero, "
        f"{view.buffer.name}, &ldc);",
        f"else gemm_<{kind}>(ta == 'N', tb == 'N', m, n, k, {names.replace('&', '')}, {view.buffer.name}, ldc); }}",
    ]
    scope.statements.add(Statement(lines, [left.read.access(), right.read.access()], [view.read.access()]))
    return view


def _for_library(scope: Scope, view: View) -> View:
    if 1 in view.strides and view.buffer.dtype.is_floating_point:
        return view
    return scope.memory(view.lazy(), in_order=True)


def _transposed(view: View) -> tuple[str, int]:
    """Return how a matrix, read by columns, is what the library asks for: as it is for rows that run along memory."""
    return ("N", view.strides[0]) if view.strides[1] == 1 else ("T", view.strides[1])


def _along(scope: Scope, value: Value, dim: int) -> View:
    """Return a matrix in memory, one of whose dimensions runs along it."""
    view = scope.memory(value)
    if view.strides[dim] == 1 or view.shape[dim] == 1:
        return view
    turned = view if dim == 1 else _turned(view)
    assert isinstance(turned, View)
    if view.buffer.is_constant:
        found: Any = scope.program.packed(turned)
    else:
        found = scope.memory(turned.lazy(), in_order=True)
    return found if dim == 1 else _turned(found)  # type: ignore[return-value]


def _turned(value: Value) -> Value:
    """Return the transpose of a matrix."""
    shape = (value.shape[1], value.shape[0])
    if isinstance(value, View):
        return View(value.buffer, shape, (value.strides[1], value.strides[0]), value.offset)
    reads = tuple(read._replace(strides=(read.strides[1], read.strides[0])) for read in value.reads)
    return Lazy(
        shape, value.dtype, lambda body, index: value.emit(body, (index[1], index[0])), reads, value.uses, value.cost
    )
