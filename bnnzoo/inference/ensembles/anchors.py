"""Randomised MAP sampling: members whose priors and observations are perturbed as the posterior asks for."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Normal, TransformedDistribution

from bnnzoo.core.data.minibatch import has_rows
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.model.replay import Node
from bnnzoo.core.program.sites import ModelError
from bnnzoo.core.reading.outcomes import observed_places
from bnnzoo.inference.ensembles.adversarial import MemberFunction
from bnnzoo.inference.optimise.batches import StepBatch
from bnnzoo.inference.optimise.objectives import ObjectiveInputs
from bnnzoo.inference.optimise.streams import MemberStreams

__all__ = ["Anchors", "anchors", "is_gaussian"]


@dataclass(frozen=True)
class Anchors:
    r"""What is random about the objectives of anchored members.

    With :math:`\theta_m` drawn from the prior and :math:`\epsilon_m` from N(0, 1), each member maximises

    .. math:: \sum_n \log p(y_n \mid \theta) + \sum_n \frac{\epsilon_{mn}}{\sigma_n} \mu_n(\theta)
        + \log p(\theta - \theta_m + E\theta)

    For a known noise scale the second sum is what noise :math:`\sigma_n \epsilon_{mn}` on the observations adds, up to a
    constant; a noise scale that is inferred sees the observations as they are.

    Attributes
    ----------
    shift : Tensor [C, P]
        Anchor minus prior mean, zero for parameters whose prior is not Gaussian.
    noise : tuple of Tensor [C, N, ...]
        Standard normal noise of the arguments in ``sites``.
    sites : mapping of int to str
        Arguments of the model that hold observations with Gaussian noise, and the observed site of each.
    """

    shift: Tensor
    noise: tuple[Tensor, ...]
    sites: Mapping[int, str]

    @property
    def constants(self) -> tuple[Tensor, ...]:
        """What each member's objective is passed at every step."""
        return (self.shift, *self.noise)

    def numbered(self, density: LogDensity) -> LogDensity:
        """Return the density with the numbers of the rows as a further argument, so that batches hold them."""
        rows = torch.arange(density.num_data, device=density.device)
        return replace(density, data=(*density.data, rows)) if self.sites else density

    def scaled_at(self, theta: Tensor, density: LogDensity) -> "Anchors":
        """Return the same with the noise divided by the noise scales at ``theta[C, P]``, for :meth:`objective`."""
        at = [density.nodes(row, *density.data) for row in theta]
        found = (
            torch.stack([z / _sd(nodes[name]).expand(z.shape) for nodes, z in zip(at, noise, strict=True)])
            for name, noise in zip(self.sites.values(), self.noise, strict=True)
        )
        return replace(self, noise=tuple(found))

    def objective(self, base: MemberFunction, density: LogDensity, *, is_scaled: bool = False) -> MemberFunction:
        """Return the objective of an anchored member, of batches of :meth:`numbered`.

        Unless the noise ``is_scaled``, it is divided by the noise scales at theta, which count as constants.
        """

        def value(theta: Tensor, inputs: ObjectiveInputs) -> Tensor:
            shift, *noise = inputs.constants
            data = inputs.batch.data[:-1] if self.sites else inputs.batch.data
            there = inputs._replace(batch=inputs.batch._replace(data=data, dims=inputs.batch.dims[: len(data)]))
            anchored = base(theta, there) + density.log_prior(theta - shift) - density.log_prior(theta)
            return anchored + self._pull(theta, inputs.batch, noise, density, is_scaled) if self.sites else anchored

        return value

    def _pull(
        self, theta: Tensor, batch: StepBatch, noise: list[Tensor], density: LogDensity, is_scaled: bool
    ) -> Tensor:
        *arguments, rows = batch.data
        nodes, total = density.nodes(theta, *arguments), theta.new_zeros(())
        for name, epsilon in zip(self.sites.values(), noise, strict=True):
            node, pull = nodes[name], epsilon[rows]
            mean = node["fn"].mean.expand(pull.shape)
            # which entries of a site's value count, over all dimensions of the value
            mask = node["mask"]
            found = torch.as_tensor(True if mask is None else mask, device=node["value"].device)
            terms = torch.where(
                found[(..., *[None] * node["fn"].event_dim)] if found.ndim else found,
                pull * mean / (1.0 if is_scaled else _sd(node)),
                0.0,
            )
            if batch.row_weights is not None:
                terms = terms.reshape(len(rows), -1) * batch.row_weights[:, None]
            total = total + terms.sum()
        return density.num_data / len(rows) * total


def _sd(node: Node) -> Tensor:
    """Return the standard deviation of a Gaussian site, of which a tempered likelihood sees the power."""
    return (node["fn"].stddev / torch.as_tensor(node["scale"]).sqrt()).detach()


def anchors(density: LogDensity, streams: MemberStreams) -> Anchors:
    """Draw anchors for the members of ``streams``.

    Raises
    ------
    ModelError
        If the prior of a parameter depends on another, or none is Gaussian.
    """
    generators = streams.own("anchors")
    scale = _prior_scale(density)
    # the arguments of the model that hold observations with Gaussian noise, and their sites
    theta = torch.zeros(density.num_params, dtype=density.dtype, device=density.device)
    with torch.no_grad():
        nodes = density.nodes(theta, *density.data)
    sites = {
        place: name
        for place, name in observed_places(density).items()
        if has_rows(density.data[place], density.num_data) and is_gaussian(nodes[name]["fn"])
    }
    shift, *noise = (
        torch.stack([torch.randn(shape, generator=g, dtype=density.dtype) for g in generators]).to(density.device)
        for shape in [(density.num_params,), *(density.data[place].shape for place in sites)]
    )
    return Anchors(scale * shift, tuple(noise), sites)


def _prior_scale(density: LogDensity) -> Tensor:
    """Return the standard deviation ``[P]`` of each Gaussian prior, zero for parameters with another prior."""
    if density.priors is None:
        raise ModelError(
            "anchored=True draws an anchor for each member from the prior, but here the prior of one site depends on another. "
            "Give the prior fixed scales, such as priors.normal(1.0), or leave anchored out."
        )
    scale = torch.zeros(density.num_params, dtype=density.dtype, device=density.device)
    for site in density.sites:
        fn = density.priors[site.name]["fn"]
        if is_gaussian(fn):
            scale[site.span] = fn.stddev.expand(site.shape).reshape(-1).to(scale)
    if not bool((scale > 0).any()):
        raise ModelError(
            f"anchored=True needs a Gaussian prior, but none of the latent sites has one "
            f"({', '.join(site.name for site in density.sites)}). Use priors.normal(1.0), or leave anchored out."
        )
    return scale


def is_gaussian(fn: Any) -> bool:
    """Tell whether a distribution is normal, or independent or masked normal ones."""
    while hasattr(fn, "base_dist") and not isinstance(
        fn, TransformedDistribution
    ):  # a log-normal has a normal base, too
        fn = fn.base_dist
    return isinstance(fn, Normal)
