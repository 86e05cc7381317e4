"""The rows of a step: permutations cut into batches, or rows with replacement, as functions of a key and a number."""

from itertools import combinations

import pytest
import torch

from bnnzoo.inference.markov.stochastic.row_order import RowOrder, permuted


def keys(number: int) -> torch.Tensor:
    return torch.randint(-(2**62), 2**62, (number, 1), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("num", [2, 3, 4, 5, 7, 40, 41, 120, 1000])
def test_every_number_has_one_place(num: int) -> None:
    found = permuted(keys(200), torch.arange(num).expand(200, num), num)
    assert torch.equal(found.sort(1).values, torch.arange(num).expand(200, num))


@pytest.mark.parametrize(("num", "repeats"), [(3, 20_000), (41, 100_000), (120, 200_000)])
def test_places_and_pairs_of_places_are_uniform(num: int, repeats: int) -> None:
    places = torch.arange(min(num, 4))
    found = permuted(keys(repeats), places.expand(repeats, len(places)), num)
    for column in found.unbind(1):
        assert abs(excess(column.bincount(minlength=num), repeats / num)) < 5
    apart = ~torch.eye(num, dtype=torch.bool)
    for a, b in combinations(found.unbind(1), 2):
        counts = (num * a + b).bincount(minlength=num**2).view(num, num)
        assert abs(excess(counts[apart], repeats / (num * (num - 1)))) < 5


def excess(counts: torch.Tensor, expected: float) -> float:
    """Return by how many standard deviations the chi-square statistic of counts is above its expectation."""
    freedom = len(counts) - 1
    return float(((counts - expected) ** 2 / expected).sum() - freedom) / (2 * freedom) ** 0.5


def test_a_pass_sees_no_row_twice_and_the_next_one_has_another_order() -> None:
    order, key = RowOrder(43, 10), torch.tensor(7)
    rows = order.rows(key, torch.arange(8))
    first, second = rows[:4].flatten(), rows[4:].flatten()
    assert len(first.unique()) == len(second.unique()) == 40
    assert not torch.equal(first, second) and not torch.equal(first.sort().values, second.sort().values)


def test_rows_of_a_step_can_be_computed_on_their_own() -> None:
    for order in (RowOrder(43, 10), RowOrder(43, 10, independent=True)):
        together = order.rows(torch.tensor(7), torch.arange(20, 30))
        assert torch.equal(order.rows(torch.tensor(7), torch.tensor([25]))[0], together[5])
        assert not torch.equal(order.rows(torch.tensor(8), torch.tensor([25]))[0], together[5])


def test_independent_rows_repeat_and_are_uniform() -> None:
    rows = RowOrder(40, 30, independent=True).rows(torch.tensor(1), torch.arange(2000))
    assert len(rows[0].unique()) < 30
    assert abs(excess(rows.flatten().bincount(minlength=40), 2000 * 30 / 40)) < 5
