"""Choices for a comparison on a table: likelihoods and priors by name, and how the table is split."""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyro.distributions as dist
from pandas.api.types import is_numeric_dtype
from scipy.stats import skew
from torch import Tensor

from bnnzoo.apps.tables import Missing, Table, TableError, Task, infer_task, prepare
from bnnzoo.models import priors
from bnnzoo.models.likelihoods import Likelihood
from bnnzoo.models.likelihoods.named import NamedLikelihood, likelihoods_that
from bnnzoo.models.priors import Prior

__all__ = [
    "LIKELIHOODS",
    "PRIORS",
    "Shifted",
    "Splitting",
    "family_named",
    "infer_likelihood",
    "prior_named",
    "refuse_outside",
]

MAX_SKEWNESS = 1.0  # of a positive target with Gaussian noise
LIKELIHOODS = likelihoods_that(lambda each: each.words is not None)
VALUES = {
    "count": "whole numbers from 0",
    "positive": "positive numbers",
    "proportion": "numbers strictly between 0 and 1",
}
PRIORS: dict[str, tuple[Callable[[float], Prior], str]] = {
    "fan_in": (priors.fan_in, "weights N(0, {variance}/fan-in), biases N(0, 1)"),
    "normal": (priors.normal, "weights and biases N(0, {variance})"),
    "laplace": (priors.laplace, "weights and biases Laplace with scale {scale}"),
    "student_t": (
        lambda scale: priors.student_t(scale=scale),
        "weights and biases Student t with 3 degrees of freedom, scale {scale}",
    ),
    "layerwise": (
        lambda scale: priors.layerwise(dist.HalfCauchy(scale), by_fan_in=True),
        "normal weights with a half-Cauchy({scale}) scale for each layer, over the square root of the fan-in",
    ),
    "ard": (
        lambda scale: priors.ard(dist.HalfCauchy(scale)),
        "normal weights with a half-Cauchy({scale}) scale for each input (relevance determination)",
    ),
    "horseshoe": (priors.horseshoe, "horseshoe weights with global scale half-Cauchy({scale})"),
}


@dataclass(frozen=True)
class Shifted:
    """A likelihood whose first output is relative to a constant, so that a prior around zero suits counts of any size."""

    likelihood: Likelihood
    offset: float

    def __call__(self, output: Tensor, y: Tensor | None = None) -> Tensor:
        return self.likelihood(output, y, offset=self.offset)  # type: ignore[call-arg]


def family_named(name: str, task: Task | None = None) -> NamedLikelihood:
    """Return a likelihood by name.

    Parameters
    ----------
    name : str
    task : {"regression", "classification"}, optional
        That it must be for.

    Raises
    ------
    TableError
        If there is none, or it is for the other task.

    Examples
    --------
    >>> family_named("poisson").support
    'count'
    """
    if name not in LIKELIHOODS:
        raise TableError(f"There is no likelihood {name!r}; choose from {', '.join(LIKELIHOODS)}.")
    family = LIKELIHOODS[name]
    if task is not None and (task == "classification") != (family.support == "class"):
        suited = [each for each, one in LIKELIHOODS.items() if (one.support == "class") == (task == "classification")]
        raise TableError(f"The likelihood {name} is not for {task}; choose from {', '.join(suited)}.")
    return family


def prior_named(text: str, default_scale: float = 1.0) -> tuple[Prior, str]:
    """Return a prior by name, or by name and scale (``"normal:0.5"``), and its description.

    Parameters
    ----------
    text : str
    default_scale : float
        Of ``fan_in``, unless given. That of others is 1.

    Raises
    ------
    TableError
        If there is no such prior, or the scale is not a positive number.

    Examples
    --------
    >>> prior_named("normal:0.5")[1]
    'weights and biases N(0, 0.25)'
    """
    name, separator, written = text.partition(":")
    if name not in PRIORS:
        raise TableError(f"There is no prior {name!r}; choose from {', '.join(PRIORS)}.")
    try:
        scale = float(written) if separator else default_scale if name == "fan_in" else 1.0
    except ValueError:
        scale = math.nan
    if not 0 < scale < math.inf:
        raise TableError(
            f"The scale of prior {name} must be a positive number, not {written!r}; write --prior {name}:0.5."
        )
    make, description = PRIORS[name]
    return make(scale), description.format(scale=f"{scale:g}", variance=f"{scale**2:g}")


def infer_likelihood(target: pd.Series, task: Task) -> str:
    """Return the likelihood that the values of a target suggest.

    Parameters
    ----------
    target : pandas.Series
    task : {"regression", "classification"}

    Returns
    -------
    str
        ``categorical`` for classification; for regression ``negative_binomial`` for whole numbers from 0 that are skewed to the
        right and have zeros among them, ``gamma`` for other positive numbers that are skewed to the right, or ``gaussian``.

    Examples
    --------
    >>> infer_likelihood(pd.Series([0, 0, 1, 0, 2, 0, 3, 1, 0, 12]), "regression")
    'negative_binomial'
    >>> infer_likelihood(pd.Series([-1.0, 0.0, 2.0]), "regression")
    'gaussian'
    """
    if task == "classification":
        return "categorical"
    values = target.dropna().to_numpy(dtype=float) if is_numeric_dtype(target) else np.zeros(0)
    if len(values) < 2 or values.min() < 0 or not skew(values) > MAX_SKEWNESS:
        return "gaussian"
    if values.min() > 0:
        return "gamma"
    return "negative_binomial" if bool((values % 1 == 0).all()) else "gaussian"


def refuse_outside(target: pd.Series, name: str) -> None:
    """Refuse values of a target that a likelihood gives no probability, and classes without the order that it needs.

    Parameters
    ----------
    target : pandas.Series
    name : str
        Of the likelihood.

    Raises
    ------
    TableError
        With the first such row, counted from 1.
    """
    support = LIKELIHOODS[name].support
    if LIKELIHOODS[name].outcome == "ordered" and not is_numeric_dtype(target):
        raise TableError(
            f"The likelihood {name} needs classes in order, but target column {target.name!r} is text such as "
            f"{target.dropna().iloc[0]!r}; write numbers in its place, 1 for the lowest class, or take categorical."
        )
    if support not in VALUES or not is_numeric_dtype(target):
        return
    values = target.to_numpy(dtype=float)
    inside = {
        "count": (values >= 0) & (values % 1 == 0),
        "positive": values > 0,
        "proportion": (values > 0) & (values < 1),
    }[support]
    outside = np.flatnonzero(~inside & ~np.isnan(values))
    if len(outside):
        raise TableError(
            f"Target column {target.name!r} has the value {values[outside[0]]:g} in row {outside[0] + 1}, but the likelihood "
            f"{name} is for {VALUES[support]}; correct it, or choose another --likelihood."
        )


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
        y_train, y_test = (np.asarray(values, dtype=float) for values in (table.y_train, table.y_test))
        if table.task == "regression" and np.ptp(y_train) == 0:
            raise TableError(
                f"Target column {table.target!r} is constant in the training part; there is nothing to learn."
            )
        if support != "positive":
            return table
        scale = float(y_train.mean())
        return dataclasses.replace(table, y_scale=scale, y_train=y_train / scale, y_test=y_test / scale)
