"""Numerical failures at single points: which errors they are, and linear algebra that returns NaN where it would raise."""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.fx import GraphModule

from bnnzoo.engine import pytree
from bnnzoo.engine.torch_private import DispatchMode

__all__ = ["FailuresAsNaN", "Unfailing", "is_numerical", "may_raise", "rescued"]

aten = torch.ops.aten
LinAlgError: type[Exception] = torch.linalg.LinAlgError  # type: ignore[attr-defined]  # public, but not in its __all__

MESSAGES = (
    "but found invalid values",  # an argument of a torch distribution outside its support
    "math domain error",
    "expected a positive input",
    "expected rate to be non-negative",
    "Expected p_in >= 0 && p_in <= 1",
    "expects all elements of std >= 0.0",
    "probability tensor contains either",
    "failed to converge",
)
"""What libraries say of a point at which they cannot compute, in errors whose types say nothing."""

RAISING = {
    aten._linalg_eigh.default,
    aten._linalg_svd.default,
    aten.linalg_eig.default,
    aten._linalg_eigvals.default,
}
"""Decompositions that check for convergence themselves, where factorisations leave the check to an operation of its own."""

OF_VECTORS = {aten._sample_dirichlet.default, aten.multinomial.default}
OF_POSITIVE = {
    aten.poisson.default,
    aten.bernoulli.default,
    aten.binomial.default,
    aten._standard_gamma.default,
    *OF_VECTORS,
}
DRAWS = OF_POSITIVE | {aten.normal.Tensor_float, aten.normal.float_Tensor, aten.normal.Tensor_Tensor}
"""Random numbers that torch refuses to draw where an argument is NaN or negative, or draws as if it were another number."""


def is_numerical(error: BaseException) -> bool:
    """Tell whether an error says that numbers, and not the code, are at fault: another point may do.

    Examples
    --------
    >>> is_numerical(OverflowError("math range error")), is_numerical(TypeError("unsupported operand"))
    (True, False)
    """
    if isinstance(error, LinAlgError | np.linalg.LinAlgError | ArithmeticError):
        return True
    return isinstance(error, ValueError | RuntimeError) and any(message in str(error) for message in MESSAGES)


class FailuresAsNaN(DispatchMode):
    """Let factorisations and decompositions that fail return NaN, matrix by matrix, where they would raise, and draws follow.

    Examples
    --------
    >>> with FailuresAsNaN():
    ...     torch.linalg.cholesky(torch.tensor([[[4.0]], [[-1.0]]])).flatten().tolist()
    [2.0, nan]
    """

    def __init__(self) -> None:
        super().__init__()
        self._run = Unfailing()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        draw = _drawn_or_nan if func in DRAWS else self._run
        return draw(func, args, kwargs or {})


class Unfailing:
    """Runs operations one after the other; what a factorisation that fails returns is NaN, also for the check that follows."""

    def __init__(self) -> None:
        self._last: Sequence[Any] = ()

    def __call__(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Return the result of an operation of torch."""
        if func is aten._linalg_check_errors.default:
            failed = args[0] != 0
            if any(each is args[0] for each in self._last):
                for each in self._last:
                    if isinstance(each, Tensor) and each.is_floating_point():
                        # autograd has kept the factor for its derivative, which is to be NaN as well, and not to be refused
                        each.data.masked_fill_(
                            failed.reshape(*failed.shape, *(1,) * (each.ndim - failed.ndim)), torch.nan
                        )
            return None
        try:
            result = func(*args, **kwargs)
        except LinAlgError:
            return _matrix_by_matrix(lambda matrix: func(matrix, *args[1:], **kwargs), args[0])
        parts = result if isinstance(result, tuple | list) else ()
        if any(isinstance(each, Tensor) and each.dtype == torch.int32 for each in parts):  # that say which failed
            self._last = result
        return result


def may_raise(graph: GraphModule) -> bool:
    """Tell whether a graph holds decompositions that raise where they do not converge."""
    return any(node.target in RAISING for node in graph.graph.nodes)


def rescued(function: Callable[..., Sequence[Tensor]], graph: GraphModule) -> Callable[..., Sequence[Tensor]]:
    """Return ``function``, evaluated by ``graph`` with NaN for what fails where it raises; as it is if it cannot raise."""
    if not may_raise(graph) and not any(node.target in DRAWS for node in graph.graph.nodes):
        return function

    def guarded(*tensors: Any) -> Sequence[Tensor]:
        before = [(each, each.get_state()) for each in tensors if isinstance(each, torch.Generator)]
        try:
            return function(*tensors)
        except RuntimeError as error:
            if not is_numerical(error):
                raise
            for generator, state in before:
                generator.set_state(state)
            with FailuresAsNaN():
                found: Sequence[Tensor] = graph(*tensors)
            return found

    return guarded


def _drawn_or_nan(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
    """Return random numbers, NaN where an argument is or must not be negative; classes become floating-point numbers for it."""
    given = [each for each in args if isinstance(each, Tensor)]
    wrong = {id(each): each.isnan() | (each < 0) if func in OF_POSITIVE else each.isnan() for each in given}
    is_lost = reduce(torch.logical_or, wrong.values())
    if func in OF_VECTORS:
        is_lost = is_lost.any(-1, keepdim=True)
    harmless = (each.masked_fill(wrong[id(each)], 0.5) if id(each) in wrong else each for each in args)
    found: Tensor = func(*harmless, **kwargs)
    if func is aten.multinomial.default and bool(is_lost.any()):
        found = found.to(given[0].dtype)
    return found.masked_fill(is_lost, torch.nan) if found.is_floating_point() else found


def _matrix_by_matrix(decompose: Callable[[Tensor], Any], matrices: Tensor) -> Any:
    """Decompose ``matrices[..., N, M]`` one by one, with NaN for those that fail."""
    batch, size = matrices.shape[:-2], matrices.shape[-2:]
    expected, spec = pytree.tree_flatten(decompose(torch.eye(*size, dtype=matrices.dtype, device=matrices.device)))
    nothing = [torch.full_like(each, torch.nan) for each in expected]

    def leaves(matrix: Tensor) -> list[Tensor]:
        try:
            return pytree.tree_leaves(decompose(matrix))
        except LinAlgError:
            return nothing

    found = zip(*map(leaves, matrices.reshape(-1, *size)), strict=True)
    stacked = [torch.stack(each).reshape(*batch, *each[0].shape) for each in found]
    return pytree.tree_unflatten(stacked, spec)
