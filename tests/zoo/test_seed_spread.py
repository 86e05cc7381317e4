"""Intervals of distances: right of simulated seeds, and of the seeds that were measured."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bnnzoo.zoo.cells import Cell, read_cells
from bnnzoo.zoo.export import leaderboard
from bnnzoo.zoo.seed_spread import FEWEST, seed_spreads, spread_over_seeds
from bnnzoo.zoo.table import own_and_others
from bnnzoo.zoo.table_page import table_page

TABLE = Path(__file__).parents[2] / "benchmarks" / "results" / "zoo_table.json"


def cells(method: str, logs: np.ndarray) -> Iterator[Cell]:
    for card, row in enumerate(logs):
        for seed, log in enumerate(row):
            yield Cell(
                card=f"card{card:02}", method=method, version=1, seed=seed, distance=float(np.exp(log)), seconds=1.0
            )


def test_intervals_hold_another_seed_in_95_of_100_cells() -> None:
    """Also where the spread is estimated from ten cells."""
    rng = np.random.default_rng(0)
    held: dict[int, list[bool]] = {1: [], 3: []}
    for _ in range(2000):
        level, *noise = rng.normal(0, 2), *rng.normal(0, 0.3, size=(FEWEST + 1, 4))
        measured = np.stack(noise[:FEWEST])[:, :2] + rng.normal(0, 2, size=(FEWEST, 1))
        spread = spread_over_seeds(cells("nuts", measured))
        for number, found in held.items():
            low, high = spread.interval(np.exp(level + noise[-1][:number]).tolist())
            found.append(low <= np.exp(level + noise[-1][3]) <= high)
    assert np.mean(held[1]) == pytest.approx(0.95, abs=3 * (0.95 * 0.05 / 2000) ** 0.5)
    assert 0.94 < np.mean(held[3]) < 0.975  # wider for the seeds that are there


def test_the_interval_holds_all_seeds_that_were_measured() -> None:
    spread = spread_over_seeds(cells("nuts", np.tile([0.0, 0.01], (12, 1))))
    low, high = spread.interval([1.0, 5.0])
    assert low <= 1.0 and high >= 5.0


def test_methods_of_few_seeds_have_the_spread_of_all() -> None:
    rng = np.random.default_rng(1)
    steady, wild = rng.normal(0, 0.05, (40, 2)), rng.normal(0, 0.5, (40, 2))
    table = [*cells("laplace", steady), *cells("mfvi", wild), *cells("nuts", np.zeros((3, 1)))]
    found = seed_spreads(table)
    assert found["laplace"].log_sd == pytest.approx(0.05, rel=0.35) and found["laplace"].degrees == 40
    assert found["mfvi"].log_sd == pytest.approx(0.5, rel=0.35)
    assert found["nuts"] == spread_over_seeds(table) and found["nuts"].degrees == 80
    assert seed_spreads([*cells("nuts", np.zeros((FEWEST - 1, 2)))]) == {}
    page = table_page(table)
    (line,) = (
        each for each in page.split("## Distance")[1].split("##")[0].splitlines() if each.startswith("| `card02`")
    )
    low, high = found["nuts"].interval([1.0])
    assert f" 1 ({low:.3g} to {high:.3g}) " in line
    assert "such seeds (80 in all)" in page and f"`laplace` {found['laplace'].log_sd:.2g}" in page


def test_the_leaderboard_says_how_far_distances_move_with_the_seed() -> None:
    table = [replace(cell, card="two-moons") for cell in cells("nuts", np.arange(24.0).reshape(1, -1) % 2)]
    (spread,) = leaderboard([*table, *cells("theirs", np.eye(12))])["spreads"].items()
    assert spread == ("nuts", {"log_sd": pytest.approx(np.std(np.arange(24) % 2, ddof=1)), "degrees": 23})


def test_cells_without_a_distance_are_left_out() -> None:
    table = [*cells("nuts", np.tile([0.0, 0.1], (12, 1))), Cell(card="cubic", method="nuts", version=1, seed=0)]
    assert seed_spreads(table)["nuts"].degrees == 12
    assert "| `cubic` | - |" in table_page(table).split("## Distance")[1]


def test_measured_seeds_lie_in_the_intervals_that_follow_from_other_cards() -> None:
    own, _ = own_and_others(read_cells(TABLE))
    firsts = {(cell.card, cell.method): cell for cell in own if cell.distance and cell.seed == 0}
    held = []
    for card in sorted({cell.card for cell in own}):
        spreads = seed_spreads(cell for cell in own if cell.card != card)
        for cell in own:
            if cell.card == card and cell.seed == 1 and cell.distance and (card, cell.method) in firsts:
                low, high = spreads[cell.method].interval([firsts[card, cell.method].distance or 0.0])
                held.append(low <= cell.distance <= high)
    assert len(held) > 500 and 0.92 < np.mean(held) < 0.98
