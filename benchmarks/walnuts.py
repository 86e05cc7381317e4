"""WALNUTS, whose leapfrog steps are refined within a trajectory, against NUTS: effective draws a gradient on hard geometry.

Both are written here in NumPy, with the same trees, metric and adaptation, and differ in one thing. A step of NUTS is a leapfrog
step. A macro step of WALNUTS takes the fewest leapfrog steps, of 1, 2, 4, ..., over which the energy varies by no more than
``max_error``; where the way back would take fewer, the trajectory ends. The step size of NUTS is tuned to a mean acceptance, that
of WALNUTS to the share of macro steps which are a single leapfrog step. All settings were fixed before any result was seen.

Run: python -m benchmarks.walnuts [draws] [seeds]      (one core, some ten minutes)

References
----------
Bou-Rabee, Carpenter, Kleppe and Liu (2026), The within-orbit adaptive leapfrog no-U-turn sampler, JMLR 27.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import arviz_stats
import numpy as np
from numpy.typing import NDArray

from benchmarks.pairs import write

TARGET = 0.8
"""Mean acceptance of NUTS, and share of single leapfrog steps of WALNUTS."""

MAX_ERRORS = (0.25, 1.0)
MAX_DEPTH, MAX_HALVINGS, MAX_ENERGY = 10, 8, 1000.0
CHAINS, WARMUP = 4, 1000

type Array = NDArray[np.float64]
type Gradient = Callable[[Array], tuple[float, Array]]
"""Log density and its gradient at a point ``[P]``."""


class Problem(NamedTuple):
    """A posterior: its gradient, dimension, and the coordinate in which its scale varies with known mean and sd, if any."""

    gradient: Gradient
    size: int
    coordinate: int
    mean: float | None = None
    sd: float | None = None


def funnel(size: int = 10) -> Problem:
    """Return Neal's funnel: v ~ N(0, 3²), nine coordinates N(0, exp(v))."""

    def gradient(theta: Array) -> tuple[float, Array]:
        v, x = theta[0], theta[1:]
        weight = np.exp(-v)
        square = weight * (x @ x)
        slope = np.concatenate([[-v / 9 - 0.5 * len(x) + 0.5 * square], -weight * x])
        return float(-(v**2) / 18 - 0.5 * len(x) * v - 0.5 * square), slope

    return Problem(gradient, size, 0, 0.0, 3.0)


def eight_schools() -> Problem:
    """Return the eight schools in their centred form: mu, log tau and eight effects."""
    y = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
    sd = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])

    def gradient(theta: Array) -> tuple[float, Array]:
        mu, log_tau, effects = theta[0], theta[1], theta[2:]
        tau = np.exp(log_tau)
        from_mean, from_data = (effects - mu) / tau, (y - effects) / sd
        cauchy = tau**2 / (25 + tau**2)
        value = -0.5 * (from_mean @ from_mean + from_data @ from_data) - 7 * log_tau - mu**2 / 50 - np.log(25 + tau**2)
        by_tau = from_mean @ from_mean - 7 - 2 * cauchy
        slope = np.concatenate(
            [[from_mean.sum() / tau - mu / 25, by_tau], -from_mean / tau + from_data / sd]
        )  # the prior of tau is a half-Cauchy of scale 5, and log tau brings its Jacobian
        return float(value), slope

    return Problem(gradient, 10, 1, *_of_log_tau(y, sd))


def _of_log_tau(y: Array, sd: Array) -> tuple[float, float]:
    """Return mean and sd of log tau in the eight schools, by quadrature: effects and mu are integrated out in closed form."""
    grid = np.linspace(-25, 8, 20_001)
    variance = np.exp(2 * grid)[:, None] + sd**2
    weight = (1 / variance).sum(1) + 1 / 25
    mean = (y / variance).sum(1) / weight
    value = (
        -0.5 * np.log(variance).sum(1) - 0.5 * (y**2 / variance).sum(1) - 0.5 * np.log(weight) + 0.5 * weight * mean**2
    )
    value += grid - np.log(25 + np.exp(2 * grid))
    density = np.exp(value - value.max())
    density /= density.sum()
    first = float(density @ grid)
    return first, float(np.sqrt(density @ (grid - first) ** 2))


def volatility(steps: int = 100) -> Problem:
    """Return a stochastic volatility model in its centred form: mu, atanh phi, log sigma and the log variances."""
    rng = np.random.default_rng(0)
    mu, phi, sigma = -1.0, 0.95, 0.25
    h = np.empty(steps)
    h[0] = mu + sigma / np.sqrt(1 - phi**2) * rng.normal()
    for t in range(1, steps):
        h[t] = mu + phi * (h[t - 1] - mu) + sigma * rng.normal()
    y = np.exp(h / 2) * rng.normal(size=steps)

    def gradient(theta: Array) -> tuple[float, Array]:
        mean, raw, log_sd, path = theta[0], theta[1], theta[2], theta[3:] - theta[0]
        slope, scale = np.tanh(raw), np.exp(log_sd)
        left = 1 - slope**2
        first, steps_taken = np.sqrt(left) * path[0] / scale, (path[1:] - slope * path[:-1]) / scale
        noise = y**2 * np.exp(-theta[3:])
        squares = first**2 + steps_taken @ steps_taken
        value = -0.5 * squares - steps * log_sd + 0.5 * np.log(left) - 0.5 * (theta[3:] + noise).sum()
        value += np.log(left) - np.log(25 + scale**2) + log_sd - np.log(100 + mean**2)  # priors and Jacobians
        of_path = np.zeros(steps)
        of_path[0] -= first * np.sqrt(left) / scale
        of_path[1:] -= steps_taken / scale
        of_path[:-1] += slope * steps_taken / scale
        of_slope = slope * path[0] ** 2 / scale**2 + (steps_taken @ path[:-1]) / scale - slope / left
        by_raw = of_slope * left - 2 * slope
        by_log_sd = squares - steps - 2 * scale**2 / (25 + scale**2) + 1
        by_mean = -of_path.sum() - 2 * mean / (100 + mean**2)
        return float(value), np.concatenate([[by_mean, by_raw, by_log_sd], of_path - 0.5 + 0.5 * noise])

    return Problem(gradient, steps + 3, 2)


PROBLEMS = {"funnel": funnel, "eight schools, centred": eight_schools, "volatility, 100 steps, centred": volatility}


class State(NamedTuple):
    """A point in phase space, ``[P]`` each, with log density and energy there."""

    theta: Array
    momentum: Array
    log_density: float
    gradient: Array
    energy: float


class Subtree(NamedTuple):
    """States at both ends of a part of a trajectory, the one drawn from it, and the logarithm of its weight."""

    first: State
    last: State
    drawn: State
    log_weight: float


@dataclass
class Chain:
    """One chain; ``max_error`` None is NUTS."""

    gradient: Gradient
    state: State
    rng: np.random.Generator
    max_error: float | None
    inverse_mass: Array
    step_size: float = 0.1
    num_gradients: int = 0

    def moved(self, state: State, step: float, number: int) -> tuple[State, float]:
        """Return the state after some leapfrog steps, and the range of the energy on the way."""
        theta, momentum, slope = state.theta, state.momentum, state.gradient
        low = high = state.energy
        for _ in range(number):
            momentum = momentum + 0.5 * step * slope
            theta = theta + step * self.inverse_mass * momentum
            with np.errstate(all="ignore"):
                value, slope = self.gradient(theta)
                momentum = momentum + 0.5 * step * slope
                energy = -value + 0.5 * float(self.inverse_mass @ momentum**2)
            self.num_gradients += 1
            low, high = (min(low, energy), max(high, energy)) if np.isfinite(energy) else (low, np.inf)
            if high - low > (MAX_ENERGY if self.max_error is None else self.max_error):
                return state, np.inf
            state = State(theta, momentum, value, slope, energy)
        return state, high - low

    def step(self, state: State, direction: int) -> tuple[State | None, bool]:
        """Return the next state of a trajectory, None where it ends, and whether a single leapfrog step led there."""
        size = direction * self.step_size
        if self.max_error is None:
            found, error = self.moved(state, size, 1)
            return (found if error < np.inf else None), True
        for halvings in range(MAX_HALVINGS + 1):
            found, error = self.moved(state, size / 2**halvings, 2**halvings)
            if error <= self.max_error:
                # the way back must not succeed with fewer steps, or it would not lead here
                back = found._replace(momentum=-found.momentum)
                fewer = (self.moved(back, size / 2**less, 2**less)[1] for less in range(halvings))
                return (None if any(each <= self.max_error for each in fewer) else found), halvings == 0
        return None, False

    def subtree(self, start: State, depth: int, direction: int, seen: list[float], energy: float) -> Subtree | None:
        """Return ``2**depth`` further states, None if the trajectory ends or turns round within them."""
        if depth == 0:
            found, is_single = self.step(start, direction)
            if self.max_error is None:
                seen.append(0.0 if found is None else min(1.0, float(np.exp(energy - found.energy))))
            else:
                seen.append(float(is_single))
            return None if found is None else Subtree(found, found, found, -found.energy)
        near = self.subtree(start, depth - 1, direction, seen, energy)
        far = near and self.subtree(near.last, depth - 1, direction, seen, energy)
        if near is None or far is None:
            return None
        total = float(np.logaddexp(near.log_weight, far.log_weight))
        drawn = far.drawn if np.log(self.rng.random()) < far.log_weight - total else near.drawn
        whole = Subtree(near.first, far.last, drawn, total)
        return None if self.turns(whole.first, whole.last, direction) else whole

    def turns(self, first: State, last: State, direction: int) -> bool:
        """Return whether either end of a trajectory moves towards the other."""
        way = direction * (last.theta - first.theta)
        return float(way @ first.momentum) < 0 or float(way @ last.momentum) < 0

    def draw(self) -> float:
        """Move to the next draw, and return the mean of what the step size is tuned to."""
        momentum = self.rng.normal(size=len(self.inverse_mass)) / np.sqrt(self.inverse_mass)
        kinetic = 0.5 * float(self.inverse_mass @ momentum**2)
        start = self.state._replace(momentum=momentum, energy=kinetic - self.state.log_density)
        ends, drawn, total, seen = {-1: start, 1: start}, start, -start.energy, list[float]()
        for depth in range(MAX_DEPTH):
            direction = int(self.rng.choice((-1, 1)))
            part = self.subtree(ends[direction], depth, direction, seen, start.energy)
            if part is None:
                break
            if np.log(self.rng.random()) < part.log_weight - total:
                drawn = part.drawn
            total = float(np.logaddexp(total, part.log_weight))
            ends[direction] = part.last
            if self.turns(ends[-1], ends[1], 1):
                break
        self.state = drawn
        return float(np.mean(seen))


def sampled(problem: Problem, max_error: float | None, seed: int, num_draws: int) -> tuple[Array, int, int]:
    """Return the draws ``[S, P]`` of a chain, and its gradients after and during warm-up."""
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=problem.size)
    value, slope = problem.gradient(theta)
    state = State(theta, np.zeros_like(theta), value, slope, -value)
    chain = Chain(problem.gradient, state, rng, max_error, np.ones(problem.size))
    windows = [100, 200, 400, 800, WARMUP]  # the mass matrix of each begins with the variances of the one before
    taken = 0
    for end in windows:
        log_step, average, error = np.log(10 * chain.step_size), 0.0, 0.0
        centre, draws = log_step, []
        for count in range(1, end - taken + 1):
            chain.step_size = float(np.exp(log_step))
            error += (TARGET - chain.draw() - error) / (count + 10)
            log_step = centre - error * np.sqrt(count) / 0.05
            average += count**-0.75 * (log_step - average)
            draws.append(chain.state.theta)
        chain.step_size, taken = float(np.exp(average)), end
        if end < WARMUP:
            number, variances = len(draws), np.var(draws, axis=0)
            chain.inverse_mass = (number * variances + 5e-3) / (number + 5)
    warmup, chain.num_gradients = chain.num_gradients, 0
    kept = np.empty((num_draws, problem.size))
    for number in range(num_draws):
        chain.draw()
        kept[number] = chain.state.theta
    return kept, chain.num_gradients, warmup


def measured(problem: Problem, max_error: float | None, num_draws: int, seed: int) -> dict[str, Any]:
    """Return effective draws a thousand gradients of the worst coordinate, and where the one of varying scale is."""
    chains = [sampled(problem, max_error, CHAINS * seed + chain, num_draws) for chain in range(CHAINS)]
    draws = np.stack([each for each, *_ in chains])
    gradients, warmup = (sum(each[place] for each in chains) for place in (1, 2))
    bulk, tail, rhat = (
        np.array([getattr(arviz_stats, name)(draws[..., j], **kind) for j in range(problem.size)])
        for name, kind in (("ess", {"method": "bulk"}), ("ess", {"method": "tail", "prob": (0.05, 0.95)}), ("rhat", {}))
    )
    scale = draws[..., problem.coordinate]
    return {
        "bulk": float(bulk.min()),
        "tail": float(tail.min()),
        "rhat": float(rhat.max()),
        "gradients": gradients,
        "warmup": warmup,
        "per_1000": 1000 * float(min(bulk.min(), tail.min())) / gradients,
        "mean": float(scale.mean()),
        "sd": float(scale.std()),
        "error": float(scale.std() / np.sqrt(bulk[problem.coordinate])),
    }


def main(num_draws: int = 1000, num_seeds: int = 3) -> None:
    """Measure all samplers on all problems, and write medians over seeds."""
    samplers = {"NUTS": None, **{f"WALNUTS, {each:g}": each for each in MAX_ERRORS}}
    table: dict[str, Any] = {}
    for name, make in PROBLEMS.items():
        problem = make()
        table[name] = {"mean": problem.mean, "sd": problem.sd, "samplers": {}}
        for sampler, max_error in samplers.items():
            runs = [measured(problem, max_error, num_draws, seed) for seed in range(num_seeds)]
            medians = {key: float(np.median([run[key] for run in runs])) for key in runs[0]}
            table[name]["samplers"][sampler] = {"runs": runs, "medians": medians}
            medians["ratio"] = medians["per_1000"] / table[name]["samplers"]["NUTS"]["medians"]["per_1000"]
            print(name, sampler, {key: round(value, 3) for key, value in medians.items()}, flush=True)
    settings = {"target": TARGET, "chains": CHAINS, "warmup": WARMUP, "draws": num_draws, "seeds": num_seeds}
    write("walnuts", {"settings": settings, "problems": table})


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
