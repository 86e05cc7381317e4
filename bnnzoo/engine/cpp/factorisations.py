"""Factors of matrices, systems with these, and products of many matrices, as calls and loops."""

from typing import Any

import torch
from torch.fx import Node

from bnnzoo.engine.cpp.nests import Statement
from bnnzoo.engine.cpp.scope import Scope
from bnnzoo.engine.cpp.values import TYPES, Affine, Cannot, View, contiguous_strides, count

__all__ = ["FUNCTIONS", "exchanged", "factorised", "products", "solved", "solved_by_both"]

FUNCTIONS = r"""
// Where torch's library hides its matrix products: column by column in memory, as there.
template <typename T>
static void gemm_(bool a_lies, bool b_lies, int m, int n, int k, const T* a, int lda, const T* b, int ldb, T* c, int ldc) {
  for (int64_t j = 0; j < n; ++j) {
    T* const column = c + j * ldc;
    for (int64_t i = 0; i < m; ++i) column[i] = 0;
    for (int64_t l = 0; l < k; ++l) {
      const T factor = b_lies ? b[l + j * ldb] : b[j + l * ldb];
      const T* const other = a_lies ? a + l * lda : a + l;
      const int64_t step = a_lies ? 1 : lda;
      #pragma omp simd
      for (int64_t i = 0; i < m; ++i) column[i] += other[i * step] * factor;
    }
  }
}

// Turns the lower part of a[n, n], row by row in memory, into its Cholesky factor; returns the order of a minor that is not
// positive, or 0.
template <typename T> static int cholesky_(T* a, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    T* const row = a + i * n;
    for (int64_t j = 0; j <= i; ++j) {
      const T* const other = a + j * n;
      T sum = 0;
      #pragma omp simd reduction(+ : sum)
      for (int64_t k = 0; k < j; ++k) sum += row[k] * other[k];
      const T left = row[j] - sum;
      if (i != j) row[j] = left / other[j];
      else if (left > 0) row[j] = m::sqrt(left);
      else return (int)i + 1;
    }
    for (int64_t j = i + 1; j < n; ++j) row[j] = 0;
  }
  return 0;
}

// Solves A x = b for one right side, in place, where A[i, j] lies at a[i * down + j * along].
template <typename T>
static inline void solve_one_(const T* a, int64_t down, int64_t along, T* x, int64_t n, bool upper, bool unit) {
  for (int64_t step = 0; step < n; ++step) {
    const int64_t i = upper ? n - 1 - step : step, from = upper ? i + 1 : 0, to = upper ? n : i;
    if (along == 1) {
      T sum = 0;
      #pragma omp simd reduction(+ : sum)
      for (int64_t k = from; k < to; ++k) sum += a[i * down + k] * x[k];
      x[i] -= sum;
      if (!unit) x[i] /= a[i * down + i];
    } else {
      if (!unit) x[i] /= a[i * (down + along)];
      const T value = x[i];
      const int64_t first = upper ? 0 : i + 1, last = upper ? i : n;
      #pragma omp simd
      for (int64_t k = first; k < last; ++k) x[k] -= a[k * down + i * along] * value;
    }
  }
}

// Solves A X = B for the rows of X[n, m], which lie behind each other.
template <typename T>
static void solve_(const T* a, int64_t down, int64_t along, T* x, int64_t n, int64_t m, bool upper, bool unit) {
  if (m == 1) return solve_one_(a, down, along, x, n, upper, unit);
  for (int64_t step = 0; step < n; ++step) {
    const int64_t i = upper ? n - 1 - step : step, from = upper ? i + 1 : 0, to = upper ? n : i;
    T* const row = x + i * m;
    for (int64_t k = from; k < to; ++k) {
      const T factor = a[i * down + k * along];
      const T* const other = x + k * m;
      #pragma omp simd
      for (int64_t j = 0; j < m; ++j) row[j] -= factor * other[j];
    }
    const T scale = unit ? 1 : a[i * (down + along)];
    #pragma omp simd
    for (int64_t j = 0; j < m; ++j) row[j] /= scale;
  }
}

// Turns a[n, n], row by row in memory, into the factors of a row-wise permutation of it, P A = L U, where L has a unit diagonal;
// row i was exchanged with row rows[i] - 1. Returns the order of a pivot that is zero, or 0.
template <typename T> static int exchange_(T* a, int* rows, int64_t n) {
  int failed = 0;
  for (int64_t i = 0; i < n; ++i) {
    int64_t best = i;
    T most = 0;
    for (int64_t k = i; k < n; ++k) {
      const T entry = a[k * n + i], size = entry < 0 ? -entry : entry;
      if (size > most) most = size, best = k;
    }
    rows[i] = (int)best + 1;
    T* const row = a + i * n;
    if (best != i)
      for (int64_t j = 0; j < n; ++j) {
        const T kept = row[j];
        row[j] = a[best * n + j];
        a[best * n + j] = kept;
      }
    if (row[i] == 0) {
      if (!failed) failed = (int)i + 1;
      continue;
    }
    for (int64_t k = i + 1; k < n; ++k) {
      T* const other = a + k * n;
      const T factor = other[i] /= row[i];
      #pragma omp simd
      for (int64_t j = i + 1; j < n; ++j) other[j] -= factor * row[j];
    }
  }
  return failed;
}

// Solves A X = B for the rows of X[n, m], given the factors of A, or the transposed system.
template <typename T>
static void solve_by_both_(const T* a, int64_t down, int64_t along, const int* rows, T* x, int64_t n, int64_t m, bool turned) {
  const auto exchange = [&](int64_t i) {
    T *const one = x + i * m, *const other = x + (rows[i] - 1) * m;
    if (one == other) return;
    for (int64_t j = 0; j < m; ++j) {
      const T kept = one[j];
      one[j] = other[j];
      other[j] = kept;
    }
  };
  if (!turned) {
    for (int64_t i = 0; i < n; ++i) exchange(i);
    solve_(a, down, along, x, n, m, false, true);
    solve_(a, down, along, x, n, m, true, false);
  } else {
    solve_(a, along, down, x, n, m, false, false);
    solve_(a, along, down, x, n, m, true, true);
    for (int64_t i = n - 1; i >= 0; --i) exchange(i);
  }
}
"""


def factorised(scope: Scope, node: Node) -> tuple[View, View]:
    """Write Cholesky factors ``[..., N, N]``, and for each matrix the order of a minor that is not positive, or 0."""
    if node.kwargs.get("upper") or any(node.args[1:]):
        raise Cannot("an upper Cholesky factor")
    given = scope.lazy(node.args[0])
    if not given.dtype.is_floating_point or not count(given.shape):
        raise Cannot(f"a Cholesky factor of {given.dtype} of shape {given.shape}")
    factor, batch, size = scope.memory(given, in_order=True), given.shape[:-2], given.shape[-1]
    info = View(scope.buffer(torch.int32, count(batch)), batch, contiguous_strides(batch))
    lines = [
        f"for (int64_t i = 0; i < {count(batch)}; ++i)",
        f"{info.buffer.name}[i] = cholesky_<{TYPES[factor.dtype]}>({factor.buffer.name} + i * {size * size}, {size});",
    ]
    written = [factor.read.access(), info.read.access()]
    scope.statements.add(Statement(lines, [factor.read.access()], written))
    return factor, info


def exchanged(scope: Scope, node: Node) -> tuple[View, View, View]:
    """Write triangular factors ``[..., N, N]`` in one matrix, which rows were exchanged, and the order of a zero pivot, or 0."""
    given = scope.lazy(node.args[0])
    if not node.kwargs.get("pivot", True) or not count(given.shape) or given.shape[-1] != given.shape[-2]:
        raise Cannot(f"triangular factors of shape {given.shape}")
    factors, batch, size = scope.memory(given, in_order=True), given.shape[:-2], given.shape[-1]
    rows, info = (
        View(scope.buffer(torch.int32, count(shape)), shape, contiguous_strides(shape))
        for shape in ((*batch, size), batch)
    )
    places = f"{factors.buffer.name} + i * {size * size}, {rows.buffer.name} + i * {size}, {size}"
    lines = [
        f"for (int64_t i = 0; i < {count(batch)}; ++i)",
        f"{info.buffer.name}[i] = exchange_<{TYPES[factors.dtype]}>({places});",
    ]
    written = [factors.read.access(), rows.read.access(), info.read.access()]
    scope.statements.add(Statement(lines, [factors.read.access()], written))
    return factors, rows, info


def solved_by_both(scope: Scope, node: Node) -> View:
    """Write the solution of systems ``A X = B``, or of the transposed ones, given both triangular factors of each matrix."""
    factors, rows = (scope.memory(scope.lazy(each), in_order=True) for each in node.args[:2])
    sides = scope.lazy(node.args[2])
    batch, (size, number) = sides.shape[:-2], sides.shape[-2:]
    if factors.shape[:-2] != batch or not node.kwargs.get("left", True) or not count(sides.shape):
        raise Cannot(f"systems of shapes {factors.shape} and {sides.shape}")
    found = scope.memory(sides, in_order=True)
    turned = str(bool(node.kwargs.get("adjoint", False))).lower()
    matrix, exchanges = f"{factors.buffer.name} + i * {size * size}, {size}, 1", f"{rows.buffer.name} + i * {size}"
    x = f"{found.buffer.name} + i * {size * number}, {size}, {number}, {turned}"
    lines = [
        f"for (int64_t i = 0; i < {count(batch)}; ++i)",
        f"solve_by_both_<{TYPES[found.dtype]}>({matrix}, {exchanges}, {x});",
    ]
    uses = [factors.read.access(), rows.read.access(), found.read.access()]
    scope.statements.add(Statement(lines, uses, [found.read.access()]))
    return found


def solved(scope: Scope, node: Node) -> View:
    """Write the solution of systems with triangular matrices, ``A X = B`` or ``X A = B``."""
    matrix, sides = scope.of(node.args[0]), scope.lazy(node.args[1])
    upper, unit = bool(node.kwargs["upper"]), bool(node.kwargs.get("unitriangular", False))
    from_left = bool(node.kwargs.get("left", True))
    result = node.meta["val"]
    batch, shape = tuple(result.shape[:-2]), tuple(result.shape)
    matrix = scope.memory(matrix)
    fewer = len(batch) - len(matrix.shape[:-2])  # a single matrix serves all systems
    lead, leading = (1,) * fewer + matrix.shape[:-2], (0,) * fewer + matrix.strides[:-2]
    if any(n not in (1, size) for n, size in zip(lead, batch, strict=True)) or sides.shape != shape or not count(shape):
        raise Cannot(f"systems of shapes {matrix.shape} and {sides.shape}")
    found = scope.memory(sides, in_order=True)
    down, along = matrix.strides[-2:]
    size, kind = matrix.shape[-1], TYPES[found.dtype]
    index = [Affine({f"i{dim}": 1}) for dim in range(len(batch))]
    steps = tuple(0 if n == 1 else stride for n, stride in zip(lead, leading, strict=True))
    a = f"{matrix.buffer.name} + {_place(index, steps, matrix.offset)}"
    x = f"{found.buffer.name} + {_place(index, found.strides[:-2], found.offset)}"
    flags = f"{str(upper if from_left else not upper).lower()}, {str(unit).lower()}"
    if from_left:
        call = f"solve_<{kind}>({a}, {down}, {along}, {x}, {size}, {shape[-1]}, {flags});"
    else:  # the rows of X solve the transposed system one by one
        each = f"solve_one_<{kind}>({a}, {along}, {down}, {x} + row * {size}, {size}, {flags});"
        call = f"for (int64_t row = 0; row < {shape[-2]}; ++row) {each}"
    loops = [f"for (int64_t i{dim} = 0; i{dim} < {n}; ++i{dim})" for dim, n in enumerate(batch)]
    uses = [matrix.read.access(), found.read.access()]
    scope.statements.add(Statement([*loops, call], uses, [found.read.access()]))
    return found


def products(scope: Scope, node: Node) -> View:
    """Write products of many matrices, ``left[B, M, K] @ right[B, K, N]``."""
    left, right = (scope.memory(scope.of(each)) for each in node.args)
    number, rows, terms = left.shape
    columns = right.shape[2]
    shape = (number, rows, columns)
    if not count(shape) or not terms:
        raise Cannot("a product of nothing")
    found = View(scope.buffer(left.dtype, count(shape)), shape, contiguous_strides(shape))
    b, i, k, j = (Affine({name: 1}) for name in ("b", "i", "k", "j"))
    out, kind = f"{found.buffer.name}[{found.read.place((b, i, j))}]", TYPES[left.dtype]
    factor = f"{left.buffer.name}[{left.read.place((b, i, k))}]"
    other = f"{right.buffer.name}[{right.read.place((b, k, j))}]"
    by_columns = [
        f"for (int64_t j = 0; j < {columns}; ++j) {out} = 0;",
        f"for (int64_t k = 0; k < {terms}; ++k) {{",
        f"const {kind} factor = {factor};",
        "#pragma omp simd",
        f"for (int64_t j = 0; j < {columns}; ++j) {out} += factor * {other};",
        "}",
    ]
    by_terms = [
        f"for (int64_t j = 0; j < {columns}; ++j) {{",
        f"{kind} sum = 0;",
        "#pragma omp simd reduction(+ : sum)",
        f"for (int64_t k = 0; k < {terms}; ++k) sum += {factor} * {other};",
        f"{out} = sum;",
        "}",
    ]
    along_terms = columns < terms and right.strides[1] == 1
    lines = [
        f"for (int64_t b = 0; b < {number}; ++b)",
        f"for (int64_t i = 0; i < {rows}; ++i) {{",
        *(by_terms if along_terms else by_columns),
        "}",
    ]
    scope.statements.add(Statement(lines, [left.read.access(), right.read.access()], [found.read.access()]))
    return found


def _place(index: list[Affine], strides: Any, offset: int) -> str:
    found = Affine({}, offset)
    for each, stride in zip(index, strides, strict=True):
        found = found.plus(each.scaled(stride))
    return f"({found})"
