"""Compiling C++ into a library, kept on disk, and calling it."""

import ctypes
import hashlib
import os
import subprocess
import tempfile
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.fx import GraphModule

from bnnzoo.engine.cpp import toolchain
from bnnzoo.engine.cpp.toolchain import NoCompiler
from bnnzoo.engine.cpp.translate import ENTRY, source_of
from bnnzoo.engine.cpp.values import Cannot
from bnnzoo.engine.files import cache_folder, is_private, sweep, whole_file
from bnnzoo.engine.reports import preparing

__all__ = [
    "Compiled",
    "built",
    "compile_in_cpp",
    "compile_runs",
    "compiled_before",
    "function_of",
    "is_whole",
    "kept_libraries",
]

MOST_LIBRARIES = 256
"""Libraries kept on disk; those not used for longest make room."""


class Compiled(NamedTuple):
    """A graph with loops as a native function, and the library it lies in."""

    call: Callable[..., None]
    library: Path

    def remember(self, name: str) -> None:
        """Let :func:`compiled_before` find it, in any process, by the name of what it was made from."""
        with suppress(OSError), whole_file(_note_of(name), private=True) as partial:
            partial.write_text(self.library.name)


@preparing("compiling")
def compile_in_cpp(graph: GraphModule) -> Compiled:
    """Return a graph with loops, which changes its arguments, as a native function.

    Raises
    ------
    Cannot
        If the graph cannot be written in C++, or the compiler refuses what is written.
    NoCompiler
        If there is no compiler.
    """
    devices = {
        node.meta.get("device", node.meta["val"].device).type for node in graph.graph.nodes if node.op == "placeholder"
    }
    if devices != {"cpu"}:
        raise Cannot(f"tensors on {', '.join(sorted(devices))}")
    library = built(source_of(graph))
    return Compiled(function_of(library), library)


@preparing("compiling")
def compile_runs(graph: GraphModule, moving: Collection[int]) -> Callable[[int, Sequence[Tensor]], None]:
    """Return a graph that changes its arguments as a native function of how often to run it, and of its arguments.

    Those in ``moving`` hold a value for each run, along their first dimension; the others are the same in all of them.

    Raises
    ------
    Exception
        If the graph cannot be written in C++, or not be compiled.
    """
    entry, products = _entry(built(source_of(graph, moving)))

    def call(num_runs: int, tensors: Sequence[Tensor]) -> None:
        steps = [each.stride(0) * each.element_size() if i in moving else 0 for i, each in enumerate(tensors)]
        entry(_pointers(tensors), *products, ctypes.c_int64(num_runs), (ctypes.c_int64 * len(steps))(*steps))

    return call


def compiled_before(name: str) -> Callable[..., None] | None:
    """Return the native function of the graph of this name, if there is one on disk."""
    try:
        note = _note_of(name)
        library = note.with_name(note.read_text()) if is_private(note) else None
        return (
            function_of(library)
            if library is not None and library.suffix == toolchain.suffix() and is_whole(library)
            else None
        )
    except (NoCompiler, OSError, AttributeError, ValueError):
        return None


def _note_of(name: str) -> Path:
    """Return the file that says which library a graph became: what this package, torch or the compiler makes of it may change."""
    words = [name, str(torch.get_default_dtype()), torch.__version__, _sources(), *_compiler()]
    return kept_libraries() / f"{_digest(*words)}.txt"


def _compiler() -> list[str]:
    """Return words that stand for the code that the compiler would make."""
    found = toolchain.compiler()
    return [*found, *toolchain.flags(found), toolchain.version(found), toolchain.machine()]


@cache
def _sources() -> str:
    """Return a digest of this package, all of which may have a say in what a loop is."""
    package = Path(__file__).parents[2]
    return _digest(*(path.read_text() for path in sorted(package.rglob("*.py"))))


def _digest(*words: str) -> str:
    return hashlib.sha256("\0".join(words).encode()).hexdigest()


def built(source: str) -> Path:
    """Return the library of a C++ source, compiled unless that was done before."""
    path = kept_libraries() / f"{_digest(source, *_compiler())}{toolchain.suffix()}"
    if is_whole(path):
        os.utime(path)
        return path
    _compile(source, path)
    _make_room(path.parent)
    return path


def function_of(library: Path) -> Callable[..., None]:
    """Return a library's function of tensors, which it changes in place; calls let go of the interpreter lock."""
    entry, products = _entry(library)

    def call(*tensors: Tensor) -> None:
        entry(_pointers(tensors), *products)

    return call


def _entry(library: Path) -> tuple[Any, list[ctypes.c_void_p]]:
    """Return a library's function and the matrix products that it is to be passed."""
    entry = getattr(ctypes.CDLL(str(library)), ENTRY)
    entry.restype = None
    return entry, toolchain.matrix_products()


def _pointers(tensors: Sequence[Tensor]) -> Any:
    return (ctypes.c_void_p * len(tensors))(*(tensor.data_ptr() for tensor in tensors))


def kept_libraries() -> Path:
    """Return the folder of compiled libraries, which belongs to this user alone."""
    return cache_folder("native")


def is_whole(library: Path) -> bool:
    """Tell whether a library on disk is this user's, and is what was written: code cut short ends the process that runs it."""
    note = _sum_of(library)
    if not is_private(library) or not is_private(note):
        return False
    return note.read_text() == hashlib.sha256(library.read_bytes()).hexdigest()


def _sum_of(library: Path) -> Path:
    """Return the file that holds a library's checksum."""
    return library.with_suffix(".sha256")


def _compile(source: str, path: Path) -> None:
    compiler = toolchain.compiler()
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        written = Path(folder) / "loop.cpp"
        written.write_text(source)
        library = Path(folder) / f"loop{toolchain.suffix()}"
        flags = toolchain.flags(compiler, source.count("\n"))
        command = [*compiler, *flags, str(written), "-o", str(library)]
        result = subprocess.run(command, capture_output=True, text=True, check=False, env=toolchain.environment())
        if result.returncode:
            toolchain.refuse_broken(compiler)
            raise Cannot(f"{' '.join(compiler)} refuses its source: {result.stderr.strip()[:200]}")
        with whole_file(path, private=True) as partial:
            library.rename(partial)
        with whole_file(_sum_of(path), private=True) as partial:
            partial.write_text(hashlib.sha256(path.read_bytes()).hexdigest())


def _make_room(folder: Path) -> None:
    sweep(folder, ".")
    for pattern in (f"*{toolchain.suffix()}", "*.sha256", "*.txt"):
        files = sorted(folder.glob(pattern), key=_last_used)
        for path in files[: max(len(files) - MOST_LIBRARIES, 0)]:
            path.unlink(missing_ok=True)


def _last_used(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:  # another process has made room meanwhile
        return 0.0
