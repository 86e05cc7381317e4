"""Arguments of a model known by their shapes alone, for posteriors that predict new rows without their training data."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import pyro
import torch
from torch import Tensor

from bnnzoo.core.model.density import LogDensity, build_density
from bnnzoo.core.types import Model

__all__ = ["DensityWithoutData", "density_without_data", "is_placeholder"]


class DensityWithoutData(LogDensity):
    """A density that knows the shapes of its data and not their values: it predicts new rows, and has no log density."""

    @property
    def has_data(self) -> bool:
        """False: the values of the training data are placeholders."""
        return False

    def log_prior(self, theta: Tensor) -> Tensor:
        """Refuse: a prior may depend on the data."""
        raise _missing_data("log_prior")

    def log_joint(self, theta: Tensor, *batch: Any) -> Tensor:
        """Refuse: it counts the rows of a batch against data that are not there."""
        raise _missing_data("log_joint")


def density_without_data(
    model: Model, arguments: Sequence[Mapping[str, Any]], dtype: torch.dtype, device: torch.device
) -> DensityWithoutData:
    """Return the density of a model traced on zeros of the shapes of its training data, as its file describes them.

    Raises
    ------
    ValueError
        If an argument cannot be made from what was saved, or the model cannot run on zeros.
    """
    data: list[Any] = []
    for place, argument in enumerate(arguments):
        if "shape" in argument:
            zero = torch.zeros((), dtype=getattr(torch, argument["dtype"]), device=device)
            data.append(zero.expand(argument["shape"]))
        elif "value" in argument:
            data.append(argument["value"])
        else:
            raise ValueError(
                f"Argument {place + 1} of the model was a {argument['type']}, which is not saved, so the training data cannot "
                f"be left out. Pass them: bnnzoo.load(path, model, *data)."
            )
    try:
        with pyro.validation_enabled(False):  # a likelihood need not have zero in its support
            found = build_density(model, *data, dtype=dtype, device=device)
    except Exception as error:  # the user's model may raise anything
        raise ValueError(
            f"The model cannot be traced without its training data ({type(error).__name__}: {error}). Pass them: "
            f"bnnzoo.load(path, model, *data)."
        ) from error
    return DensityWithoutData(**{field.name: getattr(found, field.name) for field in fields(found)})


def is_placeholder(value: Tensor) -> bool:
    """Tell whether a tensor with rows stands for data that are not there: all of its entries are one in memory.

    Examples
    --------
    >>> is_placeholder(torch.zeros(()).expand(3)), is_placeholder(torch.zeros(3))
    (True, False)
    """
    return value.ndim > 0 and not any(value.stride())


def _missing_data(name: str) -> ValueError:
    return ValueError(
        f"{name} needs the training data, and this posterior was loaded without them. Pass them: "
        f"bnnzoo.load(path, model, *data)."
    )
