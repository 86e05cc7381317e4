"""Maximising the evidence lower bound over a family, from one or several starts."""

from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from bnnzoo.core.method import FitContext
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.posterior.info import FitInfo
from bnnzoo.core.posterior.posterior import Gaussian, Mixture
from bnnzoo.core.program.sites import ModelError
from bnnzoo.core.verdict.rejections import why_rejected
from bnnzoo.inference.optimise.batches import batches_of
from bnnzoo.inference.optimise.independent_members import Members, joined, trained_in_parts
from bnnzoo.inference.optimise.modes import peaks_beside
from bnnzoo.inference.optimise.objectives import MemberObjective, ObjectiveInputs
from bnnzoo.inference.optimise.observers import IterateAverage, PlateauStopping, all_of
from bnnzoo.inference.optimise.optimisers import Adam
from bnnzoo.inference.optimise.pathfinder import Frame, stacked, ways_up
from bnnzoo.inference.optimise.schedules import schedule_named
from bnnzoo.inference.optimise.train import train
from bnnzoo.inference.starts import starting_points
from bnnzoo.inference.variational.elbo import Bound, GaussianFamily, Reparametrised, mean_over_particles
from bnnzoo.inference.variational.even_noise import Noise
from bnnzoo.inference.variational.frame import Framed, FramedGaussian, frame_of, has_settled, mean_bound
from bnnzoo.inference.variational.variational_settings import BoundSettings, VISettings

__all__ = ["GaussianVI", "fit_family", "fit_gaussian"]

SEARCHES = (500, 1000, 2000, 4000, 8000)
"""Steps of the searches that follow each other until the bound has settled."""


class GaussianVI(VISettings):
    """A variational method whose family are Gaussians: what flows and partial VI can build on."""

    @abstractmethod
    def family(self, num_params: int) -> GaussianFamily:
        """Return the family of approximations to ``num_params`` parameters."""

    def run(self, density: LogDensity, context: FitContext) -> Gaussian | Mixture:
        """Maximise the evidence lower bound; see :func:`bnnzoo.fit`.

        Returns
        -------
        Gaussian or Mixture
            One component a restart, with the bound's estimates in ``info.fit_stats["elbo"]``.

        Raises
        ------
        ValueError
            If settings contradict each other.
        """
        return fit_gaussian(self, self.family(density.num_params), density, context)


@dataclass(frozen=True)
class Restarts(Members[BoundSettings]):
    """Restarts of a fit, which start at parameters of the family.

    Attributes
    ----------
    family : Reparametrised
    clip : float or None
        See :class:`bnnzoo.inference.optimise.optimisers.Adam`.
    frame : Frame, optional
        That of each restart ``[C, ...]``, in which parameters are given.
    """

    family: Reparametrised
    clip: float | None
    frame: Frame | None

    def split(self) -> Sequence[Members[BoundSettings]]:
        """Return the restarts that are independent of each other one by one; those that stop together stay together."""
        if self.method.tolerance is not None:
            return [self]
        parts = [replace(self, start=self.start[m : m + 1], members=range(m, m + 1)) for m in self.members]
        if self.frame is None:
            return parts
        return [replace(part, frame=Frame(*(x[m : m + 1] for x in self.frame))) for m, part in enumerate(parts)]


@dataclass(frozen=True)
class Found:
    """Averaged parameters ``[C, Q]`` and the bound at every step ``trace[C, num_steps]``."""

    params: Tensor
    trace: Tensor
    complete: bool


def fit_gaussian(
    method: VISettings, family: GaussianFamily, density: LogDensity, context: FitContext
) -> Gaussian | Mixture:
    """Maximise the evidence lower bound over a family of Gaussians.

    Raises
    ------
    ValueError
        If settings contradict each other.
    """
    params, info = fit_family(method, family, density, context)
    components = tuple(Gaussian(density, info, *family.gaussian(row)) for row in params)
    return components[0] if len(components) == 1 else Mixture(density, info, components)


def fit_family(
    method: BoundSettings,
    family: Reparametrised,
    density: LogDensity,
    context: FitContext,
    start: Tensor | None = None,
    frame: Frame | None = None,
    clip: float | None = None,
) -> tuple[Tensor, FitInfo]:
    """Return the parameters ``[C, Q]`` of the restarts that are kept, and how they came about.

    Parameters
    ----------
    method : BoundSettings
        All settings, and how the bound is estimated.
    family : Reparametrised
    density, context
        As in ``Method.run``.
    start : Tensor [C, Q], optional
        Parameters to start from; default: those of the family near the posterior, or at the method's starting points.
    frame : Frame, optional
        That in which ``start`` is given, for each restart.
    clip : float, optional
        See :class:`bnnzoo.inference.optimise.optimisers.Adam`.

    Raises
    ------
    ModelError
        If the bound could not be computed at any step of a restart.
    ValueError
        If settings contradict each other.
    """
    modes: Mapping[str, Any] = {}
    if start is None:
        start, frame, modes = _start(method, family, density, context)
    restarts = Restarts(
        replace(method, init=None), start, range(method.num_restarts), context.seed, family, clip, frame
    )
    params, trace, complete, settled = _maximised(restarts, density, context)
    num_rejected = int(trace.isnan().sum())
    # the indices of the restarts to keep: all, or the one whose bound was highest over the last window
    last = trace[:, -method.window :].nanmean(1).nan_to_num(-torch.inf)
    kept = last.argmax()[None] if method.keep == "best" else torch.arange(len(last))
    # a draw [C, P] of each restart from noise that is zero: somewhere in the middle
    noise = params.new_zeros(family.noise_size(density.num_params))
    rejected_at = why_rejected(density, torch.stack([family.draw(row, noise) for row in params]), num_rejected)
    stuck = trace.isnan().all(1)
    if trace.shape[1] and bool(stuck.any()):
        raise ModelError(
            f"The bound could not be computed at any of the {trace.shape[1]} steps of restart {int(stuck.nonzero()[0])}"
            f"{': ' + rejected_at if rejected_at else ''}. Lower init_scale, or start where the model can be evaluated, with "
            f"init=..."
        )
    info = FitInfo(
        sampling="iid",
        num_gradients=trace.shape[1] * method.num_restarts * method.num_particles,
        complete=complete,
        num_rejected=num_rejected,
        rejected_at=rejected_at,
        config={**modes, **({} if settled is None else {"num_steps": trace.shape[1], "converged": settled})},
        fit_stats={"elbo": trace[kept]},
    )
    return params[kept], info


def _start(
    method: BoundSettings, family: Reparametrised, density: LogDensity, context: FitContext
) -> tuple[Tensor, Frame | None, Mapping[str, Any]]:
    """Return parameters to start from, the frame in which they are given, and what the record says of several modes."""
    theta = starting_points(method.init, method.num_restarts, density, context, trains=True)
    own_scale = isinstance(method, VISettings) and method.init_scale is not None
    ways = None
    if isinstance(family, Framed) and not own_scale and method.batch_size is None:
        ways = ways_up(density, theta)
    if ways is None:
        return torch.stack([family.start(loc, method.start_scale) for loc in theta]), None, {}
    frames: Sequence[Frame] = [way.frame for way in ways]
    modes: Mapping[str, Any] = {}
    if method.init is None:
        peaks = peaks_beside(density, ways, context.seed)
        frames, modes = peaks.starts(ways), peaks.said
    return torch.stack([family.start(torch.zeros_like(loc), 1.0) for loc in theta]), stacked(frames), modes


def _maximised(
    restarts: Restarts, density: LogDensity, context: FitContext
) -> tuple[Tensor, Tensor, bool, bool | None]:
    """Return parameters ``[C, Q]`` without a frame, the bound at every step, and whether all steps were taken and it settled.

    Without a number of steps, searches follow each other, each twice as long as the one before and in the units of what that
    found, until one of them no longer raises the bound.
    """
    method, family, frame = restarts.method, restarts.family, restarts.frame
    framed = family if isinstance(family, FramedGaussian) and frame is not None else None
    if method.num_steps is not None or method.tolerance is not None or method.entropy_weight != 1.0:
        framed = None
    traces: list[Tensor] = []
    settled: bool | None = None
    params = _out_of_frame(family, restarts.start, frame)
    bound = None if framed is None else mean_bound(density, framed, params)
    for number, steps in enumerate((method.steps,) if framed is None else SEARCHES):
        annealing = 0.0 if number else method.kl_annealing
        search = replace(restarts, method=replace(method, num_steps=steps, kl_annealing=annealing), frame=frame)
        if number:
            assert framed is not None
            before = zip(params, _rows(frame), strict=True)
            frame = stacked([frame_of(*framed.gaussian(row), each) for row, each in before])
            origin = torch.stack([family.start(torch.zeros_like(frame.loc[0]), 1.0)] * len(params))
            search = replace(search, frame=frame, start=origin)
        found = joined(trained_in_parts(search, _maximised_together, density, context, "restarts"))
        traces.append(found.trace)
        params = _out_of_frame(family, found.params, frame)
        if not found.complete:
            return params, torch.cat(traces, 1), False, settled
        if framed is not None and bound is not None:
            now = mean_bound(density, framed, params)
            settled, bound = has_settled(bound, now), now
            if settled:
                break
    return params, torch.cat(traces, 1), True, settled


def _out_of_frame(family: Reparametrised, params: Tensor, frame: Frame | None) -> Tensor:
    if frame is None or not isinstance(family, Framed):
        return params
    return torch.stack([family.at(row, each) for row, each in zip(params, _rows(frame), strict=True)])


def _rows(frame: Frame | None) -> list[Frame]:
    assert frame is not None
    return [Frame(*parts) for parts in zip(*frame, strict=True)]


def _maximised_together(restarts: Restarts, density: LogDensity, context: FitContext) -> Found:
    method, family = restarts.method, restarts.family
    bound, weights = method.bound(density, family), method.kl_weights(density.num_data)
    shape = (method.num_restarts, method.num_particles, family.noise_size(density.num_params))
    average = IterateAverage(method.window, method.steps)
    stops = None if method.tolerance is None else PlateauStopping(method.tolerance, method.window, method.steps)
    of_all_searches = replace(method, num_steps=method.default_steps, kl_annealing=0.0)
    found = train(
        _objective(bound, family, method.entropy_weight, method.num_particles, (of_all_searches, family)),
        Adam(method.learning_rate, clip=restarts.clip),
        schedule_named(method.schedule),
        batches_of(method.batch_size),
        restarts.start,
        num_steps=method.steps,
        density=density,
        context=context,
        members=restarts.members,
        scalars=None if weights is None else weights[:, None],
        constants=() if restarts.frame is None else tuple(restarts.frame),
        noise=Noise(shape, restarts.start, context.seed, bound.num_extra, restarts.members),
        observe=all_of(average, stops),
        name="elbo",
    )
    return Found(average.mean, found.trace, found.complete)


def _objective(
    bound: Bound, family: Reparametrised, temperature: float, num_particles: int, key: Hashable
) -> MemberObjective:
    def value(params: Tensor, inputs: ObjectiveInputs, looped: bool = False) -> Tensor:
        (noise,) = inputs.noise
        if inputs.constants and isinstance(family, Framed):
            params = family.at(params, Frame(*inputs.constants))
        weight = inputs.scalars[0] if inputs.scalars else None
        data = inputs.batch.data
        return mean_over_particles(lambda row: bound(params, row, data, weight, temperature), noise, looped)

    return MemberObjective(value, lambda params, inputs: value(params, inputs, looped=True), num_particles, key)
