"""Test that a Pyro model is a function of its latent values, once before a fit."""

import math
import warnings
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Independent
from torch.func import vmap

from bnnzoo.core.data.arguments import argument_names
from bnnzoo.core.data.described import described
from bnnzoo.core.data.minibatch import num_numbers, select
from bnnzoo.core.fit_warnings import INSIDE
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.model.replay import Node, discover, log_prob, scaled_sum
from bnnzoo.core.program.sites import ModelError, ModelWarning, is_factor, is_subsample
from bnnzoo.core.program.statements import of_overwriting
from bnnzoo.core.program.surroundings import isolated
from bnnzoo.core.reading.gradient_check import Terms, WeightedTerms, ask_gradients, probes
from bnnzoo.core.types import Data
from bnnzoo.engine.agreement import is_close
from bnnzoo.engine.torch_private import ignore_slow_batching
from bnnzoo.engine.value_and_grad import Evaluated, looped_value_and_grad, value_and_grad_of

__all__ = ["is_small", "refuse_inconsistent"]

type Evaluate = Callable[[Tensor], tuple[Tensor, Tensor]]

TWO_SEEDS = (0, 1)
OTHER_SEED = 2
"""Of the global random stream, other than the one under which a model is run first."""
ELSEWHERE = 3.0
"""How far from the known point a model with branches is run again, in unconstrained space."""

MAX_NUMBERS_WHOLE, NUMBERS_OF_A_FEW_ROWS = 2**18, 2**14
"""Numbers in the data above which a model that is not traced is looked at with some rows, and gradients are in any model."""

FEW_ROWS = 256


def refuse_inconsistent(
    density: LogDensity, first: Mapping[str, Node] | None = None, starts: Tensor | None = None, *, traced: bool = False
) -> Evaluated | None:
    """Refuse a model that is random beyond its sites, loses gradients, or pairs observations and distributions wrongly.

    The log density at the values of the model's first run is compared with that of the first run, and the gradient at a start
    with a finite difference in one random direction for each latent site (:mod:`bnnzoo.core.reading.gradient_check`). All points
    are evaluated in one batch, so the model runs once more, and twice again only where it is suspected of drawing random
    numbers.

    Parameters
    ----------
    density : LogDensity
    first : mapping of str to node, optional
        What the first run of the model left behind. Default: the model runs once more.
    starts : Tensor [C, P], optional
        Starting points of the method that follows. Default: one.
    traced : bool
        Evaluate through ``density.value_and_grad`` at C points at a time, for methods that need this graph anyway.

    Returns
    -------
    Evaluated or None
        The density at ``starts``, if they were evaluated with all rows of the data.

    Raises
    ------
    ModelError
        Naming the site, what was found and what to write instead.
    """
    first = first or discover(density.model, density.data, density.device, density.dtype)
    observed = {name: first[name] for name in density.observed}
    _look_for_observations(density, first)
    for name, node in observed.items():  # whose distribution broadcasts its values, as a forgotten squeeze makes it
        values = node["value"].shape[: node["value"].ndim - node["fn"].event_dim]
        terms = np.broadcast_shapes(values, node["fn"].batch_shape)  # torch's imports a computer algebra system
        if math.prod(terms) > values.numel():
            raise ModelError(
                f"Site {name!r} observes {values.numel()} values of shape {list(values)}, but its distribution has shape "
                f"{list(node['fn'].batch_shape)}, so that {math.prod(terms)} terms would be counted. Give both one shape: "
                f"squeeze a network's output with .squeeze(-1), or the observations."
            )
    starts = density.init(1, 0) if starts is None else starts
    starts = starts.to(dtype=density.dtype, device=density.device)
    with warnings.catch_warnings(record=True) as caught:  # they are let through only where no error follows
        warnings.simplefilter("always")
        ignore_slow_batching()
        with isolated(OTHER_SEED, density.device):
            found = _evaluated_at_starts(density, first, starts, traced)
    for each in caught:
        warnings.warn(each.message, skip_file_prefixes=INSIDE)
    for site, node in observed.items():
        if not node["fn"].batch_shape and isinstance(node["fn"], Independent) and node["value"].ndim:
            warnings.warn(
                f"Site {site!r} is one observation of shape {list(node['value'].shape)}, because .to_event() makes its rows one "
                f"event: leave-one-out and mini-batches need one observation a row. Write pyro.plate('data', len(x)) and leave "
                f".to_event() out where rows are independent.",
                ModelWarning,
                skip_file_prefixes=INSIDE,
            )
    return found


def _evaluated_at_starts(
    density: LogDensity, first: Mapping[str, Node], starts: Tensor, traced: bool
) -> Evaluated | None:
    few = _few_rows(density)
    data = density.data if traced or is_small(density.data) else few
    known = density.unconstrain({site.name: first[site.name]["value"].detach() for site in density.sites}).to(starts)
    terms = Terms.of(density, first)
    points, asked = torch.cat([known[None], starts]), probes(terms, known, starts[0])
    try:
        if traced:
            value, gradient = _in_parts(density, len(starts))(points)
            about = WeightedTerms.at(terms, *asked, few)
        elif data is few:
            everything = WeightedTerms.at(terms, *_joined(points, *asked), few)
            value, gradient = everything.value[: len(points)], everything.gradient[: len(points)]
            about = everything[slice(len(points), None)]
        else:
            # in one run of the model; random numbers inside it differ from point to point
            log_joint = vmap(density.log_joint, (0, *(None for _ in data)), randomness="different")
            value, gradient = value_and_grad_of(lambda leaf: log_joint(leaf, *data), points)
            about = WeightedTerms.at(terms, *asked, few)
        evaluate = partial(WeightedTerms.at, terms, data=few)
    except ModelError:
        raise
    except Exception:  # the model's own code may raise anything where it cannot be batched, or on fewer rows
        data, points = density.data, points[:2]
        _look_elsewhere(density, known)
        try:
            value, gradient = looped_value_and_grad(density.log_joint)(points, *data)
        except (
            RuntimeError,
            ValueError,
        ) as error:  # at some points, such as a factorisation that fails: nothing is known
            if overwriting := of_overwriting(error):
                raise overwriting from error
            return None
        evaluate = partial(WeightedTerms.one_by_one, terms, data=data)
        about = evaluate(*asked)
    whole = data is density.data
    if not (whole and is_close(value[0], torch.add(*density.terms_of(known, first)).detach().to(value.dtype))):
        _refuse_chance(*(_nodes(density, known, data, seed) for seed in TWO_SEEDS))
    ask_gradients(terms, known, starts[0], about, evaluate)
    return Evaluated(starts, value[1:], gradient[1:]) if whole and len(points) == 1 + len(starts) else None


def _joined(points: Tensor, others: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Put points at which all terms have the weight one before others."""
    return torch.cat([points, others]), torch.cat([weights.new_ones(len(points), weights.shape[1]), weights])


def _few_rows(density: LogDensity) -> Data:
    """Return the data if they are few numbers, else random rows of them in their order."""
    if num_numbers(density.data) <= NUMBERS_OF_A_FEW_ROWS or density.num_data <= FEW_ROWS:
        return density.data
    rows = torch.randperm(density.num_data, generator=torch.Generator().manual_seed(0))[:FEW_ROWS]
    return select(density.data, rows.sort().values.to(density.device), density.num_data)


def _look_elsewhere(density: LogDensity, known: Tensor) -> None:
    """Run a model that cannot be batched, and may have branches, far from the known point: its sites must not change."""
    for point in (-known, known + ELSEWHERE, known - ELSEWHERE):
        try:
            density.log_joint(point, *density.data)
        except ModelError:
            raise
        except Exception:  # it may fail there, which is no matter
            continue


def is_small(data: Data) -> bool:
    """Tell whether the whole of the data is little enough to be looked at in one batch of points."""
    return num_numbers(data) <= MAX_NUMBERS_WHOLE


def _in_parts(density: LogDensity, size: int) -> Evaluate:
    """Return the lowered density, evaluated at ``size`` points at a time, for which it has a graph."""

    def evaluate(theta: Tensor) -> tuple[Tensor, Tensor]:
        missing = -len(theta) % size
        padded = torch.cat([theta[-1:].expand(missing, -1), theta])
        parts = [density.value_and_grad(part.contiguous(), *density.data) for part in padded.split(size)]
        value, gradient = (torch.cat(each)[missing:] for each in zip(*parts, strict=True))
        return value, gradient

    return evaluate


def _nodes(density: LogDensity, theta: Tensor, batch: Data, seed: int) -> dict[str, Node]:
    with isolated(seed, density.device), torch.no_grad():
        return density.nodes(theta, *batch)


def _look_for_observations(density: LogDensity, first: Mapping[str, Node]) -> None:
    """Refuse, or at least warn of, a model that was given data and observes nothing: its fit is the prior."""
    arrays = {place: value for place, value in enumerate(density.data) if isinstance(value, Tensor) and value.ndim}
    if density.observed or density.factors or not arrays:
        return
    names = argument_names(density.model, len(density.data))
    given = ", ".join(names[place] for place in arrays)
    needed = described(density.model).observes
    if needed:
        raise ModelError(
            f"The model was given {given} and observes nothing, so that {needed!r} would be latent and the fit would return the "
            f"prior. Pass the target too: fit(model, method, x, y). For draws from the prior use prior_predictive(model, x, y)."
        )
    if factors := [name for name, node in first.items() if is_factor(node)]:
        warnings.warn(
            f"The model observes nothing, and its pyro.factor site {factors[0]!r} is outside of a plate, so that it "
            f"counts as prior and no observation has a log likelihood of its own. Write it inside "
            f"pyro.plate('data', len(x)), one term for each row; better, observe a site.",
            ModelWarning,
            skip_file_prefixes=INSIDE,
        )
        return
    lengths = {len(value) for value in arrays.values()}
    rows = [site for site in density.sites if not site.is_weight and site.shape and site.shape[0] in lengths]
    hint = (
        f"Site {rows[-1].name!r} has one latent value for each of {rows[-1].shape[0]} rows: write" if rows else "Write"
    )
    warnings.warn(
        f"The model was given {given} and observes nothing, so the fit returns the prior. {hint} "
        f"pyro.sample(..., obs=y), and pass y to fit.",
        ModelWarning,
        skip_file_prefixes=INSIDE,
    )


def _refuse_chance(first: Mapping[str, Node], second: Mapping[str, Node]) -> None:
    """Refuse a model whose density at one point depends on the global random stream."""
    for name, node in first.items():
        if node["type"] != "sample" or is_subsample(node) or name not in second:
            continue
        one, other = (log_prob(nodes[name]).detach() for nodes in (first, second))
        sums = [scaled_sum(nodes[name], terms) for nodes, terms in ((first, one), (second, other))]
        if not (_are_equal(one, other) and _are_equal(*sums)):
            raise ModelError(
                f"The log probability of site {name!r} at one and the same point is {float(sums[0]):.6g} in one run of the "
                f"model and {float(sums[1]):.6g} in the next: the model draws random numbers outside of pyro.sample, such as "
                f"torch.randn or functional dropout in training mode, or changes from run to run, as by a counter. Sample random "
                f"numbers as sites, or switch them off; pass what changes to the model as an argument."
            )


def _are_equal(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(one, other, rtol=1000 * torch.finfo(one.dtype).eps, atol=0.0, equal_nan=True)
