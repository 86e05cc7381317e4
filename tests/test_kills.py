"""Processes that are killed at random times lose nothing that was finished, and leave nothing half-written behind."""

import subprocess
import sys
from pathlib import Path

import pytest

WORKS = ("fit", "save", "compare", "sbc", "report")


@pytest.mark.parametrize(
    ("work", "number"),
    [("save", 3), *(pytest.param(work, 20, marks=pytest.mark.slow) for work in WORKS)],
)
def test_work_that_is_killed_loses_nothing_and_leaves_nothing_half(work: str, number: int, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.helpers.killing", work, str(tmp_path), str(number), "0"]
    found = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[1])
    assert found.returncode == 0, found.stderr
    assert int(found.stdout) >= number // 2, "most of the work was killed in its midst"
