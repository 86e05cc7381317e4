"""How chains are run: groups that are interrupted, and executors, process pools and a Dask cluster that loses a worker."""

import multiprocessing
import os
import threading
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch

from bnnzoo.core.posterior.posterior import Posterior
from bnnzoo.engine import fleet
from bnnzoo.inference import MAMS, NUTS, fit
from bnnzoo.inference.markov import sampling
from bnnzoo.inference.markov.lockstep.trajectory_chains import TrajectoryChains
from bnnzoo.testing import linear_gaussian
from tests.helpers.executors import InProcess, kill_in_mid_run

TARGET = linear_gaussian()
START = torch.randn(4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
CHAINS = NUTS(num_chains=4, num_warmup=60, num_draws=40, init=START)


def pool(num_workers: int = 2) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(num_workers, mp_context=multiprocessing.get_context("spawn"))


def fitted(method: Any = CHAINS, executor: Any = None, engine: str = "auto") -> Posterior:
    return fit(TARGET.model, method, *TARGET.data, seed=6, executor=executor, dtype=torch.float64, engine=engine)


@pytest.mark.parametrize("when", [3, 35])
def test_interrupted_groups_do_not_go_on_to_the_next(when: int, monkeypatch: pytest.MonkeyPatch) -> None:
    target = linear_gaussian()
    kept, begun = TrajectoryChains.advance, []

    def interrupting(loop: TrajectoryChains) -> None:
        kept(loop)
        begun.append(loop)
        if int(loop.counts.min()) == when and len(set(map(id, begun))) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(fleet, "SECONDS_PER_CHUNK", 0.0)  # one draw a call
    monkeypatch.setattr(TrajectoryChains, "advance", interrupting)
    posterior = fit(target.model, MAMS(num_chains=6, num_groups=3, num_warmup=20, num_draws=20), *target.data)
    assert posterior.draws().shape == (2, 20, 3) and not posterior.info.complete
    assert len(set(map(id, begun))) == 2


def test_workers_compute_on_one_thread_and_put_the_number_back(monkeypatch: pytest.MonkeyPatch) -> None:
    inside, run = [], sampling._run

    def watched(*args: Any) -> Any:
        inside.append(torch.get_num_threads())
        return run(*args)

    monkeypatch.setattr(sampling, "_run", watched)
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        fitted(MAMS(num_chains=1, num_warmup=10, num_draws=2, init=START[:1]), InProcess())
        assert inside == [1] and torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(threads)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["native", "graph"])
def test_a_process_pool_gives_the_chains_of_one_process(engine: str) -> None:
    """Bit by bit in native code, where each runs on its own; a batch of another size rounds otherwise."""
    together = fitted(engine=engine)
    with pool() as executor:
        apart = fitted(executor=executor, engine=engine)
        in_batches = fitted(replace(CHAINS, num_groups=2), executor, engine)
    accuracy = 0.0 if engine == "native" else 1e-6
    for found in (apart, in_batches):
        assert found.info.engine is not None and found.info.engine.engine.endswith(engine)
        torch.testing.assert_close(found.draws(), together.draws(), rtol=accuracy, atol=accuracy)
    assert apart.info.complete


@pytest.mark.slow
def test_chains_that_learn_together_stay_together() -> None:
    method = MAMS(num_chains=4, num_warmup=40, num_draws=20, num_groups=2, init=START)
    with pool() as executor:
        apart = fitted(method, executor)
    torch.testing.assert_close(apart.draws(), fitted(method).draws(), rtol=1e-6, atol=1e-6)


def dying() -> None:
    if multiprocessing.parent_process() is not None:
        os._exit(1)
    pyro.sample("w", dist.Normal(0.0, 1.0).expand([3]).to_event(1))


@pytest.mark.slow
def test_an_executor_that_dies() -> None:
    with (
        pool(1) as executor,
        pytest.raises(RuntimeError, match=r"The executor \(ProcessPoolExecutor\) died while running 2"),
    ):
        fit(dying, NUTS(num_chains=2, num_warmup=10, num_draws=5), executor=executor)


@pytest.mark.slow
@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no forks on this system")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:The model could not be traced")
def test_a_pool_that_forks() -> None:
    with (
        ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as executor,
        pytest.raises(RuntimeError, match=r"\(ProcessPoolExecutor\) forks its workers.*get_context\('spawn'\)"),
    ):
        fitted(executor=executor)


@pytest.mark.slow
def test_a_cluster_that_loses_a_worker_ends_with_all_chains() -> None:
    distributed = pytest.importorskip("distributed")
    method = NUTS(num_chains=4, num_warmup=100, num_draws=200, init=START)
    with pool() as executor:  # one chain at a time, as there: batches round differently, and long chains notice
        whole = fitted(method, executor)
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0", silence_logs=50
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        victim = client.run(os.getpid)
        killer = threading.Thread(target=kill_in_mid_run, args=(client, victim))
        killer.start()
        posterior = fitted(method, client.get_executor())
        killer.join()
        assert set(client.run(os.getpid).values()) != set(victim.values()), "the worker was not killed in time"
    torch.testing.assert_close(posterior.draws(), whole.draws(), rtol=1e-6, atol=1e-6)
    assert posterior.draws().shape == (4, 200, 3)
    assert len(posterior.draws()[:, -1].unique(dim=0)) == 4
    assert posterior.info.complete
