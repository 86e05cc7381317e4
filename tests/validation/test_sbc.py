"""Simulation-based calibration: of an exact method, of one known to be too narrow, and of the bookkeeping."""

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import arviz as az
import matplotlib as mpl
import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
import xarray as xr

import bnnzoo as bz
from bnnzoo.core.model.density import build_density
from bnnzoo.core.posterior.archive import read_archive, write_archive
from bnnzoo.core.posterior.covariance import Diagonal
from bnnzoo.core.posterior.info import FitInfo
from bnnzoo.core.posterior.posterior import Draws
from bnnzoo.engine.shares import ShareError
from bnnzoo.testing import linear_gaussian
from bnnzoo.validation import sbc, sbc_joint, sbc_merged, sbc_verdict
from bnnzoo.validation.simulated_data import CalibrationError
from bnnzoo.validation.simulations import values_in_short
from tests.helpers.exact_linear import ExactLinear

TARGET = linear_gaussian(num_data=8, num_inputs=2)
QUIET = {"progress": False, "dtype": torch.float64}


@pytest.fixture(scope="module")
def exact():
    return sbc(TARGET.model, ExactLinear(), *TARGET.data, num_simulations=60, num_draws=39, seed=1, **QUIET)


def test_ranks_of_an_exact_method_are_uniform(exact):
    verdict = sbc_verdict(exact)
    assert verdict["uniform"].all()
    assert {"w[0]", "w[1]", "log_likelihood", "mean[0]"} <= set(verdict.index)


def test_ranks_are_counts_of_draws_below_the_truth(exact):
    ranks = exact["prior_sbc"]["w"]
    assert ranks.dims == ("chain", "draw", "w_dim_0")
    assert ranks.dtype.kind == "i"
    assert 0 <= ranks.min() <= ranks.max() <= 39
    assert exact.attrs["num_draws"] == 39


def test_arviz_plots_the_ranks(exact):
    mpl.use("Agg")
    assert az.plot_ecdf_pit(exact) is not None


@pytest.mark.parametrize(
    ("method", "finding"),
    [
        (ExactLinear(scale=0.3), "draws too narrow"),
        (ExactLinear(scale=4.0), "draws too wide"),
        (ExactLinear(shift=1.5), "draws too high"),
        (ExactLinear(shift=-1.5), "draws too low"),
    ],
)
def test_wrong_posteriors_are_found_out(method, finding):
    ranks = sbc(TARGET.model, method, *TARGET.data, num_simulations=60, num_draws=39, **QUIET)
    verdict = sbc_verdict(ranks)
    assert verdict.loc["w[0]", "finding"] == finding


def test_the_log_likelihood_finds_a_method_that_ignores_the_data():
    ranks = sbc(TARGET.model, ExactLinear(of_prior=True), *TARGET.data, num_simulations=60, num_draws=39, **QUIET)
    verdict = sbc_verdict(ranks)
    assert verdict.loc[["w[0]", "w[1]"], "uniform"].all()  # the prior's ranks are uniform, too
    assert not verdict.loc["log_likelihood", "uniform"]


def test_calibration_around_the_data_at_hand():
    ranks = sbc(
        TARGET.model, ExactLinear(), *TARGET.data, num_simulations=40, num_draws=39, around="posterior", **QUIET
    )
    assert sbc_verdict(ranks)["uniform"].all()
    assert list(ranks.children) == ["posterior_sbc"]


def test_truths_around_the_data_come_from_all_chains_however_many_there_are():
    def call(number):
        settings = {"num_draws": 4, "around": "posterior", "keep": True, "seed": 1, **QUIET}
        tree = sbc(TARGET.model, chains, *TARGET.data, num_simulations=number, **settings)
        return tree["sbc_truth"]["w"].to_numpy()[0]

    chains = bz.NUTS(num_chains=3, num_warmup=50, num_draws=4)
    few, many = call(2), call(14)
    assert np.array_equal(many[:2], few)
    theta = bz.fit(TARGET.model, chains, *TARGET.data, seed=1, **QUIET).draws().numpy()
    assert sorted(map(tuple, many[:12])) == sorted(map(tuple, theta.reshape(12, -1)))  # all of them before one repeats
    assert {int(np.argwhere((theta == truth).all(-1))[0, 0]) for truth in many[:6]} == {0, 1, 2}


def test_a_file_of_truths_in_another_order_is_refused(tmp_path):
    path = tmp_path / "ranks.sbc"
    call = {"num_simulations": 2, "num_draws": 9, "around": "posterior", "path": path, **QUIET}
    sbc(TARGET.model, ExactLinear(), *TARGET.data, **call)
    tensors, header = read_archive(path)
    write_archive(path, tensors, {name: value for name, value in header.items() if name != "truths"})
    with pytest.raises(ValueError, match="holds ranks of another calibration: its truths differs"):
        sbc(TARGET.model, ExactLinear(), *TARGET.data, **call)


def test_a_file_goes_on_where_it_stopped(tmp_path):
    call = {"num_draws": 9, "seed": 3, **QUIET}
    whole = sbc(TARGET.model, ExactLinear(), *TARGET.data, num_simulations=6, **call)
    path = tmp_path / "ranks.sbc"
    sbc(TARGET.model, ExactLinear(), *TARGET.data, num_simulations=4, path=path, **call)
    again = sbc(TARGET.model, ExactLinear(), *TARGET.data, num_simulations=6, path=path, **call)
    assert again.identical(whole)


def test_a_file_of_another_calibration_is_refused(tmp_path):
    path = tmp_path / "ranks.sbc"
    sbc(TARGET.model, ExactLinear(), *TARGET.data, num_simulations=2, num_draws=9, path=path, **QUIET)
    with pytest.raises(ValueError, match="holds ranks of another calibration: its num_draws differs"):
        sbc(TARGET.model, ExactLinear(), *TARGET.data, num_simulations=2, num_draws=8, path=path, **QUIET)


def test_a_file_whose_fits_drew_from_the_stream_of_their_data_is_refused(tmp_path):
    path = tmp_path / "ranks.sbc"
    call = {"num_simulations": 2, "num_draws": 9, "path": path, **QUIET}
    sbc(TARGET.model, ExactLinear(), *TARGET.data, **call)
    tensors, header = read_archive(path)
    write_archive(path, tensors, {name: value for name, value in header.items() if name != "stream of the data"})
    with pytest.raises(ValueError, match="holds ranks of another calibration: its stream of the data differs"):
        sbc(TARGET.model, ExactLinear(), *TARGET.data, **call)


def test_the_executor_does_not_change_the_ranks():
    call = {"num_simulations": 3, "num_draws": 9, **QUIET}
    here = sbc(TARGET.model, ExactLinear(), *TARGET.data, **call)
    with ThreadPoolExecutor(2) as executor:
        assert sbc(TARGET.model, ExactLinear(), *TARGET.data, executor=executor, **call).identical(here)


def test_quantities_of_ones_own():
    ranks = sbc(
        TARGET.model,
        ExactLinear(),
        *TARGET.data,
        num_simulations=3,
        num_draws=9,
        quantities=lambda values, x, y: {"contrast": values["w"][0] - values["w"][1]},
        **QUIET,
    )
    assert ranks["prior_sbc"]["contrast"].sizes == {"chain": 1, "draw": 3}


@pytest.mark.slow
def test_a_classifier_is_simulated():
    def model(x, y=None):
        w = pyro.sample("w", dist.Normal(torch.zeros(2).to(x), 1.0).to_event(1))
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Bernoulli(logits=x @ w), obs=y)

    x = TARGET.data[0].double()
    ranks = sbc(model, bz.Laplace(), x, (x[:, 0] > 0).double(), num_simulations=3, num_draws=9, **QUIET)
    assert np.isfinite(ranks["prior_sbc"]["log_likelihood"]).all()


def test_what_cannot_be_simulated_is_refused():
    def transformed(y):
        mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
        with pyro.plate("data", len(y)):
            pyro.sample("y", dist.Normal(mu, 1.0), obs=y.log())

    def unobserved(x):
        pyro.sample("mu", dist.Normal(x.mean(), 1.0))

    y = torch.rand(4) + 1
    with pytest.raises(ValueError, match="Site 'y' observes no argument of the model as it was passed"):
        sbc(transformed, bz.Laplace(), y, num_simulations=2)
    with pytest.raises(ValueError, match="but this model observes nothing"):
        sbc(unobserved, bz.Laplace(), y, num_simulations=2)


def test_too_few_draws_are_refused():
    with pytest.raises(ValueError, match="num_draws=50, but MAP gives 2 draws"):
        sbc(TARGET.model, bz.MAP(num_members=2, num_steps=5), *TARGET.data, num_simulations=2, num_draws=50, **QUIET)
    with pytest.raises(ValueError, match="num_simulations=1; write a whole number, 2 or more"):
        sbc(TARGET.model, ExactLinear(), *TARGET.data, num_simulations=1)


def test_what_is_no_calibration_is_refused():
    with pytest.raises(ValueError, match=r"sbc\(around='prio'\): write 'prior' or 'posterior'"):
        sbc(TARGET.model, bz.Laplace(), *TARGET.data, around="prio")
    with pytest.raises(TypeError, match=r"The method is the class Laplace, not an object. Write Laplace\(\)"):
        sbc(TARGET.model, bz.Laplace, *TARGET.data)
    tree = bz.prior_predictive(TARGET.model, *TARGET.data, num_draws=5)
    with pytest.raises(ValueError, match="the tree has neither prior_sbc nor posterior_sbc"):
        sbc_verdict(tree)


def correlated(x, y=None):
    """A regression far from the origin: intercept and slope are strongly correlated."""
    intercept = pyro.sample("intercept", dist.Normal(x.new_tensor(0.0), 1.0))
    slope = pyro.sample("slope", dist.Normal(x.new_tensor(0.0), 1.0))
    with pyro.plate("data", len(x)):
        pyro.sample("y", dist.Normal(intercept + slope * x, 0.5), obs=y)


CORRELATED = (torch.linspace(2.0, 4.0, 12, dtype=torch.float64), torch.linspace(1.0, 2.0, 12, dtype=torch.float64))
MEAN_FIELD = bz.MeanFieldVI(num_steps=300, num_averaged=50)
SHORT_FIT = pytest.mark.filterwarnings("ignore::bnnzoo.inference.FitWarning")  # of fits that ranks are to judge


@pytest.mark.slow
@SHORT_FIT
@pytest.mark.parametrize("around", ["prior", "posterior"])
@pytest.mark.parametrize("method", [bz.Laplace(), MEAN_FIELD], ids=["Laplace", "mean-field VI"])
def test_mean_field_vi_fails_where_parameters_are_correlated_and_an_exact_method_passes(around, method):
    """The posterior of this model is Gaussian, so that Laplace's approximation is exact.

    The sd of a mean-field Gaussian is 0.25 of the right one. With 20 simulations of 29 draws, ranks this narrow are found in all
    of 100 replicates by ArviZ's test at level 0.05/4, the first step of Holm's correction of four quantities.
    """
    call = {"num_simulations": 20, "num_draws": 29, "around": around, "seed": 2, **QUIET}
    verdict = sbc_verdict(sbc(correlated, method, *CORRELATED, **call))
    if isinstance(method, bz.Laplace):
        assert verdict["uniform"].all()
    else:
        assert not verdict.loc[["intercept", "slope"], "uniform"].any()
        if around == "prior":  # around one posterior all fits may err to the same side
            assert set(verdict.loc[["intercept", "slope"], "finding"]) == {"draws too narrow"}


def scale_model(y=None):
    """Five observations of a Gaussian of unknown scale, whose posterior has one dimension."""
    sigma = pyro.sample("sigma", dist.LogNormal(torch.zeros((), dtype=torch.float64), 1.0))
    with pyro.plate("data", 5):
        pyro.sample("y", dist.Normal(torch.zeros((), dtype=torch.float64), sigma), obs=y)


@dataclass(frozen=True)
class OnAGrid:
    """Independent draws of a posterior of one dimension, from its density on a grid, with a power of exp's Jacobian too many."""

    surplus: float = 0.0
    needs: ClassVar = frozenset()

    def run(self, density, context):
        grid = torch.linspace(-6, 6, 2401, dtype=torch.float64)[:, None]
        logs = torch.func.vmap(lambda t: density.log_prior(t) + density.log_likelihood(t, *density.data).sum())(grid)
        generator = torch.Generator().manual_seed(context.seed)
        probs = (logs + self.surplus * grid[:, 0]).softmax(0)
        chosen = torch.multinomial(probs, 39, replacement=True, generator=generator)
        return Draws(density, FitInfo("ensemble", seed=context.seed), grid[chosen][None])


@pytest.mark.slow
@pytest.mark.parametrize("surplus", [0.0, -1.0, 1.0], ids=["right", "no Jacobian", "Jacobian twice"])
def test_a_wrong_jacobian_is_found_out(surplus):
    call = {"num_simulations": 300, "num_draws": 39, "seed": 5, **QUIET}
    verdict = sbc_verdict(sbc(scale_model, OnAGrid(surplus), torch.ones(5, dtype=torch.float64), **call))
    assert verdict.loc["sigma", "uniform"] == (surplus == 0.0)
    assert verdict.loc["sigma", "mean"] < 0.5 or surplus <= 0.0  # draws are too high, and ranks low
    assert verdict.loc["sigma", "mean"] > 0.5 or surplus >= 0.0


def test_a_verdict_says_what_was_found_and_what_could_not_have_been(exact):
    verdict = sbc_verdict(exact)
    assert verdict.loc["w[0]", "sentence"] == (
        "Nothing is off with w[0] as far as 60 simulations tell, which would show shifts above 0.37 standard deviations."
    )
    narrow = sbc(TARGET.model, ExactLinear(scale=0.3), *TARGET.data, num_simulations=60, num_draws=39, **QUIET)
    found = sbc_verdict(narrow).loc["w[0]"]
    share = f"the truth is in the 50% interval in {found['coverage']:.0%} of 60 simulations"
    assert found["sentence"] == f"The method's intervals of w[0] are too narrow: {share}."
    assert 0.02 < found["coverage"] < 0.35  # an interval of 0.3 times the width holds the truth in 0.16 of the cases
    high = sbc(TARGET.model, ExactLinear(shift=1.5), *TARGET.data, num_simulations=60, num_draws=39, **QUIET)
    assert "draws of w[0] are too high: on average" in sbc_verdict(high).loc["w[0]", "sentence"]


def test_an_adaptive_calibration_ends_where_the_verdict_is_clear():
    settings = {"num_simulations": "auto", "max_simulations": 800, "num_draws": 39, **QUIET}
    wrong = sbc(TARGET.model, ExactLinear(scale=0.3), *TARGET.data, **settings)
    assert wrong["prior_sbc"].sizes["draw"] == 50
    right = sbc(TARGET.model, ExactLinear(), *TARGET.data, **settings)
    assert right["prior_sbc"].sizes["draw"] in (200, 400) and sbc_verdict(right)["uniform"].all()
    short = sbc(TARGET.model, ExactLinear(), *TARGET.data, **{**settings, "max_simulations": 60})
    assert short["prior_sbc"].sizes["draw"] == 60
    assert np.array_equal(short["prior_sbc"]["w"][0], right["prior_sbc"]["w"][0, :60])


def test_tasks_give_the_ranks_of_one_call(tmp_path):
    def call(**settings):
        return sbc(
            TARGET.model, ExactLinear(), *TARGET.data, num_simulations=11, num_draws=19, keep=True, **settings, **QUIET
        )

    whole = call()
    paths = [tmp_path / f"task-{task}.sbc" for task in range(3)]
    for task in (2, 0):
        call(task=(task, 3), path=paths[task])
    with pytest.raises(
        ValueError, match=r"Of 11 simulations 4 are missing: 1; 4; 7; 10\. Run task 1 of 3: it goes on where"
    ):
        bz.validation.sbc_merged(paths[::2])
    call(task=(1, 3), path=paths[1])
    merged = bz.validation.sbc_merged(reversed(paths))
    assert list(merged.children) == list(whole.children)
    for group in whole.children:
        for name, values in whole[group].data_vars.items():
            assert np.array_equal(merged[group][name], values), (group, name)


def test_files_that_do_not_belong_together_are_named(tmp_path):
    settings = {"num_simulations": 4, "num_draws": 19, **QUIET}
    sbc(TARGET.model, ExactLinear(), *TARGET.data, task=(0, 2), path=tmp_path / "a.sbc", **settings)
    sbc(TARGET.model, ExactLinear(shift=1.0), *TARGET.data, task=(1, 2), path=tmp_path / "b.sbc", **settings)
    sbc(TARGET.model, ExactLinear(), *TARGET.data, path=tmp_path / "whole.sbc", **settings)
    with pytest.raises(
        ValueError, match=r"b\.sbc belongs to another calibration than the first file: its settings differs"
    ):
        bz.validation.sbc_merged([tmp_path / "a.sbc", tmp_path / "b.sbc"])
    with pytest.raises(ValueError, match=r"whole\.sbc holds no task of a calibration"):
        bz.validation.sbc_merged([tmp_path / "whole.sbc"])
    with pytest.raises(ValueError, match="There is no file of a task"):
        bz.validation.sbc_merged([])
    ranks, header = read_archive(tmp_path / "a.sbc")
    write_archive(tmp_path / "a.sbc", {name: value[:1].contiguous() for name, value in ranks.items()}, header)
    sbc(TARGET.model, ExactLinear(), *TARGET.data, task=(1, 2), path=tmp_path / "c.sbc", **settings)
    with pytest.raises(
        ValueError, match=r"Of 4 simulations 1 is missing: 3\. Run task 0 of 2: it goes on where it stopped\."
    ):
        bz.validation.sbc_merged([tmp_path / "a.sbc", tmp_path / "c.sbc"])


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"task": (3, 3), "path": "x"}, r"task=\(3, 3\); write the number of the task, from 0"),
        ({"task": (0, 3)}, r"task=\(0, 3\) writes its ranks to a file of its own: give path='task-0.sbc'"),
        ({"task": (0, 3), "path": "x", "num_simulations": "auto"}, "Tasks share a number of simulations that is known"),
        ({"num_simulations": "auto", "max_simulations": 1}, "max_simulations=1; write a whole number, 2 or more"),
    ],
)
def test_tasks_that_cannot_be_are_refused(settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        sbc(TARGET.model, ExactLinear(), *TARGET.data, **settings, **QUIET)


def test_other_quantities_are_ranked_without_new_fits():
    def of_both(values, *data):
        return {"product": values["w"][0] * values["w"][1], "largest": data[-1].max() + 0 * values["w"][0]}

    settings = {"num_simulations": 30, "num_draws": 19, "seed": 2, **QUIET}
    tree = sbc(TARGET.model, ExactLinear(), *TARGET.data, quantities=of_both, keep=True, **settings)

    def again(values, data):
        return xr.Dataset(
            {
                "product": values["w"][..., 0] * values["w"][..., 1],
                "above": (values["w"][..., 0] > data["y"].max("y_dim_0")).astype(int),
            }
        )

    ranks = bz.validation.sbc_again(tree, again)
    assert np.array_equal(ranks["prior_sbc"]["product"], tree["prior_sbc"]["product"])
    assert sbc_verdict(ranks)["uniform"].all() and set(ranks["prior_sbc"].data_vars) == {"product", "above"}
    assert tree["sbc_draws"]["w"].dims == ("chain", "draw", "sbc_draw", "w_dim_0")
    with pytest.raises(
        ValueError, match=r"needs the draws of a calibration, and the tree has none .* Write sbc\(..., keep=True\)"
    ):
        bz.validation.sbc_again(sbc(TARGET.model, ExactLinear(), *TARGET.data, **settings), again)


@dataclass(frozen=True)
class Independent:
    """The posterior of the linear model with its margins as they are, and no correlations."""

    needs: ClassVar = frozenset()

    def run(self, density, context):
        exact = ExactLinear().run(density, context)
        return replace(exact, covariance=Diagonal(exact.covariance.diagonal().sqrt()))


SLOPES = (
    torch.linspace(1.0, 2.0, 8, dtype=torch.float64)[:, None] ** torch.arange(2),
    torch.zeros(8, dtype=torch.float64),
)


def kept(method, **settings):
    return sbc(TARGET.model, method, *SLOPES, num_draws=39, keep=True, **{"num_simulations": 60, **settings}, **QUIET)


def test_wrong_correlations_are_noticed_jointly_where_margins_are_right():
    tree = kept(Independent(), seed=3)
    assert sbc_verdict(tree).loc[["w[0]", "w[1]"], "uniform"].all()
    found = sbc_joint(tree).loc["joint"]
    assert not found["uniform"] and found["mean"] > 0.6
    assert found["finding"] == "correlation of w[0] and w[1] too high"  # intercept and slope are negatively correlated
    assert found["sentence"].startswith("A classifier ranks the truth above ")


def test_a_method_that_ignores_the_data_is_noticed_jointly():
    found = sbc_joint(kept(ExactLinear(of_prior=True))).loc["joint"]
    assert not found["uniform"] and "do not follow the data as the truths do" in found["finding"]


def test_an_exact_method_passes_jointly_as_often_as_it_should():
    """Forty calibrations: p is uniform, so that its mean has a standard error of 0.046, and 2 are below 0.05, of sd 1.4."""
    p = np.array(
        [sbc_joint(kept(ExactLinear(), num_simulations=40, seed=seed)).loc["joint", "p"] for seed in range(40)]
    )
    assert abs(p.mean() - 0.5) < 4 * 0.046
    assert (p < 0.05).sum() <= 2 + 4 * 1.4


def test_what_has_no_joint_calibration_is_refused(exact):
    with pytest.raises(ValueError, match=r"sbc_joint needs the draws .* Write sbc\(..., keep=True\)"):
        sbc_joint(exact)
    with pytest.raises(ValueError, match=r"and 4 are too few: write num_simulations=100"):
        sbc_joint(kept(ExactLinear(), num_simulations=4))


def scaled(sd: float) -> Any:
    def model(x: torch.Tensor, y: torch.Tensor) -> None:
        b = pyro.sample("b", dist.Normal(0.0, sd))
        with pyro.plate("rows", len(x)):
            pyro.sample("y", dist.Normal(b * x, 1.0), obs=y)

    return model


def penalised(x: torch.Tensor, y: torch.Tensor) -> None:
    b = pyro.sample("b", dist.Normal(0.0, 1.0))
    pyro.factor("penalty", -4 * b**2)
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Normal(b * x, 1.0), obs=y)


def masked(x: torch.Tensor, y: torch.Tensor) -> None:
    b = pyro.sample("b", dist.Normal(0.0, 0.3).mask(False))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Normal(b * x, 1.0), obs=y)


LINE = torch.linspace(-1.0, 1.0, 12), torch.zeros(12)


def test_ranks_of_another_prior_are_not_gone_on_from(tmp_path: Path) -> None:
    """Names and shapes of sites are the same, and so were the files."""
    call: Any = {"num_simulations": 4, "num_draws": 9, "progress": False}
    sbc(scaled(1.0), bz.Laplace(), *LINE, path=tmp_path / "ranks.sbc", **call)
    with pytest.raises(ValueError, match=r"holds ranks of another calibration: its model or prior differs\."):
        sbc(scaled(5.0), bz.Laplace(), *LINE, path=tmp_path / "ranks.sbc", **call)
    paths = [tmp_path / f"{task}.sbc" for task in range(2)]
    for task, sd in enumerate((1.0, 9.0)):
        sbc(scaled(sd), bz.Laplace(), *LINE, path=paths[task], task=(task, 2), **call)
    with pytest.raises(
        ValueError, match=r"belongs to another calibration than the first file: its model or prior differs"
    ):
        sbc_merged(paths)


def square(values: Any, x: torch.Tensor, y: torch.Tensor) -> Any:
    return {"square": values["b"] ** 2}


def cube(values: Any, x: torch.Tensor, y: torch.Tensor) -> Any:
    return {"cube": values["b"] ** 3}


def other_square(values: Any, x: torch.Tensor, y: torch.Tensor) -> Any:
    return {"square": values["b"] ** 2 + 1}


@pytest.mark.parametrize(
    ("first", "then", "what"),
    [
        ({}, {"quantities": square}, "quantities"),
        ({"quantities": square}, {}, "quantities"),
        ({"quantities": square}, {"quantities": cube}, "quantities"),
        ({"quantities": square}, {"quantities": other_square}, "quantities"),
        ({"keep": True}, {}, "keep"),
    ],
)
def test_ranks_of_other_quantities_are_not_gone_on_from(first: Any, then: Any, what: str, tmp_path: Path) -> None:
    """They ended in a KeyError, or the file lost what had been kept."""
    call: Any = {"num_draws": 9, "progress": False}
    model, path = scaled(1.0), tmp_path / "ranks.sbc"
    sbc(model, bz.Laplace(), *LINE, num_simulations=2, path=path, **first, **call)
    with pytest.raises(ValueError, match=rf"holds ranks of another calibration: its {what} differs\. Write to another"):
        sbc(model, bz.Laplace(), *LINE, num_simulations=4, path=path, **then, **call)
    ranks = sbc(model, bz.Laplace(), *LINE, num_simulations=4, path=path, **first, **call)
    assert ranks["prior_sbc"].sizes["draw"] == 4
    paths = [tmp_path / f"{task}.sbc" for task in range(2)]
    for task, each in enumerate((first, then)):
        sbc(model, bz.Laplace(), *LINE, num_simulations=4, path=paths[task], task=(task, 2), **each, **call)
    with pytest.raises(ValueError, match=rf"belongs to another calibration than the first file: its {what} differs"):
        sbc_merged(paths)


@pytest.mark.parametrize(
    ("quantities", "sentence"),
    [
        ({"square": 1}, r"quantities is a dict; write a function \(values, \*data\) -> \{'name': Tensor\}\."),
        (lambda values, x, y: values["b"] ** 2, r"quantities returned a Tensor; return tensors by name, such as"),
        (lambda values, x, y: 1.0, r"quantities returned a float; return tensors by name, such as \{'square'"),
        (
            lambda values, x, y: {"b": float(values["b"])},
            r"quantities returned a float for 'b'; return a tensor, without \.item\(\) and float\(\)\.",
        ),
    ],
)
def test_quantities_are_tensors_by_name(quantities: Any, sentence: str) -> None:
    with pytest.raises(TypeError, match=sentence):
        sbc(scaled(1.0), bz.Laplace(), *LINE, num_simulations=2, quantities=quantities, progress=False)


def swapped(x: torch.Tensor, y: torch.Tensor, swap: bool = True) -> None:
    a, b = pyro.sample("a", dist.Normal(0.0, 1.0)), pyro.sample("b", dist.Normal(0.0, 1.0))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Normal(b + a * x if swap else a + b * x, 1.0), obs=y)


@pytest.mark.parametrize(
    ("models", "num_data"),
    [((scaled(1.0), scaled(1.5)), 200_000), ((partial(swapped, swap=False), swapped), 12)],
)
def test_a_change_that_the_sum_of_all_densities_hides(models: Any, num_data: int) -> None:
    """Of many rows the likelihood is so large that a prior does not show in its digits; coefficients may change places."""
    data = torch.linspace(-1.0, 2.0, num_data), torch.zeros(num_data)
    one, other = (values_in_short(build_density(each, *data)) for each in models)
    assert one != other


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (penalised, r"none are from pyro\.factor\('penalty', \.\.\.\), which is a part of it\. Write that prior as"),
        (
            masked,
            r"that of site 'b' is masked or scaled: nothing, or something else, is drawn from it\. Write a proper",
        ),
    ],
)
def test_truths_are_draws_of_the_prior_that_the_method_sees(model: Any, sentence: str) -> None:
    """Else a right method was said to be too narrow."""
    with pytest.raises(ValueError, match=sentence):
        sbc(model, bz.Laplace(), *LINE, num_simulations=4, num_draws=9, progress=False)
    with pytest.raises(ValueError, match=sentence):
        bz.validation.study(model, {"laplace": bz.Laplace()}, *LINE, num_repeats=2, progress=False)


def wide_counts(x: torch.Tensor, y: torch.Tensor) -> None:
    b = pyro.sample("b", dist.Normal(0.0, 1000.0))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Poisson((b * x).exp()), obs=y)


def wide_values(x: torch.Tensor, y: torch.Tensor) -> None:
    b = pyro.sample("b", dist.Normal(0.0, 1000.0))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Normal((b * x).exp(), 1.0), obs=y)


def tiny_scale(x: torch.Tensor, y: torch.Tensor) -> None:
    s = pyro.sample("s", dist.LogNormal(-2000.0, 1.0))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Normal(0.0 * x, 1.0 + s), obs=y)


def unfactorised(x: torch.Tensor, y: torch.Tensor) -> None:
    b = pyro.sample("b", dist.Normal(0.0, 1000.0))
    root = torch.linalg.cholesky((0.5 * b.clamp(max=1.0)).exp() + torch.eye(2) * b.exp())[0, 0]
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Normal(root * x, 1.0), obs=y)


NARROWER = r"Write narrower priors; bz\.prior_predictive\(model, \.\.\.\) shows what data they imply\. Or draw the"


@pytest.mark.parametrize(
    ("model", "what"),
    [
        (
            wide_counts,
            r"The prior predictive distribution overflows: with parameters drawn from the prior, site 'y' is simulated as -9\.22",
        ),
        (wide_values, r"with parameters drawn from the prior, site 'y' is simulated as .*(inf|e\+)"),
        (
            tiny_scale,
            r"The prior of site 's' overflows: a draw is \[0\.0\], of which the unconstrained value is not finite in",
        ),
        (unfactorised, r"cannot be evaluated with parameters drawn from the prior: after site 'b' it fails with"),
    ],
)
def test_priors_that_overflow_are_named(model: Any, what: str) -> None:
    """The observations were said to be wrong, which the user never sees."""
    for asked in (
        lambda: sbc(model, bz.Laplace(), *LINE, num_simulations=10, num_draws=9, **QUIET),
        lambda: bz.validation.study(model, {"laplace": bz.Laplace()}, *LINE, num_repeats=10, **QUIET),
    ):
        with pytest.raises(CalibrationError, match=what) as caught:
            asked()
        assert re.search(NARROWER, str(caught.value))


def test_data_may_be_given_by_name() -> None:
    call: Any = {"num_simulations": 2, "num_draws": 9, **QUIET}
    by_place = sbc(scaled(1.0), bz.Laplace(), *LINE, **call)
    assert sbc(scaled(1.0), bz.Laplace(), x=LINE[0], y=LINE[1], **call).identical(by_place)
    with pytest.raises(
        TypeError, match=r"The model has no positional argument 'num_simulation'; its arguments are x, y"
    ):
        sbc(scaled(1.0), bz.Laplace(), *LINE, num_simulation=2)

    def seeded(x: torch.Tensor, seed: torch.Tensor, y: torch.Tensor) -> None:
        scaled(1.0)(x, y)

    for asked in (partial(sbc, seeded, bz.Laplace()), partial(bz.validation.study, seeded, {"laplace": bz.Laplace()})):
        name = asked.func.__name__
        with pytest.raises(
            TypeError, match=rf"'seed' is an argument of the model and a setting of {name}, which takes"
        ):
            asked(LINE[0], seed=3, y=LINE[1])


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            {"num_simulations": 3, "task": (7, 10), "path": "x.sbc"},
            r"3 simulations are fewer than 10 tasks: share them among 3 or fewer\.",
        ),
        ({"task": (0.5, 2), "path": "x.sbc"}, r"task=\(0\.5, 2\); write the number of the task, from 0, and how many"),
        ({"num_draws": 99}, r"num_draws=99, but MAP gives 1 draws: ask for fewer, or fit with more\."),
    ],
)
def test_numbers_that_cannot_be(call: Any, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises((CalibrationError, ShareError), match=sentence):
        sbc(scaled(1.0), bz.MAP(num_steps=5), *LINE, progress=False, **({"num_simulations": 4} | call))
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("asked", [sbc_verdict, sbc_joint])
@pytest.mark.parametrize("prob", [2.0, -1.0])
def test_a_probability_is_one(asked: Any, prob: float) -> None:
    with pytest.raises(
        ValueError, match=rf"{asked.__name__}\(prob={prob}\): write a probability between 0 and 1, such as"
    ):
        asked(xr.DataTree(), prob=prob)


def test_a_classifier_has_nothing_to_learn_from_a_network_of_known_noise() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(1, 2), torch.nn.Tanh(), torch.nn.Linear(2, 1))
    model = bz.models.supervised(net, bz.priors.normal(1.0), bz.likelihoods.gaussian(scale=0.3))
    data = LINE[0][:, None], LINE[1]
    ranks = sbc(
        model, bz.Laplace(bz.MAP(num_steps=20)), *data, num_simulations=2, num_draws=9, keep=True, progress=False
    )
    with pytest.raises(
        ValueError, match=r"sbc_joint tells truths from draws of latent sites that are no network weights"
    ):
        sbc_joint(ranks)
