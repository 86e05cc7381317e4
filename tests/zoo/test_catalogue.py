"""The list of cards, and what is refused in one sentence."""

import re
from pathlib import Path

import numpy as np
import pytest

import bnnzoo as bz
from bnnzoo.zoo.data import fingerprint


def test_the_list_prints_one_line_for_each_card() -> None:
    cards = bz.zoo.list()
    lines = repr(cards).splitlines()
    assert len(lines) == len(cards)
    assert lines[0].split() == ["linear-regression", *cards[0].title.split()]
    assert "[needs fbm/rdata]" in next(line for line in lines if line.startswith("neal-regression"))
    assert cards._repr_html_().count("<tr>") == len(cards) + 1


def test_a_card_prints_what_it_is() -> None:
    text = repr(bz.zoo.load("two-moons"))
    assert text.startswith("two-moons (version 1): Two moons")
    assert "Prior: N(0, 3² / fan-in)" in text
    assert "Methods: nuts, mams, laplace, mfvi, ensemble" in text


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("two-moon", "There is no card 'two-moon' in the zoo; the nearest names are two-moons"),
        ("neal", "There is no card 'neal' in the zoo; the nearest names are neal-"),
        ("xyzzy", "There is no card 'xyzzy' in the zoo; bz.zoo.list() has the names."),
    ],
)
def test_an_unknown_card_is_refused_with_the_nearest_names(name: str, sentence: str) -> None:
    with pytest.raises(bz.zoo.ZooError, match=re.escape(sentence)):
        bz.zoo.load(name)


def test_a_method_that_is_not_on_the_card_is_refused() -> None:
    card = bz.zoo.load("two-moons")
    with pytest.raises(
        bz.zoo.ZooError, match=re.escape("Card 'two-moons' has no method 'nut', but 'nuts'; its methods")
    ):
        card.fit("nut", progress=False)


def test_absent_data_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    card = bz.zoo.load("neal-regression")
    monkeypatch.delenv("BNNZOO_DATA", raising=False)
    with pytest.raises(
        bz.zoo.ZooError, match=re.escape("put 'fbm/rdata' into a folder and name it, as data(folder=...)")
    ):
        card.data()
    with pytest.raises(bz.zoo.ZooError, match="Card 'neal-regression' needs 'fbm/rdata', which the folder of data"):
        card.data(tmp_path)
    monkeypatch.setenv("BNNZOO_DATA", str(tmp_path))
    with pytest.raises(bz.zoo.ZooError, match="which the folder of data"):
        card.data()


def test_data_are_read_from_the_folder_of_the_user(tmp_path: Path) -> None:
    (tmp_path / "fbm").mkdir()
    table = np.arange(440.0).reshape(220, 2)
    np.savetxt(tmp_path / "fbm" / "rdata", table)
    data = bz.zoo.load("neal-regression").data(tmp_path)
    assert np.array_equal(data.train["x"], table[:100, :1]) and np.array_equal(data.test["y"], table[100:200, 1])


def test_fingerprints_tell_data_apart() -> None:
    data = bz.zoo.load("two-moons").data()
    changed = {**data.train, "x": np.flip(data.train["x"], 0)}
    assert fingerprint(data.train) != pytest.approx(fingerprint(changed))
    assert fingerprint(data.train) == fingerprint(bz.zoo.load("two-moons").data().train)
