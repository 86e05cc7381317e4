"""The commands of the zoo."""

from pathlib import Path

import pytest
import xarray as xr
from typer.testing import CliRunner, Result

import bnnzoo as bz
from bnnzoo.apps.cli import app


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["zoo", *(str(argument) for argument in arguments)])


def refused(result: Result, sentence: str) -> None:
    assert result.exit_code == 2, result.output
    assert sentence in " ".join(result.stderr.split())
    assert "Traceback" not in result.output


def test_the_list_has_every_card() -> None:
    result = run()
    assert result.exit_code == 0
    assert [line.split()[0] for line in result.stdout.splitlines()] == bz.zoo.list().names


def test_show_describes_a_card() -> None:
    result = run("show", "two-moons")
    assert result.exit_code == 0
    assert "Methods: nuts, mams, laplace, mfvi, ensemble" in result.stdout


def test_run_says_how_good_the_fit_is_and_writes_the_tree(tmp_path: Path) -> None:
    out = tmp_path / "laplace.nc"
    result = run("run", "linear-regression", "--method", "laplace", "--out", out)
    assert result.exit_code == 0, result.output
    assert "Mean log predictive density of 40 new observations: -0." in result.stdout
    assert "Distance from the reference posterior: mean_difference " in result.stdout
    with xr.open_datatree(out, engine="h5netcdf") as tree:
        assert tree.attrs["card"] == "linear-regression"
    assert [path.name for path in tmp_path.iterdir()] == ["laplace.nc"]
    refused(run("run", "linear-regression", "--out", out), "already exists; choose another --out")


@pytest.mark.slow
def test_run_judges_chains() -> None:
    result = run("run", "linear-regression", "--method", "nuts", "--seed", 1)
    assert "The predictions have converged: largest R-hat 1.00" in result.stdout
    assert "The predictions have not converged" in run("run", "two-moons", "--method", "nuts", "--smoke").stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["show", "two-moon"], "There is no card 'two-moon' in the zoo; the nearest names are two-moons"),
        (["run", "xyzzy"], "There is no card 'xyzzy' in the zoo"),
        (
            ["run", "two-moons", "--method", "magic"],
            "Card 'two-moons' has no method 'magic'; its methods are nuts, mams",
        ),
        (["run", "two-moons", "--out", "/nowhere/at/all.nc"], "There is no folder '/nowhere/at' for 'all.nc'"),
        (
            ["run", "neal-regression", "--data", "/nowhere"],
            "needs 'fbm/rdata', which the folder of data '/nowhere' does not",
        ),
    ],
)
def test_mistakes_are_said_in_one_sentence(arguments: list[str], sentence: str) -> None:
    refused(run(*arguments), sentence)


def test_a_failure_while_writing_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full_disk(self: xr.DataTree, path: object, **options: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(xr.DataTree, "to_netcdf", full_disk)
    result = run("run", "linear-regression", "--method", "laplace", "--smoke", "--out", tmp_path / "a.nc")
    refused(result, "No space left on device")
    assert not list(tmp_path.iterdir())
