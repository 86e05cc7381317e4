"""Random numbers under ``vmap``: drawn out of place, or refused where torch would batch a sampler wrongly."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from bnnzoo.engine.torch_private import angles_drawn_by, batchable_dirichlet, draws_from_gamma, ignore_slow_batching

__all__ = ["batchable_draws", "refuse_unsafe_warnings"]

PROPOSED_ANGLES = (
    20  # each is accepted with probability 0.66 or more; all are refused once in 2e9 draws: the first is taken
)


@contextmanager
def batchable_draws() -> Iterator[None]:
    """Let torch's distributions draw by operations that vmap can batch, and from a parameter that is NaN draw NaN."""
    with batchable_dirichlet(), angles_drawn_by(_angles), _OutOfPlace():
        yield


class _OutOfPlace(TorchFunctionMode):
    """Turn draws into what vmap can batch, such as ``torch.empty(...).normal_()``, by which most are made.

    A Binomial may have the same trials for all copies, and a Multinomial counts into a new tensor.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is Tensor.normal_:
            return _scaled_noise(_like(torch.randn, args[0]), *args[1:], **kwargs)
        if func is Tensor.uniform_:
            return _stretched(_like(torch.rand, args[0]), *args[1:], **kwargs)
        if func is Tensor.exponential_:
            uniform = _like(torch.rand, args[0])
            return -torch.log1p(-uniform) / (args[1] if len(args) > 1 else kwargs.get("lambd", 1.0))
        if func is Tensor.cauchy_:
            return _scaled_noise(torch.tan(torch.pi * (_like(torch.rand, args[0]) - 0.5)), *args[1:], **kwargs)
        if draws_from_gamma(func):
            return func(*args, **kwargs).masked_fill(args[0].isnan(), torch.nan)  # torch draws nought
        if func is Tensor.new and isinstance(args[-1], torch.Size) and not args[0].is_floating_point():
            # into which a Multinomial counts classes: one for each copy
            return torch.zeros(args[1], dtype=args[0].dtype, device=args[0].device) + 0 * args[0].sum()
        if func is torch.binomial and len(args) > 1:
            count, probability, *others = args
            args = (count + torch.zeros_like(probability), probability + torch.zeros_like(count), *others)
        return func(*args, **kwargs)


def _angles(loc: Tensor, concentration: Tensor, constant: Tensor, drawn: Tensor) -> Tensor:
    """Draw from von Mises distributions: the first accepted of many proposals, since copies do not take turns.

    References
    ----------
    D. J. Best and N. I. Fisher (1979), Efficient simulation of the von Mises distribution, Applied Statistics 28.
    """
    shape = torch.broadcast_shapes(drawn.shape, loc.shape)
    uniform, threshold = _like(torch.rand, loc.new_zeros(2, *shape, PROPOSED_ANGLES)).unbind()
    side = _like(torch.rand, loc.new_zeros(shape))
    cosine = torch.cos(torch.pi * uniform)
    constant, concentration = constant[..., None], concentration[..., None]
    proposed = (1 + constant * cosine) / (constant + cosine)
    left = concentration * (constant - proposed)
    is_accepted = (left * (2 - left) > threshold) | ((left / threshold).log() + 1 - left >= 0)
    first = is_accepted.to(torch.uint8).argmax(-1, keepdim=True)
    turn = torch.sign(side - 0.5) * proposed.gather(-1, first).squeeze(-1).clamp(-1, 1).acos()
    angle = (turn + torch.pi + loc) % (2 * torch.pi) - torch.pi
    return angle.masked_fill(concentration.squeeze(-1).isnan(), torch.nan)


def _like(draw: Callable[..., Tensor], tensor: Tensor) -> Tensor:
    """Draw numbers of a tensor's shape; torch's ``randn_like`` is not among the operations known to be random."""
    return draw(tensor.shape, dtype=tensor.dtype, device=tensor.device)


def _scaled_noise(noise: Tensor, loc: float | int = 0.0, scale: float | int = 1.0) -> Tensor:
    return loc + scale * noise


def _stretched(noise: Tensor, low: float | int = 0.0, high: float | int = 1.0) -> Tensor:
    return low + (high - low) * noise


def refuse_unsafe_warnings() -> None:
    """Turn torch's warnings into errors: torch merely warns when it batches a sampler wrongly."""
    warnings.simplefilter("error", UserWarning)
    ignore_slow_batching()
