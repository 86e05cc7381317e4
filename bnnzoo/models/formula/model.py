"""``Formula``: the Pyro model of a formula, an ordinary callable that prints as code."""

import inspect
import linecache
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pandas as pd
import pyro
import pyro.distributions as dist
import torch
from torch import Tensor

from bnnzoo.core.data.conversion import DataError
from bnnzoo.core.data.described import Described
from bnnzoo.core.posterior.folding import folded, preformatted
from bnnzoo.models import likelihoods
from bnnzoo.models.formula.formula_sites import Encoder, FormulaSite
from bnnzoo.models.formula.frames import as_frame, is_frame
from bnnzoo.models.formula.groups import at_levels
from bnnzoo.models.formula.imputation import completed
from bnnzoo.models.formula.network_terms import orthogonal
from bnnzoo.models.formula.response import Outcome
from bnnzoo.models.formula.smooths import root_spectral_density
from bnnzoo.models.formula.units import in_units
from bnnzoo.models.likelihoods.likelihood import Likelihood
from bnnzoo.models.likelihoods.weighting import weighted_rows
from bnnzoo.models.random_module import random_module

__all__ = ["NAMESPACE", "Formula", "sample_outcome"]


def sample_outcome(
    likelihood: Likelihood,
    predictor: Tensor,
    y: Tensor | None = None,
    row_weights: Tensor | None = None,
    censored: Tensor | None = None,
) -> Tensor:
    """Sample an outcome given its predictor, or observe it with the weights and the censoring of its rows."""
    beside: dict[str, Any] = {} if censored is None or y is None else {"censored": censored}
    if y is None or row_weights is None:
        return likelihood(predictor, y, **beside)
    with weighted_rows(row_weights):
        return likelihood(predictor, y, **beside)


NAMESPACE: dict[str, Any] = {
    "at_levels": at_levels,
    "completed": completed,
    "dist": dist,
    "likelihoods": likelihoods,
    "orthogonal": orthogonal,
    "pyro": pyro,
    "random_module": random_module,
    "replace": replace,
    "root_spectral_density": root_spectral_density,
    "sample_outcome": sample_outcome,
    "torch": torch,
}


@dataclass(eq=False, repr=False)
class Formula(Described):
    """The Pyro model of a formula; made by `formula`.

    It is called with a frame, or with the arguments into which a frame is encoded. ``print(model)`` shows it as code.

    Attributes
    ----------
    text : tuple of str
        The formulas.
    outcome : Outcome
    code : str
        The model as Python code, which is what runs.
    frame : DataFrame
        The columns of the training data that the formula uses, without the rows that have no outcome.
    sites : tuple of FormulaSite
    encoders : tuple of Encoder
    constants : mapping of str to object
        What the code refers to by name.
    dims : mapping of str to tuple of str
        Names of the dimensions of latent and deterministic sites.
    coords : mapping of str to list
        Labels along dimensions.
    """

    text: tuple[str, ...]
    outcome: Outcome
    code: str
    frame: pd.DataFrame
    sites: tuple[FormulaSite, ...]
    encoders: tuple[Encoder, ...]
    constants: Mapping[str, Any]
    dims: Mapping[str, tuple[str, ...]] = field()
    coords: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    observes = "y"
    takes_frames = True
    settings = frozenset({"likelihood", "new_levels", "priors"})

    def __call__(self, *arguments: Any, **named: Any) -> Tensor:
        """Run the model on a frame, or on the arguments that a frame is encoded into."""
        if not named and (encoded := self.from_data(arguments)) is not None:
            dtype = torch.get_default_dtype()
            tensors = [None if each is None else torch.from_numpy(each.to_numpy(copy=True)) for each in encoded]
            arguments = tuple(t.to(dtype) if t is not None and t.is_floating_point() else t for t in tensors)
        with in_units(self._units):
            found: Tensor = self.function(*arguments, **named)
        return found

    def __repr__(self) -> str:
        """Show the formulas, the likelihood and the size of the training data."""
        rows = f"{len(self.frame)} rows, likelihood {self.outcome.family.name}"
        return f"formula({', '.join(map(repr, self.text))}; {rows})"

    def __str__(self) -> str:
        """Return the code."""
        return self.code

    def _repr_html_(self) -> str:
        """Return the formulas, which unfold to the priors and the code."""
        return folded(repr(self), f"{self.priors.to_html()}{preformatted(self.code)}")

    def __getstate__(self) -> dict[str, Any]:
        """Leave the compiled function out, which cannot be pickled."""
        return {name: value for name, value in vars(self).items() if name not in ("function", "_units")}

    @cached_property
    def function(self) -> Callable[..., Tensor]:
        """The compiled code."""
        namespace = {**NAMESPACE, **self.constants}
        file = f"<formula {self.text[0]}>"
        exec(compile(self.code, file, "exec"), namespace)
        linecache.cache[file] = (len(self.code), None, self.code.splitlines(keepends=True), file)  # for tracebacks
        found: Callable[..., Tensor] = namespace["model"]
        return found

    @cached_property
    def _units(self) -> dict[str, Any]:
        return {site.name: site.unit for site in self.sites if site.unit is not None}

    @property
    def __signature__(self) -> inspect.Signature:
        """Return the signature of the code."""
        return inspect.signature(self.function)

    @property
    def titles(self) -> dict[str, str]:  # type: ignore[override]
        """The outcome as it is written in the formula."""
        return {"y": ", ".join(self.outcome.texts)}

    @property
    def auxiliary(self) -> frozenset[str]:  # type: ignore[override]
        """Latent sites that only serve to compute others."""
        return frozenset(site.name for site in self.sites if site.hidden)

    @property
    def levels(self) -> tuple[Any, ...]:  # type: ignore[override]
        """Levels of an outcome that is a class; empty for others."""
        return self.outcome.levels

    @property
    def priors(self) -> pd.DataFrame:
        """Priors of the latent sites, networks aside: the distribution as code, and the rule behind it.

        Returns
        -------
        DataFrame
            One row for each site, with columns ``prior`` and ``rule``.
        """
        shown = [site for site in self.sites if not site.rule.startswith("standardised")]
        rows = {"prior": [site.prior for site in shown], "rule": [site.rule for site in shown]}
        return pd.DataFrame(rows, index=pd.Index([site.name for site in shown], name="site"))

    def from_data(self, data: tuple[Any, ...], *, new: bool = False) -> tuple[Any, ...] | None:
        """Return a frame as arguments of the model; None for arguments that are no single frame.

        Parameters
        ----------
        data : tuple
            What was passed in place of the model's arguments.
        new : bool
            Whether rows are to be predicted: they need no outcome, and may have new levels of groups.

        Raises
        ------
        DataError
            If a column is missing, or holds what the training data and the formula do not allow.
        """
        if len(data) == 1 and isinstance(data[0], pd.Series):
            raise DataError(
                "Data refused: a formula takes a frame, and this is a series. Write frame.iloc[[0]] for a frame of one row, or "
                "series.to_frame() for a column."
            )
        if len(data) != 1 or not is_frame(data[0]):
            return None
        frame = as_frame(data[0])
        if not len(frame):
            raise DataError("Data refused: the frame has no rows.")
        if not new:
            frame = frame[self.outcome.seen(frame)]
        found: dict[str, Any] = {}
        for encoder in (*self.encoders, self.outcome):
            found |= encoder.arguments(frame, new=new)
        names = list(self.__signature__.parameters)
        if "rows" in names:
            found["rows"] = pd.Series(0.0, frame.index)
        return tuple(found.get(name) for name in names)
