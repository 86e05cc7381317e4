"""Models that change after their fit: a network's functions and settings, tensors in a closure, globals."""

import math
import warnings
from typing import Any

import torch

from bnnzoo.core.data.minibatch import num_numbers, select
from bnnzoo.core.fit_warnings import INSIDE
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.program.sites import ModelWarning
from bnnzoo.core.program.turns import streams_left
from bnnzoo.core.reading.fingerprint import LOG_LIKELIHOOD, LOG_PRIOR, different_values, tolerance_of, values_at
from bnnzoo.core.reading.streamed import num_held

__all__ = ["MAX_NUMBERS", "is_as_remembered", "is_told_apart", "remember_model", "warn_of_changed_model"]

REMEMBERED = "_values_at_fit"
"""Entry of a density's own dictionary, which `dataclasses.replace` drops: a density with other data remembers nothing."""

NUM_ROWS, MAX_NUMBERS = 32, 2**18
"""Rows by which a model is known again, and the size of data up to which it is by all of them."""


def remember_model(density: LogDensity) -> None:
    """Note once what a model computes, at two points and on all rows of little data, for :func:`warn_of_changed_model`."""
    if REMEMBERED not in vars(density):
        vars(density)[REMEMBERED] = _values_now(density)


def is_told_apart(density: LogDensity) -> bool:
    """Tell whether what was remembered of a model is finite, without which it tells nothing of the model."""
    found = vars(density)[REMEMBERED]["with data"]
    known = [value for name in (LOG_PRIOR, LOG_LIKELIHOOD) for value in found.get(name, ())]
    return len(known) == 4 and all(map(math.isfinite, known))


def is_as_remembered(density: LogDensity) -> bool:
    """Tell whether a model computes, to the last digit, what it did when it was remembered.

    A model that is random beyond torch, and has not been found out yet, finds its streams where they were.
    """
    with streams_left():
        return bool(vars(density)[REMEMBERED] == _values_now(density))


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


def _values_now(density: LogDensity) -> dict[str, Any]:
    held, generator = num_held(density), torch.Generator().manual_seed(0)
    points = [
        (scale * torch.randn(density.num_params, generator=generator, dtype=torch.float64)).to(
            density.device, density.dtype
        )
        for scale in (0.3, 1.0)
    ]
    rows, is_small = density.data, num_numbers(density.data) <= MAX_NUMBERS
    if not is_small:
        rows = select(density.data, torch.arange(min(NUM_ROWS, held), device=density.device), held)
    values = values_at(density, points, *rows, given=True)
    sizes = [density.num_params, held if is_small else min(NUM_ROWS, held)]
    return {"sizes": sizes, "tolerance": tolerance_of(density.dtype), "with data": values}
