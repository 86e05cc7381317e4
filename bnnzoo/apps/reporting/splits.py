"""A table split once or several times, in the units that its likelihood needs."""

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from bnnzoo.apps.reporting.choices import LIKELIHOODS, family_named, infer_likelihood, refuse_outside
from bnnzoo.apps.tables import Missing, Table, TableError, Task, infer_task, prepare

__all__ = ["Splitting"]


@dataclass(frozen=True)
class Splitting:
    """How a frame becomes tables.

    Attributes
    ----------
    target : str
    task : {"regression", "classification"}, optional
        Default: that of the likelihood, or inferred from the target.
    likelihood : str, optional
        Default: inferred from the target, see :func:`~bnnzoo.apps.reporting.choices.infer_likelihood`.
    test_size, drop, missing
        As for :func:`bnnzoo.apps.tables.prepare`.
    """

    target: str
    task: Task | None = None
    likelihood: str | None = None
    test_size: float = 0.2
    drop: tuple[str, ...] = ()
    missing: Missing = "refuse"

    def resolved(self, frame: pd.DataFrame) -> "Splitting":
        """Return the same with task and likelihood, those that were not given by the target's values.

        Raises
        ------
        TableError
            If the likelihood is not known, is for the other task, or does not suit the values of the target.
        """
        family = family_named(self.likelihood, self.task) if self.likelihood is not None else None
        if self.target not in frame.columns:
            return self  # prepare says what is wrong
        column = frame[self.target]
        implied: Task | None = (
            None if family is None else "classification" if family.support == "class" else "regression"
        )
        task = self.task or implied or infer_task(column.dropna())
        likelihood = self.likelihood or infer_likelihood(column, task)
        refuse_outside(column, likelihood)
        return dataclasses.replace(self, task=task, likelihood=likelihood)

    def table(self, frame: pd.DataFrame, seed: int) -> Table:
        """Return one split of a frame.

        A real target is standardised by the training part, a positive one is divided by its mean there, and counts,
        proportions and classes stay as they are.

        Raises
        ------
        TableError
            See :func:`bnnzoo.apps.tables.prepare`; or if the target of a regression is constant in the training part.
        """
        support = LIKELIHOODS[self.likelihood or "gaussian"].support
        table = prepare(
            frame,
            self.target,
            self.task,
            self.test_size,
            seed,
            self.drop,
            self.missing,
            standardize_target=support == "real",
        )
        return _refuse_constant(_in_means(table) if support == "positive" else table)


def _in_means(table: Table) -> Table:
    """Return a table whose target has mean one in the training part."""
    scale = float(np.asarray(table.y_train, dtype=float).mean())
    scaled: dict[str, Any] = {
        name: np.asarray(getattr(table, name), dtype=float) / scale for name in ("y_train", "y_test")
    }
    return dataclasses.replace(table, y_scale=scale, **scaled)


def _refuse_constant(table: Table) -> Table:
    if table.task == "regression" and np.ptp(np.asarray(table.y_train, dtype=float)) == 0:
        raise TableError(f"Target column {table.target!r} is constant in the training part; there is nothing to learn.")
    return table
