"""Concrete dropout: Monte Carlo dropout with learned rates."""

from dataclasses import dataclass

import torch
from torch import Tensor

from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.settings import Fraction, Positive
from bnnzoo.inference.variational.dropout import Dropout
from bnnzoo.inference.variational.hidden_units import HiddenUnits
from bnnzoo.inference.variational.hidden_units import hidden_units as find_hidden_units
from bnnzoo.inference.variational.mc_dropout import DropoutVI

__all__ = ["ConcreteDropout"]


@dataclass(frozen=True, kw_only=True)
class ConcreteDropout(DropoutVI):
    r"""Monte Carlo dropout whose rates are learned from the data, one for each layer.

    The bound is that of :class:`bnnzoo.inference.MCDropout` plus the entropy of the masks,

    .. math:: E_z[\log p(y, \theta)] + \sum_l K_l H(p_l), \qquad H(p) = -p \log p - (1 - p) \log (1 - p)

    for layers of :math:`K_l` units. It is differentiated by the rates along a relaxed mask (the concrete distribution); draws
    of the result have masks of zeros and ones. Rates fall as data come in: without data the entropy alone makes them 1/2.

    Parameters
    ----------
    init_rate : float
        Rate of every layer at the start; the rates of the network's dropout layers are not used, only their places.
    relaxation : float
        Temperature of the relaxed masks. Lower values are closer to zeros and ones and have noisier gradients.
    num_steps, num_particles, learning_rate, schedule, batch_size, num_averaged, tolerance, num_restarts, keep,
    kl_annealing, kl_weighting, init
        As for :class:`bnnzoo.inference.MCDropout`.

    References
    ----------
    Gal, Hron and Kendall (2017), Concrete dropout, NeurIPS.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> from bnnzoo.testing import dropout_network
    >>> target = dropout_network(rate=None, noise=5.0)  # the mean and sd at the best rate, which is 0.22
    >>> posterior = bz.fit(target.model, bz.ConcreteDropout(), *target.data)
    >>> 0.2 < posterior.info.config["rates"]["net.0"] < 0.3
    True
    """

    init_rate: Fraction = 0.1
    relaxation: Positive = 0.1

    def hidden_units(self, density: LogDensity) -> HiddenUnits:
        """Return the units at the network's dropout layers or, where it has none, its hidden units."""
        return find_hidden_units(density, given=True, method=type(self).__name__)

    def family(self, hidden: HiddenUnits, like: Tensor) -> Dropout:
        """Return the relaxed masks, with their rates at the start."""
        logits = torch.full((len(hidden.places),), self.init_rate, dtype=torch.float64).logit().to(like)
        return Dropout(hidden.units, tuple(hidden.counts), logits, self.relaxation)
