"""``load``: a posterior back from its file, matched with a model and its data."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import bnnzoo.inference  # noqa: F401  # which defines the kinds of posteriors
from bnnzoo.core.data.arguments import positional
from bnnzoo.core.data.minibatch import as_tensors
from bnnzoo.core.data.row_source import source_of
from bnnzoo.core.model.density import LogDensity, build_density
from bnnzoo.core.posterior.archive import read_archive
from bnnzoo.core.posterior.info import FitInfo
from bnnzoo.core.posterior.posterior import Posterior
from bnnzoo.core.posterior.saving import StoredPosterior
from bnnzoo.core.posterior.stored import Owner, decode, stored_kinds
from bnnzoo.core.program.surroundings import usable_device
from bnnzoo.core.program.turns import one_at_a_time
from bnnzoo.core.reading.changes import remember_model
from bnnzoo.core.reading.fingerprint import different_data, different_model
from bnnzoo.core.reading.placeholders import density_without_data
from bnnzoo.core.reading.reading import conformed
from bnnzoo.core.reading.streamed import read_streamed
from bnnzoo.core.types import Data, Model
from bnnzoo.engine.reports import first_line

__all__ = ["load"]


@one_at_a_time
def load(
    path: str | Path,
    model: Model,
    *data: Any,
    guide: Callable[..., Any] | None = None,
    device: torch.device | str | None = None,
    **named: Any,
) -> Posterior:
    """Return a posterior that was saved by ``posterior.save(path)``; it predicts what it predicted then, bit by bit.

    The file holds neither the model nor the data: pass the model of the fit and its training data, which are compared with
    the file's fingerprint. Leave the data out to predict new rows only: the posterior then draws and predicts as before,
    and whatever needs the training data (:func:`bnnzoo.posterior_predictive`, ``lp`` and deterministic sites in a tree)
    is refused or left out.

    Parameters
    ----------
    path : str or Path
        A file written by ``posterior.save(path)``.
    model : callable
        The Pyro model that was fitted.
    *data
        The data that it was fitted to, observations included; or nothing.
    guide : callable, optional
        The guide of a fit by :class:`bnnzoo.SVI`, as it was passed to it. Not needed for Pyro's autoguide classes.
    device : torch.device or str, optional
        Where to compute. Default: torch's default device.
    **named
        Arguments of the model by name, as they were passed to the fit.

    Returns
    -------
    Posterior
        Of the class that was saved, with its statistics, settings and seed.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the file is damaged, has a newer format, or holds the fit of another model or of other data; the message says
        what differs.

    Examples
    --------
    >>> import tempfile
    >>> import bnnzoo as bz
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian()
    >>> posterior = bz.fit(target.model, bz.Laplace(), *target.data, progress=False)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     posterior.save(f"{folder}/laplace.bnn")
    ...     loaded = bz.load(f"{folder}/laplace.bnn", target.model)
    >>> bool((bz.predict(loaded, target.data[0])["conditional"] == bz.predict(posterior, target.data[0])["conditional"]).all())
    True
    """
    fit = SavedFit(Path(path), *read_archive(Path(path)))
    given = positional(model, data, named) if data or named else ()  # a file may be loaded without its data
    density = fit.density(model, given, usable_device(device))
    remember_model(density)
    return fit.posterior(density, guide)


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

    def posterior(self, density: LogDensity, guide: Callable[..., Any] | None) -> Posterior:
        """Return the posterior."""
        with self._reading():
            info = decode(self.header["info"], self.tensors, {"FitInfo": FitInfo}, Owner(density))
            found: Posterior = decode(
                self.header["posterior"], self.tensors, stored_kinds(), Owner(density, info, guide)
            )
            if not isinstance(found, StoredPosterior):
                raise TypeError(f"a {type(found).__name__} is no posterior")
        return found

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
