"""Simulations of a calibration: a data set with known parameters behind it, fitted, and the ranks of these."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from bnnzoo.core.data.minibatch import has_rows, select
from bnnzoo.core.fit_warnings import FitWarning
from bnnzoo.core.method import Method
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.model.prior_terms import prior_terms
from bnnzoo.core.model.replay import scaled_sum
from bnnzoo.core.posterior.posterior import Draws, Posterior
from bnnzoo.core.program.numerics import NumericalFailure
from bnnzoo.core.program.surroundings import isolated
from bnnzoo.core.types import Data
from bnnzoo.engine.lowered import Same
from bnnzoo.inference.many import ManyFits
from bnnzoo.validation.refits import fits_like
from bnnzoo.validation.simulated_data import CalibrationError, outcomes_drawn, seed_of_data, truth_from_prior

__all__ = [
    "KEPT",
    "SIMULATIONS_PER_TASK",
    "Quantities",
    "Simulation",
    "draws_of",
    "quantities_in_short",
    "quietly",
    "ranks_of",
    "values_in_short",
]

type Quantities = Callable[..., Mapping[str, Tensor]]
"""Maps the values of the latent sites, by name, and the model's arguments to test quantities of any shape."""

NUM_FUNCTION_VALUES = 3

SIMULATIONS_PER_TASK = 5
"""Of an executor, which share what is compiled."""


KEPT = "/"  # after the name of a group that is kept beside the ranks


@dataclass(frozen=True)
class Simulation:
    """One simulated data set, fitted, and the rank of the parameters behind it among the draws of the fit.

    Attributes
    ----------
    method : Method
    places : mapping of str to int
        Number of the argument that each observed site observes.
    num_draws : int
        Draws among which the truth is ranked.
    seed : int
        Of the simulation and its fit.
    theta : Tensor [P], optional
        The parameters behind the data; default: a draw from the prior.
    quantities : callable, optional
        Test quantities besides those of every model.
    appended : bool
        Whether the simulated observations come on top of those there are, as in posterior calibration.
    num_simulations : int
        How many there are, which share what is compiled.
    keep : bool
        Return the truth, the draws and the simulated outcomes, too.
    """

    method: Method
    places: Mapping[str, int]
    num_draws: int
    seed: int
    theta: Tensor | None = None
    quantities: Quantities | None = None
    appended: bool = False
    num_simulations: int = 1
    keep: bool = False

    def simulated(self, density: LogDensity) -> tuple[Tensor, Data]:
        """Return the parameters ``[P]`` and the data drawn given them."""
        with isolated(seed_of_data(self.seed), density.device), torch.no_grad():
            truth = truth_from_prior(density, {}, density.data) if self.theta is None else self.theta
            return truth, self._data(density, truth, "prior" if self.theta is None else "posterior")

    def ranks(self, truth: Tensor, posterior: Posterior) -> dict[str, Tensor]:
        """Return the rank, 0 to ``num_draws``, of each test quantity's true value; ties are broken at random."""
        count = posterior.draws().flatten(0, 1).shape[0] if isinstance(posterior, Draws) else self.num_draws
        if count < self.num_draws:
            raise CalibrationError(
                f"num_draws={self.num_draws}, but {posterior.info.method} gives {count} draws: ask for fewer, or fit with more."
            )
        ties = torch.Generator().manual_seed((self.seed * 0x5851F42D4C957F2D + 1) % 2**62)
        with torch.no_grad():
            drawn = draws_of(posterior, self.num_draws)
            points = torch.cat([truth.to(drawn)[None], drawn])
            density = posterior.density
            try:
                key = "test quantities", Same(self.quantities)
                found = density.over_points(key, partial(self._of, density))(points, *density.data)
            except RuntimeError:  # some distributions cannot be batched
                each = [self._of(density, point, *density.data) for point in points]
                found = {name: torch.stack([of_point[name] for of_point in each]) for name in each[0]}
            ranks = {name: _rank(values[0], values[1:], ties) for name, values in found.items()}
            return ranks | self._kept(density, points) if self.keep else ranks

    def _kept(self, density: LogDensity, points: Tensor) -> dict[str, Tensor]:
        """Return the truth and the draws of every latent site, and the simulated outcomes of every observed one."""
        values = density.constrain(points)
        truth = {f"truth{KEPT}{name}": value[0] for name, value in values.items()}
        draws = {f"draws{KEPT}{name}": value[1:] for name, value in values.items()}
        return truth | draws | {f"data{KEPT}{site}": density.data[place] for site, place in self.places.items()}

    def _data(self, density: LogDensity, theta: Tensor, drawn_from: str) -> Data:
        """Return the model's arguments with observations drawn given ``theta[P]``."""
        data = outcomes_drawn(density, theta, density.data, self.places, drawn_from)
        if not self.appended:
            return data
        pairs = zip(density.data, data, strict=True)
        return tuple(torch.cat([old, new]) if has_rows(old, density.num_data) else old for old, new in pairs)

    def _of(self, density: LogDensity, theta: Tensor, *data: Any) -> dict[str, Tensor]:
        """Return the test quantities at ``theta[P]``: scalars of the model, its log likelihood and a few function values."""
        values = density.constrain(theta)
        weights = {site.name for site in density.sites if site.is_weight}
        found = {name: value for name, value in values.items() if name not in weights}
        found["log_likelihood"] = density.log_likelihood(theta, *data).sum()
        few = slice(0, NUM_FUNCTION_VALUES)
        # with latent values of rows the model runs with all of them or not at all
        of_rows = any(plate in density.row_plates for site in density.sites for plate in site.plates)
        moments = density.conditional(theta, *(data if of_rows else select(data, few, density.num_data)))
        wanted = {name: value for name, value in moments.items() if name.rpartition(".")[2] in ("mean", "probs")}
        found |= {name: value[few] if value.ndim else value for name, value in wanted.items()}
        return found | (_of_ones_own(self.quantities, values, *data) if self.quantities else {})


def ranks_of(
    simulations: Sequence[Simulation],
    density: LogDensity,
    fits: ManyFits | None = None,
    warned: list[FitWarning] | None = None,
) -> list[dict[str, Tensor]]:
    """Return the ranks of some simulations of a model and method, whose fits are made together.

    Parameters
    ----------
    simulations : sequence of Simulation
    density : LogDensity
    fits : ManyFits, optional
        By which they are made, to be shared with others.
    warned : list, optional
        Takes down what fits warn of, which is not said then.
    """
    fits = fits or fits_like(density, simulations[0].method, simulations[0].num_simulations, judged=False)
    truths, datasets = zip(*(each.simulated(density) for each in simulations), strict=True)
    seeds = [each.seed for each in simulations]
    posteriors = fits(datasets, seeds) if warned is None else quietly(lambda: fits(datasets, seeds), warned)
    return [each.ranks(*pair) for each, *pair in zip(simulations, truths, posteriors, strict=True)]


def quietly[T](function: Callable[[], T], warned: list[FitWarning]) -> T:
    """Return the result of a function, and take down what fits in it warn of; other warnings are passed on."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", FitWarning)
        found = function()
    for each in caught:
        if isinstance(each.message, FitWarning):
            warned.append(each.message)
        else:
            warnings.warn(each.message, stacklevel=4)
    return found


def values_in_short(density: LogDensity) -> list[str]:
    """Return log densities at two points, rounded: another model or prior has other values there.

    They are those of each site, as a change of one prior does not show in the sum over many rows or weights, and the points
    have different coordinates, as parameters that changed places do not show where they are equal.
    """

    def of_sites(theta: Tensor) -> dict[str, Tensor]:
        nodes = density.observed_nodes(theta, *density.data)
        return {f"{name} observed": scaled_sum(nodes[name]) for name in density.likelihood if name in nodes}

    found = []
    uneven = _uneven_point(density)
    for theta in (torch.zeros_like(uneven), uneven):
        for terms in (
            partial(prior_terms, density, theta),
            partial(of_sites, theta),
            partial(_total, density, theta),
        ):
            try:
                with torch.no_grad():
                    found += [f"{name} {float(value):.4g}" for name, value in sorted(terms().items())]
            except (ValueError, ArithmeticError, RuntimeError, NumericalFailure):
                found.append("none")  # there the model fails, and another may not
    return found


def _uneven_point(density: LogDensity) -> Tensor:
    """Return a point ``[P]`` with different coordinates."""
    return torch.cos(torch.arange(density.num_params, dtype=density.dtype, device=density.device)) / 2


def _total(density: LogDensity, theta: Tensor) -> dict[str, Tensor]:
    return {"sum": density.log_joint(theta, *density.data)}


def quantities_in_short(quantities: Quantities | None, density: LogDensity) -> dict[str, str]:
    """Return the names of a user's test quantities and their sums at a point, rounded, by which another function is told.

    Raises
    ------
    TypeError
        If they are no function, or one that returns anything but tensors by name.
    """
    if quantities is None:
        return {}
    if not callable(quantities):
        raise TypeError(
            f"quantities is a {type(quantities).__name__}; write a function (values, *data) -> {{'name': Tensor}}."
        )
    with isolated(0, density.device), torch.no_grad():
        found = _of_ones_own(quantities, density.constrain(_uneven_point(density)), *density.data)
    return {name: f"{float(value.sum()):.4g}" for name, value in sorted(found.items())}


def _of_ones_own(quantities: Quantities, values: Mapping[str, Tensor], *data: Any) -> dict[str, Tensor]:
    found: Any = quantities(values, *data)
    if not isinstance(found, Mapping):
        raise TypeError(
            f"quantities returned a {type(found).__name__}; return tensors by name, such as {{'square': values['b'] ** 2}}."
        )
    for name, value in found.items():
        if not isinstance(value, Tensor):
            raise TypeError(
                f"quantities returned a {type(value).__name__} for {name!r}; return a tensor, without .item() and float()."
            )
    return dict(found)


def draws_of(posterior: Posterior, num_draws: int) -> Tensor:
    """Return ``num_draws`` draws ``[L, P]``, evenly spaced over the chains; some repeat if there are fewer."""
    found = posterior.draws(None if isinstance(posterior, Draws) else num_draws).flatten(0, 1)
    return found[torch.linspace(0, len(found) - 1, num_draws).round().long()]


def _rank(true: Tensor, drawn: Tensor, generator: torch.Generator) -> Tensor:
    """Return how many draws ``[L, ...]`` lie below the truth, of equal ones a random share."""
    below, ties = (drawn < true).sum(0), (drawn == true).sum(0)
    share = torch.rand(ties.shape, generator=generator).to(ties.device)
    return below + torch.floor(share * (ties + 1)).to(below)
