"""Checks of the arguments of Gaussian processes."""

from typing import Any

from pyro.distributions.torch_distribution import TorchDistributionMixin
from torch import Tensor

from bnnzoo.models.likelihoods.target import refuse_not_real

__all__ = ["MAX_ROWS", "refuse_bad_inputs", "refuse_bad_mean", "refuse_bad_targets", "refuse_too_many_rows"]

MAX_ROWS = 2000
"""Rows of the exact form, whose time grows with their cube and whose memory with their square."""


def refuse_bad_inputs(where: str, x: Any) -> None:
    """Refuse inputs that are not a floating-point tensor [N, D]."""
    if not isinstance(x, Tensor) or x.ndim != 2 or not x.is_floating_point():
        found = f"{x.dtype} of shape {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
        raise ValueError(
            f"{where}: x must be a floating-point tensor of shape [N, inputs], but is {found}. Write x[:, None] for one column."
        )


def refuse_bad_targets(where: str, x: Tensor, y: Any) -> None:
    """Refuse targets that are not real, finite and [N]; several outputs have a sentence of their own."""
    if isinstance(y, Tensor) and y.ndim == 2:
        what = "write y[:, 0]" if y.shape[1] == 1 else "fit one process to each column of y"
        raise ValueError(
            f"{where}: y has shape {tuple(y.shape)}, but the process has one output, y of shape [N]: {what}."
        )
    refuse_not_real(where, y, x[:, 0], x.shape[:1])


def refuse_too_many_rows(where: str, x: Tensor) -> None:
    """Refuse more rows than the exact form is meant for."""
    if len(x) > MAX_ROWS:
        raise ValueError(
            f"{where}: the exact form factorises a matrix of {len(x)} x {len(x)} at every step, and takes up to {MAX_ROWS} rows. "
            f"Pass inducing=bnnzoo.models.inducing_points(x, 200) for the sparse form."
        )


def refuse_bad_mean(where: str, mean: Any) -> None:
    """Refuse a mean that is neither a number nor a scalar prior."""
    if isinstance(mean, TorchDistributionMixin):
        if mean.batch_shape + mean.event_shape != ():
            raise ValueError(
                f"{where}: the prior of the mean must be one scalar distribution, but has shape {tuple(mean.shape())}."
            )
    elif isinstance(mean, bool) or not isinstance(mean, (int, float)):
        raise TypeError(f"{where}: mean must be a number or a Pyro distribution, but is {mean!r}.")
