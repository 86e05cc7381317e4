"""The batches of a chain, which can be taken up again where a killed run stood."""

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from torch import Tensor

from bnnzoo.core.density import LogDensity
from bnnzoo.engine import pytree
from bnnzoo.inference.optimise.batches import AllRows, Batch, IndependentBatches, MemberBatches
from bnnzoo.inference.optimise.streams import MemberStreams

__all__ = ["BatchSource", "Drawn"]


class Drawn(NamedTuple):
    """A batch, and its tensors in the order of its leaves."""

    batch: Batch
    tensors: list[Tensor]


class BatchSource:
    """Batches of some chains, each with an order of the rows of its own that depends on the seed and its number alone.

    Parameters
    ----------
    density : LogDensity
    num_rows : int
        Rows of a batch; as many as the data have for all of them at every step.
    seed : int
    chains : range
        Numbers of these chains among all chains of the fit.
    independent : bool
        Draw each batch on its own, in place of passes over the data.

    Attributes
    ----------
    count : int
        Number of batches so far.
    """

    def __init__(
        self, density: LogDensity, num_rows: int, seed: int, chains: range, *, independent: bool = False
    ) -> None:
        self._density, self._chains, self._seed = density, chains, seed
        parts = IndependentBatches(num_rows) if independent else MemberBatches(num_rows)
        self._batches = AllRows() if num_rows >= density.num_data else parts
        self._drawn: Drawn | None = None
        self.skip_to(0)

    def skip_to(self, count: int) -> None:
        """Go on as if ``count`` batches had been drawn."""
        stream = self._batches.stream(self._density, MemberStreams(self._seed, self._chains))
        self._stream: Iterator[Batch] = islice(stream, count, None)
        self.count = count

    def next(self) -> Drawn:
        """Return the next batch."""
        batch, last = next(self._stream), self._drawn
        self.count += 1
        if last is None or batch is not last.batch:
            leaves = pytree.tree_leaves(batch.data)
            self._drawn = last = Drawn(batch, [leaf for leaf in leaves if isinstance(leaf, Tensor)])
        return last
