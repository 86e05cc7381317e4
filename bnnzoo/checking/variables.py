"""Variables on which observations may depend: numbers and groups among the arguments of a model, and beside it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import rankdata
from torch import Tensor

from bnnzoo.core.data.arguments import argument_names, leaves
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.posterior.info import FitInfo
from bnnzoo.core.reading.outcomes import observed_places
from bnnzoo.models.formula.model import Formula

__all__ = ["Variables", "is_outcome", "variables_beside", "variables_of"]

type Array = NDArray[np.floating[Any]]
type Codes = NDArray[np.integer[Any]]

MAX_NUMBERS, MAX_GROUPINGS = 12, 6
"""Numeric variables, and groupings, that are looked at: the first ones."""

MIN_IN_LEVEL = 2
"""Rows that a level of a grouping has on average, at least."""

FEW_VALUES = 12
"""Whole numbers of at most so many values are a grouping, too."""


@dataclass(frozen=True)
class Variables:
    """Numbers ``[N]`` and groupings ``[N]`` by name."""

    numbers: dict[str, Array]
    groupings: dict[str, Codes]

    def joined(self, other: "Variables") -> "Variables":
        """Return both; a name that both have means the first."""
        return Variables(self.numbers | other.numbers | self.numbers, self.groupings | other.groupings | self.groupings)

    def limited(self) -> "Variables":
        """Return as many as are looked at."""
        numbers = dict(list(self.numbers.items())[:MAX_NUMBERS])
        return Variables(numbers, dict(list(self.groupings.items())[:MAX_GROUPINGS]))

    def at(self, rows: Codes) -> "Variables":
        """Return the values at some rows, without those that are the same in all of them."""
        numbers = {name: each[rows] for name, each in self.numbers.items()}
        groupings = {name: np.unique(each[rows], return_inverse=True)[1] for name, each in self.groupings.items()}
        return Variables(
            {name: each for name, each in numbers.items() if len(np.unique(each)) > 1},
            {name: each for name, each in groupings.items() if 1 < each.max() + 1 <= len(rows) // MIN_IN_LEVEL},
        )


def normal_ranks(values: Array) -> Array:
    """Return normal scores of ranks, which outliers and units do not change."""
    return np.asarray(ndtri((rankdata(values) - 0.5) / len(values)))


def variables_of(density: LogDensity, info: FitInfo) -> Variables:
    """Return the arguments of the model that have a value for each row, outcomes aside."""
    if isinstance(density.model, Formula):
        frame = density.model.frame
        return variables_beside(frame.drop(columns=list(density.model.outcome.needed), errors="ignore"))
    outcomes = observed_places(density)
    names = argument_names(density.model, len(density.data))
    found = Variables({}, {})
    for place, (name, value) in enumerate(zip(names, density.data, strict=True)):
        if place in outcomes:
            continue
        for path, leaf in leaves(name, value):
            if isinstance(leaf, Tensor) and leaf.ndim and len(leaf) == density.num_data:
                flat = leaf.detach().cpu().numpy().reshape(len(leaf), -1)
                if flat.shape[1] > MAX_NUMBERS:  # an image, or so
                    continue
                columns = info.columns.get(path)
                known = columns if columns is not None and len(columns) == flat.shape[1] else None
                labels = known or ([path] if leaf.ndim == 1 else [f"{path}[{k}]" for k in range(flat.shape[1])])
                found = found.joined(variables_beside(pd.DataFrame(dict(zip(labels, flat.T, strict=True)))))
    return found


def is_outcome(density: LogDensity, values: NDArray[Any]) -> bool:
    """Tell whether a column ``[N]`` is an outcome of the model: the same numbers, or a name for each of its values.

    Examples
    --------
    >>> import pyro, pyro.distributions as dist, torch
    >>> from bnnzoo.core.model.density import build_density
    >>> def model(y):
    ...     p = pyro.sample("p", dist.Beta(1.0, 1.0))
    ...     with pyro.plate("rows", len(y)):
    ...         pyro.sample("y", dist.Bernoulli(p), obs=y)
    >>> density = build_density(model, torch.tensor([0.0, 1.0, 1.0]))
    >>> is_outcome(density, np.array(["no", "yes", "yes"])), is_outcome(density, np.array(["a", "a", "b"]))
    (True, False)
    """
    codes, levels = pd.factorize(values)
    for place in observed_places(density):
        for _, leaf in leaves("", density.data[place]):
            if not isinstance(leaf, Tensor) or leaf.shape != (len(values),):
                continue
            y = leaf.detach().cpu().numpy()
            own, different = pd.factorize(y)
            if len(different) == len(y):  # as a number of the row has, too
                same = values.dtype.kind in "fiu" and np.allclose(values.astype(float), y, rtol=1e-5)
            else:
                same = len(levels) == len(different) and np.array_equal(codes, own)
            if same:
                return True
    return False


def variables_beside(frame: pd.DataFrame) -> Variables:
    """Return the columns of a frame; text, truth values and few whole numbers are groupings, missing values a level."""
    numbers: dict[str, Array] = {}
    groupings: dict[str, Codes] = {}
    for name, column in _columns(frame):
        is_number = pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)
        values = column.to_numpy(dtype=float) if is_number else np.zeros(0)
        if is_number and np.isfinite(values).all() and len(np.unique(values)) > 2:
            numbers[name] = values
        whole = is_number and np.isfinite(values).all() and bool((values == np.round(values)).all())
        codes, levels = pd.factorize(column, use_na_sentinel=False)
        few = FEW_VALUES if is_number and not pd.api.types.is_integer_dtype(column) else len(column) // MIN_IN_LEVEL
        if 1 < len(levels) <= few and (whole or not is_number):
            groupings[name] = codes.astype(int)
    return Variables(numbers, groupings)


def _columns(frame: pd.DataFrame) -> Iterator[tuple[str, "pd.Series[Any]"]]:
    for name in frame.columns:
        column = frame[name]
        if pd.api.types.is_datetime64_any_dtype(column):
            column = (column - column.min()).dt.total_seconds()
        yield str(name), column
