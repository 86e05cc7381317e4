"""Statements of C++: plain lines, and nests of loops that take up others over the same range."""

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, field

from bnnzoo.engine.cpp.values import Access, Body, Shape

__all__ = ["Nest", "Reduction", "Statement", "Statements"]

VECTOR_FROM = 4
"""Steps of an innermost loop from which on it is worth a SIMD register."""

LANES = 8
LONG = ("exp_<", "tanh_<")
"""Functions of which many entries at a time are best."""


@dataclass
class Statement:
    """Lines that stand where they are."""

    lines: list[str]
    uses: list[Access] = field(default_factory=list)
    defines: list[Access] = field(default_factory=list)

    def render(self) -> list[str]:
        """Return its lines."""
        return self.lines


@dataclass
class Reduction:
    """A number that adds up over the inner loops of a nest, from loop ``depth`` on."""

    name: str
    type: str
    depth: int
    start: str
    last: str


class Nest:
    """Nested loops with one body.

    Parameters
    ----------
    sizes : tuple of int
        Steps of each loop, outermost first.
    vectorises : bool
        Whether steps of the innermost loop may be taken in any order.
    """

    def __init__(self, sizes: Shape, vectorises: bool = True) -> None:
        self.sizes, self.vectorises = sizes, vectorises
        self.body = Body()
        self.uses: list[Access] = []
        self.defines: list[Access] = []
        self.before: list[str] = []
        self.reductions: list[Reduction] = []

    def render(self) -> list[str]:
        """Return its lines."""
        lines = [*self.before, *self._starts(0)]
        if not self.sizes:
            return [*lines, "{", *self.body.lines, "}", *self._lasts(0)]
        for depth, size in enumerate(self.sizes):
            innermost = depth == len(self.sizes) - 1
            if innermost and self.vectorises and size >= VECTOR_FROM:
                clauses = ""
                if self.reductions:
                    # Sixteen steps at a time, as many as a register holds, make a sum over 600, whose rest is taken one by one,
                    # twice as slow as eight. Functions need them all.
                    adds_floats = all(each.type == "float" for each in self.reductions)
                    calls = any(function in line for line in self.body.lines for function in LONG)
                    clauses = f" simdlen({LANES})" if adds_floats and not calls else ""
                    clauses += f" reduction(+ : {', '.join(each.name for each in self.reductions)})"
                lines.append("#pragma omp simd" + clauses)
            lines.append(f"for (int64_t i{depth} = 0; i{depth} < {size}; ++i{depth}) {{")
            lines += [] if innermost else self._starts(depth + 1)
        lines += self.body.lines
        for depth in reversed(range(len(self.sizes))):
            lines += ["}", *self._lasts(depth)]
        return lines

    def _starts(self, depth: int) -> list[str]:
        return [f"{each.type} {each.name} = {each.start};" for each in self.reductions if each.depth == depth]

    def _lasts(self, depth: int) -> list[str]:
        return [each.last for each in self.reductions if each.depth == depth and each.last]


class Statements:
    """The statements of one scope, in an order that keeps what depends on each other in order."""

    def __init__(self) -> None:
        self._all: list[Statement | Nest] = []
        self._last_nest: dict[Shape, int] = {}
        self._touching: dict[str, list[int]] = {}

    def add(self, statement: Statement | Nest) -> None:
        """Put a statement, whose uses and definitions are known, behind all others."""
        if isinstance(statement, Nest) and statement.vectorises:
            self._last_nest[statement.sizes] = len(self._all)
        self._note(len(self._all), [*statement.uses, *statement.defines])
        self._all.append(statement)

    def nest_for(self, sizes: Shape, uses: Sequence[Access], defines: Sequence[Access]) -> Nest:
        """Return a nest over ``sizes`` into which such a loop may go: an earlier one, or a new one at the end."""
        place = self._open_to(sizes, uses, defines) if sizes else None
        if place is None:
            place = len(self._all)
            self.add(Nest(sizes))
        nest = self._all[place]
        assert isinstance(nest, Nest)
        nest.uses += uses
        nest.defines += defines
        self._note(place, [*uses, *defines])
        return nest

    def render(self) -> list[str]:
        """Return all lines."""
        return [line for each in self._all for line in each.render()]

    def _note(self, place: int, accesses: Sequence[Access]) -> None:
        for name in dict.fromkeys(access.name for access in accesses):
            insort(self._touching.setdefault(name, []), place)

    def _open_to(self, sizes: Shape, uses: Sequence[Access], defines: Sequence[Access]) -> int | None:
        """Return the place of the last nest over ``sizes``, if a loop may be moved back so far and join it.

        Only what touches the same buffers can be in the way: in long graphs that is little of what stands in between.
        """
        last = self._last_nest.get(sizes)
        if last is None:
            return None
        behind: set[int] = set()
        for name in dict.fromkeys(access.name for access in (*uses, *defines)):
            places = self._touching.get(name, [])
            behind.update(places[bisect_left(places, last) :])
        for place in behind:
            earlier = self._all[place]
            for left, right in ((earlier.defines, uses), (earlier.uses, defines), (earlier.defines, defines)):
                meetings = ((a, b) for a in left for b in right if a.meets(b))  # what both touch and one of them writes
                if any(place != last or not a.place or a.place != b.place for a, b in meetings):
                    return None
        return last
