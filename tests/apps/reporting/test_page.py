"""The report as a page: whole, self-contained, and telling what went wrong."""

import base64
import dataclasses
import html
import re
from functools import cache
from xml.etree import ElementTree

import arviz as az
import numpy as np
import pytest
from scipy.stats import norm
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import log_loss, r2_score, root_mean_squared_error

import bnnzoo as bz
from bnnzoo.apps.reporting import compare, render
from bnnzoo.apps.reporting.baselines import baselines
from bnnzoo.apps.reporting.figures import drawings
from bnnzoo.apps.reporting.output import predictions_frame
from bnnzoo.apps.reporting.prediction_figures import has_distances
from bnnzoo.apps.reporting.report_findings import findings
from bnnzoo.apps.reporting.results import Baseline
from bnnzoo.apps.reporting.scores import CLASSIFICATION, REGRESSION
from bnnzoo.apps.reporting.style import drawn
from bnnzoo.apps.reporting.tables import class_grid, columns, confusion_grid, loo_grid, rows, sampler_grid
from bnnzoo.apps.tables import Table
from bnnzoo.documents.page import Code, Grid, Page, Section
from tests.helpers.trees import ATTRIBUTES, comparison, held_out, training


@cache
def page_of(task):
    return render(comparison(task))


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_a_page_is_self_contained(task):
    page = page_of(task)
    assert not re.search(r"(src|href|srcset)=\"(?!data:|#)", page)
    assert page.count("data:image/svg+xml;base64,") == 2 * page.count("<figure>") >= 10  # for wide and for narrow pages
    assert "{{" not in page
    assert page.strip().endswith("</html>")


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_every_picture_is_valid_svg_with_axes(task):
    for image in re.findall(r"data:image/svg\+xml;base64,([^\"]+)", page_of(task)):
        root = ElementTree.fromstring(base64.b64decode(image))
        assert root.tag.endswith("svg")
        assert [node for node in root.iter() if node.get("id", "").startswith("axes_")]


@pytest.mark.slow
def test_the_same_comparison_gives_the_same_page():
    assert render(comparison("regression")) == page_of("regression")


def test_the_same_figure_gives_the_same_picture_and_panels_are_stacked_for_phones():
    title, caption, draw = next(drawings(comparison("regression")))
    one, other = (drawn(title, caption, draw) for _ in range(2))
    assert one == other
    (wide, low), (narrow, high) = (size_of(image) for image in (one.image, one.narrow))
    assert wide > 2 * narrow
    assert high > 1.5 * low


def size_of(image):
    root = ElementTree.fromstring(base64.b64decode(image.partition(",")[2]))
    return [float(root.get(name).removesuffix("pt")) for name in ("width", "height")]


def test_names_of_columns_are_escaped():
    sections = (Section("<x-4>", (Code("<x-5>", "<x-6>"), Grid("<x-7>", "", ("<x-8>",), (("<x-9>",),)))),)
    page = Page("<x-0>", "<x-1>", "<x-2>", (("<x-3>", "<x-3>"),), sections).html()
    assert {f"&lt;x-{i}&gt;" for i in range(10)} <= {*re.findall(r"&lt;x-.&gt;", page)}
    assert "<x-" not in page


def test_the_table_has_a_cell_for_every_column():
    result = comparison("regression")
    assert [len(cells) for _, cells in rows(result)] == [len(columns(result))] * 2
    for brief in (False, True):
        assert [label for label, _ in columns(result, brief=brief)][-2:] == ["seconds", "compiling"]
        assert [[cell.text for cell in cells[-2:]] for _, cells in rows(result, brief=brief)] == [["3.2", "1.5"]] * 2


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
    titles = [title for title, *_ in drawings(result)]
    assert not [title for title in titles if title.startswith("Distance")]
    assert {"Calibration", "Aleatoric and epistemic uncertainty"} <= {*titles}
    assert [cell.text for cell in dict(rows(result))["mfvi"]][6:8] == ["–", "–"]


def with_baselines(task):
    result = comparison(task)
    trees = {"mean only": held_out(task, seed=2), "linear regression": held_out(task, seed=3)}
    found = (Baseline(n, t, {score.label: score.function(t) for score in result.scores}) for n, t in trees.items())
    return dataclasses.replace(result, baselines=tuple(found))


def real_table(task):
    """A table whose targets depend on its inputs, with 24 held-out rows."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(224, 2))
    y = x @ [1.0, -2.0] + 0.5 * rng.normal(size=224)
    y = y if task == "regression" else np.digitize(y, [-1.0, 1.0])
    classes = () if task == "regression" else ("a", "b", "c")
    loc, scale = (50.0, 10.0) if task == "regression" else (0.0, 1.0)
    parts = x[:200], y[:200], x[200:], y[200:]
    units = {"x_loc": np.array([3.0, 0.0]), "x_scale": np.array([2.0, 1.0])}
    return Table(task, "y", ("u", "v"), classes, *parts, loc, scale, np.arange(24) + 1, **units)


def test_baselines_are_those_of_scikit_learn():
    table = real_table("regression")
    mean, line = baselines(table, REGRESSION)
    fitted = LinearRegression().fit(table.x_train, table.y_train)
    y = 50 + 10 * table.y_test
    assert (mean.name, line.name) == ("mean only", "linear regression")
    assert np.isclose(line.scores["RMSE"], root_mean_squared_error(y, 50 + 10 * fitted.predict(table.x_test)))
    assert np.isclose(line.scores["R²"], r2_score(table.y_test, fitted.predict(table.x_test)))
    sd = np.std(table.y_train, ddof=1)
    expected = norm.logpdf(table.y_test, table.y_train.mean(), sd).mean() - np.log(10)
    assert np.isclose(mean.scores["log density"], expected)
    assert line.scores["log density"] > mean.scores["log density"] + 0.5


def test_baselines_of_classes_are_those_of_scikit_learn():
    table = real_table("classification")
    frequencies, logistic = baselines(table, CLASSIFICATION)
    fitted = LogisticRegression(max_iter=1000).fit(table.x_train, table.y_train)
    assert (frequencies.name, logistic.name) == ("class frequencies", "logistic regression")
    assert np.isclose(logistic.scores["log density"], -log_loss(table.y_test, fitted.predict_proba(table.x_test)))
    assert frequencies.scores["accuracy"] == np.mean(table.y_test == np.bincount(table.y_train).argmax())


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_baselines_are_in_the_table_and_named_where_they_are_not_beaten(task):
    result = with_baselines(task)
    assert [len(cells) for _, cells in rows(result)] == [len(columns(result))] * 4
    assert [len(cells) for _, cells in rows(result, brief=True)] == [len(columns(result, brief=True))] * 4
    (said,) = (each for each in findings(result) if each.startswith("nuts is not clearly better than "))
    assert re.search(r"standard error 0\.\d{3}; \d+ observations show differences from 0\.\d+ on", said)
    assert not any(cell.is_best for name, cells in rows(result)[2:] for cell in cells)


def test_a_skewed_positive_target_is_pointed_out():
    result = comparison("regression")
    y = np.exp(2 * np.random.default_rng(0).normal(size=100))
    skewed = dataclasses.replace(result, table=dataclasses.replace(result.table, y_train=y))
    assert "All values of y are positive and skewed to the right" in " ".join(findings(skewed))
    assert "skewed" not in " ".join(findings(result))


def test_scores_with_units_have_four_digits():
    score = next(score for score in REGRESSION if score.label == "RMSE")
    assert score.shown({"a": 12898.43, "b": 9.5}) == {"a": "12,898", "b": "10"}
    assert score.shown({"a": 0.0012346, "b": 0.001}) == {"a": "0.001235", "b": "0.001000"}
    assert REGRESSION[1].shown({"a": -10.8841}) == {"a": "-10.884"}


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_held_out_predictions_are_a_table(task):
    result = comparison(task)
    frame = predictions_frame(result)
    assert len(frame) == 24
    assert np.allclose(frame["nuts.log_density"].mean(), result.fitted[0].scores["log density"])
    if task == "regression":
        inside = frame["y"].between(frame["mfvi.lower_90"], frame["mfvi.upper_90"])
        assert inside.mean() == result.fitted[1].scores["90% coverage"]
        assert (frame["mfvi.sd"] > 1.0).all()
    else:
        assert (frame["y"] == frame["mfvi.predicted"]).mean() == result.fitted[1].scores["accuracy"]
        assert np.allclose(frame[["nuts.p(a)", "nuts.p(b)", "nuts.p(c)"]].sum(axis=1), 1.0)


def test_classes_are_counted_by_name():
    fitted = comparison("classification").fitted[0]
    confusion = confusion_grid(fitted, ("a", "b", "c"))
    counts = np.array([[int(cell) for cell in row[1:]] for row in confusion.rows])
    assert counts.sum() == 24
    assert np.trace(counts) / 24 == fitted.scores["accuracy"]
    scores = class_grid(fitted, ("a", "b", "c"))
    assert [row[0] for row in scores.rows] == ["a", "b", "c"]
    recall = counts[0, 0] / counts[0].sum()
    assert scores.rows[0][3] == f"{recall:.3f}"
    page = page_of("classification")
    assert "Confusion matrix: nuts" in page
    assert page.count('<th scope="col">mean probability (frequency)</th>') == 2


def test_wide_tables_become_cards_on_phones_and_narrow_ones_stay_tables() -> None:
    page = page_of("classification")
    scores = page[page.index("Scores of held-out predictions</h2>") :]
    assert scores.index('<table class="wide">') < scores.index("</table>")
    labels = re.findall(r'<th scope="col">([^<]*)</th>', scores[: scores.index("</thead>")])
    first = scores[scores.index("<tbody>") : scores.index("</tr>", scores.index("<tbody>"))]
    assert [html.unescape(each) for each in re.findall(r'data-label="([^"]*)"', first)] == [
        html.unescape(each) for each in labels[1:]
    ]
    confusion = page[page.index("Confusion matrix: nuts") :]
    assert confusion.index('<table class="slim">') < confusion.index("</table>")


@pytest.fixture(scope="module")
def fitted_for_real():
    methods = {"nuts": bz.NUTS(num_chains=2, num_warmup=200, num_draws=200), "map": bz.MAP(num_steps=50)}
    return compare(real_table("regression"), methods, source="numbers", num_hidden=2, progress=False)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:LOO is unreliable")
def test_leave_one_out_and_sampler_diagnostics_have_tables(fitted_for_real):
    grid = loo_grid(fitted_for_real)
    assert {len(row) for row in grid.rows} == {len(grid.columns)}
    loo_rows = {name: cells for name, *cells in grid.rows}
    expected = bz.diagnostics.loo(fitted_for_real.fitted[0].train)
    assert loo_rows["nuts"][0] == f"{expected.elpd:.1f}"
    assert loo_rows["map"][-1] == "not defined for an ensemble"
    ((name, *cells),) = sampler_grid(fitted_for_real).rows
    stats = fitted_for_real.fitted[0].train["sample_stats"]
    assert name == "nuts"
    assert cells[2:4] == [str(int(stats["diverging"].sum())), str(int(stats["tree_depth"].max()))]
    assert float(cells[5]) == pytest.approx(float(az.bfmi(fitted_for_real.fitted[0].train)["energy"].min()), abs=0.006)


@pytest.mark.slow
def test_a_real_page_shows_chains_and_replicates(fitted_for_real):
    titles = [title for title, *_ in drawings(fitted_for_real)]
    assert {"Posterior predictive check", "Chains of nuts"} <= set(titles)
    assert "Chains of map" not in titles
    page = render(fitted_for_real)
    assert "Leave-one-out cross-validation" in page
    assert "Effects of inputs" in page
    assert "linear regression" in page
