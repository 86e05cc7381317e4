"""Parameters of a likelihood from a network's output: one part for each, with an offset on the first."""

from typing import Any

import torch
from pyro.distributions.torch_distribution import TorchDistributionMixin
from torch import Tensor

from bnnzoo.models.argument_checks import refuse_bad_scale, refuse_not_positive
from bnnzoo.models.likelihoods.likelihood import targets_shape, value_or_site
from bnnzoo.models.likelihoods.target import refuse_bad_offset, refuse_bad_output

__all__ = ["Unknown", "log_site", "parts_of", "positive", "site_or_number", "with_offset"]

type Unknown = float | Tensor | TorchDistributionMixin
"""A number that fixes a parameter, a tensor that a model has computed, for each row or for all, or its prior."""


def parts_of(name: str, output: Tensor, offset: Tensor | float | None, meaning: tuple[str, ...]) -> tuple[Tensor, ...]:
    """Return the parts ``[N]`` or ``[N, D]`` of a network's output, one for each meaning; an offset is added to the first.

    Raises
    ------
    ValueError, TypeError
        If the outputs cannot be divided so, or the offset does not fit the first part.
    """
    refuse_bad_output(name, output)
    count = len(meaning)
    if count > 1 and (output.ndim == 1 or output.shape[1] % count):
        raise ValueError(
            f"{name}: the network needs {_NUMBERS[count]} outputs per target, {' and '.join(meaning)}, but its output has "
            f"shape {tuple(output.shape)}: give it out_features={count} for one target."
        )
    first, *others = (targets_shape(part) for part in (output.chunk(count, dim=-1) if count > 1 else (output,)))
    return with_offset(name, first, offset), *others


def with_offset(name: str, first: Tensor, offset: Tensor | float | None) -> Tensor:
    """Return a predictor ``[N]`` or ``[N, D]`` with an offset of the same shape, or a number, added to it."""
    if offset is None:
        return first
    given = targets_shape(offset) if isinstance(offset, Tensor) else offset
    refuse_bad_offset(name, given, first.shape)
    return first + torch.as_tensor(given, dtype=first.dtype, device=first.device)


def log_site(name: str, value: Unknown, predictor: Tensor) -> Tensor:
    """Return the logarithm of a fixed positive number, or of a latent site with one value for each target."""
    return site_or_number(name, value, predictor).log()


def site_or_number(name: str, value: Unknown, predictor: Tensor) -> Tensor:
    """Return a fixed number as a tensor, or a latent site with one value for each target."""
    found = value_or_site(name, value, tuple(predictor.shape[1:]))
    return found if isinstance(found, Tensor) else predictor.new_tensor(found)


def positive(where: str, name: str, value: Any) -> Any:
    """Return a parameter as it is, after refusing what is neither a positive number, a tensor nor a prior on positive numbers."""
    if isinstance(value, TorchDistributionMixin):
        refuse_bad_scale(where, value)
    elif not isinstance(value, Tensor):  # which a model has computed, for each row or for all
        refuse_not_positive(where, **{name: value})
    return value


_NUMBERS = {2: "two", 3: "three"}
