"""Models that change after their fit: a network's functions and settings, tensors in a closure, globals."""

import math
import warnings
from typing import Any

import torch
from torch import Tensor

from bnnzoo.core.data.minibatch import select
from bnnzoo.core.fit_warnings import INSIDE
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.program.sites import ModelWarning
from bnnzoo.core.program.turns import streams_left
from bnnzoo.core.reading.fingerprint import LOG_LIKELIHOOD, LOG_PRIOR, different_values, tolerance_of, values_at
from bnnzoo.core.reading.streamed import num_held

__all__ = ["remember_model", "values_of_all_rows", "warn_of_changed_model"]

REMEMBERED = "_values_at_fit"
"""Entry of a density's own dictionary, which `dataclasses.replace` drops: a density with other data remembers nothing."""

NUM_ROWS, MAX_NUMBERS = 32, 2**18
"""Rows on which a model is known again, and the size of data up to which a model that needs all its rows is."""


def remember_model(density: LogDensity) -> None:
    """Note what a model computes now, at two points and on a few rows, for :func:`warn_of_changed_model`."""
    vars(density)[REMEMBERED] = _values_now(density)


def warn_of_changed_model(density: LogDensity) -> None:
    """Warn if a model computes something else than when it was remembered.

    Warns
    -----
    ModelWarning
        Saying what differs.
    """
    before = vars(density).get(REMEMBERED)
    if before is None:
        return
    found = different_values(before, _values_now(density))
    if found:
        warnings.warn(
            f"The model is no longer what was fitted: {found}. Something that it reads besides its arguments has changed since, "
            f"such as a function or a setting of a network, or a tensor outside of the model, and draws of the old model go "
            f"through the new one. Fit again, change a copy (copy.deepcopy), or make what changes an argument of the model.",
            ModelWarning,
            skip_file_prefixes=INSIDE,
        )


def values_of_all_rows(density: LogDensity) -> dict[str, Any] | None:
    """Return what a model computes now, at two points, given its data; None where it is not finite, which tells nothing.

    A model that is random beyond torch, and has not been found out yet, finds its streams where they were.
    """
    with streams_left():
        found = values_at(density, _two_points(density), *density.data, given=True)
    known = [value for name in (LOG_PRIOR, LOG_LIKELIHOOD) for value in found.get(name, ())]
    return found if len(known) == 4 and all(map(math.isfinite, known)) else None


def _two_points(density: LogDensity) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [
        (scale * torch.randn(density.num_params, generator=generator, dtype=torch.float64)).to(
            density.device, density.dtype
        )
        for scale in (0.3, 1.0)
    ]


def _values_now(density: LogDensity) -> dict[str, Any]:
    held, points = num_held(density), _two_points(density)
    rows = select(density.data, torch.arange(min(NUM_ROWS, held), device=density.device), held)
    values = values_at(density, points, *rows, given=True)
    is_small = sum(value.numel() for value in density.data if isinstance(value, Tensor)) <= MAX_NUMBERS
    if LOG_LIKELIHOOD not in values and is_small:  # the model cannot be run on some of its rows
        values = values_at(density, points, *density.data, given=True)
    sizes = [density.num_params, min(NUM_ROWS, held)]
    return {"sizes": sizes, "tolerance": tolerance_of(density.dtype), "with data": values}
