"""Cache of a posterior's predictions between calls: draws, latent groups, graphs by shape.

A call then runs the model once, at one draw, and compares: a network or a model that was changed, or that decides by the values
of its data, is evaluated anew.
"""

import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import xarray as xr
from torch import Tensor

from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.model.replay import Node
from bnnzoo.core.posterior.posterior import Posterior
from bnnzoo.core.types import Data
from bnnzoo.engine import pytree
from bnnzoo.engine.lowered import Lowered
from bnnzoo.engine.torch_private import version_of
from bnnzoo.predictive.blocks import Arrays, Function, TreeVariable, plan
from bnnzoo.predictive.independence import are_close, values_of
from bnnzoo.predictive.labels import Labels
from bnnzoo.predictive.latent import PosteriorDraws
from bnnzoo.predictive.row_functions import RowFunctions
from bnnzoo.predictive.rows import Rows
from bnnzoo.predictive.sweep import Sweep

__all__ = ["PreparedDraws", "PreparedRows", "are_same", "forget", "kept_common"]

type Groups = Mapping[str, xr.Dataset]

MAX_BYTES = 2**26
"""Of draws that are kept for the next call."""

MOST = 16
"""Shapes of arguments, and sets of options, for which something is kept; those unused for longest go first."""


@dataclass(frozen=True)
class PreparedRows:
    """The values of rows of one shape at all draws, without the model.

    Attributes
    ----------
    latent : mapping of str to Dataset
        Groups that are not about rows, of the model as it was traced.
    probe : Lowered
        ``(theta[P], *data) ->`` moments and log densities of rows, and the deterministic sites that are wanted.
    names : tuple of str
        Those sites.
    sweeps : list of Sweep
        What is evaluated at all draws.
    """

    latent: Groups
    probe: Lowered
    names: tuple[str, ...]
    sweeps: list[Sweep]

    @classmethod
    def of(cls, common: "PreparedDraws", functions: RowFunctions, rows: Rows, latent: Groups) -> "PreparedRows | None":
        """Trace what is wanted of rows of this shape; None if any of it needs the model or a global random stream.

        Parameters
        ----------
        common, functions, rows
        latent : mapping of str to Dataset
            Computed just now.
        """
        density, theta, seed = common.draws.posterior.density, common.draws.flat, common.draws.seed
        names = tuple(name for name in rows.deterministic if functions.kept.has("deterministic", name))
        sweeps = [rows.sweep(functions, theta, seed, is_repeated=True)]
        if names:

            def sites(theta: Tensor, *data: Any) -> dict[Any, Tensor]:
                return _sites(names, density.nodes(theta, *data))

            blocks = plan(sites, theta[0], rows.data, 0, splits=False, chunk_size=None)
            sweeps.append(Sweep(sites, theta, rows.read, rows.num_rows, blocks, seed, is_repeated=True))
        if not all(sweep.is_apart for sweep in sweeps):
            return None

        def probed(theta: Tensor, *data: Any) -> dict[Any, Tensor]:
            nodes = density.nodes(theta, *data)
            return values_of(density, nodes) | _sites(names, nodes)

        probe = Lowered(probed)
        if probe.specialize(theta[0], *rows.data).how != "traced":
            return None
        return cls(latent, probe, names, sweeps)

    def rows(self, theta: Tensor, *data: Any) -> dict[Any, Tensor]:
        """Return moments and log densities of rows at ``theta[P]``."""
        return {name: value for name, value in self.probe(theta, *data).items() if not isinstance(name, TreeVariable)}

    def holds(self, theta: Tensor, rows: Rows) -> bool:
        """Tell whether the model still gives what was traced, by what it has just given at ``theta[P]`` for these rows."""
        expected = {**rows.whole, **_sites(self.names, rows.deterministic)}
        found = self.probe(theta, *rows.data)
        return found.keys() == expected.keys() and all(are_close(found[name], expected[name]) for name in expected)

    def __call__(self, rows: Rows) -> Arrays:
        """Return the values ``[M, B, ...]`` at all draws."""
        found: Arrays = {}
        for sweep in self.sweeps:
            found |= sweep(rows.read)
        return found


@dataclass(frozen=True)
class PreparedDraws:
    """Draws of a posterior and how they predict, for calls with the same options.

    Attributes
    ----------
    draws : PosteriorDraws
    labels : Labels
    densities : sequence of LogDensity
        As in :func:`bnnzoo.predictive.rows.row_groups`.
    rows : mapping
        By the shapes of arguments; None for those that were there once.
    """

    draws: PosteriorDraws
    labels: Labels
    densities: tuple[LogDensity, ...]
    rows: OrderedDict[Hashable, PreparedRows | None] = field(default_factory=OrderedDict)

    def rows_for(self, data: Data) -> PreparedRows | None:
        """Return what is kept for arguments of these shapes."""
        return self.rows.get(_signature(data))

    def traced(self, data: Data) -> Function | None:
        """Return what is kept of the model itself for arguments of these shapes."""
        found = self.rows_for(data)
        return found.rows if found else None

    def learn(self, functions: RowFunctions, rows: Rows, latent: Groups, are_right: Callable[[Arrays], bool]) -> None:
        """Note that rows were predicted; the second time that rows of a shape are, trace what is wanted of them.

        ``are_right`` compares the values with those of the model, bit by bit.
        """
        key = _signature(rows.data)
        if key is None:
            return
        if key not in self.rows:
            _put(self.rows, key, None)
        elif (found := PreparedRows.of(self, functions, rows, latent)) and are_right(found(rows)):
            shared = (each.latent for each in self.rows.values() if each and are_same(each.latent, latent))
            _put(self.rows, key, replace(found, latent=next(shared, latent)))


type _Parts = tuple[
    Tensor, int, Tensor | None, Labels, tuple[LogDensity, ...], OrderedDict[Hashable, PreparedRows | None]
]
"""Of a :class:`PreparedDraws`, but for the posterior, which what is kept must not keep."""

_KEPT: dict[int, OrderedDict[Hashable, _Parts]] = {}


def kept_common(posterior: Posterior, options: Hashable | None, make: Callable[[], PreparedDraws]) -> PreparedDraws:
    """Return what was made for these options of a posterior before, unless its tensors were changed; else make it."""
    tensors = [*vars(posterior).values(), *pytree.tree_leaves(posterior.density.data)]
    versions = tuple(version_of(each) for each in tensors if isinstance(each, Tensor) and not each.is_inference())
    key, kept = (options, versions), _KEPT.get(id(posterior))
    if kept is not None and key in kept:
        theta, seed, members, labels, densities, of_rows = kept[key]
        return PreparedDraws(PosteriorDraws(posterior, theta, seed, members), labels, densities, of_rows)
    found = make()
    if options is None or len(found.densities) > 1 or not found.densities[0].observed:
        return found
    if found.draws.theta.nbytes <= MAX_BYTES and found.draws.posterior is posterior:
        if kept is None:
            weakref.finalize(posterior, _KEPT.pop, id(posterior), None)
            kept = _KEPT.setdefault(id(posterior), OrderedDict())
        draws = found.draws
        _put(kept, key, (draws.theta, draws.seed, draws.members, found.labels, found.densities, found.rows))
    return found


def forget(posterior: Posterior) -> None:
    """Drop what was kept of a posterior."""
    if id(posterior) in _KEPT:
        _KEPT[id(posterior)] = OrderedDict()


def _put[Value](kept: OrderedDict[Hashable, Value], key: Hashable, value: Value) -> None:
    kept[key] = value
    while len(kept) > MOST:
        kept.popitem(last=False)


def _sites(names: Iterable[str], nodes: Mapping[str, Node]) -> dict[Any, Tensor]:
    return {TreeVariable("deterministic", name): nodes[name]["value"] for name in names}


def _signature(data: Data) -> Hashable | None:
    """Return the shapes of tensors and the values of all else; None where these cannot be compared."""
    leaves, spec = pytree.tree_flatten(data)
    tensors = [(each.shape, each.stride(), each.dtype) if isinstance(each, Tensor) else each for each in leaves]
    found = (str(spec), *tensors)
    try:
        hash(found)
    except TypeError:
        return None
    return found


def are_same(a: Groups, b: Groups) -> bool:
    """Tell whether groups are equal, bit by bit, names and attributes included."""
    return a.keys() == b.keys() and all(a[name].identical(b[name]) for name in a)
