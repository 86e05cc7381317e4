"""Partial dependence, against a model whose effects are known."""

from dataclasses import replace

import numpy as np
import pytest

from bnnzoo.apps.reporting.partial_dependence import effects_frame, effects_of, plot_effects, shown_inputs
from bnnzoo.apps.tables import Table
from bnnzoo.testing import linear_gaussian
from tests.helpers.exact import chains, exact_posterior
from tests.helpers.trees import comparison


@pytest.fixture(scope="module")
def found():
    """Effects of two numeric columns and two categories on a linear prediction, and the weights' exact posterior."""
    target = linear_gaussian(num_inputs=4)
    posterior = chains(exact_posterior(target), num_chains=2)
    x, y = (part.numpy() for part in target.data)
    features = ("u", "v", "town=A", "town=B")
    units = {"x_loc": np.array([3.0, 0.0]), "x_scale": np.array([2.0, 1.0])}
    table = Table("regression", "y", features, (), x, y, x, y, 50.0, 10.0, np.arange(len(y)), **units)
    return effects_of(posterior, table), posterior.draws().reshape(200, 4).numpy(), x


def test_the_effect_of_a_number_is_a_line_with_the_posterior_of_its_slope(found):
    (u, *_), draws, x = found
    assert u.name == "u"
    standardised = (u.values - 3.0) / 2.0
    np.testing.assert_allclose(standardised[[0, -1]], np.quantile(x[:, 0], [0.025, 0.975]))
    rest = (x[np.linspace(0, len(x) - 1, min(len(x), 100)).round().astype(int)][:, 1:] @ draws[:, 1:].T).mean(0)
    lines = 50 + 10 * (np.outer(standardised, draws[:, 0]) + rest)
    np.testing.assert_allclose(u.mean[0], lines.mean(1))
    np.testing.assert_allclose(u.low[0], np.quantile(lines, 0.05, axis=1))
    np.testing.assert_allclose(u.high[0], np.quantile(lines, 0.95, axis=1))


def test_categories_replace_each_other(found):
    (*_, town), draws, _ = found
    assert (town.name, town.values) == ("town", ("A", "B"))
    difference = 10 * (draws[:, 2] - draws[:, 3]).mean()
    np.testing.assert_allclose(town.mean[0, 0] - town.mean[0, 1], difference)
    assert town.size == pytest.approx(abs(difference))


def test_effects_are_a_table(found):
    frame = effects_frame({"exact": found[0]}, ())
    assert list(frame.columns) == ["method", "input", "value", "mean", "lower_90", "upper_90"]
    assert len(frame) == sum(len(effect.values) for effect in found[0])
    assert (frame["lower_90"] <= frame["mean"]).all()


def test_two_numbers_are_drawn_as_two_groups(found):
    line, town = found[0][0], found[0][2]
    sex = replace(line, name="sex", values=np.array([1.0, 2.0]), mean=town.mean, low=town.low, high=town.high)
    result = comparison("regression")
    result = replace(result, fitted=tuple(replace(each, effects=(line, sex)) for each in result.fitted))
    curve, groups = plot_effects(result).axes[:2]
    assert len(curve.lines) == len(result.fitted) and len(curve.lines[0].get_xdata()) == len(line.values)
    assert [each.get_text() for each in groups.get_xticklabels()] == ["1", "2"]
    assert len(groups.containers) == len(result.fitted)


def test_the_page_shows_the_inputs_that_matter_most(found):
    first = found[0][0]
    many = tuple(replace(first, name=f"x{i}", mean=first.mean * i) for i in range(20))
    result = comparison("regression")
    result = replace(result, fitted=tuple(replace(each, effects=many) for each in result.fitted))
    assert shown_inputs(result) == [f"x{i}" for i in range(8, 20)]
