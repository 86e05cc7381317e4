"""Threads that fit and predict at the same time get what one thread gets, bit by bit."""

import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import bnnzoo as bz
from bnnzoo.core.program import turns
from bnnzoo.core.program.turns import aside, let_others, one_at_a_time, staying

NUM_THREADS = 8
GENERATOR = torch.Generator().manual_seed(0)
DATA = [(torch.randn(40, 2 + k % 2, generator=GENERATOR), torch.randn(40, generator=GENERATOR)) for k in range(4)]
MODELS = [
    bz.models.supervised(bz.models.mlp(2 + k % 2, (3,)), bz.priors.normal(1.0), bz.likelihoods.gaussian())
    for k in range(4)
]


def fitted(k: int, seed: int) -> list[NDArray[np.floating]]:
    quick = bz.NUTS(num_chains=2, num_warmup=20, num_draws=12)
    method = (bz.MAP(num_steps=20, polish_steps=5), bz.MeanFieldVI(num_steps=20), quick)[seed % 3]
    return [bz.fit(MODELS[k], method, *DATA[k], seed=seed, progress=False).draws().numpy()]


def test_fits_and_predictions_in_threads_are_those_of_one_thread() -> None:
    method = bz.Laplace(bz.MAP(num_steps=30))
    posteriors = [bz.fit(model, method, *data, progress=False) for model, data in zip(MODELS, DATA, strict=True)]

    def predicted(k: int, seed: int) -> list[NDArray[np.floating]]:
        tree = bz.predict(posteriors[k], DATA[k][0][:5], num_draws=20, seed=seed)
        return [tree["predictions"]["y"].to_numpy(), tree["conditional"]["mean"].to_numpy()]

    jobs = [(predicted, number % 4, number % 3) for number in range(64)] + [
        (fitted, number % 4, number % 3) for number in range(12)
    ]
    order = np.random.default_rng(0).permutation(len(jobs))
    jobs = [jobs[number] for number in order]
    expected = {job: job[0](*job[1:]) for job in dict.fromkeys(jobs)}
    state, dtype = torch.get_rng_state(), torch.get_default_dtype()
    with ThreadPoolExecutor(NUM_THREADS) as pool:
        found = list(pool.map(lambda job: job[0](*job[1:]), jobs))
    for job, arrays in zip(jobs, found, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(arrays, expected[job], strict=True)), job[1:]
    assert torch.equal(torch.get_rng_state(), state) and torch.get_default_dtype() == dtype


@pytest.mark.parametrize(
    "method", ["MAP(num_steps=5)", "SGLD(num_warmup=5, num_draws=5)", "NUTS(num_warmup=10, num_draws=10)"]
)
def test_the_first_fit_of_a_process_leaves_every_global_stream_alone(method: str) -> None:
    """Torch's compiler and others draw random numbers when they are imported."""
    program = (
        "import random, numpy as np, torch, bnnzoo as bz, warnings\n"
        "from bnnzoo.testing import linear_gaussian\n"
        "warnings.simplefilter('ignore')\n"
        "target = linear_gaussian()\n"
        "before = random.getstate(), repr(np.random.get_state()), torch.get_rng_state()\n"
        f"bz.fit(target.model, bz.{method}, *target.data)\n"
        "assert random.getstate() == before[0]\n"
        "assert repr(np.random.get_state()) == before[1]\n"
        "assert torch.equal(torch.get_rng_state(), before[2])\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


# one divergence in thousands of trajectories comes and goes with rounding
@pytest.mark.filterwarnings("ignore::bnnzoo.inference.DivergenceWarning")
@pytest.mark.parametrize("method", [bz.MeanFieldVI(num_steps=4000), bz.NUTS(num_warmup=1000, num_draws=2000)])
def test_predictions_are_answered_while_a_fit_goes_on(method) -> None:
    posterior = bz.fit(MODELS[0], bz.MAP(num_steps=20, polish_steps=0), *DATA[0], progress=False)
    expected = [bz.predict(posterior, DATA[0][0][:3]) for _ in range(3)][-1]
    with ThreadPoolExecutor(1) as pool:
        fit = pool.submit(bz.fit, MODELS[1], method, *DATA[1], seed=1, progress=False)
        answered = 0
        while not fit.done():
            assert bz.predict(posterior, DATA[0][0][:3]).identical(expected)
            answered += not fit.done()
    assert answered >= 3
    assert torch.equal(fit.result().draws(5), bz.fit(MODELS[1], method, *DATA[1], seed=1, progress=False).draws(5))


def test_a_thread_that_runs_a_model_keeps_its_turn() -> None:
    seen: list[str] = []

    @one_at_a_time
    def other() -> None:
        seen.append("other")

    @one_at_a_time
    def first(pool: ThreadPoolExecutor) -> None:
        waiting = pool.submit(other)
        while not turns._TURN.has_waiting:
            time.sleep(0.001)
        with staying():
            let_others()
        seen.append("first")
        let_others()
        waiting.result()

    with ThreadPoolExecutor(1) as pool:
        first(pool)
    assert seen == ["first", "other"]


def test_little_work_is_done_aside_only_where_somebody_waits() -> None:
    found: list[bool] = []

    @one_at_a_time
    def other() -> None:
        found.append(True)

    @one_at_a_time
    def working(pool: ThreadPoolExecutor) -> None:
        torch.manual_seed(5)
        mine = torch.get_rng_state()
        for seconds in (1e-4, 1.0):
            with aside(seconds):
                found.append(torch.equal(torch.get_rng_state(), mine))
        waiting = pool.submit(other)
        time.sleep(0.2)  # until it asks for its turn
        with aside(1e-4):
            waiting.result(timeout=60)

    torch.manual_seed(0)
    with ThreadPoolExecutor(1) as pool:
        working(pool)
    assert found == [True, False, True]


def test_global_streams_and_filters_of_two_calls_do_not_mix() -> None:
    states = torch.get_rng_state(), repr(np.random.get_state())  # noqa: NPY002
    found: list[float] = []

    @one_at_a_time
    def drawing(seed: int) -> None:
        torch.manual_seed(seed)
        found.append(seed)
        for _ in range(20):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                with aside():
                    time.sleep(0.001)
            torch.rand(1)
        assert float(torch.rand(1)) == float(torch.rand(21, generator=torch.Generator().manual_seed(seed))[-1])

    filters = list(warnings.filters)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(drawing, range(4)))
    assert torch.equal(torch.get_rng_state(), states[0]) and repr(np.random.get_state()) == states[1]  # noqa: NPY002
    assert warnings.filters == filters and len(found) == 4


def test_a_fit_inside_a_pool_of_threads_does_not_wait_for_itself() -> None:
    method = bz.MAP(num_members=2, num_steps=10, polish_steps=0)
    with ThreadPoolExecutor(2) as pool:
        posterior = bz.fit(MODELS[0], method, *DATA[0], executor=pool, progress=False)
    assert posterior.theta.shape[1] == 2
