"""One step of SGHMC on a mini-batch of 256 rows, next to one of torch.optim.Adam on the same network: processor time, one thread.

A step of bnnzoo is the difference between fits of N and of 2 N steps, over N: with all that a fit does at every step, and without
what it does once. Adam's step fetches its rows, evaluates the loss and its gradient, and moves, as in any training loop; its loss
is the mean squared error plus weight decay, without a noise scale. Rows grow from a thousand to a million.

Run: python -m benchmarks.stochastic_step [steps]
"""

import sys
from typing import Any

import torch
from torch import nn

import bnnzoo as bz
from benchmarks.pairs import in_turn, microseconds, save
from benchmarks.regression import problem, pyro_model

BATCH, ROWS = 256, (1_000, 10_000, 100_000, 1_000_000)


def sghmc_fit(x: Any, y: Any, model: Any, num_steps: int) -> None:
    """Fit with so many steps after warm-up, one chain."""
    method = bz.SGHMC(
        num_chains=1,
        num_warmup=1,
        num_draws=1,
        batch_size=BATCH,
        steps_per_draw=num_steps,
        optimise_steps=1,
        step_size=1e-3,
    )
    bz.fit(model, method, x, y, progress=False)


def sghmc_step(x: Any, y: Any, model: Any, num_steps: int) -> float:
    """Return the processor time of a step in microseconds; a draw of warm-up and one that is kept take as many each."""
    short, long = (microseconds(lambda n=n: sghmc_fit(x, y, model, n), 1) for n in (num_steps, 2 * num_steps))
    return (long - short) / (2 * num_steps)


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


def main(num_steps: int = 4_000) -> None:
    """Measure both at every number of rows."""
    torch.set_num_threads(1)
    found: dict[str, list[float]] = {}
    for rows in ROWS:
        p = problem(num_rows=rows)
        model = pyro_model(p)
        sghmc_fit(p.x, p.y, model, 2 * num_steps)  # leaves the compiled step in the cache
        pairs = {
            f"SGHMC, {rows} rows": lambda p=p, model=model: sghmc_step(p.x, p.y, model, num_steps),
            f"Adam, {rows} rows": lambda p=p: adam_step(p.x, p.y, p.hidden, num_steps),
        }
        found |= in_turn(pairs, 3)
    save("stochastic_step", "us a step", found, "Adam, 10000 rows", batch=BATCH, params=p.num_params)


if __name__ == "__main__":
    main(*(int(value) for value in sys.argv[1:]))
