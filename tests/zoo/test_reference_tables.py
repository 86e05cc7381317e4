"""Tables of references: against closed forms and other functions of the library, with Monte Carlo errors that are right."""

import io
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy.stats import norm

import bnnzoo as bz
from bnnzoo.diagnostics import function_space
from bnnzoo.zoo import make_reference
from bnnzoo.zoo.data import ZooError
from bnnzoo.zoo.export import export
from bnnzoo.zoo.reference import predicted, referenced
from bnnzoo.zoo.reference_tables import covariance_table, entropy_table, summary_table
from tests.helpers.linear_card import exact_covariance, exact_moments


def read(text: str | None) -> pd.DataFrame:
    assert text is not None
    return pd.read_csv(io.StringIO(text))


def test_quantiles_and_covariances_of_linear_regression_are_those_of_the_exact_posterior() -> None:
    tree = bz.zoo.reference("linear-regression")
    (mean, sd), exact = exact_moments(), exact_covariance()
    table = read(summary_table(tree))
    assert table["row"].tolist() == list(range(1, 41)) and "class" not in table and "outcome" not in table
    for level in (5, 25, 50, 75, 95):
        place = norm.ppf(level / 100)
        error = sd * np.sqrt(level / 100 * (1 - level / 100) / 1024) / norm.pdf(place)  # of independent draws
        assert np.abs((table[f"q{level}"] - mean - place * sd) / error).max() < 5
        assert (table[f"mcse_q{level}"] / error).mean() == pytest.approx(1.0, abs=0.2)
    found = read(covariance_table(tree))
    assert list(found) == [f"mean[{row}]" for row in range(1, 41)]
    error = np.sqrt((np.outer(sd**2, sd**2) + exact**2) / 1024)  # of independent Gaussian draws
    apart = (found.to_numpy() - exact) / error
    assert np.abs(apart).max() < 5 and 0.4 < np.sqrt((apart**2).mean()) < 1.8


def test_moments_are_of_the_whole_run() -> None:
    tree = bz.zoo.reference("two-outputs")
    table, whole = read(summary_table(tree)), tree["summary"].to_dataset()
    np.testing.assert_allclose(table["mcse_mean"], whole["mcse_mean"].to_numpy().ravel(), rtol=1e-5)
    assert table[["row", "outcome"]].to_numpy()[:3].tolist() == [[1, 1], [1, 2], [2, 1]]


def test_of_two_classes_both_have_errors() -> None:
    table = read(summary_table(bz.zoo.reference("two-moons")))
    one, other = (table[table["class"] == k].reset_index() for k in (1, 2))
    np.testing.assert_allclose(one["mean"], 1 - other["mean"], atol=1e-5)
    assert not table.isna().to_numpy().any() and one["rhat"].equals(other["rhat"])


@pytest.mark.parametrize("name", [name for name in referenced() if "probs" in bz.zoo.reference(name)["conditional"]])
def test_entropies_are_those_of_the_draws(name: str) -> None:
    """Of every card: probabilities of the class that is not stored must not be negative."""
    tree = bz.zoo.reference(name)
    table, parts = read(entropy_table(tree)), bz.uncertainty.decompose(tree)
    for column, part in (("predictive_entropy", "total"), ("expected_entropy", "aleatoric")):
        np.testing.assert_allclose(table[column], parts[part], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(table["mutual_information"], parts["epistemic"], rtol=1e-3, atol=1e-5)


def test_errors_of_entropies_are_the_spread_of_repeated_draws() -> None:
    rng = np.random.default_rng(0)

    def drawn() -> xr.DataTree:
        probs = rng.dirichlet([0.6, 0.3, 0.1], size=(2, 400, 4))
        return xr.DataTree.from_dict(
            {"conditional": xr.Dataset({"probs": (("chain", "draw", "obs_id", "class_id"), probs)})}
        )

    again = [bz.uncertainty.decompose(drawn()) for _ in range(200)]
    told = read(entropy_table(drawn()))
    for column, part in (
        ("predictive_entropy", "total"),
        ("expected_entropy", "aleatoric"),
        ("mutual_information", "epistemic"),
    ):
        spread = np.std([each[part].to_numpy() for each in again])  # all rows are alike
        assert told[f"mcse_{column}"].mean() == pytest.approx(spread, rel=0.15)


def test_real_predictions_have_no_entropies() -> None:
    assert entropy_table(bz.zoo.reference("linear-regression")) is None


@pytest.fixture(scope="module")
def all_draws(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of short long runs."""
    folder = tmp_path_factory.mktemp("long") / "runs"
    run = bz.NUTS(num_chains=8, num_warmup=300, num_draws=1000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(make_reference, "load", lambda name: replace(bz.zoo.load(name), long_run=run))
        names = ["linear-regression", "logistic-regression"]
        assert make_reference.main([*names, "--all-draws", str(folder)]) == 0
    return folder


def test_all_draws_of_a_long_run_are_a_reference(all_draws: Path) -> None:
    real, classes = (bz.zoo.reference(name, all_draws) for name in referenced(all_draws))
    assert dict(real["conditional"].sizes) == {"chain": 8, "draw": 1000, "obs_id": 40}
    assert {*real["conditional"].data_vars} == {"mean", "variance", "entropy"}
    assert {*classes["conditional"].data_vars} == {"probs", "entropy"} and classes["posterior"].data_vars
    np.testing.assert_allclose(bz.uncertainty.decompose(real)["aleatoric"], 0.25, rtol=1e-5)
    for tree in (real, classes):
        name, exact = tree.attrs["card"], function_space(tree)
        assert tree.attrs["command"] == f"python -m bnnzoo.zoo.make_reference {name} --seed 0 --all-draws FOLDER"
        np.testing.assert_allclose(predicted(tree).mean(("chain", "draw")), tree["summary"]["mean"], atol=1e-5)
        np.testing.assert_allclose(exact["rhat"].max(), tree.attrs["max_rhat"], rtol=1e-4)
        found = bz.zoo.score(tree, name)
        assert (found["distance"] <= 1.5 * found["limit"]).all()


def test_all_draws_are_exported(all_draws: Path, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    shutil.copy(all_draws / "logistic-regression.nc", tmp_path / "runs")
    export(tmp_path / "set", all_draws=tmp_path / "runs")
    assert [path.stem for path in (tmp_path / "set" / "cards").iterdir()] == ["logistic-regression"]
    draws = pd.read_csv(tmp_path / "set" / "draws" / "logistic-regression.csv.gz")
    assert draws.shape == (8 * 1000, 2 + 40 * 2)
    np.testing.assert_allclose(draws.to_numpy()[:, 2::2] + draws.to_numpy()[:, 3::2], 1.0, atol=1e-6)


def test_folders_without_a_file_are_refused(
    all_draws: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sentence = r"no file '.*two-moons.nc': write python -m bnnzoo.zoo.make_reference two-moons --all-draws"
    with pytest.raises(ZooError, match=sentence):
        export(tmp_path / "set", cards=["two-moons"], all_draws=all_draws)
    with pytest.raises(ZooError, match=r"no references .*: write python -m bnnzoo.zoo.make_reference NAME --all-draws"):
        export(tmp_path / "set", all_draws=tmp_path)
    for option in (["--stored"], ["--out", str(tmp_path)]):
        with pytest.raises(SystemExit):
            make_reference.main(["two-moons", "--all-draws", str(tmp_path), *option])
        assert "--all-draws FOLDER is where the files go" in capsys.readouterr().err
