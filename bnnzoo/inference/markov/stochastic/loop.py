"""The loop over stochastic-gradient chains: batches in, draws out, whatever the dynamics.

All chains move in one batch of tensors, each with an order of the rows, a step size and scales of its own, so that a chain's
draws do not depend on which others run beside it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from bnnzoo.core.density import LogDensity
from bnnzoo.engine.lowered import LoopStep
from bnnzoo.inference.markov.chains import ChainLoop
from bnnzoo.inference.markov.settings import even_groups
from bnnzoo.inference.markov.stochastic.curvature import NUM_PROBES, measured, probed_curvature
from bnnzoo.inference.markov.stochastic.dynamics import Measured, Step, StochasticDynamics
from bnnzoo.inference.markov.stochastic.gradients import Anchor, GradientMoments, Stochastic, no_moments, observed
from bnnzoo.inference.markov.stochastic.settings import Plan, StochasticSettings, divergence
from bnnzoo.inference.markov.stochastic.state import StochasticState, first_state
from bnnzoo.inference.markov.stochastic.target import Target
from bnnzoo.inference.optimise.batches import Batch

__all__ = ["StochasticLoop", "StochasticSampler", "batched_step"]

STEPS_OF_NOISE = 16
LOST_FOR_GOOD = 3
"""Draws in a row at whose end a chain is taken back, after which its steps are too long also outside warm-up."""


def batched_step(dynamics: StochasticDynamics, gradient_of: Stochastic) -> Callable[..., Any]:
    """Return one step of all chains; ``numbers[2]`` are the factor of the step size, and whether there is noise."""

    def step(
        theta: Tensor,
        carried: tuple[Tensor, ...],
        moments: GradientMoments,
        numbers: Tensor,
        step_size: Tensor,
        scale: Tensor,
        gradient_noise: Tensor,
        noise: Tensor,
        anchor: Anchor,
        batch: Batch,
    ) -> Any:
        value, gradient = gradient_of(theta, anchor, batch)
        factor, noisy = numbers.unbind()
        size = (factor * step_size)[:, None]
        move, carried = dynamics.move(gradient, carried, Step(size, scale, gradient_noise, noisy), noise)
        return theta + move, carried, observed(moments, gradient), value

    return step


class StochasticLoop(ChainLoop):
    """Chains that move along stochastic gradients.

    Parameters
    ----------
    dynamics : StochasticDynamics
    plan : Plan
    density, settings, theta, seed, first_chain
        As in :class:`bnnzoo.inference.markov.chains.ChainLoop`.
    """

    kind = "stochastic"
    stats_names = ("log_density_estimate", "n_steps", "diverging", "step_size")

    def __init__(
        self,
        dynamics: StochasticDynamics,
        plan: Plan,
        density: LogDensity,
        settings: StochasticSettings,
        theta: Tensor,
        seed: int,
        first_chain: int = 0,
    ) -> None:
        super().__init__(density, settings, theta, seed, first_chain, num_uniforms=1)
        self.dynamics, self.plan, self.settings, self.num_rows = dynamics, plan, settings, density.num_data
        chains = range(first_chain, first_chain + self.num_chains)
        self.target = Target(density, settings, seed, chains, independent=dynamics.counts_noise)
        self._table = torch.stack([plan.factors, plan.noise.to(plan.factors)], 1).to(theta)
        self._row_of_warmup = self._table.new_tensor([plan.factor_of_warmup, 1.0])
        self._offsets = list(accumulate(plan.steps_of_draws, initial=0))
        self.state = self._begun(theta)
        self.step = _compiled(self)

    @property
    def counts(self) -> Tensor:
        """Number of draws ``[C]`` of each chain, warm-up included."""
        return torch.full((self.num_chains,), self.state.iteration)

    @property
    def num_leaps(self) -> int:
        """Number of gradients of each chain."""
        return self.state.num_gradients

    @property
    def num_rejected(self) -> int:
        """Number of times a chain was taken back."""
        return self.state.num_rejected

    def advance(self) -> None:
        """Give every chain its next draw."""
        place, before = self.state.iteration - self._num_warmup, self.state  # a negative place is one of warm-up
        first, end = self._offsets[place : place + 2] if place >= 0 else (0, self.plan.steps_of_warmup)
        self._travel(self._table[first:end] if place >= 0 else self._row_of_warmup.expand(end, 2))
        lost = _taken_back(self, before, warm=place < 0)
        if place >= 0:
            self._keep(torch.arange(self.num_chains), self.state.evaluated[0], self.state.stats(end - first, lost))
        self.state = self.state._replace(iteration=self.state.iteration + 1)
        if place < 0:
            self._learn()

    @property
    def tuned(self) -> dict[str, Tensor]:
        """Step size ``[C]``, scales and variance of the gradients' noise ``[C, P]`` of each chain."""
        return {name: getattr(self.state, name) for name in ("step_size", "scale", "gradient_noise")}

    def adopt(self, tuning: Mapping[str, Tensor]) -> None:
        """Go on with the step sizes and units found before."""
        self.state = self.state._replace(**dict[str, Any](tuning))

    def progress_fields(self) -> dict[str, float]:
        """Return what a progress bar shows besides the number of draws."""
        return {"step size": float(self.state.step_size.mean())}

    def _begun(self, theta: Tensor) -> StochasticState:
        """Return the first state: scales from the Hessian, and a step size that goes with them."""
        anchor = self.target.anchor_at(theta) if self.settings.control_variates else ()
        signs = torch.stack([self.streams.normals(self.num_params).sign() for _ in range(NUM_PROBES)])
        hessian = probed_curvature(self.target.on_a_batch(anchor), theta, signs)
        noise = hessian * (0.0 if anchor else self.target.batches_of_data - 1)
        self.state = first_state(theta, anchor)
        value, _ = self.target.value_and_grad_on_a_batch(anchor)(theta)
        self.state = self.state.counted((2 + NUM_PROBES) + (self.target.batches_of_data / 2 if anchor else 0))
        found = self._tune(hessian + noise, noise)
        carried = self.dynamics.start(found, self.streams.normals(self.num_params))
        return self.state._replace(carried=carried, evaluated=(theta, *carried), value=value)

    def _tune(self, curvature: Tensor, noise: Tensor) -> Measured:
        """Set scales and step sizes by the mean squared gradients ``[C, P]`` and the variance of their noise."""
        start, gradient = self.streams.normals(self.num_params), self.target.on_a_batch(self.state.anchor)
        found = measured(gradient, self.state.theta, curvature, noise, start, scaled=self.dynamics.preconditioned)
        size = self.dynamics.step_size(found)
        size = size if self.settings.step_size is None else torch.full_like(size, self.settings.step_size)
        self.state = self.state.counted(1 + NUM_PROBES).tuned(found, size)
        return found

    def _learn(self) -> None:
        """Adopt what the gradients of a window of warm-up say, if one ends here."""
        if self.state.iteration in self._ends[1:]:
            self._tune(self.state.moments.mean_square, self.state.moments.noise)
        if self.state.iteration in self._ends:
            self.state = self.state._replace(moments=no_moments(self.state.theta))

    def _travel(self, numbers: Tensor) -> None:
        """Take the steps of a draw, one for each row of ``numbers[T, 2]``."""
        for place, row in enumerate(numbers.unbind()):
            if place % STEPS_OF_NOISE == 0:
                noise = _noise(self, min(STEPS_OF_NOISE, len(numbers) - place))
            self._renew_anchor()
            state, tensors = self.state, self.target.source.next().tensors
            units = (state.step_size, state.scale, state.gradient_noise)
            inputs = (row, *units, noise[place % STEPS_OF_NOISE], *state.anchor, *tensors)
            with torch.no_grad():
                found = self.step(state.theta, *state.carried, *state.moments, *inputs)
            theta, *carried, count, square, difference, previous, value = found
            moments = GradientMoments(count, square, difference, previous)
            here = (state.theta, *state.carried)
            state = state._replace(theta=theta, carried=tuple(carried), moments=moments, value=value, evaluated=here)
            self.state = state._replace(num_steps=state.num_steps + 1)
        self.state = self.state.counted(len(numbers))

    def _renew_anchor(self) -> None:
        """Put the anchors of SVRG where the chains are, if it is time."""
        state, target = self.state, self.target
        if self.settings.control_variates == "svrg" and state.num_steps and state.num_steps % target.svrg_period == 0:
            self.state = state.counted(target.batches_of_data / 2)._replace(anchor=target.anchor_at(state.theta))

    @property
    def _steps(self) -> tuple[LoopStep, ...]:
        return (self.step,)

    @property
    def _state(self) -> tuple[StochasticState, int]:
        return self.state, self.target.source.count

    def _resume(self, state: tuple[StochasticState, int]) -> None:
        self.state, count = state
        self.target.source.skip_to(count)


def _compiled(loop: StochasticLoop) -> LoopStep:
    state, batch = loop.state, loop.target.source.next().batch
    units = (state.step_size, state.scale, state.gradient_noise)
    args = (state.theta, state.carried, state.moments, loop._table[0], *units)
    lowered, looped = (batched_step(loop.dynamics, each) for each in loop.target.estimates)
    rest, sure = (_noise(loop, 1)[0], state.anchor, batch), loop._num_warmup + loop._offsets[-1]
    return LoopStep(lowered, *args, *rest, fallback=looped, at_least=sure)


def _taken_back(loop: StochasticLoop, before: StochasticState, *, warm: bool) -> Tensor:
    """Take chains back that are where the density is not finite, or have fallen far, and mark them ``[C]``.

    They repeat their draw and turn round, as chains do whose proposal is rejected. During warm-up their steps become shorter, and
    afterwards only those of chains that do not get away: the step size that suited the end of the warm-up may be unstable
    elsewhere.

    Raises
    ------
    FloatingPointError
        If that happens during warm-up and the step size is fixed.
    """
    state, settings = loop.state, loop.settings
    lost = state.lost_since(before, loop.num_rows, settings.temperature)
    in_a_row = torch.where(lost, state.in_a_row + 1, 0.0)
    if bool(lost.any()):
        fixed = settings.step_size is not None
        if warm and fixed:
            raise divergence(settings, lost, state.iteration, state.step_size)
        place, *carried = before.evaluated
        turned = before._replace(evaluated=(place, *loop.dynamics.reversed(tuple(carried))))
        stays = lost & (in_a_row % LOST_FOR_GOOD == 0) & (not fixed)
        state = state.taken_back(lost, turned, lost if warm else stays)
    loop.state = state._replace(in_a_row=in_a_row)
    return lost


def _noise(loop: StochasticLoop, num_steps: int) -> Tensor:
    """Return standard normal numbers ``[T, C, P]`` for some steps."""
    flat = loop.streams.normals(num_steps * loop.num_params)
    return flat.view(loop.num_chains, num_steps, loop.num_params).transpose(0, 1).contiguous()


@dataclass(frozen=True)
class StochasticSampler:
    """What starts a :class:`StochasticLoop`; see :class:`bnnzoo.inference.markov.protocols.Sampler`."""

    dynamics: StochasticDynamics
    plan: Plan
    settings: StochasticSettings
    loop: type[StochasticLoop] = StochasticLoop

    def groups(self, num_chains: int, spread: bool) -> list[range]:
        """Return one chain a task where an executor runs them side by side, else all chains in one batch."""
        return even_groups(num_chains, self.settings.num_groups or (num_chains if spread else 1))

    def begin(
        self, density: LogDensity, theta: Tensor, seed: int, first_chain: int, kind: str | None = None
    ) -> StochasticLoop:
        """Start chains at ``theta[C, P]``; there is one kind of loop."""
        return self.loop(self.dynamics, self.plan, density, self.settings, theta, seed, first_chain)
