"""The gap between two clusters, where the exact posterior knows that it does not know."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import bnnzoo as bz
from bnnzoo.core.types import Method

pytestmark = [pytest.mark.reference, pytest.mark.slow]


@dataclass(frozen=True)
class Slice:
    """Mean and sd of the noise-free function along the diagonal, and where on it the gap is."""

    mean: NDArray[np.floating]
    sd: NDArray[np.floating]
    gap: NDArray[np.bool_]


@pytest.fixture(scope="module")
def published(bnnzoo_data: Path) -> Slice:
    arrays = np.load(bnnzoo_data / "foong2d" / "hmc_1HL.npz")
    gap = np.abs(arrays["lambdas"]) < 0.6
    return Slice(arrays["pred_mean_slice"], np.sqrt(arrays["pred_var_slice"]), gap)


def fitted(method: Method, folder: Path, seed: int = 0) -> Slice:
    """Fit the network of the paper and return its function along the diagonal."""
    arrays = np.load(folder / "foong2d" / "hmc_1HL.npz")
    net = bz.models.mlp(2, (50,), 1, activation="relu")
    prior = bz.priors.fan_in(4.0, 1.0)
    model = bz.models.supervised(net, prior=prior, likelihood=bz.likelihoods.gaussian(0.1))
    posterior = bz.fit(model, method, arrays["inputs"], arrays["outputs"], seed=seed, dtype=torch.float64)
    tree = bz.predict(posterior, arrays["xlambdas"], num_draws=None if isinstance(method, bz.NUTS | bz.MAMS) else 2000)
    f = tree["conditional"]["mean"]
    return Slice(
        f.mean(("chain", "draw")).to_numpy(), f.std(("chain", "draw")).to_numpy(), np.abs(arrays["lambdas"]) < 0.6
    )


MEAN_TOLERANCE = 0.25
"""The published mean is itself off by up to 0.19 in the gap: two independent implementations of NUTS, this one and NumPyro's,
agree with each other to 0.04 there, which is their Monte Carlo error, and differ from the published mean alike."""


@pytest.mark.parametrize("sampler", [bz.NUTS, bz.MAMS])
def test_exact_samplers_reproduce_the_published_function(sampler: Any, published: Slice, bnnzoo_data: Path) -> None:
    found = fitted(sampler(num_chains=4, num_warmup=500, num_draws=1000), bnnzoo_data)
    ratio = found.sd[published.gap] / published.sd[published.gap]
    assert float(np.abs(ratio - 1).max()) < 0.15
    assert float(np.abs(found.mean - published.mean)[published.gap].max()) < MEAN_TOLERANCE
