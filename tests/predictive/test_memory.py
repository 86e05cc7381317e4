"""Memory that training and prediction add to a process, on more rows than need be in memory."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "out_of_memory.py"
ROWS = 1_000_000
MOST_GIB = 0.5


def run(*arguments: str) -> str:
    command = [sys.executable, str(SCRIPT), str(ROWS), "500", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=SCRIPT.parents[1]).stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rows")
    run("--folder", str(path), "--write")
    return path


@pytest.mark.slow
@pytest.mark.parametrize("part", ["mfvi", "sghmc", "store", "measure"])
def test_a_million_rows_add_less_than_half_a_gibibyte(folder: Path, part: str) -> None:
    found = json.loads(run("--part", part, "--folder", str(folder)).splitlines()[-1])
    assert found["added_gib"] < MOST_GIB
