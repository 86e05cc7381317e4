r"""Gaussian-process regression with the latent function integrated out: any method infers the hyperparameters.

Given the hyperparameters the targets are jointly normal, :math:`y \sim N(m, K + \sigma^2 I)`. By the chain rule their density is
a product over rows, with L the Cholesky factor of the covariance and :math:`e = L^{-1} (y - m)`:

.. math:: p(y) = \prod_n N(y_n \mid y_n - L_{nn} e_n, \, L_{nn}^2)
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import pyro
import pyro.distributions as dist
import torch
from pyro.distributions.torch_distribution import TorchDistributionMixin
from torch import Tensor
from torch.linalg import cholesky, solve_triangular

from bnnzoo.core.types import Data, Model
from bnnzoo.models.argument_checks import refuse_uncalled
from bnnzoo.models.kernels import Covariance, KernelSites, kernel_sites
from bnnzoo.models.likelihoods import Likelihood
from bnnzoo.models.likelihoods import gaussian as gaussian_likelihood
from bnnzoo.models.likelihoods.likelihood import observe, value_or_site
from bnnzoo.models.likelihoods.predictor import Unknown
from bnnzoo.models.process_arguments import refuse_bad_inputs, refuse_bad_mean, refuse_bad_targets, refuse_too_many_rows
from bnnzoo.models.sparse_gaussian_process import SparseGaussianProcess

__all__ = ["GaussianProcess", "gaussian_process"]

NAME = "gaussian_process"


@dataclass(frozen=True, eq=False)
class GaussianProcess:
    """The Pyro model ``model(x, y=None)`` of a Gaussian process with Gaussian noise; made by `gaussian_process`."""

    kernel: KernelSites
    scale: Unknown
    mean: float | TorchDistributionMixin

    observes: ClassVar[str] = "y"
    """Name of the site without whose observation a fit is a mistake."""

    def __call__(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        """Sample the hyperparameters and the target, or observe the target if `y` is given.

        Parameters
        ----------
        x : Tensor [N, D]
        y : Tensor [N], optional
        """
        if y is None:
            return GaussianProcessPrior(self)(x)
        refuse_bad_inputs(NAME, x)
        refuse_bad_targets(NAME, x, y)
        refuse_too_many_rows(NAME, x)
        mean, covariance, scale = self.sites(x)
        factor = cholesky(_noisy(covariance(x, x), scale))
        deviates = solve_triangular(factor, (y - mean)[:, None], upper=False)[:, 0]
        spread = factor.diagonal()
        return observe(dist.Normal(y - spread * deviates, spread, validate_args=False), y)

    def sites(self, x: Tensor) -> tuple[Tensor | float, Covariance, Tensor | float]:
        """Sample the hyperparameters: return the mean, the covariance function and the noise scale."""
        refuse_bad_inputs(NAME, x)
        covariance = self.kernel.sample(x)
        scale = value_or_site("sigma", self.scale)
        return value_or_site("mean", self.mean), covariance, scale

    def predicting(self, data: Data, rows: Literal["prior", "training", "new"]) -> Model:
        """Return the model of the training rows or new ones given the training data, or of any rows before them."""
        if rows == "prior":
            return GaussianProcessPrior(self)
        x, y = data[:2]
        return Conditioned(self, x, y, is_training=rows == "training")


@dataclass(frozen=True, eq=False)
class GaussianProcessPrior:
    """The process before data were seen: a function drawn from it, with noise. `y` is not looked at."""

    process: GaussianProcess

    def __call__(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        mean, covariance, scale = self.process.sites(x)
        factor = cholesky(_with_jitter(covariance(x, x)))
        loc = torch.zeros(len(x)).to(x) + mean
        return observe(dist.Normal(_draw_function(loc, factor), scale, validate_args=False), y)


@dataclass(frozen=True, eq=False)
class Conditioned:
    r"""The process given training data (Rasmussen and Williams 2006, equations 2.22 to 2.24), at training rows or new ones.

    A function is drawn from its exact conditional, jointly for all rows, so that moments are those of p(y | f(x)), as a
    network's. The log density of a row has the function integrated out: at new rows it is :math:`\log p(y_* \mid D)`, at training
    rows the leave-one-out conditional :math:`\log p(y_n \mid y_{-n})` (equations 5.10 to 5.12), all given the hyperparameters.
    """

    process: GaussianProcess
    x: Tensor
    y: Tensor
    is_training: bool

    def __call__(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        refuse_bad_inputs(NAME, x)
        if y is not None:
            refuse_bad_targets(NAME, x, y)
        mean, covariance, scale = self.process.sites(x)
        factor = cholesky(_noisy(covariance(self.x, self.x), scale))
        white = solve_triangular(factor, torch.stack([self.y - mean], -1), upper=False)
        cross = solve_triangular(factor, covariance(self.x, x), upper=False)
        loc, spread = mean + (cross.mT @ white)[:, 0], covariance(x, x) - cross.mT @ cross
        if self.is_training:
            inverse = solve_triangular(factor, torch.eye(len(factor)).to(factor), upper=False)
            variance = 1 / inverse.square().sum(0)
            integrated = dist.Normal(
                self.y - variance * (inverse.mT @ white)[:, 0], variance.sqrt(), validate_args=False
            )
        else:
            integrated = dist.Normal(loc, (spread.diagonal() + scale**2).sqrt(), validate_args=False)
        function = _draw_function(loc, cholesky(_with_jitter(spread)))
        return observe(_Integrated(function, scale, integrated), y)


class _Integrated(dist.Normal):
    """Normal given a drawn function, whose log density has the function integrated out."""

    def __init__(self, loc: Tensor, scale: Tensor | float, integrated: Any) -> None:
        super().__init__(loc, scale, validate_args=False)
        self.integrated = integrated

    def expand(self, batch_shape: Any, _instance: Any = None) -> "_Integrated":
        loc, scale = self.loc.expand(batch_shape), self.scale.expand(batch_shape)
        return _Integrated(loc, scale, self.integrated.expand(batch_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        found: Tensor = self.integrated.log_prob(value)
        return found


def gaussian_process(
    kernel: Any,
    likelihood: Likelihood | None = None,
    mean: float | TorchDistributionMixin = 0.0,
    inducing: Tensor | None = None,
) -> GaussianProcess | SparseGaussianProcess:
    r"""Return the Pyro model of Gaussian-process regression, with the hyperparameters of its kernel as latent sites.

    The exact form integrates the latent function out, :math:`y \sim N(m, K + \sigma^2 I)`, so that methods sample or optimise
    hyperparameters alone: `MAP` is type-II maximum a posteriori, `NUTS` averages over them. Predictions
    draw a function from its exact conditional for each draw of the hyperparameters, jointly at all rows. So the group
    ``conditional`` holds function values, as a network's does, and every comparison takes both. A single point, such as that
    of MAP, is repeated: 1,000 functions by default. Log densities by row integrate the function out: at training rows they are
    leave-one-out conditionals, with which ``arviz.loo`` corrects for the hyperparameters alone; they do not sum to the
    log marginal likelihood, which is in ``sample_stats``.

    The sparse form, with `inducing`, is the fully independent training conditional (FITC). The values of the function at M
    inducing points, whitened, are the latent site ``"inducing"``, rows are independent given it, and mini-batches are possible.
    The variance that the inducing points leave unexplained counts as noise of the row.

    Parameters
    ----------
    kernel : gpytorch.kernels.Kernel
        Each trainable hyperparameter becomes a latent site on its natural scale, such as ``"kernel.base_kernel.lengthscale"``,
        under the prior registered for it. Default priors suit standardised data: uniform between two bounds; log-normal with log
        scale 1 and median 1, for lengthscales :math:`\sqrt{D}`.
    likelihood : Likelihood, optional
        `bnnzoo.likelihoods.gaussian`, the only one for which the function integrates out. Default: ``gaussian()``.
    mean : float or Distribution
        Of the process, or its prior at the latent site ``"mean"``.
    inducing : Tensor [M, D], optional
        Inducing points, needed beyond 2,000 rows; see :func:`bnnzoo.models.inducing_points`.

    Returns
    -------
    GaussianProcess or SparseGaussianProcess
        An ordinary Pyro model ``model(x, y=None)``.

    Raises
    ------
    ImportError
        If gpytorch is not installed.
    TypeError, ValueError
        If an argument is not of its kind; when the model runs, if x is not [N, D], y is not [N], or there are more than 2,000
        rows without inducing points.

    References
    ----------
    Rasmussen and Williams (2006), Gaussian Processes for Machine Learning, MIT Press. Snelson and Ghahramani (2006), Sparse
    Gaussian processes using pseudo-inputs, NeurIPS 18.

    Examples
    --------
    >>> import torch
    >>> import bnnzoo as bz
    >>> from gpytorch.kernels import RBFKernel, ScaleKernel
    >>> model = bz.models.gaussian_process(ScaleKernel(RBFKernel()), bz.likelihoods.gaussian(0.1))
    >>> x = torch.linspace(-1, 1, 20)[:, None]
    >>> posterior = bz.fit(model, bz.MAP(num_steps=50), x, x[:, 0].sin(), progress=False)
    >>> bz.predict(posterior, x[:3])["conditional"]["mean"].shape
    (1, 1000, 3)
    """
    likelihood = gaussian_likelihood() if likelihood is None else likelihood
    refuse_uncalled(f"{NAME}: likelihood", likelihood, "bnnzoo.likelihoods.gaussian()")
    if getattr(likelihood, "name", None) != "likelihoods.gaussian":
        called = getattr(likelihood, "name", type(likelihood).__name__)
        raise ValueError(
            f"{NAME}: likelihood is {called}, but the latent function integrates out in closed form under Gaussian noise alone: "
            f"use likelihoods.gaussian(), or sample the function's values in a Pyro model of your own."
        )
    refuse_bad_mean(NAME, mean)
    scale: Unknown = likelihood.scale  # type: ignore[attr-defined]
    sites = kernel_sites(NAME, kernel)
    if inducing is None:
        return GaussianProcess(sites, scale, mean)
    refuse_bad_inputs(f"{NAME}: inducing", inducing)
    return SparseGaussianProcess(sites, scale, mean, inducing)


def _draw_function(loc: Tensor, factor: Tensor) -> Tensor:
    drawn: Tensor = pyro.sample("f", dist.MultivariateNormal(loc, scale_tril=factor, validate_args=False))
    return drawn


def _noisy(covariance: Tensor, scale: Tensor | float) -> Tensor:
    return covariance + scale**2 * torch.eye(len(covariance)).to(covariance)


def _with_jitter(covariance: Tensor) -> Tensor:
    """Add to the diagonal what rounding may have taken from it: the root of the machine's precision, relative to the prior."""
    jitter = torch.finfo(covariance.dtype).eps ** 0.5
    return covariance + jitter * torch.eye(len(covariance)).to(covariance)
