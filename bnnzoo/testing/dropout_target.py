"""A linear model whose best dropout distribution is known exactly."""

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor, nn

from bnnzoo.models import priors, random_module
from bnnzoo.testing.targets import Target, linear_gaussian

__all__ = ["dropout_network"]


def dropout_network(
    rate: float | None = 0.2, num_data: int = 40, num_inputs: int = 3, noise: float = 0.5, seed: int = 0
) -> Target:
    r"""Return a linear layer behind a dropout layer, with the moments of the best dropout distribution of its weights.

    The inputs are orthogonal, and the posterior without dropout has mean m and precision :math:`\Lambda`. Then
    :math:`w = z \odot m` with masks z, whatever the rate p is, so that

    .. math:: E[w] = (1 - p) \, m, \qquad \text{sd}[w] = \sqrt{p (1 - p)} \, |m|,

    and the best of all rates is :math:`p = 1 / (1 + \exp(m^T \Lambda m / 2 D))` for D inputs.

    Parameters
    ----------
    rate : float, optional
        That of the dropout layer. None: the moments are those at the best rate, as concrete dropout learns it.
    num_data, num_inputs, noise, seed
        As for :func:`linear_gaussian`.

    Returns
    -------
    Target

    Examples
    --------
    >>> target = dropout_network(rate=0.2)
    >>> ratio = target.sd["net.1.weight"] / target.mean["net.1.weight"].abs()
    >>> [round(float(each), 3) for each in ratio.flatten()]  # sqrt(p / (1 - p))
    [0.5, 0.5, 0.5]
    """
    exact = linear_gaussian(num_data, num_inputs, noise, correlation=0.0, seed=seed)
    mean = exact.mean["w"]
    if rate is None:
        best: float = torch.sigmoid(-mean @ torch.linalg.solve(exact.covariance, mean) / (2 * num_inputs)).item()
    else:
        best = rate
    net = nn.Sequential(nn.Dropout(0.5 if rate is None else rate), nn.Linear(num_inputs, 1, bias=False))

    def model(x: Tensor, y: Tensor | None = None) -> None:
        f = random_module("net", net, priors.normal(1.0))(x).squeeze(-1)
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(f, noise), obs=y)

    moments = {"net.1.weight": (1 - best) * mean[None]}, {"net.1.weight": (best * (1 - best)) ** 0.5 * mean.abs()[None]}
    return Target("dropout_network", model, exact.data, *moments)
