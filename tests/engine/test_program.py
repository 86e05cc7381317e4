"""Parts of programs that samplers share."""

from typing import NamedTuple

import torch
from torch import Tensor

from bnnzoo.engine.program import where


class Pair(NamedTuple):
    """A point in two parts."""

    place: Tensor
    value: Tensor


def test_a_choice_takes_a_point_as_a_whole() -> None:
    one, other = Pair(torch.ones(3), torch.tensor(1.0)), Pair(torch.zeros(3), torch.tensor(2.0))
    for condition, expected in ((True, one), (False, other)):
        found = where(torch.tensor(condition), one, other)
        assert isinstance(found, Pair) and all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
