"""Warning of networks that use most of their observations up, so that an inferred noise scale is too small."""

import warnings
from typing import Any

import torch
from torch import Tensor

from bnnzoo.core.fit_warnings import TooNarrowWarning
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.model.outputs import row_jacobians
from bnnzoo.core.reading.streamed import StreamedDensity
from bnnzoo.inference.ensembles.anchors import is_gaussian
from bnnzoo.inference.ensembles.gradient_noise import number_of_effective, prior_precision

__all__ = ["effective_parameters", "warn_of_interpolation"]

MAX_ELEMENTS, MAX_ROWS = 2**24, 2000
"""Of the Jacobian and of the matrix of observations that it makes; larger problems are not looked at."""

MAX_SHARE = 0.5
"""Of effective parameters among the observations: residuals are then smaller than the noise by the root of two."""


def warn_of_interpolation(density: LogDensity, theta: Tensor) -> None:
    """Warn if a network at ``theta[P]`` interpolates observations whose Gaussian noise scale is inferred.

    Warns
    -----
    TooNarrowWarning
        With the effective number of parameters.
    """
    held = not isinstance(density, StreamedDensity) and density.num_data <= MAX_ROWS
    if not density.networks or not held or density.num_data * density.num_params > MAX_ELEMENTS:
        return
    used = effective_parameters(density, theta)
    if used is None or not used > MAX_SHARE * density.num_data:
        return
    log_variance = torch.func.grad(lambda at: density.conditional(at, *density.data)["variance"].log().sum())
    if bool((log_variance(theta) != 0).any()):  # the noise depends on theta
        warnings.warn(
            f"The networks nearly interpolate: a member uses about {used:.0f} effective parameters for {density.num_data} "
            f"observations, so that the inferred noise scale, and with it every predictive interval, is too small. Use "
            f"MixtureOf(Laplace()), which adds the members' own uncertainty, a smaller network or a narrower prior, or hold "
            f"observations out with held_out=0.1.",
            TooNarrowWarning,
            stacklevel=2,
        )


def effective_parameters(density: LogDensity, theta: Tensor) -> float | None:
    r"""Return the effective number of parameters of a network with Gaussian noise at ``theta[P]``; None for other likelihoods.

    With J the Jacobian of the mean in units of the noise scale, and :math:`\Lambda` the curvature of minus the log prior,

    .. math:: P_\mathrm{eff} = \mathrm{tr} \, J^T J (J^T J + \Lambda)^{-1}

    References
    ----------
    MacKay (1992), Bayesian interpolation, Neural Computation 4.

    Examples
    --------
    >>> from bnnzoo.core.model.density import build_density
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian()
    >>> density = build_density(target.model, *target.data)
    >>> round(effective_parameters(density, target.mean["w"]), 2)
    2.97
    """
    with torch.no_grad():
        moments = density.conditional(theta, *density.data)
        nodes = density.nodes(theta, *density.data)
    gaussian = all(is_gaussian(nodes[name]["fn"]) for name in density.observed)
    if len(density.observed) != 1 or density.factors or not gaussian:
        return None
    sd = moments["variance"].sqrt()

    def mean(at: Tensor, *batch: Any) -> Tensor:
        found: Tensor = density.conditional(at, *batch)["mean"]
        return found.reshape(len(found), -1)

    jacobian = row_jacobians(mean, density.data, density.num_data)(theta, *density.data)
    scaled = (jacobian / sd.reshape(*jacobian.shape[:2], 1)).flatten(0, 1).double()
    return number_of_effective(scaled, prior_precision(density, theta))
