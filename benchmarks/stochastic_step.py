"""One step of SGHMC on a mini-batch of 256 rows, next to one of torch.optim.Adam on the same network: processor time, one thread.

SGHMC runs in native code, as a fit of so many steps would choose by itself.

A step of bnnzoo is what a fit does at every step: it fetches the rows, draws noise, evaluates the gradient and moves. Adam's step
fetches its rows, evaluates the loss and its gradient, and moves, as in any training loop; its loss is the mean squared error plus
weight decay, without a noise scale. Rows grow from a thousand to a million. Nothing that is done once is counted.

Run: python -m benchmarks.stochastic_step [steps]
"""

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import bnnzoo as bz
from benchmarks.pairs import in_turn, microseconds, save
from benchmarks.regression import Problem, problem, pyro_model
from bnnzoo.core.model.density import build_density
from bnnzoo.inference.markov.stochastic.sghmc import UnderdampedLangevin
from bnnzoo.inference.markov.stochastic.stochastic_sampler import StochasticSampler
from bnnzoo.inference.markov.stochastic.stochastic_settings import plan_of

BATCH, ROWS = 256, (1_000, 10_000, 100_000, 1_000_000)


def sghmc_step(p: Problem, num_chains: int, num_steps: int) -> Callable[[], float]:
    """Return what measures a step of all chains in microseconds of processor time, over so many steps or a few more."""
    draws: dict[str, Any] = {"num_chains": num_chains, "num_warmup": 5, "num_draws": 10_000}
    method = bz.SGHMC(**draws, batch_size=BATCH, steps_per_draw=num_steps, step_size=1e-3)
    density = build_density(pyro_model(p), torch.from_numpy(p.x), torch.from_numpy(p.y))
    dynamics = UnderdampedLangevin(1.0, 0.025, preconditioned=True, decay=0.1, counts_noise=False)
    sampler = StochasticSampler(dynamics, plan_of(method, density), method)
    loop = sampler.begin(density, 0.1 * density.init(num_chains, 0), 0, 0)  # compiles
    loop.advance()

    def taken() -> int:
        return int(loop.fleet.moving.num_steps.min())

    def advance_far(until: int) -> None:
        while taken() < until:
            loop.advance()

    def measured() -> float:
        before = taken()
        total = microseconds(lambda: advance_far(before + num_steps), 1)
        return total / (taken() - before)

    return measured


def adam_step(x: Any, y: Any, hidden: int, num_steps: int) -> float:
    """Return the processor time of a step in microseconds."""
    inputs, targets = torch.from_numpy(x), torch.from_numpy(y)
    net = nn.Sequential(nn.Linear(x.shape[1], hidden), nn.Tanh(), nn.Linear(hidden, 1))
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-3, weight_decay=1e-4)
    generator = torch.Generator().manual_seed(0)

    def step() -> None:
        rows = torch.randint(len(x), (BATCH,), generator=generator)
        optimiser.zero_grad()
        loss = (net(inputs[rows]).squeeze(-1) - targets[rows]).square().mean()
        loss.backward()
        optimiser.step()

    for _ in range(50):
        step()
    return microseconds(step, num_steps)


def main(num_steps: int = 2_000) -> None:
    """Measure both at every number of rows."""
    torch.set_num_threads(1)
    found: dict[str, list[float]] = {}
    for rows in ROWS:
        p = problem(num_rows=rows)
        found |= in_turn(
            {
                f"SGHMC, {rows} rows": sghmc_step(p, 1, num_steps),
                f"SGHMC, 4 chains, {rows} rows": sghmc_step(p, 4, num_steps),
                f"Adam, {rows} rows": lambda p=p: adam_step(p.x, p.y, p.hidden, num_steps),
            }
        )
    save("stochastic_step", "us a step", found, "Adam, 10000 rows", batch=BATCH, params=p.num_params)


if __name__ == "__main__":
    main(*(int(value) for value in sys.argv[1:]))
