"""The most memory that predictions take, each in a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bnnzoo.predictive import datatree

ROOT = Path(__file__).parents[2]
MEBIBYTES_OF_A_STORE = 1024
RATIO_IN_MEMORY = 1.2
needs_proc = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="only Linux says how much was held")


def measured(*case: object) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.memory", "run", *map(str, case)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def test_class_probabilities_are_not_copied() -> None:
    probs = np.full((1, 2, 3, 4), 0.25)
    found = datatree.conditional({"probs": probs})
    assert np.shares_memory(found["probs"].to_numpy(), probs)
    found = datatree.conditional({"a.probs": probs, "b.probs": np.full((1, 2, 3, 2), 0.5)})
    assert found["b.probs"].shape == probs.shape and found["b.probs"][..., 2:].sum() == 0.0


@needs_proc
@pytest.mark.slow
@pytest.mark.parametrize("case", [(20_000, 200, 10), (1_000, 1_000, 100), (300, 200, 1_000), (20_000, 500, 1)])
def test_a_prediction_in_memory_takes_little_beyond_the_tree(case: tuple[int, int, int]) -> None:
    found = measured("memory", *case)
    assert found["added"] <= RATIO_IN_MEMORY * found["tree"] + 2 * found["draws"] + 10.0


@needs_proc
@pytest.mark.slow
@pytest.mark.parametrize("case", [(20_000, 1_000, 10), (200, 1_000, 1_000), (200, 10_000, 10), (100, 100_000, 10)])
def test_a_prediction_to_a_store_takes_less_than_a_gibibyte(case: tuple[int, int, int]) -> None:
    found = measured("store", *case)
    assert found["peak"] < MEBIBYTES_OF_A_STORE
    assert found["added"] < 200.0 + 2.2 * found["draws"]


@needs_proc
@pytest.mark.slow
def test_the_draws_of_a_large_network_are_held_at_most_twice() -> None:
    found = measured("weights", 5, 300, 1)
    assert found["added"] <= 2.0 * found["draws"]
