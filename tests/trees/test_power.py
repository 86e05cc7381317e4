"""How many rows, folds and splits a comparison takes, against simulated comparisons."""

import math

import arviz as az
import numpy as np
import pytest

from bnnzoo.trees.power import PairedComparison, corrected_error, detectable_difference

MOST_OFF = 4 * math.sqrt(0.16 / 4000)  # of a power of 80% in 4,000 comparisons


@pytest.mark.parametrize("num_rows", [50, 400])
def test_a_detectable_difference_is_clear_in_four_of_five_comparisons(num_rows: int) -> None:
    rng = np.random.default_rng(0)
    true = detectable_difference(1 / math.sqrt(num_rows))
    clear = [PairedComparison.of_rows(each).is_clear() for each in rng.normal(true, 1.0, (4000, num_rows))]
    assert abs(np.mean(clear) - 0.8) < MOST_OFF + 0.01  # whose standard error is estimated


def test_so_many_rows_tell_a_difference_of_that_size_apart() -> None:
    rng = np.random.default_rng(1)
    needed = PairedComparison(0.1, 1 / math.sqrt(100), 100).num_needed
    clear = [PairedComparison.of_rows(each).is_clear() for each in rng.normal(0.1, 1.0, (4000, int(needed)))]
    assert abs(np.mean(clear) - 0.8) < MOST_OFF
    assert PairedComparison(0.0, 0.1, 100).num_needed == math.inf
    assert PairedComparison(1e-9, 0.1, 100).num_needed == math.inf


def of_splits(rng: np.random.Generator, true: float, number: int, overlap: float) -> list[PairedComparison]:
    """Simulate comparisons on splits of one data set, whose share in the score of each has the variance ``overlap``."""
    shared = math.sqrt(overlap) * rng.normal(size=(4000, 1))
    return [PairedComparison.of_splits(each, overlap) for each in true + shared + rng.normal(size=(4000, number))]


@pytest.mark.parametrize("number", [5, 20])
def test_splits_that_share_rows_have_the_level_and_the_power_that_is_said(number: int) -> None:
    rng = np.random.default_rng(2)
    overlap = 1 / 9
    none = [found.is_clear() for found in of_splits(rng, 0.0, number, overlap)]
    assert abs(np.mean(none) - 0.05) < 4 * math.sqrt(0.05 * 0.95 / 4000)
    true = detectable_difference(math.sqrt(1 / number + overlap), number)
    clear = [found.is_clear() for found in of_splits(rng, true, number, overlap)]
    assert abs(np.mean(clear) - 0.8) < MOST_OFF + 0.02  # t quantiles in place of the noncentral distribution
    naive = [abs(found.difference) > 2 * math.sqrt(1 / number) for found in of_splits(rng, 0.0, number, overlap)]
    assert np.mean(naive) > 0.1


def test_so_many_splits_tell_a_difference_of_that_size_apart() -> None:
    rng = np.random.default_rng(3)
    overlap, true = 1 / 9, 1.4
    needed = PairedComparison(true, corrected_error([-1.0, 0.0, 1.0], overlap), 0, 3, overlap).num_needed
    assert 5 < needed < 40
    clear = [found.is_clear() for found in of_splits(rng, true, int(needed), overlap)]
    assert abs(np.mean(clear) - 0.8) < MOST_OFF + 0.03  # and of whole splits


def test_no_number_of_splits_of_the_same_rows_shows_what_is_too_small() -> None:
    found = PairedComparison(0.5, corrected_error([-1.0, 0.0, 1.0], 1 / 9), 0, 3, 1 / 9)
    assert found.num_needed == math.inf
    assert found.in_words() == (
        "3 splits show differences from 3.6 on, and one of this size no number of splits of these rows"
    )


def test_rows_of_a_fold_that_share_a_fit_are_not_taken_for_independent() -> None:
    rng = np.random.default_rng(4)
    folds = np.repeat(np.arange(10), 10)
    gaps = 0.5 * rng.normal(size=(2000, 10)).repeat(10, 1) + rng.normal(size=(2000, 100))
    by_row = [PairedComparison.of_rows(each).is_clear() for each in gaps]
    by_fold = [PairedComparison.of_folds(each, folds).is_clear() for each in gaps]
    assert np.mean(by_row) > 0.15
    assert np.mean(by_fold) < 0.05
    found = PairedComparison.of_folds(gaps[0] - gaps[0].mean() + 0.05, folds)
    assert found.standard_error == pytest.approx(
        math.sqrt((1 / 10 + 1 / 9) * gaps[0].reshape(10, 10).mean(1).var(ddof=1))
    )
    assert found.num_needed == math.ceil(100 * (found.detectable / 0.05) ** 2)  # rows, which more folds do not replace
    assert found.in_words().startswith("10 folds show differences from ")
    assert found.in_words().endswith(" observations")


def test_forecasts_of_several_steps_overlap() -> None:
    rng = np.random.default_rng(5)
    noise = rng.normal(size=(2000, 203))
    gaps = sum(noise[:, k : 200 + k] for k in range(4))
    plain = [PairedComparison.of_rows(each).is_clear() for each in gaps]
    allowed = [PairedComparison.of_rows(each, lags=3) for each in gaps]
    assert np.mean(plain) > 0.2
    assert np.mean([found.is_clear() for found in allowed]) < 0.09
    assert np.mean([found.standard_error for found in allowed]) == pytest.approx(gaps.mean(1).std(), rel=0.1)


def test_words_leave_out_what_no_number_of_rows_would_show() -> None:
    words = PairedComparison(0.001, 0.01, 60).in_words(least=0.005)
    assert words == "60 observations show differences from 0.028 on"
    assert PairedComparison(0.0, 0.0001, 60).in_words(0.005) == "60 observations show differences from 0.005 on"
    assert PairedComparison(-0.02, 0.02, 100).in_words().endswith(", and one of this size takes about 810")


def test_a_single_row_or_split_tells_nothing() -> None:
    for found in (PairedComparison.of_rows([0.1]), PairedComparison.of_splits([0.1], 0.1)):
        assert found.difference == 0.1
        assert all(math.isnan(each) for each in (found.standard_error, found.detectable, found.probability_worse))
        assert math.isnan(found.num_needed) and not found.is_clear()
        assert found.weighed() == "+0.100, standard error nan"


def test_the_probability_of_being_worse_is_arvizs() -> None:
    rng = np.random.default_rng(2)
    elpds = {}
    for name, loc in (("better", 0.0), ("worse", 0.25)):
        terms = -0.5 * (rng.normal(size=150) - loc - 0.1 * rng.normal(size=(2, 300, 1))) ** 2
        elpds[name] = az.loo(az.from_dict({"log_likelihood": {"y": terms}, "posterior": {"a": terms[..., 0]}}))
    table = az.compare(elpds, round_to="none")
    row = table.iloc[-1]
    found = PairedComparison(row["elpd_diff"], row["dse"], 150)
    assert found.probability_worse == pytest.approx(row["p_worse"], abs=1e-6)
    assert math.isnan(PairedComparison(0.0, 0.0, 150).probability_worse)
