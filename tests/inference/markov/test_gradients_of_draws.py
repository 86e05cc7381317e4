"""Gradients that draws took, without those of warm-up."""

from dataclasses import replace
from typing import Any

import pytest

import bnnzoo as bz
from bnnzoo.testing.targets import linear_gaussian

TARGET = linear_gaussian()
pytestmark = pytest.mark.filterwarnings("ignore::bnnzoo.FitWarning")  # runs are short


def fitted(method: Any) -> Any:
    return bz.fit(TARGET.model, method, *TARGET.data, progress=False)


@pytest.mark.parametrize("kind", [bz.NUTS, bz.HMC, bz.MAMS, bz.ChEESHMC, bz.MCLMC])
def test_without_warm_up_gradients_are_those_of_draws(kind: Any) -> None:
    """NUTS and HMC take some to begin with: they judge a step size before the first draw."""
    first = fitted(kind(num_chains=2, num_warmup=40, num_draws=20))
    steps = int(first.info.sample_stats["n_steps"].sum())
    assert first.info.num_gradients_of_draws == steps < first.info.num_gradients
    more = fitted(kind(num_chains=2, num_warmup=0, num_draws=20, init=first)).info
    assert (
        0 <= more.num_gradients - more.num_gradients_of_draws <= (2 * 10 if issubclass(kind, bz.HMC | bz.NUTS) else 0)
    )
    joined = first.followed_by(replace(first, info=more))
    assert joined.info.num_gradients_of_draws == steps + more.num_gradients_of_draws


def test_the_warm_up_of_two_runs_is_that_of_both() -> None:
    info = fitted(bz.NUTS(num_chains=2, num_warmup=40, num_draws=20)).info
    assert info.followed_by(info).tuning["num_warmup"].tolist() == [80, 80]


def test_where_steps_are_not_gradients_nothing_is_said() -> None:
    ladders = bz.Tempered(bz.HMC(num_chains=2, num_warmup=20, num_draws=20), num_temperatures=3)
    noisy = bz.SGLD(num_chains=2, num_warmup=20, num_draws=20, batch_size=10, optimise_steps=20)
    assert fitted(noisy).info.num_gradients_of_draws > 0
    for method in (ladders, replace(noisy, control_variates="map")):
        info = fitted(method).info
        assert "n_steps" in info.sample_stats and info.num_gradients_of_draws is None
    assert fitted(bz.MAP()).info.num_gradients_of_draws is None


def test_a_tree_with_some_of_the_draws_says_what_all_of_them_took() -> None:
    posterior = fitted(bz.MAMS(num_chains=2, num_warmup=40, num_draws=20))
    every, some = (bz.to_datatree(posterior, num_draws=num) for num in (None, 5))
    assert some["posterior"].sizes["draw"] < every["posterior"].sizes["draw"]
    for tree in (every, some):
        assert tree.attrs["num_gradients_of_draws"] == posterior.info.num_gradients_of_draws
    assert "num_gradients_of_draws" not in bz.to_datatree(fitted(bz.MAP())).attrs
