"""The benchmark, a fit of many chains and a calibration on Dask clusters of two local workers, and on joblib's."""

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr

import bnnzoo as bz
from bnnzoo.apps.benchmarking import run_uci
from bnnzoo.core.method import FitContext
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.posterior.posterior import Gaussian
from bnnzoo.testing import linear_gaussian
from bnnzoo.zoo.table import fill_table
from tests.apps.benchmarking.layout import write_set
from tests.helpers.exact_linear import ExactLinear
from tests.helpers.executors import kill_in_mid_run
from tests.helpers.killing import without_costs

distributed = pytest.importorskip("distributed")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::bnnzoo.inference.FitWarning")]


@pytest.fixture(scope="module")
def executor() -> Iterator[Executor]:
    options = {"threads_per_worker": 1, "processes": True, "dashboard_address": ":0", "silence_logs": 50}
    with distributed.LocalCluster(n_workers=2, **options) as cluster, distributed.Client(cluster) as client:
        yield client.get_executor()


def test_sixty_four_chains_on_two_workers(executor: Executor) -> None:
    target = linear_gaussian()
    method = bz.NUTS(num_chains=64, num_groups=8, num_warmup=100, num_draws=50)
    draws = bz.fit(target.model, method, *target.data, executor=executor, progress=False).draws()
    assert draws.shape[:2] == (64, 50)
    assert len(draws[:, -1].unique(dim=0)) == 64, "each chain has random numbers of its own"
    means = draws.mean(1)  # of chains, which are independent: their spread is the Monte Carlo error
    (exact,) = target.mean.values()
    error = (means.mean(0) - exact.flatten()) / (means.std(0) / 8)
    assert torch.all(error.abs() < 5)


def test_the_benchmark_on_two_workers(executor: Executor, tmp_path: Path) -> None:
    write_set(tmp_path / "data", "lines", 3, 0)
    methods = {"map": bz.MAP(num_steps=60, polish_steps=20)}
    arguments = tmp_path / "a.json", ["lines"], methods, (0, 1, 2)
    scores = run_uci(*arguments, data=tmp_path / "data", executor=executor)
    assert sorted(score.split for score in scores) == [0, 1, 2]
    assert all(np.isfinite(score.log_density) for score in scores)
    assert run_uci(*arguments, data=tmp_path / "data", executor=executor) == scores


def test_the_zoos_table_on_two_workers(executor: Executor, tmp_path: Path) -> None:
    asked = ["linear-regression"], ["map", "ensemble", "laplace"]
    fill_table(tmp_path / "one.json", *asked, small=True)
    fill_table(tmp_path / "dask.json", *asked, small=True, executor=executor)
    assert without_costs(tmp_path / "dask.json") == without_costs(tmp_path / "one.json")
    with pytest.raises(bz.zoo.ZooError, match="limit=60 cannot end a fit in a thread, as in those of a Dask worker"):
        fill_table(tmp_path / "limited.json", *asked, small=True, limit=60, executor=executor)


@dataclass(frozen=True)
class Unhurried(ExactLinear):
    """A posterior in closed form that takes its time, so that a worker is lost in the middle; the same numbers in any batch."""

    def run(self, density: LogDensity, context: FitContext) -> Gaussian:
        time.sleep(0.2)
        return super().run(density, context)


def calibration(**settings: Any) -> xr.DataTree:
    target = linear_gaussian()
    options = {"num_simulations": 40, "num_draws": 39, "dtype": torch.float64, "progress": False}
    return bz.validation.sbc(target.model, Unhurried(), *target.data, **options, **settings)


def test_a_calibration_whose_worker_is_lost_has_the_same_ranks() -> None:
    options = {"threads_per_worker": 1, "processes": True, "dashboard_address": ":0", "silence_logs": 50}
    with distributed.LocalCluster(n_workers=2, **options) as cluster, distributed.Client(cluster) as client:
        victim = client.run(os.getpid)
        killer = threading.Thread(target=kill_in_mid_run, args=(client, victim))
        killer.start()
        found = calibration(executor=client.get_executor())
        killer.join()
        assert set(client.run(os.getpid).values()) != set(victim.values()), "the worker was not killed in time"
    assert found.identical(calibration())


def test_a_calibration_on_the_processes_of_joblib() -> None:
    loky = pytest.importorskip("joblib.externals.loky")
    executor = loky.get_reusable_executor(max_workers=2)
    try:
        assert calibration(executor=executor).identical(calibration())
    finally:
        executor.shutdown(kill_workers=True)
