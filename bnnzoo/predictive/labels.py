"""Names of dimensions and coordinates: those of plates and data frames, and those that the user chooses."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from bnnzoo.core.data.described import described
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.types import Data

__all__ = ["ROWS", "Coords", "Dims", "Labels", "Plates", "own_dims", "row_labels"]

type Dims = Mapping[str, Sequence[str]]
type Coords = Mapping[str, Any]
type Plates = Mapping[str, tuple[str | None, ...]]

ROWS = "obs_id"
TITLED = {"observed_data", "posterior_predictive", "predictions", "predictions_observed_data"}
RESERVED = ("chain", "draw", ROWS, "output_id", "class_id")


@dataclass(frozen=True)
class Labels:
    """Names of the dimensions of sites and inputs, and coordinates along them.

    Attributes
    ----------
    dims : mapping of str to sequence of str
        Of latent and deterministic sites and of inputs, without chain and draw: what the user chose.
    coords : mapping of str to array_like
        Labels along dimensions.
    plates : mapping of str to tuple
        Plate of each axis of a site, None where there is none.
    row_plates : tuple of str
        Plates that become ``obs_id``.
    model_dims, model_coords : mapping
        What the model itself says of its sites, as those of formulas do; the user's own come first.
    class_names : tuple of str
        Of outcomes that are numbers of classes: an attribute of class probabilities.
    titles : mapping of str to str
        Names of observed sites in the user's words: an attribute ``long_name`` of observations and predictions.
    """

    dims: Dims = field(default_factory=dict)
    coords: Coords = field(default_factory=dict)
    plates: Plates = field(default_factory=dict)
    row_plates: tuple[str, ...] = ()
    model_dims: Dims = field(default_factory=dict)
    model_coords: Coords = field(default_factory=dict)
    class_names: tuple[str, ...] = ()
    titles: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, density: LogDensity, dims: Dims | None = None, coords: Coords | None = None) -> "Labels":
        """Return the names for the sites of a model; refuse those that bnnzoo's measures need as they are."""
        for name, names in (dims or {}).items():
            if name in density.observed:
                raise ValueError(
                    f"dims[{name!r}]: {name!r} is observed, and the dimensions of observations are always obs_id, then "
                    f"output_id, since measures look for them. Label them with coords={{'obs_id': [...]}} instead."
                )
            if isinstance(names, str):
                raise ValueError(f"dims[{name!r}]={names!r}: write a list of names, [{names!r}].")
            if bad := [dim for dim in names if dim in ("chain", "draw")]:
                raise ValueError(f"dims[{name!r}] has {bad[0]!r}: leave chain and draw out, every draw has them.")
            if bad := [dim for dim in names if dim in {*density.observed, *(site.name for site in density.sites)}]:
                raise ValueError(
                    f"dims[{name!r}] has {bad[0]!r}, which is the name of a site: give the dimension another name."
                )
        plates = {site.name: site.plates for site in density.sites}
        own = described(density.model)
        names = tuple(map(str, own.levels))
        return cls(dims or {}, coords or {}, plates, density.row_plates, own.dims, own.coords, names, own.titles)

    def of_sites(self, arrays: Mapping[str, NDArray[Any]]) -> dict[str, tuple[str, ...]]:
        """Return the dims of sites ``[C, S, ...]`` after chain and draw.

        Plates that have the name of a variable or a reserved name, or whose name is there twice, keep the default.
        """
        found = {}
        for name, values in arrays.items():
            defaults = own_dims(name, values.ndim - 2)
            if name in self.dims:
                _refuse_other_length(name, self.dims[name], values.shape[2:])
                found[name] = tuple(self.dims[name])
                continue
            if len(self.model_dims.get(name, ())) == len(defaults) > 0:
                found[name] = tuple(self.model_dims[name])
                continue
            plates = self.plates.get(name, ())
            usable = self._usable(plates if len(plates) == len(defaults) else (None,) * len(defaults), {*arrays})
            found[name] = tuple(plate or default for plate, default in zip(usable, defaults, strict=True))
        return found

    def _usable(self, plates: tuple[str | None, ...], variables: set[str]) -> list[str | None]:
        count = Counter(plates)
        bad = variables.union(RESERVED)
        renamed = [ROWS if plate in self.row_plates else None if plate in bad else plate for plate in plates]
        return [new if count[old] == 1 else None for old, new in zip(plates, renamed, strict=True)]

    def of_input(self, name: str, shape: tuple[int, ...], has_rows: bool) -> tuple[str, ...]:
        """Return the dims of an argument of the model."""
        if name in self.dims:
            _refuse_other_length(name, self.dims[name], shape)
            return tuple(self.dims[name])
        lead = (ROWS,) if has_rows else ()
        return (*lead, *own_dims(name, len(shape) - len(lead)))

    def applied(self, groups: Mapping[str, xr.Dataset]) -> dict[str, xr.Dataset]:
        """Return groups with the coordinates, wherever a dimension has their length.

        Raises
        ------
        ValueError
            If a name of ``dims`` or ``coords`` is not in the tree, or a dimension has another length.
        """
        variables = {str(name) for group in groups.values() for name in group.data_vars}
        for name in self.dims:
            if name not in variables:
                raise ValueError(
                    f"dims names {name!r}, but the tree has no such variable; it has {', '.join(sorted(variables))}."
                )
        lengths = {dim: {g.sizes[dim] for g in groups.values() if dim in g.sizes} for dim in self.coords}
        for dim, labels in self.coords.items():
            if not lengths[dim]:
                dims = sorted({str(d) for g in groups.values() for d in g.dims})
                raise ValueError(f"coords names {dim!r}, but the tree has no such dimension; it has {', '.join(dims)}.")
            if len(labels) not in lengths[dim]:
                raise ValueError(
                    f"coords[{dim!r}] has {len(labels)} labels, but the dimension has length "
                    f"{' or '.join(map(str, sorted(lengths[dim])))}: write one label for each."
                )
        known = {**self.model_coords, **self.coords}
        found: dict[str, xr.Dataset] = {}
        for name, group in groups.items():
            fitting = {dim: labels for dim, labels in known.items() if group.sizes.get(dim) == len(labels)}
            found[name] = group.assign_coords({dim: _array(labels) for dim, labels in fitting.items()})
            if "class_id" in known or not self.class_names or group.sizes.get("class_id") != len(self.class_names):
                continue
            for values in found[name].data_vars.values():
                if "class_id" in values.dims:
                    values.attrs["class_names"] = list(self.class_names)
        for name in TITLED & found.keys():
            for site in self.titles.keys() & found[name].data_vars.keys():
                found[name][site].attrs["long_name"] = self.titles[site]
        return found


def row_labels(raw: Data, num_rows: int) -> NDArray[Any] | None:
    """Return the index of the first pandas argument with as many rows; None if there is none, or labels are not unique."""
    for value in raw:
        if hasattr(value, "iloc") and len(value) == num_rows:
            index = value.index
            return _array(index) if index.is_unique and index.nlevels == 1 else None
    return None


def own_dims(name: str, ndim: int) -> tuple[str, ...]:
    """Return the default names of dimensions, ``<name>_dim_0`` and so on."""
    return tuple(f"{name}_dim_{i}" for i in range(ndim))


def _array(labels: Any) -> NDArray[Any]:
    """Return labels as numbers, naive times or text: netCDF stores nothing else."""
    array = np.asarray(labels)
    return array if array.dtype.kind in "iufMU" else np.array([str(label) for label in array])


def _refuse_other_length(name: str, dims: Sequence[str], shape: tuple[int, ...]) -> None:
    if len(dims) != len(shape):
        raise ValueError(
            f"dims[{name!r}] has {len(dims)} names ({', '.join(dims)}), but {name!r} has shape {tuple(shape)}: write one name "
            f"for each axis."
        )
