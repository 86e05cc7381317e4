"""Gradients until chains agree: looks at prefixes of draws, and medians of runs some of which never agree."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bnnzoo as bz
from benchmarks.until_converged import (
    BASELINE,
    EVERY,
    FIRST,
    METHODS,
    SPLIT,
    described,
    looks,
    one_fit,
    problem,
    settles,
    summary,
    table,
)
from tests.apps.benchmarking.layout import write_set

CHAINS, DRAWS, ROWS = 4, 1000, 3
STEPS = np.full((CHAINS, DRAWS), 7)
WARM_UP = 12_345


def drawn(apart: int) -> np.ndarray:
    """Return independent draws; those of the first chain lie elsewhere, in one of the rows, until ``apart`` of them are drawn."""
    values = np.random.default_rng(0).normal(size=(CHAINS, DRAWS, ROWS))
    values[0, :apart, 1] += 5.0
    return values


@pytest.mark.parametrize(
    ("values", "place"),
    [
        ([1.0, 1.0], 0),
        ([1.02, 1.005, 1.02, 1.009, 1.0], 3),
        ([1.0, 1.0, 1.01], None),
        ([1.0, np.nan], None),
        ([np.nan, 1.0], 1),
    ],
)
def test_it_must_stay_below_the_limit(values: list[float], place: int | None) -> None:
    assert settles(values) == place


def test_gradients_are_those_of_warm_up_and_of_the_draws_that_it_takes() -> None:
    found = looks(drawn(0), STEPS, int(STEPS.sum()) + WARM_UP)
    assert found["warm_up"] == WARM_UP and found["rhat"] < 1.005
    assert found["draws_needed"] % EVERY == 0 and FIRST <= found["draws_needed"] <= 400
    assert found["gradients_needed"] == WARM_UP + 7 * CHAINS * found["draws_needed"]
    assert list(found["rhat_by_draws"]) == [str(each) for each in range(FIRST, DRAWS + 1, EVERY)]
    assert found["ess"] == pytest.approx(CHAINS * DRAWS, rel=0.15)


def test_the_worst_row_decides() -> None:
    found = looks(drawn(500), STEPS, int(STEPS.sum()))
    assert found["draws_needed"] is None and found["gradients_needed"] is None
    assert found["rhat"] > 1.05


def row(method: str, needed: int | None) -> dict[str, Any]:
    facts = {
        "warm_up": 10,
        "gradients": 100,
        "ess": 5.0,
        "per_million_gradients": 5e4,
        "rhat": 1.02 if needed is None else 1.0,
    }
    return {"problem": "foong", "method": method, "gradients_needed": needed, "draws_needed": needed} | facts


def test_seeds_that_do_not_get_there_count_as_if_they_never_would() -> None:
    one, most = (
        described([row("m", each) for each in (None, 40, 60)]),
        described([row("m", each) for each in (None, None, 60)]),
    )
    assert (one["gradients_needed"], one["reached"], one["worst_rhat"]) == (60, 2, 1.02)
    assert (most["gradients_needed"], most["reached"]) == (None, 1)


def test_the_ratio_is_to_the_diagonal_metric_and_none_where_one_of_them_is_not_there() -> None:
    rows = [row(BASELINE, 50), row("NUTS, fisher", 200), row("MAMS", None)]
    found = summary(rows)["foong"]
    assert [found[each]["of_diagonal"] for each in (BASELINE, "NUTS, fisher", "MAMS")] == [1.0, 4.0, None]
    last = table({"foong": found}).splitlines()[-1]
    assert "0 of 1 | not reached | not reached |" in last


def test_a_fit_is_compared_at_the_test_rows_of_its_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_set(tmp_path / "uci", "energy", SPLIT + 1, seed=0)
    monkeypatch.setenv("BNNZOO_DATA", str(tmp_path))
    monkeypatch.setitem(
        METHODS, "NUTS", lambda: bz.NUTS(num_chains=2, num_warmup=5, num_draws=FIRST + EVERY, max_tree_depth=3)
    )
    assert problem("energy")[2].shape == (20, 2)
    found = one_fit("energy", "NUTS", 0)
    assert found["chains"] == 2 and list(found["rhat_by_draws"]) == [str(FIRST), str(FIRST + EVERY)]
    assert 0 < found["warm_up"] < found["gradients"] <= 2 * (5 + FIRST + EVERY) * 7 + 200
