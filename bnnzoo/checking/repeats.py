"""Rows that stand in the data twice, and values at which continuous observations pile up."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bnnzoo.checking.findings import Finding
from bnnzoo.checking.normal_scores import Scores
from bnnzoo.checking.variables import Variables

__all__ = ["heap", "repeated_rows"]

type Array = NDArray[np.floating[Any]]

MOSTLY_DIFFERENT = 0.5
"""Share of different values from which on a variable counts as continuous."""

MIN_HEAP, MUCH = 5, 5.0
"""Observations at a limit that are a heap, and how many times as many as at any other value."""


def repeated_rows(scores: Scores, variables: Variables) -> Finding | None:
    """Return the finding of rows that are equal in every number and level, where that is no coincidence.

    It is none if a number besides the observation takes mostly different values: twice the same pair is the same row.
    """
    numbers: Mapping[str, Array] = variables.numbers
    rows = len(scores.observed)
    if not any(len(np.unique(each)) > MOSTLY_DIFFERENT * rows for each in numbers.values()):
        return None
    table = np.stack([scores.observed, *numbers.values(), *variables.groupings.values()], 1)
    _, counts = np.unique(table, axis=0, return_counts=True)
    extra = int((counts - 1).sum())
    if extra < 2:
        return None
    return Finding(
        "repeated rows",
        True,
        f"{extra} of {rows} rows repeat another one in every value.",
        "Remove them, unless they were measured twice: they count as independent evidence.",
        {"site": scores.name, "size": extra},
    )


def heap(scores: Scores) -> Finding | None:
    """Return the finding of continuous observations that pile up at their smallest or largest value, as censored ones do."""
    if scores.is_discrete:
        return None
    values, counts = np.unique(scores.observed, return_counts=True)
    if len(values) < MIN_HEAP:
        return None
    for place, word in ((0, "smallest"), (-1, "largest")):
        others = np.delete(counts, place % len(counts)).max()
        if counts[place] >= MIN_HEAP and counts[place] > MUCH * others:
            return Finding(
                "limit",
                True,
                f"{int(counts[place])} of {len(scores.observed)} values of {scores.name} are the {word}, {values[place]:.4g}: a "
                "continuous likelihood gives that no probability.",
                "Treat them as censored, cens(y, event) in a formula, or as a part of their own, such as a hurdle.",
                {"site": scores.name, "size": float(counts[place])},
            )
    return None
