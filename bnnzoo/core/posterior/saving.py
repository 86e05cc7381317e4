"""Saving of posteriors, and their printed forms."""

from pathlib import Path
from typing import Any, NoReturn

from torch import Tensor

from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.posterior.archive import installed_version, write_archive
from bnnzoo.core.posterior.folding import as_table, folded
from bnnzoo.core.posterior.info import FitInfo
from bnnzoo.core.posterior.stored import Stored, encode
from bnnzoo.core.reading.fingerprint import fingerprint
from bnnzoo.core.reading.streamed import StreamedDensity

__all__ = ["StoredPosterior"]

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
        >>> import torch
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
            "arguments": [_argument(value) for value in density.data],
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


def _argument(value: Any) -> dict[str, Any]:
    """Return the shape and dtype of a tensor, and any other argument itself where JSON knows it."""
    if isinstance(value, Tensor):
        return {"shape": list(value.shape), "dtype": str(value.dtype).removeprefix("torch.")}
    return (
        {"value": value}
        if value is None or isinstance(value, bool | int | float | str)
        else {"type": type(value).__name__}
    )
