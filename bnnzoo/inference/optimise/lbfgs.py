"""L-BFGS on many parameter vectors at once, each with its own memory and line search."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.linalg import vector_norm

from bnnzoo.engine.loops import is_written_down, while_loop

__all__ = ["HISTORY", "Evaluate", "LBFGSResult", "Limits", "Observe", "State", "ascent", "begun", "lbfgs"]

type Evaluate = Callable[..., tuple[Tensor, Tensor]]
type Observe = Callable[[Tensor, Tensor, Tensor], Tensor | None]
"""Receives where rows are, ``theta[C, P]``, the gradient there, and which rows ``[C]`` a step moved; may say where to go next."""

HISTORY = 10
"""Pairs of differences kept, where nothing else is said."""

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


class Limits(NamedTuple):
    """When a search ends: numbers, or in native code tensors ``[]``; see :func:`lbfgs`.

    A row takes no step after ``max_evaluations`` of its own.
    """

    max_steps: Any
    tolerance: Any
    least_gain: Any = 0.0
    max_evaluations: Any = math.inf


class _Point(NamedTuple):
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


class _Memory(NamedTuple):
    """The last differences of positions and gradients, which define an approximate inverse Hessian.

    On few parameters a step costs as much as its operations are many, whatever they compute: these are as few as can be.

    Attributes
    ----------
    pairs : tuple of (Tensor [C, P], Tensor [C, P], Tensor [C, 1])
        Differences of positions and gradients, the last ones at the end, and the inverse of their product, zero for rows that
        ignore the pair.
    scale : Tensor [C, 1]
        Size of the inverse Hessian by the last usable pair; zero before the first.
    """

    pairs: tuple[tuple[Tensor, Tensor, Tensor], ...]
    scale: Tensor

    def storing(self, s: Tensor, y: Tensor, size: int) -> "_Memory":
        """Return the memory with one more pair of differences; rows without positive curvature along it ignore it."""
        product, square = (s * y).sum(1, keepdim=True), (y * y).sum(1, keepdim=True)
        sizes = vector_norm(s, dim=1, keepdim=True), vector_norm(y, dim=1, keepdim=True)
        usable = product > 1e-10 * sizes[0] * sizes[1]
        inverse = torch.where(usable, product, math.inf).reciprocal()
        scale = torch.where(usable, (inverse * square).clamp(min=1e-300).reciprocal(), self.scale)
        return _Memory((*self.pairs, (s, y, inverse))[-size:], scale)

    def forgetting(self, rows: Tensor) -> "_Memory":
        """Return the memory, emptied of the marked rows ``[C]``."""
        if _is_known_to_be(~rows):
            return self
        column = rows[:, None]
        pairs = tuple((s, y, torch.where(column, 0.0, inverse)) for s, y, inverse in self.pairs)
        return _Memory(pairs, torch.where(column, 0.0, self.scale))

    def direction(self, gradient: Tensor) -> Tensor:
        """Return minus the inverse Hessian times ``gradient[C, P]`` by the two-loop recursion."""
        q, alphas = gradient, []
        for s, y, inverse in reversed(self.pairs):
            alphas.append(inverse * (s * q).sum(1, keepdim=True))
            q = q - alphas[-1] * y
        first = vector_norm(gradient, dim=1, keepdim=True).clamp(min=1.0).reciprocal()
        q = torch.where(self.scale > 0, self.scale, first) * q
        for (s, y, inverse), alpha in zip(self.pairs, reversed(alphas), strict=True):
            q = q + (alpha - inverse * (y * q).sum(1, keepdim=True)) * s
        return -q


class State(NamedTuple):
    """Searches under way, one a row: where they are, which way they go next, and what they have learnt and spent.

    Attributes
    ----------
    point : _Point
    memory : _Memory
    direction : Tensor [C, P]
    gain : Tensor [C]
        Half of what the next step promises to first order.
    active, stuck, fresh : Tensor [C]
        Rows that go on; that cannot be moved; and that begin, or failed in the last step.
    idle, calm : Tensor [C]
        Steps in turn without progress, and that promised little.
    spent : Tensor [C]
        Evaluations of each row.
    num_steps, num_evaluations, num_rejected : int, or Tensor [] in native code
    way : Tensor [K, C, P]
        Where searches were after each step, the start included; nothing is kept of no rows.
    """

    point: _Point
    memory: _Memory
    direction: Tensor
    gain: Tensor
    active: Tensor
    stuck: Tensor
    fresh: Tensor
    idle: Tensor
    calm: Tensor
    spent: Tensor
    num_steps: Any
    num_evaluations: Any
    num_rejected: Any
    way: Tensor


class _LineSearch(NamedTuple):
    """A line search: the best points so far, the rows that have found theirs, each row's step, and what it took."""

    best: _Point
    moved: Tensor
    step: Tensor
    spent: Tensor
    count: Any
    num_rejected: Any


def lbfgs(
    evaluate: Evaluate,
    start: Tensor,
    max_steps: int,
    tolerance: float,
    history: int = HISTORY,
    least_gain: float = 0.0,
    observe: Observe | None = None,
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
    limits = Limits(max_steps, tolerance, least_gain)
    state = begun(start, *evaluate(start), limits, observe=observe)
    found = ascent(evaluate, state, limits, history=history, observe=observe)
    point = found.point
    return LBFGSResult(point.x, -point.f, -point.g, int(found.num_evaluations), int(found.num_rejected))


def begun(
    start: Tensor,
    value: Tensor,
    gradient: Tensor,
    limits: Limits,
    *,
    num_pairs: int = 0,
    num_kept: int = 0,
    observe: Observe | None = None,
) -> State:
    """Return searches that begin at ``start[C, P]``, with the value ``[C]`` and gradient ``[C, P]`` there.

    Native code holds as many pairs of differences at all times: ``num_pairs`` of zeros, which change nothing. ``num_kept`` is how
    many points of the way are kept.
    """
    point = _Point(start, -value, -gradient)
    none, column = torch.zeros_like(value), start.new_zeros(len(start), 1)
    nothing = torch.zeros_like(start)
    stuck = torch.zeros_like(value, dtype=torch.bool)
    memory = _Memory(tuple((nothing, nothing, column) for _ in range(num_pairs)), column)
    advised = None if observe is None else observe(point.x, -point.g, ~stuck)
    steps, evaluations, rejected = (torch.tensor(number) if num_pairs else number for number in (0, 1, 0))
    state = State(
        point=point,
        memory=memory,
        direction=point.g,
        gain=none,
        active=stuck,
        stuck=stuck,
        fresh=~stuck,
        idle=none,
        calm=none,
        spent=none + 1,
        num_steps=steps,
        num_evaluations=evaluations,
        num_rejected=rejected,
        way=start[None].repeat(num_kept, 1, 1),
    )
    return _looking_ahead(state, advised, limits)


def ascent(
    evaluate: Evaluate,
    state: State,
    limits: Limits,
    data: Any = (),
    *,
    history: int,
    observe: Observe | None = None,
) -> State:
    """Return where searches end; ``evaluate`` takes ``(theta[C, P], *data)``."""

    def going(state: State, given: Any) -> Tensor:
        found: Tensor = state.active.any() & (state.num_steps < given[0].max_steps)
        return found

    def body(state: State, given: Any) -> State:
        limits, data = given
        point, stuck = state.point, state.stuck
        found = _searched(evaluate, state, data)
        new, moved = found.best, found.moved
        advised = None if observe is None else observe(new.x, -new.g, moved)
        failed = state.active & ~moved
        memory = state.memory.storing(new.x - point.x, new.g - point.g, history).forgetting(failed)
        idle = torch.where(_progressed(point, new, state.gain), 0, state.idle + 1)
        stepped = state._replace(
            point=new,
            memory=memory,
            stuck=stuck | (failed & state.fresh) | (idle >= PATIENCE),
            fresh=failed,
            idle=idle,
            spent=state.spent + found.spent,
            num_steps=state.num_steps + 1,
            num_evaluations=state.num_evaluations + found.count,
            num_rejected=state.num_rejected + found.num_rejected,
        )
        return _looking_ahead(_kept(stepped) if len(state.way) else stepped, advised, limits)

    found: State = while_loop(going, body, state, (limits, data))
    return found


def _kept(state: State) -> State:
    place = torch.as_tensor(state.num_steps).clamp(max=len(state.way) - 1).view(1)
    return state._replace(way=state.way.index_put((place,), state.point.x[None]))


def _looking_ahead(state: State, advised: Tensor | None, limits: Limits) -> State:
    """Return searches that know their next directions, and which of them go on."""
    point = state.point
    active = ~state.stuck & (point.g.abs().amax(1) > limits.tolerance * point.f.abs().clamp(min=1.0))
    direction = state.memory.direction(point.g) if advised is None else advised
    slope = (direction * point.g).sum(1)
    downhill = (slope < 0) & ~state.fresh
    if not _is_known_to_be(downhill):  # steepest descent where it leads uphill, and where a row begins or failed
        steepest = -point.g / vector_norm(point.g, dim=1, keepdim=True).clamp(min=1.0)
        direction = torch.where(downhill[:, None], direction, steepest)
        slope = (direction * point.g).sum(1)
    gain = -0.5 * slope
    calm = torch.where(gain > limits.least_gain, 0, state.calm + 1)
    active = active & (calm < CALM) & (state.spent < limits.max_evaluations)
    return state._replace(direction=direction, gain=gain, calm=calm, active=active)


def _progressed(old: _Point, new: _Point, gain: Tensor) -> Tensor:
    """Tell which rows lowered their cost by more than rounding error, or have a clearly smaller gradient.

    Gradients that are rounding error themselves go up and down at random; steps promise next to nothing there, ``gain[C]``.
    """
    rounding = _rounding(old)
    lower = new.f < old.f - rounding
    if _is_known_to_be(lower):
        return lower
    flatter = vector_norm(new.g, dim=1) < 0.9 * vector_norm(old.g, dim=1)
    return lower | (flatter & (gain > NEXT_TO_NOTHING * rounding))


def _rounding(point: _Point) -> Tensor:
    return 10 * torch.finfo(point.f.dtype).eps * point.f.abs()


def _searched(evaluate: Evaluate, state: State, data: Any) -> _LineSearch:
    """Backtrack: halve each row's step until the cost decreases enough or, within rounding error, the gradient shrinks."""
    point, active = state.point, state.active
    slope, none = -2 * state.gain, 0 * state.num_rejected
    begin = _LineSearch(point, torch.zeros_like(active), active.to(point.f), torch.zeros_like(point.f), none, none)

    def going(search: _LineSearch, given: Any) -> Tensor:
        found: Tensor = (given[3] & ~search.moved).any() & (search.count < MAX_HALVINGS)
        return found

    def body(search: _LineSearch, given: Any) -> _LineSearch:
        point, direction, slope, active, data = given
        best, moved, step = search.best, search.moved, search.step
        x = torch.where(moved[:, None], best.x, point.x + step[:, None] * direction)
        value, gradient = evaluate(x, *data)
        trial = _Point(x, -value, -gradient)
        better = trial.f <= point.f + SUFFICIENT_DECREASE * step * slope
        if not _is_known_to_be(better):  # or within rounding error, and flatter
            flatter = vector_norm(trial.g, dim=1) < vector_norm(point.g, dim=1)
            better = better | ((trial.f <= point.f + _rounding(point)) & flatter)
        usable, looking = trial.f.isfinite() & trial.g.isfinite().all(1), active & ~moved
        accepted = looking & better & usable
        refused = search.num_rejected if _is_known_to_be(usable) else search.num_rejected + (looking & ~usable).sum()
        best = trial if _is_known_to_be(accepted) else trial.where(accepted, best)
        return _LineSearch(best, moved | accepted, step / 2, search.spent + looking, search.count + 1, refused)

    found: _LineSearch = while_loop(going, body, begin, (point, state.direction, slope, active, data))
    return found


def _is_known_to_be(truths: Tensor) -> bool:
    """Tell whether all of ``truths`` are known to hold, which saves work: nothing is known while native code is written."""
    return not is_written_down() and bool(truths.all())
