"""Functions of a point that run in native code at one point after another."""

from collections.abc import Callable, Collection, Sequence

import torch
from torch import Tensor
from torch.fx import GraphModule

from bnnzoo.engine.compiling import for_compiling
from bnnzoo.engine.cpp.building import compile_runs
from bnnzoo.engine.cpp.translate import for_native
from bnnzoo.engine.graphs import lift_constants, trace_loops

__all__ = ["NativeRuns"]


class NativeRuns:
    """A graph as native code that runs at one point after another.

    Parameters
    ----------
    graph : GraphModule or callable
        ``(*tensors) -> tensors``, without random numbers. Constants are taken out of a graph; a function has none, and may hold
        loops of :func:`bnnzoo.engine.loops.while_loop`.
    inputs : list of Tensor
        Examples at one point: shapes and types count, values do not.
    moving : collection of int
        Inputs with a value of their own at each point.

    Raises
    ------
    Exception
        If there is no compiler, or an operation of the graph is not written in C++.

    Examples
    --------
    >>> import torch
    >>> from bnnzoo.engine.graphs import trace
    >>> x, theta = torch.arange(3.0), torch.tensor(1.0)
    >>> runs = NativeRuns(trace(lambda theta, x: (theta * x,), [theta, x])[0], [theta, x], moving={0})
    >>> runs(torch.tensor([1.0, 10.0]), x)[0].tolist()
    [[0.0, 1.0, 2.0], [0.0, 10.0, 20.0]]
    """

    def __init__(
        self, graph: GraphModule | Callable[..., Sequence[Tensor]], inputs: list[Tensor], moving: Collection[int]
    ) -> None:
        self._moving = frozenset(moving)
        if not self._moving:
            raise ValueError("NativeRuns needs an input that moves.")
        self._constants: list[Tensor] = []
        if isinstance(graph, GraphModule):
            for_compiling(graph)
            self._constants = [each.contiguous() for each in lift_constants(graph)]
        tensors = [*self._constants, *(each.contiguous() for each in inputs)]
        with torch.no_grad():
            self._outputs = [each.contiguous() for each in graph(*tensors)]
        offset, num = len(self._constants), len(tensors)
        places = {*(offset + i for i in self._moving), *range(num, num + len(self._outputs))}

        def writing(*tensors: Tensor) -> tuple[Tensor, ...]:
            """Write the outputs into further arguments."""
            values = graph(*tensors[:num])
            return tuple(place.copy_(value) for place, value in zip(tensors[num:], values, strict=True))

        self._call = compile_runs(trace_loops(writing, [*tensors, *self._outputs], for_native()), places)

    def __call__(self, *inputs: Tensor, into: Sequence[Tensor | None] = ()) -> list[Tensor]:
        """Return the values at all points, ``[M, ...]`` each; native code lets go of the interpreter lock.

        Parameters
        ----------
        *inputs : Tensor
        into : sequence of Tensor or None
            Where to write the first of the values, if not to new tensors: entries ``[i]`` lie one behind the other in memory.
        """
        dense = [each.contiguous() for each in inputs]
        num_runs = len(dense[min(self._moving)])
        places = [*into, *(None for _ in self._outputs[len(into) :])]
        found = [
            each.new_empty((num_runs, *each.shape)) if place is None else place
            for each, place in zip(self._outputs, places, strict=True)
        ]
        self._call(num_runs, [*self._constants, *dense, *found])
        return found

    def fits(self, number: int, place: Tensor) -> bool:
        """Tell whether a value can be written to a tensor: it has its shape and type, entries one behind the other."""
        like = self._outputs[number]
        return place.shape[1:] == like.shape and place.dtype == like.dtype and place[:1].is_contiguous()
