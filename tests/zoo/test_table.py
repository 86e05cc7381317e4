"""The table of the zoo: cells are measured once, written whole, and mistakes are refused."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

import bnnzoo as bz
from bnnzoo.apps.cli import app
from bnnzoo.zoo import table
from bnnzoo.zoo.table import Cell, fill_table, measure, methods_of, read_cells, table_rows, write_cells

CARD = "linear-regression"
pytestmark = pytest.mark.filterwarnings("ignore::bnnzoo.inference.FitWarning")


def test_an_exact_method_is_at_the_floor() -> None:
    cell = measure(bz.zoo.load(CARD), "laplace")
    assert cell.distance is not None and cell.distance < 1.5
    assert cell.log_density is not None and -1.0 < cell.log_density < 0.0
    assert cell.calibration is not None and 0 <= cell.calibration < 0.2
    assert cell.seconds is not None and cell.seconds > 0 and not cell.refused


def test_a_point_estimate_has_no_distance_but_a_log_density() -> None:
    cell = measure(bz.zoo.load(CARD), "map", small=True)
    assert cell.distance is None and cell.calibration is None and cell.log_density is not None


def test_a_method_that_does_not_apply_says_why() -> None:
    cell = measure(bz.zoo.load(CARD), "dropout", small=True)
    assert cell.distance is None and cell.seconds is None
    assert cell.refused.startswith("MCDropout drops hidden units, and network 'net' has none")


def test_cells_are_measured_once_and_again_if_the_run_is_another(tmp_path: Path) -> None:
    new: list[Cell] = []
    path = tmp_path / "table.json"

    def fill(**options: object) -> list[Cell]:
        return fill_table(path, [CARD], ["laplace", "map"], small=True, announce=new.append, **options)

    first = fill()
    assert [cell.method for cell in new] == ["laplace", "map"] and first == read_cells(path) == fill()
    assert len(new) == 2
    write_cells([replace(first[0], version=0), first[1]], path)
    fill()
    assert [cell.method for cell in new[2:]] == ["laplace"]
    assert {cell.seed for cell in fill(seed=1)} == {1}
    assert [each.name for each in tmp_path.iterdir()] == ["table.json"]


def test_the_work_done_before_a_failure_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = table.measure

    def fails_at_map(card: bz.zoo.Card, name: str, **options: object) -> Cell:
        if name == "map":
            raise KeyboardInterrupt
        return whole(card, name, **options)

    monkeypatch.setattr(table, "measure", fails_at_map)
    with pytest.raises(KeyboardInterrupt):
        fill_table(tmp_path / "table.json", [CARD], ["laplace", "map"], small=True)
    assert [cell.method for cell in read_cells(tmp_path / "table.json")] == ["laplace"]


def test_the_methods_of_a_card_come_with_its_own_settings() -> None:
    card = bz.zoo.load(CARD)
    assert methods_of(card)["full-rank-vi"] == card.methods["full-rank-vi"]
    assert set(methods_of(card)) > set(card.methods)


def test_cells_that_were_not_run_are_empty() -> None:
    cells = [
        Cell(card=card, method=method, version=1, seed=0, settings="{}") for card, method in [("a", "x"), ("b", "y")]
    ]
    assert table_rows(cells, lambda cell: "1") == [["card", "x", "y"], ["a", "1", ""], ["b", "", "1"]]
    assert table_rows([], lambda cell: "1") == [["card"]]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--cards", "two-moon"], "There is no card 'two-moon' in the zoo"),
        (["--cards", "mnist-convnet"], "Card 'mnist-convnet' has no reference posterior; those with one are"),
        (["--cards", CARD, "--methods", "magic"], "No card has a method 'magic'; their methods are dropout, "),
        (["--cards", "foong-one-layer", "--data", "/nowhere"], "which the folder of data '/nowhere' does not have"),
        (["--out", "/nowhere/table.json"], "There is no folder '/nowhere' for 'table.json'"),
    ],
)
def test_mistakes_are_said_in_one_sentence(options: list[str], sentence: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["zoo", "table", "--out", str(tmp_path / "a.json"), *options])
    assert result.exit_code == 2, result.output
    assert sentence in " ".join(result.stderr.split())


@pytest.mark.parametrize("text", ["", "[]", '{"cells": [{"card": "a"}]}', json.dumps({"cells": [{"warnings": []}]})])
def test_a_file_that_is_no_table_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text(text)
    with pytest.raises(bz.zoo.ZooError, match=r"other.json is not a table of the zoo"):
        fill_table(tmp_path / "other.json", [CARD], ["map"])
    assert (tmp_path / "other.json").read_text() == text


def test_the_command_prints_the_table(tmp_path: Path) -> None:
    out = tmp_path / "a.json"
    options = ["zoo", "table", "--smoke", "--cards", CARD, "--methods", "map,laplace", "--out", str(out)]
    result = CliRunner().invoke(app, options)
    assert result.exit_code == 0, result.output
    assert "linear-regression, laplace: " in result.stdout and "distance, in Monte Carlo floors" in result.stdout
    assert len(read_cells(out)) == 2
