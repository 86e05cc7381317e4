"""Chains as programs: every engine gives the same draws, and no random number is used twice."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from bnnzoo.core.model.density import build_density
from bnnzoo.core.posterior.posterior import Posterior
from bnnzoo.engine.choose import Engine
from bnnzoo.inference import PSGLD, SGHMC, SGLD, CyclicalSGMCMC, StochasticMCLMC, fit
from bnnzoo.inference.markov.stochastic import stochastic_program
from bnnzoo.inference.markov.stochastic.stochastic_dynamics import Measured, Step, StochasticDynamics
from bnnzoo.inference.markov.stochastic.stochastic_sampler import StochasticChains
from bnnzoo.inference.markov.stochastic.stochastic_settings import plan_of
from bnnzoo.testing import linear_gaussian

TARGET = linear_gaussian()
QUICK: dict[str, Any] = {"num_chains": 2, "num_warmup": 20, "num_draws": 20, "optimise_steps": 5, "steps_per_draw": 6}
MINI, WHOLE = {"batch_size": 10}, {"batch_size": 40}


def slow(kind: Any, **settings: Any) -> Any:
    return pytest.param(kind(**QUICK, **settings), marks=pytest.mark.slow)


METHODS = [
    SGHMC(**QUICK, **MINI, noise_correction=True),
    StochasticMCLMC(**QUICK, **WHOLE),
    slow(SGHMC, **MINI),
    slow(SGHMC, **WHOLE),
    slow(SGLD, **MINI),
    slow(SGLD, **MINI, control_variates="map", preconditioning=None),
    slow(SGLD, **MINI, control_variates="svrg", schedule="cosine"),
    slow(SGLD, **WHOLE),
    slow(PSGLD, **MINI),
    slow(PSGLD, **WHOLE),
    slow(StochasticMCLMC, **MINI),
    slow(CyclicalSGMCMC, **MINI, num_cycles=4),
    slow(CyclicalSGMCMC, **WHOLE, num_cycles=4),
]


def fitted(method: Any, engine: Engine) -> Posterior:
    return fit(TARGET.model, method, *TARGET.data, seed=3, dtype=torch.float64, progress=False, engine=engine)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)
def test_engines_give_equal_draws(method: Any) -> None:
    native, graph = fitted(method, "native"), fitted(method, "graph")
    torch.testing.assert_close(native.draws(), graph.draws(), rtol=1e-6, atol=1e-6)
    assert native.info.num_gradients == graph.info.num_gradients
    assert native.info.engine.engine == "native" and graph.info.engine.engine in ("graph", "compiled graph")
    assert native.info.engine.running > 0.0 and not native.info.engine.fell_back
    for name, values in graph.info.sample_stats.items():
        torch.testing.assert_close(native.info.sample_stats[name], values, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("method", [SGHMC(**QUICK | {"num_draws": 5}, **MINI), slow(StochasticMCLMC, **MINI)])
def test_python_gives_the_draws_of_graphs(method: Any) -> None:
    torch.testing.assert_close(fitted(method, "python").draws(), fitted(method, "graph").draws(), rtol=1e-6, atol=1e-6)


@pytest.mark.slow
def test_draws_in_native_code_do_not_depend_on_the_length_of_chunks() -> None:
    density, start = build_density(TARGET.model, *TARGET.data), torch.zeros(2, 3)
    method = SGLD(**QUICK, **MINI)
    found = []
    for budget in (7, 1000):
        how: Any = method, start, 0, 0, "native"
        chains = StochasticChains(Spy(), plan_of(method, density), density, *how)
        while int(chains.counts.min()) < 40:
            chains.fleet._budget = budget  # type: ignore[union-attr]
            chains.advance()
        assert chains.fleet.how == "compiled"
        found.append(chains.draws)
    assert torch.equal(*found)


@dataclass(frozen=True)
class Spy:
    """Dynamics that write down the noise that they are given, behind what they were given before."""

    preconditioned: bool = False
    counts_noise: bool = False

    def start(self, measured: Measured, noise: Tensor) -> tuple[Tensor, ...]:
        """Return an empty list."""
        return (torch.full((len(noise), 40 * 6 * 3), -1.0),)

    def step_size(self, measured: Measured) -> Tensor:
        """Return a size that moves nothing."""
        return torch.full_like(measured.stiffness, 1e-3)

    def reversed(self, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return the same."""
        return state

    def move(
        self, gradient: Tensor, state: tuple[Tensor, ...], step: Step, noise: Tensor
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Stay, and write down."""
        return 1e-6 * noise, (torch.cat([state[0][len(noise) :], noise]),)


def test_no_place_of_a_stream_is_used_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stochastic_program, "normals", lambda key, counter, dtype: counter.to(dtype))
    assert isinstance(Spy(), StochasticDynamics)
    density, method = build_density(TARGET.model, *TARGET.data), SGLD(**QUICK, **MINI)
    chains = StochasticChains(Spy(), plan_of(method, density), density, method, torch.zeros(2, 3), 0, 0, "graph")
    while int(chains.counts.min()) < 40:
        chains.advance()
    for seen in chains.fleet.moving.carried[0]:
        assert torch.equal(seen, torch.arange(40 * 6 * 3).to(seen))
