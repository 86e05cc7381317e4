"""Entropies against plain loops, closed forms of Dirichlet posteriors, the lecture's table, and their limits."""

import math

import numpy as np
import pytest
import scipy.special
import scipy.stats
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import jensenshannon

from bnnzoo.testing import check_measure, example_tree
from bnnzoo.uncertainty import (
    decompose,
    entropies,
    expected_entropy,
    jensen_shannon,
    mutual_information,
    pairwise_kl,
    predictive_entropy,
    shannon_entropy,
)

DIMS = ("chain", "draw", "obs_id", "class_id")
MEASURES = [
    predictive_entropy,
    expected_entropy,
    mutual_information,
    entropies,
    jensen_shannon,
    pairwise_kl,
    decompose,
]


def as_probs(values):
    """Label values [draws, rows, classes]."""
    return xr.DataArray(np.asarray(values, float)[None], dims=DIMS)


def loop_entropy(p):
    return -sum(value * math.log(value) for value in p if value > 0)


def loop_divergence(p, q):
    return sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))


def dirichlet(concentration, draws=200_000):
    return as_probs(np.random.default_rng(1).dirichlet(concentration, (draws, 1)))


@pytest.mark.parametrize("measure", MEASURES)
def test_conformance(measure):
    check_measure(measure, example_tree("classification"))


def test_against_plain_loops():
    probs = moment_of_example()
    draws = probs.stack(s=("chain", "draw")).transpose("s", "obs_id", "class_id").values
    for row in range(draws.shape[1]):
        p = draws[:, row]
        average = [sum(each[k] for each in p) / len(p) for k in range(p.shape[1])]
        mean_entropy = sum(loop_entropy(each) for each in p) / len(p)
        kl = (
            sum(sum(a * math.log(a / b) for a, b in zip(one, two, strict=True)) for one in p for two in p) / len(p) ** 2
        )
        assert predictive_entropy(probs).values[row] == pytest.approx(loop_entropy(average), abs=1e-12)
        assert expected_entropy(probs).values[row] == pytest.approx(mean_entropy, abs=1e-12)
        assert mutual_information(probs).values[row] == pytest.approx(loop_entropy(average) - mean_entropy, abs=1e-12)
        assert pairwise_kl(probs).values[row] == pytest.approx(kl, abs=1e-12)


def moment_of_example():
    return example_tree("classification")["conditional"]["probs"]


def test_jensen_shannon_of_two_is_scipys():
    p = np.random.default_rng(0).dirichlet(np.ones(4), (2, 3))
    expected = [jensenshannon(p[0, row], p[1, row]) ** 2 / np.log(2) for row in range(3)]
    np.testing.assert_allclose(jensen_shannon(as_probs(p)), expected, atol=1e-12)


# Draws whose averages are the three situations of the lecture: sure, sure of ambiguity, and sure but at odds.
LECTURE = {
    "confident": ((1000.0, 1e-4, 1e-4), (0.0, 0.0, 0.0)),
    "ambiguous": ((20.5, 20.5, 20.5), (1.099, 1.083, 0.016)),
}


@pytest.mark.parametrize("situation", LECTURE)
def test_the_lectures_table(situation):
    concentration, expected = LECTURE[situation]
    found = decompose(dirichlet(concentration)).to_array().values.ravel()
    np.testing.assert_allclose(found, expected, atol=0.002)


def test_the_lectures_table_of_disagreement():
    """Draws that are each sure of another class: (0.99824, 0.00088, 0.00088) in any order has the entropy 0.014."""
    sure = np.full((3, 3), 0.00088) + 0.99736 * np.eye(3)
    mode = np.random.default_rng(0).integers(3, size=20_000)
    found = decompose(as_probs(sure[mode][:, None])).to_array().values.ravel()
    np.testing.assert_allclose(found, [1.098, 0.014, 1.084], atol=0.002)


def test_two_members_of_the_lecture():
    found = decompose(as_probs([[[0.9, 0.1]], [[0.1, 0.9]]])).to_array().values.ravel()
    np.testing.assert_allclose(found, [0.693147, 0.325083, 0.368064], atol=5e-7)


@pytest.mark.parametrize("concentration", [(1.0, 1.0, 1.0), (5.0, 2.0, 0.7), (0.3, 0.3, 0.3)])
def test_closed_form_of_a_dirichlet_posterior(concentration):
    """E[H(p)] = psi(a0 + 1) - sum_k a_k / a0 psi(a_k + 1) for p ~ Dirichlet(a)."""
    a = np.array(concentration)
    expected = scipy.special.digamma(a.sum() + 1) - (a / a.sum() * scipy.special.digamma(a + 1)).sum()
    probs = dirichlet(concentration)
    error = scipy.stats.sem(shannon_entropy(probs).values.ravel())
    assert abs(float(expected_entropy(probs)[0]) - expected) < 5 * error
    total = loop_entropy(a / a.sum())
    assert float(predictive_entropy(probs)[0]) == pytest.approx(total, abs=0.005)


def test_limits():
    one_hot = as_probs(np.broadcast_to([[0.0, 1.0, 0.0]], (4, 1, 3)))
    uniform = as_probs(np.full((4, 1, 3), 1 / 3))
    np.testing.assert_array_equal(decompose(one_hot).to_array(), 0.0)
    np.testing.assert_allclose(decompose(uniform).to_array().values.ravel(), [np.log(3), np.log(3), 0], atol=1e-15)
    split = decompose(as_probs([[[1.0, 0.0]], [[0.0, 1.0]]])).to_array().values.ravel()
    np.testing.assert_allclose(split, [np.log(2), 0.0, np.log(2)], atol=1e-12)
    assert np.isfinite(pairwise_kl(as_probs([[[1.0, 0.0]], [[0.0, 1.0]]]))).all()


def test_stored_entropies_change_nothing():
    tree = example_tree("classification")
    without = tree["conditional"].to_dataset().drop_vars("entropy")
    xr.testing.assert_allclose(decompose(tree), decompose(without), rtol=1e-12)


def test_a_single_draw_is_refused_only_where_draws_are_compared():
    probs = as_probs([[[0.2, 0.8]]])
    assert float(predictive_entropy(probs)[0]) == pytest.approx(float(expected_entropy(probs)[0]))
    for measure in (mutual_information, jensen_shannon, pairwise_kl, decompose):
        with pytest.raises(ValueError, match=r"compares draws .*only one: .*predictive_entropy"):
            measure(probs)


def test_values_that_are_no_probabilities_are_refused():
    logits = as_probs([[[0.2, 0.8]], [[3.0, -1.0]]])
    for measure in MEASURES:
        with pytest.raises(ValueError, match=r"must sum to one.*at obs_id=0 .*after softmax"):
            measure(logits)


shapes = st.tuples(st.integers(2, 6), st.integers(1, 4), st.integers(2, 5))


@settings(max_examples=30, deadline=None)
@given(shape=shapes, spread=st.floats(0.05, 5.0), seed=st.integers(0, 2**32 - 1))
def test_properties(shape, spread, seed):
    rng = np.random.default_rng(seed)
    values = rng.dirichlet(np.full(shape[-1], spread), shape[:-1])
    probs = as_probs(values)
    parts = decompose(probs)
    xr.testing.assert_allclose(parts["total"], parts["aleatoric"] + parts["epistemic"], atol=1e-12)
    assert (parts.to_array() >= 0).all()
    assert (parts["total"] <= np.log(shape[-1]) + 1e-12).all()
    assert (parts["epistemic"] <= pairwise_kl(probs) + 1e-12).all()
    assert ((jensen_shannon(probs) >= 0) & (jensen_shannon(probs) <= 1 + 1e-12)).all()
    xr.testing.assert_allclose(decompose(as_probs(rng.permutation(values))), parts, atol=1e-12)
    same = decompose(as_probs(np.broadcast_to(values[:1], shape)))
    np.testing.assert_allclose(same["epistemic"], 0.0, atol=1e-12)
    chunked = decompose(probs.chunk(draw=2, obs_id=1))
    xr.testing.assert_allclose(chunked, parts, atol=1e-12)
