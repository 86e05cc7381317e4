"""Operations that are not written in C++, as functions of others.

Torch has functions of the same purpose, many of which import its compiler when they are first called: that takes longer than a
small fit.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

__all__ = ["DECOMPOSED", "MORE"]

aten = torch.ops.aten


def _var_mean(
    x: Tensor, dim: Sequence[int] | None = None, *, correction: float | int | None = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    dims = list(range(x.ndim)) if not dim else list(dim)
    mean = x.mean(dims, keepdim=True)
    squares = (x - mean).square().sum(dims, keepdim=keepdim)
    number = math.prod(x.shape[each] for each in dims) - (1 if correction is None else correction)
    return squares / number, mean if keepdim else mean.squeeze(dims)


def _full_like(x: Tensor, value: Any, *, dtype: torch.dtype | None = None, **options: Any) -> Tensor:
    return torch.full(x.shape, value, dtype=dtype or x.dtype, device=x.device)


def _empty_like(x: Tensor, *, dtype: torch.dtype | None = None, **options: Any) -> Tensor:
    return torch.empty(x.shape, dtype=dtype or x.dtype, device=x.device)


def _clamp(x: Tensor, low: Any = None, high: Any = None) -> Tensor:
    if isinstance(low, Tensor) or isinstance(high, Tensor):
        x = x if low is None else torch.maximum(x, low)
        return x if high is None else torch.minimum(x, high)
    x = x if low is None else x.clamp_min(low)
    return x if high is None else x.clamp_max(high)


def _logaddexp(a: Tensor, b: Tensor) -> Tensor:
    high, low = torch.maximum(a, b), torch.minimum(a, b)
    return torch.where((a == b) & a.isinf(), a, high + (low - high).exp().log1p())


def _logsumexp(x: Tensor, dim: Sequence[int], keepdim: bool = False) -> Tensor:
    dims = list(dim)
    if not x.numel():
        return x.exp().sum(dims, keepdim=keepdim).log()
    high = x.amax(dims, keepdim=True)
    high = torch.where(high.isinf(), 0.0, high)
    return (x - high).exp().sum(dims, keepdim=keepdim).log() + (high if keepdim else high.sum(dims))


def _softmax(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    power = (x - x.amax([dim], keepdim=True)).exp() if x.numel() else x.exp()
    return power / power.sum([dim], keepdim=True)


def _log_softmax(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    shifted = x - x.amax([dim], keepdim=True) if x.numel() else x
    return shifted - shifted.exp().sum([dim], keepdim=True).log()


def _zero_times(of: Callable[[Any], Tensor]) -> Callable[[Any, Any], Tensor]:
    """Return ``(a, b) -> a of(b)``, which is zero if ``a`` is."""

    def times(a: Any, b: Any) -> Tensor:
        tensor = a if isinstance(a, Tensor) else b
        a, b = (
            each if isinstance(each, Tensor) else torch.full((), each, dtype=tensor.dtype, device=tensor.device)
            for each in (a, b)
        )
        return torch.where(b.isnan(), torch.nan, torch.where(a == 0, 0.0, a * of(b)))

    return times


def _softplus(x: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    return torch.where(x * beta > threshold, x, (x * beta).exp().log1p() / beta)


def _elu(x: Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Tensor:
    return torch.where(x <= 0, (x * input_scale).expm1() * (alpha * scale), x * scale)


def _gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    if approximate == "tanh":
        return 0.5 * x * (1 + (math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)).tanh())
    return 0.5 * x * (1 + (x * math.sqrt(0.5)).erf())


def _lerp(start: Tensor, end: Tensor, weight: Any) -> Tensor:
    gap = end - start
    if isinstance(weight, Tensor):
        return torch.where(weight.abs() < 0.5, start + weight * gap, end - gap * (1 - weight))
    return start + weight * gap if abs(weight) < 0.5 else end - gap * (1 - weight)


def _logit(x: Tensor, eps: float | None = None) -> Tensor:
    x = x if eps is None else x.clamp(eps, 1 - eps)
    return (x / (1 - x)).log()


def _softplus_backward(g: Tensor, x: Tensor, beta: float, threshold: float) -> Tensor:
    power = (x * beta).exp()
    return torch.where(x * beta > threshold, g, g * power / (power + 1))


def _log_sigmoid(x: Tensor) -> tuple[Tensor, Tensor]:
    power = (-x.abs()).exp()
    return x.clamp_max(0.0) - power.log1p(), power


def _log_sigmoid_backward(g: Tensor, x: Tensor, power: Tensor) -> Tensor:
    small = power / (1 + power)
    return g * torch.where(x < 0, 1 - small, small)


def _elu_backward(g: Tensor, alpha: float, scale: float, input_scale: float, is_result: bool, x: Tensor) -> Tensor:
    below = g * input_scale * (x + alpha * scale if is_result else (x * input_scale).exp() * (alpha * scale))
    return torch.where(x <= 0, below, g * scale)


def _gelu_backward(g: Tensor, x: Tensor, *, approximate: str = "none") -> Tensor:
    if approximate == "tanh":
        share = (math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)).tanh()
        slope = math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x * x)
        return g * (0.5 * (1 + share) + 0.5 * x * (1 - share * share) * slope)
    density = (-0.5 * x * x).exp() / math.sqrt(2 * math.pi)
    return g * (0.5 * (1 + (x * math.sqrt(0.5)).erf()) + x * density)


def _silu_backward(g: Tensor, x: Tensor) -> Tensor:
    share = x.sigmoid()
    return g * share * (1 + x * (1 - share))


def _softmax_backward(g: Tensor, y: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
    weighted = g * y
    return weighted - y * weighted.sum([dim], keepdim=True)


def _log_softmax_backward(g: Tensor, y: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
    return g - y.exp() * g.sum([dim], keepdim=True)


def _logit_backward(g: Tensor, x: Tensor, eps: float | None = None) -> Tensor:
    inside = g / (x * (1 - x))
    if eps is None:
        return torch.where((x < 0) | (x > 1), torch.nan, inside)
    return torch.where((x < eps) | (x > 1 - eps), 0.0, inside)


_xlogy, _xlog1py = _zero_times(torch.log), _zero_times(torch.log1p)

DECOMPOSED: dict[Any, Callable[..., Any]] = {
    aten.lift_fresh.default: torch.clone,
    aten.var_mean.correction: _var_mean,
    aten.full_like.default: _full_like,
    aten.empty_like.default: _empty_like,
    **dict.fromkeys((aten.clamp.default, aten.clamp.Tensor), _clamp),
    aten.stack.default: lambda parts, dim=0: torch.cat([each.unsqueeze(dim) for each in parts], dim),
    aten.logaddexp.default: _logaddexp,
    aten.logsumexp.default: _logsumexp,
    **dict.fromkeys((aten.xlogy.Tensor, aten.xlogy.Scalar_Self, aten.xlogy.Scalar_Other), _xlogy),
    aten.special_xlog1py.default: _xlog1py,
    aten.sgn.default: torch.sign,
    aten.softplus.default: _softplus,
    aten.elu.default: _elu,
    aten.gelu.default: _gelu,
    aten.leaky_relu.default: lambda x, slope=0.01: torch.where(x > 0, x, x * slope),
    aten.hardtanh.default: lambda x, low=-1.0, high=1.0: _clamp(x, low, high),
    aten.threshold.default: lambda x, threshold, value: torch.where(x <= threshold, value, x),
    aten.addcmul.default: lambda x, a, b, *, value=1: x + value * a * b,
    aten.addcdiv.default: lambda x, a, b, *, value=1: x + value * (a / b),
    **dict.fromkeys((aten.lerp.Scalar, aten.lerp.Tensor), _lerp),
    aten.logit.default: _logit,
    aten.dot.default: lambda a, b: (a * b).sum(),
    aten.mv.default: lambda a, b: (a * b).sum([1]),
    aten.silu.default: lambda x: x * x.sigmoid(),
    aten.log_sigmoid_forward.default: _log_sigmoid,
    aten.sigmoid_backward.default: lambda g, y: g * (y * (1 - y)),
    aten.tanh_backward.default: lambda g, y: g * (1 - y * y),
    aten.softplus_backward.default: _softplus_backward,
    aten.log_sigmoid_backward.default: _log_sigmoid_backward,
    aten.elu_backward.default: _elu_backward,
    aten.gelu_backward.default: _gelu_backward,
    aten.silu_backward.default: _silu_backward,
    aten.leaky_relu_backward.default: lambda g, x, slope, is_result: torch.where(x > 0, g, g * slope),
    aten.hardtanh_backward.default: lambda g, x, low, high: torch.where((x <= low) | (x >= high), 0.0, g),
    aten._softmax.default: _softmax,
    aten._log_softmax.default: _log_softmax,
    aten._softmax_backward_data.default: _softmax_backward,
    aten._log_softmax_backward_data.default: _log_softmax_backward,
    aten.logit_backward.default: _logit_backward,
}

MORE = (
    *(aten.index_select, aten.addmv, aten.linalg_vector_norm, aten.dist),
    *(aten.permute_copy, aten.tril_indices, aten.triu_indices),
    *(aten.native_layer_norm, aten._native_batch_norm_legit, aten.native_batch_norm, aten.native_group_norm),
    *(aten.bitwise_and_, aten.bitwise_or_, aten.clamp_min_),
)
"""Operations to decompose as torch does, besides those that torch usually does."""
