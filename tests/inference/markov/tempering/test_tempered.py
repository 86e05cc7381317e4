"""Parallel tempering against quadrature: moments, weights of modes, and evidence."""

import dataclasses
import math
from functools import cache
from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

import bnnzoo as bz
from benchmarks.tempering import (
    CENTRES,
    COUNTS,
    TRIALS,
    WEIGHTS,
    binomial,
    evidence_of_binomial,
    horseshoe,
    mixture,
    rows_of_horseshoe,
)
from bnnzoo.core.model.density import build_density
from bnnzoo.core.program.sites import ModelError
from bnnzoo.inference.markov.tempering.tempered import evidence_along
from bnnzoo.testing import check_moments, linear_gaussian
from bnnzoo.validation import log_evidence
from tests.helpers.executors import InProcess

pytestmark = pytest.mark.filterwarnings("ignore::bnnzoo.inference.FitWarning")

TOP = torch.tensor(4.0, dtype=torch.float64)
QUICK: dict[str, Any] = {"num_chains": 8, "num_warmup": 300, "num_draws": 500}


def two_modes(y: Tensor) -> None:
    """A square is observed: its root has two signs, of which the prior prefers one; its scale is positive."""
    z = pyro.sample("z", dist.Normal(0.3, 2.0))
    scale = pyro.sample("scale", dist.LogNormal(-1.0, 0.5))
    pyro.sample("y", dist.Normal(z * z, scale), obs=y)


@cache
def on_grid() -> dict[str, float]:
    """Return moments of z and of the logarithm of the scale, and the log evidence, by the trapezoidal rule."""
    density = build_density(two_modes, TOP, dtype=torch.float64)
    axes = torch.linspace(-5.0, 5.0, 2001, dtype=torch.float64), torch.linspace(-5.0, 4.0, 181, dtype=torch.float64)
    theta = torch.cartesian_prod(*axes)
    value = torch.func.vmap(lambda each: density.log_joint(each, TOP))(theta)
    cell = 10.0 / 2000 * 9.0 / 180
    probs, z, log_scale = value.softmax(0), theta[:, 0], theta[:, 1]
    mean, below = float(probs @ z), float(probs[z < 0].sum())
    mean_scale = float(probs @ log_scale)
    return {
        "log_evidence": float(value.logsumexp(0)) + math.log(cell),
        "below": below,
        "mean": mean,
        "sd": float(probs @ (z - mean) ** 2) ** 0.5,
        "mean_scale": mean_scale,
        "sd_scale": float(probs @ (log_scale - mean_scale) ** 2) ** 0.5,
    }


@pytest.mark.parametrize(
    ("sampler", "engine"),
    [
        # with longer steps chains seldom leave the narrowest scales
        (bz.HMC(**{**QUICK, "num_draws": 800}, target_accept=0.95), "native"),
        pytest.param(bz.NUTS(**QUICK), "native", marks=pytest.mark.slow),
        pytest.param(bz.NUTS(**QUICK, mass_matrix="dense"), "graph", marks=pytest.mark.slow),
    ],
    ids=["HMC, native", "NUTS, native", "NUTS, dense, graph"],
)
def test_modes_have_their_weights_and_the_model_its_evidence(sampler: Any, engine: str) -> None:
    exact, method = on_grid(), bz.Tempered(sampler, num_temperatures=5)
    posterior: Any = bz.fit(two_modes, method, TOP, seed=1, dtype=torch.float64, progress=False, engine=engine)
    z, log_scale = posterior.draws().numpy().transpose(2, 0, 1)
    below, share = (z < 0).astype(float), exact["below"]
    assert 0.2 < share < 0.45
    check_moments("below", below, share, (share * (1 - share)) ** 0.5, min_ess=200)
    check_moments("z", z, exact["mean"], exact["sd"], min_ess=200)
    check_moments("log scale", log_scale, exact["mean_scale"], exact["sd_scale"], min_ess=200)
    found = log_evidence(posterior)
    assert found.how == "tempering" and found.error < 0.05
    assert abs(found.value - exact["log_evidence"]) < 4 * found.error
    said = posterior.info.config["tempering"]
    assert said["round_trips"] > 200 and posterior.info.sample_stats.keys() == {
        "lp", "energy", "acceptance_rate", "n_steps", "tree_depth", "diverging", "step_size",
    }  # fmt: skip
    rates = np.array(said["rejection_rates"])
    assert rates.mean(0).max() - rates.mean(0).min() < 0.15  # equalised in warm-up
    assert said["communication_barrier"] == pytest.approx(rates.sum(1).mean())


@pytest.mark.slow
def test_a_conjugate_model_has_its_evidence() -> None:
    target = linear_gaussian()
    method = bz.Tempered(bz.HMC(**QUICK), num_temperatures=8)
    posterior = bz.fit(target.model, method, *target.data, seed=2, dtype=torch.float64, engine="native")
    found = log_evidence(posterior)
    assert found.error < 0.06 and abs(found.value - float(target.log_evidence)) < 4 * found.error


@pytest.mark.slow
def test_the_evidence_of_a_longer_run_is_right_to_a_hundredth_of_a_nat() -> None:
    method = bz.Tempered(bz.NUTS(num_chains=4, num_draws=10_000), num_temperatures=6)
    posterior = bz.fit(binomial, method, COUNTS, TRIALS, seed=3, dtype=torch.float64, engine="native")
    found, exact = log_evidence(posterior), evidence_of_binomial(COUNTS, TRIALS)
    assert found.error < 0.01 and abs(found.value - exact) < min(0.01, 4 * found.error)


def test_the_evidence_along_a_path_of_gaussians_and_its_error() -> None:
    r"""Log likelihoods -x^2 s/2 under N(0, 1): densities of the path are Gaussian, of variance 1 / (1 + beta s)."""
    generator, steepness = torch.Generator().manual_seed(0), 30.0
    temperatures = torch.tensor([0.0, 0.02, 0.1, 0.4, 1.0]).double().repeat(4, 1)
    z = []
    for _ in range(60):
        x = torch.randn(4, 200, 5, generator=generator, dtype=torch.float64)
        rest = -0.5 * steepness * x.square() / (1 + steepness * temperatures[:, None])
        value, error = evidence_along(temperatures, rest)
        z.append((value + 0.5 * math.log(1 + steepness)) / error)
    assert abs(np.mean(z)) < 0.5 and 0.75 < np.std(z) < 1.3


def test_a_model_without_data_has_evidence_one() -> None:
    def model() -> None:
        pyro.sample("z", dist.Gamma(2.0, 1.0))

    method = bz.Tempered(bz.HMC(num_chains=2, num_warmup=20, num_draws=20), num_temperatures=3)
    posterior: Any = bz.fit(model, method, engine="python")
    assert posterior.info.config["tempering"]["log_evidence"] == 0.0
    assert posterior.info.config["tempering"]["communication_barrier"] == 0.0


def test_a_ladder_on_an_executor_is_that_of_this_process() -> None:
    method = bz.Tempered(bz.HMC(num_chains=2, num_warmup=20, num_draws=20), num_temperatures=3)
    executor = InProcess()
    here, there = (bz.fit(two_modes, method, TOP, seed=3, executor=each, progress=False) for each in (None, executor))
    assert executor.num_tasks == 2
    assert torch.equal(here.draws(), there.draws())
    assert here.info.config["tempering"] == there.info.config["tempering"]


def flat(y: Tensor) -> None:
    z = pyro.sample("z", dist.ImproperUniform(dist.constraints.real, (), ()))
    pyro.sample("y", dist.Normal(z, 1.0), obs=y)


def masked(y: Tensor) -> None:
    z = pyro.sample("z", dist.Normal(0.0, 1.0).mask(False))
    pyro.sample("y", dist.Normal(z, 1.0), obs=y)


def scaled(y: Tensor) -> None:
    with pyro.poutine.scale(scale=0.5):
        z = pyro.sample("z", dist.Normal(0.0, 1.0))
    pyro.sample("y", dist.Normal(z, 1.0), obs=y)


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (flat, "the prior of site 'z' is improper. Write a proper one"),
        (masked, "the prior of site 'z' is masked or scaled"),
        (scaled, "the prior of site 'z' is masked or scaled"),
    ],
)
def test_a_prior_that_cannot_be_drawn_is_refused(model: Any, sentence: str) -> None:
    with pytest.raises(ModelError, match=sentence):
        bz.fit(model, bz.Tempered(), TOP)


def test_without_a_round_trip_the_evidence_is_refused() -> None:
    method = bz.Tempered(bz.HMC(num_chains=1, num_warmup=0, num_draws=2, step_size=0.1), num_temperatures=2)
    posterior = bz.fit(two_modes, method, TOP, dtype=torch.float64, engine="python")
    said = r"by tempering is not to be trusted: no state went .* num_temperatures \(now 2\)"
    with pytest.raises(ValueError, match=said):
        log_evidence(posterior)


@pytest.mark.slow
def test_three_modes_in_twenty_dimensions() -> None:
    method = bz.Tempered(bz.NUTS(num_chains=8, num_warmup=500, num_draws=8000), num_temperatures=12)
    posterior: Any = bz.fit(mixture, method, seed=1, dtype=torch.float64, engine="native")
    nearest = (posterior.draws()[:, :, None] - CENTRES).square().sum(-1).argmin(-1)
    shares = torch.stack([(nearest == mode).double().mean() for mode in range(3)])
    assert float((shares - WEIGHTS).abs().max()) < 0.03
    found = log_evidence(posterior)
    assert abs(found.value) < 4 * found.error and found.error < 0.1


@pytest.mark.slow
def test_the_evidence_of_a_horseshoe_is_that_of_bridge_sampling() -> None:
    x, y = rows_of_horseshoe()
    budget: dict[str, Any] = {"num_chains": 4, "num_draws": 4000}
    by_bridge = log_evidence(
        bz.fit(horseshoe, bz.NUTS(**budget, target_accept=0.95), x, y, seed=1, dtype=torch.float64, progress=False)
    )
    ladder = bz.Tempered(bz.NUTS(**budget), num_temperatures=8)
    by_ladder = log_evidence(bz.fit(horseshoe, ladder, x, y, seed=1, dtype=torch.float64, progress=False))
    assert abs(by_bridge.value - by_ladder.value) < 4 * math.hypot(by_bridge.error, by_ladder.error)
    assert by_ladder.error < 0.05


def normal_mean(y: Tensor) -> None:
    mu = pyro.sample("mu", dist.Normal(0.0, 2.0))
    with pyro.plate("data", len(y)):
        pyro.sample("y", dist.Normal(mu, 1.0), obs=y)


def rates(y: Tensor) -> None:
    rate = pyro.sample("rate", dist.Gamma(2.0, 0.5))
    with pyro.plate("data", len(y)):
        pyro.sample("y", dist.Poisson(rate), obs=y)


def signs(y: Tensor) -> None:
    z = pyro.sample("z", dist.Normal(0.5, 1.5))
    with pyro.plate("data", len(y)):
        pyro.sample("y", dist.Normal(z.abs(), 0.5), obs=y)


@pytest.mark.slow
@pytest.mark.parametrize("model", [normal_mean, rates, signs])
def test_simulation_based_calibration(model: Any) -> None:
    sampler = bz.HMC(num_chains=4, num_warmup=100, num_draws=100)
    y = torch.ones(4, dtype=torch.float64)
    ranks = bz.validation.sbc(
        model, bz.Tempered(sampler, num_temperatures=5), y, num_simulations=100, num_draws=19, seed=1,
        progress=False, dtype=torch.float64,
    )  # fmt: skip
    assert bz.validation.sbc_verdict(ranks)["uniform"].all()


def test_settings_are_those_of_the_sampler() -> None:
    method = bz.Tempered(bz.NUTS(num_chains=2))
    started = method.starting_at(torch.zeros(3), keep=True)
    assert isinstance(started, bz.Tempered) and dataclasses.replace(started.sampler, init=None) == method.sampler
    with pytest.raises(ValueError, match="write 2 or more"):
        bz.fit(two_modes, bz.Tempered(num_temperatures=1), TOP)
