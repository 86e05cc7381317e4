"""A deep ensemble of ten networks against one network: whole fits with the same steps, on one thread.

Two ways: ``MAP`` as it stands (Adam, then L-BFGS until every member has converged), and five thousand steps of Adam alone.
Processor time, compilation included where a fit compiles; inductor's cache is warm.

Run: python -m benchmarks.ensemble
"""

import torch

import bnnzoo as bz
from benchmarks.pairs import in_turn, microseconds, save
from benchmarks.regression import Problem, problem, pyro_model

MEMBERS = 10
SIZES = {"small": (100, 10), "middling": (600, 50)}
WAYS = {"default": {}, "adam": {"num_steps": 5_000, "polish_steps": 0}}


def seconds(p: Problem, members: int, way: str) -> float:
    """Return the processor time of a fit."""
    method = bz.MAP(num_members=members, **WAYS[way])
    return microseconds(lambda: bz.fit(pyro_model(p), method, p.x, p.y, progress=False), 1) / 1e6


def main() -> None:
    """Measure one member and ten of them in turn, and write the results."""
    torch.set_num_threads(1)
    for size, (rows, hidden) in SIZES.items():
        p = problem(rows, hidden=hidden)
        for way in WAYS:
            candidates = {f"{n} members": lambda n=n, p=p, way=way: seconds(p, n, way) for n in (1, MEMBERS)}
            in_turn(candidates, 1)  # fills the cache
            found = in_turn(candidates)
            save(f"ensemble_{size}_{way}", "s a fit", found, "1 members", rows=rows, params=p.num_params)


if __name__ == "__main__":
    main()
