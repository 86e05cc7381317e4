"""Chains on a posterior whose narrow places take shorter steps than the rest of it."""

from __future__ import annotations

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

import bnnzoo as bz

HITS = torch.tensor([18.0, 17, 16, 15, 14, 14, 13, 12, 11, 11, 10, 10, 10, 10, 10, 9, 8, 7], dtype=torch.float64)


def baseball(hits: Tensor) -> None:
    """Efron and Morris (1975): hits of 18 players in their first 45 at-bats, a centred hierarchy with a narrow neck."""
    loc, scale = pyro.sample("loc", dist.Normal(-1.0, 1.0)), pyro.sample("scale", dist.HalfCauchy(1.0))
    with pyro.plate("players", len(hits)):
        alpha = pyro.sample("alpha", dist.Normal(loc, scale))
        pyro.sample("hits", dist.Binomial(45.0, logits=alpha), obs=hits)


def longest_stay(values: Tensor) -> int:
    """Return the largest number of draws ``[C, S]`` on end at which a chain stands still."""
    longest = 0
    for chain in values:
        _, counts = chain.unique_consecutive(return_counts=True)
        longest = max(longest, int(counts.max()))
    return longest


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.filterwarnings("ignore::bnnzoo.inference.FitWarning")  # the centred form has few effective draws anywhere
def test_no_chain_of_the_baseball_model_is_frozen(seed: int) -> None:
    posterior = bz.fit(baseball, bz.NUTS(), HITS, seed=seed, dtype=torch.float64, progress=False)
    scale = posterior.density.constrain(posterior.draws())["scale"]
    assert longest_stay(scale) < 100
    assert float(scale.std(1).min()) > 0.02  # chains that stood still had hardly any spread
