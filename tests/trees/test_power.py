"""How many rows a comparison takes, against simulated comparisons."""

import math

import arviz as az
import numpy as np
import pytest

from bnnzoo.trees.power import detectable_difference, power_in_words, probability_worse, rows_to_tell_apart


@pytest.mark.parametrize("num_rows", [50, 400])
def test_a_detectable_difference_is_clear_in_four_of_five_comparisons(num_rows: int) -> None:
    rng = np.random.default_rng(0)
    true = detectable_difference(1 / math.sqrt(num_rows))
    gaps = rng.normal(true, 1.0, (4000, num_rows))
    clear = gaps.mean(1) >= 2 * gaps.std(1, ddof=1) / math.sqrt(num_rows)
    assert abs(clear.mean() - 0.8) < 4 * math.sqrt(0.16 / 4000) + 0.01  # whose standard error is estimated


def test_so_many_rows_tell_a_difference_of_that_size_apart() -> None:
    rng = np.random.default_rng(1)
    needed = rows_to_tell_apart(0.1, 1 / math.sqrt(100), 100)
    gaps = rng.normal(0.1, 1.0, (4000, int(needed)))
    clear = gaps.mean(1) >= 2 * gaps.std(1, ddof=1) / math.sqrt(needed)
    assert abs(clear.mean() - 0.8) < 4 * math.sqrt(0.16 / 4000)
    assert rows_to_tell_apart(0.0, 0.1, 100) == math.inf


def test_words_leave_out_what_no_number_of_rows_would_show() -> None:
    assert power_in_words(0.001, 0.01, 60, least=0.005) == "60 observations show differences from 0.028 on"
    assert power_in_words(0.0, 0.0001, 60, least=0.005) == "60 observations show differences from 0.005 on"
    assert power_in_words(-0.02, 0.02, 100).endswith(", and one of this size takes about 810")


def test_the_probability_of_being_worse_is_arvizs() -> None:
    rng = np.random.default_rng(2)
    elpds = {}
    for name, loc in (("better", 0.0), ("worse", 0.25)):
        terms = -0.5 * (rng.normal(size=150) - loc - 0.1 * rng.normal(size=(2, 300, 1))) ** 2
        elpds[name] = az.loo(az.from_dict({"log_likelihood": {"y": terms}, "posterior": {"a": terms[..., 0]}}))
    table = az.compare(elpds, round_to="none")
    row = table.iloc[-1]
    assert probability_worse(row["elpd_diff"], row["dse"]) == pytest.approx(row["p_worse"], abs=1e-6)
    assert math.isnan(probability_worse(0.0, 0.0))
