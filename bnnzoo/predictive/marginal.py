"""Predictions of a linearised Laplace approximation in closed form: no draws."""

import math
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import torch
import xarray as xr
from torch import Tensor
from torch.distributions import Distribution

from bnnzoo.core.data.minibatch import select
from bnnzoo.core.likelihood.general_readout import UnreadableLikelihood
from bnnzoo.core.likelihood.readout import read
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.model.outputs import jacobian_in_blocks
from bnnzoo.core.parameters.restricted import restricted
from bnnzoo.core.posterior.covariance import Embedded
from bnnzoo.core.posterior.posterior import Gaussian, Posterior
from bnnzoo.core.program.sites import innermost
from bnnzoo.core.program.turns import one_at_a_time
from bnnzoo.core.types import Data
from bnnzoo.predictive import datatree
from bnnzoo.predictive.latent import numpy_arrays
from bnnzoo.predictive.rows import new_data

__all__ = ["marginal_predictive", "pairwise_probit"]

MAX_ELEMENTS = 2**22  # of a block of Jacobians


@dataclass(frozen=True)
class _ParameterMoments:
    """Unconstrained parameters of the likelihood: their mean ``[B, ..., d]`` and covariance ``[B, ..., d, d]``."""

    mean: Tensor
    covariance: Tensor

    @property
    def scalar(self) -> tuple[Tensor, Tensor]:
        """Mean and variance ``[B, ...]`` where d is 1."""
        return self.mean[..., 0], self.covariance[..., 0, 0]


@one_at_a_time
def marginal_predictive(posterior: Posterior, *inputs: Any) -> xr.DataTree:
    r"""Return p(y | x, data) of a model linearised at its Laplace approximation's mode, in closed form.

    The likelihood's unconstrained parameters are Gaussian under the linearised model, with mean :math:`z(x, \theta^*)`
    and covariance :math:`J(x) \Sigma J(x)^T`. Real and count targets: the mean and variance of y, exact for the
    linearised model. Classes: probabilities by :func:`pairwise_probit`, an approximation. :func:`bnnzoo.predict` has
    the same predictions by draws, which can be decomposed, scored and plotted in every way.

    Parameters
    ----------
    posterior : Posterior
        A Laplace approximation, or any other single Gaussian.
    *inputs
        Arguments of the model, as for :func:`bnnzoo.predict`; the model must have one observed site.

    Returns
    -------
    DataTree
        Group ``marginal`` with ``mean``, ``variance`` of y and ``epistemic_variance`` of its conditional mean
        ``[obs_id, ...]``, or with ``probs`` ``[obs_id, class_id]``.

    Raises
    ------
    ValueError
        If the posterior is not one Gaussian, the model has several observed sites, or the likelihood has no such
        closed form.

    References
    ----------
    MacKay (1992), The evidence framework applied to classification networks, Neural Computation 4. Immer, Korzepa and
    Bauer (2021), Improving predictions of Bayesian neural nets via local linearization, AISTATS.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian()
    >>> posterior = bz.fit(target.model, bz.Laplace(), *target.data)
    >>> found = marginal_predictive(posterior, target.data[0])["marginal"]
    >>> mean, variance = target.predictive(target.data[0])
    >>> bool(abs(found["variance"].to_numpy() - variance.numpy()).max() < 1e-5)
    True
    """
    if not isinstance(posterior, Gaussian):
        raise ValueError(
            f"marginal_predictive needs one Gaussian, and the posterior of {posterior.info.method} is none. Use predict(...)."
        )
    density = posterior.density
    if len(density.observed) != 1:
        raise ValueError(
            f"marginal_predictive needs one observed site, and the model has {', '.join(density.observed) or 'none'}. Use "
            f"predict(...)."
        )
    data = new_data(density, inputs)
    try:
        (active,) = density.active.values()
    except UnreadableLikelihood as error:
        raise ValueError(f"{error} Use predict(...).") from None
    with torch.no_grad():
        nodes = density.nodes(posterior.loc, *data)
        fn = nodes[density.observed[0]]["fn"]
        found = numpy_arrays(_moments(innermost(fn), _blocks(posterior, fn, active, data)))
    rows = datatree.conditional({name: value[None, None] for name, value in found.items()}).isel(
        chain=0, draw=0, drop=True
    )
    return datatree.from_groups({"marginal": rows}, datatree.fit_attributes(posterior.info, posterior.info.seed))


def pairwise_probit(mean: Tensor, covariance: Tensor) -> Tensor:
    r"""Return approximate class probabilities ``[..., K]`` of Gaussian logits.

    .. math::
        p_k \propto \Big( \sum_j \exp \frac{m_j - m_k}{\sqrt{1 + \pi v_{jk} / 8}} \Big)^{-1}, \qquad
        v_{jk} = \Sigma_{jj} + \Sigma_{kk} - 2 \Sigma_{jk}

    For two classes this is MacKay's approximation. Only differences of logits enter, as in the softmax itself: noise
    common to all of them changes nothing.

    Parameters
    ----------
    mean : Tensor [..., K]
    covariance : Tensor [..., K, K]

    References
    ----------
    MacKay (1992), The evidence framework applied to classification networks, Neural Computation 4. Lu, Ie and Sha
    (2020), Mean-field approximation to Gaussian-softmax integral with application to uncertainty estimation,
    arXiv:2006.07584.

    Examples
    --------
    >>> probs = pairwise_probit(torch.tensor([2.0, 0.0]), torch.tensor([[9.0, 0.0], [0.0, 0.0]]))
    >>> [round(p, 2) for p in probs.tolist()]
    [0.72, 0.28]
    """
    variance = covariance.diagonal(dim1=-2, dim2=-1)
    of_differences = (variance[..., :, None] + variance[..., None, :] - 2 * covariance).clamp(min=0.0)
    gaps = (mean[..., None, :] - mean[..., :, None]) / (1 + math.pi / 8 * of_differences).sqrt()
    return (-gaps.logsumexp(-1)).softmax(-1)


def _blocks(posterior: Gaussian, fn: Distribution, active: tuple[bool, ...], data: Data) -> list[_ParameterMoments]:
    """Return the Gaussian of every block of the likelihood's parameters; what depends on no parameter has no variance."""
    here = read(fn).coordinates
    moving = iter(_covariances(posterior, [z for z, varies in zip(here, active, strict=True) if varies], active, data))
    zeros = (z.new_zeros(*z.shape, z.shape[-1]) for z in here)
    return [_ParameterMoments(z, next(moving) if v else zero) for z, v, zero in zip(here, active, zeros, strict=True)]


def _covariances(posterior: Gaussian, blocks: list[Tensor], active: tuple[bool, ...], data: Data) -> list[Tensor]:
    r"""Return :math:`J \Sigma J^T` ``[B, ..., d, d]`` of each block ``[B, ..., d]`` that varies."""
    density, theta, covariance = posterior.density, posterior.loc, posterior.covariance
    if isinstance(covariance, Embedded):  # in those entries theta[R] that vary
        density, theta = restricted(density, theta, covariance.index), theta[covariance.index]
        covariance = covariance.covariance
    whole = torch.cat([z.reshape(len(z), -1) for z in blocks], -1)

    def outputs(theta: Tensor, *batch: Any) -> Tensor:
        return torch.cat([z.reshape(len(z), -1) for z in _moving(density, theta, batch, active)], -1)

    jacobian, rows = jacobian_in_blocks(whole, outputs, theta, data, len(whole), MAX_ELEMENTS)
    batches = (select(data, block, len(whole)) for block in rows)
    roots = [covariance.sqrt_rmatmul(jacobian(theta, *batch)) for batch in batches]
    widths = [z[0].numel() for z in blocks]
    parts = zip(blocks, torch.cat(roots).split(widths, 1), strict=True)
    shaped = [root.reshape(*z.shape, root.shape[-1]) for z, root in parts]
    return [root @ root.mT for root in shaped]


def _moving(density: LogDensity, theta: Tensor, batch: Data, active: tuple[bool, ...]) -> list[Tensor]:
    nodes = density.nodes(theta, *batch)
    coordinates = read(nodes[density.observed[0]]["fn"]).coordinates
    return [z for z, varies in zip(coordinates, active, strict=True) if varies]


@singledispatch
def _moments(distribution: Distribution, blocks: list[_ParameterMoments]) -> dict[str, Tensor]:
    raise ValueError(
        f"marginal_predictive knows no closed form for a {type(distribution).__name__} likelihood, but for Normal, Laplace, "
        f"StudentT, Poisson, Bernoulli and Categorical. Use predict(...)."
    )


def _location_scale(blocks: list[_ParameterMoments], factor: Any) -> dict[str, Tensor]:
    """Return moments of y = loc + scale * noise with noise of variance ``factor``: a Gaussian loc and log scale."""
    (mean, epistemic), (log_scale, spread) = (block.scalar for block in blocks)
    return {
        "mean": mean,
        "variance": epistemic + factor * (2 * log_scale + 2 * spread).exp(),
        "epistemic_variance": epistemic,
    }


@_moments.register
def _(distribution: torch.distributions.Normal, blocks: list[_ParameterMoments]) -> dict[str, Tensor]:
    return _location_scale(blocks, 1.0)


@_moments.register
def _(distribution: torch.distributions.Laplace, blocks: list[_ParameterMoments]) -> dict[str, Tensor]:
    return _location_scale(blocks, 2.0)


@_moments.register
def _(distribution: torch.distributions.StudentT, blocks: list[_ParameterMoments]) -> dict[str, Tensor]:
    df = distribution.df
    return _location_scale(blocks, torch.where(df > 2, df / (df - 2).clamp(min=1e-12), torch.inf))


@_moments.register
def _(distribution: torch.distributions.Poisson, blocks: list[_ParameterMoments]) -> dict[str, Tensor]:
    log_rate, variance = blocks[0].scalar
    mean = (log_rate + variance / 2).exp()
    epistemic = mean**2 * variance.expm1()
    return {"mean": mean, "variance": mean + epistemic, "epistemic_variance": epistemic}


@_moments.register
def _(distribution: torch.distributions.Bernoulli, blocks: list[_ParameterMoments]) -> dict[str, Tensor]:
    logit, variance = blocks[0].scalar
    logits = torch.stack([torch.zeros_like(logit), logit], -1)
    covariance = torch.diag_embed(torch.stack([torch.zeros_like(variance), variance], -1))
    return {"probs": pairwise_probit(logits, covariance)}


@_moments.register
def _(distribution: torch.distributions.Categorical, blocks: list[_ParameterMoments]) -> dict[str, Tensor]:
    return {"probs": pairwise_probit(blocks[0].mean, blocks[0].covariance)}
