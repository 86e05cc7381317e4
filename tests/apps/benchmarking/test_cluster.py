"""The benchmark, a fit of many chains and a calibration on Dask clusters of two local workers, and on joblib's."""

import os
import threading
from collections.abc import Iterator
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr

import bnnzoo as bz
from bnnzoo.apps.benchmarking import run_uci
from bnnzoo.testing import linear_gaussian
from tests.apps.benchmarking.layout import write_set
from tests.helpers.executors import InProcess, kill_in_mid_run

distributed = pytest.importorskip("distributed")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::bnnzoo.inference.FitWarning")]


@pytest.fixture(scope="module")
def executor() -> Iterator[Executor]:
    options = {"threads_per_worker": 1, "processes": True, "dashboard_address": None, "silence_logs": 50}
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


def calibration(**settings: Any) -> xr.DataTree:
    target = linear_gaussian()
    method = bz.NUTS(num_chains=1, num_warmup=200, num_draws=200)
    options = {"num_simulations": 40, "num_draws": 39, "dtype": torch.float64, "progress": False}
    return bz.validation.sbc(target.model, method, *target.data, **options, **settings)


def test_a_calibration_whose_worker_is_lost_has_the_same_ranks() -> None:
    options = {"threads_per_worker": 1, "processes": True, "dashboard_address": None, "silence_logs": 50}
    with distributed.LocalCluster(n_workers=2, **options) as cluster, distributed.Client(cluster) as client:
        victim = client.run(os.getpid)
        killer = threading.Thread(target=kill_in_mid_run, args=(client, victim))
        killer.start()
        found = calibration(executor=client.get_executor())
        killer.join()
        assert set(client.run(os.getpid).values()) != set(victim.values()), "the worker was not killed in time"
    assert found.identical(
        calibration(executor=InProcess())
    )  # the same tasks: batches of other sizes round differently


def test_a_calibration_on_the_processes_of_joblib() -> None:
    loky = pytest.importorskip("joblib.externals.loky")
    executor = loky.get_reusable_executor(max_workers=2)
    try:
        assert calibration(executor=executor).identical(calibration(executor=InProcess()))
    finally:
        executor.shutdown(kill_workers=True)
