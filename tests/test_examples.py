"""Every example runs, in its short form and with warnings as errors.

The default run checks their form only: ``.ci/run`` runs every example in a separate process, and once more for the gallery.
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
@pytest.mark.filterwarnings("ignore:LOO is unreliable")
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
    assert text.count("--smoke") == 1, "settings stand once, and what is smaller for the tests in one block"
    assert '# sphinx_gallery_start_ignore\nif "--smoke" in sys.argv:' in text, "the gallery does not show it"
    assert text.startswith('"""')
    assert path.stem.startswith("plot_"), "the gallery runs scripts named plot_*.py only"


def test_the_gallery_lists_every_example() -> None:
    conf = runpy.run_path(str(Path(__file__).parents[1] / "docs" / "conf.py"))
    assert sorted(conf["EXAMPLES"]) == [f"{path.parent.name}/{path.name}" for path in EXAMPLES]
