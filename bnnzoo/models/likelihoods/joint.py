"""Likelihoods of several targets with a covariance, and of targets with several modes."""

from dataclasses import dataclass

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor
from torch.nn.functional import softplus

from bnnzoo.models.argument_checks import refuse_not_positive
from bnnzoo.models.likelihoods.likelihood import Likelihood, observe, targets_shape
from bnnzoo.models.likelihoods.named import named
from bnnzoo.models.likelihoods.predictor import Unknown, positive, site_or_number, with_offset
from bnnzoo.models.likelihoods.target import refuse_bad_output, refuse_not_real
from bnnzoo.models.written import Written, remembers_call

__all__ = ["gaussian_mixture", "multivariate_gaussian"]


@dataclass(frozen=True, repr=False)
class _MultivariateGaussian(Written):
    scale: Unknown
    concentration: float
    name: str = "likelihoods.multivariate_gaussian"

    def __call__(self, output: Tensor, y: Tensor | None = None, offset: Tensor | float | None = None) -> Tensor:
        refuse_bad_output(self.name, output)
        if output.ndim == 1 or output.shape[1] < 2:
            raise ValueError(
                f"{self.name}: the network needs two outputs or more, one per target, but its output has shape "
                f"{tuple(output.shape)}: give it out_features=D for D targets, or use likelihoods.gaussian() for one."
            )
        loc = with_offset(self.name, output, offset)
        if y is not None:
            refuse_not_real(self.name, y, output, loc.shape)
        scale = site_or_number("sigma", self.scale, loc)
        factor = pyro.sample("correlation_cholesky", dist.LKJCholesky(loc.shape[1], self.concentration))
        pyro.deterministic("correlation", factor @ factor.mT)
        return observe(dist.MultivariateNormal(loc, scale_tril=scale[..., None] * factor, validate_args=False), y)


@dataclass(frozen=True, repr=False)
class _GaussianMixture(Written):
    num_components: int
    min_scale: float
    name: str = "likelihoods.gaussian_mixture"

    def __call__(self, output: Tensor, y: Tensor | None = None, offset: Tensor | float | None = None) -> Tensor:
        refuse_bad_output(self.name, output)
        # the number D of targets, for which there are K (2 D + 1) outputs
        outputs = output.shape[1] if output.ndim > 1 else 1
        per_component, rest = divmod(outputs, self.num_components)
        if rest or per_component < 3 or per_component % 2 == 0:
            raise ValueError(
                f"{self.name}: the network needs a location and a scale for each component and target and a logit for each "
                f"component, but its output has shape {tuple(output.shape)}: give it "
                f"out_features={3 * self.num_components} for one target."
            )
        count = per_component // 2
        width = self.num_components * count
        loc, raw_scale = (output[:, i * width : (i + 1) * width].unflatten(1, (-1, count)) for i in (0, 1))
        expected = targets_shape(loc[:, 0])
        loc = loc + with_offset(self.name, torch.zeros_like(expected), offset).reshape(len(output), 1, count)
        if y is not None:
            refuse_not_real(self.name, y, output, expected.shape, outputs_per_target=2 * self.num_components)
        scale = softplus(raw_scale) + self.min_scale
        if count == 1:
            loc, scale = loc[..., 0], scale[..., 0]
        parts = dist.Normal(loc, scale, validate_args=False).to_event(loc.ndim - 2)
        weights = dist.Categorical(logits=output[:, 2 * width :], validate_args=False)
        return observe(dist.MixtureSameFamily(weights, parts, validate_args=False), y)


@named("real", link="identity", in_units=True)
@remembers_call
def multivariate_gaussian(scale: Unknown | None = None, concentration: float = 1.0) -> Likelihood:
    r"""Several real targets with a covariance: :math:`y_n \sim N(f_n, \mathrm{diag}(\sigma) R \, \mathrm{diag}(\sigma))`.

    The network has one output per target. The correlation matrix R has the LKJ prior, :math:`p(R) \propto |R|^{\eta - 1}`.

    Parameters
    ----------
    scale : float or Distribution, optional
        A number fixes all entries of :math:`\sigma`. A distribution is the prior of each, at the latent site ``"sigma"`` of
        shape [D]. Default: ``HalfNormal(1.0)``.
    concentration : float
        :math:`\eta`, positive: 1 for a uniform prior over correlation matrices, larger for weaker correlations.

    Returns
    -------
    Likelihood
        With the latent site ``"correlation_cholesky"``, the Cholesky factor of R, and the deterministic site
        ``"correlation"``, R itself.

    Raises
    ------
    ValueError, TypeError
        When the model runs: if there is one target only, or y is not real, not finite or not of the output's shape.

    References
    ----------
    Lewandowski, Kurowicka and Joe (2009), Generating random correlation matrices based on vines and extended onion
    method, Journal of Multivariate Analysis 100.

    Examples
    --------
    >>> import torch
    >>> import bnnzoo as bz
    >>> bz.likelihoods.multivariate_gaussian()(torch.zeros(5, 2)).shape
    torch.Size([5, 2])
    """
    name = "likelihoods.multivariate_gaussian"
    refuse_not_positive(name, concentration=concentration)
    return _MultivariateGaussian(
        dist.HalfNormal(1.0) if scale is None else positive(name, "scale", scale), concentration
    )


@named("real", link="identity", in_units=True)
@remembers_call
def gaussian_mixture(num_components: int, min_scale: float = 0.01) -> Likelihood:
    r"""A mixture density network, which predicts a mixture of Gaussians: :math:`\sum_k w_{nk} N(f_{nk}, \sigma_{nk}^2)`.

    For K components and D targets the network has K (2 D + 1) outputs: first the locations :math:`f_{nk}`, component by
    component, then as many :math:`s_{nk}` with :math:`\sigma_{nk} = \log(1 + e^{s_{nk}}) + \sigma_{\min}`, then K logits of the
    weights. Within a component the targets are independent. Components can trade places without changing the density, so
    R-hat of predictions is meaningful, and that of parameters is not.

    Parameters
    ----------
    num_components : int
        K.
    min_scale : float
        :math:`\sigma_{\min}`, positive. It bounds the density, which is otherwise highest where a component is a spike at one
        observation. The default suits a standardised target.

    Returns
    -------
    Likelihood

    Raises
    ------
    ValueError, TypeError
        When the model runs: if the number of outputs does not fit, or y is not real, not finite or of another shape.

    References
    ----------
    Bishop (1994), Mixture density networks, technical report NCRG/94/004, Aston University.

    Examples
    --------
    >>> import torch
    >>> import bnnzoo as bz
    >>> bz.likelihoods.gaussian_mixture(num_components=2)(torch.zeros(5, 6)).shape
    torch.Size([5])
    """
    name = "likelihoods.gaussian_mixture"
    if isinstance(num_components, bool) or not isinstance(num_components, int) or num_components < 1:
        raise ValueError(f"{name}: num_components must be a whole number, one or more, but is {num_components!r}.")
    refuse_not_positive(name, min_scale=min_scale)
    return _GaussianMixture(num_components, min_scale)
