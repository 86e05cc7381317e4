"""Trees on disk: whole, or a sentence and the old file."""

import os
import subprocess
import sys
from importlib import import_module
from inspect import unwrap
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr

import bnnzoo as bz

module = import_module("bnnzoo.predictive.save_tree")  # the function has its name


def tree(size: int = 3) -> xr.DataTree:
    values = np.random.default_rng(0).normal(size=(2, size))
    return xr.DataTree.from_dict({"posterior": xr.Dataset({"mu": (("chain", "draw"), values)}, attrs={"seed": 1})})


@pytest.mark.parametrize("in_memory", [True, False])
def test_a_saved_tree_is_the_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_memory: bool) -> None:
    monkeypatch.setattr(module, "MAX_IN_MEMORY", 2**30 if in_memory else 0)
    bz.save_tree(tree(), tmp_path / "a.nc", encoding={"/posterior": {"mu": {"zlib": True}}})
    bz.save_tree(tree(5), str(tmp_path / "a.nc"))
    xr.testing.assert_identical(xr.load_datatree(tmp_path / "a.nc", engine="h5netcdf"), tree(5))
    assert os.listdir(tmp_path) == ["a.nc"]


def test_a_disk_without_room_is_named_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.nc").write_text("old")
    monkeypatch.setattr(module.shutil, "disk_usage", lambda folder: SimpleNamespace(free=8))
    with pytest.raises(
        OSError, match=r"a\.nc cannot be written: the tree takes 1\.7 MB, and 0\.0 MB are free\. Make room"
    ):
        bz.save_tree(tree(100_000), tmp_path / "a.nc")
    assert (tmp_path / "a.nc").read_text() == "old"


def test_a_write_that_fails_halfway_neither_ends_the_process_nor_harms_the_old_file(tmp_path: Path) -> None:
    program = (
        "import resource, numpy as np, xarray as xr\n"
        "from bnnzoo.predictive.save_tree import save_tree\n"
        "tree = xr.DataTree.from_dict({'posterior': xr.Dataset({'mu': (('chain', 'draw'), np.ones((4, 100_000)))})})\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, 500_000))\n"
        "try:\n    save_tree(tree, 'a.nc')\n"
        "except OSError as error:\n    print(error)\n"
    )
    (tmp_path / "a.nc").write_text("old")
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"[Errno 27] File too large: '{tmp_path}/a.nc'"
    assert os.listdir(tmp_path) == ["a.nc"] and (tmp_path / "a.nc").read_text() == "old"


def test_what_is_no_tree_or_has_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"save_tree writes an xarray\.DataTree, and was given a Dataset"):
        unwrap(bz.save_tree)(tree()["posterior"].to_dataset(), tmp_path / "a.nc")
    with pytest.raises(FileNotFoundError, match=r"There is no folder '.*/none' for 'a\.nc'; create it first"):
        bz.save_tree(tree(), tmp_path / "none" / "a.nc")
