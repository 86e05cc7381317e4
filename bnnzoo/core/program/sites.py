"""Latent sites of a Pyro model and their places in the flat unconstrained vector."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from pyro.distributions import Delta
from pyro.distributions.torch_distribution import TorchDistributionMixin
from torch import Tensor
from torch.distributions import Distribution, biject_to, constraints
from torch.distributions.constraints import MixtureSameFamilyConstraint
from torch.distributions.transforms import Transform

from bnnzoo.core.program.network import NETWORK_KEY

__all__ = [
    "DIMENSIONS",
    "ModelError",
    "ModelWarning",
    "Site",
    "innermost",
    "is_deterministic",
    "is_factor",
    "is_observation",
    "is_point_density",
    "is_subsample",
    "latent_sites",
    "plates_of",
    "refuse_no_draws",
    "refuse_other_sites",
    "refuse_unknown_support",
    "refuse_unsupported",
    "row_plates",
    "transform_onto",
]


DIMENSIONS = frozenset({"chain", "draw", "obs_id", "output_id", "class_id", "member", "step"})
"""Names that a tree of results gives to its dimensions."""


class ModelError(ValueError):
    """A Pyro model uses something bnnzoo does not support; the message names the site and the fix."""


class ModelWarning(UserWarning):
    """A model can be fitted, but is probably not what its author meant; the message says what to look at."""


@dataclass(frozen=True)
class Site:
    """One latent variable of a model and the slice of ``theta`` that holds it.

    Attributes
    ----------
    name : str
        Name of the Pyro sample site.
    span : slice
        Place of the unconstrained value inside ``theta``.
    shape, unconstrained_shape : torch.Size
        Shapes of the constrained and the unconstrained value; they differ for simplexes and the like.
    transform : torch.distributions.transforms.Transform
        From the unconstrained to the constrained value.
    is_weight : bool
        True for network weights sampled by :func:`bnnzoo.random_module`.
    support : torch.distributions.constraints.Constraint
        Where the constrained value lies.
    plates : tuple of str or None
        For each axis of the constrained value, the plate that it belongs to.
    """

    name: str
    span: slice
    shape: torch.Size
    unconstrained_shape: torch.Size
    transform: Transform
    is_weight: bool
    support: Any
    plates: tuple[str | None, ...] = ()


def is_subsample(node: dict[str, Any]) -> bool:
    """Tell whether a trace node is the bookkeeping of a plate rather than a random variable."""
    return type(node["fn"]).__name__ == "_Subsample"


def is_deterministic(node: dict[str, Any]) -> bool:
    """Tell whether a site is a known function of others: of pyro.deterministic, or left behind by poutine.reparam."""
    return node["type"] == "sample" and node["is_observed"] and isinstance(innermost(node["fn"]), Delta)


def is_point_density(node: dict[str, Any]) -> bool:
    """Tell whether a deterministic site adds a density of its own, as the reparametrisations do that keep a prior there.

    ``Delta(value, log_density=...)`` is what Pyro's ``SplitReparam``, ``NeuTraReparam`` and ``ConjugateReparam`` leave behind.
    """
    if not is_deterministic(node) or node["mask"] is False:
        return False
    distribution = node["fn"]
    while hasattr(distribution, "base_dist"):
        if getattr(distribution, "_mask", None) is False:
            return False
        distribution = distribution.base_dist
    return True


def is_factor(node: dict[str, Any]) -> bool:
    """Tell whether a trace node is a ``pyro.factor``."""
    return node["type"] == "sample" and type(node["fn"]).__name__ == "Unit"


def is_observation(node: dict[str, Any]) -> bool:
    """Tell whether a sample node is a random variable whose value is given."""
    return node["is_observed"] and not (is_subsample(node) or is_factor(node) or is_deterministic(node))


def innermost(distribution: Any) -> Any:
    """Return a distribution without the wrappers that ``expand``, ``to_event`` and ``mask`` put around it."""
    while hasattr(distribution, "base_dist"):
        distribution = distribution.base_dist
    return distribution


def latent_sites(nodes: Iterable[dict[str, Any]]) -> tuple[Site, ...]:
    """Lay the latent sites of a trace out in one flat vector, in the order of sampling.

    Parameters
    ----------
    nodes : iterable of dict
        Nodes of a Pyro trace that passed :func:`refuse_unsupported`.

    Returns
    -------
    tuple of Site
    """
    sites: list[Site] = []
    start = 0
    for node in nodes:
        if node["type"] != "sample" or node["is_observed"] or is_subsample(node):
            continue
        transform = transform_onto(node["fn"].support)
        value = node["value"].detach()
        shape = transform.inv(value).shape
        span = slice(start, start + shape.numel())
        is_weight = NETWORK_KEY in (node["infer"] or {})
        support, plates = node["fn"].support, plates_of(node)
        sites.append(Site(node["name"], span, value.shape, shape, transform, is_weight, support, plates))
        start = span.stop
    return tuple(sites)


def plates_of(node: dict[str, Any]) -> tuple[str | None, ...]:
    """Return the plate of each axis of a sample node's value, None for the axes of events."""
    value, frames = node["value"], [frame for frame in node["cond_indep_stack"] if frame.dim is not None]
    names: list[str | None] = [None] * value.ndim
    end = len(node["fn"].batch_shape)  # how many axes come before those of events
    if not end and is_deterministic(node):
        # one event to Pyro, which does not say which of its axes belong to the plates around it: they are the last or the
        # first ones, whichever have the sizes of the plates
        sizes = {frame.dim: frame.size for frame in frames}
        depth = -min(sizes, default=0)
        ends = [each for each in (value.ndim, depth) if depth <= each <= value.ndim]
        fitting = (each for each in ends if all(value.shape[each + dim] == size for dim, size in sizes.items()))
        end = next(fitting, 0)
    for frame in frames:
        if 0 <= end + frame.dim < value.ndim and value.shape[end + frame.dim] == frame.size:
            names[end + frame.dim] = frame.name
    return tuple(names)


def row_plates(nodes: Iterable[dict[str, Any]]) -> tuple[str, ...]:
    """Return the plates of the rows of the data: those to which the first axis of an observed site belongs."""
    first = [plates_of(node)[0] for node in nodes if is_observation(node) and node["value"].ndim]
    return tuple(sorted({name for name in first if name is not None}))


def refuse_unsupported(nodes: Iterable[dict[str, Any]]) -> None:
    """Raise :class:`ModelError` for the first node bnnzoo cannot turn into a density.

    Raises
    ------
    ModelError
        For a name that a tree cannot hold, random subsampling inside the model, data under a point
        mass, or a latent site whose support depends on another latent site.
    """
    for node in nodes:
        if node["type"] == "sample" and not is_subsample(node):
            name = node["name"]
            if name in DIMENSIONS and (not is_factor(node) or bool(node["cond_indep_stack"])):
                raise ModelError(
                    f"Site {name!r} has the name of a dimension of the tree: rename it, for instance to '{name}_effect'."
                )
            if not name or name != name.strip() or "/" in name or not name.isprintable():
                raise ModelError(
                    f"Site {name!r} has a name that a tree of results cannot hold. Names are not empty, begin and end without a "
                    f"space, and have no '/', which Pyro's scope() puts between prefix and name: write a name such as "
                    f"'group.effect'."
                )
        if is_point_density(node):
            point, value = innermost(node["fn"]).v, node["value"]
            if not bool((value == point).all()):
                raise ModelError(
                    f"Site {node['name']!r} observes data under a point mass (Delta) that lies elsewhere, so that their density "
                    f"is zero. Give the site a distribution with a spread, such as Normal(value, sigma); a value that is "
                    f"computed, and not observed, is pyro.deterministic({node['name']!r}, value)."
                )
        elif node["type"] == "sample" and is_subsample(node):
            plate = node["fn"]
            if plate.subsample_size is not None and plate.subsample_size < plate.size:
                raise ModelError(
                    f"Plate {node['name']!r} subsamples {plate.subsample_size} of {plate.size} rows inside the model, so its "
                    f"density is random. Write pyro.plate({node['name']!r}, len(x)) and let the method do it: batch_size=... "
                    f"on methods that take mini-batches."
                )
        elif node["type"] == "sample" and not node["is_observed"]:
            name, distribution = node["name"], node["fn"]
            if isinstance(distribution, Delta):
                raise ModelError(
                    f"Latent site {name!r} is a point mass (Delta), which has no density. Write pyro.deterministic({name!r}, "
                    f"value)."
                )
            refuse_unknown_support(name, distribution)
            if _depends_on_latents(distribution.support):
                raise ModelError(
                    f"The support of latent site {name!r} depends on another latent site. Sample it on a fixed support, for "
                    f"example u ~ Uniform(0, 1), and compute {name!r} from it with pyro.deterministic."
                )


def refuse_other_sites(nodes: Iterable[dict[str, Any]], latent: Iterable[str], observed: Iterable[str]) -> None:
    """Refuse a run of a model that did not sample the latent sites of its first run.

    Raises
    ------
    ModelError
        Naming the first site that one of both runs lacks.
    """
    samples = [node for node in nodes if node["type"] == "sample" and not node["is_observed"]]
    found = {node["name"] for node in samples if not is_subsample(node)}
    if different := (found ^ set(latent)) - set(observed):
        raise ModelError(
            f"Site {min(different)!r} is sampled in some runs of the model and not in others. Every run of a model must sample "
            f"the same sites: mask a site with poutine.mask, or compute both cases and choose with torch.where."
        )


def transform_onto(support: Any) -> Transform:
    """Return the transform from unconstrained space onto a support; that of a mixture is its components'."""
    transform: Transform = biject_to(
        support.base_constraint if isinstance(support, MixtureSameFamilyConstraint) else support
    )
    return transform


def refuse_no_draws(name: str, distribution: Any) -> None:
    """Refuse a prior that cannot be drawn from: a fit starts at draws, and the model runs at them."""
    own = type(innermost(distribution))
    if own.rsample is Distribution.rsample and own.sample is Distribution.sample:
        raise ModelError(
            f"The prior of latent site {name!r}, {own.__name__}, cannot be drawn from, and a fit starts at draws. Sample "
            f"{name!r} from another distribution, and put the log density in question into pyro.factor."
        )


def refuse_unknown_support(name: str, distribution: TorchDistributionMixin) -> None:
    """Refuse a prior whose support no transform reaches from unconstrained space."""
    try:
        transform_onto(distribution.support)
    except NotImplementedError:
        is_covariance = distribution.support in (constraints.positive_definite, constraints.positive_semidefinite)
        instead = (
            f"Sample L ~ LKJCholesky(d, 1.0) and d positive scales s, and write pyro.deterministic({name!r}, F @ F.mT) with "
            f"F = s[:, None] * L."
            if is_covariance
            else f"Sample {name!r} from a distribution with a standard support, or compute it from one with pyro.deterministic."
        )
        raise ModelError(
            f"The support of latent site {name!r} ({type(distribution.support).__name__} of "
            f"{type(innermost(distribution)).__name__}) has no known transform from unconstrained space. {instead}"
        ) from None


def _depends_on_latents(support: object) -> bool:
    """Look for bounds that carry a gradient: during discovery latent values require one, constants do not."""
    bounds = [v for v in vars(support).values() if isinstance(v, Tensor)]
    inner = getattr(support, "base_constraint", None)
    return any(b.requires_grad for b in bounds) or (inner is not None and _depends_on_latents(inner))
