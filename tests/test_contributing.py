"""The code on the pages about adding methods, samplers, likelihoods, priors, measures, plots and cards works as it stands."""

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import bnnzoo as bz
from bnnzoo.engine import choose, fleet
from bnnzoo.inference.fit import fit
from bnnzoo.inference.markov import checkpoint
from bnnzoo.testing import check_measure, check_method, check_model, example_tree, linear_gaussian
from bnnzoo.zoo import cards, catalogue
from tests.helpers.checkpointing import Killed
from tests.helpers.executors import InProcess

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "adding_a_method.md"
PARTS = ROOT / "docs" / "adding_parts.md"
SAMPLER = ROOT / "docs" / "adding_a_sampler.md"
ZOO = ROOT / "docs" / "zoo.md"


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
def sampler() -> dict[str, Any]:
    """Return the names that the code of the sampler in native code defines, and its use."""
    code, use = re.findall(r"```python\n(.*?)```", SAMPLER.read_text(), re.DOTALL)
    module = ModuleType("mala")
    sys.modules["mala"] = module  # workers and programs find its names there
    exec(code, module.__dict__)
    return module.__dict__ | {"use": use, "lines": len(code.splitlines())}


def test_the_sampler_keeps_the_promises_of_every_method(sampler: dict[str, Any]) -> None:
    check_method(sampler["MALA"](num_warmup=300, num_draws=2000))
    assert sampler["lines"] <= 150


@pytest.mark.parametrize("engine", ["native", "graph", "python"])
def test_the_sampler_runs_on_every_engine(engine: str, sampler: dict[str, Any], tmp_path: Path) -> None:
    """With the same draws but for rounding, here or on an executor, and from a checkpoint."""
    target, method = linear_gaussian(), sampler["MALA"](num_chains=3, num_warmup=30, num_draws=20)

    def fitted(**how: Any) -> Any:
        return fit(target.model, method, *target.data, progress=False, seed=4, dtype=torch.float64, **how)

    found, native = fitted(engine=engine), fitted(engine="native")
    assert found.info.engine.engine == engine
    torch.testing.assert_close(found.draws(), native.draws(), rtol=1e-8, atol=1e-8)
    spread = fitted(
        engine=engine, executor=InProcess()
    ).draws()  # chain by chain: a batch of another size rounds otherwise
    torch.testing.assert_close(spread, found.draws(), rtol=0 if engine == "native" else 1e-10, atol=0)
    broken_off, advance = [], sampler["LangevinWalkers"].advance

    def dying(chains: Any) -> None:
        advance(chains)
        if int(chains.counts.min()) > 40:
            broken_off.append(chains)
            raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fleet, "SECONDS_PER_CHUNK", 0.0)
        patch.setattr(choose, "SECONDS_PER_CHUNK", 0.0)
        patch.setattr(checkpoint, "SECONDS_BETWEEN_BLOCKS", 0.0)
        patch.setattr(sampler["LangevinWalkers"], "advance", dying)
        with pytest.raises(Killed):
            fitted(engine=engine, checkpoint=tmp_path / "run.zarr")
    assert broken_off
    assert torch.equal(fitted(engine=engine, checkpoint=tmp_path / "run.zarr").draws(), found.draws())


@pytest.mark.filterwarnings("ignore::bnnzoo.inference.FitWarning")  # a short run on a network
def test_the_sampler_is_used_as_the_page_says(sampler: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    exec(sampler["use"], sampler)
    assert "native" in capsys.readouterr().out


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


def test_a_card_is_one_file_and_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is loaded, draws from its prior, fits with each of its methods in a smoke budget, and is predicted."""
    (code,) = re.findall(r"```python\n(.*?)```", ZOO.read_text().partition("## Adding a card")[2], re.DOTALL)
    (tmp_path / "falling_ball.py").write_text(code)
    monkeypatch.setattr(cards, "__path__", [*cards.__path__, str(tmp_path)])
    monkeypatch.setattr(catalogue, "NAMES", (*catalogue.NAMES, "falling-ball"))
    monkeypatch.setitem(sys.modules, "bnnzoo.zoo.cards.falling_ball", None)
    del sys.modules["bnnzoo.zoo.cards.falling_ball"]  # and again when the test ends
    card = bz.zoo.load("falling-ball")
    assert card.prior_spread() == pytest.approx(card.prior.spread, rel=0.25)
    posterior = card.fit("laplace", progress=False)
    assert torch.allclose(posterior.loc, torch.tensor([0.0, -4.9, 5.0], dtype=torch.float64), atol=0.6)
    assert card.predict(posterior, num_draws=10)["conditional"]["mean"].shape == (1, 10, 10)
    for name in set(card.methods) - {"laplace"}:
        card.fit(name, smoke=True, progress=False)
