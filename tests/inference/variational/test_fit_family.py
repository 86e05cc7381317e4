"""Maximising the bound: restarts, early stopping, executors, interrupts, and what all variational methods refuse."""

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

from bnnzoo.core.method import FitContext, Method, Silent
from bnnzoo.core.model.density import build_density
from bnnzoo.core.posterior.posterior import Gaussian, Mixture
from bnnzoo.inference import MAP, FlowVI, FullRankVI, LastLayerVI, LowRankVI, MeanFieldVI, SubsetVI, fit
from bnnzoo.inference.variational.fit_family import GaussianVI, fit_family
from bnnzoo.inference.variational.mean_field_vi import MeanField
from bnnzoo.testing import linear_network
from bnnzoo.testing.targets import banana, linear_gaussian
from tests.helpers.counting import Counting
from tests.helpers.executors import InProcess


def test_restarts_are_chains_and_the_best_can_be_kept() -> None:
    def two_modes(y: Tensor) -> None:
        a = pyro.sample("a", dist.Normal(1.0, 2.0))  # the mode at +1 has more prior
        with pyro.plate("data", len(y)):
            pyro.sample("y", dist.Normal(a**2, 0.5), obs=y)

    y = torch.full((10,), 1.0)
    start = torch.tensor([[-1.0], [1.0], [-1.0]])
    every = fit(two_modes, MeanFieldVI(num_steps=300, num_averaged=50, num_restarts=3, init=start), y)
    assert isinstance(every, Mixture)
    assert every.draws(11).shape == (3, 11, 1)
    assert every.info.fit_stats["elbo"].shape == (3, 300)
    assert [round(float(c.loc)) for c in every.components] == [-1, 1, -1]
    best = fit(two_modes, MeanFieldVI(num_steps=300, num_averaged=50, num_restarts=3, init=start, keep="best"), y)
    assert isinstance(best, Gaussian)
    assert best.loc > 0.9
    assert best.info.fit_stats["elbo"].shape == (1, 300)


def test_small_budgets_need_no_other_setting() -> None:
    target = linear_gaussian()
    start = target.mean["w"][None]
    for kind in (MeanFieldVI, LowRankVI, FullRankVI):
        fit(target.model, kind(num_steps=1), *target.data)
    posterior = fit(target.model, MeanFieldVI(num_steps=60, init=start, init_scale=0.05), *target.data)
    # Adam's first steps move every entry by 0.03, however good the start; sixty bring it back.
    assert ((posterior.loc - target.mean["w"]).abs() < 0.1 * target.sd["w"]).all()
    assert ((posterior.covariance.diagonal() / target.mean_field_sd() ** 2 - 1).abs() < 0.1).all()


def test_stops_where_the_bound_no_longer_changes() -> None:
    target = linear_gaussian()
    method = MeanFieldVI(num_steps=5000, num_averaged=250, tolerance=1e-3)
    posterior = fit(target.model, method, *target.data)
    taken = posterior.info.fit_stats["elbo"].shape[1]
    assert taken < 5000
    assert taken % 250 == 0
    assert ((posterior.loc - target.mean["w"]).abs() < 0.02 * target.sd["w"]).all()


def test_model_is_called_a_fixed_number_of_times_in_a_thousand_steps() -> None:
    target = linear_gaussian()
    model = Counting(target.model)
    fit(model, MeanFieldVI(num_steps=1000), *target.data)
    # to be read, looked at, traced, differentiated twice at the mode, and compared with the approximation; once more to trace the
    # searches for other modes, three of which start where the prior is drawn from
    assert model.calls <= 16


def test_model_that_cannot_be_traced_still_runs() -> None:
    def model(y: Tensor) -> None:
        mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
        scale = 1.0 if float(mu.detach()) < 1e9 else 2.0
        with pyro.plate("data", len(y)):
            pyro.sample("y", dist.Normal(mu, scale), obs=y)

    with pytest.warns(UserWarning, match="could not be traced"):
        posterior = fit(model, MeanFieldVI(num_steps=200, num_averaged=50, num_particles=2), torch.tensor([1.0, 2.0]))
    torch.testing.assert_close(posterior.loc, torch.tensor([1.0]), rtol=0, atol=0.05)


def test_temperature_scales_the_variance() -> None:
    target = linear_gaussian()
    posterior = fit(target.model, MeanFieldVI(num_steps=1000, num_averaged=200, temperature=0.25), *target.data)
    torch.testing.assert_close(posterior.covariance.diagonal(), 0.25 * target.mean_field_sd() ** 2, rtol=0.03, atol=0)


SHORT = {"num_steps": 60, "num_restarts": 3}


@pytest.mark.parametrize(
    "method",
    [
        MeanFieldVI(**SHORT, batch_size=9),
        MeanFieldVI(**SHORT, estimator="local", batch_size=9, kl_annealing=0.1),
        LowRankVI(2, **SHORT, keep="best"),
        pytest.param(FullRankVI(**SHORT), marks=pytest.mark.slow),
        pytest.param(FlowVI(FullRankVI(num_steps=30), 2, 4, **SHORT), marks=pytest.mark.slow),
    ],
    ids=lambda method: type(method).__name__,
)
def test_restarts_on_an_executor_are_those_of_one_batch(method) -> None:
    target, executor = linear_network(), InProcess()
    together = fit(target.model, method, *target.data, seed=2)
    apart = fit(target.model, method, *target.data, seed=2, executor=executor)
    assert executor.num_tasks == 3 * (2 if isinstance(method, FlowVI) else 1)
    # the order of summation differs between a batch of three and one, so that bits may
    torch.testing.assert_close(apart.draws(9), together.draws(9), rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(apart.info.fit_stats["elbo"], together.info.fit_stats["elbo"], rtol=1e-9, atol=1e-8)
    assert apart.info.num_gradients == together.info.num_gradients


def test_restarts_that_stop_together_travel_together() -> None:
    target, executor = linear_gaussian(), InProcess()
    method = MeanFieldVI(num_steps=2000, num_averaged=100, tolerance=1e-2, num_restarts=3)
    together = fit(target.model, method, *target.data)
    apart = fit(target.model, method, *target.data, executor=executor)
    assert executor.num_tasks == 1
    assert apart.info.fit_stats["elbo"].shape == together.info.fit_stats["elbo"].shape
    assert torch.equal(apart.draws(5), together.draws(5))


@pytest.mark.slow
def test_methods_on_top_of_others_use_the_executor() -> None:
    target = linear_network()
    for method in (SubsetVI(vi=MeanFieldVI(**SHORT)), LastLayerVI(vi=FullRankVI(**SHORT))):
        executor = InProcess()
        posterior = fit(target.model, method, *target.data, executor=executor)
        assert executor.num_tasks == 1 + 3  # one mode below, three restarts on top
        assert isinstance(posterior, Mixture)


@pytest.mark.slow
def test_restarts_in_a_process_pool() -> None:
    """Of no Gaussian: a fit that starts at its optimum has rounding errors for gradients, and Adam scales them up."""
    target, method = banana(), MeanFieldVI(num_steps=60, num_restarts=2)
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        apart = fit(target.model, method, *target.data, executor=pool, dtype=torch.float64)
    together = fit(target.model, method, *target.data, dtype=torch.float64)
    torch.testing.assert_close(apart.draws(9), together.draws(9), rtol=1e-6, atol=1e-6)


class Impatient(Silent):
    """A user who interrupts the fit after a number of reports."""

    def __init__(self, patience: int) -> None:
        self._left = patience

    def update(self, step: int, **fields: float) -> None:
        self._left -= 1
        if self._left == 0:
            raise KeyboardInterrupt


def test_interrupted_it_keeps_the_iterates_of_the_last_window() -> None:
    target = linear_gaussian()
    density = build_density(target.model, *target.data)
    method = MeanFieldVI(num_steps=100, num_averaged=20)
    params, info = fit_family(method, MeanField(), density, FitContext(0, Impatient(30)))
    assert not info.complete
    assert info.fit_stats["elbo"].shape == (1, 30)
    assert params.isfinite().all()
    assert info.num_gradients == 30 * 8


class NewVI(GaussianVI):
    """A fifth Gaussian method: all it takes is a family."""

    def family(self, num_params: int) -> MeanField:
        return MeanField()


@pytest.mark.parametrize(
    "on_top",
    [
        lambda vi: vi,
        lambda vi: SubsetVI(below=MAP(num_steps=20), vi=vi),
        pytest.param(lambda vi: LastLayerVI(vi=vi), marks=pytest.mark.slow),
        pytest.param(lambda vi: FlowVI(vi, 1, 4, num_steps=20), marks=pytest.mark.slow),
    ],
    ids=["alone", "subset", "last layer", "flow"],
)
def test_another_gaussian_method_is_a_family_and_works_under_others(on_top: Callable[[Method], Method]) -> None:
    target = linear_network()
    ours, theirs = (
        fit(target.model, on_top(vi), *target.data, seed=1) for vi in (NewVI(num_steps=40), MeanFieldVI(num_steps=40))
    )
    assert torch.equal(ours.draws(3), theirs.draws(3))


@pytest.mark.parametrize("kind", [MeanFieldVI, LowRankVI, FullRankVI, FlowVI])
@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"num_particles": 0}, r"\(num_particles=0\): write 1 or more"),
        ({"num_restarts": 0}, r"\(num_restarts=0\): write 1 or more"),
        ({"init_scale": 0.0}, r"\(init_scale=0.0\): write a positive number"),
        ({"temperature": -1.0}, r"\(temperature=-1.0\): write a positive number"),
        ({"num_steps": 10, "num_averaged": 11}, "num_averaged=11: write 1 to num_steps=10"),
        ({"num_averaged": 0}, r"\(num_averaged=0\): write 1 or more or None"),
        ({"num_steps": 0}, r"\(num_steps=0\): write 1 or more"),
        ({"learning_rate": 0.0}, r"\(learning_rate=0.0\): write a positive number"),
        ({"kl_annealing": 0.9}, r"\(kl_annealing=0.9\): write a number from 0 to 0.3"),
        ({"tolerance": -1.0}, r"\(tolerance=-1.0\): write 0 or more or None"),
        ({"batch_size": 0}, r"\(batch_size=0\): write 1 or more or None"),
    ],
)
def test_refuses_impossible_settings(kind, settings, sentence: str) -> None:
    target = linear_gaussian()
    with pytest.raises(ValueError, match=sentence):
        fit(target.model, kind(**settings), *target.data)


def test_settings_are_keywords() -> None:
    for kind in (MeanFieldVI, FullRankVI):
        with pytest.raises(TypeError, match="positional argument"):
            kind(100)
    assert LowRankVI(2).rank == 2
    assert FlowVI(FullRankVI(), 4, 16).num_layers == 4
