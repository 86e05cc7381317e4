"""The UCI benchmark on a small folder in its layout: scores, what is run again, and refusals."""

import re
from concurrent.futures import Executor, ThreadPoolExecutor
from io import StringIO
from pathlib import Path
from typing import Any

import arviz as az
import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

import bnnzoo as bz
from bnnzoo.apps.benchmarking import (
    BenchmarkError,
    local_split,
    merge_uci,
    openml_split,
    parse_splits,
    run_uci,
    score_split,
    sources,
)
from bnnzoo.apps.benchmarking import uci_benchmark as benchmark
from bnnzoo.apps.benchmarking.uci_benchmark import Score, differences, read_scores, summarise
from bnnzoo.apps.benchmarking.uci_command import _grid
from bnnzoo.apps.cli import app
from bnnzoo.core import executors
from bnnzoo.datasets import Split
from bnnzoo.engine.shares import UnfinishedError
from tests.apps.benchmarking.layout import write_rows, write_set
from tests.helpers.executors import InProcess

SHORT = {"map": bz.MAP(num_steps=60, polish_steps=20)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_set(tmp_path / "data" / "uci", "lines", 3, 0)
    write_set(tmp_path / "data" / "uci", "more", 1, 1)
    write_rows(tmp_path / "data" / "uci_gap" / "lines", 0, np.arange(80))
    return tmp_path / "data"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["benchmark", "uci", *map(str, arguments)])


@pytest.mark.filterwarnings("ignore::bnnzoo.inference.FitWarning")
def test_scores_are_in_original_units(folder: Path) -> None:
    split = local_split(folder, "lines", 0)
    found = score_split(bz.Laplace(), split)
    line = np.linalg.lstsq(np.column_stack([split.x_train, np.ones(60)]), split.y_train, rcond=None)[0]
    floor = np.sqrt(np.mean((np.column_stack([split.x_test, np.ones(20)]) @ line - split.y_test) ** 2))
    assert floor < found["rmse"] < 3 * floor
    density = -0.5 * np.log(2 * np.pi * found["rmse"] ** 2) - 0.5
    assert found["log_density"] == pytest.approx(density, abs=0.5)
    assert 0.5 < found["coverage"] <= 1.0 and 0 <= found["calibration"] < 0.3 and found["seconds"] > 0


@pytest.mark.filterwarnings("ignore::bnnzoo.inference.FitWarning")
def test_scores_of_chains_say_whether_predictions_have_converged(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    split, trees = local_split(folder, "lines", 0), []

    def kept(*args: Any, **settings: Any) -> Any:
        trees.append(bz.predict(*args, **settings))
        return trees[-1]

    monkeypatch.setattr(benchmark, "predict", kept)
    chains = bz.HMC(num_chains=2, num_warmup=10, num_draws=10, trajectory_length=0.1)
    found = score_split(chains, split)["rhat"]
    values = trees[0]["conditional"]["mean"].transpose("chain", "draw", ...).to_numpy()
    assert found == pytest.approx(max(float(az.rhat(values[..., row])) for row in range(values.shape[2])))
    assert found > 1.01
    assert score_split(bz.Laplace(), split)["rhat"] is None and score_split(SHORT["map"], split)["rhat"] is None


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Replace fits by their arguments; return those that were run."""
    ran: list[tuple[Any, ...]] = []

    def score(method: Any, split: Split, seed: int) -> dict[str, float]:
        ran.append((type(method).__name__, len(split.y_train), seed))
        if seed == 2:
            raise RuntimeError("out of memory")
        numbers = {"rmse": 1.0 + seed, "log_density": -1.0, "coverage": 0.9, "calibration": 0.0}
        return {**numbers, "seconds": 1.0}

    monkeypatch.setattr(benchmark, "score_split", score)
    return ran


def test_what_is_done_is_kept_and_not_run_again(folder: Path, tmp_path: Path, quick: list[tuple[Any, ...]]) -> None:
    out = tmp_path / "scores.json"

    def again(splits: tuple[int, ...], executor: Executor, **options: Any) -> list[Score]:
        return run_uci(out, ["lines"], SHORT, splits, data=folder, executor=executor, **options)

    with ThreadPoolExecutor(1) as executor:
        with pytest.raises(RuntimeError, match="out of memory"):
            again((0, 1, 2), executor)
        assert [score.split for score in read_scores(out)] == [0, 1]
        again((0, 1), executor)
        assert quick == [("MAP", 60, 0), ("MAP", 60, 1), ("MAP", 60, 2)]
        (gap,) = again((0,), executor, gap=True)
        assert gap.splits == "gap" and len(read_scores(out)) == 3
        run_uci(out, ["lines"], {"map": bz.MAP(num_steps=7)}, [0], data=folder, executor=executor)
    assert len(quick) == 5, "other settings are another run"
    (mean, error), *_ = [found["rmse"] for key, found in summarise(read_scores(out)[1:3]).items()]
    assert (mean, error) == (1.5, 0.5)
    assert not list(tmp_path.glob(".*.part"))


def test_tasks_share_the_fits_and_go_on_after_a_failure(
    folder: Path, tmp_path: Path, quick: list[tuple[Any, ...]]
) -> None:
    methods = {**SHORT, "ensemble": bz.DeepEnsemble(num_steps=5)}
    shared, asked = tmp_path / "tasks", (["lines"], methods, (0, 1))
    run_uci(shared, *asked, data=folder, executor=InProcess(), task=(1, 2))
    with pytest.raises(
        UnfinishedError,
        match=r"Of 4 fits 2 are missing: lines by map, split 0; lines by ensemble, split 1\. Run task 0 of 2: it",
    ):
        merge_uci(shared, 2, *asked, data=folder)
    with pytest.raises(RuntimeError, match="out of memory"):
        run_uci(shared, ["lines"], methods, (0, 2), data=folder, executor=InProcess(), task=(0, 1))
    assert quick[2:] == [("MAP", 60, 0), ("MAP", 60, 2), ("DeepEnsemble", 60, 2)], "what a task has is not run again"
    run_uci(shared, *asked, data=folder, executor=InProcess(), task=(0, 2))
    assert quick[5:] == [("DeepEnsemble", 60, 1)]
    merged = merge_uci(shared, 2, *asked, data=folder)
    one = run_uci(tmp_path / "one.json", *asked, data=folder, executor=InProcess())
    assert merged == one and [(score.method, score.split) for score in one] == [
        (method, split) for method in methods for split in (0, 1)
    ]
    assert (shared / "uci.json").read_text() == (tmp_path / "one.json").read_text()


def test_the_last_task_of_the_command_prints_the_table(
    folder: Path, tmp_path: Path, quick: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executors, "ProcessPoolExecutor", lambda *_: ThreadPoolExecutor(1))
    options = ["--data", folder, "--sets", "lines", "--methods", "map", "--splits", "0-1", "--out", tmp_path / "tasks"]
    first, last = (run(*options, "--task", task, "--of", 2) for task in range(2))
    assert first.exit_code == last.exit_code == 0, first.output + last.output
    assert "Task 0 of 2 is done. Of 2 fits 1 is missing: lines by map, split 1." in " ".join(first.stdout.split())
    assert "standard splits" not in first.stdout and "lines, standard splits" in last.stdout
    assert sorted(each.name for each in (tmp_path / "tasks").iterdir()) == [
        "task-0-of-2.json",
        "task-1-of-2.json",
        "uci.json",
    ]


def test_an_executor_is_left_running(folder: Path, tmp_path: Path, quick: list[tuple[Any, ...]]) -> None:
    with ThreadPoolExecutor(1) as executor:
        run_uci(tmp_path / "a.json", ["lines"], SHORT, [0], data=folder, executor=executor)
        assert executor.submit(int, "3").result() == 3


def test_a_single_split_has_no_standard_error() -> None:
    numbers = dict.fromkeys(("rmse", "log_density", "coverage", "calibration", "seconds"), 1.0)
    score = Score(set="a", splits="gap", method="m", settings="{}", split=0, **numbers)
    mean, error = summarise([score])["a", "gap", "m"]["rmse"]
    assert mean == 1.0 and np.isnan(error)


def scored(method: str, log_densities: tuple[float, ...], kind: str = "standard", **more: Any) -> list[Score]:
    numbers = dict.fromkeys(("rmse", "coverage", "calibration", "seconds"), 1.0)
    shared = {"set": "a", "splits": kind, "method": method, "settings": "{}", **numbers, **more}
    return [Score(split=k, log_density=each, **shared) for k, each in enumerate(log_densities)]


def test_differences_are_of_the_same_splits_and_allow_for_their_overlap() -> None:
    first, other = (0.0, 1.0, 2.0, 3.0), (0.3, 1.1, 2.7)
    scores = [*scored("nuts", first), *reversed(scored("mfvi", other))]
    found = differences(scores, "nuts")
    gaps = np.array([0.3, 0.1, 0.7])
    assert list(found) == [("a", "standard", "mfvi")]
    (compared,) = found.values()
    assert compared.difference == pytest.approx(gaps.mean())
    assert compared.standard_error == pytest.approx(np.sqrt((1 / 3 + 1 / 9) * gaps.var(ddof=1)))
    (gap,) = differences([*scored("nuts", first, "gap"), *scored("mfvi", other, "gap")], "nuts").values()
    assert gap.standard_error == pytest.approx(np.sqrt((1 / 3 + 1 / 2) * gaps.var(ddof=1)))
    (kept,) = differences([*scored("nuts", first), *scored("mfvi", other, overlap=0.25)], "nuts").values()
    assert kept.standard_error == pytest.approx(np.sqrt((1 / 3 + 1 / 4) * gaps.var(ddof=1)))
    assert not differences(scored("nuts", first), "nuts") and not differences(scores, "laplace")
    assert differences(scores, "mfvi")["a", "standard", "nuts"].difference == pytest.approx(-gaps.mean())


def test_the_table_says_how_many_splits_it_takes() -> None:
    table = Console(width=250, record=True, file=StringIO())
    clear = (0.0, 1.0, 2.0), (-1.0, 0.1, 0.95)
    table.print(
        _grid("a", [*scored("nuts", clear[0]), *scored("mfvi", clear[1]), *scored("map", (0.1, 0.9, 2.5))], "nuts")
    )
    text = table.export_text()
    assert "log density vs nuts" in text and "splits needed" in text
    assert re.search(r"nuts .* reference", text)
    assert re.search(r"mfvi .* -0\.983 ± 0\.051 \(0\.273\) +\d+ *\n", text)
    assert re.search(r"map .* \+0\.167 ± 0\.204 \(1\.092\) +none suffices", text)


@pytest.mark.slow
def test_the_command_runs_in_processes_and_resumes(folder: Path, tmp_path: Path) -> None:
    options = [
        "--data",
        folder,
        "--sets",
        "lines,more",
        "--methods",
        "map",
        "--splits",
        "0",
        "--out",
        tmp_path / "a.json",
    ]
    first = run(*options)
    assert first.exit_code == 0, first.output
    assert "lines, map, split 0: RMSE " in first.stdout and "more, standard splits" in first.stdout
    second = run(*options)
    assert second.exit_code == 0 and "split 0: RMSE" not in second.stdout
    assert {score.set for score in read_scores(tmp_path / "a.json")} == {"lines", "more"}


def test_published_rows_are_shown_for_standard_splits_of_their_sets(
    tmp_path: Path, quick: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_set(tmp_path / "data", "yacht", 1, 0)
    monkeypatch.setattr(executors, "ProcessPoolExecutor", lambda *_: ThreadPoolExecutor(1))
    result = run(
        "--data",
        tmp_path / "data",
        "--sets",
        "yacht",
        "--splits",
        "0",
        "--methods",
        "mcdropout",
        "--out",
        tmp_path / "a",
    )
    assert result.exit_code == 0, result.output
    assert "deep ensemble, 2017" in result.stdout and "-1.180" in result.stdout
    assert '\\"rate\\": 0.05' in (tmp_path / "a").read_text()


@pytest.mark.parametrize(
    ("text", "splits"), [("0-2", (0, 1, 2)), (" 4 ,0-1, 1", (4, 0, 1)), ("7", (7,)), ("3-3", (3,))]
)
def test_ranges_of_splits(text: str, splits: tuple[int, ...]) -> None:
    assert parse_splits(text) == splits


@pytest.mark.parametrize("text", ["", "a", "3-1", "-1", "1-", "0,,1", "0-2-4", "1.5", "²"])
def test_bad_ranges_of_splits(text: str) -> None:
    with pytest.raises(BenchmarkError, match=r"--splits has .*: write numbers and ranges, such as 0-9 or 0,3,5-7\."):
        parse_splits(text)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--sets", "lines", "--task", "3", "--of", "3"], "--task 3 --of 3: tasks are numbered from 0 to 2."),
        (["--sets", "lines", "--of", "3"], "--task and --of go together"),
        (
            ["--sets", "lines", "--splits", "0-2", "--task", "0", "--of", "30"],
            "3 fits are fewer than 30 tasks: share them among 3 or fewer.",
        ),
        (["--sets", "boats"], "has no set 'boats'; its sets are lines, more."),
        (["--sets", ","], "--sets is empty; write names of sets"),
        (["--sets", "lines", "--methods", "magic"], "There is no inference method 'magic'"),
        (["--sets", "lines", "--splits", "2-5"], "has no split 3: its splits are 0, 1, 2."),
        (["--sets", "lines", "--splits", "5-2"], "--splits has '5-2'"),
        (["--sets", "more", "--gap"], "There are no gap splits of 'more': their rows would be in"),
        (["--sets", "lines", "--out", "/nowhere/a.json"], "There is no folder '/nowhere' for 'a.json'"),
    ],
)
def test_mistakes_are_said_before_anything_runs(
    options: list[str], sentence: str, folder: Path, tmp_path: Path, quick: list[tuple[Any, ...]]
) -> None:
    result = run("--data", folder, "--methods", "map", "--out", tmp_path / "a.json", *options)
    assert result.exit_code == 2, result.output
    assert sentence in " ".join(result.stderr.split())
    assert quick == []


@pytest.mark.parametrize(
    ("file", "text", "sentence"),
    [
        ("data.txt", "1 2 x\n", "must hold numbers separated by blanks"),
        ("data.txt", None, "There is no file"),
        ("index_target.txt", "9\n", "must hold integers from 0 to 2, but holds 9"),
        ("index_test_0.txt", "0 1\n2 3 4\n", "must hold numbers separated by blanks"),
        ("index_test_0.txt", "100\n", "must hold integers from 0 to 79, but holds 100"),
    ],
)
def test_damaged_folders_are_refused(file: str, text: str | None, sentence: str, folder: Path) -> None:
    path = folder / "uci" / "lines" / file
    path.unlink() if text is None else path.write_text(text)
    with pytest.raises(BenchmarkError, match=sentence):
        local_split(folder, "lines", 0)


def test_a_file_without_scores_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text('{"cells": []}')
    with pytest.raises(BenchmarkError, match=r"other.json holds no scores \('scores'\): choose another file"):
        run_uci(tmp_path / "other.json", ["lines"], SHORT, [0], data=folder)


def download(shape: tuple[int, int]) -> Any:
    rng = np.random.default_rng(0)
    return lambda **options: (rng.normal(size=shape), rng.normal(size=shape[0]))


def test_a_set_from_openml_has_the_same_rows_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "fetch_openml", lambda **_: (np.arange(1848.0).reshape(308, 6), np.arange(308.0)))
    one, same, other = (openml_split("yacht", seed) for seed in (0, 0, 1))
    assert len(one.y_test) == 31 and len(one.y_train) == 277
    np.testing.assert_array_equal(one.y_test, same.y_test)
    assert set(one.y_test) != set(other.y_test)


def test_without_a_network_the_message_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def offline(**options: Any) -> None:
        raise OSError("Name or service not known")

    monkeypatch.setattr(sources, "fetch_openml", offline)
    result = run("--sets", "yacht", "--methods", "map", "--out", tmp_path / "a.json")
    assert result.exit_code == 2
    assert (
        "'yacht' could not be downloaded from OpenML (Name or service not known): without a network, name"
        in result.stderr
    )


def test_sets_that_openml_does_not_have_as_they_should_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "fetch_openml", download((768, 9)))
    with pytest.raises(BenchmarkError, match=r"'energy' at OpenML \(number 44960\) is \(768, 9\), and the benchmark's"):
        openml_split("energy", 0)
    with pytest.raises(BenchmarkError, match="There is no set 'boats' to download; those at OpenML are concrete"):
        openml_split("boats", 0)


def test_gap_splits_need_a_folder(tmp_path: Path) -> None:
    with pytest.raises(BenchmarkError, match="The gap splits are not at OpenML"):
        run_uci(tmp_path / "a.json", ["yacht"], SHORT, [0], gap=True)
