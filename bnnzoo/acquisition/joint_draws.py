"""Two trees of predictions from the same draws of the parameters: what joint distributions of labels need."""

import numpy as np
import xarray as xr

from bnnzoo.trees import SAMPLE_DIMS, Labelled

__all__ = ["refuse_other_draws"]

SAME_ATTRIBUTES = ("inference_method", "config", "seed", "draw_seed")  # with these the same, so are the draws


def refuse_other_draws(pool: Labelled, target: Labelled, moments: tuple[xr.DataArray, xr.DataArray]) -> None:
    """Raise unless the s-th draw of both is made with the same parameters, as far as the two say.

    The log joint density of the draws, ``lp`` in ``sample_stats``, settles it where both trees have it; else their
    attributes, such as ``draw_seed``, must agree. Trees of other libraries may have neither.

    Parameters
    ----------
    pool, target : DataTree, Dataset or DataArray
    moments : tuple of DataArray [chain, draw, ...]
        What is used of either.

    Raises
    ------
    ValueError
        If the numbers of draws, their log densities, or attributes differ.
    """
    sizes = [f"{array.sizes['chain']} x {array.sizes['draw']}" for array in moments]
    if sizes[0] != sizes[1]:
        raise ValueError(f"epig needs the same draws of pool and target, but there are {sizes[0]} and {sizes[1]}.")
    if not (isinstance(pool, xr.DataTree) and isinstance(target, xr.DataTree)):
        return
    pool, target = pool.root, target.root  # of groups
    stats = [t["sample_stats"].to_dataset() if "sample_stats" in t.children else xr.Dataset() for t in (pool, target)]
    densities = [each["lp"].transpose(*SAMPLE_DIMS).to_numpy() if "lp" in each else None for each in stats]
    if densities[0] is None or densities[1] is None:
        for name in SAME_ATTRIBUTES:
            ours, theirs = pool.attrs.get(name), target.attrs.get(name)
            if ours is not None and theirs is not None and ours != theirs:
                raise ValueError(
                    f"epig needs the same draws of pool and target, but their {name} is {ours!r} and {theirs!r}: predict "
                    "both with one posterior and the same seed and num_draws."
                )
    elif densities[0].shape != densities[1].shape or not np.allclose(densities[0], densities[1], equal_nan=True):
        seeds = [tree.attrs.get("draw_seed") for tree in (pool, target)]
        raise ValueError(
            f"epig needs the same draws of pool and target, but their log densities ('lp') "
            f"differ{f' (draw_seed {seeds[0]} and {seeds[1]})' if seeds[0] != seeds[1] else ''}: predict both with one "
            f"posterior and the same seed and num_draws."
        )
