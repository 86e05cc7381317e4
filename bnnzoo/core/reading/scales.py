"""Warning about badly scaled columns."""

import warnings
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from bnnzoo.core.fit_warnings import INSIDE
from bnnzoo.core.program.sites import ModelWarning
from bnnzoo.core.types import Data

__all__ = ["warn_of_scales"]

LARGE = 1e3
MAX_NAMED = 3


def warn_of_scales(data: Data, names: Sequence[str], columns: Mapping[str, Sequence[str]]) -> None:
    """Warn once of floating-point columns whose mean or standard deviation is beyond 1000.

    Parameters
    ----------
    data : tuple
        Arguments of the model.
    names : sequence of str
        Their names.
    columns : mapping of str to sequence of str
        Column names of those that came as data frames.
    """
    pairs = zip(names, data, strict=True)
    found = [
        each for name, value in pairs if isinstance(value, Tensor) for each in _large(name, value, columns.get(name))
    ]
    if found:
        more = f" and {len(found) - MAX_NAMED} more" if len(found) > MAX_NAMED else ""
        warnings.warn(
            f"Data of large scale: {'; '.join(found[:MAX_NAMED])}{more}. Priors and step sizes are made for numbers near one, so "
            f"that little may be learnt. Standardise each column, (x - x.mean(0)) / x.std(0), as .standardized() of "
            f"bnnzoo.datasets does.",
            ModelWarning,
            skip_file_prefixes=INSIDE,
        )


def _large(name: str, value: Tensor, columns: Sequence[str] | None) -> Iterator[str]:
    """Yield a description of each large column of one argument ``[N, ...]``."""
    if not value.is_floating_point() or not value.ndim or len(value) < 2:
        return
    flat = value.detach().reshape(len(value), -1)
    mean, sd = flat.mean(0), flat.std(0)
    for place in torch.nonzero((mean.abs() > LARGE) | (sd > LARGE)).flatten().tolist():
        label = f" ({columns[place]!r})" if columns and place < len(columns) else ""
        where = f"column {place}{label} of {name}" if value.ndim > 1 else name
        yield f"{where} has mean {float(mean[place]):.3g} and standard deviation {float(sd[place]):.3g}"
