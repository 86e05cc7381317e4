"""Reference posteriors: whole, of the card as it is, converged, and at no distance from themselves."""

import json
import random
import re
import sys
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr

import bnnzoo as bz
from bnnzoo.core.method import FitContext
from bnnzoo.inference.config import config_of
from bnnzoo.inference.markov.lockstep.pilot import pilot
from bnnzoo.zoo import make_reference
from bnnzoo.zoo.cards.foong_one_layer import diagonal
from bnnzoo.zoo.data import fingerprint
from bnnzoo.zoo.reference import FOLDER, read, referenced
from tests.helpers.linear_card import exact_moments

NAMES = referenced()


def test_they_are_small() -> None:
    assert sum(path.stat().st_size for path in FOLDER.glob("*.nc")) < 10e6  # the wheel is to stay below 12 MB


@pytest.mark.parametrize("name", NAMES)
def test_each_has_converged_and_is_of_the_card_as_it_is(name: str) -> None:
    card, about = bz.zoo.load(name), bz.zoo.reference(name).attrs
    assert about["max_rhat"] < 1.01
    assert about["min_ess_bulk"] > 1000 and about["min_ess_tail"] > 400
    assert bz.zoo.reference(name)["conditional"].sizes["chain"] >= 8
    assert about["command"].startswith(f"python -m bnnzoo.zoo.make_reference {name}")
    settings, expected = json.loads(about["settings"]), json.loads(json.dumps(config_of(card.long_run)))
    if isinstance(card.long_run, bz.MAMS) and "mass_matrix" not in settings:  # made when MAMS learnt scales only
        del expected["mass_matrix"]
    assert settings == expected
    if card.needs is None:
        data = card.data()
        found = fingerprint(data.train) + fingerprint(data.test)
        assert found == pytest.approx(json.loads(about["fingerprint"]), rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("name", NAMES[:3])
def test_a_reference_is_no_other_posterior_than_itself(name: str) -> None:
    """Its draws are compared with halves of themselves: what a floor averages, single halves exceed, but no limit."""
    found = bz.zoo.score(bz.zoo.reference(name), name)
    assert (found["distance"] <= found["limit"]).all()
    assert set(found["measure"].values) >= {"wasserstein"}


def test_the_reference_of_linear_regression_is_the_exact_posterior() -> None:
    mean, sd = exact_moments()
    summary = bz.zoo.reference("linear-regression")["summary"].to_dataset()
    assert np.abs((summary["mean"] - mean) / summary["mcse_mean"]).max() < 5
    assert np.abs((summary["sd"] - sd) / summary["mcse_sd"]).max() < 5


def test_scores_tell_a_good_method_from_a_bad_one() -> None:
    card = bz.zoo.load("linear-regression")
    good = card.predict(card.fit(bz.Laplace(), progress=False), num_draws=512)  # exact here, and any method will do
    bad = good.copy()
    bad["conditional"] = good["conditional"].to_dataset() * 0.7 + 0.3 * good["conditional"].to_dataset().mean("draw")
    near, far = (bz.zoo.score(tree, card.name)["ratio"] for tree in (good, bad))
    assert float(near.max()) < 1.5
    assert float(far.sel(measure="log_sd_ratio")) > 3 * float(near.sel(measure="log_sd_ratio"))
    assert float(far.sel(measure="mean_difference")) == pytest.approx(
        float(near.sel(measure="mean_difference")), rel=0.1
    )


def test_other_rows_are_refused() -> None:
    tree = bz.zoo.reference("linear-regression")
    with pytest.raises(ValueError, match="predict different observations"):
        bz.zoo.score(tree.isel(obs_id=slice(10)), "linear-regression")


def test_a_card_without_a_reference_is_refused() -> None:
    with pytest.raises(
        bz.zoo.ZooError, match=re.escape("Card 'mnist-convnet' has no reference posterior; those with one are")
    ):
        bz.zoo.reference("mnist-convnet")


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    tree = bz.zoo.reference("linear-regression")
    tree["summary"] = tree["summary"].to_dataset() + 1
    make_reference.write(tree, tmp_path / "damaged.nc")
    with pytest.raises(bz.zoo.ZooError, match="is damaged: its checksum is not that of its content"):
        read(tmp_path / "damaged.nc")


def test_a_reference_of_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    newer = replace(bz.zoo.load("linear-regression"), version=99)
    monkeypatch.setattr(sys.modules["bnnzoo.zoo.reference"], "load", lambda name: newer)
    with pytest.raises(
        bz.zoo.ZooError, match=r"of version 1 of the card, which is at version 99: write python -m bnnzoo.zoo"
    ):
        bz.zoo.reference("linear-regression")


@pytest.mark.parametrize(("chains", "shift"), [(4, 0.0), (8, 0.0), (8, 1.0)])
def test_a_run_that_has_not_converged_is_no_reference(chains: int, shift: float) -> None:
    """Too few chains; too few draws; chains apart."""
    tree = bz.zoo.reference("linear-regression").isel(chain=slice(chains), draw=slice(400 // chains))
    tree["conditional"] = tree["conditional"].to_dataset() + shift * tree["conditional"]["chain"]
    with pytest.raises(bz.zoo.ZooError, match=f"'linear-regression' is no reference: {chains} chains, R-hat"):
        make_reference.stored(bz.zoo.load("linear-regression"), tree)


def test_a_run_with_few_effective_draws_in_the_tails_is_no_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    found = xr.Dataset({"rhat": 1.001, "ess_bulk": 2000.0, "ess_tail": 400.0})
    monkeypatch.setattr(make_reference, "function_space", lambda tree: found)
    sentence = (
        r"sizes 2000 and, in the tails, 400 of its predictions, and it needs 8, .* and more than 1000 and 400\. Give"
    )
    with pytest.raises(bz.zoo.ZooError, match=sentence):
        make_reference.stored(bz.zoo.load("linear-regression"), bz.zoo.reference("linear-regression"))


def test_chains_of_mams_that_check_a_reference_start_where_the_model_does() -> None:
    card = bz.zoo.load("beta-proportions")  # networks start there anyway
    method = make_reference.far_apart(bz.MAMS(num_chains=8, num_warmup=20, num_draws=5), card, 3)
    posterior = card.fit(method, seed=3, progress=False)
    torch.testing.assert_close(method.init, posterior.density.init(8, 3))
    torch.testing.assert_close(pilot(method, posterior.density, FitContext(seed=3)).theta, method.init)
    near = pilot(replace(method, init=None), posterior.density, FitContext(seed=3)).theta
    assert (method.init.std(0) > 2 * near.std(0)).all()


def test_a_card_without_a_long_run_makes_no_reference(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert make_reference.main(["mnist-convnet", "--out", str(tmp_path)]) == 2
    assert "Error: Card 'mnist-convnet' has no long run: give it long_run=" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def drawn_today(number: int) -> list[str]:
    """Return names of references whose data are not the user's, others each day."""
    own = [name for name in NAMES if bz.zoo.load(name).needs is None]
    return random.Random(date.today().toordinal()).sample(own, number)


@pytest.mark.slow
@pytest.mark.parametrize("place", [0, 1])
def test_references_are_made_by_their_commands(place: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two of them, made again: the same posterior within Monte Carlo error, whatever the machine."""
    name = drawn_today(2)[place]
    asked = bz.zoo.reference(name).attrs["command"].split()
    assert asked[:3] == ["python", "-m", "bnnzoo.zoo.make_reference"]
    assert make_reference.main([*asked[3:], "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith(f"{name}: R-hat 1.00")
    found = bz.zoo.score(read(tmp_path / f"{name}.nc"), name)
    assert (found["distance"] <= 1.5 * found["limit"]).all(), f"{name}: {found}"


@pytest.mark.slow
def test_a_second_sampler_agrees_with_a_reference_and_not_with_another() -> None:
    card, tree = bz.zoo.load("linear-regression"), bz.zoo.reference("linear-regression")
    about = make_reference.check(card, tree).attrs
    assert about["checked_by"] == "MAMS"
    assert about["checked_distance"] <= about["checked_limit"] < 0.15
    tree["conditional"] = 1.5 * tree["conditional"].to_dataset()
    with pytest.raises(bz.zoo.ZooError, match=r"'linear-regression' is no reference: MAMS is \d\.\d+ away from it"):
        make_reference.check(card, tree)


def test_a_stored_reference_is_checked_without_making_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One in twenty of equal posteriors exceeds its limit, so that a distance beyond it is looked at once more."""
    asked: list[int] = []
    again = {1: bz.zoo.reference("two-moons"), 2: bz.zoo.reference("two-moons")}
    again[1]["conditional"] = again[1]["conditional"].to_dataset() ** 1.08  # one and a half limits away

    class Instead:
        name, fit = "two-moons", staticmethod(lambda other, seed, folder: asked.append(seed) or seed)
        predict = staticmethod(lambda seed, folder, weights: again[seed])

    monkeypatch.setattr(make_reference, "load", lambda name: Instead)
    assert make_reference.main(["two-moons", "--stored", "--out", str(tmp_path)]) == 0
    assert asked == [1, 2]
    assert "; NUTS 0.00" in capsys.readouterr().out
    found, before = read(tmp_path / "two-moons.nc"), bz.zoo.reference("two-moons")
    assert found.attrs["checked_runs"] == 2
    assert found["conditional"].identical(before["conditional"])
    again[2] = again[1]
    assert make_reference.main(["two-moons", "--stored", "--out", str(tmp_path / "none")]) == 2
    assert "so it was in each of 2 runs" in capsys.readouterr().err


@pytest.mark.parametrize("name", NAMES)
def test_a_second_sampler_agrees(name: str) -> None:
    about = bz.zoo.reference(name).attrs
    assert {about["checked_by"], about["method"]} == {"NUTS", "MAMS"}
    assert 0 < about["checked_distance"] <= about["checked_limit"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::bnnzoo.inference.FitWarning")
@pytest.mark.parametrize("name", ["logistic-regression", "polynomial-gap"])
def test_other_samplers_come_to_the_floor(name: str) -> None:
    card = bz.zoo.load(name)
    found = bz.zoo.score(card.predict(card.fit("mams", progress=False)), name)
    assert float(found["ratio"].max()) < 2


def test_references_of_classes_have_all_of_them() -> None:
    probs = bz.zoo.reference("two-moons")["conditional"]["probs"]
    assert probs.sizes["class_id"] == 2
    np.testing.assert_allclose(probs.sum("class_id"), 1.0, atol=1e-6)


@pytest.mark.reference
def test_the_reference_of_the_gap_is_as_far_from_the_published_function_as_other_samplers(bnnzoo_data: Path) -> None:
    """See tests/reference/test_foong.py: two exact samplers agree, and are off the published function in the gap."""
    with np.load(bnnzoo_data / "foong2d" / "hmc_1HL.npz") as arrays:
        along, mean, sd = arrays["xlambdas"][:, 0], arrays["pred_mean_slice"], np.sqrt(arrays["pred_var_slice"])
    place = diagonal()[:, 0]
    clusters_and_gap = np.abs(place) < 1.2
    found = bz.zoo.reference("foong-one-layer")["summary"].to_dataset().isel(obs_id=clusters_and_gap)
    far = np.abs(found["mean"] - np.interp(place[clusters_and_gap], along, mean)) - 0.19
    assert float((far / found["mcse_mean"]).max()) < 5
    expected = np.interp(place[clusters_and_gap], along, sd)
    assert float(((np.abs(found["sd"] / expected - 1) - 0.15) * expected / found["mcse_sd"]).max()) < 5
