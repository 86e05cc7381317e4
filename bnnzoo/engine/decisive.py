"""Data by whose values a function decides, such as the number of groups: a graph of it holds them as constants.

A graph serves all tensors of the shapes that it was made for. One for which the value of an input was asked serves equal inputs
only, and every key by which a graph is found again has :func:`content_of` such an input in it.
"""

import hashlib
from collections.abc import Hashable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from bnnzoo.engine.torch_private import version_of

__all__ = ["ValueAsked", "can_decide", "content_of", "decide", "decide_alike", "kind_of", "may_decide"]

_CONTENTS: Any = WeakTensorKeyDictionary()
"""Versions and digests of tensors that decide, None for those that may."""


class ValueAsked(RuntimeError):
    """A function that is traced asks for the value of a tensor that depends on its inputs.

    Attributes
    ----------
    inputs : frozenset of int
        The inputs on which that value depends.
    """

    def __init__(self, operation: Any, inputs: Iterable[int]) -> None:
        super().__init__(f"The value of a tensor that depends on the inputs is asked for ({operation}).")
        self.inputs = frozenset(inputs)


def may_decide(tensors: Iterable[Any]) -> None:
    """Let a graph depend on the values of these tensors, which stay what they are.

    Examples
    --------
    >>> codes = torch.tensor([0, 2, 1])
    >>> may_decide([codes])
    >>> decide([codes]), content_of(codes) is None
    (True, False)
    >>> decide([torch.tensor([0, 2, 1])])
    False
    """
    for each in tensors:
        if isinstance(each, Tensor) and each not in _CONTENTS:
            _CONTENTS[each] = None


def decide(tensors: Iterable[Tensor]) -> bool:
    """Let graphs hold these tensors, if every one may decide, and tell whether any of them did not before."""
    tensors = list(tensors)
    new = [each for each in tensors if _CONTENTS.get(each) is None]
    if not all(each in _CONTENTS for each in new):
        return False
    for each in new:
        _CONTENTS[each] = _version(each), _digest(each)
    return bool(new)


def decide_alike(new: Iterable[Any], known: Iterable[Any]) -> None:
    """Let tensors decide, or be able to, that stand where others do."""
    pairs = [(a, b) for a, b in zip(new, known, strict=False) if isinstance(a, Tensor) and can_decide(b)]
    may_decide(a for a, _ in pairs)
    decide(a for a, b in pairs if content_of(b) is not None)


def can_decide(value: Any) -> bool:
    """Tell whether graphs may hold a tensor."""
    return len(_CONTENTS) > 0 and isinstance(value, Tensor) and value in _CONTENTS


def content_of(value: Any) -> bytes | None:
    """Return what equal tensors that decide share, None for every other value."""
    found = _CONTENTS.get(value) if len(_CONTENTS) and isinstance(value, Tensor) else None
    if found is None:
        return None
    if found[0] != _version(value):  # it was written into
        found = _CONTENTS[value] = _version(value), _digest(value)
    digest: bytes = found[1]
    return digest


def kind_of(tensor: Tensor) -> tuple[Hashable, ...]:
    """Return shape, strides, type, device of a tensor, its values if it decides: a graph made for one serves all of its kind."""
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.device, content_of(tensor)


def _version(tensor: Tensor) -> object:
    return 0 if tensor.is_inference() else version_of(tensor)


def _digest(tensor: Tensor) -> bytes:
    entries = tensor.detach().cpu().contiguous()
    return hashlib.sha256(entries.reshape(-1).view(torch.uint8).numpy().tobytes()).digest()
