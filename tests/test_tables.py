"""Tables of the documentation against the files of results that they name, in a comment such as ``% numbers: warm_up.json``."""

import json
import re
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any, NamedTuple

import pytest

from bnnzoo.apps.benchmarking.uci_benchmark import Score, differences

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
NUMBER = re.compile(r"(?<![\w.])[-+−]?\d[\d,]*(?:\.\d+)?")
MEASURED = re.compile(r"[*(]*(below |about |up to )?[-+±−]?\d")
UNITS = (1.0, 100.0, 1000.0, 1e6)  # as it is, in percent, in thousandths, in millionths
WITHOUT_FILE = {
    ("docs/measures/uncertainty.md", "draws"): "exact numbers of an exercise",
    ("docs/measures/diagnostics.md", "rows that move together"): "its tests repeat the simulations",
}
"""Tables of measurements whose numbers are in no file of results, by page and first heading, and why; it may not grow."""


class Table(NamedTuple):
    """Rows of a table and the files that hold its numbers, if it names any."""

    page: str
    line: int
    files: tuple[str, ...]
    heading: str
    rows: tuple[str, ...]

    @property
    def cells(self) -> list[str]:
        """All but those of the first column and empty ones."""
        cells = [cell.strip() for row in self.rows for cell in re.split(r"(?<!\\)\|", row)[2:-1]]
        return [cell for cell in cells if cell]


def tables() -> Iterator[Table]:
    for page in sorted((ROOT / "docs").rglob("*.md")):
        lines, files = page.read_text().splitlines(), ""
        for is_table, block in groupby(enumerate(lines), lambda numbered: numbered[1].startswith("|")):
            (place, heading), *rest = block
            if not is_table:
                named = [
                    found[1]
                    for _, line in [(place, heading), *rest]
                    if (found := re.fullmatch(r"% numbers: (.+)", line))
                ]
                files = named[-1] if named else ""
            else:
                rows = tuple(line for _, line in rest[1:])
                yield Table(
                    str(page.relative_to(ROOT)), place + 1, tuple(filter(None, files.split(", "))), heading, rows
                )


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


def numbers_in_names(results: Any) -> Iterator[float]:
    if isinstance(results, dict):
        for name, value in results.items():
            yield from map(float, re.findall(r"\d+", name))
            yield from numbers_in_names(value)


def means_and_errors(runs: list[dict[str, Any]]) -> Iterator[float]:
    for measure, first in runs[0].items():
        if isinstance(first, float) and all(measure in run for run in runs):
            values = [run[measure] for run in runs]
            yield from (mean(values), stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0)


def by_method_and_set(results: dict[str, Any]) -> Iterator[float]:
    def kind(run: dict[str, Any]) -> tuple[str, str]:
        return run["method"], run["set"]

    for _, runs in groupby(sorted(results["scores"], key=kind), kind):
        yield from means_and_errors([*runs])


def over_seeds_of_adapters(results: dict[str, Any]) -> Iterator[float]:
    for method in [each for problem in results["runs"].values() for each in problem.values()]:
        runs = [*method.values()]
        yield from means_and_errors([{key: run[key] for key in run if key != "unadapted"} for run in runs])
        yield sum(run["gain_error"] ** 2 for run in runs) ** 0.5 / len(runs)


def over_seeds_of_images(results: dict[str, Any]) -> Iterator[float]:
    base = results["seeds"]["MAP"]
    for method in results["seeds"].values():
        gains = [{"gain": run["log_density"] - base[seed]["log_density"]} for seed, run in method.items()]
        yield from means_and_errors([*method.values()])
        yield from means_and_errors(gains)


def gradients_of_two_a_step(results: dict[str, Any]) -> Iterator[float]:
    yield 2.0 * median(run["steps_per_draw"] for run in results["facts"]["runs"]["blackjax"])


def rates_and_ratios(results: dict[str, Any]) -> Iterator[float]:
    medians, both = results["medians"], ", with log likelihood"
    yield from (value / 1e6 for value in medians.values())
    yield medians["bnnzoo" + both] / medians["numpyro" + both]


def in_milliseconds(results: dict[str, Any]) -> Iterator[float]:
    yield from (value / 1000 for value in results["medians"].values())


def scores_and_differences(results: dict[str, Any]) -> Iterator[float]:
    yield from by_method_and_set(results)
    for found in differences((Score(**each) for each in results["scores"]), "nuts").values():
        yield from (found.difference, found.standard_error, found.detectable, found.num_needed)


DERIVED: dict[str, Callable[[dict[str, Any]], Iterator[float]]] = {
    "digits_convnet.json": over_seeds_of_images,
    "disentanglement.json": means_over_splits,
    "formulas.json": differences_from_r,
    "langevin.json": gradients_of_two_a_step,
    "lora.json": over_seeds_of_adapters,
    "memory.json": numbers_in_names,
    "misspecified.json": totals,
    "prediction.json": rates_and_ratios,
    "prediction_again.json": rates_and_ratios,
    "prediction_as_typed_*.json": rates_and_ratios,
    "serving.json": numbers_in_names,
    "uci_gap.json": by_method_and_set,
    "uci_least_squares.json": by_method_and_set,
    "uci_methods.json": scores_and_differences,
    "variational_step_*.json": in_milliseconds,
}
"""Numbers that follow from those of a file."""


def known(files: tuple[str, ...]) -> list[float]:
    found = []
    for pattern in files:
        paths = sorted(RESULTS.glob(pattern))
        assert paths, f"there is no {pattern} in benchmarks/results"
        for path in paths:
            results = json.loads(path.read_text())
            found += leaves(results)
            found += [value for name, derive in DERIVED.items() if path.match(name) for value in derive(results)]
    return found


def is_rounded(text: str, values: list[float]) -> bool:
    """Tell whether a number as printed is one of the values, rounded to its digits, in one of the units, whatever its sign."""
    plain = text.replace(",", "").lstrip("+-−")
    last = 0.5001 * 10.0 ** -len(plain.partition(".")[2])
    return any(abs(abs(value) * unit - float(plain)) <= last for value in values for unit in UNITS)


@pytest.mark.parametrize(
    "table", [table for table in TABLES if table.files], ids=lambda table: f"{table.page}:{table.line}"
)
def test_numbers_of_a_table_are_those_of_its_file(table: Table) -> None:
    values = known(table.files)
    printed = [number for cell in table.cells for number in NUMBER.findall(re.sub(r"`[^`]*`", "", cell))]
    assert printed
    assert [number for number in printed if not is_rounded(number, values)] == []


def test_every_table_of_measurements_names_its_file() -> None:
    """Half of the cells of such a table, or more, begin with a number."""
    unnamed = [
        table
        for table in TABLES
        if not table.files and 2 * sum(map(bool, map(MEASURED.match, table.cells))) >= len(table.cells) > 0
    ]
    found = {(table.page, table.heading.strip("| ").split(" |")[0]) for table in unnamed}
    assert found == set(WITHOUT_FILE), [f"{table.page}:{table.line}" for table in unnamed]


def test_a_number_that_a_file_does_not_have_is_seen() -> None:
    values = [0.1547, 1200.0, 2.5e-5]
    assert all(is_rounded(each, values) for each in ("0.15", "-0.155", "15", "1,200", "25"))
    assert not any(is_rounded(each, values) for each in ("0.16", "1,201", "26", "0.156"))
