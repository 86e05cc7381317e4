"""The left side of a formula: the outcome with its levels and scale, weights and censoring."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bnnzoo.core.data.conversion import DataError
from bnnzoo.models.formula.frames import numbers_of, refuse_missing_columns, variables_of
from bnnzoo.models.formula.linear import Intercept
from bnnzoo.models.formula.parsing import FormulaError, Parsed, split_outside
from bnnzoo.models.likelihoods.named import NamedLikelihood

__all__ = ["Outcome"]

type Array = NDArray[Any]


@dataclass(frozen=True)
class Outcome:
    """Encoder of an outcome and of the columns beside it.

    Attributes
    ----------
    texts : tuple of str
        The outcome; several in ``cbind(a, b)``.
    family : NamedLikelihood
    needed : tuple of str
        Columns of the frame that it is made of.
    levels : tuple
        Of classes, ordered categories and binary outcomes.
    additions : mapping of str to str
        Columns of ``weights``, ``event`` and ``censored``.
    """

    texts: tuple[str, ...]
    family: NamedLikelihood
    needed: tuple[str, ...]
    levels: tuple[Any, ...]
    additions: dict[str, str]

    @classmethod
    def of(cls, parsed: Parsed, family: NamedLikelihood, frame: pd.DataFrame) -> "Outcome":
        """Return the outcome of a formula, with the levels that the training data have."""
        text = parsed.outcome
        several = text.startswith("cbind(") and text.endswith(")")
        texts = tuple(part.strip() for part in split_outside(text[6:-1], ",")) if several else (text,)
        if several != (family.name == "multivariate_gaussian"):
            raise FormulaError(
                f"The outcome {text!r} does not fit likelihood {family.name!r}: cbind(y1, y2) goes with 'multivariate_gaussian'."
            )
        needed = tuple(name for each in texts for name in variables_of(each, frame))
        refuse_missing_columns(frame, needed, "the outcome")
        return cls(texts, family, needed, _levels(texts[0], family, frame), parsed.additions)

    def is_there(self, frame: pd.DataFrame) -> bool:
        """Tell whether a frame has the outcome's columns."""
        return all(name in frame.columns for name in self.needed)

    def seen(self, frame: pd.DataFrame) -> NDArray[np.bool_]:
        """Return in which rows ``[N]`` the outcome is there."""
        refuse_missing_columns(frame, self.needed, "the outcome")
        found = np.ones(len(frame), dtype=bool)
        for name in self.needed:
            found &= frame[name].notna().to_numpy()
        return found

    def values(self, frame: pd.DataFrame) -> Array:
        """Return the outcome ``[N]`` or ``[N, D]`` as numbers.

        Raises
        ------
        DataError
            If a level is not known, or values are not what the likelihood takes.
        """
        if self.levels:
            column = frame[self.needed[0]]
            new = [each for each in pd.unique(column) if each not in self.levels]
            if new:
                raise DataError(
                    f"Data refused: the outcome {self.texts[0]!r} is {new[0]!r}, which the training data did not have; they had "
                    f"{', '.join(map(str, self.levels))}."
                )
            places = {level: place for place, level in enumerate(self.levels)}
            codes = column.map(places).to_numpy(dtype=np.int64)
            return codes
        found = np.stack([numbers_of(text, frame) for text in self.texts], -1)
        found = found if len(self.texts) > 1 else found[:, 0]
        checks = {
            "positive": (found > 0, "must be positive: for others write likelihood='gaussian' or 'student_t'"),
            "count": ((found >= 0) & (found == np.floor(found)), "must be a count 0, 1, 2, ..."),
            "proportion": ((found > 0) & (found < 1), "must lie strictly between 0 and 1"),
        }
        fits, words = checks.get(self.family.outcome, (np.ones(len(found), dtype=bool), ""))
        if not fits.all():
            row = int(np.flatnonzero(~fits)[0])
            raise DataError(
                f"Data refused: the outcome {self.texts[0]!r} is {found[row]:g} at row {row}, and with likelihood "
                f"{self.family.name!r} it {words}."
            )
        return found

    def arguments(self, frame: pd.DataFrame, *, new: bool) -> dict[str, Any]:
        """Return the outcome, weights and censoring; nothing where rows to be predicted have no outcome."""
        if new and not (self.is_there(frame) and self.seen(frame).all()):
            return {}
        values = self.values(frame)
        kept: Any = pd.Series(values, frame.index) if values.ndim == 1 else pd.DataFrame(values, frame.index)
        found = {"y": kept}
        for kind, text in self.additions.items():
            if new and any(name not in frame.columns for name in variables_of(text, frame)):
                continue
            column = numbers_of(text, frame)
            if kind == "weights":
                found["row_weights"] = pd.Series(column, frame.index)
                continue
            if not np.isin(column, (0, 1)).all():
                raise DataError(
                    f"Data refused: {text!r} must be 1 where the event came and 0 where it was not seen to come."
                )
            found["censored"] = pd.Series(1 - column if kind == "event" else column, frame.index)
        return found

    def scales(self, frame: pd.DataFrame, offset: Array) -> tuple[Intercept, float]:
        """Return the prior of the intercept, and one standard deviation of the outcome on the scale of the predictor."""
        y = np.asarray(self.values(frame), dtype=float)
        if self.family.in_units:
            y = np.log(y) if self.family.outcome == "positive" else y
            sd = float(np.std(y, axis=0, ddof=1).mean()) if len(y) > 1 else 1.0
            sd = sd if sd > 0 and math.isfinite(sd) else 1.0
            return Intercept(float(np.median(y - offset.reshape(-1, *(1,) * (y.ndim - 1)))), 2.5 * sd, _IN_UNITS), sd
        if self.family.link == "log":
            rate = max(float(y.mean()), 1e-3) / float(np.exp(offset).mean())
            return Intercept(math.log(rate), 2.5, "Student-t(3), logarithm of the mean, 2.5"), 1.0
        return Intercept(0.0, 2.5, "Student-t(3), 0, 2.5"), 1.0


_IN_UNITS = "Student-t(3), median of the outcome, 2.5 x its standard deviation"


def _levels(text: str, family: NamedLikelihood, frame: pd.DataFrame) -> tuple[Any, ...]:
    name = text.strip("`")
    if family.outcome not in ("binary", "class", "ordered"):
        if name in frame.columns and not (
            pd.api.types.is_numeric_dtype(frame[name]) or pd.api.types.is_bool_dtype(frame[name])
        ):
            raise DataError(
                f"Data refused: the outcome {name!r} holds text or categories, and likelihood {family.name!r} needs "
                f"numbers: write "
                f"likelihood='bernoulli' for two classes, 'categorical' or 'ordinal' for more."
            )
        return ()
    refuse_missing_columns(frame, [name], "the outcome")
    column = frame[name].dropna()
    is_category = isinstance(column.dtype, pd.CategoricalDtype)
    found = list(column.cat.categories) if is_category else sorted(pd.unique(column))
    if family.outcome == "ordered" and not _has_order(column, found):
        raise DataError(
            f"Data refused: the outcome {name!r} is text, whose values ({', '.join(map(str, found[:5]))}"
            f"{', ...' if len(found) > 5 else ''}) have no order, and likelihood 'ordinal' needs one: write frame[{name!r}] = "
            f"pandas.Categorical(frame[{name!r}], [lowest, ..., highest], ordered=True)."
        )
    if family.outcome == "binary" and len(found) != 2:
        numeric = pd.api.types.is_numeric_dtype(frame[name])
        if numeric and set(found) <= {0, 1}:
            return (0, 1)
        raise DataError(
            f"Data refused: the outcome {name!r} has {len(found)} different values ({', '.join(map(str, found[:4]))}"
            f"{', ...' if len(found) > 4 else ''}), and likelihood 'bernoulli' needs two: write "
            f"likelihood='categorical' or 'ordinal'."
        )
    if len(found) < 2:
        raise DataError(f"Data refused: the outcome {name!r} has one value only, {found[0]!r}.")
    return tuple(each.item() if isinstance(each, np.generic) else each for each in found)


def _has_order(column: "pd.Series[Any]", found: list[Any]) -> bool:
    """Tell whether values of an outcome have an order: numbers, or categories of which the user said so."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        return bool(column.cat.ordered) or all(isinstance(each, int | float | np.number) for each in found)
    return bool(pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column))
