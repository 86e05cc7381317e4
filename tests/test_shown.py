"""What objects look like in a notebook, and what is said of names that do not exist."""

import ast
import runpy
import sys
import tomllib
from dataclasses import replace
from html import unescape
from pathlib import Path

import numpy as np
import pandas as pd
import pyro.distributions as dist
import pytest
import torch

import bnnzoo as bz
from bnnzoo.core.posterior.info import FitInfo
from bnnzoo.engine.reports import EngineReport
from bnnzoo.predictive.datatree import fit_attributes
from bnnzoo.testing import linear_gaussian


def test_priors_and_likelihoods_print_as_they_were_written() -> None:
    assert repr(bz.priors.fan_in(1.0)) == "fan_in(1.0)"
    assert (
        repr(bz.priors.layerwise(dist.HalfNormal(2.0), by_fan_in=True)) == "layerwise(HalfNormal(2.0), by_fan_in=True)"
    )
    nested = bz.priors.by_parameter({"0.weight": bz.priors.ard()}, bz.priors.normal())
    assert repr(nested) == "by_parameter({'0.weight': ard()}, normal())"
    assert repr(bz.likelihoods.student_t(df=dist.Gamma(2.0, 0.1))) == "student_t(df=Gamma(2.0, 0.1))"
    for name in set(bz.likelihoods.__all__) - {"Likelihood", "ordinal", "gaussian_mixture"}:
        assert repr(getattr(bz.likelihoods, name)()) == f"{name}()"


def test_models_and_splits_print_in_a_line() -> None:
    model = bz.models.supervised(bz.models.mlp(3), bz.priors.fan_in(1.0), bz.likelihoods.gaussian())
    assert repr(model) == "supervised(Sequential of 251 parameters, fan_in(1.0), gaussian())"
    data = bz.datasets.diabetes().split(test_size=0.2, seed=0)
    assert repr(data) == "Split(353 + 89 rows, 10 inputs, targets in original units)"
    assert repr(data.standardized()).endswith("10 inputs, targets standardised)")
    labels = bz.datasets.Split(np.ones((4, 2)), np.arange(4), np.ones((1, 2)), np.ones(1, dtype=int))
    assert repr(labels) == "Split(4 + 1 rows, 2 inputs, targets integers)"


def test_posteriors_of_chains_say_how_they_mixed() -> None:
    target = linear_gaussian()
    posterior = bz.fit(target.model, bz.HMC(num_warmup=50, num_draws=100), *target.data, progress=False)
    text = repr(posterior)
    assert (
        "R-hat 1.0" in text and "ESS " in text and "R-hat" not in repr(bz.fit(target.model, bz.Laplace(), *target.data))
    )
    apart = type(posterior)(posterior.density, posterior.info, torch.arange(4.0)[:, None, None].expand(4, 100, 3))
    assert "R-hat" not in repr(apart) or "without bound" in repr(apart)


def test_forms_for_notebooks_fold() -> None:
    data = bz.datasets.diabetes().split(test_size=0.2, seed=0)
    model = bz.models.supervised(bz.models.mlp(3), bz.priors.fan_in(1.0), bz.likelihoods.gaussian())
    frame = pd.DataFrame({"x": np.arange(9.0), "y": np.arange(9.0) % 4})
    formula = bz.formula("y ~ x", frame)
    target = linear_gaussian()
    posterior = bz.fit(target.model, bz.Laplace(), *target.data, progress=False)
    for shown, inside in (
        (data, "<th>input 9</th>"),
        (model, "(1): Tanh()"),
        (formula, "b_x = pyro.sample(&#x27;b_x&#x27;, dist.Normal("),
        (posterior, "integrate = True"),
    ):
        html = shown._repr_html_()
        line, rest = html.removeprefix("<details><summary><code>").split("</code></summary>", 1)
        assert unescape(line) == repr(shown)
        assert inside in rest and rest.endswith("</details>")


def test_wall_time_is_split_into_compiling_and_the_rest() -> None:
    target = linear_gaussian()
    info = bz.fit(target.model, bz.HMC(num_warmup=50, num_draws=50), *target.data, progress=False).info
    assert 0 < info.compiling <= info.seconds
    assert replace(info, seconds=4.0, compiling=2.5).duration() == "4 s, 2.5 of them compiling"
    assert replace(info, seconds=4.0, compiling=0.1).duration() == "4 s"
    assert "2.5 of them compiling" in repr(replace(info, seconds=4.0, compiling=2.5))
    assert ", engine native, " in repr(replace(info, engine=EngineReport("native")))
    assert "engine" not in repr(replace(info, engine=None))
    twice = replace(info, seconds=1.0, compiling=0.5).followed_by(replace(info, seconds=2.0, compiling=0.25))
    assert (twice.seconds, twice.compiling) == (3.0, 0.75)


@pytest.mark.parametrize("reasons", [(), ("native code: NoCompiler: no g++ on the path", "graph: refused")])
def test_trees_say_how_a_fit_ran(reasons: tuple[str, ...]) -> None:
    attributes = fit_attributes(FitInfo("iid", engine=EngineReport("graph", reasons)), 0)
    assert attributes["engine"] == "graph"
    assert attributes.get("engine_reasons") == ("; ".join(reasons) or None)
    assert "engine" not in fit_attributes(FitInfo("iid"), 0)


@pytest.mark.parametrize(
    ("taken", "most", "said"),
    [
        ([200, 200], 1000, "200 of 1000 iterations of warm-up"),
        ([487, 744], 1000, "487 to 744 of 1000 iterations of warm-up"),
        ([487, 1000], 1000, "487 to 1000 of 1000 iterations of warm-up"),
        ([1000, 1000], 1000, ""),
        ([0, 0], 0, ""),
    ],
)
def test_a_warm_up_that_ended_early_is_said(taken: list[int], most: int, said: str) -> None:
    tuning = {"num_warmup": torch.tensor(taken)}
    info = FitInfo("mcmc", 900, config={"num_warmup": most}, tuning=tuning, method="NUTS")
    assert info.warm_up() == said
    assert f"900 gradients, {said}{', ' if said else ''}0 s" in repr(info)
    steps = replace(info, sample_stats={"n_steps": torch.tensor([[3, 4], [5, 6]])})
    assert "900 gradients, 18 of them of the draws, " in repr(steps)
    without = replace(info, config={"num_warmup": 0}, tuning={"num_warmup": torch.tensor([0, 0])})
    assert info.followed_by(without).warm_up() == said
    assert replace(info, tuning={}).warm_up() == replace(info, config={}).warm_up() == ""


@pytest.mark.parametrize(
    ("owner", "name", "sentence"),
    [
        (bz, "Nuts", "no attribute 'Nuts'; did you mean bnnzoo.NUTS"),
        (bz, "plot_reliabilty", "did you mean bnnzoo.plots.plot_reliability"),
        (bz, "mlp", "did you mean bnnzoo.models.mlp"),
        (
            bz.likelihoods,
            "bernouli",
            "module 'bnnzoo.models.likelihoods' has no .*; did you mean bnnzoo.likelihoods.bernoulli",
        ),
        (bz.priors, "fanin", "did you mean bnnzoo.priors.fan_in"),
        (bz.models, "MLP", "did you mean bnnzoo.models.mlp"),
        (bz.diagnostics, "compare_posterior", "did you mean bnnzoo.diagnostics.compare_posteriors"),
        (bz.calibration, "plot_reliability", "did you mean bnnzoo.plots.plot_reliability"),
        (bz.plots, "plot_uncertainty", "did you mean .*plot_uncertainty_map"),
        (bz.plots, "plot_distances", "did you mean plot_|it has grid_inputs"),
        (bz.plots, "xyz", "it has grid_inputs, line_inputs"),
    ],
)
def test_names_that_do_not_exist_suggest_those_that_do(owner: object, name: str, sentence: str) -> None:
    with pytest.raises(AttributeError, match=sentence):
        getattr(owner, name)


def test_older_pythons_are_told_which_one_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    package = Path(bz.__file__)
    ast.parse(package.read_text(), feature_version=(3, 7))  # else a SyntaxError would come first
    monkeypatch.setattr(sys, "version_info", (3, 11, 7))
    monkeypatch.setattr(sys, "version", "3.11.7 (main)")
    with pytest.raises(ImportError, match=r"^bnnzoo needs Python 3\.12 or newer, and this is 3\.11\.7\.$"):
        runpy.run_path(str(package))


def test_pip_on_an_older_python_speaks_of_python() -> None:
    """Older pips look for ArviZ, of which there is none for Python 3.11, before they look at what Python bnnzoo needs."""
    project = tomllib.loads((Path(bz.__file__).parents[1] / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == ">=3.12"
    (arviz,) = [each for each in project["dependencies"] if each.startswith("arviz")]
    assert arviz.endswith("; python_version >= '3.12'")
