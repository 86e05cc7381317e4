"""The compiler that is found, what it is told on each system, and where torch's library lies."""

import platform
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from bnnzoo.engine import files
from bnnzoo.engine.cpp import building, toolchain
from bnnzoo.engine.cpp.factorisations import FUNCTIONS
from bnnzoo.engine.cpp.formulas import HEADER
from bnnzoo.engine.cpp.toolchain import NoCompiler, compiler
from bnnzoo.engine.cpp.values import Cannot


@pytest.fixture(autouse=True)
def _forget_the_compiler() -> object:
    compiler.cache_clear()
    yield
    compiler.cache_clear()


def nothing_but(monkeypatch: pytest.MonkeyPatch, *names: str, package: bool = False) -> None:
    """Let some compilers be on the path, and the package that holds one be installed or not."""
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(toolchain.shutil, "which", lambda name: f"/bin/{name}" if name in names else None)
    monkeypatch.setattr(toolchain, "find_spec", lambda name: object() if package else None)


def test_compilers_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing_but(monkeypatch, "g++", "clang++", "mine", package=True)
    assert compiler() == ("/bin/g++",)
    compiler.cache_clear()
    monkeypatch.setenv("CXX", "mine")
    assert compiler() == ("/bin/mine",)


def test_the_package_is_found_without_being_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing_but(monkeypatch, package=True)
    assert compiler() == (sys.executable, "-m", "ziglang", "c++")
    assert "-nostdlib++" in toolchain.flags(compiler()) and "-nostdlib++" not in toolchain.flags(("/bin/g++",))


@pytest.mark.parametrize(
    ("says", "lengths", "less"),
    [
        ("g++ 12.2 Copyright (C) 2022 Free Software Foundation, Inc.", (4_999, 5_000), "-fira-region=one"),
        ("clang version 22.1", (29_999, 30_000), "-O1"),
    ],
    ids=["gcc", "clang"],
)
def test_long_sources_are_optimised_less(
    says: str, lengths: tuple[int, int], less: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolchain, "version", lambda command: says)
    short, long = (toolchain.flags(("c++",), num_lines) for num_lines in lengths)
    assert "-O3" in short and less not in short and less in long


def test_the_compiler_takes_what_it_is_told_of_long_sources(tmp_path: Path) -> None:
    (tmp_path / "long.cpp").write_text("int one() { return 1; }" + 40_000 * "\n")
    command = [*compiler(), *toolchain.flags(compiler(), 40_000), str(tmp_path / "long.cpp")]
    subprocess.run([*command, "-o", str(tmp_path / "long.so")], check=True, env=toolchain.environment())


def test_no_compiler_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing_but(monkeypatch)
    with pytest.raises(
        NoCompiler, match=r"no g\+\+, c\+\+ or clang\+\+ .* 'pip install bnnzoo\[compiler\]' brings one"
    ):
        compiler()


@pytest.mark.parametrize(
    ("system", "machine", "suffix", "library", "told", "untold"),
    [
        ("Linux", "x86_64", ".so", "libtorch_cpu.so", {"-march=native", "-fPIC"}, {"-mcpu=native"}),
        ("Linux", "aarch64", ".so", "libtorch_cpu.so", {"-mcpu=native", "-fPIC"}, {"-march=native"}),
        ("Darwin", "arm64", ".dylib", "libtorch_cpu.dylib", {"-mcpu=native", "-fPIC"}, {"-march=native"}),
        ("Darwin", "x86_64", ".dylib", "libtorch_cpu.dylib", {"-march=native", "-fPIC"}, {"-mcpu=native"}),
        ("Windows", "AMD64", ".dll", "torch_cpu.dll", {"-march=native"}, {"-mcpu=native", "-fPIC"}),
    ],
)
def test_systems(
    monkeypatch: pytest.MonkeyPatch,
    system: str,
    machine: str,
    suffix: str,
    library: str,
    told: set[str],
    untold: set[str],
) -> None:
    """By stubs: these were not run on macOS and Windows."""
    monkeypatch.setattr(platform, "system", lambda: system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    flags = set(toolchain.flags(("c++",)))
    assert toolchain.suffix() == suffix and told <= flags and not untold & flags
    assert toolchain.torch_library() == Path(torch.__file__).parent / "lib" / library


def test_folders_where_files_have_no_owners(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By stubs, as on Windows: every file can be written to by its group, and belongs to nobody."""
    monkeypatch.setattr(files, "HAS_OWNERS", False)
    monkeypatch.setattr(files, "_user", lambda: tmp_path.stat().st_uid)
    monkeypatch.delattr(files.os, "getuid", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = files.cache_folder("native")
    folder.chmod(0o777)
    assert files.cache_folder("native") == folder == tmp_path / "bnnzoo" / "native"


def test_matrix_products_are_there_or_null(monkeypatch: pytest.MonkeyPatch) -> None:
    toolchain.matrix_products.cache_clear()
    assert all(each.value for each in toolchain.matrix_products())
    for error in (OSError, AttributeError):
        toolchain.matrix_products.cache_clear()

        def refuse(*args: object, error: type[Exception] = error) -> None:
            raise error

        monkeypatch.setattr(toolchain.ctypes, "CDLL", refuse)
        assert not any(each.value for each in toolchain.matrix_products())
        monkeypatch.undo()
    toolchain.matrix_products.cache_clear()


@pytest.mark.parametrize(("a_lies", "b_lies"), [(True, True), (True, False), (False, True), (False, False)])
def test_products_where_torchs_library_hides_its_own(a_lies: bool, b_lies: bool) -> None:
    """Large products are then computed by the file itself, whichever way the matrices lie."""
    left, right = (
        torch.randn(7, 5, dtype=torch.float64),
        torch.randn(9, 7, dtype=torch.float64),
    )  # by columns: 5 x 7, 7 x 9
    a, b = (left if a_lies else left.T.contiguous()), (right if b_lies else right.T.contiguous())
    out = torch.zeros(9, 5, dtype=torch.float64)
    words = [str(each).lower() for each in (a_lies, b_lies)]
    call = f"gemm_<double>({words[0]}, {words[1]}, 5, 9, 7, p[0], {a.shape[1]}, p[1], {b.shape[1]}, p[2], 5);"
    source = f'{HEADER}{FUNCTIONS}extern "C" EXPORTED void bnnzoo_run(double** p, void*, void*) {{ {call} }}'
    building.function_of(building.built(source))(a, b, out)
    torch.testing.assert_close(out, right @ left)


def test_sources_include_headers_of_c_alone() -> None:
    """Else a compiler from PyPI builds its library of C++ first, which takes minutes."""
    assert [line for line in HEADER.splitlines() if "#include" in line] == [
        "#include <stdint.h>",
        "#include <stdlib.h>",
    ]
    assert "std::" not in HEADER + FUNCTIONS


@pytest.mark.slow
@pytest.mark.skipif(toolchain.find_spec("ziglang") is None, reason="ziglang is not installed")
def test_the_compiler_of_the_package_makes_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    nothing_but(monkeypatch, package=True)
    body = "p[0][0] = lgamma_<double>(p[0][0]);"
    source = f'{HEADER}{FUNCTIONS}extern "C" EXPORTED void bnnzoo_run(double** p, void*, void*) {{ {body} }}'
    tensor = torch.tensor([5.0], dtype=torch.float64)
    building.function_of(building.built(source))(tensor)
    torch.testing.assert_close(tensor.exp(), torch.tensor([24.0], dtype=torch.float64))


def test_a_compiler_that_fails_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CXX", "false")
    with pytest.raises(NoCompiler, match="false"):
        building.built("int main() {}")


def test_a_source_that_is_refused_is_no_want_of_a_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Torch's compiler may then know more."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(Cannot, match=r"g\+\+ refuses its source: .*"):
        building.built("int main() { return no_such_name; }")


@pytest.mark.parametrize(
    ("system", "names", "found"),
    [("Linux", ("g++",), "g++"), ("Linux", ("c++", "clang++"), None), ("Darwin", ("clang++",), "clang++")],
)
def test_the_compiler_that_torch_would_call(
    system: str, names: tuple[str, ...], found: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing_but(monkeypatch, *names, package=True)
    monkeypatch.setattr(platform, "system", lambda: system)
    monkeypatch.setattr(toolchain, "_failure", lambda command: None)
    if found is None:
        with pytest.raises(NoCompiler, match=r"no g\+\+ on the path"):
            toolchain.compiler_of_torch()
    else:
        assert toolchain.compiler_of_torch() == (f"/bin/{found}",)


def test_a_compiler_that_makes_no_code_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert toolchain.compiler_of_torch()
    monkeypatch.setenv("CXX", "false")
    with pytest.raises(NoCompiler, match="false: it ends with status 1"):
        toolchain.compiler_of_torch()


def test_what_a_compiler_keeps_lies_in_an_own_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert toolchain.environment()["ZIG_GLOBAL_CACHE_DIR"] == str(tmp_path / "bnnzoo" / "zig")
    monkeypatch.setenv("ZIG_GLOBAL_CACHE_DIR", "elsewhere")
    assert toolchain.environment()["ZIG_GLOBAL_CACHE_DIR"] == "elsewhere"


def test_room_is_made_beside_a_process_that_makes_room_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that was listed may be gone when it is looked at: the fit that compiled then ran as graphs."""
    monkeypatch.setattr(building, "MOST_LIBRARIES", 1)
    kept = tmp_path / f"kept{toolchain.suffix()}"
    kept.write_bytes(b"")
    (tmp_path / f"gone{toolchain.suffix()}").symlink_to(tmp_path / "nowhere")
    building._make_room(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [kept.name]
