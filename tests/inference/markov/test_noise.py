"""Random numbers by key and counter."""

import numpy as np
import pytest
import scipy.stats
import torch

from bnnzoo.inference.markov.noise import keys_of, normals, uniforms, words

MASK = (1 << 64) - 1


def splitmix(state: int) -> int:
    """SplitMix64 in Python's own integers."""
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & MASK
    return state ^ (state >> 31)


def test_bits_are_those_of_splitmix() -> None:
    key = keys_of(3, 1, 1)[0]
    found = words(key, torch.arange(20)).numpy().astype(np.uint64).tolist()
    assert found == [splitmix((int(key) + i * 0x9E3779B97F4A7C15) & MASK) for i in range(20)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_distributions(dtype: torch.dtype) -> None:
    first, second = keys_of(0, 0, 2)
    places = torch.arange(100_000)
    uniform, normal = uniforms(first, places, dtype), normals(second, places, dtype)
    assert uniform.dtype == normal.dtype == dtype
    assert float(uniform.min()) > 0 and float(uniform.max()) < 1
    assert scipy.stats.kstest(uniform.double().numpy(), "uniform").pvalue > 1e-3
    assert scipy.stats.kstest(normal.double().numpy(), "norm").pvalue > 1e-3
    pairs = torch.stack([normal[:-1], normal[1:]]).double()
    assert abs(float(torch.corrcoef(pairs)[0, 1])) < 4 / 100_000**0.5


def test_streams_depend_on_seed_and_chain_alone() -> None:
    assert torch.equal(keys_of(1, 2, 3), keys_of(1, 2, 3))
    assert len({int(key) for seed in range(5) for chain in range(5) for key in keys_of(seed, chain, 4)}) == 100


def test_numbers_do_not_depend_on_how_many_are_asked_for() -> None:
    key = keys_of(0, 0, 1)[0]
    whole = normals(key, torch.arange(50), torch.float64)
    assert torch.equal(whole[17], normals(key, torch.tensor(17), torch.float64))
