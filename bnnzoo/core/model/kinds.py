"""Densities of one kind: the same function of theta and the data, at data of the same shapes."""

from collections.abc import Hashable, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from bnnzoo.core.data.codes import is_whole, refusing_bad_codes
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.model.replay import Node
from bnnzoo.core.program.sites import transform_onto
from bnnzoo.core.program.statements import of_impossible_value
from bnnzoo.core.types import Data
from bnnzoo.engine import pytree
from bnnzoo.engine.decisive import content_of, decide_alike
from bnnzoo.engine.fits import Kind
from bnnzoo.engine.lowered import Same

__all__ = ["first_of_kind", "of_kind", "shapes_of"]


def first_of_kind(density: LogDensity) -> LogDensity:
    """Return a density that shares what is made of it with those that :func:`of_kind` returns."""
    return replace(density, kind=Kind())


def of_kind(known: LogDensity, data: Data, theta: Tensor) -> tuple[LogDensity, Tensor, Tensor] | None:
    """Return the density of a model given other data, without reading the model again; None if it has to be read.

    Beside it are its values ``[C]`` and gradients ``[C, P]`` at ``theta``.

    It has to be where arguments differ in anything but the numbers in tensors, where one run of the model shows what the first
    data have decided, as a branch, a prior, the range of a latent site, and where reading may refuse the data: for observations
    outside the support of their distribution, negative codes, a density of zero.

    Parameters
    ----------
    known : LogDensity
        From :func:`first_of_kind`.
    data : tuple
        Arguments of the model, converted.
    theta : Tensor [C, P]
        Points, at the first of which the model is run.

    Examples
    --------
    >>> import pyro, torch
    >>> import pyro.distributions as dist
    >>> from bnnzoo.core.model.density import build_density
    >>> def model(y):
    ...     mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
    ...     with pyro.plate("rows", len(y)):
    ...         pyro.sample("y", dist.Normal(mu, 1.0), obs=y)
    >>> known = first_of_kind(build_density(model, torch.zeros(3)))
    >>> of_kind(known, (torch.ones(3),), torch.zeros(1, 1))[0].kind is known.kind
    True
    >>> of_kind(known, (torch.ones(4),), torch.zeros(1, 1)) is None
    True
    """
    decide_alike(pytree.tree_leaves(data), pytree.tree_leaves(known.data))
    if type(known) is not LogDensity or shapes_of(data) != shapes_of(known.data):
        return None
    density = replace(known, data=data)
    theta = theta.to(dtype=known.dtype, device=known.device)
    point = theta[0]
    try:
        with torch.no_grad():
            nodes = density.nodes(point, *data)  # first, because native code does not see what is out of range
            if not _are_allowed(density, nodes) and known.shared(
                "allowed", lambda: _are_allowed(known, known.nodes(point, *known.data))
            ):
                return None
            _refuse_negative_codes(density, point)
            value, gradient = density.value_and_grad(theta, *data)
            decide_alike(
                pytree.tree_leaves(known.data), pytree.tree_leaves(data)
            )  # which may have come to decide just now
            if shapes_of(data) != shapes_of(known.data):
                return None
            prior, likelihood = density.terms_of(point, nodes)
            # a density without a value at its start is of a kind with one that has none at its own either
            alike = bool(value[0].isfinite()) or not known.shared(
                "finite", lambda: bool(known.value_and_grad(theta, *known.data)[0][0].isfinite())
            )
            alike = alike and _agree(value[0], (prior + likelihood).to(point))
            alike = alike and _agree(prior, density.log_prior(point))
            if alike:  # every site maps theta as it does in a density: its range may depend on the data
                free = density.unconstrained(point)
                alike = all(
                    torch.equal(transform_onto(nodes[s.name]["fn"].support)(free[s.name]), nodes[s.name]["value"])
                    for s in density.sites
                )
    except Exception:  # what a model may raise is said where it is read
        return None
    return (density, value, gradient) if alike else None


def shapes_of(data: Data) -> Hashable:
    """Return what data of one kind share: structure, shapes, types, all that is no tensor, and what the model decides by."""
    leaves, spec = pytree.tree_flatten(data)
    found: list[Hashable] = []
    for each in leaves:
        if isinstance(each, Tensor):
            found.append((each.shape, each.dtype, each.device, content_of(each)))
            continue
        try:
            hash(each)
        except TypeError:
            found.append(Same(each))
        else:
            found.append((type(each), each))
    return spec, tuple(found)


def _are_allowed(density: LogDensity, nodes: Mapping[str, Node]) -> bool:
    """Tell whether observations are within the supports of their distributions."""
    return of_impossible_value(nodes[name] for name in density.observed) is None


def _refuse_negative_codes(density: LogDensity, theta: Tensor) -> None:
    """Run the model anew where it may index by negative numbers, to see whether it does."""
    if any(
        isinstance(each, Tensor) and is_whole(each) and bool((each < 0).any())
        for each in pytree.tree_leaves(density.data)
    ):
        with refusing_bad_codes(density.model, density.data):
            density.nodes(theta, *density.data)


def _agree(one: Tensor, other: Tensor) -> bool:
    share = torch.finfo(one.dtype).eps ** 0.75
    return torch.allclose(one, other, rtol=share, atol=share, equal_nan=True)
