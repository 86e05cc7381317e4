"""Predictions made some rows at a time, for a store, a tree, or a measure of each row."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path

import xarray as xr

from bnnzoo.core.data.sizes import free_memory
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.reading.conditioned import PredictiveDensity
from bnnzoo.core.types import Data
from bnnzoo.predictive import datatree
from bnnzoo.predictive.gathered import Gathered
from bnnzoo.predictive.kept_groups import NEW_DATA_NAMES, ROW_GROUPS, KeptGroups, refuse_unknown
from bnnzoo.predictive.labels import ROWS, Labels
from bnnzoo.predictive.latent import PosteriorDraws
from bnnzoo.predictive.linearized import rows_density
from bnnzoo.predictive.many_rows import Band, ManyRows
from bnnzoo.predictive.row_functions import RowFunctions
from bnnzoo.predictive.store import open_store, write_store

__all__ = ["Prediction", "measured", "renamed"]

type Groups = Mapping[str, xr.Dataset]


class Prediction:
    """New rows to be predicted some at a time, and what is wanted of them.

    Parameters
    ----------
    draws : PosteriorDraws
    raw : tuple
        Arguments of the model as they were passed.
    densities : sequence of LogDensity
        As in :func:`bnnzoo.predictive.rows.row_groups`.
    kept : KeptGroups
    labels : Labels

    Raises
    ------
    ValueError
        If something is wanted that there is not.
    """

    def __init__(
        self, draws: PosteriorDraws, raw: Data, densities: Sequence[LogDensity], kept: KeptGroups, labels: Labels
    ) -> None:
        density = rows_density(draws.posterior, tuple(densities))
        self._draws, self._densities, self._kept, self._labels = draws, densities, kept, labels
        self._many = ManyRows.of(density, draws.flat, raw) if density.observed else None
        for group, variables in (self._many.head.variables(density) if self._many else {}).items():
            refuse_unknown(kept, group, variables)

    @property
    def num_rows(self) -> int:
        """Number of rows; 0 where they cannot be told apart."""
        return self._many.num_rows if self._many else 0

    def bands(self) -> Iterator[Band]:
        """Return the predictions for some rows after another, under the names for new data.

        Raises
        ------
        ValueError
            If rows cannot be predicted a part at a time.
        """
        if self._many is None and isinstance(self._densities[0], PredictiveDensity):
            raise ValueError(
                "These rows cannot be predicted some at a time, because this model draws one function jointly for all of them: "
                "leave store= out, pass the rows in memory, and call the measure on the tree of predict."
            )
        if self._many is None:
            raise ValueError(
                "These rows cannot be predicted some at a time, because a row's prediction depends on the others or the model "
                "has no row for each observation: leave store= out, and call the measure on the tree of predict."
            )
        if len(self._densities) > 1:
            raise ValueError(
                "The components of this mixture predict with outputs linearised at different points, which is done for all rows "
                "at once: leave store= out, or write linearized=False."
            )
        if not self._kept.has_any(*ROW_GROUPS):
            return iter(())
        found = self._many.bands(self._draws, self._functions(self._many), self._labels)
        return map(_under_new_names, found)  # which, unlike a generator, holds no band while the next one is made

    def stored(self, path: Path, latent: Groups, attributes: Mapping[str, str | int | float]) -> xr.DataTree:
        """Write the tree to a store and return it, not loaded."""
        bands = self.bands()
        first = next(bands, None)
        if first is not None:
            latent = {name: group for name, group in self._applied(first, latent).items() if name in latent}
        parts = map(partial(self._own, latent), chain(() if first is None else (first,), bands))
        del first  # so that it goes once it is written
        write_store(path, parts, self.num_rows, latent, attributes)
        return open_store(path)

    def in_memory(self) -> Groups:
        """Return the groups of all rows, if they fit.

        Raises
        ------
        ValueError
            If they do not fit into the memory that is free, or rows cannot be predicted a part at a time.
        """
        self.refuse_too_large()
        found: dict[str, Gathered] = {}
        for band in self.bands():
            for name, group in band.groups.items():
                found.setdefault(name, Gathered(self.num_rows)).add(group, band.rows)
        return {name: group.dataset() for name, group in found.items()}

    def refuse_too_large(self) -> None:
        """Refuse a tree that does not fit into the memory that is free, before it is computed.

        Raises
        ------
        ValueError
            With the sizes, and what to write instead.
        """
        many, theta = self._many, self._draws.flat
        if many is None or not self._kept.has_any(*ROW_GROUPS):
            return
        found = many.bytes_by_group(len(theta), self._functions(many), theta[0])
        sizes = {NEW_DATA_NAMES.get(name, name): size for name, size in found.items()}
        total, free = sum(sizes.values()), free_memory()
        if free is not None and total > free:
            named = ", ".join(f"{name} {size / 1e9:.2g}" for name, size in sizes.items())
            raise ValueError(
                f"A tree of {len(theta):,} draws x {many.num_rows:,} rows takes {total / 1e9:.3g} GB ({named}), but "
                f'{free / 1e9:.3g} GB are free. Write it to disk with store="run.zarr", leave parts out with '
                f'keep=("conditional/mean",), or use measure_predictions(posterior, measure, x).'
            )

    def _functions(self, many: ManyRows) -> RowFunctions:
        return RowFunctions.of(self._densities[0], many.head.observed, self._kept)

    def _applied(self, band: Band, latent: Groups) -> Groups:
        """Return the groups with the coordinates that the user chose, those of rows cut to the band."""
        coords = dict(self._labels.coords)
        if ROWS in coords and self._many is not None:
            if len(coords[ROWS]) != self._many.num_rows:
                raise ValueError(
                    f"coords[{ROWS!r}] has {len(coords[ROWS])} labels, but the dimension has length {self._many.num_rows}: write "
                    f"one label for each."
                )
            coords[ROWS] = coords[ROWS][band.rows]
        return replace(self._labels, coords=coords).applied({**latent, **band.groups})

    def _own(self, latent: Groups, band: Band) -> Band:
        groups = self._applied(band, latent).items()
        return Band(band.rows, {name: group for name, group in groups if name in band.groups})


def renamed(groups: Groups) -> dict[str, xr.Dataset]:
    """Return groups under their names for new data."""
    return {NEW_DATA_NAMES.get(name, name): group for name, group in groups.items()}


def _under_new_names(band: Band) -> Band:
    return Band(band.rows, renamed(band.groups))


def measured(
    rows: Prediction,
    measure: Callable[[xr.DataTree], xr.Dataset | xr.DataArray],
    attributes: Mapping[str, str | int | float],
) -> xr.Dataset:
    """Return the measure of each row.

    Raises
    ------
    TypeError
        If it is no xarray object.
    ValueError
        If it has no dim ``obs_id``, or there is nothing to measure.
    """
    found = Gathered(rows.num_rows)
    for band in rows.bands():
        tree = datatree.from_groups(band.groups, attributes)
        found.add(_of_rows(measure, measure(tree)), band.rows)
        # let go of the arrays of a tree: its nodes know each other, so that Python would free them much later
        for node in tree.subtree:
            node.dataset = xr.Dataset()
    if not (whole := found.dataset()):
        raise ValueError('keep leaves nothing to measure: write a group of predictions, such as keep=("conditional",).')
    return whole


def _of_rows(measure: Callable[..., object], found: object) -> xr.Dataset:
    name = getattr(measure, "__name__", "measure")
    if not isinstance(found, xr.Dataset | xr.DataArray):
        raise TypeError(
            f"{name} gives an object of type {type(found).__name__}, and measure_predictions needs an xarray Dataset or "
            f"DataArray with a value for each row, such as bnnzoo.uncertainty.decompose gives."
        )
    dataset = found.to_dataset(name=found.name or name) if isinstance(found, xr.DataArray) else found
    if without := [str(each) for each, values in dataset.data_vars.items() if ROWS not in values.dims]:
        raise ValueError(
            f"{name} gives {without[0]!r} for all rows together, and measure_predictions needs a value for each row: call it on "
            f"the tree of predict, or use a measure with the dim {ROWS}."
        )
    return dataset
