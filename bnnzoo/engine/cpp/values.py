"""Nodes of a graph in C++: memory seen with strides, or expressions that have yet to be evaluated."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

__all__ = [
    "TYPES",
    "Access",
    "Affine",
    "Body",
    "Buffer",
    "Cannot",
    "Lazy",
    "Read",
    "View",
    "contiguous_strides",
    "count",
]

type Shape = tuple[int, ...]

TYPES = {
    torch.float32: "float",
    torch.float64: "double",
    torch.int64: "int64_t",
    torch.int32: "int32_t",
    torch.int16: "int16_t",
    torch.int8: "int8_t",
    torch.uint8: "uint8_t",
    torch.bool: "bool",
}
"""Types of entries, and what C++ calls them."""


class Cannot(Exception):
    """A graph holds something that is not written in C++ here."""


class Access(NamedTuple):
    """Entries of a buffer, from ``low`` to before ``high``, that a statement reads or writes.

    ``place`` is the one that each step of a loop touches, empty if they are complete only after the loop.
    """

    name: str
    low: int
    high: int
    place: str = ""

    def meets(self, other: "Access") -> bool:
        """Tell whether two of them have entries in common."""
        return self.name == other.name and self.low < other.high and other.low < self.high


@dataclass(frozen=True)
class Affine:
    """A place that is linear in the variables of loops."""

    terms: Mapping[str, int] = field(default_factory=dict)
    constant: int = 0

    def scaled(self, factor: int) -> "Affine":
        """Return the product with a number."""
        return Affine({name: factor * each for name, each in self.terms.items() if factor}, factor * self.constant)

    def plus(self, other: "Affine") -> "Affine":
        """Return the sum of two places."""
        names = dict.fromkeys((*self.terms, *other.terms))
        terms = {name: self.terms.get(name, 0) + other.terms.get(name, 0) for name in names}
        return Affine({name: each for name, each in terms.items() if each}, self.constant + other.constant)

    def __str__(self) -> str:
        """Return it in C++, the same for equal places."""
        parts = [name if each == 1 else f"{each} * {name}" for name, each in sorted(self.terms.items())]
        return " + ".join([*parts, *([str(self.constant)] if self.constant or not parts else [])])


@dataclass(frozen=True)
class Buffer:
    """Memory of ``size`` entries of one type."""

    name: str
    dtype: torch.dtype
    size: int
    is_constant: bool = False


class Read(NamedTuple):
    """How an expression of some shape reads a buffer: a step for each dimension, from ``offset`` on.

    One that is ``scattered`` reads more than the entry at its place.
    """

    buffer: Buffer
    strides: Shape
    offset: int
    extent: int
    scattered: bool = False

    def access(self, index: tuple[Affine, ...] | None = None) -> Access:
        """Return the entries that are read, and where a step at ``index`` reads them."""
        place = "" if index is None or self.scattered else str(self.place(index))
        return Access(self.buffer.name, self.offset, self.offset + self.extent, place)

    def place(self, index: tuple[Affine, ...]) -> Affine:
        """Return where in the buffer an entry lies."""
        found = Affine({}, self.offset)
        for each, stride in zip(index, self.strides, strict=True):
            found = found.plus(each.scaled(stride))
        return found


class Body:
    """Lines of C++ inside a loop, in which nothing is loaded or computed twice."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.cuts: list[int] = []
        self._known: dict[object, str] = {}

    def let(self, dtype: torch.dtype, expression: str, key: object = None) -> str:
        """Return the name of a new constant, or of the known one for ``key``."""
        key = key or (dtype, expression)
        if key not in self._known:
            self._known[key] = f"v{len(self._known)}"
            self.lines.append(f"const {TYPES[dtype]} {self._known[key]} = {expression};")
        return self._known[key]

    def cut(self) -> None:
        """Let another loop begin here, where the loop that this is the body of may be cut."""
        self.cuts.append(len(self.lines))

    def known(self, key: object) -> str | None:
        """Return the name of what was computed before."""
        return self._known.get(key)

    def load(self, buffer: Buffer, place: Affine) -> str:
        """Return the name of an entry of a buffer."""
        return self.let(buffer.dtype, f"{buffer.name}[{place}]", (buffer.name, str(place)))

    def store(self, buffer: Buffer, place: Affine, value: str) -> None:
        """Write an entry of a buffer."""
        stored = self.let(buffer.dtype, value, (buffer.name, str(place), len(self.lines)))
        self.lines.append(f"{buffer.name}[{place}] = {stored};")
        self._known[buffer.name, str(place)] = stored


@dataclass(frozen=True)
class Lazy:
    """An expression for each entry of a tensor.

    Attributes
    ----------
    emit : callable
        ``(body, place for each dimension) -> name of the value there``.
    reads : tuple of Read
    uses : tuple of Access
        Numbers outside loops that the expression needs.
    cost : int
        Operations for an entry.
    """

    shape: Shape
    dtype: torch.dtype
    emit: Callable[[Body, tuple[Affine, ...]], str]
    reads: tuple[Read, ...] = ()
    uses: tuple[Access, ...] = ()
    cost: int = 0

    def accesses(self, index: tuple[Affine, ...] | None = None) -> list[Access]:
        """Return everything that is read, and where by a step at ``index``."""
        return [*(read.access(index) for read in self.reads), *self.uses]


@dataclass(frozen=True)
class View:
    """Memory seen as a tensor."""

    buffer: Buffer
    shape: Shape
    strides: Shape
    offset: int = 0

    @property
    def dtype(self) -> torch.dtype:
        """Type of its entries."""
        return self.buffer.dtype

    @property
    def read(self) -> Read:
        """How its entries are read one by one."""
        extent = 1 + sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))
        return Read(self.buffer, self.strides, self.offset, max(extent, 0) if count(self.shape) else 0)

    def is_contiguous(self) -> bool:
        """Tell whether entries follow each other in memory."""
        pairs = zip(self.shape, self.strides, contiguous_strides(self.shape), strict=True)
        return all(size == 1 or stride == wanted for size, stride, wanted in pairs)

    def lazy(self) -> Lazy:
        """Return the expression that loads an entry."""
        return Lazy(
            self.shape, self.dtype, lambda body, index: body.load(self.buffer, self.read.place(index)), (self.read,)
        )


def count(shape: Shape) -> int:
    """Return the number of entries of a tensor."""
    found = 1
    for size in shape:
        found *= size
    return found


def contiguous_strides(shape: Shape) -> Shape:
    """Return the strides of a tensor whose last dimension runs along memory."""
    strides = [1] * len(shape)
    for dim in range(len(shape) - 2, -1, -1):
        strides[dim] = strides[dim + 1] * max(shape[dim + 1], 1)
    return tuple(strides)
