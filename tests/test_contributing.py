"""The method on the page "Adding an inference method" works as it stands."""

import re
from pathlib import Path
from typing import Any

import pytest

from bnnzoo.inference.fit import fit
from bnnzoo.testing import check_method, linear_gaussian

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "adding_a_method.md"


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
