"""Learnable parameters of a Pyro model as latent sites."""

from bnnzoo.core.model.learnable import FlatPriors
from bnnzoo.core.types import Model

__all__ = ["flat_priors"]


def flat_priors(model: Model) -> Model:
    """Return a model whose learnable parameters are latent sites with a flat prior.

    ``pyro.param`` sites and parameters of a ``PyroModule``, such as the lengthscale of a kernel of ``pyro.contrib.gp``, get an
    improper uniform prior on their constraint. Any method takes the model, if the posterior is proper;
    :class:`~bnnzoo.inference.MAP` finds the mode in unconstrained coordinates, such as the logarithm of a scale.

    Parameters
    ----------
    model : callable
        A Pyro model.

    Returns
    -------
    callable
        With the same arguments.

    Examples
    --------
    >>> import pyro, torch
    >>> import pyro.distributions as dist
    >>> import bnnzoo as bz
    >>> def model(y):
    ...     rate = pyro.param("rate", torch.tensor(1.0), constraint=dist.constraints.positive)
    ...     with pyro.plate("data", len(y)):
    ...         pyro.sample("y", dist.Poisson(rate), obs=y)
    >>> y = torch.tensor([2.0, 3.0, 4.0])
    >>> posterior = bz.fit(bz.models.flat_priors(model), bz.MAP(), y, dtype=torch.float64, progress=False)
    >>> round(float(posterior.density.constrain(posterior.draws()[0, 0])["rate"]), 1)  # the mode of log(rate)
    3.3
    """
    return FlatPriors(model)
