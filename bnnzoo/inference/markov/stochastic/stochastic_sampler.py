"""Chains of stochastic-gradient methods: their start, scales and step sizes tuned in windows, anchors, and their draws."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.func import vmap

from bnnzoo.core.method import FitContext
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.posterior.posterior import Draws
from bnnzoo.engine.choose import MAX_NATIVE_FLOPS, Engine
from bnnzoo.engine.fits import over_all_fits
from bnnzoo.engine.fleet import BatchedCopies as Fleet
from bnnzoo.engine.lowered import tensors_of
from bnnzoo.engine.runner import runner
from bnnzoo.inference.markov.chain_settings import even_groups, without_init
from bnnzoo.inference.markov.noise import keys_of_chains
from bnnzoo.inference.markov.running import RunningChains
from bnnzoo.inference.markov.sampling import sample_chains
from bnnzoo.inference.markov.stochastic.minibatch_starts import optimised_starts
from bnnzoo.inference.markov.stochastic.minibatch_target import MinibatchTarget
from bnnzoo.inference.markov.stochastic.stochastic_dynamics import StochasticDynamics
from bnnzoo.inference.markov.stochastic.stochastic_program import (
    NUM_STREAMS,
    STATS,
    Course,
    StochasticChunk,
    StochasticCounters,
    StochasticProgram,
    StochasticResting,
    StochasticSchedule,
    StochasticState,
    Units,
    course_of,
)
from bnnzoo.inference.markov.stochastic.stochastic_settings import (
    StepPlan,
    StochasticSettings,
    divergence,
    refuse_inconsistent,
)
from bnnzoo.inference.markov.stochastic.tuning import Tuning

__all__ = ["StochasticChains", "StochasticSampler", "sample_stochastic"]

DEEPEST_FALL, DEEPEST_FALL_OF_A_ROW = 1000.0, 10.0
"""By how many nats the log density may fall from draw to draw, in all and for each observation, besides one for each parameter.

Steps that have become too long take a chain to where its predictions are absurd long before they overflow. A mode is higher than
what is typical by half a nat for each parameter.
"""

LONGEST_CHUNK = 16
"""Steps whose random numbers are computed together."""


class StochasticChains(RunningChains):
    """Chains that move along stochastic gradients; a :class:`bnnzoo.inference.markov.protocols.Loop`.

    A chain's draws do not depend on which others run beside it, nor on the engine but for rounding.

    Parameters
    ----------
    dynamics : StochasticDynamics
    plan : StepPlan
    density : LogDensity
    settings : StochasticSettings
    theta : Tensor
        Starting points ``[C, P]`` at which the density is finite.
    seed : int
    first_chain : int
        Number of the first chain among all chains of the fit: its random numbers depend on it and the seed alone.
    engine : {"auto", "native", "graph", "python"}
    tuning : type of Tuning
        What the chains learn in warm-up.
    """

    stats_names = STATS

    def __init__(
        self,
        dynamics: StochasticDynamics,
        plan: StepPlan,
        density: LogDensity,
        settings: StochasticSettings,
        theta: Tensor,
        seed: int,
        first_chain: int = 0,
        engine: Engine = "auto",
        tuning: type[Tuning] = Tuning,
    ) -> None:
        chains = range(first_chain, first_chain + len(theta))
        super().__init__(settings, theta, keys_of_chains(seed, chains, NUM_STREAMS))
        self.settings, num_params = settings, theta.shape[1]
        self.target = MinibatchTarget(density, settings, self.keys, independent=dynamics.counts_noise)
        self.tuning = tuning(dynamics, settings, self.target)
        deepest = DEEPEST_FALL + DEEPEST_FALL_OF_A_ROW * density.num_data + max(1.0, settings.temperature) * num_params
        order = None if self.target.streams else self.target.order
        fixed, num_steps = settings.step_size is not None, plan.num_steps(settings.num_warmup)
        chunk = (
            1
            if self.target.streams
            else math.ceil(plan.steps_of_warmup / math.ceil(plan.steps_of_warmup / LONGEST_CHUNK))
        )
        program = StochasticProgram(dynamics, order, chunk, deepest, fixed)
        on_cpu, few = theta.device.type == "cpu", settings.num_chains <= settings.max_native_chains
        self.fleet = runner(
            program,
            self.target.gradient_function(),
            *self._begun(program, plan, theta, self.keys),
            self.row,
            engine="graph" if self.target.streams and engine != "python" else engine,
            native_pays=on_cpu and few and over_all_fits(num_steps) >= settings.native_pays_from,
            max_flops=MAX_NATIVE_FLOPS,
            num_steps=num_steps,
            num_cycles=num_steps // program.chunk,
            log=self.log,
        )

    @property
    def num_gradients(self) -> int:
        """Number of gradients that all chains have evaluated together; one on all rows counts as many as it has batches."""
        at_once = 2 if self.settings.control_variates else 1
        return at_once * (int(self.fleet.moving.num_steps.sum()) + self.num_chains * self.tuning.num_gradients)

    @property
    def num_rejected(self) -> int:
        """Number of times a chain was reset."""
        return int(self.fleet.resting.counters.resets.sum())

    @property
    def tuned(self) -> dict[str, Tensor]:
        """Step size ``[C]``, scales and variance of the gradients' noise ``[C, P]`` of each chain."""
        return {name: value.clone() for name, value in self.fleet.resting.units._asdict().items()}

    def adopt(self, tuning: Mapping[str, Tensor]) -> None:
        """Go on with the step sizes and units found before."""
        self.fleet.write(resting=self.fleet.resting._replace(units=Units(**tuning)))

    def progress_fields(self) -> dict[str, float]:
        """Return the mean step size."""
        return {"step size": float(self.fleet.resting.units.step_size.mean())}

    def _resume(self, found: Mapping[str, Any]) -> None:
        self.fleet.write(found["moving"], found["resting"]._replace(course=self.fleet.resting.course))
        self.tuning.memory = found["memory"]
        self.tuning.num_gradients, self.target.num_probes, self.target.num_probing = found["numbers"]
        self._feed(int(self.fleet.moving.num_steps[0]))

    def _resumable(self) -> dict[str, Any]:
        return super()._resumable() | {
            "resting": self.fleet.resting._replace(course=()),  # which follows from the settings
            "memory": self.tuning.memory,
            "numbers": (self.tuning.num_gradients, self.target.num_probes, self.target.num_probing),
        }

    def _begun(
        self, program: StochasticProgram, plan: StepPlan, theta: Tensor, keys: Tensor
    ) -> tuple[StochasticState, StochasticResting]:
        """Return the state of chains before their first step."""
        left, units, anchor = self.tuning.first(theta)
        course, zeros = course_of(plan, self.settings.num_warmup, theta), torch.zeros_like(keys[:, 0])
        size, num_params = (self.num_chains, program.chunk), theta.shape[1]
        rows = () if program.order is None else (zeros.new_zeros(*size, program.order.size),)
        resting = StochasticResting(
            chunk=StochasticChunk(zeros, theta.new_zeros(*size, 2), theta.new_zeros(*size, num_params), rows),
            units=units,
            anchor=anchor,
            left=left,
            counters=StochasticCounters(zeros, zeros, vmap(Course.steps_of)(course, zeros), zeros, zeros),
            schedule=StochasticSchedule(zeros + self.tuning.next_pause(0), zeros + self.target.next_renewal(0)),
            course=course,
            waits=zeros > 0,
            failed=zeros > 0,
            keys=keys,
        )
        theta, *carried = left.evaluated
        return StochasticState(theta, tuple(carried), left.moments, left.value, left.evaluated, zeros, zeros), resting

    def _attend(self) -> None:
        """Do what the chains wait for, if all of them do: learn from a window that ends, and renew anchors and rows."""
        moving, resting = self.fleet.moving, self.fleet.resting
        if bool(resting.failed.any()):  # a chain diverged in warm-up with a step size that is fixed
            iteration = int(resting.counters.draws[resting.failed][0]) - 1
            raise divergence(self.settings, resting.failed, iteration, resting.units.step_size)
        draws, steps = int(resting.counters.draws[0]), int(moving.num_steps[0])
        if draws == self._total or bool(self.fleet.program.going(moving, resting).any()):
            return
        schedule = resting.schedule
        if draws == int(schedule.until[0]):
            moving, resting = self.tuning.learnt(moving, resting, draws)
            schedule = schedule._replace(until=torch.full_like(schedule.until, self.tuning.next_pause(draws)))
        if steps == int(schedule.renew[0]):
            self._feed(steps)
            if self.target.renews_anchor and steps % self.target.svrg_period == 0:
                self.tuning.count(self.target.batches_of_data / 2)
                resting = resting._replace(anchor=self.target.anchor_at(moving.theta))
            schedule = schedule._replace(renew=torch.full_like(schedule.renew, self.target.next_renewal(steps)))
        waits = torch.zeros_like(resting.waits)
        self.fleet.write(moving, resting._replace(schedule=schedule, waits=waits))

    def _feed(self, steps: int) -> None:
        """Let the next step see its rows, if they are read from outside of memory."""
        if self.target.streams and steps:
            assert isinstance(self.fleet, Fleet)
            self.fleet.replace_data(tensors_of(self.target.batch(steps, 1).data))


@dataclass(frozen=True)
class StochasticSampler:
    """What starts chains of a stochastic-gradient method; see :class:`bnnzoo.inference.markov.protocols.Sampler`."""

    dynamics: StochasticDynamics
    plan: StepPlan
    settings: StochasticSettings
    engine: Engine = "auto"
    tuning: type[Tuning] = Tuning

    def groups(self, num_chains: int, spread: bool) -> list[range]:
        """Return one chain a task where an executor runs them side by side, else all chains in one batch."""
        return even_groups(num_chains, self.settings.num_groups or (num_chains if spread else 1))

    def begin(self, density: LogDensity, theta: Tensor, seed: int, first_chain: int) -> StochasticChains:
        """Start chains at ``theta[C, P]``."""
        how = self.settings, theta, seed, first_chain, self.engine, self.tuning
        return StochasticChains(self.dynamics, self.plan, density, *how)


def sample_stochastic(
    settings: StochasticSettings,
    dynamics: StochasticDynamics,
    plan: StepPlan,
    density: LogDensity,
    context: FitContext,
    tuning: type[Tuning] = Tuning,
) -> Draws:
    """Start chains at optimised members, run them along stochastic gradients, and return their draws ``[C, S, P]``.

    Raises
    ------
    ValueError
        If settings contradict each other or the data, or mini-batches are asked for of a model without rows.
    FloatingPointError
        If a chain leaves the region where the log density is finite.
    """
    refuse_inconsistent(settings, density)
    sampler = StochasticSampler(dynamics, plan, without_init(settings), context.engine, tuning)
    starts = partial(optimised_starts, settings, density, context)
    return sample_chains(settings, sampler, density, context, starts=starts)
