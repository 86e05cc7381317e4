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


def _index_select(x: Tensor, dim: int, index: Tensor) -> Tensor:
    if not x.ndim:
        return x.clone()
    found: Tensor = aten.index.Tensor(x, [*[None] * (dim % x.ndim), index.reshape(-1)])
    return found


def _index_copy(x: Tensor, dim: int, index: Tensor, values: Tensor) -> Tensor:
    if not x.ndim:
        return values.reshape(())
    copied: Tensor = aten.index_put.default(x, [*[None] * (dim % x.ndim), index.reshape(-1)], values)
    return copied


def _index_add(x: Tensor, dim: int, index: Tensor, values: Tensor, *, alpha: float | int = 1) -> Tensor:
    values = values if alpha == 1 else values * alpha
    if not x.ndim:
        return x + values.sum()
    added: Tensor = aten.index_put.default(x, [*[None] * (dim % x.ndim), index.reshape(-1)], values, True)
    return added


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


def _cholesky_inverse(factor: Tensor, upper: bool = False) -> Tensor:
    eye = torch.eye(factor.shape[-1], dtype=factor.dtype, device=factor.device).expand_as(factor)
    return _cholesky_solve(eye, factor, upper)


def _cholesky_solve(sides: Tensor, factor: Tensor, upper: bool = False) -> Tensor:
    lower = factor.mT if upper else factor
    half = torch.linalg.solve_triangular(lower, sides, upper=False)
    return torch.linalg.solve_triangular(lower.mT, half, upper=True)


def _lu_solve(factors: Tensor, rows: Tensor, sides: Tensor, *, left: bool = True, adjoint: bool = False) -> Any:
    if not left:
        return aten.linalg_lu_solve(factors, rows, sides.mT, adjoint=not adjoint).mT
    batch = torch.broadcast_shapes(factors.shape[:-2], sides.shape[:-2])
    if batch == factors.shape[:-2] == sides.shape[:-2]:
        return NotImplemented
    factors, sides = (each.expand(*batch, *each.shape[-2:]) for each in (factors, sides))
    return aten.linalg_lu_solve(factors, rows.expand(*batch, rows.shape[-1]), sides, adjoint=adjoint)


def _inverse(x: Tensor, *, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    factors, rows, info = aten.linalg_lu_factor_ex(x)
    eye = torch.eye(x.shape[-1], dtype=x.dtype, device=x.device).expand_as(x)
    return aten.linalg_lu_solve(factors, rows, eye), info


_MATRIX = torch.tensor([[1.0, 2.0], [3.0, 5.0]], device="cpu")
_TURNED = {
    operation: not torch.equal(factors, aten.linalg_lu_factor_ex(_MATRIX)[0])
    for operation, factors in (
        (aten._linalg_solve_ex, aten._linalg_solve_ex(_MATRIX, _MATRIX)[1]),
        (aten._linalg_slogdet, aten._linalg_slogdet(_MATRIX)[2]),
        (aten._linalg_det, aten._linalg_det(_MATRIX)[1]),
    )
}
"""Whether torch factors the transpose of a matrix that lies row by row, which depends on its release."""


def _factored(operation: Any, x: Tensor) -> tuple[Tensor, Tensor, Tensor, bool]:
    """Factor a matrix as an operation does, whose derivative takes the factors, and tell whether they are the transpose's."""
    is_turned = _TURNED[operation] and x.is_contiguous()
    return *aten.linalg_lu_factor_ex(x.mT if is_turned else x), is_turned


def _solve(
    x: Tensor, sides: Tensor, *, left: bool = True, check_errors: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    factors, rows, info, is_turned = _factored(aten._linalg_solve_ex, x)
    is_vector = sides.ndim == 1 or (sides.ndim == x.ndim - 1 and sides.shape == x.shape[:-1])
    columns = sides.unsqueeze(-1) if is_vector else sides
    found = aten.linalg_lu_solve(factors, rows, columns, left=left or is_vector, adjoint=is_turned)
    return found.squeeze(-1) if is_vector else found, factors, rows, info


def _log_determinant(x: Tensor, operation: Any = aten._linalg_slogdet) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    factors, rows, _, _ = _factored(operation, x)
    pivots = factors.diagonal(dim1=-2, dim2=-1)
    own = torch.arange(1, rows.shape[-1] + 1, dtype=rows.dtype, device=rows.device)
    is_negative = ((rows != own).sum(-1) + (pivots < 0).sum(-1)) % 2
    sign = (1 - 2 * is_negative).to(x.dtype) * (pivots != 0).all(-1)
    return torch.where(pivots.isnan().any(-1), torch.nan, sign), pivots.abs().log().sum(-1), factors, rows


def _determinant(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    sign, size, factors, rows = _log_determinant(x, aten._linalg_det)
    return sign * size.exp(), factors, rows


def _cdist(a: Tensor, b: Tensor, p: float, mode: int | None) -> Any:
    if p not in (1.0, 2.0):
        return NotImplemented
    apart = a.unsqueeze(-2) - b.unsqueeze(-3)
    return apart.abs().sum(-1) if p == 1.0 else apart.square().sum(-1).sqrt()


def _cdist_backward(g: Tensor, a: Tensor, b: Tensor, p: float, found: Tensor) -> Any:
    if p not in (1.0, 2.0):
        return NotImplemented
    apart = a.unsqueeze(-2) - b.unsqueeze(-3)
    if p == 1.0:
        return (g.unsqueeze(-1) * apart.sign()).sum(-2)
    return (torch.where(found == 0, 0.0, g / found).unsqueeze(-1) * apart).sum(-2)


def _erfinv(y: Tensor) -> Tensor:
    size, rest = y.abs(), 1 - y.abs()
    log, a = (rest * (1 + size)).log(), 0.147
    half = 2 / (math.pi * a) + log / 2
    x = ((half * half - log / a).sqrt() - half).clamp_min(0.0).sqrt()  # of Winitzki's, to 0.002
    for _ in range(3):  # of Halley's, which triple the digits; near one they come from the complement
        gap = torch.where(size > 0.5, rest - x.erfc(), x.erf() - size)
        step = gap * (x * x).exp() * (math.sqrt(math.pi) / 2)
        x = x - step / (1 + x * step)
    return y.sign() * torch.where(size < 1, x, torch.where(size == 1, torch.inf, torch.nan))


def _erfcx(x: Tensor) -> Tensor:
    from_there = 25.0 if x.dtype == torch.float64 else 5.0  # where the complement has few digits left
    small = x.clamp_max(from_there)
    large = x.clamp_min(from_there)
    share, series = 1 / (2 * large * large), torch.ones_like(x)
    for number in (11, 9, 7, 5, 3, 1):
        series = 1 - number * share * series
    return torch.where(x < from_there, (small * small).exp() * small.erfc(), series / (large * math.sqrt(math.pi)))


def _polygamma(order: int, x: Tensor) -> Any:
    if order != 1:
        return NotImplemented
    z = torch.where(x < 0.5, 1 - x, x)
    terms = sum((1 / (z + number).square() for number in range(15)), torch.zeros_like(z))
    inverse = 1 / (z + 15)
    square = inverse * inverse
    series = 1 / 6 - square * (1 / 30 - square * (1 / 42 - square * (1 / 30 - square * (5 / 66))))
    found = terms + inverse + square / 2 + inverse * square * series
    return torch.where(x < 0.5, (math.pi / (math.pi * x).sin()).square() - found, found)


def _unfold(x: Tensor, dim: int, size: int, step: int) -> Tensor:
    moved = x.movedim(dim, -1)
    starts = torch.arange(0, moved.shape[-1] - size + 1, step, device=x.device)
    return moved[..., starts[:, None] + torch.arange(size, device=x.device)].movedim(-2, dim if dim >= 0 else dim - 1)


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
    aten.index_select.default: _index_select,
    aten.index_copy.default: _index_copy,
    aten.index_add.default: _index_add,
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
    aten._cdist_forward.default: _cdist,
    aten._cdist_backward.default: _cdist_backward,
    aten.erfinv.default: _erfinv,
    aten.special_erfcx.default: _erfcx,
    aten.polygamma.default: _polygamma,
    aten.embedding.default: lambda table, places, *_: table[places],
    aten.unfold.default: _unfold,
    aten.cholesky_inverse.default: _cholesky_inverse,
    aten.cholesky_solve.default: _cholesky_solve,
    aten.linalg_lu_solve.default: _lu_solve,
    aten.linalg_inv_ex.default: _inverse,
    aten._linalg_solve_ex.default: _solve,
    aten._linalg_slogdet.default: _log_determinant,
    aten._linalg_det.default: _determinant,
}

MORE = (
    *(aten.addmv, aten.linalg_vector_norm, aten.dist),
    *(aten.permute_copy, aten.tril_indices, aten.triu_indices),
    *(aten.native_layer_norm, aten._native_batch_norm_legit, aten.native_batch_norm, aten.native_group_norm),
    *(aten.bitwise_and_, aten.bitwise_or_, aten.clamp_min_),
)
"""Operations to decompose as torch does, besides those that torch usually does."""
