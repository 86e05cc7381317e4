"""Distances between posteriors in function space, each with its Monte Carlo floor."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
import xarray as xr

from bnnzoo.diagnostics.floor import chain_halves, floor_of, limit_of
from bnnzoo.diagnostics.function_space import function_values
from bnnzoo.diagnostics.same_rows import refuse_other_rows
from bnnzoo.diagnostics.split_distances import Array, Distances, Indices, Split, evenly, split_distances
from bnnzoo.trees import SAMPLE_DIMS, moment, refuse_no_trees, refuse_other_kind, refuse_single_draw

__all__ = ["PosteriorDistances", "compare_posteriors"]


class PosteriorDistances(xr.Dataset):
    """Distances of posteriors from a reference; prints as a table of their averages over rows."""

    __slots__ = ()

    def table(self) -> pd.DataFrame:
        """Return a row for each method: averages over rows, beside their limits.

        Returns
        -------
        DataFrame
            A column for each distance and its ``..._limit``, below which the average of equal posteriors lies.
        """
        names = [str(name) for name in self.data_vars if not str(name).endswith(("_floor", "_limit"))]
        ordered = [each for name in names for each in (name, f"{name}_limit") if each in self.data_vars]
        values = {
            name: self[name].mean([dim for dim in self[name].dims if dim != "model"]).to_numpy() for name in ordered
        }
        return pd.DataFrame(values, index=pd.Index(self["model"].to_numpy(), name="model"))

    def _is_whole(self) -> bool:
        return (
            "reference" in self.attrs
            and "model" in self.dims
            and any(f"{name}_limit" in self for name in self.data_vars)
        )

    def __repr__(self) -> str:
        """Return the table, where no dim was averaged away before."""
        if not self._is_whole():
            return super().__repr__()
        return f"Distances from {self.attrs['reference']}, averages over rows\n{self.table().round(3).T.to_string()}"

    def _repr_html_(self) -> str:
        """Return the table, and what is in it row by row, which unfolds."""
        if not self._is_whole():
            return str(super()._repr_html_())
        rows = f"<details><summary>row by row</summary>{super()._repr_html_()}</details>"
        return f"<p>Distances from {self.attrs['reference']}, averages over rows</p>{self.table().round(3).T.to_html()}{rows}"


def compare_posteriors(
    trees: Mapping[str, xr.DataTree], reference: str, replicate: xr.DataTree | None = None
) -> PosteriorDistances:
    r"""Compare posteriors with a reference in function space, next to the Monte Carlo error of the comparison.

    The draws that are compared are those of :math:`f_i = E[y_i \mid x_i, \theta]`, or of the class probabilities, for each
    observation i. The distance between two sets of draws is not zero even if they come from the same distribution. Each
    distance therefore comes with a Monte Carlo floor: the same distance, with the same number of draws, between two halves
    of the reference. The halves consist of whole chains if there are several, so that the floor includes disagreement
    between chains, and up to ten splits are averaged; a single chain is cut in the middle.

    The floor is what to expect of a row. The limit is for the average of a distance over all rows: some 95% of averages lie
    below it if the distributions are equal. It is the 95% quantile of the averages between random halves of the reference,
    made of blocks of consecutive draws, and larger if its chains differ by more than these halves. If rows move independently
    it is close to the average floor; if all move together, two or three times as high. An average below its limit is no
    evidence of a difference. The other posterior is taken to have as many effective draws as a half of the reference.

    Parameters
    ----------
    trees : mapping of str to DataTree
        Predictions of each method for the same observations, with ``mean`` or ``probs`` in the group ``conditional``.
    reference : str
        Key of the tree to compare with, such as long NUTS chains.
    replicate : DataTree, optional
        A second, independent run of the reference. The floor is then its distance from the reference, and the limit that of
        random halves of both.

    Returns
    -------
    PosteriorDistances
        A dataset that prints as a table of averages over rows. For each distance a variable and its ``..._floor``,
        both ``[model, obs_id, ...]``, without the reference, and its ``..._limit`` ``[model]``. For real predictions
        ``mean_difference`` :math:`|E f - E f_{ref}| / sd(f_{ref})`; ``log_sd_ratio`` :math:`|\log sd(f) / sd(f_{ref})|`;
        ``wasserstein``, the 1-Wasserstein distance of the draws over :math:`sd(f_{ref})`; and, without a floor,
        ``sd_ratio``, which is below one for overconfident methods. For class probabilities ``total_variation`` of the
        averages; ``disagreement``, whether the most probable class differs; and ``wasserstein``, half the sum over classes
        of the 1-Wasserstein distances of their probabilities, which is at least the total variation. All are dimensionless.

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
    >>> bool(result["log_sd_ratio"].mean() > result["log_sd_ratio_limit"])
    True
    """
    values = _values(trees, reference)
    base = values.pop(reference)
    dims = [dim for dim in base.dims if dim not in (*SAMPLE_DIMS, "class_id")]
    again = []
    if replicate is not None:
        name = f"replicate of {reference}"
        again = [_values({reference: trees[reference], name: replicate}, reference)[name]]
    against = _Reference.of(base, *again)
    found = [against.distances(_flat(array)) for array in values.values()]
    counts = [against.count(array.sizes["chain"] * array.sizes["draw"]) for array in values.values()]
    of_counts = {count: against.limits(count) for count in {*counts}}
    limits = [of_counts[count] for count in counts]
    variables = {name: (["model", *dims], np.stack([each[name] for each in found])) for name in found[0]}
    result = PosteriorDistances(
        variables | {f"{name}_limit": ("model", [each[name] for each in limits]) for name in limits[0]}
    )
    coords = {name: coord for name, coord in base.coords.items() if set(coord.dims) <= {*dims}}
    return result.assign_coords({**coords, "model": list(values)}).assign_attrs(reference=reference)


@dataclass(frozen=True)
class _Reference:
    """The draws of a reference and of its replicate, in one pool, and how they are split into halves."""

    pool: Array
    chains: list[Indices]
    splits: list[Split]
    scale: Array

    @classmethod
    def of(cls, base: xr.DataArray, *again: xr.DataArray) -> "_Reference":
        shapes = [(array.sizes["chain"], array.sizes["draw"]) for array in (base, *again)]
        places = np.split(np.arange(sum(c * s for c, s in shapes)), np.cumsum([c * s for c, s in shapes])[:-1])
        chains = [chain for place, shape in zip(places, shapes, strict=True) for chain in place.reshape(shape)]
        splits = [(places[0], places[1])] if again else chain_halves(*shapes[0])
        scale = np.empty(0) if "class_id" in base.dims else _scale(base)
        return cls(np.concatenate([_flat(array) for array in (base, *again)]), chains, splits, scale)

    def distances(self, draws: Array) -> Distances:
        """Return distances of draws from the halves, and between the halves, with equal numbers of draws."""
        count = self.count(len(draws))
        own = np.arange(count) + len(self.pool)
        both = np.concatenate([self.pool, draws[evenly(np.arange(len(draws)), count)]])
        splits = [(own, evenly(half, count)) for pair in self.splits for half in pair]
        distances = {name: each.mean(0) for name, each in split_distances(both, splits, self.scale).items()}
        floors = floor_of(self.pool, self.splits, count, self.scale)
        ratio = {"sd_ratio": draws.std(0) / self.scale} if self.scale.size else {}
        return distances | {f"{name}_floor": floor for name, floor in floors.items()} | ratio

    def limits(self, count: int) -> dict[str, float]:
        """Return the limit of each distance averaged over rows, for comparisons of so many draws."""
        return limit_of(self.pool, self.chains, self.splits, count, self.scale)

    def count(self, num_draws: int) -> int:
        """Return the number of draws that are compared, given that of the other posterior."""
        return min(num_draws, *(len(half) for half in self.splits[0]))


def _values(trees: Mapping[str, xr.DataTree], reference: str) -> dict[str, xr.DataArray]:
    refuse_no_trees("trees", trees)
    refuse_other_kind(reference, str, "reference", "the name of one of the trees")
    if reference not in trees:
        raise ValueError(f"The reference {reference!r} is not one of the trees ({', '.join(trees)}).")
    if len(trees) < 2:
        raise ValueError(f"There is only the reference {reference!r}: add trees of other methods to compare with it.")
    values = {name: function_values(tree) for name, tree in trees.items()}
    # both of two classes, since distances sum over classes
    values = {name: moment(trees[name], "probs") if "class_id" in each.dims else each for name, each in values.items()}
    for name, array in values.items():
        refuse_single_draw(array, f"compare_posteriors ({name!r})")
        refuse_other_rows(name, trees[name], array, reference, trees[reference], values[reference])
    return values


def _flat(array: xr.DataArray) -> Array:
    """Return draws ``[C * S, ...]``."""
    values = array.transpose(*SAMPLE_DIMS, ...).to_numpy().astype(float)
    return values.reshape(-1, *values.shape[2:])


def _scale(base: xr.DataArray) -> Array:
    """Return standard deviations over draws, NaN for constant predictions, which have no scale."""
    scale = _flat(base).std(0)
    return np.where(scale > 0, scale, np.nan)
