"""Maximising the evidence lower bound over a family, from one or several starts."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bnnzoo.core.density import LogDensity
from bnnzoo.core.method import FitContext
from bnnzoo.core.posterior import FitInfo, Gaussian, Mixture
from bnnzoo.core.rejections import why_rejected
from bnnzoo.core.sites import ModelError
from bnnzoo.inference.optimise.batches import batches_of
from bnnzoo.inference.optimise.members import Members, joined, trained_in_parts
from bnnzoo.inference.optimise.objectives import Inputs, MemberObjective
from bnnzoo.inference.optimise.observers import IterateAverage, PlateauStopping, all_of
from bnnzoo.inference.optimise.optimisers import Adam
from bnnzoo.inference.optimise.schedules import schedule_named
from bnnzoo.inference.optimise.train import train
from bnnzoo.inference.starts import starting_points
from bnnzoo.inference.variational.elbo import Bound, GaussianFamily, Reparametrised, mean_over_particles
from bnnzoo.inference.variational.noise import Noise
from bnnzoo.inference.variational.settings import BoundSettings, VISettings

__all__ = ["GaussianVI", "fit_family", "fit_gaussian"]


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
    """

    family: Reparametrised
    clip: float | None

    def split(self) -> Sequence[Members[BoundSettings]]:
        """Return the restarts that are independent of each other one by one; those that stop together stay together."""
        return [self] if self.method.tolerance is not None else super().split()


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
        Parameters to start from; default: those of the family at the method's starting points.
    clip : float, optional
        See :class:`bnnzoo.inference.optimise.optimisers.Adam`.

    Raises
    ------
    ModelError
        If the bound could not be computed at any step of a restart.
    ValueError
        If settings contradict each other.
    """
    if start is None:
        theta = starting_points(method.init, method.num_restarts, density, context, trains=True)
        start = torch.stack([family.start(loc, method.start_scale) for loc in theta])
    members = range(method.num_restarts)
    restarts = Restarts(replace(method, init=None), start, members, context.seed, family, clip)
    found = joined(trained_in_parts(restarts, _maximised_together, density, context, "restarts"))
    num_rejected = int(found.trace.isnan().sum())
    kept = _kept(found.trace, method)
    rejected_at = why_rejected(density, _draws_of(family, found.params, density), num_rejected)
    _refuse_stuck(found.trace, rejected_at)
    info = FitInfo(
        sampling="iid",
        num_gradients=found.trace.shape[1] * method.num_restarts * method.num_particles,
        complete=found.complete,
        num_rejected=num_rejected,
        rejected_at=rejected_at,
        fit_stats={"elbo": found.trace[kept]},
    )
    return found.params[kept], info


def _maximised_together(restarts: Restarts, density: LogDensity, context: FitContext) -> Found:
    method, family = restarts.method, restarts.family
    bound, weights = method.bound(density, family), method.kl_weights(density.num_data)
    shape = (method.num_restarts, method.num_particles, family.noise_size(density.num_params))
    average = IterateAverage(method.window, method.num_steps)
    found = train(
        _objective(bound, method.entropy_weight, method.num_particles),
        Adam(method.learning_rate, clip=restarts.clip),
        schedule_named(method.schedule),
        batches_of(method.batch_size),
        restarts.start,
        num_steps=method.num_steps,
        density=density,
        context=context,
        members=restarts.members,
        scalars=None if weights is None else weights[:, None],
        noise=Noise(shape, restarts.start, context.seed, bound.num_extra, restarts.members),
        observe=all_of(average, _stopping(method)),
        name="elbo",
    )
    return Found(average.mean, found.trace, found.complete)


def _stopping(method: BoundSettings) -> PlateauStopping | None:
    if method.tolerance is None:
        return None
    return PlateauStopping(method.tolerance, method.window, method.num_steps)


def _objective(bound: Bound, temperature: float, num_particles: int) -> MemberObjective:
    def value(params: Tensor, inputs: Inputs, looped: bool = False) -> Tensor:
        (noise,) = inputs.noise
        weight = inputs.scalars[0] if inputs.scalars else None
        data = inputs.batch.data
        return mean_over_particles(lambda row: bound(params, row, data, weight, temperature), noise, looped)

    return MemberObjective(value, lambda params, inputs: value(params, inputs, looped=True), num_particles)


def _refuse_stuck(trace: Tensor, rejected_at: str) -> None:
    """Refuse restarts all of whose steps were refused, ``trace[C, num_steps]``: they are where they started."""
    stuck = trace.isnan().all(1)
    if trace.shape[1] and bool(stuck.any()):
        raise ModelError(
            f"The bound could not be computed at any of the {trace.shape[1]} steps of restart {int(stuck.nonzero()[0])}"
            f"{': ' + rejected_at if rejected_at else ''}. Lower init_scale, or start where the model can be evaluated, with "
            f"init=..."
        )


def _draws_of(family: Reparametrised, params: Tensor, density: LogDensity) -> Tensor:
    """Return a draw ``[C, P]`` of each restart from noise that is zero: somewhere in the middle."""
    noise = params.new_zeros(family.noise_size(density.num_params))
    return torch.stack([family.draw(row, noise) for row in params])


def _kept(trace: Tensor, method: BoundSettings) -> Tensor:
    """Return the indices of the restarts to keep: all, or the one whose bound was highest over the last window."""
    last = trace[:, -method.window :].nanmean(1).nan_to_num(-torch.inf)
    return last.argmax()[None] if method.keep == "best" else torch.arange(len(last))
