"""Statements of C++: plain lines, and nests of loops that take up others over the same range."""

import re
from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from bnnzoo.engine.cpp.values import Access, Body, Shape

__all__ = ["Nest", "Reduction", "Statement", "Statements"]

VECTOR_FROM = 4
"""Steps of an innermost loop from which on it is worth a SIMD register."""

LANES = 8
LONG = ("exp_<", "tanh_<")
"""Functions of which many entries at a time are best."""

CUT_STEPS, BLOCK, MAX_WAITING = 32, 1024, 2
"""Steps of an innermost loop from which on cutting it pays, those of a block, and values of each of them that wait at a cut."""

DEFINITION, STORE = re.compile(r"const (\w+) (v\d+) = (.*)"), re.compile(r"(\w+)\[[^]]*\] = ")
NAMES, BUFFERS = re.compile(r"\bv\d+\b"), re.compile(r"(\w+)\[")


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
        last = len(self.sizes) - 1
        for depth, size in enumerate(self.sizes[:-1]):
            lines += [f"for (int64_t i{depth} = 0; i{depth} < {size}; ++i{depth}) {{", *self._starts(depth + 1)]
        lines += self._innermost(f"i{last}", self.sizes[-1])
        for depth in reversed(range(last)):
            lines += [*self._lasts(depth + 1), "}"]
        return [*lines, *self._lasts(0)]

    def _innermost(self, i: str, size: int) -> list[str]:
        """Return the innermost loop, or the loops that it is cut into: block by block, so that what waits stays in the cache."""
        if not self.vectorises or size < VECTOR_FROM:
            return [f"for (int64_t {i} = 0; {i} < {size}; ++{i}) {{", *self.body.lines, "}"]
        place = f"{i} - first" if size > BLOCK else i
        pays = self.body.cuts and size >= CUT_STEPS
        rows, passes = _passes(self.body, place, min(size, BLOCK)) if pays else ([], [self.body.lines])
        blocks = bool(rows) and size > BLOCK
        first, end = ("first", "end") if blocks else ("0", str(size))
        lines = list(rows)
        if blocks:
            lines += [
                f"for (int64_t first = 0; first < {size}; first += {BLOCK}) {{",
                f"const int64_t end = first + {BLOCK} < {size} ? first + {BLOCK} : {size};",
            ]
        for each in passes:
            lines += [f"#pragma omp simd{self._clauses(each)}", f"for (int64_t {i} = {first}; {i} < {end}; ++{i}) {{"]
            lines += [*each, "}"]
        lines += ["}"] * blocks
        return ["{", *lines, "}"] if rows else lines

    def _clauses(self, lines: Sequence[str]) -> str:
        """Return what a loop of these lines adds up."""
        adding = [each for each in self.reductions if any(line.startswith(f"{each.name} = ") for line in lines)]
        if not adding:
            return ""
        # Sixteen steps at a time, as many as a register holds, make a sum over 600, whose rest is taken one by one,
        # twice as slow as eight. Functions need them all.
        adds_floats = all(each.type == "float" for each in adding)
        calls = any(function in line for line in lines for function in LONG)
        length = f" simdlen({LANES})" if adds_floats and not calls else ""
        return f"{length} reduction(+ : {', '.join(each.name for each in adding)})"

    def _starts(self, depth: int) -> list[str]:
        return [f"{each.type} {each.name} = {each.start};" for each in self.reductions if each.depth == depth]

    def _lasts(self, depth: int) -> list[str]:
        return [each.last for each in self.reductions if each.depth == depth and each.last]


def _passes(body: Body, place: str, num_places: int) -> tuple[list[str], list[list[str]]]:
    """Return rows of memory, and the lines of each loop into which a loop whose steps may be taken in any order is cut.

    Behind a cut, what was loaded before is loaded again, and what was computed waits at a ``place`` of a row.
    """
    lines = body.lines
    written = {found[1] for line in lines if (found := STORE.match(line))}
    types, defined, again = {}, {}, {}
    for number, line in enumerate(lines):
        if found := DEFINITION.match(line):
            types[found[2]], defined[found[2]] = found[1], number
            if not NAMES.search(found[3]) and written.isdisjoint(BUFFERS.findall(found[3])):
                again[found[2]] = line
    used = [dict.fromkeys(NAMES.findall(line)) for line in lines]

    def needed(start: int, end: int) -> list[str]:
        """Return what lines use that is defined in front of them."""
        return [
            name for name in dict.fromkeys(each for line in used[start:end] for each in line) if defined[name] < start
        ]

    cuts = [
        cut for cut in sorted({*body.cuts}) if sum(name not in again for name in needed(cut, len(lines))) <= MAX_WAITING
    ]
    starts = [0, *cuts, len(lines)]
    passes = [
        [
            *(again.get(name, f"const {types[name]} {name} = row_{name}[{place}];") for name in needed(start, end)),
            *lines[start:end],
        ]
        for start, end in pairwise(starts)
    ]
    waiting = dict.fromkeys(name for start, end in pairwise(starts) for name in needed(start, end) if name not in again)
    for name in waiting:
        number = max(k for k, start in enumerate(starts) if start <= defined[name])
        passes[number].append(f"row_{name}[{place}] = {name};")
    return [f"alignas(64) {types[name]} row_{name}[{num_places}];" for name in waiting], passes


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
