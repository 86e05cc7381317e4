"""Variants of the UCI model are chosen among on training parts alone, and only those chosen are scored on test parts."""

import json
from pathlib import Path

import numpy as np
import pytest

import bnnzoo as bz
from benchmarks import pairs, uci_priors
from tests.apps.benchmarking.layout import write_set

OTHER = "layer-wise, Student noise"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two splits of a small set, a fast method, and results in a folder of their own."""
    for module in (pairs, uci_priors):
        monkeypatch.setattr(module, "RESULTS", tmp_path / "results")
    quick = bz.SGHMC(num_chains=2, num_warmup=5, num_draws=5, optimise_steps=20)
    two = {name: uci_priors.VARIANTS[name] for name in (uci_priors.DEFAULT, OTHER)}
    monkeypatch.setattr(uci_priors, "SAMPLERS", {uci_priors.SAMPLER: quick})
    monkeypatch.setattr(uci_priors, "VARIANTS", two)
    write_set(tmp_path, "yacht", 2, seed=0)
    return tmp_path


def spoil_test_rows(folder: Path) -> None:
    """Put nonsense into the test rows of the first split."""
    rows = np.loadtxt(folder / "yacht" / "data.txt")
    rows[np.loadtxt(folder / "yacht" / "index_test_0.txt").astype(int)] = 1e6
    np.savetxt(folder / "yacht" / "data.txt", rows)


def test_test_rows_do_not_change_the_choice(folder: Path) -> None:
    def scores(part: str) -> list[float]:
        return [uci_priors.one_fit(folder, "yacht", 0, each, part)["log_density"] for each in uci_priors.VARIANTS]

    validation, test = scores("validation"), scores("test")
    spoil_test_rows(folder)
    assert scores("validation") == validation
    assert scores("test") != test


def row(split: int, variant: str, part: str, value: float, sampler: str = uci_priors.SAMPLER) -> uci_priors.Row:
    facts = {"set": "yacht", "split": split, "variant": variant, "part": part, "sampler": sampler}
    return facts | {"log_density": value, "rmse": 1.0}


def test_each_rule_chooses_by_the_fifths_of_training_parts() -> None:
    rows = [row(split, variant, "validation", -5.0) for split in (0, 1) for variant in uci_priors.VARIANTS]
    rows += [row(split, "two layers", "test", 9.0) for split in (0, 1)]
    rows += [row(split, "Student noise", "validation", 9.0, "SGHMC") for split in (0, 1)]
    rows += [row(0, OTHER, "validation", -1.0), row(1, "input-wise", "validation", -4.0)]
    rows += [row(2, "two layers", "validation", 9.0)]  # a split on which the others are not yet scored
    rules = uci_priors.choices(rows, "yacht")
    assert rules == {
        "default": {0: uci_priors.DEFAULT, 1: uci_priors.DEFAULT},
        "own": {0: OTHER, 1: "input-wise"},
        "average": {0: OTHER, 1: OTHER},
    }
    assert uci_priors.choices([{**each, "set": "energy"} for each in rows] + rows, "yacht") == rules


def test_a_run_scores_the_chosen_variants_alone_and_goes_on_where_it_stopped(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fits: list[tuple[int, str, str]] = []

    def found(data: Path, name: str, split: int, variant: str, part: str, sampler: str) -> uci_priors.Row:
        fits.append((split, variant, part))
        value = float(variant == OTHER) if (split, part) == (0, "validation") else -float(split)
        return row(split, variant, part, value, sampler)

    monkeypatch.setattr(uci_priors, "one_fit", found)
    uci_priors.main(str(folder), "yacht", "2")
    path = folder / "results" / "uci_priors.json"
    written = json.loads(path.read_text())
    both = [(uci_priors.DEFAULT, "validation"), (OTHER, "validation"), (uci_priors.DEFAULT, "test"), (OTHER, "test")]
    assert [[fit[1:] for fit in fits if fit[0] == split] for split in (0, 1)] == [both, both]
    found_by = written["summary"]["yacht"]
    assert found_by["choices"]["own"] == {uci_priors.DEFAULT: 1, OTHER: 1}
    assert found_by["validation"][OTHER]["difference"] == 0.5
    assert found_by["test"]["average"]["log_density"]["mean"] == -0.5
    beside = {**written["scores"][0], "set": "energy"}  # of a run that wrote at the same time
    path.write_text(json.dumps(written | {"scores": [*written["scores"][:3], beside]}))
    fits.clear()
    uci_priors.main(str(folder), "yacht", "2")
    assert len(fits) == 5
    assert {each["set"] for each in json.loads(path.read_text())["scores"]} == {"yacht", "energy"}
