"""Pages and pictures of the cards."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import median

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest

import bnnzoo as bz
from bnnzoo.zoo.budgets import table_methods
from bnnzoo.zoo.card_pages import card_page, write_pages
from bnnzoo.zoo.catalogue import NETWORKS
from bnnzoo.zoo.cells import Cell, read_cells
from bnnzoo.zoo.figure import card_figure
from bnnzoo.zoo.reference import referenced
from bnnzoo.zoo.table import own_and_others
from bnnzoo.zoo.table_page import PARTIAL, table_page, which_method

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
SAMPLERS = {
    "sgld",
    "psgld",
    "sghmc",
    "cyclical",
    "stochastic-mclmc",
    "nuts",
    "hmc",
    "chees",
    "mams",
    "mclmc",
    "tempered",
}
WORDS = ["none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]


def test_a_page_says_what_the_card_says() -> None:
    page = card_page(bz.zoo.load("linear-regression"))
    assert page.startswith("# Linear regression with a known noise\n")
    assert "| `nuts` | `NUTS(num_warmup=500)` |" in page
    assert "**Reference posterior.** 32,000 draws of NUTS: largest R-hat of a prediction 1.00" in page


def test_pages_are_written_once_and_those_of_no_card_go(tmp_path: Path) -> None:
    (tmp_path / "gone.md").write_text("old")
    write_pages(tmp_path)
    assert {path.stem for path in tmp_path.iterdir()} == set(bz.zoo.list().names)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    write_pages(tmp_path)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("name", ["polynomial-gap", "censored-survival"])
def test_a_figure_shows_the_prior_and_the_reference(name: str) -> None:
    mpl.use("agg")
    figure = card_figure(bz.zoo.load(name), num_draws=20)
    has_reference = name in bz.zoo.reference.__globals__["referenced"]()
    assert [axis.get_title() for axis in figure.axes] == ["prior", *(["reference posterior"] if has_reference else [])]
    assert len(figure.axes[0].lines) == 5
    plt.close(figure)


def cell(card: str, method: str, **found: float | str) -> Cell:
    return Cell(**{"card": card, "method": method, "version": 1, "seed": 0, **found})


def test_the_page_of_the_table_says_what_was_not_run_and_why_cells_have_no_result(tmp_path: Path) -> None:
    cells = [
        cell("cubic", "nuts", distance=1.04, seconds=3.0),
        cell("two-moons", "dropout", refused="It has no units."),
    ]
    page = table_page(cells)
    assert "| `cubic` | 1.04 |  |" in page and "| `two-moons` |  | - |" in page
    assert "- `dropout` on `two-moons`: It has no units." in page
    assert "Not run: `" in page and "`censored-survival`, " in page
    write_pages(tmp_path, cells)
    assert (tmp_path / "table.md").read_text() == page


def test_seeds_stand_in_one_cell_as_median_and_range() -> None:
    seeds = [cell("cubic", "nuts", distance=distance, seed=seed) for seed, distance in enumerate((1.04, 0.9, 1.2))]
    assert "| `cubic` | 1.04 (0.9 to 1.2) |" in table_page(seeds)


def test_seconds_of_compiling_stand_apart_from_those_of_the_fit() -> None:
    page = table_page([cell("cubic", "nuts", seconds=2.5, compiling=1.25, processor=7.0)])
    of_fit, of_compiling = page.split("## Wall seconds")[1:]
    assert "| `cubic` | 2.5 |" in of_fit and "| `cubic` | 1.25 |" in of_compiling


def test_other_programs_have_a_table_of_their_own() -> None:
    cells = [
        cell("cubic", "nuts", distance=1.04),
        cell("cubic", "theirs", distance=1.2, off=False),
        cell("two-moons", "theirs", distance=7.0, off=True),
    ]
    own, others = table_page(cells).split("## Other programs")
    assert "`theirs`" not in own and "| method | `cubic` | `two-moons` |" in others
    assert "| `theirs` | 1.2 | 7, off |" in others
    assert "Other programs" not in table_page(cells[:1])


def test_verdicts_are_counted() -> None:
    verdicts = [
        (False, ()),
        (False, ("DivergenceWarning",)),
        (True, ("ParetoKWarning",)),
        (True, ()),
        (True, ()),
        (None, ()),
    ]
    cells = [cell("cubic", "nuts", off=off, warnings=said, seed=seed) for seed, (off, said) in enumerate(verdicts)]
    cells += [cell("cubic", "hmc", off=False, warnings=("TreeDepthWarning",)), cell("two-moons", "hmc", refused="No.")]
    page = table_page(cells)
    assert "| `nuts` | 1 | 1 | 1 | 2 | 0 |" in page and "| `hmc` | 1 | 0 | 0 | 0 | 1 |" in page
    seeds = "1 right; 1 right, warned; 1 off, warned; 2 **off, silent**"
    assert (
        f"| card | `nuts` | `hmc` |\n| --- | --- | --- |\n| `cubic` | {seeds} | right |\n| `two-moons` |  | - |" in page
    )


def test_seeds_that_agree_have_one_verdict() -> None:
    cells = [cell("cubic", "laplace", off=True, warnings=("ParetoKWarning",), seed=seed) for seed in range(3)]
    assert "| `cubic` | off, warned |" in table_page(cells)


def test_words_follow_from_distances_by_the_rule_on_the_page() -> None:
    networks, others = (
        ("cubic", "two-moons", "three-regions"),
        ("linear-regression", "logistic-regression", "polynomial-gap"),
    )
    distances = {"nuts": (1.0, 1.0), "laplace": (1.5, 3.0), "mfvi": (1.6, 3.1)}
    cells = [
        cell(card, method, distance=distance, gradients=10 if method == "nuts" else 5)
        for method, kinds in distances.items()
        for cards, distance in zip((others, networks), kinds, strict=True)
        for card in cards
    ]
    lines = {line.split("`")[1]: line for line in which_method(cells).splitlines()[2:]}
    assert lines["nuts"] == "| `nuts` | good, 1 (3) |  | good, 1 (3) |  |  | 1 |"
    assert lines["laplace"] == "| `laplace` | good, 1.5 (3) |  | fair, 3 (3) |  |  | 0.5 |"
    assert lines["mfvi"] == "| `mfvi` | fair, 1.6 (3) |  | no, 3.1 (3) |  |  | 0.5 |"
    narrow = [replace(each, sd_inside=0.3) if each.method == "nuts" else each for each in cells]
    assert "| no, 1 (3) |  | no, 1 (3) | 0.3 |" in which_method(narrow).splitlines()[2]
    wide = [replace(each, sd_inside=1.9) if each.method == "nuts" else each for each in cells]
    assert "| fair, 1 (3) |  | fair, 1 (3) | 1.9 |" in which_method(wide).splitlines()[2]
    few = [each for each in cells if each.card not in ("cubic", "polynomial-gap")]
    assert "| 1 (2) |  | 1 (2) |" in which_method(few).splitlines()[2]


def test_the_measured_table_is_of_the_cards_as_they_are() -> None:
    cells = read_cells(Path(__file__).parents[2] / "benchmarks" / "results" / "zoo_table.json")
    assert len({(each.card, each.method, each.seed) for each in cells}) == len(cells) > 0
    assert all(each.version == bz.zoo.load(each.card).version for each in cells)
    exact = [
        each for each in cells if each.method in {"nuts", "mams"} and each.distance is not None and not each.warned
    ]
    assert exact and all(each.distance < 3 for each in exact)


def test_every_cell_of_the_measured_table_has_a_result_or_a_reason() -> None:
    """No pair of a method and a card with a reference is left out; a point estimate has no distance."""
    own, others = measured_cells()
    assert {(each.method, each.card) for each in own} == {*product(table_methods(), referenced())}
    for each in (*own, *others):
        assert (each.distance is not None or (each.method == "map" and not each.refused)) != bool(each.refused), each


def test_the_counts_of_the_guide_are_those_of_the_measured_table() -> None:
    guide = " ".join((ROOT / "docs" / "zoo.md").read_text().split())
    for sentence in counts_of_the_guide():
        assert sentence in guide


def counts_of_the_guide() -> Iterator[str]:
    """Yield sentences of the guide, with numbers of the files that they are about."""
    own, others = measured_cells()
    fits: dict[tuple[str, str], list[Cell]] = {}
    for each in own:
        fits.setdefault((each.method, each.card), []).append(each)
    results = {pair: [each for each in seeds if not each.refused] for pair, seeds in fits.items()}
    measured = {pair: seeds for pair, seeds in results.items() if seeds}
    fewer = sum(len(seeds) < 3 for seeds in measured.values())
    methods, theirs = len(table_methods()), len({(each.method, each.card) for each in others})
    yield (
        f"All {len(fits):,} cells of {methods} methods and {len(referenced())} cards have a result or a reason, and so have "
        f"{theirs} of other programs. Of the {methods} methods {len(measured):,} cells are measured, all but "
        f"{in_words(fewer)} of them with three seeds."
    )
    distances = {pair: median(each.distance for each in seeds) for pair, seeds in measured.items() if pair[0] != "map"}
    ranges = [[distance for (method, _), distance in distances.items() if method == name] for name in ("nuts", "mams")]
    first, second = (f"{min(found):.1f} to {max(found):.1f} on {len(found)}" for found in ranges)
    yield f"`NUTS` and `MAMS` are at the floor wherever they have been run, {first} and {second} cards"
    judged = [each for each in own if each.off is not None and each.method not in PARTIAL]
    off, right = ([each for each in judged if each.off is wrong] for wrong in (True, False))
    yield (
        f"of {len(judged):,} fits of methods that are after the whole posterior, {len(off):,} are off, of which {warned(off):,} "
        f"warn; of the {len(right):,} that are right, {len(right) - warned(right):,} are quiet."
    )
    by_nuts = [each for each in right if each.method == "nuts"]
    yield f"Of {len(by_nuts)} right fits by `NUTS` {warned(by_nuts)} warn."
    of_networks = [each for each in off if each.card in NETWORKS and SAMPLERS.isdisjoint({each.method})]
    yield f"Of {len(of_networks)} fits of networks by approximations that are off, {warned(of_networks)} say so."
    partial = [each for each in own if each.off is not None and each.method in PARTIAL]
    wrong = [each for each in partial if each.off]
    silent = len(wrong) - warned(wrong)
    yield f"{len(wrong)} of their {len(partial)} fits are off, {silent} in silence."
    found = json.loads((RESULTS / "calibrated_cards.json").read_text())["cells"]
    run = [each for each in found.values() if "off" in each]
    again = sum(each["simulations"] == 400 for each in run)
    assert not any(each["off"] for each in run)
    yield (
        f"it has run on {len(run)} of {len(referenced())} cards and finds nothing: {WORDS[again]}, which 100 simulations called "
        f"off, are cleared by 400."
    )


def in_words(number: int) -> str:
    return WORDS[number] if number < len(WORDS) else str(number)


def warned(cells: Sequence[Cell]) -> int:
    return sum(each.warned for each in cells)


def measured_cells() -> tuple[list[Cell], list[Cell]]:
    """Return those of the methods of the table, and those of other programs."""
    return own_and_others(read_cells(RESULTS / "zoo_table.json"))


def test_every_card_without_a_reference_has_a_reason() -> None:
    page = (Path(__file__).parents[2] / "docs" / "zoo.md").read_text()
    section = page.split("### Cards without a reference")[1].split("###")[0]
    firsts = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    given = {name for first in firsts for name in re.findall(r"`([^`]+)`", first)}
    without = set(bz.zoo.list().names) - set(referenced())
    assert given == without
