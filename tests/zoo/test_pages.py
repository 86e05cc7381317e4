"""Pages and pictures of the cards."""

from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest

import bnnzoo as bz
from bnnzoo.zoo.figure import card_figure
from bnnzoo.zoo.pages import card_page, write_pages


def test_a_page_says_what_the_card_says() -> None:
    page = card_page(bz.zoo.load("linear-regression"))
    assert page.startswith("# Linear regression with a known noise\n")
    assert "| `nuts` | `NUTS(num_warmup=500)` |" in page
    assert "**Reference posterior.** 32,000 draws of NUTS: largest R-hat of a prediction 1.00" in page


def test_pages_are_written_once_and_those_of_no_card_go(tmp_path: Path) -> None:
    (tmp_path / "gone.md").write_text("old")
    write_pages(tmp_path)
    assert {path.stem for path in tmp_path.iterdir()} == set(bz.zoo.list().names)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    write_pages(tmp_path)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("name", ["polynomial-gap", "censored-survival"])
def test_a_figure_shows_the_prior_and_the_reference(name: str) -> None:
    mpl.use("agg")
    figure = card_figure(bz.zoo.load(name), num_draws=20)
    has_reference = name in bz.zoo.reference.__globals__["referenced"]()
    assert [axis.get_title() for axis in figure.axes] == ["prior", *(["reference posterior"] if has_reference else [])]
    assert len(figure.axes[0].lines) == 5
    plt.close(figure)
