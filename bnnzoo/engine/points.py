"""Pure functions of a point at many points, for many fits: as one traced graph, or in native code at one point after another."""

import math
from collections.abc import Callable, Hashable, Sequence
from itertools import count
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bnnzoo.engine import pytree
from bnnzoo.engine.agreement import is_close
from bnnzoo.engine.choose import COMPILE_SECONDS, NATIVE_PAYS_FROM_SECONDS
from bnnzoo.engine.chunks import NATIVE, kinds_of
from bnnzoo.engine.cpp.translate import for_native
from bnnzoo.engine.fits import over_all_fits
from bnnzoo.engine.graphs import trace
from bnnzoo.engine.lowered import Lowered, Specialized, clones, flattened, tensors_of
from bnnzoo.engine.runs import NativeRuns

__all__ = ["Points"]


class Points:
    """A pure function of a point, which is evaluated at many points in each of many fits.

    Parameters
    ----------
    alone : callable
        ``(point, *others) -> pytree of tensors``, where ``point`` is one tensor.
    batched : callable
        ``(points, *others)`` with the same at all points, as ``[M, ...]``.
    num_calls : int
        How often each fit calls it: decides whether native code pays; 0: it does not.
    fallback : callable, optional
        What to run where ``batched`` cannot be traced.
    at_least : int
        Points of which graphs are made at least, so that one and a few share one: the last is repeated.

    Examples
    --------
    >>> norm = Points(lambda x: x.square().sum(), lambda x: x.square().sum(1))
    >>> norm(torch.tensor([[3.0, 4.0], [0.0, 1.0]])).tolist()
    [25.0, 1.0]
    """

    def __init__(
        self,
        alone: Callable[..., Any],
        batched: Callable[..., Any],
        num_calls: int = 1,
        fallback: Callable[..., Any] | None = None,
        at_least: int = 1,
    ) -> None:
        self._alone, self._graph, self._num_calls = alone, Lowered(batched, fallback), num_calls
        self._at_least = at_least
        self._native: dict[Hashable, _NativePoints | None] = {}

    def __call__(self, points: Tensor, *others: Any) -> Any:
        """Evaluate at ``points[M, ...]``, without torch's autograd."""
        native, found = self._native_for(points, *others)
        if found is not None:
            return found
        return self._by_graph(points, *others) if native is None else native(points, *others)

    @property
    def is_plain(self) -> bool:
        """Whether it runs as traced graphs alone."""
        return self._graph.is_plain and not any(self._native.values())

    def repeated(self, *, compiles: bool = True) -> Callable[..., Any]:
        """Return the function for a loop, which looks at other arguments again only where they are not those of the call before.

        Parameters
        ----------
        compiles : bool
            Whether the loop, of unknown length, may compile the graph on its way: it spends on that at most about what it
            spent on running.
        """
        calls, counts = count(1), compiles and over_all_fits(self._num_calls) <= 1
        known: _Bound | None = None

        def evaluate(points: Tensor, *others: Any) -> Any:
            nonlocal known
            number = next(calls) if counts else 1
            if known is None or not known.serves(points, others, number):
                known = self._bound(points, others, number, may_be_native=not counts)
            return known.run(points)

        return evaluate

    def specialize(self, *args: Any, num_calls: float = 1) -> Specialized:
        """Return the graph for the shapes of ``args``; see :meth:`Lowered.specialize`."""
        return self._graph.specialize(*args, num_calls=num_calls)

    def _bound(self, points: Tensor, others: tuple[Any, ...], num_calls: float, *, may_be_native: bool) -> "_Bound":
        """Return the function with the other arguments given, for points of one shape."""
        kind = points.shape, points.stride(), points.dtype
        if may_be_native:
            native, _ = self._native_for(points, *others)
            if native is not None:
                return _Bound(kind, others, lambda points: native(points, *others), math.inf)
        padded = self._padded(points)
        step = self.specialize(padded, *others, num_calls=num_calls)
        if padded is not points and step.how == "eager":  # each point costs what the model does
            return _Bound(kind, others, lambda points: self._graph(points, *others), math.inf)
        tensors, number = tensors_of(others), len(points)

        def run(points: Tensor) -> Any:
            with torch.no_grad():
                found = step.flat(self._padded(points), *tensors)
                return step.tree(found if padded is points else [each[:number] for each in found])

        return _Bound(kind, others, run, step.stays_for)

    def _by_graph(self, points: Tensor, *others: Any) -> Any:
        return self._bound(points, others, 1, may_be_native=False).run(points)

    def _padded(self, points: Tensor) -> Tensor:
        missing = self._at_least - len(points)
        return torch.cat([points, points[-1:].expand(missing, *points.shape[1:])]) if missing > 0 else points

    def _native_for(self, points: Tensor, *others: Any) -> tuple["_NativePoints | None", Any]:
        """Return native code for such arguments, None where it does not pay, and at their first call what they give."""
        key = kinds_of([points[0], *tensors_of(others)])
        found = None
        if key not in self._native:
            self._native[key], found = self._first(points, *others)
        return self._native[key], found

    def _first(self, points: Tensor, *others: Any) -> tuple["_NativePoints | None", Any]:
        """Return native code where it pays and gives what the graph gives, and that."""
        found = self._by_graph(points, *others)
        if points.device.type != "cpu" or not self._num_calls:
            return None, found
        step = self.specialize(self._padded(points), *others)
        if not over_all_fits(self._num_calls) > step.worth_compiling_after * NATIVE_PAYS_FROM_SECONDS / COMPILE_SECONDS:
            return None, found
        try:
            native = _NativePoints(self._alone, points[0], others)
            pairs = zip(pytree.tree_leaves(native(points, *others)), pytree.tree_leaves(found), strict=True)
            agrees = all(a.shape == b.shape and a.dtype == b.dtype and is_close(a, b) for a, b in pairs)
        except Exception as error:  # an operation that is not written in C++, no compiler: the graph does the same work
            self._graph.log.refused(NATIVE, error)
            return None, found
        return (native if agrees else None), found


class _Bound(NamedTuple):
    """A function of points of one kind, given the other arguments, until a faster form of it pays."""

    kind: tuple[Any, ...]
    others: tuple[Any, ...]
    run: Callable[[Tensor], Any]
    stays_for: float

    def serves(self, points: Tensor, others: tuple[Any, ...], num_calls: float) -> bool:
        """Tell whether it is the function of such points and these very arguments."""
        same = len(others) == len(self.others) and all(a is b for a, b in zip(others, self.others, strict=True))
        return same and num_calls <= self.stays_for and self.kind == (points.shape, points.stride(), points.dtype)


class _NativePoints:
    """A function of a point in native code.

    Parameters
    ----------
    alone : callable
    point : Tensor
        An example.
    others : tuple
    """

    def __init__(self, alone: Callable[..., Any], point: Tensor, others: Sequence[Any]) -> None:
        at_first = (point, *others)
        flat, spec_of = flattened(alone, at_first)
        graph, _ = trace(flat, clones(at_first), for_native())
        self._runs, self._spec = NativeRuns(graph, tensors_of(at_first), {0}), spec_of[0]

    def __call__(self, points: Tensor, *others: Any) -> Any:
        return pytree.tree_unflatten(self._runs(points, *tensors_of(others)), self._spec)
