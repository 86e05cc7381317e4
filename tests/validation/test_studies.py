"""Simulation studies: bias, coverage and lengths of an exact method, of one known to be off, and the bookkeeping."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

import bnnzoo as bz
from bnnzoo.testing import linear_gaussian
from bnnzoo.validation import study
from tests.helpers.exact_linear import ExactLinear

TARGET = linear_gaussian(num_data=30, num_inputs=2)
QUIET = {"progress": False, "dtype": torch.float64}


@pytest.fixture(scope="module")
def found():
    methods = {"exact": ExactLinear(), "narrow": ExactLinear(scale=0.5), "high": ExactLinear(shift=1.0)}
    return study(TARGET.model, methods, *TARGET.data, sizes=(10, 60), num_repeats=200, seed=3, **QUIET)


def test_an_exact_method_covers_and_has_no_bias(found):
    exact = found.sel(inference_method="exact")
    nominal = np.array([0.5, 0.9])
    z = (exact["coverage"] - nominal) / np.sqrt(nominal * (1 - nominal) / 200)
    assert float(np.abs(z).max()) < 3.5 and float(np.abs(exact["bias"] / exact["bias_se"]).max()) < 3.5
    assert found.attrs["num_repeats"] == 200


def test_wrong_methods_are_off_by_what_is_known(found):
    narrow, high, exact = (found.sel(inference_method=name) for name in ("narrow", "high", "exact"))
    # half the width holds the truth with probability 2 Phi(0.674 / 2) - 1 and 2 Phi(1.645 / 2) - 1
    assert np.allclose(narrow["coverage"].mean(("size", "quantity")), [0.264, 0.589], atol=0.05)
    assert np.allclose(narrow["length"] / exact["length"], 0.5, rtol=0.1)
    sd = exact["length"].sel(level=0.9) / (2 * 1.645)
    assert np.allclose((high["bias"] - exact["bias"]) / sd, 1.0, atol=0.1)
    assert bool((exact["log_score"] > high["log_score"]).all())


def test_larger_samples_give_shorter_intervals_and_smaller_errors(found):
    exact = found.sel(inference_method="exact")
    assert bool((exact["length"].sel(size=60) < exact["length"].sel(size=10)).all())
    assert bool((exact["rmse"].sel(size=60) < exact["rmse"].sel(size=10)).all())


def test_a_file_goes_on_where_it_stopped(tmp_path, monkeypatch):
    def call(repeats):
        path = tmp_path / "study.safetensors"
        return study(TARGET.model, {"exact": ExactLinear()}, *TARGET.data, num_repeats=repeats, path=path, **QUIET)

    few, many = call(5), call(25)
    whole = study(TARGET.model, {"exact": ExactLinear()}, *TARGET.data, num_repeats=25, **QUIET)
    assert few.attrs["num_repeats"] == 5 and all(np.array_equal(many[name], whole[name]) for name in whole)
    with pytest.raises(ValueError, match="holds another study: its methods differ"):
        study(
            TARGET.model, {"exact": ExactLinear(shift=1.0)}, *TARGET.data, path=tmp_path / "study.safetensors", **QUIET
        )


def test_truths_can_be_given_for_some_sites():
    def model(x: Tensor, y: Tensor) -> None:
        b = pyro.sample("b", dist.Normal(torch.zeros(2), 5.0).to_event(1))
        sigma = pyro.sample("sigma", dist.HalfNormal(1.0))
        with pyro.plate("rows", len(x)):
            pyro.sample("y", dist.Normal(b[0] + b[1] * x, sigma), obs=y)

    x = torch.linspace(-1, 1, 40, dtype=torch.float64)
    settings = {"num_repeats": 40, "truth": {"b": [2.0, -1.0], "sigma": 0.3}, "levels": (0.5, 0.8, 0.9), **QUIET}
    found = study(model, {"laplace": bz.Laplace()}, x, torch.zeros_like(x), **settings).isel(inference_method=0, size=0)
    assert list(found["quantity"].to_numpy()) == ["b[0]", "b[1]", "sigma"]
    # least squares has standard errors of 0.3 / root(40) and of that over the spread of x
    errors = 0.3 / np.sqrt(40 * np.array([1.0, float(x.var(correction=0))]))
    assert np.allclose(found["rmse"][:2], errors, rtol=0.35)
    assert np.allclose(found["coverage"].sel(level=0.9), 0.9, atol=0.15)
    # intervals of a Gaussian posterior: normal quantiles times errors that are least squares' own
    quantiles = np.array([0.674, 1.282, 1.645])
    assert np.allclose(found["length"][:2], 2 * errors[:, None] * quantiles, rtol=0.15)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"sizes": (0,)}, r"sizes=\(0,\); write sample sizes such as"),
        ({"levels": "90"}, r"levels='90'; write a tuple, levels=\('90',\)"),
        ({"num_repeats": 1}, "num_repeats=1; write a whole number, 2 or more"),
        ({"levels": (1.0,)}, r"levels=\(1.0,\); write probabilities of intervals"),
        ({"truth": {"v": 1.0}}, r"truth names 'v', which is no latent site of the model \(w\[2\]\)"),
        ({"truth": {"w": 1.0}}, r"truth gives 'w' the shape \(\), but the site has \(2,\)"),
    ],
)
def test_what_cannot_be_studied_is_refused(settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        study(TARGET.model, {"exact": ExactLinear()}, *TARGET.data, **{"num_repeats": 2, **settings}, **QUIET)
    with pytest.raises(ValueError, match="There are no methods"):
        study(TARGET.model, {}, *TARGET.data, **QUIET)


def joint(y: Tensor) -> None:
    b = pyro.sample("b", dist.Normal(0.0, 1.0))
    pyro.sample("y", dist.MultivariateNormal(b.expand(15), torch.eye(15)), obs=y)


def by_row(x: Tensor, y: Tensor) -> None:
    b = pyro.sample("b", dist.Normal(0.0, 1.0))
    with pyro.plate("rows", len(x)):
        e = pyro.sample("e", dist.Normal(0.0, 1.0))
        pyro.sample("y", dist.Normal(b * x + e, 1.0), obs=y)


@pytest.mark.parametrize(
    ("model", "data", "sentence"),
    [
        (joint, (torch.zeros(15),), r"sizes=\(5, 30\): the model has no rows that could be drawn, but one joint obs"),
        (
            by_row,
            (torch.ones(15), torch.zeros(15)),
            r"sizes=\(5, 30\): rows have values of site 'e', and cannot be left",
        ),
    ],
)
def test_sizes_of_what_has_no_rows_of_its_own(model: Any, data: Any, sentence: str) -> None:
    """They were ignored, or ended in a sentence about the shape of a site."""
    with pytest.raises(ValueError, match=sentence):
        study(model, {"laplace": bz.Laplace()}, *data, sizes=(5, 30), num_repeats=2, progress=False)


def test_a_file_of_another_prior_is_not_gone_on_from(tmp_path: Path) -> None:
    def scaled(sd: float) -> Any:
        def model(x: Tensor, y: Tensor) -> None:
            b = pyro.sample("b", dist.Normal(0.0, sd))
            with pyro.plate("rows", len(x)):
                pyro.sample("y", dist.Normal(b * x, 1.0), obs=y)

        return model

    call: Any = {"num_repeats": 2, "path": tmp_path / "study", "progress": False}
    study(scaled(1.0), {"laplace": bz.Laplace()}, torch.ones(8), torch.zeros(8), **call)
    with pytest.raises(ValueError, match=r"holds another study: its model and prior differ\."):
        study(scaled(9.0), {"laplace": bz.Laplace()}, torch.ones(8), torch.zeros(8), **call)
    with pytest.raises(TypeError, match=r"truth is a float; write values by latent site, truth=\{'slope': 1\.0\}\."):
        study(scaled(1.0), {"laplace": bz.Laplace()}, torch.ones(8), torch.zeros(8), truth=1.0, **call)


def test_neither_the_executor_nor_names_of_data_change_the_study(tmp_path: Path) -> None:
    methods = {"exact": ExactLinear(), "narrow": ExactLinear(scale=0.5)}
    call: Any = {"sizes": (10, 20), "num_repeats": 7, **QUIET}
    here = study(TARGET.model, methods, *TARGET.data, **call)
    with ThreadPoolExecutor(2) as executor:
        there = study(TARGET.model, methods, *TARGET.data, executor=executor, path=tmp_path / "study", **call)
    assert there.identical(here)
    by_name = dict(zip(("x", "y"), TARGET.data, strict=True))
    assert study(TARGET.model, methods, **by_name, path=tmp_path / "study", **call).identical(here)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        ({"sizes": (10, 10)}, r"sizes=\(10, 10\) names a sample size twice; write each once\."),
        ({"truth": {"w": "one"}}, r"truth gives 'w' the value 'one'; write a number, or an array of them\."),
    ],
)
def test_what_cannot_be_studied(call: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        study(TARGET.model, {"exact": ExactLinear()}, *TARGET.data, num_repeats=2, **call, **QUIET)


@pytest.mark.parametrize("sizes", [np.array([10, 20]), torch.tensor([10, 20]), (np.int64(10), 20)])
def test_sizes_may_be_an_array(sizes: Any) -> None:
    found = study(TARGET.model, {"exact": ExactLinear()}, *TARGET.data, sizes=sizes, num_repeats=2, **QUIET)
    assert found["size"].values.tolist() == [10, 20]


def test_a_network_of_known_noise_has_nothing_to_study() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Tanh(), torch.nn.Linear(2, 1))
    model = bz.models.supervised(net, bz.priors.normal(1.0), bz.likelihoods.gaussian(scale=0.3))
    with pytest.raises(
        ValueError, match=r"study judges latent sites that are no network weights, and this model has none"
    ):
        study(model, {"map": bz.Laplace()}, torch.zeros(8, 2), torch.zeros(8), num_repeats=2, progress=False)
