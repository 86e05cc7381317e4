"""Searches for modes by L-BFGS: in Python, or each in one call of native code that many fits of one kind share."""

from typing import NamedTuple

import torch
from torch import Tensor

from bnnzoo.core.model.density import LogDensity
from bnnzoo.engine.chunks import inner_graph
from bnnzoo.engine.fits import over_all_fits
from bnnzoo.engine.lowered import flattened, tensors_of
from bnnzoo.engine.reports import EngineLog
from bnnzoo.engine.runs import NativeRuns
from bnnzoo.engine.value_and_grad import single_value_and_grad
from bnnzoo.inference.optimise.lbfgs import Evaluate, Limits, ascent, begun

__all__ = ["Ascent", "Units", "climbed"]

HISTORY = 10

MIN_FITS = 30
"""Fits whose searches take as long as compiling one does, about 2 s."""

STEPS_TRIED, MAX_STEPS = 3, 200
"""Steps after which native code must be where Python is, and the most that it takes."""


class Units(NamedTuple):
    """Coordinates of a search: ``theta = loc + root z``, for ``loc[P]`` and ``root[P, P]``."""

    loc: Tensor
    root: Tensor


class Ascent(NamedTuple):
    """Where searches ended, and the ways there.

    Attributes
    ----------
    z : Tensor [C, P]
        The ends in the units of the search.
    value : Tensor [C]
        The log joint density there.
    gradient : Tensor [C, P]
        Its gradient by ``z``.
    way, heights : Tensor [C, K, P], Tensor [C, K]
        Where each search was after each of its steps, the start included, and the value there; the end is repeated.
    """

    z: Tensor
    value: Tensor
    gradient: Tensor
    way: Tensor
    heights: Tensor


def climbed(
    density: LogDensity,
    evaluate: Evaluate,
    start: Tensor,
    value: Tensor,
    gradient: Tensor,
    limits: Limits,
    units: Units | None = None,
    *,
    keeps_way: bool = False,
) -> Ascent:
    """Return where L-BFGS ends from every row of ``start[C, P]``.

    Parameters
    ----------
    density : LogDensity
        Of many fits, by which it is chosen how searches run.
    evaluate : callable
        ``(theta[C, P], *data) -> (value[C], gradient[C, P])``: the density, where searches run in Python.
    start, value, gradient : Tensor [C, P], [C], [C, P]
        Points in the units of the search, and the density there.
    limits : Limits
        At most 200 steps.
    units : Units, optional
        Default: those of theta.
    keeps_way : bool
        Whether the way is asked for; otherwise it may be empty.
    """
    native = _native(density, start, value, gradient)
    if native is not None:
        return native(start, value, gradient, limits, units, density)

    def in_units(z: Tensor, *data: Tensor) -> tuple[Tensor, Tensor]:
        if units is None:
            return evaluate(z, *data)
        value, gradient = evaluate(units.loc + z @ units.root.mT, *data)
        return value, gradient @ units.root

    state = begun(start, value, gradient, limits, num_kept=limits.max_steps + 1 if keeps_way else 0)
    found = ascent(in_units, state, limits, density.data, history=HISTORY)
    point, steps = found.point, int(found.num_steps) + 1
    way, heights = found.way[:steps].transpose(0, 1), found.heights[:steps].mT
    return Ascent(point.x, -point.f, -point.g, way, heights)


def _native(density: LogDensity, start: Tensor, value: Tensor, gradient: Tensor) -> "_NativeAscents | None":
    """Return what runs searches in native code, which fits of the density's kind share; None where it does not pay."""
    if not density.is_one_of_many or start.device.type != "cpu" or over_all_fits(1) < MIN_FITS:
        return None

    return density.shared("searches for modes", lambda: _compiled(density, start, value, gradient))


def _compiled(density: LogDensity, start: Tensor, value: Tensor, gradient: Tensor) -> "_NativeAscents | None":
    """Return searches in native code; None where it cannot be made, or its first steps lead elsewhere than those of Python."""
    try:
        found = _NativeAscents(density, start, value, gradient)
        return found if found.agrees(density, start, value, gradient) else None
    except Exception:  # no compiler, or an operation that is not written in C++: Python does the same
        return None


class _NativeAscents:
    """L-BFGS from one point after another in native code.

    Parameters
    ----------
    density : LogDensity
    start, value, gradient : Tensor [C, P], [C], [C, P]
        Examples.

    Raises
    ------
    Exception
        If the density cannot stand in a loop, or not be compiled.
    """

    def __init__(self, density: LogDensity, start: Tensor, value: Tensor, gradient: Tensor) -> None:
        arguments = (start[0], *density.data)
        flat, _ = flattened(single_value_and_grad(density.log_joint), arguments)
        inner = inner_graph(flat, tensors_of(arguments), log=(log := EngineLog()))
        if inner is None:
            raise ValueError("; ".join(log.report().reasons))
        self._constants = list(inner.constants)
        num_constants = len(self._constants)

        def evaluate(z: Tensor, loc: Tensor, root: Tensor, *others: Tensor) -> tuple[Tensor, Tensor]:
            constants, data = others[:num_constants], others[num_constants:]
            value, gradient = inner.graph(*constants, (loc + z @ root.mT)[0], *data)
            return value[None], gradient[None] @ root

        def one(start: Tensor, value: Tensor, gradient: Tensor, *given: Tensor) -> tuple[Tensor, ...]:
            limits, others = Limits(*given[:4]), given[4:]
            begin = begun(start[None], value[None], gradient[None], limits, num_pairs=HISTORY, num_kept=MAX_STEPS + 1)
            found = ascent(evaluate, begin, limits, others, history=HISTORY)
            (z, cost, slope), way = found.point, found.way
            return z[0], -cost[0], -slope[0], way[:, 0], found.heights[:, 0], found.num_steps

        self._one = one
        limits = Limits(STEPS_TRIED, 0.0)
        self._runs = NativeRuns(one, self._inputs(start, value, gradient, limits, None, density, 0), {0, 1, 2})

    def __call__(
        self,
        start: Tensor,
        value: Tensor,
        gradient: Tensor,
        limits: Limits,
        units: Units | None,
        density: LogDensity,
    ) -> Ascent:
        inputs = self._inputs(start, value, gradient, limits, units, density)
        z, value, gradient, way, heights, steps = self._runs(*inputs)
        last = torch.arange(MAX_STEPS + 1).clamp(max=steps[:, None])
        rows = torch.arange(len(start))[:, None]
        most = int(steps.max()) + 1
        return Ascent(z, value, gradient, way[rows, last][:, :most], heights[rows, last][:, :most])

    def agrees(self, density: LogDensity, start: Tensor, value: Tensor, gradient: Tensor) -> bool:
        """Tell whether the first steps lead where those of Python do."""
        inputs = self._inputs(start, value, gradient, Limits(STEPS_TRIED, 0.0), None, density)
        share = torch.finfo(start.dtype).eps ** 0.5
        pairs = zip(self._runs(*inputs), self._one(*(each[0] for each in inputs[:3]), *inputs[3:]), strict=True)
        return all(torch.allclose(a[0], b, rtol=share, atol=share, equal_nan=True) for a, b in pairs)

    def _inputs(
        self,
        start: Tensor,
        value: Tensor,
        gradient: Tensor,
        limits: Limits,
        units: Units | None,
        density: LogDensity,
        row: int | None = None,
    ) -> list[Tensor]:
        """Return what native code is given, of one row for an example."""
        points = [start, value, gradient] if row is None else [start[row], value[row], gradient[row]]
        numbers = (start.new_tensor(float(each)) for each in limits)
        size = start.shape[1]
        loc, root = units or (start.new_zeros(size), torch.eye(size, dtype=start.dtype))
        return [*points, *numbers, loc, root, *self._constants, *tensors_of(density.data)]
