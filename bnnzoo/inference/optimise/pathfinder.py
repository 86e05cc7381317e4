"""Gaussians near the posterior: the best one on the way from a start to the mode (Pathfinder)."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.model.hessian import hessians_of, in_double
from bnnzoo.core.model.log_joints import log_joint_at
from bnnzoo.core.reading.streamed import StreamedDensity
from bnnzoo.inference.optimise.ascents import MAX_STEPS, SearchPoints, climbed
from bnnzoo.inference.optimise.lbfgs import Evaluate, Limits

__all__ = [
    "MAX_ELEMENTS",
    "NEAR",
    "NEWTON_STEPS",
    "Frame",
    "Way",
    "at_peak",
    "frames_near",
    "gaussian_at",
    "log_ratios",
    "stacked",
    "uphill",
    "ways_up",
]

MAX_PARAMS, MAX_ELEMENTS = 300, 2**24
"""Beyond which curvature is not computed: parameters, and parameters times observations."""

NEWTON_STEPS, TOLERANCE = 30, 1e-7
NUM_CANDIDATES, NUM_DRAWS = 8, 64
"""Points of the way to the mode at which a Gaussian is tried, and draws of each."""

CLOSE = 0.5
"""Standard deviation of log p - log q, in nats, at which a Gaussian needs no comparison with others."""

NEXT_TO_NO_MASS, UNSTEADY = 3.0, 10.0
"""Nats by which the bound of a Gaussian is below the best one, each uncertain by two standard errors; and how many times the
best one's a standard error may be: one of thousands of nats is rounding."""

NEAR = 0.1
"""Standard deviations by which a search may miss a mode."""

LEAST_CURVATURE = 1e4
"""Smallest eigenvalue of a Hessian, relative to the largest and in rounding errors."""


class Frame(NamedTuple):
    """Coordinates for the parameters of a Gaussian family.

    Attributes
    ----------
    loc : Tensor [P] or [C, P]
        Where means are zero.
    root : Tensor [P, P] or [C, P, P]
        Lower triangular: the means are ``loc + root m``.
    scale : Tensor [P] or [C, P]
        Unit of the scales of single entries, given all others.
    """

    loc: Tensor
    root: Tensor
    scale: Tensor


def stacked(frames: Sequence[Frame]) -> Frame:
    """Return frames of single fits as one ``[C, ...]``."""
    return Frame(*(torch.stack(parts) for parts in zip(*frames, strict=True)))


class Way(NamedTuple):
    """The best Gaussian on the way from a start, where the way ends, ``top[P]``, and the Gaussian there if it is a mode.

    ``log_ratios`` are those of the best Gaussian; see :func:`log_ratios`.
    """

    frame: Frame
    top: Tensor
    mode: Frame | None
    log_ratios: Tensor


def frames_near(density: LogDensity, start: Tensor) -> Frame | None:
    """Return the frames of :func:`ways_up`, the best one first, without those around which there is next to no mass.

    None where that returns None. In the throat of a funnel, where some ways end, the density is high and the evidence low: one
    chain that started there would force its short steps on all in lockstep.
    """
    ways = ways_up(density, start)
    if ways is None:
        return None
    ratios = torch.stack([way.log_ratios for way in ways])
    bounds, errors = ratios.mean(1), 2 * ratios.std(1) / NUM_DRAWS**0.5
    order = (bounds - errors).argsort(descending=True)
    best = order[0]
    kept = bounds + errors >= bounds[best] - errors[best] - NEXT_TO_NO_MASS
    kept &= errors <= UNSTEADY * (1 + errors[best])
    return stacked([ways[place].frame for place in order[kept[order]].tolist()])


def ways_up(density: LogDensity, start: Tensor) -> list[Way] | None:
    """Return the way to the mode from each start ``[C, P]``, with the Gaussian of the highest bound on it.

    At each of some points of the way the Gaussian has the inverse of the Hessian for its covariance, in which eigenvalues count
    by their size. The mode itself is not always best: that of a hierarchy lies in the throat of a funnel.

    Returns
    -------
    list of Way, or None
        None for networks, whose posterior no Gaussian describes, for data that are not in memory, for more than 300 parameters,
        and if the Hessian cannot be computed.

    References
    ----------
    Zhang, Carpenter, Gelman and Vehtari (2022), Pathfinder: parallel quasi-Newton variational inference, JMLR 23.
    """
    if not _has_curvature(density):
        return None
    evaluate = density.value_and_grad.repeated()
    found = [_way(density, evaluate, row) for row in start]
    ways = [way for way in found if way is not None]
    return ways if len(ways) == len(found) else None


def gaussian_at(density: LogDensity, theta: Tensor) -> Frame | None:
    """Return the Gaussian at ``theta[P]`` whose precision is minus the Hessian, eigenvalues by their size.

    Returns
    -------
    Frame or None
        None where :func:`frames_near` would return it.
    """
    found = _curvature(density, theta) if _has_curvature(density) else None
    return None if found is None else found[0]


def uphill(density: LogDensity, theta: Tensor, max_steps: int = NEWTON_STEPS) -> tuple[Tensor, float, int]:
    """Return where Newton's method ends from ``theta[P]``, uphill also where the Hessian is indefinite, and its decrement.

    The decrement is how far away the mode is, in posterior standard deviations: infinite where the Hessian is not negative
    definite, NaN, with ``theta`` itself, where :func:`frames_near` would return None. The last is how many gradients it took.
    """
    if not _has_curvature(density):
        return theta, math.nan, 0
    count = 0

    def evaluate(rows: Tensor, *data: Any) -> tuple[Tensor, Tensor]:
        nonlocal count
        count += 1
        value, gradient = density.value_and_grad(rows, *data)
        return value, gradient

    top, decrement, _ = _newton(density, evaluate, theta, max_steps)
    return top, decrement, count


def _has_curvature(density: LogDensity) -> bool:
    size = density.num_params
    is_small = size <= MAX_PARAMS and size * density.num_data <= MAX_ELEMENTS
    return is_small and not density.networks and not isinstance(density, StreamedDensity)


def _way(density: LogDensity, evaluate: Evaluate, start: Tensor) -> Way | None:
    path = _path(density, evaluate, start)
    top, decrement, here = _newton(density, evaluate, path[-1])
    mode = None if here is None or not decrement < NEAR else here[0]
    best: Way | None = None
    for places in (None, path.flip(0)):  # all others at once, if the mode does not do
        curvatures = [here] if places is None else _curvatures(density, places)
        frames = [found[0] for found in curvatures if found is not None]
        for frame, ratios in zip(frames, _log_ratios(density, frames), strict=True):
            if best is None or bool(ratios.mean() > best.log_ratios.mean()):
                best = Way(frame, top, mode, ratios)
            if float(ratios.std()) < CLOSE:
                return best
    is_known = best is not None and bool(best.log_ratios.isfinite().all())  # else the density ends beside all of them
    return best if is_known else None


def log_ratios(density: LogDensity, frame: Frame) -> Tensor:
    """Return log p - log q ``[S]`` at draws of the Gaussian of a frame ``[P]``, from always the same noise.

    Their mean is the evidence lower bound, and the logarithm of the mean ratio an estimate of the evidence around it.
    """
    return _log_ratios(density, [frame])[0]


def _log_ratios(density: LogDensity, frames: Sequence[Frame]) -> Sequence[Tensor]:
    """Return what :func:`log_ratios` does for each frame."""
    if not frames:
        return ()
    size = len(frames[0].loc)
    half = torch.randn(NUM_DRAWS // 2, size, generator=torch.Generator().manual_seed(0)).to(frames[0].loc)
    noise = torch.cat([half, -half])
    values = log_joint_at(density, torch.cat([frame.loc + noise @ frame.root.mT for frame in frames])).split(len(noise))
    constant = 0.5 * noise.square().sum(1) + 0.5 * size * math.log(2 * math.pi)
    return [value + frame.root.diagonal().log().sum() + constant for value, frame in zip(values, frames, strict=True)]


def _path(density: LogDensity, evaluate: Evaluate, start: Tensor) -> Tensor:
    """Return some points ``[M, P]`` of the way from a start ``[P]`` uphill, and its end."""
    begin = SearchPoints(start[None], *evaluate(start[None], *density.data))
    found = climbed(density, evaluate, begin, Limits(MAX_STEPS, TOLERANCE), keeps_way=True)
    way = found.way[0]
    places = torch.linspace(0, len(way) - 1, min(NUM_CANDIDATES, len(way))).round().long().unique()
    return torch.cat([way[places], found.end.z])


def _newton(
    density: LogDensity, evaluate: Evaluate, theta: Tensor, max_steps: int = NEWTON_STEPS
) -> tuple[Tensor, float, tuple[Frame, bool] | None]:
    """Return where Newton's method ends from ``theta[P]``, its decrement, and the curvature there.

    Eigenvalues of the Hessian count by their size, and steps are halved until they lead upwards.
    """
    value, gradient = evaluate(theta[None], *density.data)
    decrement = math.nan
    for number in range(max_steps + 1):
        found = _curvature(density, theta)
        if found is None:
            return theta, math.nan, None
        frame, is_peak = found
        slope = frame.root.mT @ gradient[0]
        decrement = float(slope.norm()) if is_peak else math.inf
        step = frame.root @ slope
        if number == max_steps or not float(step @ gradient[0]) > 1e-10:  # nats that another step would gain
            break
        for _ in range(30):
            trial = evaluate((theta + step)[None], *density.data)
            if bool(trial[0].isfinite()) and float(trial[0]) >= float(value) and bool(trial[1].isfinite().all()):
                break
            step = step / 2
        else:
            break
        theta, (value, gradient) = theta + step, trial
    return theta, decrement, found


def at_peak(density: LogDensity, theta: Tensor) -> Frame | None:
    """Return the Gaussian at ``theta[P]`` whose precision is minus the Hessian; None where that is not positive definite."""
    found = _curvature(density, theta)
    return found[0] if found is not None and found[1] else None


def _curvature(density: LogDensity, theta: Tensor) -> tuple[Frame, bool] | None:
    """Return the Gaussian at ``theta[P]``, eigenvalues by their size, and whether all of them curve down."""
    return _curvatures(density, theta[None])[0]


def _curvatures(density: LogDensity, theta: Tensor) -> list[tuple[Frame, bool] | None]:
    """Return what :func:`_curvature` does at each of ``theta[M, P]``."""
    hessians = {i: each for i, each in enumerate(_hessians(density, theta)) if each is not None}
    finite = {i: each for i, each in hessians.items() if bool(each.isfinite().all())}
    if not finite:
        return [None for _ in theta]
    found = dict(zip(finite, _of_hessians([*finite.values()], theta[[*finite]]), strict=True))
    return [found.get(i) for i in range(len(theta))]


def _of_hessians(hessians: Sequence[Tensor], theta: Tensor) -> list[tuple[Frame, bool] | None]:
    """Return the Gaussians of finite Hessians ``[P, P]`` at ``theta[M, P]``."""
    least = LEAST_CURVATURE * max(torch.finfo(each.dtype).eps for each in hessians)
    hessian = torch.stack([each.double() for each in hessians])
    # columns of data may differ in scale
    size = hessian.diagonal(dim1=1, dim2=2).abs().clamp(min=torch.finfo(theta.dtype).tiny).rsqrt()
    signed, vectors = torch.linalg.eigh(-0.5 * (hessian + hessian.mT) * size[:, None] * size[:, :, None])
    values = signed.abs()
    values = values.maximum(values.amax(1, keepdim=True) * least)
    # The R of a QR decomposition of half a covariance is its Cholesky factor, which needs no square of the rounding errors.
    upper = torch.linalg.qr((size[:, :, None] * vectors * values.rsqrt()[:, None]).mT).R
    root = (upper.mT * upper.diagonal(dim1=1, dim2=2).sign()[:, None]).to(theta)
    scale = ((vectors / size[:, :, None]) ** 2 * values[:, None]).sum(2).rsqrt().to(theta)
    diagonal = root.diagonal(dim1=1, dim2=2)
    sound = root.isfinite().all(2).all(1) & (scale.isfinite() & (scale > 0) & (diagonal > 0)).all(1)
    frames = map(Frame, theta.detach(), root, scale)
    peaks = (signed > 0).all(1).tolist()
    return [(each, peak) if fine else None for each, peak, fine in zip(frames, peaks, sound.tolist(), strict=True)]


def _hessians(density: LogDensity, theta: Tensor) -> list[Tensor | None]:
    """Return Hessians ``[P, P]`` of the log joint density at ``theta[M, P]``, in double precision where the model can be."""
    for each, at in ((in_double(density), theta.double()), (density, theta)):
        try:
            return [*hessians_of(each, at)]
        except Exception:  # no second derivative, no batch, or tensors of the model's own in single precision
            continue
    return [None] if len(theta) == 1 else [found for row in theta for found in _hessians(density, row[None])]
