"""The settings among which splits of the UCI benchmark choose: a list with a date, which is not changed under it."""

import json
from pathlib import Path

import pytest

import bnnzoo as bz
from benchmarks import pairs, uci
from tests.apps.benchmarking.layout import write_set

FIXED = {"2026-11-29": "9bdaebfc466248adbd766e21c8672d5902bf918deca60b1eb4c88ce58ece8d21"}
"""Digests of all lists by date. A changed list needs a new date, here and in the file; no line of this may change."""


def test_the_list_is_that_of_its_date() -> None:
    assert {"date": max(FIXED), "sha256": FIXED[max(FIXED)]} == uci.LIST


def test_a_list_that_grows_has_another_digest() -> None:
    found = json.loads(uci.FILE.read_text())
    found["candidates"]["SGHMC"]["scale"].append(100.0)
    lists, about = uci.candidates_of(json.dumps(found))
    assert len(lists["SGHMC"]) == 5 and about["date"] in FIXED and about["sha256"] not in FIXED.values()


def test_the_list_holds_all_combinations() -> None:
    dropout = uci.CANDIDATES["MCDropout"]
    assert [(each.rate, scale) for each, scale in dropout] == [
        (rate, scale) for rate in (0.005, 0.02) for scale in (1.0, 3.0, 10.0)
    ]
    assert uci.CANDIDATES["NUTS"] == [(bz.NUTS(num_chains=4, num_warmup=300, num_draws=200), 1.0)]


def test_scores_say_of_which_list_they_are_and_a_run_by_another_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (pairs, uci):
        monkeypatch.setattr(module, "RESULTS", tmp_path)
    scored: list[tuple[object, int]] = []

    def found(candidate: object, train: tuple, test: tuple, seed: int) -> dict[str, float]:
        scored.append((candidate, len(test[1])))
        return {"rmse": 1.0, "log_density": float(candidate == uci.CANDIDATES["SGHMC"][2])}

    monkeypatch.setattr(uci, "fitted_scores", found)
    write_set(tmp_path, "yacht", 1, seed=0)
    row = uci.one_split(tmp_path / "yacht", "SGHMC", 0)
    assert row["settings"] == 2 and row["candidates"] == FIXED[max(FIXED)]
    assert [rows for _, rows in scored] == [12, 12, 12, 12, 20]  # a fifth of the training part, and then the test part
    uci.record("yacht", "SGHMC", [row])
    assert uci.measured("yacht", "SGHMC") == [row]
    monkeypatch.setattr(uci, "LIST", uci.LIST | {"date": "2030-01-01"})
    assert uci.measured("yacht", "SGHMC") == []
