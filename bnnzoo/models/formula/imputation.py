"""Covariates with gaps, ``mi(x)``: missing values are latent, and have a formula of their own."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import torch
from torch import Tensor

from bnnzoo.models.formula.formula_sites import FormulaSite, Place, Term, numbers
from bnnzoo.models.formula.frames import numbers_of
from bnnzoo.models.formula.groups import noise_of_draw
from bnnzoo.models.formula.linear import spread_of
from bnnzoo.models.formula.parsing import Call, FormulaError, plain_name

__all__ = ["Gaps", "completed", "covariate_scale", "imputed"]


@dataclass(frozen=True)
class Gaps:
    """Encoder of a covariate with gaps.

    Attributes
    ----------
    values, gaps, new : str
        Arguments of the model.
    variable : str
        Of the frame.
    centre : float
        Mean of the values that were seen.
    """

    values: str
    gaps: str
    new: str
    variable: str
    centre: float

    def arguments(self, frame: pd.DataFrame, *, new: bool) -> dict[str, Any]:
        """Return the centred values, zero in gaps, and the number of each gap from 1 on, 0 elsewhere."""
        x = numbers_of(self.variable, frame, missing=True)
        missing = np.isnan(x)
        number = pd.Series(np.where(missing, missing.cumsum(), 0), frame.index)
        found: dict[str, Any] = {self.values: pd.Series(np.where(missing, 0.0, x - self.centre), frame.index)}
        if not new:
            return found | {self.gaps: number}
        return found | ({self.new: number} if missing.any() else {})


def covariate_scale(variable: str, frame: pd.DataFrame) -> tuple[float, float]:
    """Return the mean and the standard deviation of the values that were seen.

    Raises
    ------
    FormulaError
        If none is missing, or none was seen.
    """
    x = numbers_of(variable, frame, missing=True)
    seen = x[~np.isnan(x)]
    if len(seen) == len(x):
        raise FormulaError(f"mi({variable}): no value of {variable!r} is missing: write {variable}.")
    if len(seen) < 2:
        raise FormulaError(f"mi({variable}): {len(seen)} values of {variable!r} were seen, too few to impute from.")
    return float(seen.mean()), float(spread_of(seen[:, None])[0])


def imputed(call: Call, frame: pd.DataFrame, place: Place, sd: str, mean: str) -> Term:
    """Return the statements that complete a covariate, and add the density of the values that were seen.

    Parameters
    ----------
    call : Call
    frame : DataFrame
        The training data.
    place : Place
        That of the covariate's own predictor.
    sd, mean : str
        Variables of its residual standard deviation and of its predictor, less the mean of the values that were seen.
    """
    variable = call.variables[0]
    centre, _ = covariate_scale(variable, frame)
    label = plain_name(variable)
    values, gaps, new = (place.argument(f"{kind}_{label}", "mi") for kind in ("mi", "gap", "newgap"))
    count = int(np.isnan(numbers_of(variable, frame, missing=True)).sum())
    prior = f"dist.Normal(0.0, 1.0).expand([{count}]).to_event(1)"
    name = f"zmi_{label}"
    z = FormulaSite(name, place.variable(name), prior, "standardised missing values", shape=(count,), hidden=True)
    full = place.variable(f"completed_{label}")
    dims = (f"{label}_gap",)
    site = f"mi_{label}"
    lines = (
        z,
        f"{full} = completed({label!r}, {values}, {mean}, {sd}, {z.variable}, {gaps}, {new})",
        f"if {gaps} is not None:",
        f"    pyro.deterministic({site!r}, {full}[{gaps} > 0] + {numbers(centre, 17)})",
    )
    return Term(lines, (full,), Gaps(values, gaps, new, variable, centre), (values, gaps, new), dims={site: dims})


def completed(
    name: str, values: Tensor, mean: Tensor, sd: Tensor, z: Tensor, gaps: Tensor | None, new: Tensor | None
) -> Tensor:
    """Return a covariate ``[N]`` whose gaps are filled, after adding the density of what was seen to the model's.

    Parameters
    ----------
    name : str
    values : Tensor [N]
        Anything in gaps.
    mean : Tensor [N]
    sd : Tensor []
    z : Tensor [M]
        Standardised missing values of the training data.
    gaps, new : Tensor [N], optional
        Number of each gap from 1 on, 0 elsewhere: in the training data, and in rows to be predicted.
    """
    if gaps is not None:
        log_density = dist.Normal(mean, sd, validate_args=False).log_prob(values)
        pyro.factor(f"seen_{name}", torch.where(gaps > 0, 0.0, log_density).sum())
        return torch.where(gaps > 0, mean + sd * z[(gaps - 1).clamp(min=0)], values)
    if new is None:
        return values
    return torch.where(new > 0, mean + sd * noise_of_draw(z, new, 1)[:, 0], values)
