"""A step of training, and the retreat of members that are stuck."""

import pytest
import torch

from bnnzoo.inference.optimise.optimisers import SGD, Adam
from bnnzoo.inference.optimise.training_program import moved, retreated


@pytest.mark.parametrize("optimiser", [SGD(0.1, momentum=0.9), Adam(0.1)])
@pytest.mark.parametrize("bad", ["value", "gradient"])
def test_a_member_that_is_refused_stays_and_the_others_move(optimiser: SGD | Adam, bad: str) -> None:
    params, gradient, value = torch.ones(3, 2), torch.full((3, 2), 0.5), torch.tensor([1.0, 2.0, 3.0])
    rows = optimiser.scalars(torch.ones(2, dtype=torch.float64))
    first, state, _ = moved(optimiser, params, optimiser.start(params), rows[0].unbind(), value, gradient)
    assert bool((first > params).all())  # momentum from here on, so that a step without a gradient would move as well
    (value if bad == "value" else gradient[:, 0])[1] = torch.nan
    second, _, values = moved(optimiser, first, state, rows[1].unbind(), value, gradient)
    torch.testing.assert_close(second[1], first[1], rtol=0, atol=0)
    assert bool((second[[0, 2]] > first[[0, 2]]).all())
    assert values.isnan().tolist() == [False, True, False]


def test_members_refused_twice_in_a_row_go_halfway_back() -> None:
    before, params, good = (torch.full((4, 1), number) for number in (3.0, 4.0, 0.0))
    nan = torch.nan
    last, value = torch.tensor([1.0, 1.0, nan, nan]), torch.tensor([1.0, nan, 1.0, nan])
    found, known = retreated(before, params, good, last, value)
    assert found[:, 0].tolist() == [4.0, 4.0, 4.0, 2.0]
    assert known[:, 0].tolist() == [3.0, 0.0, 3.0, 0.0]
