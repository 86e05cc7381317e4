"""Models that fill tensors in place, as ``p = torch.zeros(n); p[0] = q``: batched like all others.

``vmap`` refuses to write values that have a batch dimension into a tensor that has none. So every tensor that such a model
makes or copies gets the batch dimension of its latent values; the graph is then freed of writes, see
:func:`bnnzoo.engine.graphs.trace`.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import update_wrapper
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from bnnzoo.core.types import Model
from bnnzoo.engine import pytree

__all__ = ["FillingModel", "fills_in_place", "made_in_batches"]

_MAKERS = frozenset(
    {
        *(torch.empty, torch.zeros, torch.ones, torch.full, torch.eye, torch.tensor, torch.clone, Tensor.clone),
        *(torch.empty_like, torch.zeros_like, torch.ones_like, torch.full_like),
        *(Tensor.new_empty, Tensor.new_zeros, Tensor.new_ones, Tensor.new_full, Tensor.new_tensor),
    }
)


@dataclass(eq=False)
class FillingModel:
    """A model that writes latent values into tensors it has made."""

    model: Model

    def __post_init__(self) -> None:
        update_wrapper(self, self.model, updated=())  # its name and its arguments

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model."""
        return self.model(*args, **kwargs)


_VIEWS = frozenset(
    [
        "__get__",
        "__getitem__",
        "chunk",
        "diagonal",
        "expand",
        "expand_as",
        "flatten",
        "movedim",
        "narrow",
        "permute",
        "reshape",
        "select",
        "split",
        "squeeze",
        "swapaxes",
        "t",
        "transpose",
        "unbind",
        "unflatten",
        "unsqueeze",
        "view",
        "view_as",
    ]
)
"""Names of functions that return parts of a tensor, or one of its attributes, and compute nothing."""


def _writes(func: Any) -> bool:
    name = getattr(func, "__name__", "")
    return func is Tensor.__setitem__ or (name.endswith("_") and not name.endswith("__"))


class _Watch(TorchFunctionMode):
    """Note whether a tensor that depends on a latent value is written into one that does not."""

    def __init__(self) -> None:
        super().__init__()
        self.found = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if _writes(func) and not self.found and args and isinstance(args[0], Tensor) and not args[0].requires_grad:
            written = pytree.tree_leaves((args[1:], kwargs or {}))
            self.found = any(isinstance(value, Tensor) and value.requires_grad for value in written)
        return func(*args, **(kwargs or {}))


class _InBatches(TorchFunctionMode):
    """Give every tensor that is made the batch dimensions of another, and compute with copies of it.

    Torch keeps what it computes with until it is differentiated, and refuses tensors that were written into in the meantime, as
    ``m[t] = a * m[t - 1]`` does.
    """

    def __init__(self, like: Tensor) -> None:
        super().__init__()
        self.nothing = like.detach().reshape(-1)[:1].sum() * 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        is_view, kwargs = getattr(func, "__name__", "") in _VIEWS, kwargs or {}
        is_part = is_view and bool(args) and isinstance(args[0], Tensor) and hasattr(args[0], _FILLED)
        if not (is_view or _writes(func)):
            args, kwargs = pytree.tree_map_only(Tensor, _own_copy, (args, kwargs))
        elif func is Tensor.__setitem__:
            args = (*args[:2], *pytree.tree_map_only(Tensor, _own_copy, args[2:]))
        made = func(*args, **kwargs)
        if func in _MAKERS and not made.requires_grad and made.is_floating_point():
            return _marked(made + self.nothing.to(made.dtype))
        return pytree.tree_map_only(Tensor, _marked, made) if is_part else made


_FILLED = "_bnnzoo_filled"


def _marked(tensor: Tensor) -> Tensor:
    setattr(tensor, _FILLED, True)
    return tensor


def _own_copy(tensor: Tensor) -> Tensor:
    return tensor.clone() if hasattr(tensor, _FILLED) else tensor


@contextmanager
def fills_in_place() -> Iterator[Callable[[], bool]]:
    """Yield a function that tells whether, within the context, latent values were written into tensors without any.

    Latent values require a gradient, as they do when a model is first run.
    """
    with _Watch() as watch:
        yield lambda: watch.found


@contextmanager
def made_in_batches(model: Model, values: Mapping[str, Tensor]) -> Iterator[None]:
    """Within this context, tensors made by a :class:`FillingModel` have the batch dimensions of its latent values."""
    like = next((value for value in values.values() if value.is_floating_point()), None)
    if not isinstance(model, FillingModel) or like is None:
        yield
        return
    with _InBatches(like):
        yield
