"""The command ``bnnzoo sbc``: one sentence for what cannot be calibrated."""

from importlib import import_module
from pathlib import Path

import pytest
import xarray as xr
from typer.testing import CliRunner, Result

from bnnzoo.apps.cli import app
from bnnzoo.core.posterior.archive import read_archive, write_archive
from bnnzoo.validation.simulations import ranks_of

MODEL = """
import pyro
import pyro.distributions as dist


def model(x, y=None):
    b = pyro.sample("b", dist.Normal(0.0, SD))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Normal(b * x, 1.0), obs=y)
"""


def command(folder: Path, *options: object, sd: float = 1.0) -> Result:
    table, model = folder / "data.csv", folder / f"model_{sd:g}.py"
    table.write_text("x,y\n" + "\n".join(f"{0.1 * i},{i % 3}" for i in range(12)))
    model.write_text(MODEL.replace("SD", str(sd)))
    return CliRunner().invoke(app, [str(each) for each in ("sbc", model, table, "--out", folder / "out", *options)])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            ["--num-simulations", 3, "--task", 7, "--of", 10],
            "Error: 3 simulations are fewer than 10 tasks: share them among 3 or fewer.",
        ),
        (
            ["--num-simulations", 2, "--method", "map"],
            "Error: num_draws=99, but MAP gives 1 draws: ask for fewer, or fit with more.",
        ),
    ],
)
def test_what_cannot_be_calibrated_is_said_in_a_sentence(options: list[object], sentence: str, tmp_path: Path) -> None:
    result = command(tmp_path, *options)
    assert result.exit_code == 2
    assert " ".join(result.output.split()) == sentence
    assert "--task" in options or not (tmp_path / "out").exists()


def test_tasks_of_another_prior_are_not_merged(tmp_path: Path) -> None:
    options = ["--method", "laplace", "--num-simulations", 4, "--of", 2]
    first = command(tmp_path, *options, "--task", 0)
    assert first.exit_code == 0, first.output
    assert "task-0-of-2.sbc. Of 4 simulations 2 are missing: 1; 2. Run task 1 of 2: it goes on" in " ".join(
        first.output.split()
    )
    second = command(tmp_path, *options, "--task", 1, sd=9.0)
    assert second.exit_code == 2
    assert "belongs to another calibration than the first file: its model or prior differs" in " ".join(
        second.output.split()
    )
    assert not (tmp_path / "out" / "verdict.csv").exists()


def test_a_call_that_was_killed_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed after a part of its ranks was written, or before; where nothing was, nothing is left behind."""
    options = ["--method", "laplace", "--num-simulations", 30]
    whole = command(tmp_path, *options)
    assert whole.exit_code == 0, whole.output
    out = tmp_path / "out"
    expected = xr.load_datatree(out / "ranks.nc")
    ranks, header = read_archive(out / "ranks.sbc")
    for name in ("ranks.nc", "verdict.csv"):
        (out / name).unlink()
    write_archive(out / "ranks.sbc", {name: value[:20].contiguous() for name, value in ranks.items()}, header)
    made: list[int] = []
    module = import_module("bnnzoo.validation.sbc")  # whose name in the package is that of the function
    monkeypatch.setattr(module, "ranks_of", lambda some, *rest: made.append(len(some)) or ranks_of(some, *rest))
    again = command(tmp_path, *options)
    assert again.exit_code == 0 and made == [10], again.output
    assert xr.load_datatree(out / "ranks.nc").identical(expected)
    assert sorted(each.name for each in out.iterdir()) == ["ranks.nc", "ranks.sbc", "verdict.csv"]
    other = command(tmp_path, *options, sd=9.0)
    assert "ranks.sbc holds ranks of another calibration: its model or prior differs" in " ".join(other.output.split())
    for each in out.iterdir():
        each.unlink()
    assert command(tmp_path, *options).exit_code == 0  # killed as soon as the folder was made
    (out / "ranks.sbc").rename(out / "notes.txt")
    refused = command(tmp_path, *options)
    assert "already exists; choose another --out" in " ".join(refused.output.split())
