"""A fit of many chains and the UCI benchmark on a Dask cluster: local workers here, any cluster there.

Seconds by the number of workers, what a task ships, and the draws of a run that lost a worker.

Run: python -m benchmarks.cluster DATA [workers] [chains]      (for example data/uci 1,2 64)
"""

import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import torch

import bnnzoo as bz
from benchmarks.pairs import write
from bnnzoo.apps.benchmarking import run_uci

NUM_GROUPS = 8


def model() -> Any:
    """Return a network of ten tanh units with noise of known size."""
    return bz.models.supervised(bz.models.mlp(1, (10,)), bz.priors.fan_in(2.0), bz.likelihoods.gaussian(scale=0.1))


def data(num_rows: int = 100) -> tuple[np.ndarray, np.ndarray]:
    """Return a noisy sine, x [N, 1] and y [N]."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (num_rows, 1))
    return x, np.sin(2 * x[:, 0]) + 0.1 * rng.normal(size=num_rows)


def chains(client: Any, num_chains: int, num_iterations: int = 100) -> torch.Tensor:
    """Return draws of NUTS, with the chains in eight tasks, or in one for each chain if there are fewer."""
    groups = min(NUM_GROUPS, num_chains)
    method = bz.NUTS(num_chains=num_chains, num_warmup=num_iterations, num_draws=num_iterations, num_groups=groups)
    return bz.fit(model(), method, *data(), seed=0, executor=client.get_executor(), progress=False).draws()


def kill_one(client: Any) -> None:
    """Kill a worker a second after it has begun a task."""
    pids = client.run(os.getpid)
    while not any(client.processing().values()):
        time.sleep(0.05)
    time.sleep(1.0)
    os.kill(pids[next(address for address, tasks in client.processing().items() if tasks)], signal.SIGKILL)


def on_cluster(num_workers: int, folder: Path, num_chains: int) -> tuple[dict[str, float], torch.Tensor]:
    """Return seconds of the chains, of the chains with a worker killed, and of four fits of the benchmark, and the draws."""
    import distributed

    options = {"threads_per_worker": 1, "processes": True, "dashboard_address": None, "silence_logs": 50}
    with distributed.LocalCluster(n_workers=num_workers, **options) as cluster, distributed.Client(cluster) as client:
        start = time.perf_counter()
        draws = chains(client, num_chains)
        seconds = {"chains": time.perf_counter() - start}
        with tempfile.TemporaryDirectory() as out:
            start = time.perf_counter()
            executor = client.get_executor()
            run_uci(Path(out) / "uci.json", ["yacht"], {"map": bz.MAP()}, range(4), data=folder, executor=executor)
            seconds["uci"] = time.perf_counter() - start
        killer = threading.Thread(target=kill_one, args=(client,))
        start = time.perf_counter()
        killer.start()
        again = chains(client, num_chains)
        killer.join()
        seconds["chains, one worker killed"] = time.perf_counter() - start
    assert torch.allclose(again, draws, rtol=1e-6, atol=1e-6), "a lost worker changed the draws"
    return seconds, draws


def main(folder: str, workers: str = "1,2", num_chains: str = "64") -> None:
    """Measure clusters of several sizes, print and write what was found."""
    found: dict[str, Any] = {}
    shipped = len(cloudpickle.dumps((model(), data())))
    for each in workers.split(","):
        found[each], draws = on_cluster(int(each), Path(folder), int(num_chains))
        print(each, "workers", {key: round(value, 1) for key, value in found[each].items()}, flush=True)
        write("cluster", {"seconds": found, "bytes_of_model_and_data": shipped, "bytes_of_draws": draws.nbytes})


if __name__ == "__main__":
    main(*sys.argv[1:])
