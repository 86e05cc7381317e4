"""Runs of a model whose steps repeat: equal operations are carried out once, and equal sites have one log density for all."""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

__all__ = ["Memory", "alike", "log_densities"]

type Node = dict[str, Any]

PURE = frozenset(
    {
        *(
            "__getitem__",
            "select",
            "narrow",
            "index_select",
            "gather",
            "reshape",
            "view",
            "expand",
            "expand_as",
            "unsqueeze",
        ),
        *(
            "squeeze",
            "transpose",
            "permute",
            "flatten",
            "unflatten",
            "movedim",
            "t",
            "clone",
            "detach",
            "to",
            "double",
            "float",
        ),
        *(
            "long",
            "type_as",
            "add",
            "sub",
            "mul",
            "div",
            "true_divide",
            "neg",
            "pow",
            "exp",
            "log",
            "log1p",
            "expm1",
            "sqrt",
        ),
        *(
            "__add__",
            "__radd__",
            "__sub__",
            "__rsub__",
            "__mul__",
            "__rmul__",
            "__truediv__",
            "__rtruediv__",
            "__neg__",
        ),
        *(
            "__pow__",
            "__rpow__",
            "rsub",
            "__matmul__",
            "__rmatmul__",
            "matmul",
            "sum",
            "mean",
            "amax",
            "logsumexp",
            "softmax",
        ),
        *(
            "log_softmax",
            "sigmoid",
            "clamp",
            "clip",
            "tanh",
            "where",
            "stack",
            "cat",
            "concat",
            "square",
            "reciprocal",
            "abs",
        ),
        *(
            "broadcast_tensors",
            "lgamma",
            "eq",
            "ne",
            "lt",
            "le",
            "gt",
            "ge",
            "__eq__",
            "__ne__",
            "__lt__",
            "__le__",
            "__gt__",
            "__ge__",
        ),
    }
)
"""Names of functions whose result is the same for the same tensors."""


MADE = frozenset(
    {
        *("tensor", "full", "zeros", "ones", "eye", "arange", "linspace", "zeros_like", "ones_like", "full_like"),
        *("new_tensor", "new_full", "new_zeros", "new_ones"),
    }
)
"""Names of functions that make tensors: new ones each time, which may be written into, but equal until then."""


KNOWN = PURE | MADE


class Memory(TorchFunctionMode):
    """Carry out equal operations on the same tensors once.

    A loop such as that of a hidden Markov model indexes, normalises and takes the logarithm of one matrix at each step, by values
    that differ in nothing but the object. A write into any tensor ends the memory.
    """

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[Any, Any] = {}
        self.held: list[Any] = []
        self.standing: dict[int, Any] = {}
        self.intact = True

    def same(self, tensor: Tensor, as_one_of: Any) -> None:
        """Take all tensors of one description for the same."""
        self.held.append(tensor)
        self.standing[id(tensor)] = as_one_of

    def key(self, value: Any) -> Any:
        """Return what stands for an argument; raise TypeError where nothing does."""
        if isinstance(value, Tensor):
            return self.standing.get(id(value), id(value))
        if isinstance(value, tuple | list):
            return (type(value).__name__, *(self.key(each) for each in value))
        if isinstance(value, slice):
            return ("slice", *(self.key(each) for each in (value.start, value.stop, value.step)))
        if isinstance(value, torch.Size | torch.dtype | torch.device | None):
            return value
        if not isinstance(value, int | float | str | bool | type(Ellipsis)):
            raise TypeError
        return (type(value), value)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = getattr(func, "__name__", ""), kwargs or {}
        if name in ("__setitem__",) or (name.endswith("_") and not name.endswith("__")) or name.startswith("__i"):
            self.intact = self.intact and name in ("__invert__", "__index__", "__int__")
        self.intact = self.intact and kwargs.get("out") is None
        if not self.intact or name not in KNOWN:
            return func(*args, **kwargs)
        try:
            key = (name, *(self.key(each) for each in args), *((k, self.key(v)) for k, v in kwargs.items()))
        except TypeError:
            return func(*args, **kwargs)
        if name in MADE:
            made = func(*args, **kwargs)
            self.same(made, key)
            return made
        if key not in self.found:
            self.found[key] = func(*args, **kwargs)
            self.held.append((args, kwargs))
        return self.found[key]


def alike(nodes: Mapping[str, Node], memory: Memory) -> list[list[str]]:
    """Return the names of sites in groups of one distribution, with values of one shape."""
    groups: dict[Any, list[str]] = {}
    for name, node in nodes.items():
        value, mask = node["value"], node["mask"]
        parameters = _parameters(node["fn"], memory)
        if parameters is None or node["args"] or node["kwargs"] or not isinstance(value, Tensor):
            key = None
        else:
            masked = None if mask is None else tuple(mask.shape) if isinstance(mask, Tensor) else ()
            key = parameters, memory.standing.get(id(value)), tuple(value.shape), value.dtype, masked
        groups.setdefault(name if key is None else key, []).append(name)
    return list(groups.values())


def _parameters(distribution: Any, memory: Memory) -> Any:
    """Return what two equal distributions share; None for those that hold others in an unknown way."""
    if type(distribution).__name__ == "Independent":
        inner = _parameters(distribution.base_dist, memory)
        return inner and (inner, distribution.reinterpreted_batch_ndims)
    if hasattr(distribution, "base_dist") or not distribution.arg_constraints:
        return None
    values = [vars(distribution).get(name) for name in distribution.arg_constraints]
    if not any(isinstance(value, Tensor) for value in values):
        return None
    try:
        return type(distribution), tuple(distribution.batch_shape), *(memory.key(value) for value in values)
    except TypeError:
        return None


def log_densities(
    nodes: Sequence[Node], memory: Memory, absent: Callable[[Node], float]
) -> list[tuple[Tensor, int | None]]:
    """Return the masked log density of sites that are :func:`alike`, as a tensor for all of them and the place of each in it.

    Parameters
    ----------
    nodes : sequence of node
    memory : Memory
    absent : callable
        The log density of a site that is masked.
    """
    first = nodes[0]
    one = memory.standing.get(id(first["value"])) is not None or len(nodes) == 1
    if one:
        value = first["fn"].log_prob(first["value"], *first["args"], **first["kwargs"])
    else:
        # values one behind the other, in front of the batch of their distribution
        values = [node["value"] for node in nodes]
        num_batch = len(first["fn"].batch_shape)
        joined = _slice_of_base(values)
        joined = torch.stack(list(values)) if joined is None else joined
        missing = num_batch - (values[0].ndim - first["fn"].event_dim)
        value = first["fn"].log_prob(
            joined.reshape(len(values), *(1 for _ in range(max(0, missing))), *values[0].shape)
        )
    if first["mask"] is None:
        return [(value, None if one else place) for place in range(len(nodes))]
    masks = [torch.as_tensor(node["mask"], device=value.device) for node in nodes]
    if len(nodes) == 1:
        return [(torch.where(masks[0], value, absent(first)), None)]
    kept = torch.stack(masks)
    whole = value[None] if one else value
    kept = kept.reshape(len(nodes), *(1 for _ in range(whole.ndim - kept.ndim)), *kept.shape[1:])
    whole = torch.where(kept, whole, absent(first))
    return [(whole, place) for place in range(len(nodes))]


def _slice_of_base(values: Sequence[Tensor]) -> Tensor | None:
    """Return the tensor of which the values are evenly spaced rows or columns, cut to them; None if they are not."""
    base = values[0]._base
    if base is None or any(value._base is not base for value in values):
        return None
    offsets = [value.storage_offset() - base.storage_offset() for value in values]
    step = offsets[1] - offsets[0]
    if step <= 0 or any(b - a != step for a, b in pairwise(offsets)):
        return None
    for dim in range(base.ndim):
        rest = [d for d in range(base.ndim) if d != dim]
        is_row = values[0].shape == tuple(base.shape[d] for d in rest) and offsets[0] % max(1, base.stride(dim)) == 0
        if (
            is_row
            and values[0].stride() == tuple(base.stride(d) for d in rest)
            and step % max(1, base.stride(dim)) == 0
        ):
            first, by = offsets[0] // base.stride(dim), step // base.stride(dim)
            if first + by * (len(values) - 1) < base.shape[dim]:
                return base.movedim(dim, 0)[first : first + by * (len(values) - 1) + 1 : by]
    return None
