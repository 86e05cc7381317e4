"""The model of most Bayesian neural networks: a network under a prior, and a likelihood of its output."""

from dataclasses import dataclass

from torch import Tensor, nn

from bnnzoo.models.arguments import check_called
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

    def __call__(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        """Sample the network's weights and the target, or observe the target where `y` is given."""
        net = random_module("net", self.net, self.prior)
        return self.likelihood(net(x), y)


def supervised(net: nn.Module, prior: Prior, likelihood: Likelihood) -> Supervised:
    """Pyro model ``model(x, y=None)`` of a network under a prior with a likelihood of its output.

    Latent sites are the parameters, ``"net.0.weight"`` and so on, the prior's hyperparameters and the likelihood's
    own parameters (``"sigma"``); the observed site is ``"y"`` in the plate ``"data"``.

    Parameters
    ----------
    net : torch.nn.Module
        Maps x, whose first dimension counts observations, to [N, outputs]. It is not changed.
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
        If `net` is not a module, or `prior` or `likelihood` not callable.

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
    check_called("supervised: prior", prior, "bnnzoo.priors.normal(1.0)")
    check_called("supervised: likelihood", likelihood, "bnnzoo.likelihoods.gaussian()")
    return Supervised(net, prior, likelihood)
