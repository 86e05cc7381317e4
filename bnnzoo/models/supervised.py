"""The standard supervised model: a network, a prior on its weights, and a likelihood of the target given its output."""

import inspect
from dataclasses import dataclass

from torch import Tensor, nn

from bnnzoo.core.data.described import Described
from bnnzoo.core.posterior.folding import as_table, folded
from bnnzoo.models.argument_checks import refuse_uncalled
from bnnzoo.models.likelihoods import Likelihood
from bnnzoo.models.likelihoods.weighting import weighted_rows
from bnnzoo.models.priors import Prior
from bnnzoo.models.random_module import random_module
from bnnzoo.models.written import shown

__all__ = ["Supervised", "supervised"]


@dataclass(frozen=True, eq=False, repr=False)
class Supervised(Described):
    """The Pyro model ``model(x, y=None, offset=None, row_weights=None, censored=None)``; made by `supervised`."""

    net: nn.Module
    prior: Prior
    likelihood: Likelihood

    observes = "y"
    needed_at_new_rows = ("offset",)

    def __repr__(self) -> str:
        """Show the prior and the likelihood as they were written, and the size of the network."""
        size = sum(parameter.numel() for parameter in self.net.parameters())
        net = f"{type(self.net).__name__} of {size} parameters"
        return f"supervised({net}, {shown(self.prior)}, {shown(self.likelihood)})"

    def _repr_html_(self) -> str:
        """Return the same line, which unfolds to the layers of the network."""
        parts = {"network": str(self.net), "prior": shown(self.prior), "likelihood": shown(self.likelihood)}
        return folded(repr(self), as_table(parts))

    def __call__(
        self,
        x: Tensor,
        y: Tensor | None = None,
        offset: Tensor | float | None = None,
        row_weights: Tensor | None = None,
        censored: Tensor | None = None,
    ) -> Tensor:
        """Sample the network's weights and the target, or observe the target if `y` is given.

        Parameters
        ----------
        x : Tensor [N, ...]
        y : Tensor [N] or [N, D], optional
        offset : Tensor [N] or [N, D], or float, optional
            Known part of the predictor, added to the network's output (of several outputs per target, to the first): the
            logarithm of an exposure for counts.
        row_weights : Tensor [N], optional
            Factor of each row's log likelihood, such as the number of identical rows that it stands for.
        censored : Tensor [N] or [N, D], optional
            1 where the event came after y, and 0 where it came at y; for likelihoods of event times.
        """
        given = {name: value for name, value in (("offset", offset), ("censored", censored)) if value is not None}
        parameters = inspect.signature(self.likelihood).parameters.values() if given else ()
        takes_any = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters)
        for column in () if takes_any else given.keys() - {each.name for each in parameters}:
            called = getattr(self.likelihood, "name", type(self.likelihood).__name__)
            hint = (
                "use likelihoods.weibull() or log_normal()"
                if column == "censored"
                else "write offset=None into its __call__, and add it to the predictor"
            )
            raise TypeError(f"supervised: {called} takes no {column}=: {hint}, or leave {column}= out.")
        net = random_module("net", self.net, self.prior)
        if y is None or row_weights is None:
            return self.likelihood(net(x), y, **given)
        with weighted_rows(row_weights):
            return self.likelihood(net(x), y, **given)


def supervised(net: nn.Module, prior: Prior, likelihood: Likelihood) -> Supervised:
    """Return the Pyro model of a network with a prior on its weights and a likelihood of the target.

    It is called as ``model(x, y=None, offset=None, row_weights=None, censored=None)``. The last three are columns of the data
    like y, and so arguments of `bnnzoo.fit` and of everything else that takes the data, best passed by name:
    ``fit(model, method, x, y, offset=log_exposure)``.

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
        If `net` is not a module, or `prior` or `likelihood` is not callable; when the model runs, if the likelihood does
        not take an offset or censored rows.
    ValueError
        When the model runs, if a column is out of range or does not have one value for each row.

    Examples
    --------
    >>> import torch
    >>> import bnnzoo as bz
    >>> model = bz.models.supervised(bz.models.mlp(3), bz.priors.normal(1.0), bz.likelihoods.gaussian())
    >>> model(torch.zeros(5, 3)).shape
    torch.Size([5])

    Counts over known times of observation, with the logarithm of the time as offset:

    >>> model = bz.models.supervised(bz.models.mlp(3), bz.priors.normal(1.0), bz.likelihoods.poisson())
    >>> x, y, time = torch.zeros(5, 3), torch.arange(5), torch.arange(1.0, 6.0)
    >>> posterior = bz.fit(model, bz.MAP(num_steps=20), x, y, offset=time.log(), progress=False)
    >>> bz.predict(posterior, x[:2], offset=0.0)["predictions"]["y"].shape
    (1, 1, 2)
    """
    if not isinstance(net, nn.Module):
        raise TypeError(f"supervised: net must be a torch.nn.Module, but is {type(net).__name__}.")
    refuse_uncalled("supervised: prior", prior, "bnnzoo.priors.normal(1.0)")
    refuse_uncalled("supervised: likelihood", likelihood, "bnnzoo.likelihoods.gaussian()")
    return Supervised(net, prior, likelihood)
