"""The command line: results that are whole, and one clear sentence for every mistake."""

import errno
import html
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import arviz as az
import numpy as np
import pandas as pd
import pytest
import typer
import xarray as xr
from typer.testing import CliRunner, Result

from bnnzoo.apps.cli import Budget, CommandError, app, method_names, methods_from
from bnnzoo.apps.reporting import output
from bnnzoo.documents import folders
from bnnzoo.documents.folders import new_folder
from bnnzoo.inference import MeanFieldVI

FAST = ["--methods", "map", "--num-steps", "30", "--hidden", "2"]


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def table(tmp_path) -> Path:
    rng = np.random.default_rng(0)
    x = rng.normal(size=30)
    frame = pd.DataFrame(
        {"x": x, "group": rng.choice(["a", "b"], 30), "y": 50 + 10 * x, "kind": np.where(x > 0, "hot", "cold")}
    )
    path = tmp_path / "data.csv"
    frame.to_csv(path, index=False)
    return path


def refused(result: Result, sentence: str, folder: Path) -> None:
    """One sentence, exit code 2, and nothing left behind."""
    assert result.exit_code == 2, result.output
    assert sentence in " ".join(result.stderr.split())
    assert result.stderr.startswith("Error: ")
    assert "Traceback" not in result.output
    assert sorted(p.name for p in folder.iterdir()) in (["data.csv"], ["data.csv", "taken"], [])


def test_compare_writes_a_report_and_trees_that_arviz_reads(table, tmp_path):
    out = tmp_path / "results"
    result = run("compare", table, "--target", "y", "--drop", "kind", "--out", out, "--methods", "mfvi,map", *FAST[2:])
    assert result.exit_code == 0, result.output
    assert sorted(p.name for p in out.iterdir()) == [
        "effects.csv",
        "map.nc",
        "mfvi.nc",
        "predictions.csv",
        "report.html",
        "verdicts.json",
    ]
    assert "data.csv" in (out / "report.html").read_text()
    (told,) = json.loads((out / "verdicts.json").read_text())
    assert (told["method"], told["reference"], told["agrees"]) == ("map", "mfvi", None)
    words = told["opening"]
    assert words.startswith("map cannot be judged: map has 1 draw")
    assert words in html.unescape((out / "report.html").read_text()) and words in " ".join(result.output.split())
    with xr.open_datatree(out / "mfvi.nc", engine="h5netcdf") as tree:
        tree.load()
        assert {"posterior", "log_likelihood", "held_out"} <= set(tree.children)
        assert tree["held_out/predictions"].sizes["obs_id"] == 6
        assert tree["held_out/predictions_constant_data"]["x_dim_0"].to_numpy().tolist() == ["x", "group=a", "group=b"]
        assert np.isfinite(az.summary(tree, kind="stats", round_to="none").to_numpy()).all()
        # in the target's own units, not standardised ones
        assert 30 < float(tree["observed_data"]["y"].mean()) < 70
    assert sorted(p.name for p in tmp_path.iterdir()) == ["data.csv", "results"]


@pytest.mark.slow
def test_likelihood_prior_and_repeated_splits(table, tmp_path):
    frame = pd.read_csv(table)
    frame["visits"] = np.random.default_rng(1).poisson(np.exp(0.2 + 1.5 * frame["x"]))
    frame.to_csv(table, index=False)
    out = tmp_path / "results"
    model = ["--prior", "normal:0.5", "--repeats", "3", "--drop", "kind", "--drop", "y"]
    result = run("compare", table, "--target", "visits", "--task", "regression", *model, "--out", out, *FAST)
    assert result.exit_code == 0, result.output
    said = " ".join(result.output.split())
    assert "The values of 'visits' suggest the likelihood negative_binomial; use --likelihood" in said
    assert "3 splits, mean ± standard error" in result.output
    page = (out / "report.html").read_text()
    assert "weights and biases N(0, 0.25); negative binomial counts" in page
    assert "Repeated splits" in page
    held_out = pd.read_csv(out / "predictions.csv")["row"] - 1
    assert f"{frame['visits'].drop(held_out).std(ddof=0):.4g}" in page  # not that of standardised counts
    assert "All scores are from one split" not in page
    scores = pd.read_csv(out / "splits.csv")
    assert (
        scores.groupby("seed")["method"].apply(list).tolist()
        == [["map", "mean only", "negative binomial regression"]] * 3
    )
    assert scores["seed"].unique().tolist() == [0, 1, 2]
    assert scores.groupby("method")["RMSE"].nunique().eq(3).all()
    alone = tmp_path / "alone"
    run(
        "compare",
        table,
        "--target",
        "visits",
        "--task",
        "regression",
        *model[:2],
        *model[4:],
        "--seed",
        "2",
        "--out",
        alone,
        *FAST,
    )
    with xr.open_datatree(alone / "map.nc", engine="h5netcdf") as tree:
        likelihood = tree["held_out/predictions_log_likelihood"]["y"].load()
    again = scores.query("seed == 2 and method == 'map'")["log density"].item()
    assert float(likelihood.mean()) == pytest.approx(again)


@pytest.mark.slow
def test_compare_recognises_classes(table, tmp_path):
    out = tmp_path / "results"
    result = run("compare", table, "--target", "kind", "--drop", "y", "--out", out, *FAST)
    assert result.exit_code == 0, result.output
    assert "Target 'kind' is treated as classification" in result.output
    assert "accuracy" in result.output
    with xr.open_datatree(out / "map.nc", engine="h5netcdf") as tree:
        assert tree["held_out/conditional"]["class_id"].to_numpy().tolist() == ["cold", "hot"]


@pytest.mark.slow
def test_the_same_seed_gives_the_same_numbers(table, tmp_path):
    pages = []
    for name in ("one", "two"):
        run("compare", table, "--target", "y", "--drop", "kind", "--out", tmp_path / name, *FAST)
        with xr.open_datatree(tmp_path / name / "map.nc", engine="h5netcdf") as tree:
            pages.append(tree["held_out/predictions"].to_dataset().load())
    xr.testing.assert_identical(*pages)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--target", "z"], "There is no target column 'z' among the columns x, group, y, kind."),
        (["--target", "y", "--task", "ranking"], "--task must be regression or classification, not 'ranking'."),
        (["--target", "group", "--task", "regression"], "Target column 'group' contains text"),
        (
            ["--target", "y", "--methods", "magic"],
            "There is no inference method 'magic'. The usual ones are nuts, mfvi, ",
        ),
        (["--target", "y", "--methods", ","], "--methods is empty; choose from nuts, mfvi, "),
        (["--target", "y", "--methods", "map,map"], "Method 'map' is listed 2 times; once is enough."),
        (["--target", "y", "--test-size", "1.5"], "test_size must lie strictly between 0 and 1, not 1.5."),
        (["--target", "y", "--drop", "w"], "Column 'w' cannot be dropped"),
        (["--target", "y", "--separator", ";"], "has one column when split at ';'"),
        (["--target", "y", "--separator", ""], "--separator must be one character"),
        (["--target", "y", "--decimal", ","], "--decimal and --separator are both ','"),
        (["--target", "y", "--missing", "mean"], "--missing must be refuse, drop or impute, not 'mean'."),
        (["--target", "y", "--likelihood", "normal"], "There is no likelihood 'normal'; choose from gaussian, "),
        (["--target", "y", "--task", "regression", "--likelihood", "categorical"], "categorical is not for regression"),
        (
            ["--target", "x", "--likelihood", "gamma"],
            "but the likelihood gamma is for positive numbers; correct it, or choose",
        ),
        (["--target", "y", "--prior", "flat"], "There is no prior 'flat'; choose from fan_in, normal"),
        (["--target", "y", "--prior", "normal:0"], "The scale of prior normal must be a positive number, not '0'"),
        (["--target", "y", "--seed", "-1"], "seed must be a whole number from 0 to 4294967295, not -1."),
    ],
)
def test_wrong_options_are_refused(table, tmp_path, arguments, sentence):
    refused(run("compare", table, *arguments, "--out", tmp_path / "results"), sentence, tmp_path)


def test_all_problems_of_options_and_table_are_said_at_once(table, tmp_path):
    frame = pd.read_csv(table)
    frame.loc[4, "x"] = np.nan
    frame.to_csv(table, index=False)
    result = run("compare", table, "--target", "z", "--methods", "magic", "--task", "ranking", "--out", tmp_path)
    refused(result, "There are 5 problems: 1. There is no inference method 'magic'", tmp_path)
    for sentence in (
        "already exists; choose another --out",
        "--task must be",
        "no target column 'z'",
        "Column 'x' has 1",
    ):
        refused(result, sentence, tmp_path)


@pytest.mark.parametrize(
    ("missing", "note"),
    [
        pytest.param("drop", "1 of 30 rows", marks=pytest.mark.slow),
        ("impute", "1 missing value(s) of 'x'"),
    ],
)
def test_missing_values_can_be_dropped_or_imputed(table, tmp_path, missing, note):
    frame = pd.read_csv(table)
    frame.loc[4, "x"] = np.nan
    frame.to_csv(table, index=False)
    out = tmp_path / "results"
    result = run("compare", table, "--target", "y", "--drop", "kind", "--missing", missing, "--out", out, *FAST)
    assert result.exit_code == 0, result.output
    assert note in result.output


def test_a_missing_file_is_refused(tmp_path):
    result = run("compare", tmp_path / "nothing.csv", "--target", "y", "--out", tmp_path / "results")
    refused(result, "There is no file", tmp_path)


def test_a_missing_value_is_refused_by_row_and_column(table, tmp_path):
    frame = pd.read_csv(table)
    frame.loc[4, "x"] = np.nan
    frame.to_csv(table, index=False)
    result = run("compare", table, "--target", "y", "--out", tmp_path / "results", *FAST)
    refused(result, "Column 'x' has 1 missing value(s), the first in row 5", tmp_path)


@pytest.mark.parametrize("command", [["demo"], ["compare", "data.csv", "--target", "y"]])
def test_an_output_folder_that_exists_is_refused_before_anything_runs(table, tmp_path, command):
    taken = tmp_path / "taken"
    taken.mkdir()
    refused(run(*command, "--out", taken), "already exists; choose another --out", tmp_path)
    assert not list(taken.iterdir())


def test_an_output_folder_in_a_folder_that_does_not_exist_is_refused(table, tmp_path):
    result = run("compare", table, "--target", "y", "--out", tmp_path / "a" / "b")
    refused(result, "for 'b'; create it first", tmp_path)


def test_fits_that_cannot_be_written_are_kept_elsewhere(table, tmp_path, monkeypatch):
    spare = tmp_path / "spare"
    spare.mkdir()
    monkeypatch.setattr(output.tempfile, "tempdir", str(spare))

    def full_disk(comparison: object) -> str:
        raise OSError(errno.ENOSPC, "No space left on device", "report.html")

    monkeypatch.setattr(output, "render", full_disk)
    result = run("compare", table, "--target", "y", "--drop", "kind", "--out", tmp_path / "results", *FAST)
    assert result.exit_code == 2 and "Traceback" not in result.output
    sentence = " ".join(result.stderr.split())
    assert (
        "results could not be written ([Errno 28] No space left on device: 'report.html'). The fits are kept"
        in sentence
    )
    (kept,) = spare.glob("results-*")
    assert f"in {kept}: make room" in sentence
    assert sorted(each.name for each in tmp_path.iterdir()) == ["data.csv", "spare"]
    assert "posterior_predictive" in xr.load_datatree(kept / "map.nc")


@pytest.fixture
def small_disk(tmp_path) -> Iterator[Path]:
    """A disk with room for a quarter of a megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", folder], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("may not mount a file system")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_full_disk_is_named_and_the_fits_are_kept(table, tmp_path, small_disk):
    out = small_disk / "results"
    result = run("compare", table, "--target", "y", "--drop", "kind", "--out", out, *FAST)
    assert result.exit_code == 2 and "Traceback" not in result.output
    sentence = " ".join(result.stderr.split())
    found = re.search(r"(\S+) could not be written .*kept, one netCDF file .* in (\S+): make room", sentence)
    assert found is not None and found[1] == str(out)
    kept = Path(found[2])
    assert "posterior_predictive" in xr.load_datatree(kept / "map.nc")
    shutil.rmtree(kept)
    assert not list(small_disk.iterdir())


def test_what_a_killed_run_left_is_swept_by_the_next(table, tmp_path):
    with subprocess.Popen([sys.executable, "-c", "pass"]) as ended:
        ended.wait()
    left = tmp_path / f".results.partial-{platform.node()}-{ended.pid}-1"
    left.mkdir()
    (left / "map.nc").write_text("half")
    beside = tmp_path / f".results.partial-{platform.node()}-{os.getpid()}-0"  # of a run that goes on
    beside.mkdir()
    result = run("compare", table, "--target", "y", "--drop", "kind", "--out", tmp_path / "results", *FAST)
    assert result.exit_code == 0, result.output
    assert sorted(each.name for each in tmp_path.iterdir()) == [beside.name, "data.csv", "results"]


def test_names_with_dollar_signs_and_cells_that_look_like_formulas(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=30)
    frame = pd.DataFrame(
        {"cost_$_per_unit_$": x, "=cmd|x": rng.normal(size=30), "y": np.where(x > 0, "@hot$^{$", "cold")}
    )
    frame.to_csv(tmp_path / "data.csv", index=False)
    out = tmp_path / "results"
    result = run("compare", tmp_path / "data.csv", "--target", "y", "--out", out, *FAST)
    assert result.exit_code == 0, result.output
    for name in ("predictions", "effects"):
        cells = pd.read_csv(out / f"{name}.csv", dtype=str)
        texts = [*cells.columns, *(text for column in cells for text in cells[column].dropna())]
        assert not [text for text in texts if text.startswith(("=", "+", "@"))]
    assert "'@hot$^{$" in (out / "predictions.csv").read_text()


def test_an_interrupt_leaves_nothing_behind(table, tmp_path, monkeypatch):
    def interrupted(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("bnnzoo.apps.cli.compare", interrupted)
    result = run("compare", table, "--target", "y", "--drop", "kind", "--out", tmp_path / "results", *FAST)
    assert result.exit_code == 130
    assert "Interrupted; nothing was written." in result.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["data.csv"]


def test_a_folder_that_appears_meanwhile_is_not_overwritten(tmp_path):
    def race() -> None:
        with new_folder(tmp_path / "results") as folder:
            (folder / "a.txt").write_text("a")
            (tmp_path / "results").mkdir()
            (tmp_path / "results" / "precious.txt").write_text("kept")

    with pytest.raises(FileExistsError, match="already exists"):
        race()
    assert [p.name for p in tmp_path.rglob("*.txt")] == ["precious.txt"]


def test_a_folder_that_cannot_be_written_to_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(folders.os, "access", lambda path, mode: False)
    with pytest.raises(PermissionError, match="is not writable"):
        folders.refuse_unusable_folder(tmp_path / "results")


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a file system without room for folders")
def test_a_folder_that_holds_no_folders_is_refused_though_its_permissions_allow_it():
    with pytest.raises(
        (PermissionError, FileNotFoundError), match="The folder '/proc' is not writable; choose another"
    ):
        folders.refuse_unusable_folder(Path("/proc/results"))


def test_the_table_of_options_in_the_docs_has_the_defaults_of_the_commands():
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    table = page[page.index("| option |") :].partition("\n\n")[0]
    header, *lines = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")]
    assert header == ["option", "meaning", "`compare`", "`demo`"]
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    documented = {cells[0].strip("`"): [cell.strip("` ") for cell in cells[2:]] for cells in lines}
    for place, name in enumerate(["compare", "demo"]):
        expected = {parameter.opts[0]: shown(parameter) for parameter in commands[name].params}
        expected.pop("--help", None)
        assert {option: cells[place] for option, cells in documented.items() if cells[place] != "no"} == expected


def shown(parameter: typer.core.TyperOption) -> str:
    """How the docs write an option's default."""
    if parameter.required:
        return "required"
    by_hand = {"--task": "inferred", "--likelihood": "inferred", "--num-steps": "the method's own", "--drop": "none"}
    return by_hand.get(parameter.opts[0]) or str(parameter.default)


def test_no_arguments_show_the_help():
    assert "compare" in run().output
    assert "diabetes" in run("demo", "--help").output


def test_version_is_shown():
    assert run("--version").output.startswith("bnnzoo ")


@pytest.mark.parametrize(("name", "close"), [("ensemble", "deepensemble"), ("nutz", "nuts"), ("laplacee", "laplace")])
def test_a_method_with_a_similar_name_is_suggested(name, close):
    with pytest.raises(
        CommandError, match=f"There is no inference method '{name}'; did you mean .*{close}.*The usual ones are"
    ):
        methods_from(name)


def test_methods_are_known_by_name_and_by_capitals():
    names = method_names()
    assert names["mfvi"] is names["meanfieldvi"] is MeanFieldVI


def test_budgets_reach_the_methods_that_have_them():
    (method,) = methods_from(" MFVI ", Budget(num_chains=2, num_warmup=3, num_draws=4, num_steps=77)).values()
    assert method == MeanFieldVI(num_steps=77)
    assert methods_from("mfvi") == {"mfvi": MeanFieldVI()}


def test_budgets_reach_the_methods_within_a_method():
    found = methods_from("tempered,laplace,lastlayervi,mixtureof", Budget(2, 3, 4, num_steps=77))
    sampler = found["tempered"].sampler
    assert (sampler.num_chains, sampler.num_warmup, sampler.num_draws) == (2, 3, 4)
    assert (
        found["laplace"].map.num_steps
        == found["lastlayervi"].below.num_steps
        == found["lastlayervi"].vi.num_steps
        == 77
    )
    assert found["mixtureof"].method.num_steps == 77 and found["mixtureof"].ensemble is None


def test_the_help_names_the_usual_methods():
    shown = " ".join(run("compare", "--help").output.replace("│", " ").replace("<str>", " ").split())
    assert "The usual ones: nuts, mfvi, laplace, deepensemble, map." in shown


def test_an_unknown_method_is_refused():
    with pytest.raises(CommandError, match="There is no inference method 'gibbs'"):
        methods_from("gibbs")
