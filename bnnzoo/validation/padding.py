"""Refits to parts of the rows, of many lengths, by one program: a part is filled up with rows of weight zero."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bnnzoo.core.data.minibatch import select
from bnnzoo.core.discrete.enumeration import enumerated
from bnnzoo.core.method import Method, declared
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.reading.conditioned import PredictsGivenData
from bnnzoo.core.types import Data, Model
from bnnzoo.engine.choose import one_thread_pays
from bnnzoo.models.likelihoods.weighting import weighted_rows

__all__ = ["Padding", "WeightedModel", "padding_that_pays"]

MIN_LENGTHS = 3
"""Different lengths of the parts from which on one program for all repays the rows that are added to each."""


@dataclass(eq=False)
class WeightedModel:
    """A model that takes weights of its rows ``[N]`` before its other arguments.

    Parameters
    ----------
    model : callable
    """

    model: Model

    def __call__(self, weights: Tensor, *data: object) -> None:
        """Run the model, each row's log likelihood times its weight."""
        with weighted_rows(weights):
            self.model(*data)


@dataclass(frozen=True)
class Padding:
    """What makes data of one length of parts of the rows.

    Attributes
    ----------
    model : WeightedModel
    length : int
        Of the longest part.
    """

    model: WeightedModel
    length: int

    def fitted(self, density: LogDensity, rows: Tensor) -> Data:
        """Return some rows, and copies of the last with weight zero: what is left out is in no argument of the model."""
        copies = rows[-1:].expand(self.length - len(rows))
        weights = torch.ones(self.length, dtype=density.dtype, device=density.device)
        weights[len(rows) :] = 0.0
        return weights, *select(density.data, torch.cat([rows, copies]), density.num_data)

    def judged(self, density: LogDensity, rows: Tensor) -> Data:
        """Return rows that all count once."""
        weights = torch.ones(len(rows), dtype=density.dtype, device=density.device)
        return weights, *select(density.data, rows, density.num_data)


def padding_that_pays(
    density: LogDensity, method: Method, lengths: Collection[int], parts: Iterable[Tensor]
) -> Padding | None:
    """Return the padding of parts of the rows; None where it does not pay, or where the posterior would not be that of the part.

    It pays where parts have several lengths, each of which would be traced and compiled, and a gradient is cheap. The log joint
    density of every part is compared with that of the padded one at two points, which tells latent values by row, and priors and
    rows that depend on the number of rows or on other rows.

    Parameters
    ----------
    density : LogDensity
        Given all rows.
    method : Method
    lengths : collection of int
        Of the parts.
    parts : iterable of Tensor
        Numbers of the rows of each part, read only if padding might pay.
    """
    if len({*lengths}) < MIN_LENGTHS or 0 in lengths or not one_thread_pays(density.num_params, density.num_data):
        return None
    model = density.model
    if declared(method).sees_rows() or enumerated(model) is not None or isinstance(model, PredictsGivenData):
        return None
    padding = Padding(WeightedModel(model), max(lengths))
    points = density.init(2, 0)
    return padding if all(_is_that_of(padding, density, rows, points) for rows in parts) else None


def _is_that_of(padding: Padding, density: LogDensity, rows: Tensor, points: Tensor) -> bool:
    """Tell whether the log joint density of a part is that of the padded part."""
    part = replace(density, data=select(density.data, rows, density.num_data), num_data=len(rows))
    padded = replace(density, model=padding.model, data=padding.fitted(density, rows), num_data=padding.length)
    tolerance = torch.finfo(density.dtype).eps ** 0.75
    try:
        with torch.no_grad():
            pairs = ([each.log_joint(point, *each.data) for each in (part, padded)] for point in points)
            return all(torch.allclose(own, filled, tolerance, tolerance) for own, filled in pairs)
    except Exception:  # of a model that cannot be run on such rows: a fit to them says so
        return False
