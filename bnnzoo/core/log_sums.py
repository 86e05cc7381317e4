"""Sums and products of numbers that are held as logs."""

import torch
from torch import Tensor

__all__ = ["chain_product", "log_sum_exp"]


def log_sum_exp(value: Tensor, dim: int) -> Tensor:
    """Return the log of a sum of exponentials along a dimension; where all are zero, with a gradient of zero."""
    largest = value.detach().amax(dim, keepdim=True)
    shift = torch.where(largest == -torch.inf, 0.0, largest)
    total = (value - shift).exp().sum(dim)
    is_zero = total == 0
    return torch.where(is_zero, -torch.inf, torch.where(is_zero, 1.0, total).log() + shift.squeeze(dim))


def chain_product(steps: Tensor) -> Tensor:
    """Return the product ``[..., K, K]`` of matrices ``steps[..., T, K, K]`` of logs, in log(T) steps."""
    while (length := steps.shape[-3]) > 1:
        half = length // 2
        left, right = steps[..., : 2 * half : 2, :, :], steps[..., 1 : 2 * half : 2, :, :]
        joined = log_sum_exp(left.unsqueeze(-1) + right.unsqueeze(-3), -2)
        steps = torch.cat([joined, steps[..., -1:, :, :]], -3) if length % 2 else joined
    return steps.squeeze(-3)
