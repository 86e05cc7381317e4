"""Exact samplers on posteriors known exactly, and what they report about themselves."""

import dataclasses
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import scipy.stats
import torch
from torch import Tensor

from bnnzoo.core.method import Method
from bnnzoo.core.posterior import Draws
from bnnzoo.core.sites import ModelError
from bnnzoo.inference import HMC, MAMS, MAP, MCLMC, NUTS, ChEESHMC, fit
from bnnzoo.inference.markov.hamiltonian.loop import ChainLoop
from bnnzoo.inference.markov.lockstep.langevin import LangevinLoop
from bnnzoo.inference.markov.lockstep.loop import LockstepLoop
from bnnzoo.predictive import to_datatree
from bnnzoo.testing import funnel, ill_conditioned, linear_gaussian, skewed
from bnnzoo.testing.monte_carlo import check_moments

SHORT: dict[str, Any] = {"num_chains": 4, "num_warmup": 200, "num_draws": 150}
METHODS = {
    "NUTS": NUTS(**SHORT),
    "NUTS, dense": NUTS(**SHORT, mass_matrix="dense"),
    "NUTS, fisher": NUTS(**SHORT, mass_matrix="fisher"),
    "HMC": HMC(**SHORT),
    "ChEES-HMC": ChEESHMC(**SHORT),
    "MAMS": MAMS(**SHORT),
    "MCLMC": MCLMC(**SHORT, energy_variance=1e-5),
}
BIAS = {"MCLMC": 0.02}
"""What is granted to a sampler that is not exact, at an energy variance a fiftieth of its default; exact ones get nothing."""


def values(posterior: Draws, site: str) -> Any:
    return posterior.density.constrain(posterior.draws())[site].numpy()


DEFAULT = {"NUTS", "MAMS"}
DTYPES = [torch.float64, pytest.param(torch.float32, marks=pytest.mark.slow)]
VARIANTS = [name if name in DEFAULT else pytest.param(name, marks=pytest.mark.slow) for name in METHODS]


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_linear_gaussian_posterior(name: str, dtype: torch.dtype) -> None:
    target = linear_gaussian()
    posterior = fit(target.model, METHODS[name], *target.data, seed=1, dtype=dtype)
    check_moments("w", values(posterior, "w"), target.mean["w"], target.sd["w"], accuracy=BIAS.get(name, 0.0))
    assert "diverging" not in posterior.info.sample_stats or int(posterior.info.sample_stats["diverging"].sum()) == 0


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_skewed_posterior(name: str, dtype: torch.dtype) -> None:
    target = skewed(num_rates=3)
    posterior = fit(target.model, METHODS[name], *target.data, seed=2, dtype=dtype)
    moments = target.mean["rate"], target.sd["rate"]
    check_moments("rate", values(posterior, "rate"), *moments, accuracy=BIAS.get(name, 0.0))


@pytest.mark.parametrize("name", ["NUTS", *(pytest.param(n, marks=pytest.mark.slow) for n in ("HMC", "ChEES-HMC"))])
def test_a_single_skewed_parameter(name: str) -> None:
    target = skewed()
    posterior = fit(target.model, METHODS[name], *target.data, seed=2)
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


def test_steps_grow_as_chains_come_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """Far out a step costs a million times the energy of one at typical points; that must not keep it short for long."""
    target, errors = linear_gaussian(), []
    advance = LangevinLoop.advance

    def watched(loop: LangevinLoop) -> None:
        advance(loop)
        errors.append(loop.energy_error)

    monkeypatch.setattr(LangevinLoop, "advance", watched)
    method = MCLMC(num_chains=2, num_warmup=60, num_draws=1, init=torch.full((2, 3), 1e4))
    fit(target.model, method, *target.data, seed=6)
    assert float(np.median(errors[30:60])) > method.energy_variance / 10


def test_a_draw_ends_however_long_directions_last() -> None:
    target = linear_gaussian()
    method = MCLMC(num_chains=1, num_warmup=20, num_draws=2, decoherence_length=1e12)
    tree = to_datatree(fit(target.model, method, *target.data))
    assert (tree["sample_stats"]["n_steps"] == 1000).all()


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
    method = dataclasses.replace(METHODS[name], num_warmup=400, num_draws=10 * NUM_RANKS, num_chains=1)
    posterior = fit(many_small_studies, method, y, seed=7)
    for site, true in truth.items():
        draws = values(posterior, site)[0, 9::10]
        ranks = (draws < true.numpy()).sum(0)
        counts = np.bincount(ranks // 4, minlength=(NUM_RANKS + 1) // 4)
        assert scipy.stats.chisquare(counts).pvalue > 1e-3, (site, counts)


def test_funnel_reports_divergences() -> None:
    posterior = fit(funnel().model, NUTS(num_chains=2, num_warmup=60, num_draws=60, max_tree_depth=5), seed=0)
    assert int(posterior.info.sample_stats["diverging"].sum()) > 0


def test_statistics_are_those_of_the_draws() -> None:
    target = linear_gaussian()
    posterior = fit(target.model, NUTS(num_chains=2, num_warmup=100, num_draws=50), *target.data, seed=4)
    stats = posterior.info.sample_stats
    theta = posterior.draws().flatten(0, 1)
    expected, _ = posterior.density.value_and_grad(theta, *target.data)
    torch.testing.assert_close(stats["lp"].flatten(), expected)
    assert set(stats) == {"lp", "energy", "acceptance_rate", "n_steps", "tree_depth", "diverging", "step_size"}
    assert bool((stats["energy"] >= -stats["lp"]).all())
    assert bool((stats["acceptance_rate"] <= 1).all()) and bool((stats["acceptance_rate"] > 0).all())
    depth, steps = stats["tree_depth"], stats["n_steps"]
    assert bool((steps < 2 ** (depth + 1)).all()) and bool((steps >= 2**depth - 1).all())
    assert len(stats["step_size"][0].unique()) == 1
    assert posterior.info.num_gradients >= int(steps.sum())


@pytest.mark.slow
def test_a_higher_acceptance_asked_for_gives_shorter_steps() -> None:
    target = linear_gaussian()
    careful, bold = (
        fit(target.model, NUTS(num_chains=2, num_warmup=200, num_draws=50, target_accept=rate), *target.data, seed=5)
        for rate in (0.95, 0.6)
    )
    rates = [float(p.info.sample_stats["acceptance_rate"].mean()) for p in (careful, bold)]
    steps = [float(p.info.sample_stats["step_size"].mean()) for p in (careful, bold)]
    assert rates[0] > 0.9 > rates[1] > 0.6
    assert steps[0] < steps[1]


def test_chains_do_not_depend_on_their_batch() -> None:
    target = linear_gaussian()
    start = torch.randn(3, 3, generator=torch.Generator().manual_seed(0))
    settings: dict[str, Any] = {"num_warmup": 60, "num_draws": 20}
    together = fit(target.model, NUTS(num_chains=3, init=start, **settings), *target.data, seed=6)
    apart = fit(target.model, NUTS(num_chains=3, init=start, **settings), *target.data, seed=6, executor=InProcess())
    torch.testing.assert_close(together.draws(), apart.draws(), rtol=1e-6, atol=1e-6)
    assert apart.info.num_gradients > 0 and apart.info.complete


class InProcess(Executor):
    """An executor that runs each task at once, in the caller's process."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        threads = torch.get_num_threads()
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        torch.set_num_threads(threads)
        return future


def test_model_is_called_at_most_three_times() -> None:
    target = linear_gaussian()
    calls = []

    def counting(x: Tensor, y: Tensor | None = None) -> None:
        calls.append(1)
        target.model(x, y)

    posterior = fit(counting, NUTS(num_chains=2, num_warmup=200, num_draws=200), *target.data)
    assert posterior.info.num_gradients > 1000
    assert len(calls) <= 3


def test_start_from_optimised_members() -> None:
    target = linear_gaussian()
    method = NUTS(num_chains=2, num_warmup=50, num_draws=20, init=MAP(num_members=2))
    assert fit(target.model, method, *target.data).draws().shape == (2, 20, 3)


def test_interrupted_run_returns_the_draws_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    target = linear_gaussian()
    kept = ChainLoop._keep

    def interrupting(loop: ChainLoop, chain: int, theta: Tensor, stats: Tensor) -> None:
        kept(loop, chain, theta, stats)
        if int(loop.counts.min()) >= 70:
            raise KeyboardInterrupt

    monkeypatch.setattr(ChainLoop, "_keep", interrupting)
    posterior = fit(target.model, NUTS(num_chains=2, num_warmup=50, num_draws=100), *target.data)
    assert posterior.draws().shape == (2, 20, 3)
    assert not posterior.info.complete
    assert bool((posterior.draws() != 0).all())


@pytest.mark.parametrize("when", [3, 35])
def test_interrupted_groups_do_not_go_on_to_the_next(when: int, monkeypatch: pytest.MonkeyPatch) -> None:
    target = linear_gaussian()
    kept, begun = LockstepLoop.advance, []

    def interrupting(loop: LockstepLoop) -> None:
        kept(loop)
        begun.append(loop)
        if loop.count == when and len(set(map(id, begun))) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(LockstepLoop, "advance", interrupting)
    posterior = fit(target.model, MAMS(num_chains=6, num_groups=3, num_warmup=20, num_draws=20), *target.data)
    assert posterior.draws().shape == (2, 20, 3) and not posterior.info.complete
    assert len(set(map(id, begun))) == 2


@pytest.mark.parametrize(
    ("method", "sentence"),
    [
        (NUTS(num_groups=0), r"NUTS\(num_groups=0\): write 1 or more\."),
        (NUTS(num_chains=0), r"NUTS\(num_chains=0\): write 1 or more\."),
        (HMC(num_draws=0), r"HMC\(num_draws=0\): write 1 or more\."),
        (NUTS(target_accept=1.2), r"target_accept=1\.2\): write an acceptance rate between 0 and 1"),
        (NUTS(num_warmup=0), r"NUTS\(num_warmup=0\) tunes nothing: give step_size"),
        (NUTS(init=torch.zeros(4, 5)), r"init has shape \(4, 5\), but 4 chains .* with 3 unconstrained parameters"),
        (HMC(trajectory_length=-1.0), r"HMC\(trajectory_length=-1\.0"),
        (
            MAMS(trajectory_length=0.0),
            r"MAMS\(trajectory_length=0\.0, max_steps=1000\): the length is positive, or None",
        ),
        (ChEESHMC(target_accept=0.0), r"ChEESHMC\(target_accept=0\.0\): write an acceptance rate"),
        (MCLMC(energy_variance=0.0), r"MCLMC\(energy_variance=0\.0\): write a positive number"),
        (MCLMC(num_warmup=0), r"MCLMC\(num_warmup=0\) tunes nothing"),
    ],
)
def test_impossible_settings(method: Method, sentence: str) -> None:
    target = linear_gaussian()
    with pytest.raises(ValueError, match=sentence):
        fit(target.model, method, *target.data)


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


def test_short_run_without_windows() -> None:
    posterior = fit(linear_gaussian().model, NUTS(num_chains=1, num_warmup=10, num_draws=5), *linear_gaussian().data)
    assert np.isfinite(posterior.draws().numpy()).all()


@pytest.mark.parametrize("method", [MAMS(), MCLMC()])
def test_a_direction_needs_two_parameters(method: Method) -> None:
    with pytest.raises(ValueError, match=r"turns a direction .* has 1 unconstrained parameter \(rate\)\. Use NUTS\(\)"):
        fit(skewed().model, method, *skewed().data)


def test_a_step_into_nowhere_is_told() -> None:
    def cliff() -> None:
        z = pyro.sample("z", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        pyro.factor("cliff", (1.0 - z.square().sum()).clamp(min=0.0).log())

    start = torch.zeros(1, 2)
    method = MCLMC(num_chains=1, num_warmup=0, num_draws=100, step_size=0.7, init=start)
    with pytest.raises(
        FloatingPointError, match=r"MCLMC: chain 0 left the region .* at draw \d+ with step size 0\.7\. Lower"
    ):
        fit(cliff, method)
