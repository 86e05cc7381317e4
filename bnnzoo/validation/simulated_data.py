"""Simulated data sets: where truths come from, and observations drawn given them in the places of those that there are."""

import math
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.model.prior_terms import not_drawn_from_prior
from bnnzoo.core.model.terms import prior_factors
from bnnzoo.core.posterior.posterior import Posterior
from bnnzoo.core.program.numerics import NumericalFailure
from bnnzoo.core.program.sites import is_factor
from bnnzoo.core.reading.conditioned import predictive_density
from bnnzoo.core.reading.outcomes import observed_places
from bnnzoo.core.types import Data

__all__ = [
    "STREAM_OF_DATA",
    "CalibrationError",
    "outcomes_drawn",
    "places_of_outcomes",
    "refuse_truths_of_no_prior",
    "seed_of_data",
    "truth_from_prior",
    "truths_around",
]

LOST_COUNT = -(2.0**63)
"""What torch draws for a count of infinite mean."""


class CalibrationError(ValueError):
    """A calibration cannot be made or put together; the message is one sentence."""


STREAM_OF_DATA = {"stream of the data": "its own"}
"""In the headers of files: earlier ones, whose fits shared the stream of their data, are not mixed with others."""


def seed_of_data(seed: int) -> int:
    """Return the seed of the data for the fit of a seed, whose draws would follow the noise in the data if they shared it."""
    return (seed * 0x2545F4914F6CDD1D + 7) % 2**62


def outcomes_drawn(
    density: LogDensity, theta: Tensor, inputs: Data, places: Mapping[str, int], drawn_from: str = "prior"
) -> Data:
    """Return arguments of a model with observations drawn given ``theta[P]`` in their places, by torch's global random stream.

    Raises
    ------
    CalibrationError
        If they overflow, naming the site. The parameters were ``drawn_from`` the prior or the posterior.
    """
    with _explained(drawn_from):
        drawn = predictive_density(density, "prior").predictive(theta, *inputs)
    data = list(inputs)
    for site, place in places.items():
        values = drawn[site] if drawn[site].dtype.is_floating_point else drawn[site].double()
        # not finite, or its square is not; whole numbers have one that stands for an infinite one
        lost = ~(values.abs() < math.sqrt(torch.finfo(values.dtype).max)) | (values == LOST_COUNT)
        if bool(lost.any()):
            raise CalibrationError(
                f"The {drawn_from} predictive distribution overflows: with parameters drawn from the {drawn_from}, site {site!r} "
                f"is simulated as {float(values[lost][0]):.3g}. {_advice(drawn_from)}"
            )
        data[place] = drawn[site].to(data[place].dtype).reshape(data[place].shape)
    return tuple(data)


def truth_from_prior(density: LogDensity, given: Mapping[str, Tensor], inputs: Data) -> Tensor:
    """Return parameters ``[P]`` drawn from the prior but for sites that are given, by torch's global random stream.

    Raises
    ------
    CalibrationError
        If they overflow, naming the site.
    """
    with _explained("prior"):
        theta = density.prior_draw(given, *inputs)
    if not bool(theta.isfinite().all()):
        values = density.constrain(theta)
        name = next(site.name for site in density.sites if not bool(theta[site.span].isfinite().all()))
        raise CalibrationError(
            f"The prior of site {name!r} overflows: a draw is {values[name].flatten()[:3].tolist()}, of which the unconstrained "
            f"value is not finite in {density.dtype}. {_advice('prior')}"
        )
    return theta


@contextmanager
def _explained(drawn_from: str) -> Iterator[None]:
    """Say of a model that fails where its parameters were drawn from."""
    try:
        yield
    except NumericalFailure as error:
        raise CalibrationError(
            f"The model cannot be evaluated with parameters drawn from the {drawn_from}: {error.failure}. {_advice(drawn_from)}"
        ) from error


def _advice(drawn_from: str) -> str:
    if drawn_from == "posterior":
        return "Look at what the fit predicts, with bz.posterior_predictive(posterior, ...)."
    return (
        "Write narrower priors; bz.prior_predictive(model, ...) shows what data they imply. Or draw the parameters elsewhere: "
        "sbc(around='posterior') from the posterior, study(truth=...) not at all."
    )


def places_of_outcomes(density: LogDensity) -> dict[str, int]:
    """Return the number of the argument that each observed site observes.

    Raises
    ------
    ValueError
        If the model observes nothing, or a site observes no argument as it is, but a function of one.
    """
    if not density.observed or density.factors:
        raise CalibrationError(
            "Calibration by simulation draws new observations, but this model "
            + (
                f"has the factor {density.factors[0]!r}, from which none can be drawn."
                if density.factors
                else "observes nothing."
            )
        )
    found: dict[str, int] = {}
    for place, name in observed_places(density).items():
        found.setdefault(name, place)
    if missing := [name for name in density.observed if name not in found]:
        raise CalibrationError(
            f"Site {missing[0]!r} observes no argument of the model as it was passed, but a function of one, so simulated values "
            f"cannot take its place: pass what the site observes as an argument, pyro.sample({missing[0]!r}, ..., obs=y)."
        )
    return found


def refuse_truths_of_no_prior(density: LogDensity, given: Collection[str] = ()) -> None:
    """Refuse a model from whose prior density the parameters behind simulated data are not drawn.

    Parameters
    ----------
    density : LogDensity
    given : collection of str
        Latent sites whose values are given.

    Raises
    ------
    CalibrationError
        Naming the site.
    """
    for site, why in not_drawn_from_prior(density).items():
        if site not in given:
            raise CalibrationError(
                f"Parameters behind simulated data are drawn from the prior, and that of site {site!r} is {why}: nothing, or "
                f"something else, is drawn from it. Write a proper prior, without mask and scale."
            )
    if density.priors is not None:
        return  # known without a run of the model: none of its parts is a factor
    theta = torch.zeros(density.num_params, dtype=density.dtype, device=density.device)
    nodes = density.nodes(theta, *density.data)
    if factors := [name for name in prior_factors(nodes, density.likelihood) if is_factor(nodes[name])]:
        raise CalibrationError(
            f"Parameters behind simulated data are drawn from the prior; none are from pyro.factor({factors[0]!r}, ...), which "
            f"is a part of it. Write that prior as a distribution of its own."
        )


def truths_around(posterior: Posterior, number: int) -> Tensor:
    """Return draws ``[number, P]`` of a posterior, all its chains mixed; the first ones do not depend on how many there are.

    Draws of chains are in random order, and repeat, in another one, where there are fewer.
    """
    order = torch.Generator().manual_seed(seed_of_data(posterior.info.seed))
    parts: list[Tensor] = []
    while sum(map(len, parts)) < number:
        draws = posterior.draws(seed=posterior.info.seed + len(parts)).flatten(0, 1)
        parts.append(draws[torch.randperm(len(draws), generator=order).to(draws.device)])
    return torch.cat(parts)[:number]
