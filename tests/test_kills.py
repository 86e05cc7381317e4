"""Processes that are killed at random times lose nothing that was finished, and leave nothing half-written behind."""

import subprocess
import sys
from pathlib import Path

import pytest

WORKS = {"fit": 20, "save": 20, "compare": 20, "sbc": 20, "task": 10, "cells": 10, "report": 20}


@pytest.mark.parametrize(
    ("work", "number"),
    [("save", 3), *(pytest.param(*each, marks=pytest.mark.slow) for each in WORKS.items())],
)
def test_work_that_is_killed_loses_nothing_and_leaves_nothing_half(work: str, number: int, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.helpers.killing", work, str(tmp_path), str(number), "0"]
    found = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[1])
    assert found.returncode == 0, found.stderr
    assert int(found.stdout) == number, "work ended before it was killed"
