"""Functions of rows evaluated at every draw: draws of y, their moments and log densities."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.model.terms import moments_of, pointwise_of
from bnnzoo.core.reading.conditioned import PredictiveDensity
from bnnzoo.core.types import Data
from bnnzoo.predictive.blocks import RANDOM_ROWS, Blocks, Function, TreeVariable, draw_blocks
from bnnzoo.predictive.kept_groups import EVERYTHING, KeptGroups
from bnnzoo.predictive.sweep import Sweep

__all__ = ["RowFunctions"]


@dataclass(frozen=True)
class RowFunctions:
    """Functions of ``theta[P]`` and rows, whose values are named by group and variable.

    Attributes
    ----------
    density : LogDensity
        Whose likelihood predicts.
    likelihoods : tuple of str
        Sites whose log density is wanted.
    kept : KeptGroups
        What is wanted at all.
    sites : tuple of str
        Deterministic sites that are wanted as well, of which each row has a value.
    """

    density: LogDensity
    likelihoods: tuple[str, ...]
    kept: KeptGroups = EVERYTHING
    sites: tuple[str, ...] = ()

    @classmethod
    def of(cls, density: LogDensity, observed: Iterable[str], kept: KeptGroups = EVERYTHING) -> "RowFunctions":
        """Return the functions for rows at which the given sites are observed."""
        names = tuple(observed)
        return cls(density, (*names, *(density.factors if names else ())), kept)  # a factor may exist only given y

    def pure(self, theta: Tensor, *data: Any) -> dict[Any, Tensor]:
        """Return moments, log densities and deterministic sites."""
        return self._of_outcomes(theta, *data) | self._of_sites(theta, *data)

    def _of_outcomes(self, theta: Tensor, *data: Any) -> dict[Any, Tensor]:
        if not self.kept.has_any("conditional", "log_likelihood"):
            return {}
        nodes = self.density.observed_nodes(theta, *data)
        found = _grouped("conditional", moments_of(nodes, self.density.observed))
        found |= _grouped("log_likelihood", pointwise_of(nodes, self.likelihoods))
        return {variable: value for variable, value in found.items() if self.kept.has(variable.group, variable.name)}

    def _of_sites(self, theta: Tensor, *data: Any) -> dict[Any, Tensor]:
        found = self.density.deterministics(theta, *data) if self.sites else {}
        return _grouped("deterministic", {name: found[name] for name in self.sites})

    def drawn(self, theta: Tensor, *data: Any) -> dict[Any, Tensor]:
        """Return a draw of y: of all observed sites or none, since leaving one out would change the numbers of the others."""
        if not self.kept.has_any("posterior_predictive"):
            return {}
        return _grouped("posterior_predictive", self.density.predictive(theta, *data))

    def sweep(
        self,
        theta: Tensor,
        read: Callable[[slice], Data],
        num_rows: int,
        seed: int,
        *,
        splits: bool,
        together: int = RANDOM_ROWS,
        is_repeated: bool = False,
    ) -> Sweep:
        """Return all that is wanted of rows at ``theta[M, P]``; each run of the model gives as much as it can.

        Parameters
        ----------
        theta, read, num_rows, seed, is_repeated
            As for :class:`bnnzoo.predictive.sweep.Sweep`.
        splits : bool
            Whether rows may be evaluated in blocks.
        together : int
            From :func:`bnnzoo.predictive.blocks.rows_together`.
        """
        drawn, besides = self.parts()
        blocks = self.blocks(theta, read, num_rows, splits=splits, together=together)
        return Sweep(drawn, theta, read, num_rows, blocks, seed, besides, is_repeated=is_repeated)

    def blocks(
        self, theta: Tensor, read: Callable[[slice], Data], num_rows: int, *, splits: bool, together: int
    ) -> Blocks:
        """Return the blocks in which y is drawn."""
        count = min(num_rows, together) if splits else num_rows
        where = theta[0], read(slice(0, count)), count
        return draw_blocks(self._drawn_and_moments, *where, splits=splits, together=together)

    def parts(self) -> tuple[Function, Function | None]:
        """Return what draws y and what is evaluated besides; a single function where one run of the model gives both.

        It does if moments alone are wanted, of one site: those of another might depend on the value that the first one has.
        It must where the moments are random themselves.
        """
        if self.draws_functions:
            return self._of_one_function, None
        wants_both = self.kept.has_any("posterior_predictive") and self.kept.has_any("conditional")
        wants_density = bool(self.likelihoods) and self.kept.has_any("log_likelihood")
        if wants_both and not (wants_density or self.sites) and len(self.density.observed) == 1:
            return self._in_one_run, None
        return self.drawn, self.pure

    @property
    def draws_functions(self) -> bool:
        """Whether moments are those of a function that is drawn, and so belong into one run of the model with y."""
        return isinstance(self.density, PredictiveDensity)

    def _of_one_function(self, theta: Tensor, *data: Any) -> dict[Any, Tensor]:
        given = self.density.observed_nodes(theta, *data)
        found = _grouped("conditional", moments_of(given, self.density.observed))
        found |= _grouped("log_likelihood", pointwise_of(given, self.likelihoods))
        drawn = {name: given[name]["fn"].sample() for name in self.density.observed}
        found |= _grouped("posterior_predictive", drawn)
        wanted = {each: value for each, value in found.items() if self.kept.has(each.group, each.name)}
        return wanted | self._of_sites(theta, *data)

    def _in_one_run(self, theta: Tensor, *data: Any) -> dict[Any, Tensor]:
        found = self._drawn_and_moments(theta, *data)
        groups = ("posterior_predictive",)  # kept whole, whatever is wanted of it
        return {each: v for each, v in found.items() if each.group in groups or self.kept.has(each.group, each.name)}

    def _drawn_and_moments(self, theta: Tensor, *data: Any) -> dict[Any, Tensor]:
        """Return what decides on the blocks of draws: neither y nor what is kept may change what is drawn."""
        nodes = self.density.observed_nodes(theta, *data, draw=True)
        values = {name: nodes[name]["value"] for name in self.density.observed}
        moments = moments_of(nodes, self.density.observed)
        return _grouped("posterior_predictive", values) | _grouped("conditional", moments)


def _grouped(group: str, values: Mapping[str, Tensor]) -> dict[Any, Tensor]:
    return {TreeVariable(group, name): value for name, value in values.items()}
