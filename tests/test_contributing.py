"""The code on the pages about adding methods, likelihoods, priors, measures and plots works as it stands."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch

import bnnzoo as bz
from bnnzoo.inference.fit import fit
from bnnzoo.testing import check_measure, check_method, check_model, example_tree, linear_gaussian

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "adding_a_method.md"
PARTS = ROOT / "docs" / "adding_parts.md"


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    """Return the names that the page's code defines when all of its blocks but the last, the check, are run."""
    method, use, _ = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    namespace: dict[str, Any] = {"__name__": "random_walk"}
    exec(method, namespace)
    return namespace | {"use": use}


def test_the_method_keeps_the_promises_of_every_method(page: dict[str, Any]) -> None:
    check_method(page["RandomWalkMetropolis"]())


def test_the_method_reports_what_it_did(page: dict[str, Any]) -> None:
    target = linear_gaussian()
    method = page["RandomWalkMetropolis"](num_chains=3, num_warmup=50, num_draws=20)
    info = fit(target.model, method, *target.data, progress=False).info
    assert info.num_gradients == 3 * (50 + 20 + 1)
    assert info.sample_stats["acceptance_rate"].shape == info.sample_stats["lp"].shape == (3, 20)
    assert info.config["num_draws"] == 20
    assert info.config["tuned_step_size"] != method.step_size


def test_its_settings_are_checked_by_their_annotations(page: dict[str, Any]) -> None:
    target = linear_gaussian()
    with pytest.raises(ValueError, match=r"RandomWalkMetropolis\(step_size=-1.0\): write a positive number"):
        fit(target.model, page["RandomWalkMetropolis"](step_size=-1.0), *target.data, progress=False)


@pytest.mark.filterwarnings("ignore::bnnzoo.inference.FitWarning")  # a random walk in a short run
def test_the_example_runs(page: dict[str, Any]) -> None:
    exec(page["use"], page)
    assert page["tree"]["conditional"].sizes["draw"] == 200


def test_contributors_find_the_page() -> None:
    assert "docs/adding_a_method.md" in (ROOT / "CONTRIBUTING.md").read_text()


@pytest.fixture(scope="module")
def parts() -> dict[str, Any]:
    """Return the names that the code on the page about parts defines."""
    namespace: dict[str, Any] = {"__name__": "parts"}
    for block in re.findall(r"```python\n(.*?)```", PARTS.read_text(), re.DOTALL):
        exec(block, namespace)
    return namespace


def test_the_likelihood_is_known_to_every_method(parts: dict[str, Any]) -> None:
    assert parts["posterior"].info.sampling == "ensemble"
    posterior = bz.fit(parts["model"], bz.DiagonalLaplace(), parts["x"], parts["y"], progress=False)
    tree = bz.predict(posterior, parts["x"][:3], num_draws=10)
    assert tree["conditional"]["variance"].shape == (1, 10, 3)
    assert bz.posterior_predictive(posterior, parts["x"], parts["y"], num_draws=5)["log_likelihood"]["y"].shape == (
        1,
        5,
        40,
    )


def test_the_prior_has_the_variance_it_claims(parts: dict[str, Any]) -> None:
    prior = parts["DoubleExponential"]()
    drawn = prior("net.0.weight", torch.zeros(4, 50), fan_in=50)
    assert drawn.event_shape == (4, 50)
    assert float(drawn.variance[0, 0]) == pytest.approx(1 / 50)
    data = bz.datasets.gap(num_data=20)
    model = bz.models.supervised(bz.models.mlp(1, hidden=(3,)), prior, bz.likelihoods.gaussian())
    check_model(model, data.x, data.y)


def test_the_measure_keeps_the_promises_of_every_measure(parts: dict[str, Any]) -> None:
    check_measure(parts["interval_width"], example_tree("regression"))


def test_the_plot_draws_every_observation(parts: dict[str, Any]) -> None:
    plots = parts["plot_width"](example_tree("regression"), backend="none")
    assert {"points", "xlabel", "ylabel"} <= set(plots.viz.children)


def test_contributors_find_the_page_on_parts() -> None:
    assert "docs/adding_parts.md" in (ROOT / "CONTRIBUTING.md").read_text()
