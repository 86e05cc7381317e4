"""The report as a page: whole, self-contained, and telling what went wrong."""

import base64
import re
from xml.etree import ElementTree

import pytest

from bnnzoo.report import render
from bnnzoo.report.distances import has_distances
from bnnzoo.report.page import pictures
from bnnzoo.report.summary import columns, findings, rows
from tests.helpers.trees import ATTRIBUTES, comparison, held_out, training


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_a_page_is_self_contained(task):
    page = render(comparison(task))
    assert not re.search(r"(src|href)=\"(?!data:)", page)
    assert page.count("data:image/svg+xml;base64,") == 5
    assert "{{" not in page
    assert page.strip().endswith("</html>")


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_every_picture_is_valid_svg_with_axes(task):
    for picture in pictures(comparison(task)):
        root = ElementTree.fromstring(base64.b64decode(picture["image"].partition(",")[2]))
        assert root.tag.endswith("svg")
        axes = [node for node in root.iter() if node.get("id", "").startswith("axes_")]
        assert axes, picture["title"]


def test_the_same_comparison_gives_the_same_page():
    assert render(comparison("regression")) == render(comparison("regression"))


def test_names_of_columns_are_escaped():
    nasty = comparison("regression")
    object.__setattr__(nasty, "source", "<script>alert(1)</script>")
    assert "<script>" not in render(nasty)


def test_the_table_has_a_cell_for_every_column():
    result = comparison("regression")
    assert [len(cells) for _, cells in rows(result)] == [len(columns(result))] * 2


def test_exactly_one_method_is_best_in_each_score():
    result = comparison("classification")
    for place in range(len(result.scores)):
        assert sum(cells[place].is_best for _, cells in rows(result)) == 1


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"worst_rhat": 1.2}, "mfvi has not fully converged: the R-hat of a prediction is 1.200"),
        ({"worst_rhat": 1.2}, "Give larger --num-draws (now 50) before relying on it."),
        ({"min_ess": 30.0}, "a prediction has an effective sample size of 30"),
        ({"train": training(diverging=True)}, "100 transitions diverged"),
    ],
)
def test_trouble_is_said(changes, sentence):
    assert sentence in " ".join(findings(comparison("regression", **changes)))


def test_no_trouble_is_not_said():
    assert not any("converged" in sentence for sentence in findings(comparison("regression")))


def test_an_interrupted_fit_is_said():
    test = held_out("regression")
    test.attrs = ATTRIBUTES | {"complete": "no"}
    assert "the fit was interrupted" in " ".join(findings(comparison("regression", test=test)))


def test_a_single_draw_has_no_distances_and_no_ignorance():
    point = held_out("regression").isel(chain=[0], draw=[0])
    point.attrs = ATTRIBUTES
    result = comparison("regression", test=point, worst_rhat=float("nan"), min_ess=float("nan"))
    assert not has_distances(result)
    assert len(pictures(result)) == 4
    assert [cell.text for cell in dict(rows(result))["mfvi"]][5:7] == ["–", "–"]
