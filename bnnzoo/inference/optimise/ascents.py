"""Searches for modes by L-BFGS: in Python, or each in one call of native code that many fits of one kind share."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bnnzoo.core.model.density import LogDensity
from bnnzoo.engine.agreement import STEPS_TRIED, is_close
from bnnzoo.engine.choose import MIN_FITS_TO_COMPILE_SEARCHES
from bnnzoo.engine.chunks import inner_graph
from bnnzoo.engine.fits import over_all_fits
from bnnzoo.engine.lowered import flattened, tensors_of
from bnnzoo.engine.runs import NativeRuns
from bnnzoo.engine.value_and_grad import single_value_and_grad
from bnnzoo.inference.optimise.lbfgs import HISTORY, Evaluate, Limits, ascent, begun

__all__ = ["MAX_STEPS", "AffineCoordinates", "Ascent", "SearchPoints", "climbed"]

MAX_STEPS = 200
"""The most steps that a search takes: native code keeps the whole way."""


class AffineCoordinates(NamedTuple):
    """Coordinates of a search: ``theta = loc + root z``, for ``loc[P]`` and ``root[P, P]``."""

    loc: Tensor
    root: Tensor


class SearchPoints(NamedTuple):
    """Points ``z[C, P]`` in the units of a search, the log joint density there, ``value[C]``, and its ``gradient[C, P]`` by z."""

    z: Tensor
    value: Tensor
    gradient: Tensor


class Ascent(NamedTuple):
    """Where searches ended, and the ways there.

    Attributes
    ----------
    end : SearchPoints
    way : Tensor [C, K, P]
        Where each search was after each of its steps, the start included; the end is repeated.
    """

    end: SearchPoints
    way: Tensor


def climbed(
    density: LogDensity,
    evaluate: Evaluate,
    start: SearchPoints,
    limits: Limits,
    units: AffineCoordinates | None = None,
    *,
    keeps_way: bool = False,
) -> Ascent:
    """Return where L-BFGS ends from every point of ``start``.

    Parameters
    ----------
    density : LogDensity
        Of one fit or of many, by which it is chosen how searches run.
    evaluate : callable
        ``(theta[C, P], *data) -> (value[C], gradient[C, P])``: the density, where searches run in Python.
    start : SearchPoints
    limits : Limits
        At most 200 steps.
    units : AffineCoordinates, optional
        Default: those of theta.
    keeps_way : bool
        Whether the way is asked for; otherwise it may be empty.
    """
    native = _native(density, start)
    if native is not None:
        return native(start, limits, units, density.data)

    def in_units(z: Tensor, *data: Any) -> tuple[Tensor, Tensor]:
        if units is None:
            return evaluate(z, *data)
        value, gradient = evaluate(units.loc + z @ units.root.mT, *data)
        return value, gradient @ units.root

    state = begun(*start, limits, num_kept=limits.max_steps + 1 if keeps_way else 0)
    found = ascent(in_units, state, limits, density.data, history=HISTORY)
    (z, cost, slope), steps = found.point, found.num_steps + 1
    return Ascent(SearchPoints(z, -cost, -slope), found.way[:steps].transpose(0, 1))


def _native(density: LogDensity, start: SearchPoints) -> "_NativeAscents | None":
    """Return what runs searches in native code, which fits of the density's kind share; None where it does not pay."""
    if not density.is_one_of_many or start.z.device.type != "cpu" or over_all_fits(1) < MIN_FITS_TO_COMPILE_SEARCHES:
        return None
    return density.shared("searches for modes", lambda: _compiled(density, start))


def _compiled(density: LogDensity, start: SearchPoints) -> "_NativeAscents | None":
    """Return searches in native code; None where it cannot be made, or its first steps lead elsewhere than those of Python."""
    try:
        found = _NativeAscents(density, start)
        return found if found.agrees(start, density.data) else None
    except Exception:  # no compiler, or an operation that is not written in C++: Python does the same
        return None


class _NativeAscents:
    """L-BFGS from one point after another in native code.

    Parameters
    ----------
    density : LogDensity
    start : SearchPoints
        An example.

    Raises
    ------
    Exception
        If the density cannot stand in a loop, or not be compiled.
    """

    def __init__(self, density: LogDensity, start: SearchPoints) -> None:
        arguments = (start.z[0], *density.data)
        flat, _ = flattened(single_value_and_grad(density.log_joint), arguments)
        inner = inner_graph(flat, tensors_of(arguments))
        if inner is None:
            raise ValueError("The density cannot stand in a loop.")
        self._constants, number = inner.constants, len(inner.constants)

        def evaluate(z: Tensor, loc: Tensor, root: Tensor, *others: Tensor) -> tuple[Tensor, Tensor]:
            constants, data = others[:number], others[number:]
            value, gradient = inner.graph(*constants, (loc + z @ root.mT)[0], *data)
            return value[None], gradient[None] @ root

        def one(z: Tensor, value: Tensor, gradient: Tensor, *given: Tensor) -> tuple[Tensor, ...]:
            limits, others = Limits(*given[:4]), given[4:]
            begin = begun(z[None], value[None], gradient[None], limits, num_pairs=HISTORY, num_kept=MAX_STEPS + 1)
            found = ascent(evaluate, begin, limits, others, history=HISTORY)
            end = (each[0] for each in found.point)
            return *end, found.way[:, 0], found.num_steps

        self._one = one
        example = [each[0] for each in start]
        self._runs = NativeRuns(one, [*example, *self._given(start.z, Limits(1, 0.0), None, density.data)], {0, 1, 2})

    def __call__(
        self, start: SearchPoints, limits: Limits, units: AffineCoordinates | None, data: Sequence[Any]
    ) -> Ascent:
        z, cost, slope, way, steps = self._runs(*start, *self._given(start.z, limits, units, data))
        places = torch.arange(int(steps.max()) + 1).clamp(max=steps[:, None])
        return Ascent(SearchPoints(z, -cost, -slope), way[torch.arange(len(z))[:, None], places])

    def agrees(self, start: SearchPoints, data: Sequence[Any]) -> bool:
        """Tell whether the first steps from the first point lead where those of Python do."""
        given = self._given(start.z, Limits(STEPS_TRIED, 0.0), None, data)
        pairs = zip(self._runs(*start, *given), self._one(*(each[0] for each in start), *given), strict=True)
        return all(is_close(a[0], b) for a, b in pairs)

    def _given(self, z: Tensor, limits: Limits, units: AffineCoordinates | None, data: Sequence[Any]) -> list[Tensor]:
        """Return what all searches are given besides where they start."""
        numbers = [z.new_tensor(float(each)) for each in limits]
        loc, root = units or (z.new_zeros(z.shape[1]), torch.eye(z.shape[1], dtype=z.dtype))
        return [*numbers, loc, root, *self._constants, *tensors_of(data)]
