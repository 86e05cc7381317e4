"""Test of the gradient of a log density at each latent site, by finite differences at a few points before a fit."""

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import vmap

from bnnzoo.core.fit_warnings import INSIDE
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.model.hessian import in_double
from bnnzoo.core.model.replay import Node, scaled_sum
from bnnzoo.core.model.terms import pointwise_of, prior_factors, summed_by_row
from bnnzoo.core.program.numerics import NumericalFailure
from bnnzoo.core.program.sites import ModelError, ModelWarning, Site, refuse_other_sites
from bnnzoo.core.program.surroundings import isolated
from bnnzoo.core.types import Data

__all__ = ["Terms", "WeightedTerms", "ask_gradients", "probes"]

STEPS = {torch.float32: 1e-2}
STEP = 1e-3
"""Length of a finite difference's step; a second one of half the length tells how far it can be trusted."""

TRUSTED = 0.05
"""Relative difference between both steps below which they are believed."""

OFF, FAR = 0.01, 0.5
"""Relative difference from the gradient from which on it is wrong if it is so at another point, too, and wrong anyway."""

MANY_SITES = 32
"""Sites that are asked one by one; further ones are asked together."""

MAX_NUMBERS = 2**23
"""In all points at which the density is asked."""

ALTERNATIVES, MAX_SUSPECTS = 6, 8
"""Draws from the prior at which a site without a gradient is looked at again, and how many such sites are."""

NEAR_ZERO = 1e-3

NOTICED = 1e-6
"""Change of a term, relative or absolute, that is no rounding; a thousand times as much in single precision."""


@dataclass(frozen=True)
class Terms:
    """The terms whose sum is a log joint density: one for each latent site, its Jacobian included, factor and observed site.

    Attributes
    ----------
    density : LogDensity
    names : tuple of str
        The first ones are those of the latent sites.
    """

    density: LogDensity
    names: tuple[str, ...]

    @classmethod
    def of(cls, density: LogDensity, first: Mapping[str, Node]) -> "Terms":
        """Return the terms of a model, of which ``first`` are the nodes of one run."""
        factors = prior_factors(first, density.likelihood)
        return cls(density, (*(s.name for s in density.sites), *factors, *density.likelihood))

    def __call__(self, theta: Tensor, *batch: object) -> Tensor:
        """Return the terms ``[J]`` at ``theta[P]``; those of B of the N observations count N/B times."""
        density, nodes = self.density, self.density.nodes(theta, *batch)
        refuse_other_sites(nodes.values(), (site.name for site in density.sites), density.observed)
        free, found = density.unconstrained(theta), {}
        for site in density.sites:
            jacobian = site.transform.log_abs_det_jacobian(free[site.name], nodes[site.name]["value"])
            found[site.name] = jacobian.sum() + scaled_sum(nodes[site.name])
        likelihood = pointwise_of(nodes, density.likelihood)
        num_rows = summed_by_row(list(likelihood.values()), theta).numel()
        for name in self.names[len(density.sites) :]:
            share = density.num_data / num_rows if name in likelihood and num_rows else 1.0
            found[name] = share * scaled_sum(nodes[name], likelihood.get(name))
        return torch.stack([found[name].to(theta.dtype) for name in self.names])


@dataclass(frozen=True)
class WeightedTerms:
    """Points ``theta[M, P]``, weighted sums ``value[M]`` of terms there, their ``gradient[M, P]``, and ``terms[M, J]``."""

    value: Tensor
    gradient: Tensor
    terms: Tensor

    def __getitem__(self, which: slice) -> "WeightedTerms":
        """Return some of the points."""
        return WeightedTerms(self.value[which], self.gradient[which], self.terms[which])

    @classmethod
    def at(cls, terms: Terms, theta: Tensor, weights: Tensor, data: Data) -> "WeightedTerms":
        """Evaluate all points in one run of the model; random numbers inside it differ from point to point."""
        batched = vmap(terms, (0, *(None for _ in data)), randomness="different")
        return cls._differentiated(lambda leaf: batched(leaf, *data), theta, weights)

    @classmethod
    def one_by_one(cls, terms: Terms, theta: Tensor, weights: Tensor, data: Data) -> "WeightedTerms":
        """Evaluate one point after the other; where the model fails, nothing is known."""
        found, nothing = [], torch.full_like
        for point, weight in zip(theta[:, None], weights[:, None], strict=True):
            try:
                found.append(cls._differentiated(lambda leaf: terms(leaf[0], *data)[None], point, weight))
            except ModelError:
                raise
            except (RuntimeError, ValueError, NumericalFailure):
                found.append(cls(*(nothing(each, torch.nan) for each in (point[:, 0], point, weight))))
        return cls(*(torch.cat(each) for each in zip(*((f.value, f.gradient, f.terms) for f in found), strict=True)))

    @classmethod
    def _differentiated(cls, function: Callable[[Tensor], Tensor], theta: Tensor, weights: Tensor) -> "WeightedTerms":
        with torch.enable_grad():
            leaf = theta.detach().requires_grad_()
            terms = function(leaf)
            value = (weights * terms).sum(-1)
            gradient = torch.zeros_like(leaf)
            if value.requires_grad:
                gradient = torch.autograd.grad(value.sum(), leaf, allow_unused=True, materialize_grads=True)[0]
        return cls(value.detach(), gradient, terms.detach())


def probes(terms: Terms, known: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
    """Return the points ``[M, P]`` and the weights ``[M, J]`` of terms that :func:`ask_gradients` needs to know about.

    They are two points, each with two sets of random weights; the start with all weights one; and four steps from it for each
    group of sites.
    """
    around = [start + _steps(direction) for direction in _directions(terms.density, start)]
    points = torch.cat([torch.stack([known, known, start, start, start]), *around])
    ones = torch.ones(len(points) - 4, len(terms.names), dtype=start.dtype, device=start.device)
    return points, torch.cat([_weights(terms, start).repeat(2, 1), ones])


def _weights(terms: Terms, like: Tensor) -> Tensor:
    """Return two sets of weights ``[2, J]`` between one and two."""
    random = torch.rand(2, len(terms.names), generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return (1.0 + random).to(like)


def ask_gradients(
    terms: Terms,
    known: Tensor,
    start: Tensor,
    found: WeightedTerms,
    evaluate: Callable[[Tensor, Tensor], WeightedTerms],
) -> None:
    """Refuse a model that cuts the graph of some latent value, and warn of one in which it acts by steps.

    Parameters
    ----------
    terms : Terms
    known, start : Tensor [P]
    found : WeightedTerms
        At the points of :func:`probes`.
    evaluate : callable
        ``(theta[M, P], weights[M, J])``, for further points.

    Raises
    ------
    ModelError
        Naming the site at which the gradient is not the derivative.

    Warns
    -----
    ModelWarning
        Naming a site whose gradient is zero, whatever it does to the density.
    """
    for group, direction, values in zip(
        _groups(terms.density), _directions(terms.density, start), found.value[5:].split(4), strict=True
    ):
        error, slope, difference = _difference(found.value[4], values, found.gradient[4] @ direction)
        is_off = error > FAR
        if not is_off and error > OFF:
            # ask again at another point: a kink of the density next to the first would be no fault
            points = torch.cat([known[None], known + _steps(direction)])
            other = evaluate(points, points.new_ones(len(points), len(terms.names)))
            is_off = _difference(other.value[0], other.value[1:], other.gradient[0] @ direction)[0] > OFF
        if is_off and not _is_right_in_double(terms, start, direction):
            where = f"site {group[0].name!r}" if len(group) == 1 else f"sites {group[0].name!r} to {group[-1].name!r}"
            raise ModelError(
                f"The gradient of the log density is not its derivative at {where}: along a random direction it is {slope:.4g}, "
                f"a finite difference gives {difference:.4g}. Somewhere the model takes a latent value out of torch's graph, "
                f"with .detach(), .item() or numpy. Compute it with torch operations."
            )
    # sites that no term but their own has a gradient about: theirs changes with the weight of that term alone
    gradient, suspects = found.gradient[:4], []
    weights, tolerance = _weights(terms, gradient), 1e-4 if gradient.dtype == torch.float32 else 1e-9
    for place, site in enumerate(terms.density.sites):
        one, two = (gradient[row::2, site.span] / weights[row, place] for row in (0, 1))
        if bool(((one - two).abs() <= tolerance * (one.abs() + two.abs())).all()):
            suspects.append(place)
    if suspects:
        _warn_of_steps(terms, start, suspects[:MAX_SUSPECTS], found.terms[4], evaluate)


def _groups(density: LogDensity) -> list[tuple[Site, ...]]:
    """Return the sites that are asked together: each by itself, but for those beyond the number that can be afforded."""
    limit = max(1, min(MANY_SITES, (MAX_NUMBERS // density.num_params - 5) // 4))
    sites = sorted(density.sites, key=lambda site: site.is_weight)
    if len(sites) <= limit:
        return [(site,) for site in sites]
    return [*((site,) for site in sites[: limit - 1]), tuple(sites[limit - 1 :])]


def _directions(density: LogDensity, like: Tensor) -> list[Tensor]:
    """Return a random unit vector ``[P]`` for each group, zero elsewhere."""
    noise = torch.randn(density.num_params, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(like)
    found = []
    for group in _groups(density):
        direction = torch.zeros_like(noise)
        for site in group:
            direction[site.span] = noise[site.span]
        found.append(direction / direction.norm().clamp_min(torch.finfo(like.dtype).tiny))
    return found


def _steps(direction: Tensor) -> Tensor:
    """Return steps ``[4, P]`` ahead and behind, and half of each."""
    step = STEPS.get(direction.dtype, STEP)
    return direction.new_tensor([step, -step, step / 2, -step / 2])[:, None] * direction


def _difference(value: Tensor, around: Tensor, slope: Tensor) -> tuple[float, float, float]:
    """Return by how much of itself a slope is wrong, the slope, and the finite difference; zero where that is not known.

    ``value[]`` is the density at a point, ``around[4]`` after the steps from there.
    """
    step, given = STEPS.get(value.dtype, STEP), float(slope)
    coarse, fine = (float(around[0] - around[1]) / (2 * step), float(around[2] - around[3]) / step)
    rounding = 100 * torch.finfo(value.dtype).eps * abs(float(value)) / step
    if not all(map(math.isfinite, (coarse, fine, given))) or abs(coarse - fine) > TRUSTED * abs(fine) + rounding:
        return 0.0, given, fine  # too rough or too steep there to tell
    excess = abs(fine - given) - 10 * abs(coarse - fine) - rounding
    return max(0.0, excess) / max(abs(fine), abs(given), torch.finfo(value.dtype).tiny), given, fine


def _is_right_in_double(terms: Terms, start: Tensor, direction: Tensor) -> bool:
    """Ask again in double precision: where single precision over- or underflows, a right gradient may be off."""
    density = in_double(terms.density)
    if start.dtype == torch.float64 or density is terms.density:
        return False
    points = torch.cat([start[None].double(), start.double() + _steps(direction.double())])
    weights = points.new_ones(len(points), len(terms.names))
    found = WeightedTerms.one_by_one(Terms(density, terms.names), points, weights, density.data)
    error, _, _ = _difference(found.value[0], found.value[1:], found.gradient[0] @ direction.double())
    return error <= OFF and bool(found.value.isfinite().all()) and bool(found.gradient.isfinite().all())


def _warn_of_steps(
    terms: Terms, start: Tensor, suspects: list[int], base: Tensor, evaluate: Callable[[Tensor, Tensor], WeightedTerms]
) -> None:
    """Give each suspect other values from its prior, and warn if another term changes, still without a gradient."""
    density = terms.density
    # near zero the weights of a network have a gradient even if its units are saturated everywhere else
    values = [NEAR_ZERO**power * start for power in (1, 2, 4)]
    for seed in range(ALTERNATIVES):
        with isolated(seed, density.device), torch.no_grad():
            try:
                values.append(density.prior_draw({}, *density.data))
            except Exception:  # an improper prior, or a model that fails at some of its draws
                values.append(density.init(1, seed)[0])
    others = torch.stack([each.to(start) for each in values])
    points = start.repeat(len(suspects), len(others), 1)
    weights = torch.ones(*points.shape[:2], len(terms.names), dtype=start.dtype, device=start.device)
    for row, place in enumerate(suspects):
        span = density.sites[place].span
        points[row, :, span], weights[row, :, place] = others[:, span], 0.0
    found = evaluate(points.flatten(0, 1), weights.flatten(0, 1))
    changes = (found.terms.unflatten(0, points.shape[:2]) - base).abs()
    gradients = found.gradient.unflatten(0, points.shape[:2])
    noticed = NOTICED * (1000 if start.dtype == torch.float32 else 1)
    for row, place in enumerate(suspects):
        site, change = density.sites[place], changes[row].nan_to_num(0.0, 0.0, 0.0).amax(0)
        change[place] = 0.0
        if bool((gradients[row][:, site.span].nan_to_num(0.0) != 0.0).any()):
            continue
        if bool((change > noticed * (1 + base.abs())).any()):
            name, term = site.name, terms.names[int(change.argmax())]
            warnings.warn(
                f"Site {name!r} acts by steps: other values of it from its prior change the log density of {term!r} by up to "
                f"{float(change.max()):.3g}, but the derivative is zero wherever it was looked at. A comparison, as in "
                f"torch.where(t < {name}, ...), torch.round, .long() and .detach() have none, so that methods that follow "
                f"gradients return the prior of {name!r}, or hardly move it. Write a smooth step, "
                f"torch.sigmoid((t - {name}) / width), or sum over its possible places.",
                ModelWarning,
                skip_file_prefixes=INSIDE,
            )
