"""Smooth terms: penalised splines ``s(x)`` and Gaussian processes in a basis of eigenfunctions, ``gp(x)``."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.interpolate import CubicSpline
from torch import Tensor

from bnnzoo.core.data.conversion import DataError
from bnnzoo.models.formula.formula_sites import FormulaSite, Place, Term, numbers
from bnnzoo.models.formula.frames import numbers_of
from bnnzoo.models.formula.linear import spread_of
from bnnzoo.models.formula.parsing import Call, FormulaError, plain_name

__all__ = ["Eigenfunctions", "NaturalSpline", "gaussian_process", "root_spectral_density", "spline"]

type Array = NDArray[np.floating[Any]]

MAX_KNOTS = 200


@dataclass(frozen=True)
class NaturalSpline:
    """Encoder of a natural cubic spline: the covariate, and columns whose coefficients are independent under the penalty.

    Attributes
    ----------
    argument, variable : str
        Of the model; of the frame.
    centre : float
        Mean of the covariate.
    knots : tuple of float
    rotation : ndarray [K, K - 2]
        From values at the knots to coefficients with a unit penalty.
    means : ndarray [K - 2]
        Of the columns.
    """

    argument: str
    variable: str
    centre: float
    knots: tuple[float, ...]
    rotation: Array
    means: Array

    def arguments(self, frame: pd.DataFrame, *, new: bool) -> dict[str, Any]:
        """Return the centred covariate and the wiggly columns ``[N, K - 1]``; beyond the knots splines are straight lines."""
        x = numbers_of(self.variable, frame)
        columns = _natural(np.array(self.knots), x) @ self.rotation - self.means
        return {self.argument: pd.DataFrame(np.column_stack([x - self.centre, columns]), frame.index)}


def spline(call: Call, frame: pd.DataFrame, place: Place) -> Term:
    r"""Return a penalised cubic regression spline in its mixed-model form.

    .. math:: f(x) = \beta (x - \bar x) + \sum_j b_j(x) u_j, \quad u_j \sim N(0, \tau^2)

    The penalty :math:`\int f''^2` is that of smoothing splines. The columns :math:`b_j` are scaled so that :math:`\tau` is the
    standard deviation of the wiggly part over the training rows.

    References
    ----------
    Wood (2017), Generalized Additive Models, second edition, sections 5.3.1 and 5.8.
    """
    x, text, settings = _one(call, frame, {"k": 10})
    different = np.unique(x)
    count = _whole(call, settings["k"], 3, MAX_KNOTS)
    count = min(count, len(different))
    if count < 3:
        raise FormulaError(f"{call.text}: {text!r} has {len(different)} different values, too few for a curve.")
    knots = np.quantile(different, np.linspace(0, 1, count))
    values, vectors = np.linalg.eigh(_curvature(knots))
    wiggly = values > 1e-10 * values[-1]  # straight lines are not penalised
    rotation = vectors[:, wiggly] / np.sqrt(values[wiggly])
    columns = _natural(knots, x) @ rotation
    means = columns.mean(0)
    columns = columns - means
    size = math.sqrt((columns**2).sum(1).mean())
    label = place.label("s", plain_name(text))
    argument = place.argument(f"s_{label}", call.text)
    encoder = NaturalSpline(argument, text, float(x.mean()), tuple(map(float, knots)), rotation / size, means / size)
    spread = float(spread_of(x[:, None])[0])
    slope = place.site(
        "bs",
        label,
        f"dist.Normal(0.0, {numbers(place.slope * place.scale / spread)})",
        f"Normal, {place.slope:g} x scale of the outcome / standard deviation of the column",
        unit=(0.0, place.scale / spread),
    )
    sd = place.positive("sds", label, "Exponential, mean the scale of the outcome")
    z = _standard(place, "zs", label, int(wiggly.sum()))
    summand = f"{slope.variable} * {argument}[:, 0] + {argument}[:, 1:] @ ({sd.variable} * {z.variable})"
    return Term((slope, sd, z), (summand,), encoder, (argument,))


@dataclass(frozen=True)
class Eigenfunctions:
    """Encoder of a covariate as eigenfunctions of the Laplacian on an interval around the training data.

    Attributes
    ----------
    argument, variable : str
    centre, half_width : float
        The interval is the centre plus and minus the half width.
    count : int
    """

    argument: str
    variable: str
    centre: float
    half_width: float
    count: int

    def arguments(self, frame: pd.DataFrame, *, new: bool) -> dict[str, Any]:
        """Return the eigenfunctions ``[N, M]``.

        Raises
        ------
        DataError
            If a value lies outside of the interval.
        """
        x = numbers_of(self.variable, frame) - self.centre
        if (outside := np.abs(x) > self.half_width).any():
            row = int(np.flatnonzero(outside)[0])
            ends = (self.centre - self.half_width, self.centre + self.half_width)
            raise DataError(
                f"Data refused: {self.variable!r} is {x[row] + self.centre:.6g} at row {row}, and gp({self.variable}) "
                f"reaches from "
                f"{ends[0]:.6g} to {ends[1]:.6g}. Write a larger factor, such as gp({self.variable}, c=3.0), or s(...), which "
                f"continues as a straight line."
            )
        orders = np.arange(1, self.count + 1)
        angles = np.pi * orders * (x[:, None] + self.half_width) / (2 * self.half_width)
        return {self.argument: pd.DataFrame(np.sin(angles) / math.sqrt(self.half_width), frame.index)}


def gaussian_process(call: Call, frame: pd.DataFrame, place: Place) -> Term:
    """Return a Gaussian process with a squared exponential kernel, in a basis of eigenfunctions.

    References
    ----------
    Riutort-Mayol, Bürkner, Andersen, Solin and Vehtari (2023), Practical Hilbert space approximate Bayesian Gaussian processes
    for probabilistic programming, Statistics and Computing 33.
    """
    x, text, settings = _one(call, frame, {"k": 20, "c": 1.5})
    count = _whole(call, settings["k"], 1, MAX_KNOTS)
    if not isinstance(settings["c"], int | float) or settings["c"] < 1:
        raise FormulaError(f"{call.text}: c={settings['c']!r} must be a factor of at least 1.")
    low, high = float(x.min()), float(x.max())
    if low == high:
        raise FormulaError(f"{call.text}: {text!r} has one value only.")
    half_range = (high - low) / 2
    label = place.label("gp", plain_name(text))
    argument = place.argument(f"gp_{label}", call.text)
    encoder = Eigenfunctions(argument, text, (low + high) / 2, settings["c"] * half_range, count)
    sd = place.positive("sdgp", label, "Exponential, mean the scale of the outcome")
    typical = half_range / 2
    length = place.site(
        "lscale",
        label,
        f"dist.LogNormal({numbers(math.log(typical))}, 0.5)",
        "log-normal, median a quarter of the range",
        unit=(0.0, typical),
    )
    z = _standard(place, "zgp", label, count)
    root = f"root_spectral_density({sd.variable}, {length.variable}, {count}, {encoder.half_width!r})"
    return Term((sd, length, z), (f"{argument} @ ({root} * {z.variable})",), encoder, (argument,))


def root_spectral_density(sd: Tensor, lengthscale: Tensor, count: int, half_width: float) -> Tensor:
    r"""Return the root of the spectral density ``[M]`` of a squared exponential kernel at the frequencies of eigenfunctions.

    .. math:: S(\omega) = \sigma^2 \sqrt{2 \pi} \, \ell \exp(-\ell^2 \omega^2 / 2), \quad \omega_m = m \pi / (2 L)
    """
    frequencies = torch.arange(1, count + 1, dtype=lengthscale.dtype, device=lengthscale.device) * (
        math.pi / (2 * half_width)
    )
    return sd * (math.sqrt(2 * math.pi) * lengthscale).sqrt() * torch.exp(-0.25 * (lengthscale * frequencies) ** 2)


def _one(call: Call, frame: pd.DataFrame, defaults: dict[str, Any]) -> tuple[Array, str, dict[str, Any]]:
    """Return the values of a term's one variable, its text, and the term's settings."""
    if len(call.variables) != 1:
        raise FormulaError(
            f"{call.text} takes one variable, and has {len(call.variables)}: write nn(...) for several at once."
        )
    if unknown := [name for name in call.settings if name not in defaults]:
        raise FormulaError(f"{call.text} has no setting {unknown[0]!r}; it has {', '.join(defaults)}.")
    return numbers_of(call.variables[0], frame), call.variables[0], defaults | call.settings


def _whole(call: Call, value: Any, least: int, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise FormulaError(f"{call.text}: k={value!r} must be a whole number from {least} to {most}.")
    return value


def _standard(place: Place, kind: str, label: str, count: int) -> FormulaSite:
    prior = f"dist.Normal(0.0, 1.0).expand([{count}]).to_event(1)"
    return place.site(kind, label, prior, "standardised coefficients", shape=(count,), hidden=True)


def _natural(knots: Array, x: Array) -> Array:
    """Return the basis ``[N, K]`` of natural cubic splines by their values at the knots."""
    found = CubicSpline(knots, np.eye(len(knots)), bc_type="natural")
    inside = np.clip(x, knots[0], knots[-1])
    slopes = found(inside, 1)
    return np.asarray(found(inside) + slopes * (x - inside)[:, None], dtype=float)


def _curvature(knots: Array) -> Array:
    """Return the matrix ``[K, K]`` of the integrated squared second derivative, by values at the knots."""
    second = CubicSpline(knots, np.eye(len(knots)), bc_type="natural")(knots, 2)
    gaps = np.diff(knots)
    mass = np.zeros((len(knots), len(knots)))
    for place, gap in enumerate(gaps):  # second derivatives are linear between knots
        mass[place : place + 2, place : place + 2] += gap * np.array([[2.0, 1.0], [1.0, 2.0]]) / 6
    return np.asarray(second.T @ mass @ second)
