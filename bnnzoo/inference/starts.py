"""Starting points of chains, members and restarts: from the model, from another method, or given."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import fields, replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from bnnzoo.core.method import FitContext, Method, is_method
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.model.replay import discover
from bnnzoo.core.parameters.trained_weights import with_weights
from bnnzoo.core.posterior.posterior import MANY_NUMBERS, Posterior
from bnnzoo.core.program.numerics import NumericalFailure
from bnnzoo.core.program.sites import ModelError
from bnnzoo.core.program.surroundings import isolated
from bnnzoo.engine.value_and_grad import Evaluated, looped_value_and_grad
from bnnzoo.inference.config import run_method

__all__ = [
    "Start",
    "evaluated_starts",
    "fitted_start",
    "moved_inwards",
    "places_of_starts",
    "refuse_not_finite",
    "spread_starts",
    "starting_points",
    "starts_of_model",
]

type Start = Tensor | Posterior | Method | nn.Module | Mapping[str, Tensor] | None

MAX_ATTEMPTS, FROM_PRIOR = 100, 5

MAX_LOSS_PER_OBSERVATION, MAX_HALVINGS = 10.0, 8
"""Nats per observation by which a start must be worse than one half as far from the middle to be moved there."""

MAX_GRADIENT_NORM = 1e15
"""Norm of the gradient beyond which a start is drawn again: no step that a sampler's search tries is short enough to leave it."""


def starting_points(
    start: Start,
    num_chains: int,
    density: LogDensity,
    context: FitContext,
    *,
    traced: bool = False,
    trains: bool = False,
) -> Tensor:
    """Return one starting point for each chain ``[C, P]`` at which the density and its gradient are finite.

    Parameters
    ----------
    start : Tensor, Posterior, Method, torch.nn.Module, mapping of str to Tensor, or None
        Points ``theta[C, P]``; a posterior whose draws to start from, or a method to fit first, as many of its chains or
        members as there are points; a trained network, or its ``state_dict()``, for the network's weights, where all other
        sites start as the model does; None for the model's own, see :meth:`bnnzoo.core.model.density.LogDensity.init`.
    num_chains : int
    density, context
        As in ``Method.run``.
    traced : bool
        Evaluate the density through its batched graph even for a single start: for callers that need the graph anyway.
    trains : bool
        Move the model's own starts inwards where they explain the data hopelessly; see :func:`moved_inwards`.

    Raises
    ------
    ValueError
        If given points have the wrong shape.
    ModelError
        If the density is not finite at a start; the message names the site.
    """
    return evaluated_starts(start, num_chains, density, context, traced=traced, trains=trains).theta


def evaluated_starts(
    start: Start,
    num_chains: int,
    density: LogDensity,
    context: FitContext,
    *,
    traced: bool = False,
    trains: bool = False,
) -> Evaluated:
    """Return what :func:`starting_points` does, with the density and the gradient evaluated there."""
    if start is None:
        found = starts_of_model(num_chains, density, context, traced=traced)
        return moved_inwards(found, density, traced=traced) if trains else found
    if isinstance(start, nn.Module | Mapping):
        weights = start.state_dict() if isinstance(start, nn.Module) else start
        theta = with_weights(density, density.init(num_chains, context.seed), weights)
    elif isinstance(start, Tensor):
        expected = (num_chains, density.num_params)
        if tuple(start.shape) != expected:
            raise ValueError(
                f"init has shape {tuple(start.shape)}, but {num_chains} chains of a model with {density.num_params} "
                f"unconstrained parameters start at {expected}. Build a row with density.unconstrain({{site: value}})."
            )
        theta = start.detach().clone()
    else:
        posterior = fitted_start(start, num_chains, density, context)
        theirs, ours = ([(site.name, site.shape) for site in each.sites] for each in (posterior.density, density))
        if theirs != ours:
            raise ValueError(
                f"init is a posterior of another model: it has {posterior.density.sites_in_short()}, but this model has "
                f"{density.sites_in_short()}. Fit the start to the same model, or give theta[C, P] as a tensor."
            )
        return _from_draws(posterior.draws(), num_chains, density, traced)
    found = _evaluated(theta.to(dtype=density.dtype, device=density.device), density, traced)
    refuse_not_finite(found.theta, _finite(found), density)
    return found


def fitted_start(start: Posterior | Method, num_chains: int, density: LogDensity, context: FitContext) -> Posterior:
    """Return the posterior to start from: the one given, or that of a method, with a path for each chain if it has paths.

    Raises
    ------
    KeyboardInterrupt
        If the method was interrupted: what is to start there does not.
    """
    if not is_method(start):
        return cast(Posterior, start)
    method = cast(Method, start)
    if {"num_paths", "resample"} <= {each.name for each in fields(method)}:  # type: ignore[arg-type]  # methods are dataclasses
        method = replace(method, num_paths=num_chains, resample=False)  # type: ignore[type-var]
    found = run_method(method, density, replace(context, checkpoint=None))
    if not found.info.complete:
        raise KeyboardInterrupt(f"Interrupted by {type(start).__name__}, at whose result the fit was to start.")
    return found


def starts_of_model(
    num_chains: int, density: LogDensity, context: FitContext, *batch: Any, traced: bool = False
) -> Evaluated:
    """Draw starts until the density is finite at all of them; only those at which it is not are drawn again.

    It is evaluated at the mini-batch ``*batch``, by default at all rows.
    """
    again = (_fresh(density, num_chains, context.seed, attempt) for attempt in range(1, MAX_ATTEMPTS))
    found = None if batch else context.starts_of(density, num_chains)
    if found is None:
        theta = density.init(num_chains, context.seed).to(dtype=density.dtype, device=density.device)
        found = _evaluated(theta, density, traced, *batch)
    return _drawn_again(found, again, density, traced, *batch)


def spread_starts(density: LogDensity, count: int, seed: int) -> Tensor:
    """Return points ``[C, P]`` to search from: half of them as the model starts, half from its prior where it can be drawn from.

    Modes in raw units may lie far outside of the range of the former.
    """
    theta = density.init(count, seed).to(dtype=density.dtype, device=density.device)
    for row in range(1, count, 2):
        try:
            theta[row] = _of_prior(density, seed + row)
        except Exception:  # flat priors, and densities that cannot be drawn from
            return theta
    return theta


def moved_inwards(found: Evaluated, density: LogDensity, *batch: Any, traced: bool = False) -> Evaluated:
    """Halve the starts ``[C, P]`` of a training that explain the data hopelessly, as long as a half is much better.

    Adam divides by gradients that it saw long ago: from a point where they are a million times those of a trained model, it
    hardly moves. A sampler has no such memory, and its chains are better far apart.

    Parameters
    ----------
    found : Evaluated
        Starts, and the density there.
    density : LogDensity
    *batch
        The mini-batch at which the density was evaluated. Default: all rows.
    traced : bool
        See :func:`starting_points`.
    """
    gain = MAX_LOSS_PER_OBSERVATION * max(density.num_data, 1)
    explained = _log_likelihood(found, density)
    for _ in range(MAX_HALVINGS):
        if not bool((explained < -gain).any()):
            return found
        halved = _evaluated(found.theta / 2, density, traced, *batch)
        halved_explained = _log_likelihood(halved, density)
        better = _usable(halved) & (halved_explained > explained + gain)
        if not bool(better.any()):
            return found
        found = _chosen(better, halved, found)
        explained = torch.where(better, halved_explained, explained)
    return found


def _log_likelihood(points: Evaluated, density: LogDensity) -> Tensor:
    """Return the log likelihood ``[C]``: the prior of many weights prefers the middle, whatever the data say."""
    with torch.no_grad():
        return points.value - _log_priors(points.theta, density)


def _log_priors(theta: Tensor, density: LogDensity) -> Tensor:
    """Return the log prior density ``[C]`` at points ``[C, P]``, of several together where the model allows it."""
    if len(theta) > 1 or density.is_one_of_many:
        together = max(1, MANY_NUMBERS // max(1, theta.shape[1]))
        # what fails is an operation unknown to vmap, or a point at which the model does
        with suppress(RuntimeError, NumericalFailure):
            return density.over_points("log prior", density.log_prior, chunk_size=together)(theta)
    return torch.stack([density.log_prior(each) for each in theta])


def _fresh(density: LogDensity, num_chains: int, seed: int, attempt: int) -> Tensor:
    """Return other starting points ``[C, P]``: in the end from the prior, where the model was run before.

    Where a wide prior leaves a narrow region in which the model can be evaluated, the usual range may miss it.
    """
    if attempt < MAX_ATTEMPTS - FROM_PRIOR:
        return density.init(num_chains, seed + 1_000_003 * attempt)
    return torch.stack(
        [_of_prior(density, seed + 1000 * (attempt * num_chains + chain)) for chain in range(num_chains)]
    )


def _of_prior(density: LogDensity, seed: int) -> Tensor:
    """Return a draw ``[P]`` from the prior, for which the model is run only where one prior depends on another site."""
    if density.priors is not None:
        with suppress(NotImplementedError), isolated(seed, density.device), torch.no_grad():  # no draws of flat priors
            return density.prior_draw({}, *density.data)
    nodes = discover(density.model, density.data, density.device, density.dtype, seed)
    return density.unconstrain({site.name: nodes[site.name]["value"].detach() for site in density.sites})


def _from_draws(draws: Tensor, num_chains: int, density: LogDensity, traced: bool) -> Evaluated:
    """Start from draws ``[C, S, P]`` of a posterior, and from others of them where the density is not finite."""
    # choose one draw for each chain, from as many different chains or members [C, S, P] as there are
    theta = draws[places_of_starts(draws, num_chains)].clone().to(dtype=density.dtype, device=density.device)
    others = draws.flatten(0, 1)
    num_again = min(MAX_ATTEMPTS, len(others) // num_chains)
    again = (others[i::num_again][:num_chains] for i in range(num_again))
    return _drawn_again(_evaluated(theta, density, traced), again, density, traced)


def _drawn_again(
    found: Evaluated, again: Iterable[Tensor], density: LogDensity, traced: bool, *batch: Any
) -> Evaluated:
    """Replace the points ``[C, P]`` at which the density is not finite, or a cliff, by the next ones of ``again``."""
    for others in again:
        bad = ~_usable(found)
        if not bool(bad.any()):
            return found
        theta = found.theta.clone()
        theta[bad] = others.to(theta)[bad]
        new = _evaluated(theta, density, traced, *batch)
        found = _chosen(bad & (_usable(new) | ~_finite(found)), new, found)
    refuse_not_finite(found.theta, _finite(found), density)
    return found


def _chosen(chains: Tensor, new: Evaluated, old: Evaluated) -> Evaluated:
    column = chains[:, None]
    return Evaluated(
        torch.where(column, new.theta, old.theta),
        torch.where(chains, new.value, old.value),
        torch.where(column, new.gradient, old.gradient),
    )


def places_of_starts(draws: Tensor, num_chains: int) -> tuple[Tensor, Tensor]:
    """Return which chain of ``draws[C, S, P]``, and which of its draws, each of the new chains starts from.

    Raises
    ------
    ValueError
        If there are fewer draws than chains.
    """
    size = draws.shape[1]
    available = len(draws) if len(draws) >= num_chains else len(draws) * size
    if available < num_chains:
        raise ValueError(
            f"init gives {available} draws for {num_chains} chains; fit it with at least as many draws or members."
        )
    places = torch.linspace(0, available - 1, num_chains).round().long()
    if len(draws) >= num_chains:
        return places, torch.full_like(places, size - 1)
    return places // size, places % size


def _evaluated(theta: Tensor, density: LogDensity, traced: bool, *batch: Any) -> Evaluated:
    single = len(theta) == 1 and not traced and not density.is_one_of_many  # tracing would take longer
    evaluate = looped_value_and_grad(density.log_joint) if single else density.value_and_grad
    return Evaluated(theta, *evaluate(theta, *(batch or density.data)))


def _finite(points: Evaluated) -> Tensor:
    return points.value.isfinite() & points.gradient.isfinite().all(1)


def _usable(points: Evaluated) -> Tensor:
    return _finite(points) & (points.gradient.norm(dim=1) < MAX_GRADIENT_NORM)


def refuse_not_finite(theta: Tensor, finite: Tensor, density: LogDensity) -> None:
    """Refuse starting points ``theta[C, P]`` unless the density is ``finite[C]`` at all of them.

    Raises
    ------
    ModelError
        Naming the first chain, and the site that fails there.
    """
    if bool(finite.all()):
        return
    chain = int((~finite).nonzero()[0])
    failure = density.failure(theta[chain], *density.data) or "the gradient is not finite"
    wider = "" if density.dtype is torch.float64 else ", or fit with dtype=torch.float64, which rounds less."
    raise ModelError(
        f"The log density is not finite at the start of chain {chain}: {failure}. Check the model there, its distributions' "
        f"arguments and supports, or give starting points with init=...{wider}"
    )
