"""Modes of a small model: where searches from several starts end, and how much of the posterior is around each."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.parameters.hierarchy import has_weights
from bnnzoo.core.verdict.several_modes import MATTERS
from bnnzoo.inference.optimise.ascents import AffineCoordinates, SearchPoints, climbed
from bnnzoo.inference.optimise.lbfgs import Limits
from bnnzoo.inference.optimise.pathfinder import NEAR, Frame, Way, at_peak, log_ratios
from bnnzoo.inference.starts import spread_starts

__all__ = ["Peak", "Peaks", "peak_at", "peaks_beside"]

NUM_MORE = 7
"""Searches besides those from the model's own starts, and as many again where they end in modes that matter."""

MAX_EVALUATIONS, LEAST_GAIN = 100, 1e-3
"""Of L-BFGS: evaluations of the batch, and nats that the next step must promise for a search to go on."""

APART = 2.0
"""Standard deviations between two modes: Gaussians of one width have a single mode between them if they are nearer."""

MAX_ENDS = 3
"""Places in which searches end of which the curvature is computed, the highest ones."""

NEWTON_STEPS = 4
"""Steps of Newton's method in which an end becomes a mode."""

OTHER_STARTS = 7919


@dataclass(frozen=True)
class Peak:
    """A mode, or the best Gaussian on a way that ended in none.

    Attributes
    ----------
    frame : Frame [P]
        The Gaussian there.
    top : Tensor [P]
        The highest point.
    mode : Frame, optional
        The Gaussian at the highest point, if that is known to be a mode.
    num_searches : int
        Searches that ended there.
    """

    frame: Frame
    top: Tensor
    mode: Frame | None = None
    num_searches: int = 1

    def holds(self, frame: Frame) -> bool:
        """Tell whether the middle of a Gaussian is here, in the units of either."""
        pairs = ((self.frame, frame.loc), (frame, self.frame.loc), (frame, self.top))
        return any(_distance(each, place) < APART for each, place in pairs)


@dataclass(frozen=True)
class Peaks:
    """The peaks ``found``, that with the most evidence first, and how many searches there were.

    ``log_evidence[M]`` has the logarithm of the integral of the density around each, by draws of its Gaussian; NaN if there is
    one only.
    """

    found: tuple[Peak, ...]
    log_evidence: Tensor
    num_searches: int

    @property
    def shares(self) -> Tensor:
        """The share of each of the evidence of all."""
        return self.log_evidence.softmax(0) if len(self.found) > 1 else torch.ones(1)

    def starts(self, ways: Sequence[Way]) -> list[Frame]:
        """Return the Gaussian at which each of several fits starts: that with the most evidence for a single one.

        Restarts stay on their own ways, unless next to none of the posterior is there.
        """
        if len(ways) == 1:
            return [self.found[0].frame]
        here = [next((i for i, peak in enumerate(self.found) if peak.holds(way.frame)), 0) for way in ways]
        matter = [float(self.shares[i]) >= MATTERS for i in here]
        return [way.frame if own else self.found[0].frame for way, own in zip(ways, matter, strict=True)]

    @property
    def said(self) -> dict[str, Any]:
        """What the record of a fit says of several modes; nothing of a single one."""
        if len(self.found) == 1:
            return {}
        half_log_size = 0.5 * len(self.found[0].top) * math.log(2 * math.pi)
        modes = [
            {
                "share": float(share),
                "log_evidence": float(log_evidence),
                "log_volume": float(peak.frame.root.diagonal().log().sum()) + half_log_size,
                "num_searches": peak.num_searches,
                "theta": peak.frame.loc.tolist(),
            }
            for peak, share, log_evidence in zip(self.found, self.shares, self.log_evidence, strict=True)
        ]
        return {"modes": modes, "num_searches": self.num_searches}


def peaks_beside(density: LogDensity, ways: Sequence[Way], seed: int) -> Peaks:
    """Return the modes in which the ways, and further searches, end.

    Searches run in one batch, and there is a second one only where the first ended in several modes that matter. Networks, whose
    hidden units can be relabelled, are searched no further.
    """
    peaks: list[Peak] = []
    for way in ways:
        _count_or_enter(peaks, Peak(way.frame, way.top, way.mode))
    found = _sorted(density, peaks, len(ways))
    if has_weights(density):
        return found
    for batch in (1, 2):
        ends = _ends(density, ways[0].frame, spread_starts(density, NUM_MORE, seed + batch * OTHER_STARTS))
        _enter(density, peaks, ends, ways[0].frame)
        found = _sorted(density, peaks, found.num_searches + len(ends))
        if len(peaks) == 1 or (float(found.shares[1]) < MATTERS and found.found[0].num_searches > 1):
            break
    return found


def _sorted(density: LogDensity, peaks: Sequence[Peak], num_searches: int) -> Peaks:
    if len(peaks) == 1:
        return Peaks(tuple(peaks), torch.full((1,), math.nan), num_searches)
    ratios = torch.stack([log_ratios(density, peak.frame).cpu().double() for peak in peaks])
    log_evidence, order = (ratios.logsumexp(1) - math.log(ratios.shape[1])).sort(descending=True, stable=True)
    return Peaks(tuple(peaks[i] for i in order.tolist()), log_evidence, num_searches)


def _ends(density: LogDensity, frame: Frame, start: Tensor) -> list[Tensor]:
    """Return where L-BFGS ends from those of the starts ``[C, P]`` at which the density is finite, highest first.

    It runs in the units of the model, whose modes attract as many starts as those of any search, and then in those of the frame,
    in which it converges where units differ by a factor of a million.
    """
    evaluate = density.value_and_grad.repeated(compiles=False)
    value, gradient = evaluate(start, *density.data)
    usable = value.isfinite() & gradient.isfinite().all(1)
    if not bool(usable.all()):  # the others start where they need not move, so that the graph is the same
        start = torch.where(usable[:, None], start, frame.loc)
        value, gradient = evaluate(start, *density.data)
    limits = Limits(MAX_EVALUATIONS, 0.0, LEAST_GAIN, MAX_EVALUATIONS)
    near = climbed(density, evaluate, SearchPoints(start, value, gradient), limits).end
    again = SearchPoints(_whitened(frame.root, near.z - frame.loc), near.value, near.gradient @ frame.root)
    found = climbed(density, evaluate, again, limits, AffineCoordinates(frame.loc, frame.root)).end
    order = found.value.argsort(descending=True, stable=True)
    return [frame.loc + frame.root @ found.z[i] for i in order.tolist() if bool(usable[i])]


def _enter(density: LogDensity, peaks: list[Peak], ends: Sequence[Tensor], frame: Frame) -> None:
    """Count which of the ends ``[P]`` are in modes that are known, and enter those that are not."""
    computed: list[tuple[Frame, Frame | None]] = []
    for end in ends:
        here = Frame(end, frame.root, frame.scale)
        if _is_counted(peaks, here):
            continue
        near = [found for place, found in computed if _distance(place, end) < APART]
        if not near and len(computed) < MAX_ENDS:
            near = [peak_at(density, end)]
            computed.append((here, near[0]))
        if near and near[0] is not None:
            _count_or_enter(peaks, Peak(near[0], near[0].loc, near[0]))


def _count_or_enter(peaks: list[Peak], found: Peak) -> None:
    if not _is_counted(peaks, found.frame):
        peaks.append(found)


def _is_counted(peaks: list[Peak], frame: Frame) -> bool:
    """Count one more search for the first peak that holds the middle of a Gaussian, and tell whether there is one."""
    here = next((i for i, known in enumerate(peaks) if known.holds(frame)), None)
    if here is not None:
        peaks[here] = replace(peaks[here], num_searches=peaks[here].num_searches + 1)
    return here is not None


def peak_at(density: LogDensity, theta: Tensor) -> Frame | None:
    """Return the Gaussian at the mode next to ``theta[P]``; None without one that a few steps of Newton's method reach."""
    for _ in range(NEWTON_STEPS):
        frame = at_peak(density, theta)
        if frame is None:
            return None
        slope = frame.root.mT @ density.value_and_grad(theta[None], *density.data)[1][0]
        if float(slope.norm()) < NEAR:
            return frame
        theta = theta + frame.root @ slope
    return None


def _distance(frame: Frame, place: Tensor) -> float:
    """Return how far a place ``[P]`` is from the middle of a Gaussian, in its units."""
    return float(_whitened(frame.root, (place - frame.loc)[None]).norm())


def _whitened(root: Tensor, away: Tensor) -> Tensor:
    """Return ``z[C, P]`` for which ``root z`` is ``away[C, P]``."""
    return torch.linalg.solve_triangular(root, away.mT, upper=False).mT
