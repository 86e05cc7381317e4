"""Files written whole, and folders and libraries that are not this user's, or not what was written."""

import errno
import getpass
import os
import pickle
import platform
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from bnnzoo.engine import compiling, files
from bnnzoo.engine.cpp import building
from bnnzoo.engine.cpp.building import Compiled, built
from bnnzoo.engine.files import cache_folder, is_private, sweep, whole_file, whole_folder

SEVEN = 'extern "C" void bnnzoo_run(void** arguments, void*, void*) { ((double*)arguments[0])[0] = 7; }'
STRANGER = 65534
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to another user")


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A cache of its own, and a folder for temporary files beside it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(files.tempfile, "gettempdir", lambda: str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    return tmp_path


def test_a_file_that_fails_halfway_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    with suppress(IsADirectoryError), whole_file(path) as partial:
        partial.write_text("ne")
        tmp_path.read_text()
        pytest.fail("reading a folder succeeded")
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["a.txt"]


def test_what_killed_processes_left_is_swept(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "pass"]) as ended:
        ended.wait()
    here, me = platform.node(), os.getpid()
    kept = [f".a.partial-{here}-{me}-1", ".a.partial-elsewhere-1-1", ".a", f".ab.partial-{here}-{ended.pid}-1"]
    gone = [f".a.partial-{here}-{ended.pid}-1", ".a.partial-elsewhere-2-1", ".a.partial-5"]
    for name in [*kept, *gone]:
        (tmp_path / name).touch()
    for name in gone[1:]:
        os.utime(tmp_path / name, (0, 0))  # that of another machine, or of an older version
    (tmp_path / ".a.partial-folder").mkdir()
    os.utime(tmp_path / ".a.partial-folder", (0, 0))
    sweep(tmp_path, ".a.partial-")
    assert sorted(os.listdir(tmp_path)) == sorted(kept)


def test_errors_of_writing_name_the_file(tmp_path: Path) -> None:
    def full(partial: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with (
        pytest.raises(OSError, match=r"No space left on device: '.*/a\.txt'"),
        whole_file(tmp_path / "a.txt") as partial,
    ):
        full(partial)
    with whole_folder(tmp_path / "folder") as folder:
        (folder / "b.txt").write_text("b")
    assert sorted(os.listdir(tmp_path)) == ["folder"]


@pytest.mark.parametrize("damage", ["cut", "empty", "changed", "no sum", "link"])
def test_a_library_that_is_not_what_was_written_is_compiled_again(home: Path, damage: str) -> None:
    library = built(SEVEN)
    whole = library.read_bytes()
    if damage == "link":
        library.rename(home / "elsewhere.so")
        library.symlink_to(home / "elsewhere.so")
    elif damage == "no sum":
        library.with_suffix(".sha256").unlink()
    else:
        library.write_bytes({"cut": whole[:2000], "empty": b"", "changed": whole[:-1] + b"x"}[damage])
    assert not building.is_whole(library)
    assert built(SEVEN) == library
    assert building.is_whole(library) and library.read_bytes()[:4] == b"\x7fELF"


@pytest.mark.slow
def test_a_fit_survives_libraries_cut_short(home: Path) -> None:
    """It used to end with SIGBUS, without a word."""
    program = (
        "import torch, bnnzoo as bz\n"
        "from bnnzoo.engine.loops import Chunk\n"
        "step = Chunk(lambda x, last: x < last, lambda x, last: 2 * x + 1, torch.tensor(0.), torch.tensor(5.), key='d')\n"
        "state = step.pack(torch.tensor(0.0)); step(state, step.pack_fixed(torch.tensor(100.0)))\n"
        "print(step.how, float(step.unpack(state)))\n"
    )
    environment = os.environ | {"XDG_CACHE_HOME": str(home / "cache")}

    def run() -> str:
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    assert run() == "compiled 127.0"
    (library,) = (home / "cache" / "bnnzoo" / "native").glob("*.so")
    library.write_bytes(library.read_bytes()[:2000])
    assert run() == "compiled 127.0"


def test_a_folder_that_others_may_write_to_is_not_used(home: Path) -> None:
    folder = home / "cache" / "bnnzoo" / "native"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    assert building.kept_libraries() == home / "tmp" / f"bnnzoo-{os.getuid()}" / "native"


def test_a_link_is_not_followed(home: Path) -> None:
    (home / "cache").mkdir()
    (home / "target").mkdir(mode=0o700)
    (home / "cache" / "bnnzoo").symlink_to(home / "target")
    assert cache_folder("native") == home / "tmp" / f"bnnzoo-{os.getuid()}" / "native"
    assert is_private(cache_folder("native"))


@as_root
def test_folders_of_another_user_are_not_used(home: Path) -> None:
    theirs = home / "cache" / "bnnzoo" / "native"
    theirs.mkdir(parents=True)
    os.chown(theirs, STRANGER, STRANGER)
    fallback = home / "tmp" / f"bnnzoo-{os.getuid()}"
    assert cache_folder("native") == fallback / "native"
    os.chown(fallback, STRANGER, STRANGER)
    own = cache_folder("native")  # of this process alone
    assert is_private(own) and own == cache_folder("native") and own.parent.name.startswith("bnnzoo-")


@as_root
def test_a_library_of_another_user_is_not_loaded(home: Path) -> None:
    library = built(SEVEN)
    os.chown(library, STRANGER, STRANGER)
    assert not building.is_whole(library)
    os.chown(library, 0, 0)
    library.chmod(0o666)
    assert not is_private(library)


PLANTING = """
import hashlib, os, pathlib, sys
folder, user, kind, name, code = sys.argv[1:]
os.setgroups([]); os.setgid(65534); os.setuid(65534)
taken, trap = pathlib.Path(folder, f"bnnzoo-{user}"), pathlib.Path(folder, "trap")
if kind == "link":
    trap.mkdir()
    taken.symlink_to(trap)
else:
    (taken / "native").mkdir(parents=True)
    (taken / "native" / f"{name}.so").write_bytes(pathlib.Path(code).read_bytes())
    (taken / "native" / f"{name}.sha256").write_text(hashlib.sha256(pathlib.Path(code).read_bytes()).hexdigest())
for each in [trap] if kind == "link" else [taken, taken / "native"]:
    each.chmod(0o777)
"""
"""What another user does in a folder for everybody's temporary files, before this user's first fit."""


@as_root
@pytest.mark.parametrize("kind", ["link", "folder"])
def test_what_another_user_planted_is_neither_loaded_nor_written_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    evil = built(SEVEN.replace("7", "666"))
    name = built(SEVEN).stem
    with tempfile.TemporaryDirectory() as common:
        Path(common).chmod(0o1777)
        shutil.copy(evil, f"{common}/evil")
        Path(common, "evil").chmod(0o644)
        command = [sys.executable, "-c", PLANTING, common, str(os.getuid()), kind, name, f"{common}/evil"]
        subprocess.run(command, check=True)
        monkeypatch.setenv("XDG_CACHE_HOME", f"{common}/evil/below-a-file")
        monkeypatch.setattr(files.tempfile, "gettempdir", lambda: common)
        library = built(SEVEN)
        assert is_private(library) and building.is_whole(library) and common not in str(library)
        value = torch.zeros(1, dtype=torch.float64)
        building.function_of(library)(value)
        assert float(value) == 7.0
        assert kind == "folder" or not list(Path(common, "trap").iterdir())


def test_libraries_are_found_again_where_a_group_may_write_by_default(home: Path) -> None:
    before = os.umask(0o002)
    try:
        library = built(SEVEN)
        assert building.is_whole(library)
        Compiled(print, library).remember("seven")
        assert building.compiled_before("seven") is not None
    finally:
        os.umask(before)


def test_torchs_compiler_keeps_to_a_folder_of_this_user(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = str(home / "cache" / "bnnzoo" / "inductor")
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    assert compiling._kept_to_own_folder() == {"cpp_cache_precompile_headers": True}
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == own
    default = home / "tmp" / f"torchinductor_{getpass.getuser()}"
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(default))  # as torch sets it where a user compiled before
    default.chmod(0o777)
    assert compiling._kept_to_own_folder() == {"cpp_cache_precompile_headers": False}
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == own
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/chosen/by/the/user")
    compiling._kept_to_own_folder()
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == "/chosen/by/the/user"


@as_root
@pytest.mark.slow
def test_nothing_that_another_user_planted_for_torchs_compiler_is_unpickled(home: Path) -> None:
    """Torch's default folder has a name that anyone can take first: an entry put there used to run at the next fit."""
    planted = home / "tmp" / f"torchinductor_{getpass.getuser()}"
    for name in ("fxgraph", "precompiled_headers"):
        (planted / name).mkdir(parents=True)
    bait = home / "ran"

    class Bait:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.system, (f"touch {bait}",)

    program = (
        "import torch\n"
        "from bnnzoo.engine.lowered import Lowered\n"
        "def f(x): return torch.linalg.cholesky(torch.eye(3) + x @ x.mT).sum()[None]\n"
        "f = Lowered(f).specialize(torch.ones(3, 3), num_calls=10**9)\n"
        "print(float(f(torch.ones(3, 3))))\n"
    )
    environment = {k: v for k, v in os.environ.items() if k != "TORCHINDUCTOR_CACHE_DIR"}
    environment |= {"XDG_CACHE_HOME": str(home / "cache"), "TMPDIR": str(home / "tmp")}
    for path in [planted, *planted.rglob("*")]:
        os.chown(path, STRANGER, STRANGER)
        path.chmod(0o777)

    def run() -> None:
        subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)

    run()
    kept = home / "cache" / "bnnzoo" / "inductor"
    entries = list((kept / "fxgraph").rglob("*"))
    assert entries and not [path for path in planted.rglob("*") if path.is_file()]
    for entry in entries:  # the same names, planted where torch would have looked
        there = planted / entry.relative_to(kept)
        there.mkdir(parents=True, exist_ok=True) if entry.is_dir() else there.write_bytes(pickle.dumps(Bait()))
    run()
    assert not bait.exists()
