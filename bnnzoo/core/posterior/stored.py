"""Objects as a tree of plain values and a table of tensors, and the way back."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from bnnzoo.core.model.density import LogDensity

__all__ = ["Owner", "Stored", "decode", "encode", "stored_kinds"]

type Tree = Any  # what JSON can hold
type Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class Owner:
    """What is known before a stored posterior is rebuilt, and is not stored with each of its parts.

    Attributes
    ----------
    density : LogDensity
    info : FitInfo
        Typed loosely, because :class:`~bnnzoo.core.posterior.info.FitInfo` is stored itself.
    guide : callable, optional
        The user's Pyro guide, for a posterior that is one.
    """

    density: LogDensity
    info: Any = None
    guide: Callable[..., Any] | None = None


class Stored:
    """A dataclass that can be stored: tensors, plain values, and other stored objects.

    A class whose fields are something else says in :meth:`state` what of them to keep, and in :meth:`from_state` how to
    rebuild itself.
    """

    def state(self) -> dict[str, Any]:
        """Return what to store: every field but the density and the record of the fit, which the file holds once."""
        return {name: getattr(self, name) for name in _field_names(type(self)) if name not in ("density", "info")}

    @classmethod
    def from_state(cls, state: Mapping[str, Any], owner: Owner) -> "Stored":
        """Return the object of which :meth:`state` was stored."""
        shared = {name: getattr(owner, name) for name in ("density", "info") if name in _field_names(cls)}
        return cls(**state, **shared)


def encode(value: Any, tensors: Tensors) -> Tree:
    """Return a value as JSON knows it; its tensors are added to ``tensors``, and the tree refers to them by name.

    The order of a tensor's dimensions in memory is kept: a product of matrices may differ in the last digit with it.

    Raises
    ------
    TypeError
        If a value is neither a tensor nor plain nor :class:`Stored`.

    Examples
    --------
    >>> tensors = {}
    >>> tree = encode({"loc": torch.zeros(2), "names": ("a", "b")}, tensors)
    >>> tree["dict"]["names"], list(tensors)
    ({'tuple': ['a', 'b']}, ['0'])
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Tensor):
        strides = value.stride()
        in_memory = sorted(range(value.ndim), key=lambda dim: -strides[dim])
        name = str(len(tensors))
        tensors[name] = value.detach().cpu().permute(in_memory).clone(memory_format=torch.contiguous_format)
        return {"tensor": name, "dims": [in_memory.index(dim) for dim in range(value.ndim)]}
    if isinstance(value, Stored):
        return {"kind": type(value).__name__, "state": encode(value.state(), tensors)}
    if isinstance(value, Mapping):
        return {"dict": {str(name): encode(item, tensors) for name, item in value.items()}}
    if isinstance(value, tuple | list):
        return {"tuple" if isinstance(value, tuple) else "list": [encode(item, tensors) for item in value]}
    raise TypeError(
        f"A {type(value).__name__} cannot be saved. Let state() return tensors, numbers, strings and Stored."
    )


def stored_kinds() -> dict[str, type[Stored]]:
    """Return what a file may hold, by name: the classes that exist in this process, so that a file never says what to import.

    Of a user's classes of one name it is the latest, as of a cell that was run again; names of the library's are its own.
    """
    found: dict[str, type[Stored]] = {}
    for kind in _below(Stored):
        known = found.get(kind.__name__)
        if known is None or not known.__module__.startswith("bnnzoo."):
            found[kind.__name__] = kind
    return found


def _below(kind: type[Stored]) -> Iterator[type[Stored]]:
    for each in kind.__subclasses__():
        yield each
        yield from _below(each)


def decode(tree: Tree, tensors: Mapping[str, Tensor], kinds: Mapping[str, type[Stored]], owner: Owner) -> Any:
    """Return the value of which :func:`encode` made ``tree`` and ``tensors``; ``kinds`` are the classes it may hold."""
    if not isinstance(tree, dict):
        return tree
    forms = [name for name in ("tensor", "kind", "dict", "tuple", "list") if name in tree]
    if len(forms) != 1:
        raise TypeError(f"a value is of no form, or of several: {', '.join(forms) or 'none'}")
    form, content = forms[0], tree[forms[0]]
    if form == "tensor":
        return tensors[content].permute(tree["dims"]).to(owner.density.device)
    if form == "kind":
        kind = kinds.get(content)
        if kind is None:
            raise ValueError(
                f"The file holds a {content}, which this version of bnnzoo does not know. Load it with the one that wrote it; "
                f"for a class of your own, import its module first."
            )
        return kind.from_state(decode(tree["state"], tensors, kinds, owner), owner)
    if form == "dict":
        return {name: decode(item, tensors, kinds, owner) for name, item in content.items()}
    items = [decode(item, tensors, kinds, owner) for item in content]
    return tuple(items) if form == "tuple" else items


def _field_names(kind: type) -> list[str]:
    return [field.name for field in fields(kind)]
