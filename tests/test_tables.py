"""Tables of the documentation against the files of results that they name, in a comment such as ``% numbers: warm_up.json``."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bnnzoo.apps.benchmarking.uci import Score, differences

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
NUMBER = re.compile(r"(?<![\w.])[-+−]?\d[\d,]*(?:\.\d+)?")
UNITS = (1.0, 100.0, 1e6)  # as it is, in percent, in millionths
STATED = 21
"""Tables that name their file; it may grow."""


class Table(NamedTuple):
    """Rows of a table and the files that hold its numbers."""

    page: str
    line: int
    files: tuple[str, ...]
    rows: tuple[str, ...]


def tables() -> Iterator[Table]:
    for page in sorted((ROOT / "docs").rglob("*.md")):
        lines = page.read_text().splitlines()
        for place, line in enumerate(lines):
            if found := re.fullmatch(r"% numbers: (.+)", line):
                start = next(k for k in range(place, len(lines)) if lines[k].startswith("|")) + 2
                end = next((k for k in range(start, len(lines)) if not lines[k].startswith("|")), len(lines))
                yield Table(str(page.relative_to(ROOT)), start, (*found[1].split(", "),), (*lines[start:end],))


TABLES = [*tables()]


def leaves(value: Any) -> Iterator[float]:
    """Yield all numbers of a file."""
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from leaves(each)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield float(value)


def differences_from_r(results: dict[str, Any]) -> Iterator[float]:
    for fit in results.values():
        for site in fit.get("sites", {}).values():
            yield (site["median"] - site["r"]) / site["sd"]


def totals(results: dict[str, Any]) -> Iterator[float]:
    for kind in ("right", "wrong"):
        for count in ("at_fault", "data_sets"):
            yield float(sum(each[count] for each in results[kind].values()))


def means_over_splits(results: dict[str, Any]) -> Iterator[float]:
    for splits in results["runs"].values():
        runs = [*splits.values()] if isinstance(splits, dict) else splits
        for measure in runs[0]:
            yield sum(run[measure] for run in runs) / len(runs)


def against_nuts(results: dict[str, Any]) -> Iterator[float]:
    for found in differences((Score(**each) for each in results["scores"]), "nuts").values():
        yield from (found.difference, found.standard_error, found.detectable, found.num_needed)


DERIVED: dict[str, Callable[[dict[str, Any]], Iterator[float]]] = {
    "disentanglement.json": means_over_splits,
    "formulas.json": differences_from_r,
    "misspecified.json": totals,
    "uci_methods.json": against_nuts,
}
"""Numbers that follow from those of a file."""


def known(files: tuple[str, ...]) -> list[float]:
    found = []
    for pattern in files:
        paths = sorted(RESULTS.glob(pattern))
        assert paths, f"there is no {pattern} in benchmarks/results"
        for path in paths:
            results = json.loads(path.read_text())
            found += [*leaves(results), *DERIVED.get(path.name, lambda _: iter(()))(results)]
    return found


def is_rounded(text: str, values: list[float]) -> bool:
    """Tell whether a number as printed is one of the values, rounded to its digits, in one of the units, whatever its sign."""
    plain = text.replace(",", "").lstrip("+-−")
    last = 0.5001 * 10.0 ** -len(plain.partition(".")[2])
    return any(abs(abs(value) * unit - float(plain)) <= last for value in values for unit in UNITS)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: f"{table.page}:{table.line}")
def test_numbers_of_a_table_are_those_of_its_file(table: Table) -> None:
    values = known(table.files)
    cells = [cell for row in table.rows for cell in re.split(r"(?<!\\)\|", row)[2:-1]]
    printed = [number for cell in cells for number in NUMBER.findall(re.sub(r"`[^`]*`", "", cell))]
    assert printed
    assert [number for number in printed if not is_rounded(number, values)] == []


def test_many_tables_name_their_file() -> None:
    assert len(TABLES) >= STATED


def test_a_number_that_a_file_does_not_have_is_seen() -> None:
    values = [0.1547, 1200.0, 2.5e-5]
    assert all(is_rounded(each, values) for each in ("0.15", "-0.155", "15", "1,200", "25"))
    assert not any(is_rounded(each, values) for each in ("0.16", "1,201", "26", "0.156"))
