"""Tuning of stochastic-gradient chains in warm-up, by gradients besides those of their steps: scales and step sizes."""

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from bnnzoo.inference.markov.adaptation import window_ends
from bnnzoo.inference.markov.stochastic.curvature_scales import NUM_PROBES, measured, probed_curvature
from bnnzoo.inference.markov.stochastic.gradients import Anchor, no_moments
from bnnzoo.inference.markov.stochastic.minibatch_target import MinibatchTarget
from bnnzoo.inference.markov.stochastic.stochastic_dynamics import Measured, StochasticDynamics
from bnnzoo.inference.markov.stochastic.stochastic_program import Left, StochasticResting, StochasticState, Units
from bnnzoo.inference.markov.stochastic.stochastic_settings import StochasticSettings

__all__ = ["Tuning", "adopted"]

FIRST_STEP_SIZE = 1e-6
"""Of a chain that starts where the Hessian cannot be estimated: it hardly moves until a window of gradients has been seen."""


class Tuning:
    """Scales and step sizes of chains, from the Hessian at the start and from the gradients of windows of warm-up.

    Parameters
    ----------
    dynamics : StochasticDynamics
    settings : StochasticSettings
    target : MinibatchTarget

    Attributes
    ----------
    memory : tuple of Tensor [C]
        What a kind of tuning remembers besides.
    num_gradients : int
        Gradients of each chain that were computed here; one on all rows counts as many as it has batches.
    """

    memory: tuple[Tensor, ...] = ()
    num_gradients = 0

    def __init__(self, dynamics: StochasticDynamics, settings: StochasticSettings, target: MinibatchTarget) -> None:
        self.dynamics, self.settings, self.target = dynamics, settings, target
        self.ends = window_ends(settings.num_warmup)

    @property
    def pauses(self) -> Iterable[int]:
        """Numbers of draws after which there is something to learn."""
        return self.ends

    def next_pause(self, draws: int) -> int:
        """Return the number of draws after which chains with so many wait: for something to learn, or for the end."""
        total = self.settings.num_warmup + self.settings.num_draws
        return min(number for number in (*self.pauses, total) if number > draws)

    def count(self, num_gradients: float) -> None:
        """Add to the number of gradients of each chain besides those of steps."""
        self.num_gradients += math.ceil(num_gradients)

    def first(self, theta: Tensor) -> tuple[Left, Units, Anchor]:
        """Return what is known of chains at ``theta[C, P]``, scales from the Hessian, and step sizes that go with them."""
        anchor = self.target.anchor_at(theta) if self.settings.control_variates else ()
        signs = torch.stack([self.target.normals(theta).sign() for _ in range(NUM_PROBES)])
        hessian = probed_curvature(self.target.on_a_batch(anchor), theta, signs)
        noise = hessian * (0.0 if anchor else self.target.batches_of_data - 1)
        value, _ = self.target.value_and_grad_on_a_batch(anchor)(theta)
        self.count((2 + NUM_PROBES) + (self.target.batches_of_data / 2 if anchor else 0))
        units = Units(torch.full_like(value, FIRST_STEP_SIZE), torch.ones_like(theta), torch.zeros_like(theta))
        found, units = self.retuned(theta, anchor, units, hessian + noise, noise)
        carried = self.dynamics.start(found, self.target.normals(theta))
        return Left((theta, *carried), no_moments(theta), value), units, anchor

    def learnt(
        self, moving: StochasticState, resting: StochasticResting, draws: int
    ) -> tuple[StochasticState, StochasticResting]:
        """Adopt what the gradients of a window of warm-up say, if one ends here."""
        if draws in self.ends[1:]:
            moments = moving.moments
            place = moving.theta, resting.anchor, resting.units
            _, units = self.retuned(*place, moments.mean_square, moments.noise)
            resting = resting._replace(units=units)
        if draws in self.ends:
            none = no_moments(moving.theta)
            moving, resting = moving._replace(moments=none), resting._replace(left=resting.left._replace(moments=none))
        return moving, resting

    def retuned(
        self, theta: Tensor, anchor: Anchor, units: Units, curvature: Tensor, noise: Tensor
    ) -> tuple[Measured, Units]:
        """Return scales and step sizes by the mean squared gradients ``[C, P]`` and the variance of their noise.

        A chain with gradients that overflowed keeps its own.
        """
        start, gradient = self.target.normals(theta), self.target.on_a_batch(anchor)
        self.count(1 + NUM_PROBES)
        found = measured(gradient, theta, curvature, noise, start, scaled=self.dynamics.preconditioned)
        size = self.dynamics.step_size(found)
        size = size if self.settings.step_size is None else torch.full_like(size, self.settings.step_size)
        return found, adopted(units, found, size)


def adopted(units: Units, found: Measured, size: Tensor) -> Units:
    """Return new units and step sizes ``[C]``; a chain with gradients that overflowed keeps its own."""
    usable = found.curvature.isfinite().all(1) & found.noise.isfinite().all(1) & size.isfinite()
    row = usable[:, None]
    return Units(
        step_size=torch.where(usable, size, units.step_size),
        scale=torch.where(row, found.scale, units.scale),
        gradient_noise=torch.where(row, found.noise, units.gradient_noise),
    )
