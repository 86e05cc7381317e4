"""Fits that are to come count in the choice of an engine, and change no result by more than rounding."""

from dataclasses import dataclass

import pyro
import pyro.distributions as dist
import pytest
import torch

import bnnzoo as bz
from bnnzoo.engine.fits import fits_to_come, over_all_fits
from bnnzoo.inference.config import run_together
from bnnzoo.inference.many import ManyFits


def model(x: torch.Tensor, y: torch.Tensor) -> None:
    b = pyro.sample("b", dist.Normal(torch.zeros(2), 1.0).to_event(1))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Normal(x @ b, 1.0), obs=y)


def test_numbers_count_over_all_fits_and_only_inside() -> None:
    with fits_to_come(20):
        assert over_all_fits(7) == 140
    assert over_all_fits(7) == 7


def test_short_chains_run_in_native_code_if_there_are_many_of_them() -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(20, 2, generator=generator), torch.randn(20, generator=generator)
    method = bz.NUTS(num_chains=1, num_warmup=30, num_draws=30)
    alone = bz.fit(model, method, x, y, progress=False)
    with fits_to_come(1000):
        among = bz.fit(model, method, x, y, progress=False)
    assert alone.info.engine.engine == "graph"
    assert among.info.engine.engine == "native"
    torch.testing.assert_close(among.draws()[:, :20], alone.draws()[:, :20], atol=1e-6, rtol=0)


@dataclass
class Scaled:
    """A model that cannot be hashed, since it is compared by value."""

    scale: float

    def __call__(self, x: torch.Tensor, y: torch.Tensor) -> None:
        b = pyro.sample("b", dist.Normal(torch.zeros(2), 1.0).to_event(1))
        with pyro.plate("rows", len(x)):
            pyro.sample("y", dist.Normal(x @ b, self.scale), obs=y)


def test_models_that_cannot_be_hashed_are_fitted_many_times() -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(12, 2, generator=generator), torch.randn(12, generator=generator)
    method = bz.NUTS(num_chains=1, num_warmup=20, num_draws=20)
    with fits_to_come(1000):
        first, again = (bz.fit(Scaled(1.0), method, x, y, progress=False) for _ in range(2))
    assert torch.equal(first.draws(), again.draws())


def test_calibration_and_folds_say_how_many_fits_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def noted(*args: object) -> object:
        seen.append(over_all_fits(len(args[1])))
        return run_together(*args)

    monkeypatch.setattr("bnnzoo.inference.many.run_together", noted)
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(12, 2, generator=generator), torch.randn(12, generator=generator)
    method = bz.Laplace(bz.MAP(num_steps=20))
    bz.validation.sbc(model, method, x, y, num_simulations=3, num_draws=9, progress=False)
    bz.validation.kfold(model, method, x, y, num_folds=4)
    assert seen == [3 * 3, 4 * 4]


STATE = {"scale": 1.0}


def changing(x: torch.Tensor, y: torch.Tensor) -> None:
    b = pyro.sample("b", dist.Normal(torch.zeros(2), 1.0).to_event(1))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Normal(x @ b, STATE["scale"]), obs=y)


def test_a_graph_is_taken_again_only_where_it_gives_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(20, 2, generator=generator), torch.randn(20, generator=generator)
    method = bz.NUTS(num_chains=1, num_warmup=50, num_draws=50)
    fits = ManyFits(changing, method, 1000)
    fits([(x, y)], [0])
    (again,) = fits([(x, 2 * y)], [0])
    monkeypatch.setitem(STATE, "scale", 3.0)
    (changed,) = fits([(x, y)], [0])
    wide = bz.fit(changing, method, x, y, progress=False, engine="native")
    monkeypatch.setitem(STATE, "scale", 1.0)
    alone = bz.fit(changing, method, x, 2 * y, progress=False, engine="native")
    assert torch.equal(again.draws(), alone.draws())
    assert torch.equal(changed.draws(), wide.draws())
    assert again.info.engine.tracing == 0.0
    assert changed.info.engine.tracing > 0.0
