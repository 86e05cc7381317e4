"""Settings are checked against their annotations: what is refused, and what is told."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import pytest

from bnnzoo.core.settings import (
    Count,
    Fraction,
    NonNegative,
    NonNegativeCount,
    Positive,
    Range,
    check_argument,
    check_settings,
)

type Colour = Literal["red", "blue"]


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (Count, 1),
        (Count, np.int64(3)),
        (Count | None, None),
        (NonNegativeCount, 0),
        (Positive, 1),
        (Positive, np.float32(0.5)),
        (Fraction, 0.5),
        (NonNegative, 0.0),
        (Colour, "red"),
        (Colour | int, 4),
        (Sequence[str], ("a", "b")),
        (Sequence[str] | None, "a"),
        (Annotated[float, Range(0, 1, open_high=True)], 0.0),
        (Callable[[int], int], abs),
        (bool, True),
        (Any, object()),
    ],
)
def test_what_the_annotation_allows_is_taken(hint: Any, value: object) -> None:
    check_argument("Method", "setting", value, hint)


@pytest.mark.parametrize(
    ("hint", "value", "kind", "sentence"),
    [
        (Count, 0, ValueError, r"Method\(setting=0\): write 1 or more\.$"),
        (Count, 20.0, TypeError, r"setting=20\.0\): write a whole number, 1 or more\."),
        (Count, "4", TypeError, r"setting='4'\): write a whole number, 1 or more\."),
        (Count, True, TypeError, r"setting=True\): write a whole number, 1 or more\."),
        (int, 1.5, TypeError, r"write a whole number\."),
        (Count | None, -1, ValueError, r"write 1 or more or None\."),
        (Positive, 0.0, ValueError, r"write a positive number\."),
        (Positive, math.inf, ValueError, r"setting=inf\): write a positive number\."),
        (Positive, math.nan, ValueError, r"setting=nan\): write a positive number\."),
        (Fraction, 1.0, ValueError, r"write a number between 0 and 1\."),
        (Annotated[float, Range(0, 1, open_high=True)], 1.0, ValueError, r"a number from 0 to 1, not 1 itself\."),
        (Colour, "green", ValueError, r"setting='green'\): write 'red' or 'blue'\."),
        (Colour, 3, TypeError, r"setting=3\): write 'red' or 'blue'\."),
        (Sequence[str], 3, TypeError, r"write a sequence, each a string\."),
        (bool, "yes", TypeError, r"write True or False\."),
        (Callable[[int], int], 3, TypeError, r"write a callable\."),
    ],
)
def test_what_it_does_not_allow_is_refused(hint: Any, value: object, kind: type[Exception], sentence: str) -> None:
    with pytest.raises(kind, match=sentence):
        check_argument("Method", "setting", value, hint)


@dataclass(frozen=True)
class Inner:
    rate: Positive = 0.1

    def run(self) -> None: ...


@dataclass(frozen=True)
class Outer:
    inner: Any = Inner()
    num_draws: Count = 10


def test_methods_held_in_fields_are_checked_too() -> None:
    check_settings(Outer())
    with pytest.raises(ValueError, match=r"Inner\(rate=-1\.0\): write a positive number"):
        check_settings(Outer(inner=Inner(rate=-1.0)))
