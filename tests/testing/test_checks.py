"""The checks see broken models, methods and measures: each promise is broken once."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
import xarray as xr

from bnnzoo.core.method import Need
from bnnzoo.testing import check_measure, check_method, check_model, example_tree, leaves_no_trace
from tests.helpers.oracle import INFO, Oracle


def test_an_exact_method_passes():
    check_method(Oracle())


@pytest.mark.parametrize(
    ("spoilt", "sentence"),
    [
        (Oracle(shift=0.5), r"mean of Oracle: w\[\d\] is off by"),
        (Oracle(scale=0.8), r"variance of Oracle: w\[\d\] is off by"),
        (Oracle(noise=1e-3), "Oracle: two fits with seed 0 differ by up to"),
        (Oracle(touches_store=True), "Oracle changed Pyro's global parameter store"),
        (Oracle(info=replace(INFO, num_gradients=0)), "num_gradients is 0"),
        (Oracle(info=replace(INFO, sampling="ensemble")), "a member is .* posterior sds off the mode"),
    ],
)
def test_a_broken_promise_of_a_method_is_seen(spoilt, sentence):
    with pytest.raises(AssertionError, match=sentence):
        check_method(spoilt)


def test_fit_shields_the_global_streams_from_a_method_that_draws_from_them():
    check_method(Oracle(touches_stream=True))


def test_a_method_must_have_defaults():
    @dataclass(frozen=True)
    class Demanding(Oracle):
        needs: ClassVar[frozenset[Need]] = frozenset()
        step_size: float = 0.1

    @dataclass
    class Mutable:
        needs: ClassVar[frozenset[Need]] = frozenset()

    check_method(Demanding())
    with pytest.raises(AssertionError, match="Mutable must be a frozen dataclass"):
        check_method(Mutable())  # type: ignore[arg-type]


def test_a_method_that_needs_a_network_must_refuse_a_model_without():
    @dataclass(frozen=True)
    class Layered(Oracle):
        needs: ClassVar[frozenset[Need]] = frozenset({Need.NETWORK})

    check_method(Layered())


def test_a_model_whose_density_hangs_on_chance_is_seen():
    def model(y):
        z = pyro.sample("z", dist.Normal(0.0, 1.0))
        with pyro.plate("data", len(y)):
            pyro.sample("y", dist.Normal(z + torch.randn(()), 1.0), obs=y)

    with pytest.raises(
        AssertionError, match=r"The log density at one point is .* draws random numbers outside of pyro\.sample"
    ):
        check_model(model, torch.zeros(3))


def test_a_model_without_a_finite_density_is_seen():
    def model(y):
        z = pyro.sample("z", dist.Normal(0.0, 1.0))
        with pyro.plate("data", len(y)):
            pyro.sample("y", dist.Normal(z, 1.0), obs=y)
            pyro.factor("hard", -torch.inf * torch.ones_like(y))

    with pytest.raises(AssertionError, match="The log density is -inf at a starting point"):
        check_model(model, torch.zeros(3))


def mean_of(tree: xr.DataTree) -> xr.DataArray:
    """A sound measure."""
    return tree["conditional"]["mean"].mean(("chain", "draw"))


def test_a_sound_measure_passes():
    check_measure(mean_of, example_tree("regression"))


@pytest.mark.parametrize(
    ("measure", "sentence"),
    [
        (lambda tree: tree["conditional"]["mean"].isel(chain=0, draw=0), "depends on the order of draws"),
        (
            lambda tree: tree["conditional"]["mean"].mean("draw").max("chain"),
            "depends on how draws are spread over chains",
        ),
        (lambda tree: mean_of(tree).cumsum("obs_id"), "depends on the order of rows"),
        (lambda tree: mean_of(tree) * np.nan, "holds values that are not finite"),
        (lambda tree: mean_of(tree) + np.random.default_rng().normal(), "gives another result when called again"),
    ],
)
def test_a_broken_promise_of_a_measure_is_seen(measure, sentence):
    with pytest.raises(AssertionError, match=sentence):
        check_measure(measure, example_tree("regression"))


def test_a_measure_that_changes_its_argument_is_seen():
    def greedy(tree: xr.DataTree) -> xr.DataArray:
        tree["conditional"]["mean"][:] = 0.0
        return mean_of(tree)

    with pytest.raises(AssertionError, match="greedy changes the tree it is given"):
        check_measure(greedy, example_tree("regression"))


def test_diagnostics_may_look_at_chains():
    def between(tree: xr.DataTree) -> xr.DataArray:
        return tree["conditional"]["mean"].mean("draw").std("chain")

    check_measure(between, example_tree("regression"), uses_chains=True)


def test_numpy_s_global_stream_is_watched():
    def leak() -> None:
        with leaves_no_trace("The leak"):
            np.random.rand()  # noqa: NPY002 - this is the leak

    with pytest.raises(AssertionError, match="The leak changed numpy's global random stream"):
        leak()
