"""Threads that fit and predict at the same time get what one thread gets, bit by bit."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import bnnzoo as bz

NUM_THREADS = 8
GENERATOR = torch.Generator().manual_seed(0)
DATA = [(torch.randn(40, 2 + k % 2, generator=GENERATOR), torch.randn(40, generator=GENERATOR)) for k in range(4)]
MODELS = [
    bz.models.supervised(bz.models.mlp(2 + k % 2, (3,)), bz.priors.normal(1.0), bz.likelihoods.gaussian())
    for k in range(4)
]


def fitted(k: int, seed: int) -> list[NDArray[np.floating]]:
    method = (bz.MAP(num_steps=20, polish_steps=5), bz.MeanFieldVI(num_steps=20))[seed % 2]
    return [bz.fit(MODELS[k], method, *DATA[k], seed=seed, progress=False).draws().numpy()]


def test_fits_and_predictions_in_threads_are_those_of_one_thread() -> None:
    method = bz.Laplace(bz.MAP(num_steps=30))
    posteriors = [bz.fit(model, method, *data, progress=False) for model, data in zip(MODELS, DATA, strict=True)]

    def predicted(k: int, seed: int) -> list[NDArray[np.floating]]:
        tree = bz.predict(posteriors[k], DATA[k][0][:5], num_draws=20, seed=seed)
        return [tree["predictions"]["y"].to_numpy(), tree["conditional"]["mean"].to_numpy()]

    jobs = [(predicted, number % 4, number % 3) for number in range(64)] + [
        (fitted, number % 4, number % 2) for number in range(8)
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


def test_a_fit_inside_a_pool_of_threads_does_not_wait_for_itself() -> None:
    method = bz.MAP(num_members=2, num_steps=10, polish_steps=0)
    with ThreadPoolExecutor(2) as pool:
        posterior = bz.fit(MODELS[0], method, *DATA[0], executor=pool, progress=False)
    assert posterior.theta.shape[1] == 2
