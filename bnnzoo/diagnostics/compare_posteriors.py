"""Distances between posteriors in function space, each with its Monte Carlo floor."""

from collections.abc import Callable, Mapping
from itertools import combinations, islice

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from bnnzoo.diagnostics.function_space import function_values
from bnnzoo.diagnostics.same_rows import refuse_other_rows
from bnnzoo.labelled import SAMPLE_DIMS, moment, refuse_single_draw

__all__ = ["compare_posteriors"]

type Array = NDArray[np.floating]
type Distances = dict[str, Array]

MAX_SPLITS = 10  # of the reference's chains into two halves


def compare_posteriors(
    trees: Mapping[str, xr.DataTree], reference: str, replicate: xr.DataTree | None = None
) -> xr.Dataset:
    r"""Compare posteriors with a reference in function space, next to the Monte Carlo error of the comparison.

    The draws that are compared are those of :math:`f_i = E[y_i \mid x_i, \theta]`, or of the class probabilities, for each
    observation i. The distance between two sets of draws is not zero even if they come from the same distribution. Each
    distance therefore comes with a Monte Carlo floor: the same distance, with the same number of draws, between two halves
    of the reference. The halves consist of whole chains if there are several, so that the floor includes disagreement
    between chains, and up to ten splits are averaged; a single chain is cut in the middle. A distance that is not clearly
    above its floor is no evidence of a difference.

    Parameters
    ----------
    trees : mapping of str to DataTree
        Predictions of each method for the same observations, with ``mean`` or ``probs`` in the group ``conditional``.
    reference : str
        Key of the tree to compare with, such as long NUTS chains.
    replicate : DataTree, optional
        A second, independent run of the reference. The floor is then its distance from the reference.

    Returns
    -------
    Dataset
        For each distance a variable and its ``..._floor``, both ``[model, obs_id, ...]``, without the reference. For real
        predictions ``mean_difference`` :math:`|E f - E f_{ref}| / sd(f_{ref})`; ``log_sd_ratio``
        :math:`|\log sd(f) / sd(f_{ref})|`; ``wasserstein``, the 1-Wasserstein distance of the draws over
        :math:`sd(f_{ref})`; and, without a floor, ``sd_ratio``, which is below one for overconfident methods. For class
        probabilities ``total_variation`` of the averages; ``disagreement``, whether the most probable class differs;
        and ``wasserstein``, half the sum over classes of the 1-Wasserstein distances of their probabilities, which is
        at least the total variation. All are dimensionless.

    Raises
    ------
    ValueError
        If the reference is not among the trees, rows differ in number, label or inputs, or there are too few draws.

    References
    ----------
    P. Izmailov et al., What are Bayesian neural network posteriors really like?, ICML 2021.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> def tree(scale):
    ...     mean = (("chain", "draw", "obs_id"), scale * rng.normal(size=(2, 200, 3)))
    ...     return xr.DataTree.from_dict({"conditional": xr.Dataset({"mean": mean})})
    >>> result = compare_posteriors({"nuts": tree(1.0), "mfvi": tree(0.2)}, reference="nuts")
    >>> bool((result["log_sd_ratio"] > 5 * result["log_sd_ratio_floor"]).all())
    True
    """
    values = _values(trees, reference)
    base = values.pop(reference)
    has_classes = "class_id" in base.dims
    measure = _class_distances if has_classes else _real_distances
    pairs = _halves(base)
    if replicate is not None:
        pairs = [(_flat(base), _flat(_replicate(replicate, trees[reference], reference)))]
    scale = _scale(base)
    dims = ["model", *(dim for dim in base.dims if dim not in (*SAMPLE_DIMS, *(("class_id",) if has_classes else ())))]
    found = [_against(_flat(array), pairs, scale, measure) for array in values.values()]
    result = xr.Dataset({name: (dims, np.stack([each[name] for each in found])) for name in found[0]})
    coords = {name: coord for name, coord in base.coords.items() if set(coord.dims) <= set(dims)}
    return result.assign_coords({**coords, "model": list(values)}).assign_attrs(reference=reference)


def _values(trees: Mapping[str, xr.DataTree], reference: str) -> dict[str, xr.DataArray]:
    if reference not in trees:
        raise ValueError(f"The reference {reference!r} is not one of the trees ({', '.join(trees)}).")
    if len(trees) < 2:
        raise ValueError(f"There is only the reference {reference!r}: add trees of other methods to compare with it.")
    values = {name: _all_values(tree) for name, tree in trees.items()}
    for name, array in values.items():
        refuse_single_draw(array, f"compare_posteriors ({name!r})")
        refuse_other_rows(name, trees[name], array, reference, trees[reference], values[reference])
    return values


def _all_values(tree: xr.DataTree) -> xr.DataArray:
    """Return the function values, with both of two classes, since distances sum over classes."""
    values = function_values(tree)
    return moment(tree, "probs") if "class_id" in values.dims else values


def _replicate(tree: xr.DataTree, base: xr.DataTree, reference: str) -> xr.DataArray:
    name = f"replicate of {reference}"
    return _values({reference: base, name: tree}, reference)[name]


def _flat(array: xr.DataArray) -> Array:
    """Return draws ``[C * S, ...]``."""
    values = array.transpose(*SAMPLE_DIMS, ...).to_numpy().astype(float)
    return values.reshape(-1, *values.shape[2:])


def _scale(base: xr.DataArray) -> Array:
    """Return standard deviations over draws, NaN for constant predictions, which have no scale."""
    scale = _flat(base).std(0)
    return np.where(scale > 0, scale, np.nan)


def _halves(base: xr.DataArray) -> list[tuple[Array, Array]]:
    chains, draws = base.sizes["chain"], base.sizes["draw"]
    if chains == 1:
        middle = draws // 2
        return [(_flat(base.isel(draw=slice(middle))), _flat(base.isel(draw=slice(middle, 2 * middle))))]
    members = range(chains - chains % 2)
    splits = [half for half in combinations(members, len(members) // 2) if 0 in half]
    pairs = ((half, [chain for chain in members if chain not in half]) for half in islice(splits, MAX_SPLITS))
    return [(_flat(base.isel(chain=list(one))), _flat(base.isel(chain=other))) for one, other in pairs]


def _against(
    draws: Array, pairs: list[tuple[Array, Array]], scale: Array, measure: Callable[[Array, Array, Array], Distances]
) -> Distances:
    """Return distances of draws from the halves of the reference, and between the halves, with equal numbers of draws."""
    count = min(len(draws), *(len(half) for half in pairs[0]))
    own = [measure(_thin(draws, count), _thin(half, count), scale) for pair in pairs for half in pair]
    floor = [measure(_thin(one, count), _thin(other, count), scale) for one, other in pairs]
    distances = {name: np.mean([each[name] for each in own], axis=0) for name in own[0]}
    floors = {f"{name}_floor": np.mean([each[name] for each in floor], axis=0) for name in own[0]}
    return distances | floors | ({} if measure is _class_distances else {"sd_ratio": draws.std(0) / scale})


def _thin(draws: Array, count: int) -> Array:
    return draws[np.linspace(0, len(draws) - 1, count).round().astype(int)]


def _real_distances(draws: Array, other: Array, scale: Array) -> Distances:
    with np.errstate(divide="ignore", invalid="ignore"):
        return {
            "mean_difference": np.abs(draws.mean(0) - other.mean(0)) / scale,
            "log_sd_ratio": np.abs(np.log(draws.std(0) / other.std(0))),
            "wasserstein": _wasserstein(draws, other) / scale,
        }


def _class_distances(draws: Array, other: Array, scale: Array) -> Distances:
    average, other_average = draws.mean(0), other.mean(0)
    return {
        "total_variation": 0.5 * np.abs(average - other_average).sum(-1),
        "disagreement": (average.argmax(-1) != other_average.argmax(-1)).astype(float),
        "wasserstein": 0.5 * _wasserstein(draws, other).sum(-1),
    }


def _wasserstein(draws: Array, other: Array) -> Array:
    """Return the 1-Wasserstein distance between two samples of equal size, along the first axis."""
    distance: Array = np.abs(np.sort(draws, axis=0) - np.sort(other, axis=0)).mean(0)
    return distance
