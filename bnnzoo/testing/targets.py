"""Bayesian models whose posterior is known exactly, as Pyro models: what a method must recover."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor, nn

from bnnzoo.core.types import Model
from bnnzoo.models import priors, random_module

__all__ = [
    "LinearGaussian",
    "Target",
    "banana",
    "funnel",
    "ill_conditioned",
    "linear_gaussian",
    "linear_network",
    "skewed",
]


@dataclass(frozen=True)
class Target:
    """A Pyro model with data and the exact posterior mean and standard deviation of its latent sites.

    Attributes
    ----------
    name : str
    model : callable
    data : tuple of Tensor
        Positional arguments of the model.
    mean, sd : mapping of str to Tensor
        Exact posterior moments of the constrained value of each site listed.
    """

    name: str
    model: Model
    data: tuple[Tensor, ...]
    mean: Mapping[str, Tensor]
    sd: Mapping[str, Tensor]


@dataclass(frozen=True)
class LinearGaussian(Target):
    r"""Bayesian linear regression with known noise: :math:`y = X w + \epsilon`, everything in closed form.

    Attributes
    ----------
    covariance : Tensor [D, D]
        Of the posterior of ``w``.
    log_evidence : Tensor []
        :math:`\log p(y)`.
    noise : float
        Standard deviation of :math:`\epsilon`.
    """

    covariance: Tensor
    log_evidence: Tensor
    noise: float

    def mean_field_sd(self) -> Tensor:
        r"""Return the sd [D] of the factorised Gaussian nearest in KL(q || p): 1 / sqrt(precision's diagonal)."""
        return torch.linalg.inv(self.covariance).diagonal().rsqrt()

    def predictive(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and variance [B] of the posterior predictive at ``x[B, D]``, noise included."""
        (mean,) = self.mean.values()
        return x @ mean.flatten(), (x @ self.covariance * x).sum(-1) + self.noise**2


def linear_gaussian(
    num_data: int = 40, num_inputs: int = 3, noise: float = 0.5, correlation: float = 0.6, seed: int = 0
) -> LinearGaussian:
    r"""Return a linear-Gaussian regression with prior N(0, 1) on each weight.

    .. math::
        \Lambda = X^T X / \sigma^2 + I, \qquad m = \Lambda^{-1} X^T y / \sigma^2, \qquad
        p(y) = N(y; 0, X X^T + \sigma^2 I)

    Parameters
    ----------
    num_data, num_inputs : int
    noise : float
        Known noise standard deviation :math:`\sigma`.
    correlation : float
        Between any two inputs, in [0, 1); at 0 the inputs are made exactly orthogonal, so that the posterior
        factorises and mean-field methods are exact too.
    seed : int
        Of the inputs, the true weights and the noise.

    Returns
    -------
    LinearGaussian

    Examples
    --------
    >>> target = linear_gaussian(num_inputs=2, correlation=0.0)
    >>> bool(torch.allclose(target.mean_field_sd(), target.sd["w"]))
    True
    """
    if not 0.0 <= correlation < 1.0:
        raise ValueError(f"correlation must lie in [0, 1), not {correlation}.")
    generator = torch.Generator().manual_seed(seed)
    x = _inputs(num_data, num_inputs, correlation, generator)
    return _linear_gaussian("linear_gaussian", x, noise, generator)


def linear_network(
    num_data: int = 40, num_inputs: int = 3, noise: float = 0.5, correlation: float = 0.6, seed: int = 0
) -> LinearGaussian:
    """Return the same regression as :func:`linear_gaussian`, its weights those of a network of one linear layer.

    For methods that need the layers of a network; the latent site is ``net.weight`` with shape [1, D].

    Parameters
    ----------
    num_data, num_inputs, noise, correlation, seed
        As for :func:`linear_gaussian`.

    Returns
    -------
    LinearGaussian
    """
    exact = linear_gaussian(num_data, num_inputs, noise, correlation, seed)
    layer = nn.Linear(num_inputs, 1, bias=False)

    def model(x: Tensor, y: Tensor | None = None) -> None:
        f = random_module("net", layer, priors.normal(1.0))(x).squeeze(-1)
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(f, noise), obs=y)

    mean, sd = {"net.weight": exact.mean["w"][None]}, {"net.weight": exact.sd["w"][None]}
    return replace(exact, name="linear_network", model=model, mean=mean, sd=sd)


def ill_conditioned(condition: float = 1e4, num_data: int = 40, num_inputs: int = 4, seed: int = 0) -> LinearGaussian:
    """Return a linear-Gaussian regression whose posterior sds span ``sqrt(condition)`` from input to input.

    Parameters
    ----------
    condition : float
        Ratio of the largest to the smallest squared scale of the inputs.
    num_data, num_inputs : int
    seed : int

    Returns
    -------
    LinearGaussian
    """
    generator = torch.Generator().manual_seed(seed)
    scales = torch.logspace(0.0, -0.5, num_inputs, base=condition)
    x = _inputs(num_data, num_inputs, 0.3, generator) * scales * condition**0.25
    return _linear_gaussian("ill_conditioned", x, 1.0, generator)


def skewed(num_data: int = 4, seed: int = 0, num_rates: int | None = None) -> Target:
    r"""Return Poisson rates with Gamma priors: a skewed posterior, on which errors of sign show.

    .. math:: \lambda_k \sim \mathrm{Gamma}(a, b), \; y_{ik} \sim \mathrm{Poisson}(\lambda_k)
        \;\Rightarrow\; \lambda_k | y \sim \mathrm{Gamma}(a + \sum_i y_{ik}, b + n)

    Parameters
    ----------
    num_data, seed : int
    num_rates : int, optional
        Number of independent rates, a vector. Default: one scalar.

    Returns
    -------
    Target
        With moments of ``rate`` and none else.

    Raises
    ------
    ValueError
        If there are no rates.
    """
    if num_rates is not None and num_rates < 1:
        raise ValueError(f"skewed(num_rates={num_rates}): write 1 or more, or leave it out for a single number.")
    shape, rate = 1.5, 0.5
    rates = () if num_rates is None else (num_rates,)
    y = torch.poisson(torch.ones(num_data, *rates), generator=torch.Generator().manual_seed(seed))

    def model(y: Tensor) -> None:
        prior = dist.Gamma(y.new_tensor(shape), rate).expand(list(rates)).to_event(len(rates))
        intensity = pyro.sample("rate", prior)
        with pyro.plate("data", num_data):
            pyro.sample("y", dist.Poisson(intensity.expand(y.shape)).to_event(len(rates)), obs=y)

    posterior = torch.distributions.Gamma(shape + y.sum(0), torch.tensor(rate + num_data))
    return Target("skewed", model, (y,), {"rate": posterior.mean}, {"rate": posterior.stddev})


def banana(curvature: float = 1.0, width: float = 0.5) -> Target:
    r"""Return a bent Gaussian: :math:`x \sim N(0, 1)`, :math:`y \sim N(b (x^2 - 1), s^2)`; no data, the prior is the target.

    No Gaussian is near it: the best one sits on one side or at the bend. Its evidence is 1, so that an evidence lower bound
    is minus the divergence from it.

    Parameters
    ----------
    curvature : float
        b.
    width : float
        s, across the ridge.

    Returns
    -------
    Target

    References
    ----------
    Haario, Saksman and Tamminen (1999), Adaptive proposal distribution for random walk Metropolis algorithm,
    Computational Statistics 14.
    """

    def model() -> None:
        x = pyro.sample("x", dist.Normal(torch.tensor(0.0), 1.0))
        pyro.sample("y", dist.Normal(curvature * (x**2 - 1), width))

    zero = torch.tensor(0.0)
    sd = {"x": torch.tensor(1.0), "y": torch.tensor((2 * curvature**2 + width**2) ** 0.5)}
    return Target("banana", model, (), {"x": zero, "y": zero}, sd)


def funnel(num_leaves: int = 4, width: float = 3.0) -> Target:
    r"""Return Neal's funnel: :math:`v \sim N(0, w^2)`, :math:`x_i \sim N(0, e^v)`; no data, so the prior is the target.

    At Neal's width of 3 its neck is too narrow for any one step size: a sound sampler reports divergences instead of missing it
    silently. At a width of 1 a sound sampler gets its moments right.

    Parameters
    ----------
    num_leaves : int
    width : float
        Standard deviation w of v.

    Returns
    -------
    Target
        With the moments of ``v``; those of the leaves exist but have no useful Monte Carlo error.

    Raises
    ------
    ValueError
        If the width is not positive.

    References
    ----------
    Neal, R. M. (2003). Slice sampling. Annals of Statistics 31(3), 705-767.
    """

    if not width > 0:
        raise ValueError(f"funnel(width={width}): write a positive standard deviation of v, such as 3.0.")

    def model() -> None:
        v = pyro.sample("v", dist.Normal(torch.tensor(0.0), torch.tensor(width)))
        pyro.sample("x", dist.Normal(torch.zeros(num_leaves), torch.exp(v / 2).expand(num_leaves)).to_event(1))

    return Target("funnel", model, (), {"v": torch.tensor(0.0)}, {"v": torch.tensor(width)})


def _inputs(num_data: int, num_inputs: int, correlation: float, generator: torch.Generator) -> Tensor:
    x, _ = torch.linalg.qr(torch.randn(num_data, num_inputs, generator=generator))
    mixing = torch.full((num_inputs, num_inputs), correlation).fill_diagonal_(1.0)
    return num_data**0.5 * x @ torch.linalg.cholesky(mixing).T


def _linear_gaussian(name: str, x: Tensor, noise: float, generator: torch.Generator) -> LinearGaussian:
    num_data, num_inputs = x.shape
    y = x @ torch.randn(num_inputs, generator=generator) + noise * torch.randn(num_data, generator=generator)
    covariance = torch.linalg.inv(x.T @ x / noise**2 + torch.eye(num_inputs))
    marginal = torch.distributions.MultivariateNormal(torch.zeros(num_data), x @ x.T + noise**2 * torch.eye(num_data))

    def model(x: Tensor, y: Tensor | None = None) -> None:
        w = pyro.sample("w", dist.Normal(x.new_zeros(num_inputs), 1.0).to_event(1))
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(x @ w, noise), obs=y)

    return LinearGaussian(
        name=name,
        model=model,
        data=(x, y),
        mean={"w": covariance @ x.T @ y / noise**2},
        sd={"w": covariance.diagonal().sqrt()},
        covariance=covariance,
        log_evidence=marginal.log_prob(y),
        noise=noise,
    )
