"""Distance of predictions from a reference posterior."""

import xarray as xr

from bnnzoo.diagnostics import compare_posteriors
from bnnzoo.zoo.reference import reference

__all__ = ["score"]


def score(tree: xr.DataTree, name: str) -> xr.Dataset:
    """Return the distance of predictions from a card's reference posterior, next to its Monte Carlo floor.

    Parameters
    ----------
    tree : DataTree
        Predictions for the card's test rows, such as ``card.predict(posterior)`` or a tree of a method of your own.
    name : str
        Of the card.

    Returns
    -------
    Dataset
        Along ``measure``, those of :func:`bnnzoo.diagnostics.compare_posteriors` that have a floor: ``distance`` and
        ``floor``, averages over rows; ``limit``, which ``distance`` exceeds for 5% of perfect methods; ``ratio`` of distance and
        floor, near one for a perfect method; and ``worst_row``, where they are furthest apart. All are dimensionless.

    Raises
    ------
    ZooError
        If there is no such card or it has no reference.
    ValueError
        If the tree predicts other rows.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> exact = bz.zoo.reference("linear-regression")
    >>> bool((bz.zoo.score(exact, "linear-regression")["ratio"] < 1.5).all())
    True
    """
    compared = compare_posteriors({"yours": tree, "reference": reference(name)}, reference="reference")
    found = compared.isel(model=0, drop=True)
    names = [str(each).removesuffix("_floor") for each in found.data_vars if str(each).endswith("_floor")]
    parts = [_of_rows(found[each], found[f"{each}_floor"]).assign(limit=found[f"{each}_limit"]) for each in names]
    return xr.concat(parts, dim="measure").assign_coords(measure=names).assign_attrs(reference=name)


def _of_rows(distance: xr.DataArray, floor: xr.DataArray) -> xr.Dataset:
    excess = (distance - floor).fillna(0.0)
    rows = excess.max([dim for dim in excess.dims if dim != "obs_id"])
    mean, mean_floor = distance.mean(), floor.mean()
    ratio = xr.where(mean_floor > 0, mean / mean_floor, xr.where(mean > 0, float("inf"), 1.0))
    return xr.Dataset({"distance": mean, "floor": mean_floor, "ratio": ratio, "worst_row": rows.argmax("obs_id")})
