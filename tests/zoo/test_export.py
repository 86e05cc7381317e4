"""The reference set as files: whole, checked by its sums, read without bnnzoo, and scored from files of other programs."""

import gzip
import hashlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import yaml
from typer.testing import CliRunner, Result

import bnnzoo as bz
from bnnzoo.apps.cli import app
from bnnzoo.zoo.cells import Cell, read_cells
from bnnzoo.zoo.data import ZooError
from bnnzoo.zoo.export import export, leaderboard
from bnnzoo.zoo.foreign import read_predictions
from bnnzoo.zoo.reference_tables import covariance_table, draws_table

CARDS = ["foong-one-layer", "linear-regression", "neal-three-classes", "two-moons"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("set") / "references"
    cells = [
        Cell(card="two-moons", method="nuts", version=1, seed=0, settings="{}", distance=1.02),
        Cell(card="two-moons", method="old", version=99, seed=0, settings="{}", distance=1.02),
    ]
    export(path, cells, cards=CARDS)
    return path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["zoo", *map(str, arguments)])


def refused(result: Result, sentence: str) -> None:
    assert result.exit_code == 2, result.output
    assert sentence in " ".join(result.stderr.split())


def check(value: Any, schema: dict[str, Any], place: str) -> None:
    """Hold a value against those parts of JSON Schema that the set's schemas use."""
    kinds = {
        "object": dict,
        "array": list,
        "string": str,
        "integer": int,
        "number": (int, float),
        "boolean": bool,
        "null": type(None),
    }
    if "type" in schema:
        asked = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
        assert any(isinstance(value, kinds[each]) for each in asked), place
    assert value in schema.get("enum", [value]) and value == schema.get("const", value), place
    if isinstance(value, dict):
        known, further = schema.get("properties", {}), schema.get("additionalProperties", True)
        assert {*schema.get("required", [])} <= {*value}, place
        assert further or {*value} <= {*known}, (place, {*value} - {*known})
        for key, each in value.items():
            check(each, known.get(key, further if isinstance(further, dict) else {}), f"{place}/{key}")
    if isinstance(value, list):
        for each in value:
            check(each, schema.get("items", {}), place)


def test_every_file_has_its_checksum(folder: Path) -> None:
    lines = [line.split("  ") for line in (folder / "checksums.sha256").read_text().splitlines()]
    assert {name for _, name in lines} == {
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    } - {"checksums.sha256"}
    assert all(hashlib.sha256((folder / name).read_bytes()).hexdigest() == found for found, name in lines)


def test_cards_are_as_their_schema_says_and_name_files_that_are_there(folder: Path) -> None:
    schema = json.loads((folder / "schema" / "card.json").read_text())
    cards = [json.loads(path.read_text()) for path in sorted((folder / "cards").iterdir())]
    assert [card["name"] for card in cards] == CARDS
    for card in cards:
        check(card, schema, card["name"])
        tables = [card["reference"][kind] for kind in ("csv", "netcdf", "summary", "entropies", "covariance")]
        named = [card["model"], card["data"], *tables]
        assert (card["reference"]["entropies"] is None) == (card["reference"]["quantity"] == "mean")
        assert all((folder / name).is_file() for name in named if name is not None)
        assert (card["data"] is None) == (card["needs"] is not None)
        assert card["reference"]["max_rhat"] < 1.01
        noted = {key: value for key, value in bz.zoo.reference(card["name"]).attrs.items() if key.startswith("checked")}
        assert noted == {key: value for key, value in card["reference"].items() if key.startswith("checked")}
        with xr.open_datatree(folder / card["reference"]["netcdf"], engine="h5netcdf") as tree:
            assert list(tree["conditional"][card["reference"]["quantity"]].shape) == card["reference"]["shape"]


def test_the_leaderboard_is_of_the_references_as_they_are(folder: Path) -> None:
    board = json.loads((folder / "leaderboard.json").read_text())
    check(board, json.loads((folder / "schema" / "leaderboard.json").read_text()), "leaderboard")
    assert [cell["method"] for cell in board["cells"]] == ["nuts"] and board["spreads"] == {}
    assert board["references"]["two-moons"]["sha256"] == bz.zoo.reference("two-moons").attrs["sha256"]
    assert [cell.method for cell in read_cells(folder / "leaderboard.json")] == ["nuts"]
    assert board == json.loads(json.dumps(leaderboard(read_cells(folder / "leaderboard.json"), CARDS)))


def test_the_citation_can_be_read(folder: Path) -> None:
    citation = yaml.safe_load((folder / "CITATION.cff").read_text())
    assert citation["cff-version"] == "1.2.0" and citation["license"] == "Apache-2.0"


@pytest.mark.parametrize("name", ["linear-regression", "neal-three-classes"])
def test_the_loader_reads_draws_without_bnnzoo(folder: Path, name: str) -> None:
    assert len([line for line in (folder / "load.py").read_text().splitlines() if line]) <= 26
    code = f"""
import sys; sys.path.insert(0, {str(folder)!r})
import json, load
found, data = load.draws({name!r}), load.data({name!r})
assert "bnnzoo" not in sys.modules
table, covariance = load.table({name!r}), load.covariance({name!r})
print(json.dumps([found.tolist(), data["test"]["x"].tolist(), table["q50"].tolist(), covariance.tolist()]))
"""
    printed = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True).stdout
    draws, x, median, covariance = map(np.array, json.loads(printed))
    exact = bz.zoo.reference(name)["conditional"].to_dataset()
    np.testing.assert_allclose(draws, exact["probs" if "probs" in exact else "mean"], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(x, bz.zoo.load(name).data().test["x"])
    flat = draws.reshape(-1, median.size)
    np.testing.assert_allclose(median, np.median(flat, 0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(covariance, np.cov(flat.T), rtol=1e-3, atol=1e-6)


SAID = "The data of foong-one-layer are not in this folder: its card names them under 'needs'."


def test_the_loader_says_which_data_are_elsewhere(folder: Path) -> None:
    code = f"import sys; sys.path.insert(0, {str(folder)!r}); import load; load.data('foong-one-layer')"
    found = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True)
    assert found.stderr.strip().endswith(f"LookupError: {SAID}")


@pytest.mark.slow
def test_r_reads_the_export(folder: Path) -> None:
    if not shutil.which("Rscript"):
        pytest.skip("needs R with jsonlite and posterior")
    code = """
source("load.R")
found <- draws("linear-regression")
x <- data_of("linear-regression")$test$x[1:3, 1]
cat(posterior::nchains(found), posterior::niterations(found), posterior::nvariables(found), x,
    tryCatch(data_of("foong-one-layer"), error = conditionMessage), mean(found[[1]]),
    table_of("two-moons", "entropies")$mutual_information[2], covariance("two-moons")[2, 4], sep = "\n")
"""
    done = subprocess.run(["Rscript", "-e", code], cwd=folder, capture_output=True, text=True, check=True)
    chains, draws, rows, *x, said, mean, information, covariance = done.stdout.splitlines()
    exact = bz.zoo.reference("linear-regression")["conditional"]["mean"]
    assert (int(chains), int(draws), int(rows)) == exact.shape
    assert [float(each) for each in x] == pytest.approx(
        bz.zoo.load("linear-regression").data().test["x"][:3, 0].tolist()
    )
    assert said == SAID
    assert float(mean) == pytest.approx(float(exact[..., 0].mean()), abs=1e-5)
    moons = bz.zoo.reference("two-moons")
    assert float(information) == pytest.approx(float(bz.uncertainty.mutual_information(moons)[1]), rel=1e-3)
    assert float(covariance) == pytest.approx(
        np.genfromtxt(covariance_table(moons).splitlines(), delimiter=",", skip_header=1)[1, 3], rel=1e-4
    )


def test_a_tree_written_by_numpy_and_xarray_is_scored_and_enters_the_table(tmp_path: Path) -> None:
    """Draws of the closed-form posterior, made without bnnzoo."""
    data, noise, rng = bz.zoo.load("linear-regression").data(), 0.5, np.random.default_rng(0)
    train, test = (np.column_stack([part["x"], np.ones(len(part["x"]))]) for part in (data.train, data.test))
    covariance = np.linalg.inv(train.T @ train / noise**2 + np.eye(4))
    theta = rng.multivariate_normal(covariance @ train.T @ data.train["y"] / noise**2, covariance, size=(4, 256))
    mean = xr.Dataset({"mean": (("chain", "draw", "obs_id"), theta @ test.T)})
    xr.DataTree.from_dict({"conditional": mean}).to_netcdf(tmp_path / "exact.nc", engine="h5netcdf")
    table = tmp_path / "table.json"
    found = run(
        "score", tmp_path / "exact.nc", "--card", "linear-regression", "--method", "closed form", "--table", table
    )
    assert found.exit_code == 0, found.output
    assert found.stdout.count("no evidence of a difference") == 3
    (cell,) = read_cells(table)
    assert (cell.card, cell.method, cell.seconds) == ("linear-regression", "closed form", None)
    assert 0.5 < cell.distance < 1.5
    xr.DataTree.from_dict({"conditional": 2 * mean}).to_netcdf(tmp_path / "wrong.nc", engine="h5netcdf")
    found = run("score", tmp_path / "wrong.nc", "--card", "linear-regression")
    assert found.stdout.count("another posterior") == 3


def test_the_page_shows_what_the_command_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference_posteriors.md").read_text()
    (code,) = (each for each in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "to_netcdf" in each)
    monkeypatch.chdir(tmp_path)
    exec(code, {"__name__": "page"})
    printed = run("score", "mine.nc", "--card", "linear-regression").stdout.splitlines()
    assert len(printed) == 3 and all(line in page for line in printed)


def test_files_of_comma_separated_values_are_scored(tmp_path: Path) -> None:
    for name in ("linear-regression", "neal-three-classes", "two-outputs"):
        exact = bz.zoo.reference(name)
        (tmp_path / "draws.csv.gz").write_bytes(gzip.compress(draws_table(exact).encode()))
        tree = read_predictions(tmp_path / "draws.csv.gz", name)
        found = bz.zoo.score(tree, name)
        assert (found["distance"] <= found["limit"]).all()


def test_files_that_hold_no_predictions_are_refused(tmp_path: Path) -> None:
    def of(name: str, text: str) -> Path:
        (tmp_path / name).write_text(text)
        return tmp_path / name

    rows = ",".join(f"mean[{k}]" for k in range(1, 41))
    tree, flat = tmp_path / "tree.nc", tmp_path / "flat.nc"
    xr.DataTree.from_dict({"posterior": xr.Dataset({"mu": 0.0})}).to_netcdf(tree, engine="h5netcdf")
    mean = xr.Dataset({"mean": (("draw", "obs_id"), np.zeros((5, 40)))})
    xr.DataTree.from_dict({"conditional": mean}).to_netcdf(flat, engine="h5netcdf")
    classes = xr.Dataset({"mean": (("chain", "draw", "obs_id", "class_id"), np.zeros((2, 5, 40, 2)))})
    xr.DataTree.from_dict({"conditional": classes}).to_netcdf(tmp_path / "classes.nc", engine="h5netcdf")
    lost = np.zeros((2, 5, 40))
    lost[1, 3, 7] = lost[1, 4, 7] = np.nan
    draws = xr.Dataset({"mean": (("chain", "draw", "obs_id"), lost)})
    xr.DataTree.from_dict({"conditional": draws}).to_netcdf(tmp_path / "lost.nc", engine="h5netcdf")
    zeros = ",".join(["0"] * 40)
    for path, sentence in (
        (tmp_path / "lost.nc", "holds numbers that are not finite (2 of 400), the first for chain 1, draw 3, row 7"),
        (tmp_path / "classes.nc", "obs_id: 40, class_id: 2], and card 'linear-regression' has 40 test rows"),
        (tmp_path / "none.nc", "There is no file"),
        (of("a.txt", "hello"), "is neither netCDF 4 nor CSV"),
        (tree, "holds no draws of 'mean' in a group 'conditional'"),
        (flat, "is [draw: 5, obs_id: 40], and card 'linear-regression' has 40 test rows: write [chain, draw, obs_id]"),
        (of("a.csv", "chain,draw,y\n1,1,2\n"), "takes chain, draw and 40 of mean: 40, rows first"),
        (of("b.csv", f"chain,draw,{rows}\n1,1,{zeros.replace('0', 'a', 1)}\n"), "holds text where numbers should be"),
        (
            of("d.csv", f"chain,draw,{rows}\n1,1,{zeros.replace('0', '', 1)}\n"),
            "holds numbers that are not finite (1 of 40), the first for chain 0, draw 0, row 0",
        ),
        (of("c.csv", f"chain,draw,{rows}\n1,1,{zeros}\n1,2,{zeros}\n2,1,{zeros}\n"), "number of draws (2, 1)"),
    ):
        with pytest.raises(ZooError) as error:
            read_predictions(path, "linear-regression")
        assert sentence in str(error.value)


def test_commands_refuse_what_they_cannot_do(folder: Path, tmp_path: Path) -> None:
    refused(run("export", folder), "already exists: write to a new folder")
    refused(run("export", tmp_path / "new", "--table", tmp_path / "no.json"), "make it by bnnzoo zoo table --out")
    draws = folder / "draws" / "two-moons.nc"
    refused(run("score", draws, "--card", "two-moons", "--method", "mine"), "--method and --table belong together")
    named = ("--method", "nuts", "--table", tmp_path / "table.json")
    refused(run("score", draws, "--card", "two-moons", *named), "'nuts' is a method that the table itself runs")
    refused(run("score", draws, "--card", "mnist-convnet"), "has no reference posterior")
