"""The path of densities from a prior to its posterior: its gradients, and exact draws at the prior's end."""

import warnings
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.func import vjp, vmap

from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.model.prior_terms import not_drawn_from_prior, prior_and_rest
from bnnzoo.core.model.replay import default_dtype
from bnnzoo.core.program.batched_noise import batchable_draws, refuse_unsafe_warnings
from bnnzoo.core.program.numerics import NumericalFailure
from bnnzoo.core.program.sites import ModelError
from bnnzoo.core.program.surroundings import isolated
from bnnzoo.engine.failures import is_numerical
from bnnzoo.engine.program import GradientFunction, Stage
from bnnzoo.inference.markov.hamiltonian.hamiltonian_program import HamiltonianProgram, MovingEnd

__all__ = ["PriorPoints", "TemperedProgram", "path_gradient", "prior_points", "refuse_improper"]


class TemperedProgram(HamiltonianProgram):
    r"""A Hamiltonian chain at an inverse temperature.

    Its target is :math:`\log p_\beta(\theta) = \log p(\theta) + \beta \log p(y \mid \theta)`. What stands for the gradient are
    those of both terms, and the log likelihood, ``[2P + 1]``: a state that moves to another temperature has its log density and
    gradient there without another evaluation. A chain that has its draw stays where it is until all of its ladder have theirs:
    in a batch it takes part in steps that change nothing that counts.
    """

    @property
    def key(self) -> Any:
        """What stands for the program."""
        return "tempered", *super().key

    def value(self, tempering: Any, value: Tensor, gradient: Tensor) -> Tensor:
        """Return the log density ``[]`` at the chain's temperature."""
        found: Tensor = value + tempering * gradient[-1]
        return found

    def force(self, tempering: Any, gradient: Tensor) -> Tensor:
        """Return its gradient ``[P]``."""
        size = len(gradient) // 2
        found: Tensor = gradient[:size] + tempering * gradient[size : 2 * size]
        return found

    @property
    def begin(self) -> Stage:
        """Start the next trajectory at the last draw."""
        return self._while_going(super().begin)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """Propose, and keep the draw."""
        return tuple(self._while_going(stage) for stage in super().stages)

    def step(
        self, moving: MovingEnd, held: Any, ahead: tuple[Tensor, ...], value: Tensor, gradient: Tensor
    ) -> MovingEnd:
        """Complete the leapfrog step; a trajectory that has stopped stays so."""
        found, has_stopped = super().step(moving, held, ahead, value, gradient), moving.end.stop
        end = found.end._replace(stop=found.end.stop | has_stopped)
        return MovingEnd(end, moving.num_leapfrog + ~has_stopped)

    def _while_going(self, stage: Stage) -> Stage:
        def applies(moving: Any, resting: Any) -> Tensor:
            return stage.applies(moving, resting) & self.going(moving, resting)

        return stage._replace(applies=applies)


def path_gradient(density: LogDensity) -> GradientFunction:
    """Return ``(theta[P], *data) -> (log prior [], [2P + 1])``: gradients of log prior and likelihood, and the latter itself."""

    def single(theta: Tensor, *data: Any) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            leaf = theta.detach().requires_grad_()
            terms = prior_and_rest(density, leaf, *data)
            slopes = [_slope(each, leaf) for each in terms]
        prior, rest = (each.detach() for each in terms)
        return prior, torch.cat([*slopes, rest[None]])

    def one(theta: Tensor, *data: Any) -> tuple[Tensor, Tensor]:
        terms: Any = vjp(lambda leaf: prior_and_rest(density, leaf, *data), theta)
        (prior, rest), pull = terms
        one, zero = torch.ones_like(prior), torch.zeros_like(prior)
        return prior, torch.cat([*pull((one, zero)), *pull((zero, one)), rest[None]])

    def batched(theta: Tensor, *data: Any) -> tuple[Tensor, Tensor]:
        found: tuple[Tensor, Tensor] = vmap(one, in_dims=(0, *(None for _ in data)))(theta, *data)
        return found

    def looped(theta: Tensor, *data: Any) -> tuple[Tensor, Tensor]:
        values, gradients = [], []
        for row in theta:
            try:
                value, gradient = single(row, *data)
            except Exception as error:
                if not is_numerical(error):
                    raise
                value, gradient = row.new_tensor(-torch.inf), row.new_full((2 * len(row) + 1,), torch.nan)
            values.append(value)
            gradients.append(gradient)
        return torch.stack(values), torch.stack(gradients)

    def shared(key: Hashable, make: Callable[[], Any]) -> Any:
        return density.shared(("tempered", key), make)

    return GradientFunction(single, batched, looped, density.data, shared)


def _slope(term: Tensor, leaf: Tensor) -> Tensor:
    if not term.requires_grad:  # a model without data
        return torch.zeros_like(leaf)
    (found,) = torch.autograd.grad(term, leaf, retain_graph=True, materialize_grads=True)
    return found


class PriorPoints(NamedTuple):
    """Draws ``theta[N, P]`` of the prior, the log prior ``[N]`` there, and what :func:`path_gradient` has for a gradient."""

    theta: Tensor
    value: Tensor
    gradient: Tensor


def prior_points(density: LogDensity, path: GradientFunction, seeds: list[int], num: int) -> PriorPoints:
    """Return ``num`` independent draws of the prior for each seed; where the model fails the log likelihood is minus infinity."""
    with default_dtype(density.dtype):
        theta = torch.cat([_drawn(density, seed, num) for seed in seeds])
    with torch.no_grad():
        try:
            value, gradient = path.batched(theta, *path.data)
        except (RuntimeError, NumericalFailure):  # operations unknown to vmap, or a point at which the model fails
            value, gradient = path.looped(theta, *path.data)
    failed = ~(value.isfinite() & gradient.isfinite().all(1) & theta.isfinite().all(1))
    gradient = gradient.clone()
    gradient[failed, -1] = -torch.inf
    return PriorPoints(theta, value, gradient)


def _drawn(density: LogDensity, seed: int, num: int) -> Tensor:
    """Return draws ``[num, P]`` of the prior, which depend on nothing but the seed."""

    def one(_: Tensor) -> Tensor:
        return density.prior_draw({}, *density.data)

    places = torch.empty(num, 0, dtype=density.dtype, device=density.device)
    try:
        with isolated(seed, density.device), warnings.catch_warnings(), batchable_draws():
            refuse_unsafe_warnings()
            found: Tensor = vmap(one, randomness="different")(places)
            return found
    except (RuntimeError, UserWarning, NumericalFailure):  # some distributions draw by operations unknown to vmap
        with isolated(seed, density.device):
            return torch.stack([_or_nan(one, place, density.num_params) for place in places])


def _or_nan(draw: Callable[[Tensor], Tensor], place: Tensor, num_params: int) -> Tensor:
    try:
        return draw(place)
    except NumericalFailure:
        return place.new_full((num_params,), torch.nan)


def refuse_improper(density: LogDensity) -> None:
    """Refuse a prior from which the model cannot be drawn.

    Raises
    ------
    ModelError
        Naming the site.
    """
    for site, why in not_drawn_from_prior(density).items():
        if why == "improper":
            raise ModelError(
                f"Tempered moves between prior and posterior, and the prior of site {site!r} is improper. Write a proper one, "
                f"such as dist.Normal(0.0, 10.0), or use NUTS()."
            )
        raise ModelError(
            f"Tempered moves between prior and posterior, and the prior of site {site!r} is {why}: it is not the density from "
            f"which the model draws. Leave mask and scale out, or use NUTS()."
        )
