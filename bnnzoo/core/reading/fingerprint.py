"""Fingerprints of models and data."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from bnnzoo.core.data.minibatch import num_numbers
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.model.learnable import with_reference
from bnnzoo.core.model.terms import log_prior_of, moments_of, pointwise_of
from bnnzoo.core.program.space import ParameterSpace
from bnnzoo.core.program.surroundings import isolated
from bnnzoo.core.types import Data

__all__ = [
    "LOG_LIKELIHOOD",
    "LOG_PRIOR",
    "VALUES",
    "Fingerprint",
    "different_data",
    "different_model",
    "different_values",
    "digest",
    "fingerprint",
    "identity",
    "sites_of",
    "tolerance_of",
    "values_at",
]

type Fingerprint = dict[str, Any]
"""Plain values by name, ready for JSON."""

VALUES = "values at random points"
LOG_DENSITY = "log density at a fixed point"
"""What files held before they held values at random points."""

LOG_PRIOR, LOG_LIKELIHOOD = "log prior", "log likelihood"

SCALES_OF_POINTS, NUM_ENTRIES = (1.0, 1.0, 10.0, 10.0), 16
"""Random points, in units of the prior, and evenly spaced entries of each moment that are kept there.

Far points tell functions apart that are the same near zero, such as ReLU and ReLU6.
"""

NUM_DRAWS = 8
"""Draws from the prior that tell its location and scale."""

MAX_NUMBERS = 2**24
"""In made-up data; a model of larger data is not asked without them."""

RELATIVE_ERROR = {torch.float32: 1e-4}
"""Of what another machine computes, which adds up in another order; of typical values for moments, of the sum for densities."""


def fingerprint(density: LogDensity) -> Fingerprint:
    """Return what identifies a model and its data: its :func:`identity`, and values at random points of the prior's scale.

    They are the log prior density, the log likelihood and the moments of p(y | x, theta), and again the log prior density and
    the moments for made-up data of the same shapes, by which a model is known where the data are not there.

    Examples
    --------
    >>> from bnnzoo.core.model.density import build_density
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian()
    >>> found = fingerprint(build_density(target.model, *target.data))
    >>> found["latent sites"], found["observed sites"]
    ({'w': '[3] Real'}, ['y'])
    """
    density = replace(density, model=with_reference(density.model))
    # the mean and the standard deviation of each site's prior in unconstrained space, to two digits
    draws = []
    for seed in range(NUM_DRAWS):
        with isolated(seed, density.device), torch.no_grad(), suppress(Exception):  # improper, or fails at some draws
            draws.append(density.prior_draw({}, *density.data))
    theta = torch.stack(draws).nan_to_num(0.0, 0.0, 0.0) if len(draws) > 1 else None
    scales = {}
    for site in density.sites:
        own = None if theta is None else theta[:, site.span].double()
        loc, scale = (0.0, 1.0) if own is None or not own.numel() else (float(own.mean()), float(own.std()))
        scales[site.name] = [float(f"{loc:.2g}"), float(f"{scale:.2g}")]
    points = _points(density, scales)
    given = {"with data": values_at(density, points, *density.data, given=True)}
    made_up = _made_up(density.data)
    without = {} if made_up is None else {"without data": values_at(density, points, *made_up, given=False)}
    about = {
        "scales": scales,
        "sizes": [density.num_params, density.num_data],
        "tolerance": tolerance_of(density.dtype),
    }
    return identity(density) | {VALUES: {**about, **given, **without}}


def identity(density: LogDensity) -> Fingerprint:
    """Return the sites of a model and digests of its data."""
    return {
        "latent sites": sites_of(density),
        "observed sites": _observed(density),
        "data": [digest(value) for value in density.data],
    }


def sites_of(space: ParameterSpace) -> dict[str, str]:
    """Return the shape and the support of every latent site, as text."""
    return {site.name: f"{list(site.shape)} {_name_of(site.support)}" for site in space.sites}


def digest(value: Any) -> str:
    """Return an argument of a model as text: the kind, shape and a digest of a tensor, or what Python prints."""
    if not isinstance(value, Tensor):
        return type(value).__name__ if " at 0x" in repr(value) else repr(value)
    data = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
    return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)} {hashlib.sha256(data).hexdigest()[:16]}"


def different_data(saved: Fingerprint, data: Data) -> str | None:
    """Return how the data differ from those of a fingerprint, as part of a sentence; None if they do not."""
    before, now = saved["data"], [digest(value) for value in data]
    if len(before) != len(now):
        return f"the model was fitted to {len(before)} arguments, and {len(now)} are given"
    for place, (old, new) in enumerate(zip(before, now, strict=True)):
        if old != new:
            (kind, values), (given, others) = (
                each.rsplit(" ", 1) if "]" in each else (each, "") for each in (old, new)
            )
            if kind == given and values != others:
                return f"argument {place + 1} of the model, {kind}, has other values than it had in the fit"
            return f"argument {place + 1} of the model was {kind}, and {given} is given"
    return None


def different_model(saved: Fingerprint, density: LogDensity) -> str | None:
    """Return how a model differs from that of a fingerprint, as part of a sentence; None if it does not."""
    found = (
        _different_sites(saved["latent sites"], sites_of(density)),
        _different("the observed sites are", saved["observed sites"], _observed(density)),
    )
    for sentence in found:
        if sentence:
            return sentence
    if VALUES in saved:
        return _different_now(saved[VALUES], density)
    return _different_density(saved[LOG_DENSITY], density) if density.has_data else None


def different_values(saved: Mapping[str, Any], found: Mapping[str, Any], kind: str = "with data") -> str | None:
    """Return how values at random points differ, as part of a sentence; None if they do not."""
    tolerance, (num_params, num_data) = saved["tolerance"], saved["sizes"]
    for name, before in saved[kind].items():
        old, new = (torch.tensor(values, dtype=torch.float64) for values in (before, found[kind].get(name, [])))
        what = f"the {name}" if name in (LOG_PRIOR, LOG_LIKELIHOOD) else f"the {name} of an observation"
        if old.shape != new.shape:
            return f"{what} at a random point cannot be computed as it was then"
        if name in (LOG_PRIOR, LOG_LIKELIHOOD):
            typical = torch.full_like(old, num_params if name == LOG_PRIOR else num_data)
        else:
            typical = old.abs().nan_to_num(0.0, 0.0, 0.0).median(-1, keepdim=True).values.expand_as(old)
        is_close = (old - new).abs() <= tolerance * (old.abs() + typical)
        different = ~(is_close | (old == new) | (old.isnan() & new.isnan()))
        if bool(different.any()):
            place = tuple(different.nonzero()[0].tolist())
            culprit = "a prior" if name == LOG_PRIOR else "the likelihood, or a network in it,"
            return f"{what} at a random point was {float(old[place]):.6g} and is {float(new[place]):.6g}, so {culprit} differs"
    return None


def _different_now(saved: Mapping[str, Any], density: LogDensity) -> str | None:
    density = replace(density, model=with_reference(density.model))
    points = _points(density, saved["scales"])
    if density.has_data:
        return different_values(saved, {"with data": values_at(density, points, *density.data, given=True)})
    made_up = _made_up(density.data)
    if made_up is None or "without data" not in saved:
        return None
    return different_values(saved, {"without data": values_at(density, points, *made_up, given=False)}, "without data")


def tolerance_of(dtype: torch.dtype) -> float:
    """Return the relative difference that the order of additions may make."""
    return RELATIVE_ERROR.get(dtype, 1e-8)


def _observed(density: LogDensity) -> list[str]:
    return [*density.observed, *density.factors]


def _log_density(density: LogDensity) -> float:
    theta = torch.full((density.num_params,), 0.1, dtype=density.dtype, device=density.device)
    with torch.no_grad():
        return float(density.log_joint(theta, *density.data))


def _points(density: LogDensity, scales: Mapping[str, Sequence[float]]) -> list[Tensor]:
    """Return random points ``theta[P]``, the same wherever they are computed."""
    generator = torch.Generator().manual_seed(0)
    found = []
    for factor in SCALES_OF_POINTS:
        theta = factor * torch.randn(density.num_params, generator=generator, dtype=torch.float64)
        for site in density.sites:
            loc, scale = scales[site.name]
            theta[site.span] = loc + scale * theta[site.span]
        found.append(theta.to(density.device, density.dtype))
    return found


def _made_up(data: Data) -> Data | None:
    """Return data of the same shapes between zero and one, whole numbers zero; None if they would be too many."""
    if num_numbers(data) > MAX_NUMBERS:
        return None
    generator = torch.Generator().manual_seed(1)
    return tuple(_random_like(value, generator) if isinstance(value, Tensor) else value for value in data)


def _random_like(value: Tensor, generator: torch.Generator) -> Tensor:
    if not value.is_floating_point():
        return torch.zeros_like(value)
    return torch.rand(value.shape, generator=generator, dtype=torch.float64).to(value.device, value.dtype)


def values_at(density: LogDensity, points: Sequence[Tensor], *batch: Any, given: bool) -> dict[str, list[Any]]:
    """Return the log densities and moments at each point; nothing where the model fails, as it may on made-up data."""
    found: dict[str, list[Any]] = {}
    for theta in points:
        with isolated(0, density.device), torch.no_grad(), suppress(Exception):
            nodes = density.nodes(theta, *batch)
            found.setdefault(LOG_PRIOR, []).append(float(log_prior_of(density, theta, nodes, density.likelihood)))
            if given:
                terms = pointwise_of(nodes, density.likelihood).values()
                found.setdefault(LOG_LIKELIHOOD, []).append(float(sum(term.sum() for term in terms)))
            for name, value in moments_of(nodes, density.observed).items():
                entries = value.double().flatten()
                places = torch.linspace(0, len(entries) - 1, min(NUM_ENTRIES, len(entries))).long()
                found.setdefault(name, []).append(entries[places.to(entries.device)].tolist())
    return found


def _name_of(support: Any) -> str:
    """Name a constraint without its bounds, which the log density tells apart, and without the dims of an event."""
    inner = getattr(support, "base_constraint", None)
    return type(support).__name__.removeprefix("_") if inner is None else _name_of(inner)


def _different_sites(saved: Mapping[str, str], found: Mapping[str, str]) -> str | None:
    for name in saved:
        if name not in found:
            return f"it has a latent site {name!r}, which this model lacks"
    for name in found:
        if name not in saved:
            return f"this model has a latent site {name!r}, which the file lacks"
    changed = [name for name in saved if saved[name] != found[name]]
    if changed:
        return f"latent site {changed[0]!r} is {saved[changed[0]]} in the file and {found[changed[0]]} in this model"
    return _different("the latent sites are, in order,", list(saved), list(found))


def _different_density(saved: float, density: LogDensity) -> str | None:
    found = _log_density(density)
    if math.isclose(saved, found, rel_tol=1e-4, abs_tol=1e-4) or (math.isnan(saved) and math.isnan(found)):
        return None
    return f"the model's log density at a fixed point was {saved:.6g} and is {found:.6g}, so a prior or the likelihood differs"


def _different(what: str, saved: list[str], found: list[str]) -> str | None:
    return None if saved == found else f"{what} {', '.join(saved)} in the file and {', '.join(found)} in this model"
