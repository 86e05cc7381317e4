"""Posteriors in files: what is written about a fit, and how a file is matched with a model and its data."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor

from bnnzoo.core.data.minibatch import as_tensors
from bnnzoo.core.data.row_source import source_of
from bnnzoo.core.model.density import LogDensity, build_density
from bnnzoo.core.posterior.archive import read_archive, write_archive
from bnnzoo.core.posterior.folding import as_table, folded
from bnnzoo.core.posterior.info import FitInfo
from bnnzoo.core.posterior.stored import Owner, Stored, decode, encode
from bnnzoo.core.reading.fingerprint import different_data, different_model, fingerprint
from bnnzoo.core.reading.placeholders import arguments_of, density_without_data
from bnnzoo.core.reading.reading import conformed
from bnnzoo.core.reading.streamed import StreamedDensity, read_streamed
from bnnzoo.core.types import Data, Model
from bnnzoo.engine.reports import first_line

__all__ = ["SavedFit", "StoredPosterior", "installed_version", "open_fit"]

PACKAGES = ("bnnzoo", "torch", "pyro-ppl")
MAX_LISTED = 30
"""Sites of which the HTML form names the shape."""


class StoredPosterior(Stored):
    """A posterior that can be saved and printed; :class:`bnnzoo.core.posterior.stored.Stored` says how others join."""

    density: LogDensity
    info: FitInfo

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Refuse to be pickled.

        Raises
        ------
        TypeError
            Saying how a posterior is written and read.
        """
        raise TypeError(
            f"A {type(self).__name__} posterior cannot be pickled: it holds the model, its data and compiled code. Write "
            f"posterior.save('fit.bnn'), and read it with bnnzoo.load('fit.bnn', model, x, y)."
        )

    def __copy__(self) -> "StoredPosterior":
        """Return the posterior itself, which does not change."""
        return self

    def __deepcopy__(self, memo: object) -> "StoredPosterior":
        """Return the posterior itself, which does not change."""
        return self

    def save(self, path: str | Path) -> None:
        """Write this posterior to one file, from which :func:`bnnzoo.load` restores it bit by bit.

        The file holds tensors in the safetensors format and a header of plain values: what was fitted and how, and a
        fingerprint of the model and its data, but neither of the two themselves. It is complete or not there at all.

        Parameters
        ----------
        path : str or Path
            Name of the file, which is replaced if it exists.

        Raises
        ------
        ValueError
            If the posterior was itself loaded without its data.

        Examples
        --------
        >>> import tempfile
        >>> import bnnzoo as bz
        >>> from bnnzoo.testing import linear_gaussian
        >>> target = linear_gaussian()
        >>> posterior = bz.fit(target.model, bz.Laplace(), *target.data, progress=False)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     posterior.save(f"{folder}/laplace.bnn")
        ...     loaded = bz.load(f"{folder}/laplace.bnn", target.model, *target.data)
        >>> bool(torch.equal(loaded.draws(), posterior.draws()))
        True
        """
        density = self.density
        is_streamed = isinstance(density, StreamedDensity)
        if not density.has_data and not is_streamed:
            raise ValueError(
                "This posterior was loaded without its training data, so its file cannot be written again. Copy the file, or "
                "load it with the data: bnnzoo.load(path, model, *data)."
            )
        tensors: dict[str, Tensor] = {}
        header = {
            "versions": {name: installed_version(name) for name in PACKAGES},
            "dtype": str(density.dtype).removeprefix("torch."),
            "arguments": arguments_of(density.data),
            "streamed": is_streamed,
            "fingerprint": fingerprint(density),
            "info": encode(self.info, tensors),
            "posterior": encode(self, tensors),
        }
        write_archive(Path(path), tensors, header)

    def __repr__(self) -> str:
        """Describe the fit in one line; no tensor is printed."""
        info = self.info
        parts = [
            info.method or "no method",
            *self._summary(),
            info.duration(),
            *([] if info.complete else ["interrupted"]),
            f"sites {self.density.sites_in_short()}",
        ]
        return f"{type(self).__name__}({', '.join(parts)})"

    def _repr_html_(self) -> str:
        """Return the same line, which unfolds to sites, cost and settings."""
        sites = [f"{site.name} {list(site.shape)}" for site in self.density.sites]
        rows = {
            "sites": "\n".join(
                sites[:MAX_LISTED] + [f"and {len(sites) - MAX_LISTED} more"] * (len(sites) > MAX_LISTED)
            ),
            "observations": f"{self.density.num_data} of {', '.join(self.density.likelihood) or 'nothing'}",
            "fit": repr(self.info),
            "engine": "" if self.info.engine is None else str(self.info.engine),
            "settings": "\n".join(f"{name} = {value}" for name, value in self.info.config.items()),
        }
        return folded(repr(self), as_table({name: text for name, text in rows.items() if text}))

    def _summary(self) -> list[str]:
        """Return what is to be said of this kind of posterior beyond its fit and its sites."""
        return []


@dataclass(frozen=True)
class SavedFit:
    """What a file says, read and checked, and not yet matched with a model.

    Attributes
    ----------
    path : Path
    tensors : mapping of str to Tensor
    header : mapping
    """

    path: Path
    tensors: Mapping[str, Tensor]
    header: Mapping[str, Any]

    def density(self, model: Model, data: Data, device: torch.device) -> LogDensity:
        """Return the log density of ``model`` given its training data, or given their shapes if ``data`` is empty.

        Raises
        ------
        ValueError
            If the model or the data are not those of the fit.
        """
        with self._reading(ValueError, RuntimeError):
            dtype, arguments, saved = _dtype(self.header["dtype"]), self.header["arguments"], self.header["fingerprint"]
            shapes = [_shaped(each) for each in arguments]
            _ = dict(saved["latent sites"]), list(saved["observed sites"]), list(saved["data"])
        if arguments and not data:
            density: LogDensity = density_without_data(model, arguments, dtype, device)
        elif self.header.get("streamed"):
            density, _ = read_streamed(model, source_of(data, dtype, device), dtype, device)
            self._refuse(different_data(saved, density.data))
        else:
            tensors = conformed(as_tensors(data, dtype, device, gaps=True, owned=True), tuple(shapes))
            self._refuse(different_data(saved, tensors))
            density = build_density(model, *tensors, dtype=dtype, device=device)
        with self._reading():
            found = different_model(saved, density)
        self._refuse(found)
        return density

    def posterior(self, density: LogDensity, kinds: Sequence[type[Stored]], guide: Callable[..., Any] | None) -> Any:
        """Return the posterior, whose parts are of the given classes."""
        with self._reading():
            info = decode(self.header["info"], self.tensors, [FitInfo], Owner(density))
            return decode(self.header["posterior"], self.tensors, kinds, Owner(density, info, guide))

    @contextmanager
    def _reading(self, *errors: type[Exception]) -> Iterator[None]:
        """Refuse a header that is not as bnnzoo writes it, whatever its checksum says; ``errors`` say so, too."""
        damaged: tuple[type[Exception], ...] = (AttributeError, LookupError, TypeError, *errors)
        try:
            yield
        except damaged as error:
            raise ValueError(
                f"{self.path} was not saved by bnnzoo, or was changed since: its header cannot be read ({first_line(error)}). "
                f"Restore it from a copy."
            ) from error

    def _refuse(self, found: str | None) -> None:
        if found:
            raise ValueError(f"{self.path} holds another fit: {found}.")


def open_fit(path: Path) -> SavedFit:
    """Read the file of a saved posterior and check that it is whole.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the file is damaged, has a newer format, or was not written by bnnzoo.
    """
    return SavedFit(path, *read_archive(path))


def _dtype(name: object) -> torch.dtype:
    """Return a type by its name; any other attribute of torch is none."""
    found = getattr(torch, str(name), None)
    if not isinstance(found, torch.dtype):
        raise TypeError(f"{name!r} is no type of tensors")
    return found


def _shaped(argument: Mapping[str, Any]) -> Tensor | None:
    """Return a tensor of an argument's shape and type, without values; None for other arguments."""
    if not {"shape", "dtype"} & argument.keys():
        if "value" not in argument and "type" not in argument:
            raise KeyError("an argument without its kind")
        return None
    return torch.empty(argument["shape"], dtype=_dtype(argument["dtype"]), device="meta")


@cache
def installed_version(package: str) -> str:
    """Return the version of a package, unknown where it runs from a checkout that is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
