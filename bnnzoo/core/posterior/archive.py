"""Files of tensors and a JSON header, in the safetensors format: written whole or not at all, and checked when read."""

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from bnnzoo.engine.files import whole_file

__all__ = ["FORMAT", "UNKNOWN", "installed_version", "read_archive", "read_to_go_on", "write_archive"]

FORMAT = 2
"""Number of the file format; raised whenever an older bnnzoo could not read what a newer one writes."""

UNKNOWN = "unknown"
"""Version of a package that runs from a checkout that is not installed."""


def write_archive(path: Path, tensors: Mapping[str, Tensor], header: Mapping[str, Any]) -> None:
    """Write contiguous tensors and a header of plain values; a file of that name is replaced once this one is complete.

    Raises
    ------
    FileNotFoundError
        If the folder does not exist.
    OSError
        If the file cannot be written.
    """
    if not path.absolute().parent.is_dir():
        raise FileNotFoundError(
            f"There is no folder {path.absolute().parent} to write {path.name} into. Make it first."
        )
    text = json.dumps(header)
    metadata = {"bnnzoo": str(FORMAT), "header": text, "sha256": _checksum(text, tensors)}
    with whole_file(path) as partial:
        try:
            save_file(dict(tensors), partial, metadata=metadata)
        except SafetensorError as error:
            raise OSError(
                f"{path} cannot be written ({error}). Give a folder where you may write, and make room."
            ) from None


def read_to_go_on(
    path: Path | None,
    header: Mapping[str, Any],
    what: str,
    differs: str = "differs",
    error: type[ValueError] = ValueError,
) -> dict[str, Tensor]:
    """Return the tensors of a file that a call goes on from; none where there is no file yet.

    Parameters
    ----------
    path : Path or None
    header : mapping
        What that of the file has to agree with.
    what : str
        What the file holds if it does not, for the sentence: ``"another study"``.
    differs : str
        The verb of what differs.
    error : type of ValueError
        Raised if it does not.
    """
    if path is None or not path.exists():
        return {}
    tensors, written = read_archive(path)
    if different := [name for name, value in header.items() if written.get(name) != value]:
        raise error(
            f"{path} holds {what}: its {different[0]} {differs}. Write to another file, or make the same call again."
        )
    return tensors


def read_archive(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors and the header of a file.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the file is damaged, has a newer format, or was not written by bnnzoo.
    """
    tensors, metadata = _read(path)
    if not {"bnnzoo", "header", "sha256"} <= metadata.keys():
        raise ValueError(f"{path} is a safetensors file, but no posterior saved by bnnzoo.")
    if metadata["bnnzoo"] != str(FORMAT):
        raise ValueError(
            f"{path} has format {metadata['bnnzoo']}{_written_by(metadata['header'])}, and this version of bnnzoo reads format "
            f"{FORMAT}. Load it with the version that wrote it, or a newer one."
        )
    if _checksum(metadata["header"], tensors) != metadata["sha256"]:
        raise ValueError(f"{path} is damaged: its checksum does not match its contents. Restore it from a copy.")
    return tensors, json.loads(metadata["header"])


def _written_by(header: str) -> str:
    """Return by which version of bnnzoo a header was written, in words; nothing where one of another format does not say."""
    try:
        found = json.loads(header)["versions"]["bnnzoo"]
    except (ValueError, KeyError, TypeError):
        return ""
    return "" if found == UNKNOWN else f" of bnnzoo {found}"


@cache
def installed_version(package: str) -> str:
    """Return the version of a package, unknown where it runs from a checkout that is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return UNKNOWN


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    try:
        with safe_open(path, "pt") as file:
            # copies: what is mapped from a file could change with it
            return {name: file.get_tensor(name).clone() for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except (SafetensorError, RuntimeError, ValueError, OSError) as error:
        with path.open("rb") as file:
            is_netcdf = file.read(8)[1:4] == b"HDF"
        if is_netcdf:
            raise ValueError(
                f"{path} is a netCDF file, such as bnnzoo.save_tree writes, and no posterior: open it with "
                "xarray.open_datatree(path). A posterior is written by posterior.save."
            ) from error
        raise ValueError(
            f"{path} is damaged, or was not saved by bnnzoo: it cannot be read ({error}). Restore it from a copy."
        ) from error


def _checksum(header: str, tensors: Mapping[str, Tensor]) -> str:
    found = hashlib.sha256(header.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        found.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        found.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()
