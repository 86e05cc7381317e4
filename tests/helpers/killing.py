"""Work that is killed at random times, in processes forked from one that has imported everything.

Run: python -m tests.helpers.killing WORK FOLDER NUMBER SEED
"""

import os
import re
import shutil
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
import xarray as xr
from typer.testing import CliRunner

import bnnzoo as bz
from bnnzoo.apps.cli import app
from bnnzoo.core.posterior.archive import read_archive
from bnnzoo.testing import example_tree, linear_gaussian
from bnnzoo.zoo.cells import read_cells

TARGET = linear_gaussian()
NUTS = bz.NUTS(num_chains=2, num_warmup=50, num_draws=50)
MODEL = """
import pyro
import pyro.distributions as dist


def model(x, y=None):
    a, b = pyro.sample("a", dist.Normal(0.0, 1.0)), pyro.sample("b", dist.Normal(0.0, 1.0))
    s = pyro.sample("s", dist.HalfNormal(1.0))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Normal(a + b * x, s), obs=y)
"""
SIMULATIONS = 240
"""More than are written at a time, so that a kill leaves a file with a part of them."""

TABLE = [{"x": 0.1 * i, "y": float(np.sin(i))} for i in range(60)]


def theta_of(**settings: object) -> torch.Tensor:
    return bz.fit(TARGET.model, NUTS, *TARGET.data, seed=1, progress=False, **settings).draws()


class Fit:
    """A checkpoint, from which the run that is begun again ends with the draws of one that was never killed."""

    def __init__(self, folder: Path) -> None:
        self.path, self.expected = folder / "run.zarr", None

    def work(self) -> None:
        theta_of(checkpoint=self.path)

    def check(self) -> None:
        if self.expected is None:
            self.expected = theta_of()
        assert torch.equal(theta_of(checkpoint=self.path), self.expected)
        remove(self.path)


class Save:
    """One file, which is that of before or the new one."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "fit.bnn"
        theta = torch.zeros(4, 5000, 3)
        density = bz.fit(TARGET.model, bz.MAP(num_steps=3, polish_steps=0), *TARGET.data, progress=False)
        self.posteriors = [
            bz.core.posterior.posterior.Draws(density.density, density.info, theta + i) for i in range(2)
        ]
        self.posteriors[0].save(self.path)

    def work(self) -> None:
        for i in range(20):
            self.posteriors[i % 2].save(self.path)

    def check(self) -> None:
        found = bz.load(self.path, TARGET.model, *TARGET.data).draws()
        assert any(torch.equal(found, each.draws()) for each in self.posteriors)
        self.posteriors[0].save(self.path)
        only(self.path)


class Compare:
    """A folder of results, whole or not there."""

    def __init__(self, folder: Path) -> None:
        self.table, self.out = folder / "data.csv", folder / "results"
        pd.DataFrame(TABLE).to_csv(self.table, index=False)
        self.names: set[str] = set()

    def work(self) -> None:
        arguments = [
            "compare",
            self.table,
            "--target",
            "y",
            "--methods",
            "map",
            "--num-steps",
            "30",
            "--hidden",
            "2",
            "--out",
            self.out,
        ]
        result = CliRunner().invoke(app, [str(each) for each in arguments])
        assert result.exit_code == 0, result.output

    def check(self) -> None:
        names = {each.name for each in self.out.iterdir()} if self.out.exists() else set()
        self.names = self.names or names
        assert names in (set(), self.names)
        for each in self.out.glob("*.nc"):
            assert "posterior_predictive" in xr.load_datatree(each)
        remove(self.out)


class Sbc:
    """A file of simulations; the calibration that is begun again has the ranks of one that was never killed."""

    def __init__(self, folder: Path) -> None:
        self.path, self.expected, self.num_partial = folder / "ranks.sbc", None, 0

    def study(self, path: Path | None) -> xr.DataTree:
        method = bz.NUTS(num_chains=1, num_warmup=50, num_draws=50)
        return bz.validation.sbc(
            TARGET.model, method, *TARGET.data, num_simulations=SIMULATIONS, num_draws=9, path=path, progress=False
        )

    def work(self) -> None:
        self.study(self.path)

    def check(self) -> None:
        if self.expected is None:
            self.expected = self.study(None)
        self.num_partial += self.path.exists() and simulations_in(self.path) < SIMULATIONS
        found = self.study(self.path)
        for group in self.expected.children:
            assert found[group].to_dataset().equals(self.expected[group].to_dataset()), group
        remove(self.path)


class Task:
    """Four tasks of ``bnnzoo sbc`` side by side, killed together; begun again, they end with the ranks of one call."""

    def __init__(self, folder: Path) -> None:
        self.table, self.model, self.out = folder / "data.csv", folder / "model.py", folder / "tasks"
        pd.DataFrame(TABLE).to_csv(self.table, index=False)
        self.model.write_text(MODEL)
        self.expected: xr.DataTree | None = None
        self.num_partial = 0

    def command(self, out: Path, *options: object) -> None:
        number = ["--num-simulations", 4 * SIMULATIONS // 3]
        arguments = ["sbc", self.model, self.table, "--method", "nuts", *number, "--out", out, *options]
        result = CliRunner().invoke(app, [str(each) for each in arguments])
        assert result.exit_code == 0, result.output

    def work(self) -> None:
        tasks = [forked(partial(self.command, self.out, "--task", task, "--of", 4)) for task in range(4)]
        assert [os.waitpid(each, 0)[1] for each in tasks] == [0] * 4

    def check(self) -> None:
        if self.expected is None:
            self.command(whole := self.out.with_name("whole"))
            self.expected = xr.load_datatree(whole / "ranks.nc")
            remove(whole)
        files = list(self.out.glob("*.sbc")) if self.out.exists() else []
        self.num_partial += any(simulations_in(each) < SIMULATIONS // 3 for each in files)
        self.work()
        found = xr.load_datatree(self.out / "ranks.nc")
        assert found["prior_sbc"].to_dataset().equals(self.expected["prior_sbc"].to_dataset())
        remove(self.out)


class Cells:
    """Two tasks of ``bnnzoo zoo table`` side by side, killed together; begun again, they end with the table of one run."""

    def __init__(self, folder: Path) -> None:
        self.out, self.expected, self.num_partial = folder / "cells", "", 0

    def command(self, out: Path, *options: object) -> None:
        asked = ["--cards", "linear-regression,logistic-regression", "--methods", "map,ensemble,mfvi,swag", *options]
        result = CliRunner().invoke(app, ["zoo", "table", "--smoke", "--out", str(out), *map(str, asked)])
        assert result.exit_code == 0, result.output

    def work(self) -> None:
        tasks = [forked(partial(self.command, self.out, "--task", task, "--of", 2)) for task in range(2)]
        assert [os.waitpid(each, 0)[1] for each in tasks] == [0] * 2

    def check(self) -> None:
        if not self.expected:
            self.command(whole := self.out.with_name("whole.json"))
            self.expected = without_costs(whole)
            remove(whole)
        files = list(self.out.glob("task-*.json")) if self.out.exists() else []
        self.num_partial += 0 < sum(len(read_cells(each)) for each in files) < 8
        self.work()
        assert without_costs(self.out / "zoo_table.json") == self.expected
        only(self.out / "zoo_table.json")
        remove(self.out)


class Report:
    """One page, which is that of before or the new one."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "report.html"
        self.tree = example_tree("regression")

    def work(self) -> None:
        bz.report({"a": self.tree}, self.path)

    def check(self) -> None:
        assert not self.path.exists() or self.path.read_text().rstrip().endswith("</html>")


WORKS = {"fit": Fit, "save": Save, "compare": Compare, "sbc": Sbc, "task": Task, "cells": Cells, "report": Report}


def simulations_in(path: Path) -> int:
    """Return how many simulations a file has."""
    ranks, _ = read_archive(path)
    return len(next(iter(ranks.values())))


def without_costs(table: Path) -> str:
    """Return the text of a table of the zoo but for seconds, in which runs differ."""
    return re.sub(r'"(seconds|compiling|processor)": [\d.e-]+', "", table.read_text())


def remove(path: Path) -> None:
    """Remove a file or a folder, if it is there."""
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def only(path: Path) -> None:
    """Nothing half-written lies beside a file."""
    assert not [each.name for each in path.parent.iterdir() if ".partial-" in each.name]


def forked(work: Callable[[], object], own_group: bool = False) -> int:
    """Start work in a process and a group of its own; it ends with 0 only if the work did."""
    if pid := os.fork():
        return pid
    try:
        if own_group:
            os.setpgid(0, 0)
        work()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def in_child(work: Callable[[], object]) -> None:
    _, status = os.waitpid(forked(work), 0)
    assert status == 0, status


def main(name: str, folder: str, number: str, seed: str) -> None:
    """Kill the work so often in its midst, at times spread over how long it takes, and check what each kill left."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    job, rng = WORKS[name](Path(folder)), np.random.default_rng(int(seed))
    for _ in range(2):  # the first compiles, and takes longer than all that follow
        start = time.perf_counter()
        in_child(job.work)
        seconds = time.perf_counter() - start
        job.check()
    killed, attempts = 0, 0
    while killed < int(number) and attempts < 4 * int(number):
        pid, attempts = forked(job.work, own_group=True), attempts + 1
        time.sleep(0.01 + seconds * rng.random())
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        killed += os.waitpid(pid, 0)[1] == signal.SIGKILL  # else it had ended before
        job.check()
    in_child(job.work)  # sweeps what the last one left
    assert not [each.name for each in Path(folder).iterdir() if ".partial-" in each.name]
    assert 4 * getattr(job, "num_partial", killed) >= killed, "files that kills left were empty or whole"
    print(killed)


if __name__ == "__main__":
    main(*sys.argv[1:])
