"""Network terms ``nn(x1, x2)``, orthogonal to the linear effects of their inputs, so that both are identified."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from bnnzoo.models.formula.formula_sites import Place, Term
from bnnzoo.models.formula.frames import matrix_of
from bnnzoo.models.formula.linear import spread_of
from bnnzoo.models.formula.parsing import Call, FormulaError, plain_name
from bnnzoo.models.networks import mlp
from bnnzoo.models.priors import fan_in

__all__ = ["Inputs", "Reference", "network", "orthogonal"]

NUM_REFERENCES = 500
"""Training rows at most over which a network is orthogonal to linear effects."""


@dataclass(frozen=True)
class Inputs:
    """Encoder of the inputs of a network, standardised by the training data."""

    argument: str
    variables: tuple[str, ...]
    means: tuple[float, ...]
    spreads: tuple[float, ...]

    def arguments(self, frame: pd.DataFrame, *, new: bool) -> dict[str, Any]:
        """Return the inputs ``[N, D]``."""
        return {self.argument: pd.DataFrame(self.standardised(frame), frame.index, list(self.variables))}

    def standardised(self, frame: pd.DataFrame) -> NDArray[np.floating[Any]]:
        """Return the inputs ``[N, D]`` as an array."""
        found: NDArray[np.floating[Any]] = (matrix_of(self.variables, frame) - self.means) / self.spreads
        return found


@dataclass(frozen=True, eq=False)
class Reference:
    """Rows over which a network is orthogonal to linear effects.

    Attributes
    ----------
    inputs : Tensor [R, D]
    projector : Tensor [Q + 1, R]
        From a function at these rows to its least-squares intercept and slopes.
    linear : tuple of int
        Inputs whose linear effects are taken out.
    """

    inputs: Tensor
    projector: Tensor
    linear: tuple[int, ...]

    def __repr__(self) -> str:
        """Say how many rows and effects there are."""
        return f"Reference({len(self.inputs)} rows, {len(self.linear)} linear effects)"


def network(call: Call, frame: pd.DataFrame, place: Place, linear: Sequence[str]) -> Term:
    """Return a Bayesian network of some covariates.

    Parameters
    ----------
    call : Call
    frame : DataFrame
        The training data.
    place : Place
    linear : sequence of str
        Variables that have linear effects in the same predictor.

    References
    ----------
    Rügamer, Kolb and Klein (2024), Semi-structured distributional regression, The American Statistician 78.
    """
    settings = {"hidden": (20,), "activation": "tanh"} | call.settings
    if unknown := [name for name in settings if name not in ("hidden", "activation")]:
        raise FormulaError(f"{call.text} has no setting {unknown[0]!r}; it has hidden, activation.")
    if not call.variables:
        raise FormulaError(f"{call.text} has no variables: write nn(x1, x2).")
    matrix = matrix_of(call.variables, frame)
    means, spreads = matrix.mean(0), spread_of(matrix)
    label = ",".join(plain_name(variable) for variable in call.variables)
    label = place.label("nn", label)
    argument = place.argument(f"nn_{label}", call.text)
    encoder = Inputs(argument, call.variables, tuple(map(float, means)), tuple(map(float, spreads)))
    contained = tuple(i for i, each in enumerate(call.variables) if plain_name(each) in map(plain_name, linear))
    inputs = encoder.standardised(frame)
    rows = np.linspace(0, len(inputs) - 1, min(len(inputs), NUM_REFERENCES)).round().astype(int)
    chosen = inputs[rows]
    design = np.column_stack([np.ones(len(chosen)), chosen[:, list(contained)]])
    reference = Reference(torch.from_numpy(chosen), torch.from_numpy(np.linalg.pinv(design)), contained)
    try:
        net = mlp(len(call.variables), settings["hidden"], activation=settings["activation"])
    except (TypeError, ValueError) as error:
        raise FormulaError(f"{call.text}: {error}") from None
    sd = place.positive("sdnn", label, "Exponential, mean the scale of the outcome")
    site = f"nn_{place.prefix}{label}".replace(",", "_")
    constants = {name: place.variable(f"{name}_{site}") for name in ("NET", "PRIOR", "ROWS")}
    variable = place.variable(site)
    line = f"{variable} = random_module({site!r}, {constants['NET']}, {constants['PRIOR']})"
    summand = f"{sd.variable} * orthogonal({variable}, {argument}, {constants['ROWS']})"
    values = {constants["NET"]: net, constants["PRIOR"]: fan_in(), constants["ROWS"]: reference}
    return Term((sd, line), (summand,), encoder, (argument,), constants=values)


def orthogonal(net: Callable[[Tensor], Tensor], inputs: Tensor, reference: Reference) -> Tensor:
    """Return the output ``[N]`` of a network less its least-squares intercept and slopes over the reference rows.

    Parameters
    ----------
    net : callable
        From ``[..., D]`` to ``[..., 1]``.
    inputs : Tensor [N, D]
    reference : Reference
    """
    rows = reference.inputs.to(inputs)
    output = net(torch.cat([inputs, rows])).squeeze(-1)
    ours, theirs = output[: len(inputs)], output[len(inputs) :]
    straight = reference.projector.to(inputs) @ theirs
    columns = [inputs[:, place] for place in reference.linear]
    return ours - torch.stack([torch.ones_like(inputs[:, 0]), *columns], -1) @ straight
