"""The C++ compiler of this machine, what it is told, and the matrix products of torch's library."""

import ctypes
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from importlib.metadata import version as version_of_package
from importlib.util import find_spec
from pathlib import Path

import torch

from bnnzoo.engine.files import cache_folder

__all__ = [
    "NoCompiler",
    "compiler",
    "compiler_of_torch",
    "environment",
    "flags",
    "machine",
    "matrix_products",
    "refuse_broken",
    "suffix",
    "version",
]

FLAGS = ("-std=c++17", "-shared", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math", "-fwrapv", "-w")
"""Arithmetic keeps NaN and infinity; only sums marked in the source may be added up in another order."""

LONG = {"gcc": 5_000, "clang": 30_000}
"""Lines of a source from which on the compiler optimises less."""

LESS = {
    "gcc": (
        "-O3",
        *("-fno-gcse", "-fno-tree-pre", "-fno-tree-fre", "-fira-region=one"),
        *("--param", "sccvn-max-alias-queries-per-access=30"),
    ),
    "clang": ("-O1", "-ftree-vectorize"),
}
"""What it is told then. What is left out of gcc takes more than proportional time and gains nothing here: without it, the 6,000
lines of a step of a flow take 7 s in place of 24, and the 103,000 of 120 written-out steps of a Runge-Kutta scheme 12 s, where
-O1 takes 14. The flow and 60 such steps run as fast as with -O3.
"""

ZIG = "ziglang"
"""A package that holds clang for Linux, macOS and Windows. Told to leave out the library of C++, it need not build it first."""

COMPILERS_OF_TORCH = {"Darwin": "clang++", "Windows": "cl"}
SUFFIXES = {"Darwin": ".dylib", "Windows": ".dll"}
LIBRARIES = {"Darwin": "libtorch_cpu.dylib", "Windows": "torch_cpu.dll"}
ARM = ("arm64", "aarch64")


class NoCompiler(Exception):
    """There is no C++ compiler, or it makes no code of any source."""


@cache
def compiler() -> tuple[str, ...]:
    """Return the command of the compiler: ``CXX``, or else g++, c++ or clang++, or else the one of the package ziglang.

    Raises
    ------
    NoCompiler
        If there is none.
    """
    names = [os.environ.get("CXX", ""), "g++", "c++", "clang++"]
    found = next((path for name in names if name and (path := shutil.which(name))), None)
    if found is not None:
        return (found,)
    if find_spec(ZIG) is not None:
        return (sys.executable, "-m", ZIG, "c++")
    raise NoCompiler("no g++, c++ or clang++ on the path; 'pip install bnnzoo[compiler]' brings one")


def compiler_of_torch() -> tuple[str, ...]:
    """Return the command that torch's compiler of graphs would call: ``CXX``, or else one, and not that of a package.

    To find that out takes some hundredths of a second, once a process; torch's compiler, which asks last, takes seconds.

    Raises
    ------
    NoCompiler
        If there is none, or it makes no code.
    """
    name = os.environ.get("CXX") or COMPILERS_OF_TORCH.get(platform.system(), "g++")
    found = shutil.which(name)
    if found is None:
        raise NoCompiler(f"no {name} on the path")
    if platform.system() != "Windows":  # where it is told otherwise
        refuse_broken((found,))
    return (found,)


def refuse_broken(command: tuple[str, ...]) -> None:
    """Refuse a compiler that makes no code, not even of the simplest source.

    Raises
    ------
    NoCompiler
        With what the compiler says.
    """
    if (reason := _failure(command)) is not None:
        raise NoCompiler(reason)


@cache
def _failure(command: tuple[str, ...]) -> str | None:
    """Return why a compiler makes no code, None if it does."""
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "one.cpp", Path(folder) / f"one{suffix()}"
        source.write_text("int one() { return 1; }\n")
        told = [*command, *flags(command), str(source), "-o", str(library)]
        result = subprocess.run(told, capture_output=True, text=True, check=False, env=environment())
    said = result.stderr.strip()[:200] or f"it ends with status {result.returncode}"
    return f"{' '.join(command)}: {said}" if result.returncode else None


def flags(command: tuple[str, ...], num_lines: int = 0) -> list[str]:
    """Return what the compiler is told, besides names of files, of a source of so many lines."""
    effort: tuple[str, ...] = ("-O3",)
    if num_lines >= min(LONG.values()):
        kind = "gcc" if "Free Software Foundation" in version(command) else "clang"
        effort = LESS[kind] if num_lines >= LONG[kind] else effort
    native = "-mcpu=native" if platform.machine() in ARM else "-march=native"
    position = [] if platform.system() == "Windows" else ["-fPIC"]
    return [*FLAGS, *effort, native, *position, *(["-nostdlib++"] if ZIG in command else [])]


@cache
def version(command: tuple[str, ...]) -> str:
    """Return what the compiler says of itself."""
    if ZIG in command:
        return version_of_package(ZIG)
    return subprocess.run([*command, "--version"], capture_output=True, text=True, check=False).stdout


def environment() -> dict[str, str]:
    """Return the environment in which the compiler runs: what it keeps lies in this user's own folder."""
    folder = str(cache_folder("zig"))
    return {"ZIG_GLOBAL_CACHE_DIR": folder, "ZIG_LOCAL_CACHE_DIR": folder, **os.environ}


@cache
def machine() -> str:
    """Return what the compiler makes of "native": a folder may be shared between machines."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    features = [line for line in lines if line.startswith(("model name", "flags", "Features"))]
    return "\n".join([platform.machine(), platform.processor(), *dict.fromkeys(features)])


def suffix() -> str:
    """Return how the names of libraries end."""
    return SUFFIXES.get(platform.system(), ".so")


@cache
def matrix_products() -> list[ctypes.c_void_p]:
    """Return the products of matrices in single and double precision of torch's library, null where it hides them."""
    try:
        library = ctypes.CDLL(str(torch_library()))
        return [ctypes.cast(getattr(library, name), ctypes.c_void_p) for name in ("sgemm_", "dgemm_")]
    except (AttributeError, OSError):
        return [ctypes.c_void_p(), ctypes.c_void_p()]


def torch_library() -> Path:
    """Return the library that holds torch's matrix products."""
    return Path(torch.__file__).parent / "lib" / LIBRARIES.get(platform.system(), "libtorch_cpu.so")
