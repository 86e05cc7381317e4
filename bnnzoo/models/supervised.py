"""The standard supervised model: a network, a prior on its weights, and a likelihood of the target given its output."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from bnnzoo.models.arguments import refuse_uncalled
from bnnzoo.models.likelihoods import Likelihood
from bnnzoo.models.priors import Prior
from bnnzoo.models.random_module import random_module

__all__ = ["Supervised", "supervised"]


@dataclass(frozen=True, eq=False)
class Supervised:
    """The Pyro model ``model(x, y=None)``; made by `supervised`."""

    net: nn.Module
    prior: Prior
    likelihood: Likelihood

    observes: ClassVar[str] = "y"
    """Name of the site without whose observation a fit is a mistake."""

    def __call__(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        """Sample the network's weights and the target, or observe the target if `y` is given."""
        net = random_module("net", self.net, self.prior)
        return self.likelihood(net(x), y)


def supervised(net: nn.Module, prior: Prior, likelihood: Likelihood) -> Supervised:
    """Return the Pyro model ``model(x, y=None)`` of a network with a prior on its weights and a likelihood of the target.

    Latent sites are the parameters of the network (``"net.0.weight"``, ...), the hyperparameters of the prior, and the
    parameters of the likelihood (``"sigma"``). The observed site is ``"y"``, in the plate ``"data"``.

    Parameters
    ----------
    net : torch.nn.Module
        Maps x, whose first dimension is that of observations, to [N, outputs]. It is left unchanged.
    prior : Prior
        One of `bnnzoo.priors`.
    likelihood : Likelihood
        One of `bnnzoo.likelihoods`.

    Returns
    -------
    Supervised
        An ordinary Pyro model.

    Raises
    ------
    TypeError
        If `net` is not a module, or `prior` or `likelihood` is not callable.

    Examples
    --------
    >>> import torch
    >>> import bnnzoo as bz
    >>> model = bz.models.supervised(bz.models.mlp(3), bz.priors.normal(1.0), bz.likelihoods.gaussian())
    >>> model(torch.zeros(5, 3)).shape
    torch.Size([5])
    """
    if not isinstance(net, nn.Module):
        raise TypeError(f"supervised: net must be a torch.nn.Module, but is {type(net).__name__}.")
    refuse_uncalled("supervised: prior", prior, "bnnzoo.priors.normal(1.0)")
    refuse_uncalled("supervised: likelihood", likelihood, "bnnzoo.likelihoods.gaussian()")
    return Supervised(net, prior, likelihood)
