"""L-BFGS on many parameter vectors at once, each with its own memory and line search."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.linalg import vector_norm

__all__ = ["Evaluate", "LBFGSResult", "Observe", "lbfgs"]

type Evaluate = Callable[[Tensor], tuple[Tensor, Tensor]]
type Observe = Callable[[Tensor, Tensor, Tensor], Tensor | None]
"""Receives where rows are, ``theta[C, P]``, the gradient there, and which rows ``[C]`` a step moved; may say where to go next."""

SUFFICIENT_DECREASE = 1e-4
MAX_HALVINGS = 30
PATIENCE = 5
"""A row that makes no progress beyond rounding error for this many steps is as near its mode as its precision allows."""

NEXT_TO_NOTHING = 0.01
"""Of the rounding error of the cost: a row that may gain less is within some thousandth of a standard deviation of its mode."""

CALM = 3
"""Steps in turn that promise little after which a row has converged: one may, where curvature has yet to be learnt."""


@dataclass(frozen=True)
class LBFGSResult:
    """Where the rows ended: ``theta[C, P]``, ``value[C]``, ``gradient[C, P]``, and the number of evaluations of each.

    ``num_rejected`` counts points at which the function is not finite, all rows together.
    """

    theta: Tensor
    value: Tensor
    gradient: Tensor
    num_evaluations: int
    num_rejected: int = 0


@dataclass(frozen=True)
class _Point:
    """Rows ``x[C, P]`` with the cost ``f[C]``, which is minimised, and its gradient ``g[C, P]``."""

    x: Tensor
    f: Tensor
    g: Tensor

    def where(self, mask: Tensor, other: "_Point") -> "_Point":
        """Return these rows where ``mask[C]`` is true, the other ones elsewhere."""
        column = mask[:, None]
        return _Point(
            torch.where(column, self.x, other.x),
            torch.where(mask, self.f, other.f),
            torch.where(column, self.g, other.g),
        )


class _Memory:
    """The last differences of positions and gradients, which define an approximate inverse Hessian.

    On few parameters a step costs as much as its operations are many, whatever they compute: these are as few as can be.
    """

    def __init__(self, size: int, start: Tensor) -> None:
        self._size = size
        self._pairs: list[tuple[Tensor, Tensor, Tensor]] = []
        self._scale = start.new_zeros(len(start), 1)  # by the last usable pair; zero before the first

    def store(self, s: Tensor, y: Tensor) -> None:
        """Store a pair of differences; rows without positive curvature along it ignore it."""
        product, square = (s * y).sum(1, keepdim=True), (y * y).sum(1, keepdim=True)
        sizes = vector_norm(s, dim=1, keepdim=True), vector_norm(y, dim=1, keepdim=True)
        usable = product > 1e-10 * sizes[0] * sizes[1]
        inverse = torch.where(usable, product, math.inf).reciprocal()
        self._scale = torch.where(usable, (inverse * square).clamp(min=1e-300).reciprocal(), self._scale)
        self._pairs = [*self._pairs, (s, y, inverse)][-self._size :]

    def forget(self, rows: Tensor) -> None:
        """Empty the memory of the marked rows ``[C]``."""
        column = rows[:, None]
        self._scale = torch.where(column, 0.0, self._scale)
        self._pairs = [(s, y, torch.where(column, 0.0, inverse)) for s, y, inverse in self._pairs]

    def direction(self, gradient: Tensor) -> Tensor:
        """Return minus the inverse Hessian times ``gradient[C, P]`` by the two-loop recursion."""
        q, alphas = gradient, []
        for s, y, inverse in reversed(self._pairs):
            alphas.append(inverse * (s * q).sum(1, keepdim=True))
            q = q - alphas[-1] * y
        first = vector_norm(gradient, dim=1, keepdim=True).clamp(min=1.0).reciprocal()
        q = torch.where(self._scale > 0, self._scale, first) * q
        for (s, y, inverse), alpha in zip(self._pairs, reversed(alphas), strict=True):
            q = q + (alpha - inverse * (y * q).sum(1, keepdim=True)) * s
        return -q


def lbfgs(
    evaluate: Evaluate,
    start: Tensor,
    max_steps: int,
    tolerance: float,
    history: int = 10,
    least_gain: float = 0.0,
    observe: Observe | None = None,
    max_evaluations: float = math.inf,
) -> LBFGSResult:
    """Maximise a function from every row of ``start[C, P]``.

    Parameters
    ----------
    evaluate : callable
        ``theta[C, P] -> (value[C], gradient[C, P])``.
    start : Tensor [C, P]
        Points at which the value and its gradient are finite.
    max_steps : int
    tolerance : float
        A row has converged when no entry of its gradient exceeds this times ``max(1, |value|)``.
    history : int
        Number of pairs of differences kept in memory.
    least_gain : float
        A row has converged, too, when three steps in turn promise to raise the value by less than this.
    observe : callable, optional
        Called with each step's ``(theta[C, P], gradient[C, P], moved[C])``, and first with the start, as if all had moved there.
        What it returns, if anything, are the directions ``[C, P]`` to search next, in place of those of the memory.
    max_evaluations : float
        No step begins after so many evaluations.

    Returns
    -------
    LBFGSResult

    References
    ----------
    Liu and Nocedal (1989), On the limited memory BFGS method for large scale optimization, Mathematical Programming 45.

    Examples
    --------
    >>> scales = torch.tensor([1.0, 10.0])
    >>> result = lbfgs(lambda t: (-(scales * t**2).sum(1) / 2, -scales * t), torch.ones(3, 2), 50, 1e-6)
    >>> bool(result.theta.abs().max() < 1e-5)
    True
    """
    memory = _Memory(history, start)
    point = _evaluated(evaluate, start)
    stuck = torch.zeros_like(point.f, dtype=torch.bool)
    fresh, idle, calm = ~stuck, torch.zeros_like(point.f), torch.zeros_like(point.f)
    num_evaluations, num_rejected = 1, 0
    advised = None if observe is None else observe(point.x, -point.g, ~stuck)
    for _ in range(max_steps):
        active = ~stuck & (point.g.abs().amax(1) > tolerance * point.f.abs().clamp(min=1.0))
        direction = _descent(memory.direction(point.g) if advised is None else advised, point, fresh)
        gain = -0.5 * (direction * point.g).sum(1)
        calm = torch.where(gain > least_gain, 0, calm + 1)
        active = active & (calm < CALM)
        if not bool(active.any()) or num_evaluations >= max_evaluations:
            break
        new, moved, count, refused = _search(evaluate, point, direction, active)
        num_evaluations, num_rejected = num_evaluations + count, num_rejected + refused
        advised = None if observe is None else observe(new.x, -new.g, moved)
        memory.store(new.x - point.x, new.g - point.g)
        failed = active & ~moved
        memory.forget(failed)
        idle = torch.where(_progressed(point, new, gain), 0, idle + 1)
        stuck, fresh = stuck | (failed & fresh) | (idle >= PATIENCE), failed
        point = new
    return LBFGSResult(point.x, -point.f, -point.g, num_evaluations, num_rejected)


def _evaluated(evaluate: Evaluate, x: Tensor) -> _Point:
    value, gradient = evaluate(x)
    return _Point(x, -value, -gradient)


def _descent(direction: Tensor, point: _Point, fresh: Tensor) -> Tensor:
    """Return the direction of each row, or that of steepest descent where it leads uphill, and where a row begins or failed."""
    downhill = ((direction * point.g).sum(1, keepdim=True) < 0) & ~fresh[:, None]
    if bool(downhill.all()):
        return direction
    return torch.where(downhill, direction, -point.g / vector_norm(point.g, dim=1, keepdim=True).clamp(min=1.0))


def _progressed(old: _Point, new: _Point, gain: Tensor) -> Tensor:
    """Tell which rows lowered their cost by more than rounding error, or have a clearly smaller gradient.

    Gradients that are rounding error themselves go up and down at random; steps promise next to nothing there, ``gain[C]``.
    """
    flatter = vector_norm(new.g, dim=1) < 0.9 * vector_norm(old.g, dim=1)
    return (new.f < old.f - _rounding(old)) | (flatter & (gain > NEXT_TO_NOTHING * _rounding(old)))


def _rounding(point: _Point) -> Tensor:
    return 10 * torch.finfo(point.f.dtype).eps * point.f.abs()


def _search(evaluate: Evaluate, point: _Point, direction: Tensor, active: Tensor) -> tuple[_Point, Tensor, int, int]:
    """Backtrack: halve each row's step until the cost decreases enough or, within rounding error, the gradient shrinks.

    Returns the points, the rows that moved, and the numbers of evaluations and of points that were not finite.
    """
    slope = (direction * point.g).sum(1)
    rounding = _rounding(point)
    step, best, moved = active.to(point.f), point, torch.zeros_like(active)
    count = num_rejected = 0
    while count < MAX_HALVINGS and not bool((moved | ~active).all()):
        count += 1
        trial = _evaluated(evaluate, torch.where(moved[:, None], best.x, point.x + step[:, None] * direction))
        better = trial.f <= point.f + SUFFICIENT_DECREASE * step * slope
        if not bool(better.all()):  # or within rounding error, and flatter
            better |= (trial.f <= point.f + rounding) & (vector_norm(trial.g, dim=1) < vector_norm(point.g, dim=1))
        usable, looking = trial.f.isfinite() & trial.g.isfinite().all(1), active & ~moved
        accepted = looking & better & usable
        if not bool(usable.all()):
            num_rejected += int((looking & ~usable).sum())
        best, moved = trial.where(accepted, best), moved | accepted
        step = step / 2
    return best, moved, count, num_rejected
