r"""Parameters of any likelihood, read from what its distribution declares.

A distribution's constructor, its ``arg_constraints`` and the distributions it holds say which parameters it has. Each is
mapped to unconstrained space by :func:`torch.distributions.biject_to`, and the distribution is rebuilt by its own
constructor from other values. The Fisher information of the unconstrained parameters z has no closed form then:

.. math:: F = E_{y \sim p(y \mid z)} \left[ \nabla_z \log p(y \mid z) \, \nabla_z \log p(y \mid z)^T \right]

It is summed over the support where that is finite and small, which is exact, and averaged over draws of y elsewhere.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributions import AffineTransform, Distribution, TransformedDistribution, biject_to, transform_to
from torch.func import grad

from bnnzoo.core.likelihood.unchecked import switch_validation_off
from bnnzoo.core.program.surroundings import isolated

__all__ = ["Readout", "UnreadableLikelihood", "fisher_root", "general_read"]

NUM_DRAWS = 512  # of each observation, where the Fisher information is an average
MAX_SUPPORT = 256  # values of y over which it is summed
MAX_COORDINATES = 500  # of one observation, such as all rows of a Gaussian process
MAX_ELEMENTS = 2**22  # of the gradients that are computed together

# Of two constructor arguments for one parameter the first is read.
ALTERNATIVES = {
    "logits": ("probs",),
    "gate_logits": ("gate",),
    "scale_tril": ("covariance_matrix", "precision_matrix"),
}

type Coordinates = tuple[Tensor, ...]
type Build = Callable[[Coordinates], Distribution]


class UnreadableLikelihood(ValueError):
    """The likelihood has no parameters that can be read; the message names the site."""


@dataclass(frozen=True)
class Readout:
    """A distribution by its unconstrained parameters.

    Attributes
    ----------
    coordinates : tuple of Tensor [..., d]
        Blocks of parameters that are orthogonal in the Fisher information, such as the location and the log scale.
    make_roots : callable
        Computes the roots, which predictions do not need.
    build : callable
        The distribution of the same family, masks and event dimensions for other coordinates.
    weight : Tensor [...]
        Zero where a mask hides the entry.
    closed_form : bool
        Whether the roots have a closed form. Otherwise they may need draws of y, which cannot be made under vmap.
    """

    coordinates: Coordinates
    make_roots: Callable[[], tuple[Tensor, ...]]
    build: Build
    weight: Tensor
    closed_form: bool = True

    @property
    def roots(self) -> tuple[Tensor, ...]:
        """For each block a square root R ``[..., d, r]`` of its Fisher information, F = R R^T."""
        return self.make_roots()


def general_read(distribution: Distribution, read: Callable[[Distribution], Readout]) -> Readout:
    """Read a distribution of batch shape [...] from what it declares, as one block of coordinates ``[..., d]``.

    Parameters
    ----------
    distribution : Distribution
    read : callable
        Reads the distributions that this one holds, such as the components of a mixture.

    Raises
    ------
    UnreadableLikelihood
        If a constructor argument cannot be found, or there are no continuous parameters.
    """
    parts = _parts(distribution, read)
    if not parts:
        raise UnreadableLikelihood(f"{type(distribution).__name__} declares no continuous parameters")
    widths = [part.value.shape[-1] for part in parts.values()]
    z = torch.cat([part.value for part in parts.values()], -1)
    if z.shape[-1] > MAX_COORDINATES:
        raise UnreadableLikelihood(
            f"{type(distribution).__name__} has {z.shape[-1]} parameters for one observation, and their Fisher information is a "
            f"matrix of that size"
        )

    def build(coordinates: Coordinates) -> Distribution:
        pieces = coordinates[0].split(widths, -1)
        # a distribution of the same class whose parameters have other values
        values = {k: p.restore(z) for (k, p), z in zip(parts.items(), pieces, strict=True)}
        arguments = _arguments(distribution)
        if "transforms" in arguments:
            moved = (values.pop(f"transforms.{i}", t) for i, t in enumerate(arguments["transforms"]))
            arguments["transforms"] = list(moved)
        if "validate_args" in inspect.signature(type(distribution)).parameters:
            arguments["validate_args"] = False
        rebuilt = type(distribution)(**arguments | values)
        switch_validation_off(rebuilt)
        return rebuilt

    def roots() -> tuple[Tensor, ...]:
        return (fisher_root(distribution, z.detach(), build),)

    return Readout((z,), roots, build, torch.ones_like(z[..., 0]).detach(), closed_form=False)


@dataclass(frozen=True)
class _Part:
    """One constructor argument as unconstrained numbers ``value[..., d]``, and the way back from others."""

    value: Tensor
    restore: Callable[[Tensor], Any]


def _parts(distribution: Distribution, read: Callable[[Distribution], Readout]) -> dict[str, _Part]:
    """Return the constructor arguments that hold continuous parameters, by name."""
    found = {}
    num_batch_dims = len(distribution.batch_shape)
    for name, value in _arguments(distribution).items():
        if isinstance(value, Distribution):
            found[name] = _nested(read(value), num_batch_dims)
        elif name == "transforms":
            found |= {f"{name}.{i}": part for i, t in enumerate(value) for part in _of_transform(t, distribution)}
        elif isinstance(value, Tensor) and value.is_floating_point() and name in distribution.arg_constraints:
            constraint = distribution.arg_constraints[name]
            if not constraint.is_discrete:
                found[name] = _parameter(name, value, constraint, distribution)
    return found


def _arguments(distribution: Distribution) -> dict[str, Any]:
    """Return the values of a distribution's constructor arguments, one of each set of alternatives."""
    own: Any = type(distribution).__init__
    if isinstance(distribution, TransformedDistribution) and own is TransformedDistribution.__init__:
        return {"base_distribution": distribution.base_dist, "transforms": distribution.transforms}
    names = [name for name in inspect.signature(type(distribution)).parameters if name != "validate_args"]
    left_out = {other for name in names for other in ALTERNATIVES.get(name, ())}
    found = {}
    for name in names:
        if name in left_out:
            continue
        attribute = next((each for each in (name, f"_{name}") if hasattr(distribution, each)), None)
        if attribute is None:
            raise UnreadableLikelihood(
                f"{type(distribution).__name__} does not keep the argument {name!r} of its constructor as an attribute"
            )
        found[name] = getattr(distribution, attribute)
    return found


def _parameter(name: str, value: Tensor, constraint: Any, distribution: Distribution) -> _Part:
    try:
        try:
            transform: Any = biject_to(constraint)
        except NotImplementedError:  # torch calls that of Cholesky factors no bijection, since it ignores a triangle
            transform = transform_to(constraint)
    except NotImplementedError:
        raise UnreadableLikelihood(
            f"the parameter {name!r} of {type(distribution).__name__} has no known transform to unconstrained space"
        ) from None
    num_event_dims = max(constraint.event_dim, value.ndim - len(distribution.batch_shape))
    shape = distribution.batch_shape + value.shape[value.ndim - num_event_dims :]
    free = transform.inv(value.expand(shape))
    tail = free.shape[len(distribution.batch_shape) :]
    return _Part(_flat(free, len(tail)), lambda z: transform(z.reshape(z.shape[:-1] + tail)))


def _nested(inner: Readout, num_batch_dims: int) -> _Part:
    """Join the blocks of a distribution whose batch dimensions beyond the first belong to one observation."""
    tails = [block.shape[num_batch_dims:] for block in inner.coordinates]
    widths = [tail.numel() for tail in tails]

    def restore(z: Tensor) -> Distribution:
        pieces = zip(z.split(widths, -1), tails, strict=True)
        return inner.build(tuple(piece.reshape(piece.shape[:-1] + tail) for piece, tail in pieces))

    flat = [_flat(block, len(tail)) for block, tail in zip(inner.coordinates, tails, strict=True)]
    return _Part(torch.cat(flat, -1), restore)


def _of_transform(transform: Any, distribution: Distribution) -> list[_Part]:
    """Return location and log scale of an affine transform; other transforms are taken to have no parameters."""
    if not isinstance(transform, AffineTransform):
        return []
    like = next((v for v in (transform.loc, transform.scale) if isinstance(v, Tensor)), None)
    if like is None:
        return []
    shape = distribution.batch_shape + distribution.event_shape
    loc, scale = (torch.as_tensor(v).to(like).expand(shape) for v in (transform.loc, transform.scale))
    num_event_dims, sign = len(distribution.event_shape), scale.sign().detach()

    def restore(z: Tensor) -> AffineTransform:
        loc, log_scale = (half.reshape(half.shape[:-1] + distribution.event_shape) for half in z.chunk(2, -1))
        return AffineTransform(loc, sign * log_scale.exp(), event_dim=transform.event_dim)

    return [_Part(torch.cat([_flat(v, num_event_dims) for v in (loc, scale.abs().log())], -1), restore)]


def _flat(value: Tensor, num_dims: int) -> Tensor:
    """Return ``value`` with its last dimensions as one; a new one where there are none."""
    return value.flatten(value.ndim - num_dims) if num_dims else value[..., None]


def fisher_root(distribution: Distribution, z: Tensor, build: Build) -> Tensor:
    """Return a square root ``[..., d, d]`` of the Fisher information about ``z[..., d]``."""
    values, weights = _outcomes(distribution, z)
    total = torch.zeros(()).to(z)
    size = max(1, MAX_ELEMENTS // max(1, z.numel()))
    for y, weight in zip(values.split(size), weights.split(size), strict=True):
        scores = _scores(z, y, build)
        # the score at a value of no probability may be infinite, and counts nothing
        scores = torch.where(weight[..., None] > 0, scores * weight[..., None].sqrt(), 0.0)
        total = total + torch.einsum("s...i,s...j->...ij", scores, scores)
    eigenvalues, vectors = torch.linalg.eigh(total)
    return vectors * eigenvalues.clamp(min=0.0).sqrt()[..., None, :]


def _scores(z: Tensor, values: Tensor, build: Build) -> Tensor:
    """Return the gradients ``[S, ..., d]`` of the log density about ``z[..., d]`` at ``values[S, ..., *event]``."""
    try:
        return grad(lambda many: build((many,)).log_prob(values).sum())(z.expand(len(values), *z.shape))
    except RuntimeError:  # a family that cannot have further batch dimensions
        return torch.stack([grad(lambda z, y=y: build((z,)).log_prob(y).sum())(z) for y in values])


def _outcomes(distribution: Distribution, z: Tensor) -> tuple[Tensor, Tensor]:
    """Return values ``[S, ..., *event]`` of y and their weights ``[S, ...]``: the whole support if small, else draws."""
    if distribution.has_enumerate_support:
        try:
            values = distribution.enumerate_support(expand=False)
        except NotImplementedError:  # supports that differ from row to row
            values = torch.empty(MAX_SUPPORT + 1)
        if len(values) <= MAX_SUPPORT:
            return values, distribution.log_prob(values).exp().detach()
    with isolated(0, z.device), torch.no_grad():
        try:
            draws = distribution.sample(torch.Size([NUM_DRAWS]))
        except (NotImplementedError, AssertionError):  # a hidden Markov model asserts that its duration is known
            name = type(distribution).__name__
            raise UnreadableLikelihood(
                f"{name} cannot be drawn from, so its Fisher information is not known."
            ) from None
    return draws, torch.full((NUM_DRAWS, *z.shape[:-1]), 1 / NUM_DRAWS).to(z)
