r"""Predictions from a model whose outputs are linearised at the mode: the GLM predictive of a Laplace approximation."""

from typing import Any, Literal

import torch
from torch import Tensor
from torch.func import jacrev

from bnnzoo.core.likelihood.general_readout import UnreadableLikelihood
from bnnzoo.core.likelihood.readout import read
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.model.outputs import linearized
from bnnzoo.core.posterior.posterior import Gaussian, Mixture, Posterior
from bnnzoo.core.program.turns import one_at_a_time
from bnnzoo.core.reading.conditioned import PredictiveDensity, PredictsGivenData, predictive_density
from bnnzoo.predictive.rows import new_data

__all__ = ["function_moments", "row_densities", "row_density", "rows_density"]


def row_density(posterior: Posterior, wanted: bool | Literal["auto"]) -> LogDensity:
    r"""Return the density whose likelihood predicts: the model's own, or the model's with linearised outputs.

    A Gauss-Newton matrix is the curvature of the model whose outputs (network function, log noise scale) are linear
    in theta, and a Gaussian with that curvature is the posterior of that linear model. Put into the network itself it
    is far too wide in directions in which the network bends, and predicts much worse than the mode alone. So "auto"
    linearises exactly where the Gaussian was made that way, and nowhere else: variational families and exact Hessians
    were fitted to the model itself.

    Parameters
    ----------
    posterior : Posterior
    wanted : bool or "auto"

    Raises
    ------
    ValueError
        If linearised predictions are wanted of a posterior that is not Gaussian, or of a likelihood that cannot be read.

    References
    ----------
    Immer, Korzepa and Bauer (2021), Improving predictions of Bayesian neural nets via local linearization, AISTATS.
    """
    anchor = getattr(posterior, "linearize_at", None)
    if wanted is False or (wanted == "auto" and anchor is None):
        return posterior.density
    if not isinstance(posterior, Gaussian):
        raise ValueError(
            f"linearized=True, but the posterior of {posterior.info.method} is not Gaussian and has no point to linearise at. "
            f"Leave linearized out."
        )
    try:
        return linearized(posterior.density, posterior.loc if anchor is None else anchor)
    except UnreadableLikelihood as error:
        if wanted == "auto":
            return posterior.density
        raise ValueError(f"linearized=True, but {error} Leave linearized out.") from None


def row_densities(
    posterior: Posterior, wanted: bool | Literal["auto"], rows: Literal["training", "new"] = "new"
) -> tuple[LogDensity, ...]:
    """Return the density that predicts from each component of a mixture; one, if they share it or there is one only.

    Each component of a mixture of Laplace approximations is linearised at its own mode, as :func:`row_density` does for one.

    Parameters
    ----------
    posterior, wanted
        As for :func:`row_density`.
    rows : "training" or "new"
        Which rows are predicted, for models that predict given their training data; these are never linearised.
    """
    if isinstance(posterior.density.model, PredictsGivenData):
        if wanted is True:
            raise ValueError(
                "linearized=True, but this model draws a function for its predictions. Leave linearized out."
            )
        return (predictive_density(posterior.density, rows),)
    if not isinstance(posterior, Mixture):
        return (row_density(posterior, wanted),)
    found = tuple(row_density(component, wanted) for component in posterior.components)
    shared = all(density is component.density for density, component in zip(found, posterior.components, strict=True))
    return (posterior.density,) if shared else found


def rows_density(posterior: Posterior, densities: tuple[LogDensity, ...]) -> LogDensity:
    """Return the density by which rows are inspected: the posterior's own, but for models that predict given their data."""
    return densities[0] if isinstance(densities[0], PredictiveDensity) else posterior.density


@one_at_a_time
def function_moments(posterior: Gaussian, *inputs: Any) -> tuple[Tensor, Tensor]:
    r"""Return mean ``[B, K]`` and covariance ``[B, K, B, K]`` of the linearised outputs: a Gaussian process.

    .. math:: f \sim GP(z(x; \theta^*), J(x) \Sigma J(x')^T)

    The outputs are the likelihood's unconstrained parameters that depend on theta, one column each: the network's
    function for a Gaussian likelihood of fixed scale, the logits for a categorical one.

    Parameters
    ----------
    posterior : Gaussian
    *inputs
        Arguments of the model, as for :func:`bnnzoo.predict`; the model must have one observed site.

    Raises
    ------
    UnreadableLikelihood
        If the outputs of the likelihood cannot be read.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian()
    >>> posterior = bz.fit(target.model, bz.Laplace(), *target.data)
    >>> mean, covariance = function_moments(posterior, target.data[0][:2])
    >>> mean.shape, covariance.shape
    (torch.Size([2, 1]), torch.Size([2, 1, 2, 1]))
    """
    density = posterior.density
    data = new_data(density, inputs)
    active = density.active
    (site,) = density.observed

    def outputs(theta: Tensor) -> Tensor:
        fn = density.nodes(theta, *data)[site]["fn"]
        blocks = [z for z, is_active in zip(read(fn).coordinates, active[site], strict=True) if is_active]
        return torch.cat([z.reshape(len(z), -1) for z in blocks], -1)

    with torch.no_grad():
        mean, jacobian = outputs(posterior.loc), jacrev(outputs)(posterior.loc)
    flat = jacobian.reshape(mean.numel(), -1)
    return mean, (flat @ posterior.covariance.dense() @ flat.mT).reshape(mean.shape + mean.shape)
