"""The table of the zoo: cells are measured once, written whole, and mistakes are refused."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import bnnzoo as bz
from bnnzoo.apps.cli import app
from bnnzoo.engine.shares import UnfinishedError
from bnnzoo.zoo import table
from bnnzoo.zoo.budgets import table_methods
from bnnzoo.zoo.card import Card
from bnnzoo.zoo.cells import Cell, blank_cell, measure, read_cells, write_cells
from bnnzoo.zoo.measured import is_off, sd_ratios
from bnnzoo.zoo.table import fill_table, merge_table, table_rows
from tests.helpers.executors import InProcess
from tests.helpers.killing import without_costs

CARD = "linear-regression"
pytestmark = pytest.mark.filterwarnings("ignore::bnnzoo.inference.FitWarning")


def test_an_exact_method_is_at_the_floor() -> None:
    cell = measure(bz.zoo.load(CARD), "laplace")
    assert cell.distance is not None and cell.distance < 1.5
    assert cell.log_density is not None and -1.0 < cell.log_density < 0.0
    assert cell.calibration is not None and 0 <= cell.calibration < 0.2
    assert cell.seconds is not None and cell.seconds > 0 and not cell.refused
    assert cell.processor is not None and cell.processor > 0 and cell.gradients
    assert cell.off is False and not cell.warned
    assert cell.sd_inside == pytest.approx(1.0, abs=0.05) and cell.sd_beyond is None


def test_noise_without_a_variance_has_predictions_that_can_be_compared() -> None:
    card = bz.zoo.load("robust-regression")
    cell = measure(card, "laplace")
    assert not cell.refused and cell.distance is not None and cell.distance < 3
    variance = card.predict(card.fit(table_methods()["laplace"]), num_draws=1000)["conditional"]["variance"]
    assert np.isinf(variance).any()


def test_a_point_estimate_has_no_distance_but_a_log_density() -> None:
    cell = measure(bz.zoo.load(CARD), "map", small=True)
    assert cell.distance is None and cell.calibration is None and cell.log_density is not None


def test_a_method_that_does_not_apply_says_why() -> None:
    cell = measure(bz.zoo.load(CARD), "dropout", small=True)
    assert cell.distance is None and cell.seconds is None
    assert cell.refused.startswith("MCDropout drops hidden units, and network 'net' has none")


def test_a_fit_whose_squares_overflow_has_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such predictions are finite, and neither their variances nor their distances are; JSON takes finite numbers alone."""
    card, predict = bz.zoo.load(CARD), Card.predict

    def far(self: Card, posterior: Any, **options: Any) -> Any:
        tree = predict(self, posterior, **options)
        tree["conditional"] = 1e200 * tree["conditional"].to_dataset()
        return tree

    monkeypatch.setattr(Card, "predict", far)
    cell = measure(card, "laplace", small=True)
    assert cell.refused == "The fit diverged: the squares of its predictions overflow." and cell.distance is None
    write_cells([cell], tmp_path / "table.json")
    assert read_cells(tmp_path / "table.json") == [cell]


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
    assert {(cell.method, cell.seed) for cell in fill(seeds=2)} == {
        (method, seed) for method in ("laplace", "map") for seed in (0, 1)
    }
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


def test_every_method_has_its_default_settings() -> None:
    methods = table_methods()
    assert len(methods) >= 24 and len({type(each) for each in methods.values()}) == len(methods)
    assert all(method == type(method)() for name, method in methods.items() if name != "dropout")


def test_slow_and_refused_cells_have_one_seed(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    (laplace,) = fill_table(path, [CARD], ["laplace"], small=True)
    write_cells([replace(laplace, processor=61.0)], path)
    assert fill_table(path, [CARD], ["laplace"], small=True, seeds=2) == read_cells(path)
    assert len(read_cells(path)) == 1
    fill_table(path, [CARD], ["dropout"], small=True, seeds=2)
    assert [cell.method for cell in read_cells(path)] == ["dropout", "laplace"]


def test_a_fit_is_given_up_in_time_and_tried_again_with_more(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    (cell,) = fill_table(path, [CARD], ["nuts"], limit=0.05)
    assert (cell.refused, cell.processor) == ("Given up after 0.05 seconds of processor time.", 0.05)
    new: list[Cell] = []
    fill_table(path, [CARD], ["nuts"], limit=0.04, announce=new.append)
    assert new == []
    fill_table(path, [CARD], ["nuts"], limit=120, announce=new.append)
    assert [cell.refused for cell in new] == [""] and read_cells(path) == new


def test_processes_find_what_one_does(tmp_path: Path) -> None:
    """Costs differ."""
    tables = [
        fill_table(tmp_path / f"{workers}.json", [CARD], ["laplace", "map"], small=True, workers=workers)
        for workers in (1, 2)
    ]
    costs = {"seconds": None, "compiling": None, "processor": None}
    one, two = ({cell.method: replace(cell, **costs) for cell in cells} for cells in tables)
    assert one == two


def test_an_executor_finds_what_one_process_does(tmp_path: Path) -> None:
    executor = InProcess()
    one = fill_table(tmp_path / "one.json", [CARD], ["map", "ensemble"], small=True)
    other = fill_table(tmp_path / "other.json", [CARD], ["map", "ensemble"], small=True, executor=executor)
    assert executor.num_tasks == 2
    assert without_costs(tmp_path / "one.json") == without_costs(tmp_path / "other.json") and len(one) == len(other)


def test_a_fit_in_a_thread_cannot_be_given_up(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as executor, pytest.raises(bz.zoo.ZooError, match=r"^limit=60 cannot end a fit in a th"):
        fill_table(tmp_path / "table.json", [CARD], ["map"], small=True, limit=60, executor=executor)


def command(*options: object) -> Result:
    return CliRunner().invoke(app, ["zoo", "table", "--smoke", *map(str, options)])


def test_two_tasks_write_the_table_of_one_run(tmp_path: Path) -> None:
    asked = ["--cards", f"{CARD},logistic-regression", "--methods", "map,ensemble", "--out"]
    one = command(*asked, tmp_path / "one.json")
    assert one.exit_code == 0, one.output
    folder = tmp_path / "tasks"
    first = command(*asked, folder, "--task", 1, "--of", 2)
    assert first.exit_code == 0, first.output
    assert (
        "Task 1 of 2 is done. Of 4 cells 2 are missing: linear-regression by map, seed 0; logistic-regression by ensemble, "
        "seed 0. Run task 0 of 2: it goes on where it stopped."
    ) in " ".join(first.stdout.split())
    assert [each.name for each in folder.iterdir()] == ["task-1-of-2.json"]
    second = command(*asked, folder, "--task", 0, "--of", 2)
    assert second.exit_code == 0 and "Written to" in second.stdout and "logistic-regression, map" not in second.stdout
    assert without_costs(folder / "zoo_table.json") == without_costs(tmp_path / "one.json")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Replace fits by cells that say how slow they were; return those that were run."""
    ran: list[tuple[str, int]] = []

    def cell(card: bz.zoo.Card, name: str, *, seed: int, small: bool, **_: object) -> Cell:
        if ("stop", seed) in ran and len(ran) % 3 == 0:
            raise KeyboardInterrupt
        ran.append((name, seed))
        return replace(blank_cell(card, name, seed, small), distance=1.0, processor=61.0 if name == "nuts" else 1.0)

    monkeypatch.setattr(table, "measure", cell)
    return ran


METHODS = ["nuts", "map", "laplace", "mfvi", "swag"]


def test_a_task_that_was_killed_goes_on(tmp_path: Path, quick: list[tuple[str, int]]) -> None:
    quick += [("stop", 0)] * 2
    with pytest.raises(KeyboardInterrupt):
        fill_table(tmp_path, [CARD], METHODS, task=(0, 2))
    assert [cell.method for cell in read_cells(tmp_path / "task-0-of-2.json")] == ["nuts"]
    with pytest.raises(
        UnfinishedError, match=r"Of 5 cells 4 are missing: .* by map, seed 0; .* Run tasks 0-1 of 2: each"
    ):
        merge_table(tmp_path, 2, [CARD], METHODS)
    del quick[:]
    fill_table(tmp_path, [CARD], METHODS, task=(0, 2))
    assert quick == [("mfvi", 0), ("swag", 0)]


def test_seeds_of_a_cell_stay_together_and_those_of_a_slow_one_are_not_missed(
    tmp_path: Path, quick: list[tuple[str, int]]
) -> None:
    for task in range(3):
        fill_table(tmp_path / "tasks", [CARD], METHODS, seeds=2, task=(task, 3))
    assert len(quick) == 9
    merged = merge_table(tmp_path / "tasks", 3, [CARD], METHODS, seeds=2)
    fill_table(tmp_path / "one.json", [CARD], METHODS, seeds=2)
    assert (tmp_path / "tasks" / "zoo_table.json").read_text() == (tmp_path / "one.json").read_text()
    with pytest.raises(
        UnfinishedError, match=r"Of 5 cells 4 are missing: linear-regression by map, seed 2; .* Run tasks"
    ):
        merge_table(tmp_path / "tasks", 3, [CARD], METHODS, seeds=3)
    assert merged == read_cells(tmp_path / "one.json")


def test_another_division_of_the_work_begins_with_what_is_there(tmp_path: Path, quick: list[tuple[str, int]]) -> None:
    fill_table(tmp_path, [CARD], ["laplace", "map"], task=(0, 2))
    fill_table(tmp_path, [CARD], METHODS, task=(0, 1))
    assert [name for name, _ in quick] == ["laplace", "nuts", "map", "mfvi", "swag"]
    (stale,) = read_cells(tmp_path / "task-0-of-2.json")
    write_cells([replace(stale, version=0, distance=9.0)], tmp_path / "task-0-of-2.json")
    fill_table(tmp_path, [CARD], METHODS, task=(0, 1))
    assert quick[5:] == [("laplace", 0)]
    assert {cell.distance for cell in merge_table(tmp_path, 1, [CARD], METHODS)} == {1.0}


def test_settings_stand_in_the_file_once(tmp_path: Path) -> None:
    cells = fill_table(tmp_path / "table.json", [CARD], ["laplace", "map"], small=True, seeds=2)
    found = json.loads((tmp_path / "table.json").read_text())
    assert {cell.settings for cell in cells} == set(found["settings"]) and len(found["settings"]) == 2
    assert {each["method"] for each in found["settings"].values()} == {"Laplace", "MAP"}


@pytest.mark.parametrize(
    ("scale", "shift", "off"),
    [(1.0, 0.0, False), (1.2, 0.1, False), (1.5, 0.0, True), (0.6, 0.0, True), (1.0, 0.5, True)],
)
def test_what_is_off_and_by_how_much(scale: float, shift: float, off: bool) -> None:
    """Draws of the reference itself, with another centre and another width."""
    card = bz.zoo.load(CARD)
    tree = bz.zoo.reference(CARD)
    draws = tree["conditional"]["mean"]
    centre, sd = draws.mean(("chain", "draw")), draws.std(("chain", "draw"))
    tree["conditional"] = (centre + scale * (draws - centre) + shift * sd).to_dataset(name="mean")
    assert is_off(tree, card) is off
    inside, beyond = sd_ratios(tree, card, card.data())
    assert inside == pytest.approx(scale, rel=0.03) and beyond is None


def test_a_chain_that_runs_away_is_off() -> None:
    """Its Monte Carlo errors are so large that every difference lies within them."""
    card, tree = bz.zoo.load(CARD), bz.zoo.reference(CARD)
    rows = tree["conditional"]["mean"].isel(chain=0, draw=0, drop=True)
    growing = np.random.default_rng(0).standard_normal((1, 1000, rows.size)) * np.exp(0.05 * np.arange(1000)[:, None])
    tree["conditional"] = rows.expand_dims(chain=1, draw=1000).copy(data=growing).to_dataset(name="mean")
    assert is_off(tree, card)


def test_rows_beyond_the_data_have_their_own_ratio() -> None:
    """The cubic is predicted beyond its data; there its draws are made twice as wide."""
    card, tree = bz.zoo.load("cubic"), bz.zoo.reference("cubic")
    x, known = card.data().test["x"][:, 0], card.data().train["x"]
    draws = tree["conditional"]["mean"]
    centre = draws.mean(("chain", "draw"))
    wide = (x < known.min() - 0.1) | (x > known.max() + 0.1)
    tree["conditional"] = (centre + (draws - centre) * (1 + draws["obs_id"].copy(data=wide))).to_dataset(name="mean")
    inside, beyond = sd_ratios(tree, card, card.data())
    assert inside == pytest.approx(1.0, rel=0.05) and 1.6 < beyond < 2.1


def test_cells_that_were_not_run_are_empty() -> None:
    cells = [Cell(card=card, method=method, version=1, seed=0) for card, method in [("a", "x"), ("b", "y")]]
    assert table_rows(cells, lambda cell: "1") == [["card", "x", "y"], ["a", "1", ""], ["b", "", "1"]]
    assert table_rows([], lambda cell: "1") == [["card"]]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--task", "2", "--of", "2"], "Error: --task 2 --of 2: tasks are numbered from 0 to 1."),
        (["--task", "0"], "Error: --task and --of go together: --task $SLURM_ARRAY_TASK_ID --of 100."),
        (
            ["--cards", CARD, "--methods", "map", "--task", "0", "--of", "2"],
            "Error: 1 cells are fewer than 2 tasks: share",
        ),
        (["--cards", "two-moon"], "There is no card 'two-moon' in the zoo"),
        (["--cards", "mnist-convnet"], "Card 'mnist-convnet' has no reference posterior; those with one are"),
        (["--cards", CARD, "--methods", "magic"], "The table has no method 'magic'; its methods are nuts, hmc, "),
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
