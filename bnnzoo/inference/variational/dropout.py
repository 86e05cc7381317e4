"""Dropout as a distribution over weights: the family, its bound, and the posterior with its atoms."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.posterior.guides import guide_of
from bnnzoo.core.posterior.info import FitInfo
from bnnzoo.core.posterior.posterior import noise_of_draws
from bnnzoo.core.posterior.saving import StoredPosterior
from bnnzoo.core.program.sites import Site, innermost
from bnnzoo.core.types import Data, Whole

__all__ = ["Dropout", "DropoutBound", "DropoutPosterior", "masked"]


@dataclass(frozen=True)
class Dropout:
    """Points ``theta[P]`` whose units are dropped independently, at fixed rates or at learned ones.

    The parameters are the point and, for learned rates, their logits ``[L]``. Noise of one unit drops it where it exceeds the
    normal quantile of one minus the rate. A relaxed mask is between 0 and 1 and can be differentiated by the rate.

    Attributes
    ----------
    units : Tensor [2, P]
        See :class:`bnnzoo.inference.variational.hidden_units.HiddenUnits`.
    counts : tuple of int
        Units of each place.
    logits : Tensor [L]
        Of the rates, or of those at the start.
    relaxation : float, optional
        Temperature of the concrete distribution; None for fixed rates.

    References
    ----------
    Maddison, Mnih and Teh (2017), The concrete distribution: a continuous relaxation of discrete random variables, ICLR.
    """

    units: Tensor
    counts: tuple[int, ...]
    logits: Tensor
    relaxation: float | None = None

    def start(self, loc: Tensor, scale: float) -> Tensor:
        """Return the parameters at the point ``loc[P]``; a point has no scale."""
        return loc if self.relaxation is None else torch.cat([loc, self.logits.to(loc)])

    def noise_size(self, num_params: int) -> int:
        """Return the number of units."""
        return sum(self.counts)

    def split(self, params: Tensor) -> tuple[Tensor, Tensor]:
        """Return the point ``[P]`` and the logit of the rate of every unit ``[U]``."""
        if self.relaxation is None:
            return params, self._per_unit(self.logits.to(params))
        loc, logits = params.tensor_split([params.shape[-1] - len(self.counts)], -1)
        return loc, self._per_unit(logits)

    def draw(self, params: Tensor, noise: Tensor) -> Tensor:
        r"""Return ``theta[P]`` for ``noise[U]``, with relaxed masks if rates are learned.

        .. math:: \tilde z = \sigma\left(\frac{1}{t} \left(\log\frac{p}{1 - p} + \log\frac{u}{1 - u}\right)\right),
            \qquad u = \Phi(\epsilon)
        """
        loc, logits = self.split(params)
        if self.relaxation is None:
            dropped = (noise > torch.special.ndtri((-logits).sigmoid())).to(loc)
        else:
            logit_noise = torch.special.ndtr(noise).log() - torch.special.ndtr(-noise).log()
            dropped = ((logits + logit_noise) / self.relaxation).sigmoid()
        return masked(loc, self.units, (1 - dropped) / (-logits).sigmoid())

    def entropy(self, params: Tensor) -> Tensor:
        """Return the entropy ``[]`` of the masks."""
        _, logits = self.split(params)
        rate = logits.sigmoid()
        return (rate * functional.softplus(-logits) + (1 - rate) * functional.softplus(logits)).sum()

    def _per_unit(self, values: Tensor) -> Tensor:
        return torch.cat([value.expand(count) for value, count in zip(values.unbind(), self.counts, strict=True)])


def masked(loc: Tensor, units: Tensor, factors: Tensor) -> Tensor:
    """Return ``theta[..., P]``: the point ``loc[P]`` with every entry multiplied by the factors ``[..., U]`` of its units."""
    padded = torch.cat([factors, factors.new_ones(*factors.shape[:-1], 1)], -1)
    return loc * padded[..., units[0]] * padded[..., units[1]]


@dataclass(frozen=True)
class DropoutBound:
    r"""One particle's estimate of dropout's bound.

    With a point M, masks z of rate p, and :math:`\theta = z M / (1 - p)`,

    .. math:: E_z[\log p(y \mid \theta)] + E_z[\log p(\theta)] + \sum_l K_l H(p_l)

    where :math:`K_l` units share the rate :math:`p_l` with entropy H. For a Gaussian prior the second term is computed and
    not estimated: entries that are kept with probability :math:`q = 1 - p` have

    .. math:: E_z (\theta - m)^2 = q \, (M / q - m)^2 + (1 - q) \, m^2

    so that a prior N(0, s^2) is a weight decay of :math:`1 / (2 s^2 q)`. Fixed rates have a constant entropy, which is left
    out.

    Attributes
    ----------
    density : LogDensity
    family : Dropout
    closed : tuple of Site
        Sites with a Gaussian prior; see :func:`bnnzoo.inference.variational.mean_field_bound.gaussian_sites`.

    References
    ----------
    Gal and Ghahramani (2016), Dropout as a Bayesian approximation: representing model uncertainty in deep learning, ICML.
    Gal, Hron and Kendall (2017), Concrete dropout, NeurIPS.
    """

    density: LogDensity
    family: Dropout
    closed: tuple[Site, ...]

    @property
    def num_extra(self) -> int:
        """None: the noise of the masks is all there is."""
        return 0

    def __call__(
        self, params: Tensor, noise: Tensor, batch: Data, weight: Tensor | None = None, temperature: float = 1.0
    ) -> Tensor:
        """Return the estimate ``[]`` for parameters ``[Q]`` and noise ``[U]`` of one particle."""
        theta = self.family.draw(params, noise)
        joint = self.density.log_joint(theta, *batch)
        others = self._excess(params, theta, batch)
        if self.family.relaxation is not None:
            others = others + temperature * self.family.entropy(params)
        return (
            joint + others if weight is None else joint + (weight - 1) * self.density.log_prior(theta) + weight * others
        )

    def _excess(self, params: Tensor, theta: Tensor, batch: Data) -> Tensor:
        """Return by how much the expected log prior of the Gaussian sites exceeds that at theta."""
        if not self.closed:
            return theta.new_zeros(())
        loc, logits = self.family.split(params)
        kept = masked(torch.ones_like(loc), self.family.units, (-logits).sigmoid())
        nodes = self.density.priors or self.density.nodes(theta, *batch)
        total = theta.new_zeros(())
        for site in self.closed:
            normal, own = innermost(nodes[site.name]["fn"]), site.span
            centre, width = (part.expand(site.shape).reshape(-1) for part in (normal.loc, normal.scale))
            expected = kept[own] * (loc[own] / kept[own] - centre) ** 2 + (1 - kept[own]) * centre**2
            total = total + nodes[site.name]["scale"] * (((theta[own] - centre) ** 2 - expected) / (2 * width**2)).sum()
        return total


@dataclass(frozen=True, repr=False)
class DropoutPosterior(StoredPosterior):
    """Dropout's distribution over ``theta[P]``: finitely many points, one for each set of units that is dropped.

    It has atoms, and hence no density: neither importance weights nor Pareto k nor PSIS-LOO exist for it, and with
    probability :math:`(1 - p)^U` a draw is the network without dropout.

    Attributes
    ----------
    density : LogDensity
    info : FitInfo
    loc : Tensor
        Mean ``[P]``, the point that is fitted.
    rates : Tensor
        Probability ``[U]`` that a unit is dropped.
    units : Tensor
        Units ``[2, P]`` that multiply each entry of theta; U for none.
    """

    density: LogDensity
    info: FitInfo
    loc: Tensor
    rates: Tensor
    units: Tensor

    def draws(self, num_draws: int | None = None, seed: Whole | None = None) -> Tensor:
        """Return independent draws ``[1, S, P]``, one mask each; the same for the same seed, which is the fit's by default."""
        return self._draw(
            noise_of_draws(self.loc, len(self.rates), num_draws, self.info.seed if seed is None else seed)
        )

    def log_prob(self, theta: Tensor) -> None:
        """Return None: a distribution with atoms has no density."""

    def as_guide(self) -> Callable[..., dict[str, Tensor]]:
        """Return a Pyro guide that draws a mask, for ``Predictive``; its log density counts as 0."""
        return guide_of(self.density, self.sample, lambda theta: theta.new_zeros(theta.shape[:-1]))

    def sample(self, shape: torch.Size) -> Tensor:
        """Return draws ``[*shape, P]``, using torch's global random stream."""
        return self._draw(torch.randn(*shape, len(self.rates), dtype=self.loc.dtype, device=self.loc.device))

    def _draw(self, noise: Tensor) -> Tensor:
        kept = (noise < torch.special.ndtri(1 - self.rates)).to(self.loc)
        return masked(self.loc, self.units, kept / (1 - self.rates))

    def _summary(self) -> list[str]:
        logarithm = len(self.rates) * math.log10(2)
        return [
            f"{len(self.rates)} units",
            f"10^{logarithm:.0f} atoms" if logarithm > 6 else f"{2 ** len(self.rates)} atoms",
        ]
