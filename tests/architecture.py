"""The rooms of the package, read from its imports: ``python -m tests.architecture`` prints floors, arrows and closures."""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "bnnzoo"
MODULES = {
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}


@dataclass(frozen=True)
class Import:
    """One import statement: the full names it asks for, and where it stands."""

    names: tuple[str, ...]
    line: int
    level: int
    in_function: bool


@cache
def parsed(path: Path) -> ast.Module:
    """Return the syntax tree of a file."""
    return ast.parse(path.read_text())


@cache
def imports(path: Path) -> tuple[Import, ...]:
    """Return every import statement of a file."""
    return tuple(_imports(parsed(path), in_function=False))


def _imports(node: ast.AST, in_function: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield Import(tuple(alias.name for alias in child.names), child.lineno, 0, in_function)
        elif isinstance(child, ast.ImportFrom):
            names = tuple(f"{child.module}.{alias.name}" for alias in child.names)
            yield Import(names, child.lineno, child.level, in_function)
        elif isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):  # no expression holds one
            inside = in_function or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            yield from _imports(child, inside)


@cache
def imported_by(module: str) -> frozenset[str]:
    """Return the modules of bnnzoo that one imports."""
    names = {name for statement in imports(MODULES[module]) for name in statement.names}
    return frozenset(
        {name if name in MODULES else name.rpartition(".")[0] for name in names} & MODULES.keys() - {module}
    )


def closure(module: str) -> set[str]:
    """Return the modules that one needs, itself among them; the packages around it are left out, since they offer more."""
    found: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += imported_by(name)
    return found


def room(module: str) -> str | None:
    """Name the room in which a module stands, right below bnnzoo; None for the front door, which opens them all."""
    return module.split(".")[1] if "." in module else None


def room_of_core(module: str) -> str | None:
    """Name the room of core in which a module stands; None for its top and for what lies outside."""
    parts = module.split(".")
    return parts[2] if parts[:2] == ["bnnzoo", "core"] and len(parts) == 4 else None


def arrows(room_of: Callable[[str], str | None]) -> Mapping[tuple[str, str], int]:
    """Count, for two rooms, how many imports lead from the first to the second."""
    count: Counter[tuple[str, str]] = Counter()
    for module in MODULES:
        for other in imported_by(module):
            ends = room_of(module), room_of(other)
            if ends[0] and ends[1] and ends[0] != ends[1]:
                count[ends[0], ends[1]] += 1
    return count


def floors(room_of: Callable[[str], str | None]) -> dict[str, int]:
    """Return the floor of each room: one above the highest that it imports.

    Raises
    ------
    ValueError
        If rooms import each other in a circle.
    """
    below = defaultdict(set)
    for upper, lower in arrows(room_of):
        below[upper].add(lower)
    rooms = {room for module in MODULES if (room := room_of(module))}
    found: dict[str, int] = {}
    while rooms:
        ready = [room for room in rooms if below[room] <= found.keys()]
        if not ready:
            raise ValueError(f"rooms import each other in a circle: {', '.join(sorted(rooms))}")
        found |= {room: 1 + max((found[each] for each in below[room]), default=-1) for room in ready}
        rooms -= set(ready)
    return found


def files_of(room: str) -> list[str]:
    """Return the names of the modules in a room of core."""
    return [module.rpartition(".")[2] for module in MODULES if room_of_core(module) == room]


def used_once() -> list[str]:
    """Return the private functions, methods too, whose names stand in the package for one use besides, and in no test."""
    word = re.compile(r"\b_[A-Za-z]\w*")
    uses = Counter(name for path in MODULES.values() for name in word.findall(path.read_text()))
    tested = {name for path in (PACKAGE.parent / "tests").rglob("*.py") for name in word.findall(path.read_text())}
    functions = (
        (module, node.name)
        for module, path in MODULES.items()
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.FunctionDef)
    )
    return [f"{module}.{name}" for module, name in functions if uses[name] == 2 and name not in tested]


def main() -> None:
    """Print rooms, floors, arrows, and how much of the package some modules import."""
    for title, room_of in (("rooms of bnnzoo", room), ("rooms of core", room_of_core)):
        print(title)
        height = floors(room_of)
        for floor in sorted(set(height.values()), reverse=True):
            for name in sorted(name for name in height if height[name] == floor):
                print(f"  floor {floor}  {name:<12} {' '.join(files_of(name))}".rstrip())
        between = arrows(room_of)
        print(f"  {len(between)} arrows")
        for (upper, lower), count in sorted(between.items()):
            print(f"    {upper} -> {lower}: {count}")
    print("imported with")
    for module in (
        "calibration.proper_scores",
        "inference.fit",
        "inference.markov.hamiltonian.nuts",
        "predictive.predict",
    ):
        files = [MODULES[name] for name in closure(f"bnnzoo.{module}")]
        lines = sum(len(path.read_text().splitlines()) for path in files)
        print(f"  {module}: {len(files)} files, {lines:,} lines")
    print(f"helpers used once: {len(used_once())}")


if __name__ == "__main__":
    main()
