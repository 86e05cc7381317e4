"""Every example runs, in its short form and with warnings as errors; so a new one is tested as soon as it exists.

By default only what costs nothing: ``.ci/run`` runs every example in a process of its own, and once more for the gallery.
"""

import runpy
import sys
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest
import torch

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("**/*.py"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Estimated shape parameter of Pareto:UserWarning")  # so few draws are bound to
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mpl.use("agg")
    torch.set_default_dtype(torch.float32)  # as users run it
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(path), "--smoke"])
    with mpl.rc_context():
        runpy.run_path(str(path), run_name="__main__")
    plt.close("all")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_has_a_short_form_and_a_title(path: Path) -> None:
    text = path.read_text()
    assert "--smoke" in text
    assert text.startswith('"""')
    assert path.stem.startswith("plot_"), "the gallery runs scripts named plot_*.py only"


def test_there_are_examples() -> None:
    assert EXAMPLES
