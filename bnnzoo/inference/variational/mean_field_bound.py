"""Lower-variance estimates of a mean-field Gaussian's bound: noise for every row, divergences in closed form."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.program.sites import Site, innermost
from bnnzoo.core.types import Data
from bnnzoo.inference.variational.noisy_layers import NoisyLayer, is_unconstrained, noisy

__all__ = ["MeanFieldBound", "gaussian_sites"]

LOG_TWO_PI = math.log(2 * math.pi)


@dataclass(frozen=True)
class MeanFieldBound:
    r"""One particle's estimate of the bound, with closed forms where there are any.

    The network's layers draw their noise for every row, see :class:`NoisyLayer`. For sites with a Gaussian prior the
    divergence is not estimated but computed: with means m and standard deviations s of the prior,

    .. math:: KL(q \,\|\, p) = \sum_i \log\frac{s_i}{\sigma_i} + \frac{\sigma_i^2 + (\mu_i - m_i)^2}{2 s_i^2} - \frac12

    where m and s may depend on other latent sites. The rest is as in :func:`bnnzoo.inference.variational.elbo.elbo`.

    Attributes
    ----------
    density : LogDensity
    layers : tuple of NoisyLayer
        Empty for one draw of the weights for all rows.
    closed : tuple of Site
        Sites whose divergence is computed in closed form; see :func:`gaussian_sites`.

    References
    ----------
    Kingma, Salimans and Welling (2015), Variational dropout and the local reparameterization trick, NeurIPS. Wen,
    Vicol, Ba, Tran and Grosse (2018), Flipout, ICLR.
    """

    density: LogDensity
    layers: tuple[NoisyLayer, ...]
    closed: tuple[Site, ...]

    @property
    def num_extra(self) -> int:
        """How many standard normal numbers a particle uses beyond those of theta."""
        return sum(layer.noise_size for layer in self.layers)

    def __call__(
        self, params: Tensor, noise: Tensor, batch: Data, weight: Tensor | None = None, temperature: float = 1.0
    ) -> Tensor:
        """Return the estimate ``[]`` for parameters ``[2 P]`` and noise ``[P + num_extra]`` of one particle."""
        loc, log_scale = params.chunk(2)
        scale = log_scale.exp()
        theta = loc + scale * noise[: len(loc)]
        with noisy(self.layers, theta, loc, scale, noise[len(loc) :]):
            joint = self.density.log_joint(theta, *batch)
        prior, entropy = self._closed_form(theta, loc, log_scale, batch)
        minus_log_q = entropy + self._sampled(theta, params.detach())
        if weight is None:
            return joint + prior + temperature * minus_log_q
        return joint + (weight - 1) * self.density.log_prior(theta) + weight * (prior + temperature * minus_log_q)

    def _closed_form(self, theta: Tensor, loc: Tensor, log_scale: Tensor, batch: Data) -> tuple[Tensor, Tensor]:
        """Return how the expected log prior of the Gaussian sites differs from that at theta, and their entropy."""
        prior, entropy = theta.new_zeros(()), theta.new_zeros(())
        if not self.closed:
            return prior, entropy
        nodes = self.density.nodes(theta, *batch)
        for site in self.closed:
            normal, own = innermost(nodes[site.name]["fn"]), site.span
            centre, width = (part.expand(site.shape).reshape(-1) for part in (normal.loc, normal.scale))
            expected = (loc[own] - centre) ** 2 + (2 * log_scale[own]).exp()
            excess = ((expected - (theta[own] - centre) ** 2) / (2 * width**2)).sum()
            prior = prior - nodes[site.name]["scale"] * excess
            entropy = entropy + (log_scale[own] + 0.5 * (1 + LOG_TWO_PI)).sum()
        return prior, entropy

    def _sampled(self, theta: Tensor, params: Tensor) -> Tensor:
        """Return minus the log density of q at those entries of theta that belong to no Gaussian site."""
        names = {site.name for site in self.closed}
        others = [site.span for site in self.density.sites if site.name not in names]
        loc, log_scale = params.chunk(2)
        total = theta.new_zeros(())
        for own in others:
            white = (theta[own] - loc[own]) * (-log_scale[own]).exp()
            total = total + (0.5 * white**2 + log_scale[own] + 0.5 * LOG_TWO_PI).sum()
        return total


def gaussian_sites(density: LogDensity) -> tuple[Site, ...]:
    """Return the latent sites whose prior, given the other sites, has independent Gaussian entries."""
    theta = torch.zeros(density.num_params, dtype=density.dtype, device=density.device)
    with torch.no_grad():
        nodes = density.nodes(theta, *density.data)
    return tuple(site for site in density.sites if _is_gaussian(site, nodes[site.name]))


def _is_gaussian(site: Site, node: Mapping[str, Any]) -> bool:
    is_masked = not (node["mask"] is None or node["mask"] is True) or isinstance(node["scale"], Tensor)
    base = innermost(node["fn"])
    return (
        is_unconstrained(site)
        and not is_masked
        and isinstance(base, torch.distributions.Normal)
        and _only_shaped(node["fn"])
    )


def _only_shaped(distribution: Any) -> bool:
    """Whether the wrappers around a distribution change its shape and nothing else."""
    while hasattr(distribution, "base_dist"):
        if type(distribution).__name__ not in {"ExpandedDistribution", "Independent"}:
            return False
        distribution = distribution.base_dist
    return True
