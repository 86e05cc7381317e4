"""Samplers on posteriors known in closed form: moments, simulation-based calibration, and what all of them refuse."""

import dataclasses
from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import scipy.stats
import torch
from torch import Tensor

from bnnzoo.core.program.sites import ModelError
from bnnzoo.inference import HMC, MAMS, MAP, MCLMC, NUTS, ChEESHMC, fit
from bnnzoo.testing import funnel, ill_conditioned, linear_gaussian, skewed
from bnnzoo.testing.monte_carlo import check_moments
from tests.helpers.counting import Counting
from tests.helpers.samplers import BIAS, SAMPLERS, values

pytestmark = pytest.mark.filterwarnings("ignore::bnnzoo.inference.FitWarning")  # the tests judge the draws themselves

DTYPES = [torch.float64, pytest.param(torch.float32, marks=pytest.mark.slow)]


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_linear_gaussian_posterior(name: str, dtype: torch.dtype) -> None:
    target = linear_gaussian()
    posterior = fit(target.model, SAMPLERS[name], *target.data, seed=1, dtype=dtype)
    check_moments("w", values(posterior, "w"), target.mean["w"], target.sd["w"], accuracy=BIAS.get(name, 0.0))
    assert "diverging" not in posterior.info.sample_stats or int(posterior.info.sample_stats["diverging"].sum()) == 0


@pytest.mark.parametrize(
    "name", [name if name == "MAMS" else pytest.param(name, marks=pytest.mark.slow) for name in SAMPLERS]
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_skewed_posterior(name: str, dtype: torch.dtype) -> None:
    target = skewed(num_rates=3)
    posterior = fit(target.model, SAMPLERS[name], *target.data, seed=2, dtype=dtype)
    moments = target.mean["rate"], target.sd["rate"]
    check_moments("rate", values(posterior, "rate"), *moments, accuracy=BIAS.get(name, 0.0))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["NUTS", "HMC", "ChEES-HMC"])
def test_a_single_skewed_parameter(name: str) -> None:
    target = skewed()
    posterior = fit(target.model, SAMPLERS[name], *target.data, seed=2)
    check_moments("rate", values(posterior, "rate"), target.mean["rate"], target.sd["rate"])


LONG: dict[str, Any] = {"num_chains": 4, "num_warmup": 600, "num_draws": 500}


@pytest.mark.slow
@pytest.mark.parametrize("kind", [NUTS, HMC, ChEESHMC, MAMS, MCLMC])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_ill_conditioned_posterior(kind: type[Any], dtype: torch.dtype) -> None:
    target = ill_conditioned()
    method = MCLMC(**LONG, energy_variance=1e-5) if kind is MCLMC else kind(**LONG)
    posterior = fit(target.model, method, *target.data, seed=3, dtype=dtype)
    assert posterior.draws().dtype == dtype
    check_moments("w", values(posterior, "w"), target.mean["w"], target.sd["w"], accuracy=BIAS.get(kind.__name__, 0.0))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [NUTS, HMC, ChEESHMC, MAMS, MCLMC])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_funnel(kind: type[Any], dtype: torch.dtype) -> None:
    target = funnel(width=1.0)
    careful = {"energy_variance": 1e-5} if kind is MCLMC else {"target_accept": 0.95}
    posterior = fit(target.model, kind(**LONG, **careful), seed=5, dtype=dtype)
    check_moments("v", values(posterior, "v"), target.mean["v"], target.sd["v"], accuracy=BIAS.get(kind.__name__, 0.0))


NUM_REPLICATES, NUM_RANKS = 150, 19


def many_small_studies(y: Tensor) -> None:
    """Independent studies, each with a location and a scale of its own drawn from the prior."""
    location = pyro.sample("location", dist.Normal(0.0, 1.0).expand([len(y)]).to_event(1))
    scale = pyro.sample("scale", dist.LogNormal(0.0, 0.5).expand([len(y)]).to_event(1))
    with pyro.plate("data", len(y)):
        pyro.sample("y", dist.Normal(location[:, None], scale[:, None]).expand(y.shape).to_event(1), obs=y)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["NUTS", "HMC", "ChEES-HMC", "MAMS"])
def test_simulation_based_calibration(name: str) -> None:
    """Ranks of the true parameters among posterior draws are uniform, over studies simulated from the prior.

    The studies are independent, so their posteriors are, and one fit gives a rank for each of them.
    """
    generator = torch.Generator().manual_seed(0)
    truth = {
        "location": torch.randn(NUM_REPLICATES, generator=generator),
        "scale": (0.5 * torch.randn(NUM_REPLICATES, generator=generator)).exp(),
    }
    noise = torch.randn(NUM_REPLICATES, 4, generator=generator)
    y = truth["location"][:, None] + truth["scale"][:, None] * noise
    method = dataclasses.replace(SAMPLERS[name], num_warmup=400, num_draws=10 * NUM_RANKS, num_chains=1)
    posterior = fit(many_small_studies, method, y, seed=7)
    for site, true in truth.items():
        draws = values(posterior, site)[0, 9::10]
        ranks = (draws < true.numpy()).sum(0)
        counts = np.bincount(ranks // 4, minlength=(NUM_RANKS + 1) // 4)
        assert scipy.stats.chisquare(counts).pvalue > 1e-3, (site, counts)


def test_model_is_called_at_most_six_times() -> None:
    target = linear_gaussian()
    model = Counting(target.model)
    posterior = fit(model, NUTS(num_chains=2, num_warmup=200, num_draws=200), *target.data)
    assert posterior.info.num_gradients > 1000
    assert (
        model.calls <= 6
    )  # read, run again, compared with differences at each site, traced, and remembered at two points


def test_start_from_optimised_members() -> None:
    target = linear_gaussian()
    method = NUTS(num_chains=2, num_warmup=50, num_draws=20, init=MAP(num_members=2))
    assert fit(target.model, method, *target.data).draws().shape == (2, 20, 3)


def test_start_where_the_density_is_not_finite() -> None:
    def model(y: Tensor) -> None:
        mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
        with pyro.plate("data", len(y)):
            pyro.sample("y", dist.Normal(mu, 1.0).mask(torch.tensor(True)), obs=y)
        pyro.factor("impossible", -torch.inf * torch.ones(()))

    with pytest.raises(
        ModelError, match=r"not finite at the start of chain 0: site 'impossible' has log probability -inf"
    ):
        fit(model, NUTS(), torch.ones(3))
    with pytest.raises(
        ModelError, match=r"starting points with init=\.\.\., or fit with dtype=torch\.float64, which rounds less\."
    ):
        fit(model, NUTS(), torch.ones(3), dtype=torch.float32)
