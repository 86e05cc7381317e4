r"""What a likelihood takes from theta: the unconstrained parameters z of each p(y | z), and their Fisher information.

The generalised Gauss-Newton matrix is :math:`\sum_n J_n^T F_n J_n` with :math:`J_n = \partial z_n / \partial \theta`
and :math:`F_n` the Fisher information of p(y | z_n) about :math:`z_n`; the linearised predictive replaces
:math:`z(\theta)` by :math:`z(\theta^*) + J (\theta - \theta^*)`. Both need to read the likelihood, which is done
here.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import singledispatch
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from pyro.distributions.torch_distribution import ExpandedDistribution, MaskedDistribution
from torch import Tensor
from torch.distributions import Distribution, Independent
from torch.func import jacrev, jvp, vmap

from bnnzoo.core.density import LogDensity
from bnnzoo.core.minibatch import select
from bnnzoo.core.replay import Node, replay
from bnnzoo.core.types import Data

__all__ = [
    "LinearizedDensity",
    "Readout",
    "UnreadableLikelihood",
    "find_readout",
    "linearized",
    "read",
    "row_jacobians",
    "rows_are_independent",
    "whitened_node",
    "whitened_outputs",
]


class UnreadableLikelihood(ValueError):
    """The likelihood is of no family whose Fisher information is known here; the message names the site."""


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
    """

    coordinates: tuple[Tensor, ...]
    make_roots: Callable[[], tuple[Tensor, ...]]
    build: Callable[[tuple[Tensor, ...]], Distribution]
    weight: Tensor

    @property
    def roots(self) -> tuple[Tensor, ...]:
        """For each block a square root R ``[..., d, r]`` of its Fisher information, F = R R^T, of full column rank."""
        return self.make_roots()


def read(distribution: Distribution) -> Readout:
    """Read the parameters of a distribution of batch shape [...].

    Raises
    ------
    UnreadableLikelihood
        If the family is not known here.

    Examples
    --------
    >>> found = read(dist.Normal(torch.zeros(3), 2.0))
    >>> [block.shape for block in found.coordinates]
    [torch.Size([3, 1]), torch.Size([3, 1])]
    >>> found.roots[0][0]
    tensor([[0.5000]])
    """
    return _read(distribution)


@singledispatch
def _read(distribution: Distribution) -> Readout:
    raise UnreadableLikelihood(
        f"the family {type(distribution).__name__} is not among those whose Fisher information is known: Normal, "
        f"LogNormal, Laplace, StudentT, Bernoulli, Binomial, Categorical, Poisson, Exponential"
    )


def _scalar_blocks(
    values: tuple[Tensor, ...], fisher: tuple[Tensor, ...], build: Callable[..., Distribution], shape: torch.Size
) -> Readout:
    """Make a readout of scalar coordinates with a diagonal Fisher information."""
    coordinates = tuple(value.expand(shape)[..., None] for value in values)
    weight = torch.ones_like(coordinates[0][..., 0]).detach()

    def roots() -> tuple[Tensor, ...]:
        return tuple(entry.expand(shape).sqrt()[..., None, None] for entry in fisher)

    return Readout(coordinates, roots, lambda z: build(*(block[..., 0] for block in z)), weight)


@_read.register
def _(distribution: torch.distributions.Normal) -> Readout:
    scale = distribution.scale
    fisher = (scale**-2, torch.full_like(scale, 2.0))
    values = (distribution.loc, scale.log())
    return _scalar_blocks(values, fisher, lambda m, s: dist.Normal(m, s.exp()), distribution.batch_shape)


@_read.register
def _(distribution: torch.distributions.LogNormal) -> Readout:
    scale = distribution.scale
    fisher = (scale**-2, torch.full_like(scale, 2.0))
    values = (distribution.loc, scale.log())
    return _scalar_blocks(values, fisher, lambda m, s: dist.LogNormal(m, s.exp()), distribution.batch_shape)


@_read.register
def _(distribution: torch.distributions.Laplace) -> Readout:
    scale = distribution.scale
    fisher = (scale**-2, torch.ones_like(scale))
    values = (distribution.loc, scale.log())
    return _scalar_blocks(values, fisher, lambda m, s: dist.Laplace(m, s.exp()), distribution.batch_shape)


@_read.register
def _(distribution: torch.distributions.StudentT) -> Readout:
    df, scale = distribution.df, distribution.scale
    if df.requires_grad:
        raise UnreadableLikelihood("the degrees of freedom of its StudentT are inferred; fix them")
    fisher = ((df + 1) / ((df + 3) * scale**2), 2 * df / (df + 3) * torch.ones_like(scale))
    values = (distribution.loc, scale.log())
    return _scalar_blocks(
        values, fisher, lambda m, s: dist.StudentT(df, m, s.exp(), validate_args=False), distribution.batch_shape
    )


@_read.register
def _(distribution: torch.distributions.Bernoulli) -> Readout:
    p = torch.sigmoid(distribution.logits)
    return _scalar_blocks(
        (distribution.logits,), (p * (1 - p),), lambda z: dist.Bernoulli(logits=z), distribution.batch_shape
    )


@_read.register
def _(distribution: torch.distributions.Binomial) -> Readout:
    p, count = torch.sigmoid(distribution.logits), distribution.total_count
    fisher = (count * p * (1 - p),)
    return _scalar_blocks(
        (distribution.logits,), fisher, lambda z: dist.Binomial(count, logits=z), distribution.batch_shape
    )


@_read.register
def _(distribution: torch.distributions.Poisson) -> Readout:
    rate = distribution.rate
    return _scalar_blocks((rate.log(),), (rate,), lambda z: dist.Poisson(z.exp()), distribution.batch_shape)


@_read.register
def _(distribution: torch.distributions.Exponential) -> Readout:
    rate = distribution.rate
    return _scalar_blocks(
        (rate.log(),), (torch.ones_like(rate),), lambda z: dist.Exponential(z.exp()), distribution.batch_shape
    )


@_read.register
def _(distribution: torch.distributions.Categorical) -> Readout:
    logits = distribution.logits
    weight = torch.ones_like(logits[..., 0]).detach()
    return Readout(
        (logits,),
        lambda: (_multinomial_root(torch.softmax(logits, -1)),),
        lambda z: dist.Categorical(logits=z[0]),
        weight,
    )


def _multinomial_root(probs: Tensor) -> Tensor:
    """Return R ``[..., K, K - 1]`` with :math:`R R^T = diag(p) - p p^T`, its Cholesky factor in closed form.

    References
    ----------
    Tanabe and Sagae (1992), An exact Cholesky decomposition and the generalized inverse of the variance-covariance
    matrix of the multinomial distribution, with applications, Journal of the Royal Statistical Society B 54.
    """
    from_here = probs.flip(-1).cumsum(-1).flip(-1).clamp(min=torch.finfo(probs.dtype).tiny)
    after = from_here[..., 1:]
    diagonal = (probs[..., :-1] * after / from_here[..., :-1]).sqrt()
    below = -(probs[..., :, None] / after[..., None, :]) * diagonal[..., None, :]
    own = torch.diag_embed(diagonal)
    padded = torch.cat([own, torch.zeros_like(own[..., :1, :])], -2)
    return padded + below.tril(-1)


@_read.register
def _(distribution: Independent) -> Readout:  # type: ignore[type-arg]
    inner = _read(distribution.base_dist)
    num_event_dims = distribution.reinterpreted_batch_ndims
    return Readout(
        inner.coordinates,
        inner.make_roots,
        lambda z: dist.Independent(inner.build(z), num_event_dims, validate_args=False),
        inner.weight,
    )


@_read.register
def _(distribution: MaskedDistribution) -> Readout:
    inner = _read(distribution.base_dist)
    mask = torch.as_tensor(distribution._mask)
    events = inner.weight.ndim - len(distribution.batch_shape)
    weight = inner.weight * mask.reshape(mask.shape + (1,) * events if mask.ndim else ())
    return Readout(inner.coordinates, inner.make_roots, lambda z: MaskedDistribution(inner.build(z), mask), weight)


@_read.register
def _(distribution: ExpandedDistribution) -> Readout:
    inner = _read(distribution.base_dist)
    shape = distribution.batch_shape + distribution.base_dist.event_shape
    coordinates = tuple(z.expand(shape + z.shape[-1:]) for z in inner.coordinates)

    def roots() -> tuple[Tensor, ...]:
        return tuple(r.expand(shape + r.shape[-2:]) for r in inner.roots)

    return Readout(coordinates, roots, inner.build, inner.weight.expand(shape))


def find_readout(density: LogDensity, theta: Tensor) -> dict[str, tuple[bool, ...]]:
    """Tell for each observed site which of its coordinates depend on theta at all.

    Raises
    ------
    UnreadableLikelihood
        If a site's family is not known, or the model has likelihood terms made by ``pyro.factor``.
    """
    if density.factors:
        raise UnreadableLikelihood(
            f"the likelihood has the pyro.factor site {density.factors[0]!r}, which has no family"
        )
    with torch.enable_grad():
        nodes = _nodes(density, theta.detach().requires_grad_(), density.data)
        found = {}
        for name in density.observed:
            try:
                found[name] = tuple(block.requires_grad for block in read(nodes[name]["fn"]).coordinates)
            except UnreadableLikelihood as error:
                raise UnreadableLikelihood(f"The likelihood of site {name!r} cannot be read: {error}.") from None
    return found


def whitened_outputs(density: LogDensity, active: dict[str, tuple[bool, ...]], theta: Tensor, *batch: Any) -> Tensor:
    r"""Return ``[B, K]`` whose Jacobian about theta is :math:`R_n^T J_n` for each row: the rows of a root of the GGN.

    Scales and masks of the likelihood are counted. The roots R are held constant, as if they did not depend on theta.

    Parameters
    ----------
    density : LogDensity
    active : dict
        From :func:`find_readout`; coordinates that do not depend on theta are left out.
    theta : Tensor [P]
    *batch
        Arguments of the model.
    """
    nodes = _nodes(density, theta, batch)
    return torch.cat([_whitened(nodes[name], active[name]) for name in density.observed], -1)


def whitened_node(node: Node) -> Tensor:
    """Return the whitened outputs ``[B, K]`` of one site, without the coordinates that depend on no variable."""
    return _whitened(node, tuple(block.requires_grad for block in read(node["fn"]).coordinates))


def _whitened(node: Node, active: tuple[bool, ...]) -> Tensor:
    found = read(node["fn"])
    weight = (node["scale"] * found.weight).sqrt()
    if isinstance(node["mask"], Tensor):
        events = weight.ndim - node["mask"].ndim
        weight = weight * node["mask"].reshape(node["mask"].shape + (1,) * events)
    parts = []
    for is_active, z, root in zip(active, found.coordinates, found.roots, strict=True):
        if is_active:
            white = (root.detach() * z[..., :, None]).sum(-2)
            parts.append((weight[..., None] * white).reshape(weight.shape[0] if weight.ndim else 1, -1))
    return torch.cat(parts, -1)


def _nodes(density: LogDensity, theta: Tensor, data: Data) -> dict[str, Node]:
    return replay(density.model, density.constrain(theta), data, density.observed, density.device)


def rows_are_independent(outputs: Callable[..., Tensor], theta: Tensor, data: Data, num_rows: int) -> tuple[bool, int]:
    """Tell whether each row has the same ``outputs(theta, *batch)`` alone as among all, and how many outputs a row has."""
    with torch.no_grad():
        whole = outputs(theta, *data)
        if num_rows < 2 or len(whole) != num_rows:
            return False, whole.shape[-1]
        try:
            first = torch.arange(1, device=theta.device)
            alone = [outputs(theta, *select(data, row, num_rows)) for row in (first, first - 1)]
        except Exception:  # the model may raise anything on one row; then rows cannot be told apart
            return False, whole.shape[-1]
    pairs = zip(alone, (whole[:1], whole[-1:]), strict=True)
    return all(a.shape == b.shape and torch.allclose(a, b) for a, b in pairs), whole.shape[-1]


def row_jacobians(function: Callable[..., Tensor], data: Data, num_rows: int) -> Callable[..., Tensor]:
    """Return ``(theta, *batch) -> [B, K, P]``, the Jacobians about theta of a function ``[B, K]`` of independent rows.

    Parameters
    ----------
    function : callable
        ``(theta[P], *batch) -> [B, K]``.
    data : tuple
        Arguments like those of a batch; tensors with ``num_rows`` rows are taken row by row.
    num_rows : int
    """
    has_rows = [isinstance(v, Tensor) and v.ndim > 0 and len(v) == num_rows for v in data]

    def one(theta: Tensor, *row: Any) -> Tensor:
        return jacrev(function)(theta, *(v[None] if rows else v for v, rows in zip(row, has_rows, strict=True)))[0]

    def batched(theta: Tensor, *batch: Any) -> Tensor:
        try:
            found: Tensor = vmap(one, in_dims=(None, *(0 if rows else None for rows in has_rows)))(theta, *batch)
        except RuntimeError:  # some operations of the user's model may be unknown to vmap
            found = jacrev(function, chunk_size=1)(theta, *batch)
        return found

    return batched


@dataclass(frozen=True)
class LinearizedDensity(LogDensity):
    r"""A log density whose likelihood takes :math:`z(\theta^*) + J (\theta - \theta^*)` instead of :math:`z(\theta)`.

    Attributes
    ----------
    anchor : Tensor [P]
        Where the outputs are linearised, the mode of a Laplace approximation.
    """

    anchor: Tensor

    def _nodes(self, theta: Tensor, data: Data, *, draw: bool = False) -> dict[str, Node]:
        return super()._nodes(theta, data) | self._observed_nodes(theta, data, draw=draw)

    def _observed_nodes(self, theta: Tensor, data: Data, *, draw: bool = False) -> dict[str, Node]:
        def outputs(theta: Tensor) -> dict[str, tuple[Tensor, ...]]:
            here = super(LinearizedDensity, self)._nodes(theta, data)
            return {name: read(here[name]["fn"]).coordinates for name in self.observed}

        at_anchor, change = jvp(outputs, (self.anchor,), (theta - self.anchor,))[:2]
        nodes = super()._nodes(self.anchor, data)  # what families, scales and masks the sites have
        with pyro.validation_enabled(False):
            for name in self.observed:
                moved = tuple(z + dz for z, dz in zip(at_anchor[name], change[name], strict=True))
                fn = read(nodes[name]["fn"]).build(moved)
                nodes[name] = {**nodes[name], "fn": fn} | ({"value": fn.sample()} if draw else {})
        return {name: nodes[name] for name in self.observed}


def linearized(density: LogDensity, anchor: Tensor) -> LinearizedDensity:
    """Return a density whose likelihood is that of the model's outputs linearised at ``anchor[P]``.

    Raises
    ------
    UnreadableLikelihood
        If the outputs of the likelihood cannot be read.
    """
    find_readout(density, anchor)
    with warnings.catch_warnings():
        # At its first use torch's forward mode compiles rules with a tool that it warns about itself.
        warnings.simplefilter("ignore", FutureWarning)
        jvp(torch.sin, (anchor,), (anchor,))
    return LinearizedDensity(**{f.name: getattr(density, f.name) for f in fields(density)}, anchor=anchor)
