"""Monte Carlo dropout: masks of hidden units as a posterior over weights."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from bnnzoo.core.method import FitContext, Need
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.posterior.posterior import Mixture
from bnnzoo.core.settings import Fraction
from bnnzoo.inference.variational.dropout import Dropout, DropoutBound, DropoutPosterior
from bnnzoo.inference.variational.elbo import Reparametrised
from bnnzoo.inference.variational.fit_family import fit_family
from bnnzoo.inference.variational.hidden_units import HiddenUnits
from bnnzoo.inference.variational.hidden_units import hidden_units as find_hidden_units
from bnnzoo.inference.variational.mean_field_bound import gaussian_sites
from bnnzoo.inference.variational.variational_settings import BoundSettings

__all__ = ["DropoutVI", "MCDropout"]


@dataclass(frozen=True, kw_only=True)
class DropoutVI(BoundSettings):
    """A method whose family are the masks of hidden units."""

    needs: ClassVar[frozenset[Need]] = frozenset({Need.NETWORK})

    @abstractmethod
    def hidden_units(self, density: LogDensity) -> HiddenUnits:
        """Return the units that can be dropped."""

    @abstractmethod
    def family(self, hidden: HiddenUnits, like: Tensor) -> Dropout:
        """Return the family of distributions, with tensors like the given one."""

    def bound(self, density: LogDensity, family: Reparametrised) -> DropoutBound:
        """Return how the bound is estimated: priors that are Gaussian in closed form."""
        assert isinstance(family, Dropout)
        return DropoutBound(density, family, gaussian_sites(density))

    def run(self, density: LogDensity, context: FitContext) -> DropoutPosterior | Mixture:
        """Maximise the bound; see :func:`bnnzoo.fit`.

        Returns
        -------
        DropoutPosterior or Mixture
            One component a restart, with minus the bound's estimates in ``info.fit_stats["loss"]`` and the rates of each
            layer in ``info.config["rates"]``.

        Raises
        ------
        ModelError
            If the networks have no units that can be dropped.
        """
        hidden = self.hidden_units(density)
        family = self.family(hidden, torch.empty(0, dtype=density.dtype, device=density.device))
        params, info = fit_family(self, family, density, context)
        locs, rates = self._found(params, family)
        by_place = [hidden.by_place(each) for each in rates]
        info = replace(
            info,
            has_atoms=True,
            config={"rates": by_place[0] if len(by_place) == 1 else _joined(by_place)},
            fit_stats={"loss": -info.fit_stats["elbo"]},
        )
        components = tuple(
            DropoutPosterior(density, info, loc, hidden.per_unit(rate), hidden.units)
            for loc, rate in zip(locs, rates, strict=True)
        )
        return components[0] if len(components) == 1 else Mixture(density, info, components)

    def _found(self, params: Tensor, family: Dropout) -> tuple[Tensor, Tensor]:
        """Return the points ``[C, P]`` and the rates ``[C, L]`` of the places."""
        if family.relaxation is None:
            return params, family.logits.sigmoid().expand(len(params), -1)
        locs, logits = params.tensor_split([params.shape[1] - len(family.counts)], 1)
        return locs, logits.sigmoid()


def _joined(by_place: list[dict[str, float]]) -> Mapping[str, Any]:
    return {name: [each[name] for each in by_place] for name in by_place[0]}


@dataclass(frozen=True)
class MCDropout(DropoutVI):
    r"""Monte Carlo dropout: a network whose hidden units are dropped at random in every draw.

    The posterior of the weights is approximated by a point M and independent masks of the hidden units,

    .. math:: \theta = \frac{z M}{1 - p}, \qquad z_k \sim \text{Bernoulli}(1 - p),

    where z multiplies all weights that leave a unit. M maximises :math:`E_z[\log p(y, \theta)]`, in which the prior of the model
    is the weight decay: N(0, s^2) adds :math:`\sum M^2 / (2 s^2 (1 - p))` to minus the log likelihood of all data. Everything
    that no mask touches, such as biases and the noise scale, is a point estimate at the mode of the bound.

    One mask makes one draw of ``theta`` and holds for all observations, so draws are functions. The distribution has atoms
    and no density: there is no ``log_q``, no Pareto k and no LOO by importance sampling; compare held-out log scores.

    Parameters
    ----------
    rate : float, optional
        Probability p that a unit is dropped, the same everywhere. Default: that of each of the network's dropout layers.
        With a rate, a network without dropout layers has its hidden units dropped: the inputs of every linear or
        convolutional layer but the first, whole channels in convolutions.
    num_steps, num_particles, learning_rate, schedule, batch_size, num_averaged, tolerance, num_restarts, keep,
    kl_annealing, kl_weighting
        As for :class:`bnnzoo.inference.MeanFieldVI`; a particle is one mask, the same for all rows of a batch.
    init : Tensor, Posterior or Method, optional
        Where M starts, ``[num_restarts, P]``, or where to find starting points.

    References
    ----------
    Gal and Ghahramani (2016), Dropout as a Bayesian approximation: representing model uncertainty in deep learning, ICML.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> from bnnzoo.testing import dropout_network
    >>> target = dropout_network(rate=0.2)  # a linear model with torch.nn.Dropout(0.2) before it
    >>> posterior = bz.fit(target.model, bz.MCDropout(num_steps=500), *target.data)
    >>> posterior.info.config["rates"]
    {'net.0': 0.2}
    >>> bool(((posterior.loc - target.mean["net.1.weight"]).abs() < 0.02).all())
    True
    """

    rate: Fraction | None = None

    def hidden_units(self, density: LogDensity) -> HiddenUnits:
        """Return the units at the network's dropout layers or, with a rate, its hidden units."""
        return find_hidden_units(density, given=self.rate is not None, method=type(self).__name__)

    def family(self, hidden: HiddenUnits, like: Tensor) -> Dropout:
        """Return the masks at fixed rates."""
        rates = [self.rate or place.rate or 0.0 for place in hidden.places]
        logits = torch.tensor(rates, dtype=torch.float64).logit().to(like)
        return Dropout(hidden.units, tuple(hidden.counts), logits)
