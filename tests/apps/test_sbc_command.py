"""The command ``bnnzoo sbc``: one sentence for what cannot be calibrated."""

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from bnnzoo.apps.cli import app

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
