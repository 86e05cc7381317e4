"""Latent sites of a formula with their priors, as text that Python reads, and the names that a formula has given away."""

import keyword
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pandas as pd
from pyro.distributions.torch_distribution import TorchDistributionMixin

from bnnzoo.models.formula.units import Unit

__all__ = ["Encoder", "FormulaSite", "Names", "Place", "Term", "numbers", "written"]


@dataclass(frozen=True)
class FormulaSite:
    """A latent site: its name and variable in the code, its prior, and the unit of its unconstrained coordinate.

    Attributes
    ----------
    name, variable : str
    prior : str
        A distribution as Python code, of one entry.
    rule : str
        Where the prior comes from, in words.
    unit : Unit, optional
        See `in_units`; coordinates are those of the support where there is none.
    shape : tuple of int
    dims : tuple of str
        Names of the axes in a tree of results.
    coords : mapping of str to list
        Labels along them.
    hidden : bool
        Whether the site only serves to compute others, as the standardised effects of groups do.
    """

    name: str
    variable: str
    prior: str
    rule: str
    unit: Unit | None = None
    shape: tuple[int, ...] = ()
    dims: tuple[str, ...] = ()
    coords: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    hidden: bool = False

    def statement(self) -> str:
        """Return the line that samples the site."""
        return f"{self.variable} = pyro.sample({self.name!r}, {self.prior})"


class Encoder(Protocol):
    """From a frame to arguments of the model, with everything that was learned from the training data."""

    def arguments(self, frame: pd.DataFrame, *, new: bool) -> dict[str, Any]:
        """Return arguments by name; ``new`` tells rows to be predicted from those to be fitted."""
        ...


@dataclass(frozen=True)
class Term:
    """A part of a predictor.

    Attributes
    ----------
    statements : tuple of FormulaSite and str
        Lines of the model: sites to be sampled, and code.
    summands : tuple of str
        What is added to the predictor.
    encoder : Encoder
    names : tuple of str
        Of the arguments, in order.
    constants : mapping of str to object
        What the code refers to by name: networks, and matrices that do not fit on a line.
    dims, coords
        Of the deterministic sites in the code.
    """

    statements: tuple[FormulaSite | str, ...]
    summands: tuple[str, ...]
    encoder: Encoder
    names: tuple[str, ...] = ()
    constants: Mapping[str, Any] = field(default_factory=dict)
    dims: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    coords: Mapping[str, Sequence[Any]] = field(default_factory=dict)


@dataclass
class Names:
    """Names that are taken: each site and each variable of the code has its own."""

    taken: set[str] = field(default_factory=set)
    arguments: dict[str, str] = field(default_factory=dict)

    def argument(self, name: str, key: str) -> str:
        """Return an argument of the model, the same for the same name and key."""
        if f"{name} {key}" not in self.arguments:
            self.arguments[f"{name} {key}"] = self.variable(name)
        return self.arguments[f"{name} {key}"]

    def unique(self, name: str) -> str:
        """Return a name, with a number behind it where it is taken."""
        found, number = name, 2
        while found in self.taken:
            found, number = f"{name}_{number}", number + 1
        self.taken.add(found)
        return found

    def variable(self, name: str) -> str:
        """Return a name that Python takes for a variable."""
        found = re.sub(r"\W+", "_", name).strip("_") or "v"
        found = f"v_{found}" if found[0].isdigit() or keyword.iskeyword(found) else found
        return self.unique(found)


@dataclass(frozen=True)
class Place:
    """Where the terms of a predictor stand.

    Attributes
    ----------
    prefix : str
        Before the names of its sites: empty for the location, ``"sigma_"`` for that of a parameter.
    scale : float
        What one standard deviation of the outcome is on the scale of the predictor.
    slope : float
        Prior standard deviation of a coefficient, for a covariate with standard deviation one.
    names : Names
        Of the whole model.
    labels : Names
        Of the terms of this predictor.
    """

    prefix: str
    scale: float
    slope: float
    names: Names
    labels: Names = field(default_factory=Names)

    def label(self, kind: str, text: str) -> str:
        """Return the label of a term, with a number behind it where the predictor has two of a kind."""
        return self.labels.unique(f"{kind} {text}").removeprefix(f"{kind} ")

    def argument(self, name: str, key: str = "") -> str:
        """Return an argument of the model; predictors with the same term, the key, share it."""
        return self.names.argument(name, key)

    def name(self, kind: str, label: str) -> str:
        """Return the name of a site of a term."""
        return f"{kind}_{self.prefix}{label}"

    def variable(self, name: str) -> str:
        """Return a variable for a name."""
        return self.names.variable(name)

    def site(self, kind: str, label: str, prior: str, rule: str, **settings: Any) -> FormulaSite:
        """Return a site of a term."""
        name = self.name(kind, label)
        return FormulaSite(name, self.variable(name), prior, rule, **settings)

    def positive(self, kind: str, label: str, rule: str, spread: float = 1.0) -> FormulaSite:
        """Return a scale whose prior is exponential with a mean of the outcome's scale, for a covariate of some spread."""
        mean = self.scale / spread
        return self.site(kind, label, f"dist.Exponential({numbers(1 / mean)})", rule, unit=(0.0, mean))


def numbers(values: Any, digits: int = 4) -> str:
    """Return a number, or a tensor of some, as Python code with so many significant digits.

    Examples
    --------
    >>> numbers(2 / 3), numbers([1.0, 0.5])
    ('0.6667', 'torch.tensor([1.0, 0.5])')
    """
    if np.ndim(values) == 0:
        return repr(float(f"{float(values):.{digits}g}"))
    if len(values) > 1 and len({float(value) for value in values}) == 1:
        return f"torch.tensor({numbers(values[0], digits)}).expand({len(values)})"
    return f"torch.tensor([{', '.join(numbers(value, digits) for value in values)}])"


def written(distribution: TorchDistributionMixin) -> str | None:
    """Return a distribution of numbers as Python code; None if it cannot be written.

    Examples
    --------
    >>> import pyro.distributions as dist
    >>> written(dist.Normal(0.0, 2.0))
    'dist.Normal(loc=0.0, scale=2.0)'
    """
    names = [name for name in getattr(distribution, "arg_constraints", {}) if name in vars(distribution)]
    parameters = {name: vars(distribution)[name] for name in names}
    if not parameters or hasattr(distribution, "base_dist") or any(value.numel() != 1 for value in parameters.values()):
        return None
    inside = ", ".join(f"{name}={float(value)!r}" for name, value in parameters.items())
    return f"dist.{type(distribution).__name__}({inside})"
