"""Default learning rate of SWAG: gradient noise as wide as the posterior, within what is stable."""

import warnings

import torch
from torch import Tensor

from bnnzoo.core.data.minibatch import select
from bnnzoo.core.data.row_source import LoaderRows
from bnnzoo.core.fit_warnings import TooNarrowWarning
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.model.outputs import row_jacobians
from bnnzoo.core.reading.streamed import StreamedDensity, num_held, rows_of
from bnnzoo.engine.lowered import Lowered
from bnnzoo.inference.optimise.batches import IndependentBatches
from bnnzoo.inference.optimise.objectives import ObjectiveInputs, log_joint_objective
from bnnzoo.inference.optimise.stiffness import largest_curvature
from bnnzoo.inference.optimise.streams import MemberStreams

__all__ = ["default_rate", "number_of_effective", "posterior_rate", "prior_precision"]

SMALLEST_RATE, PART_OF_STABLE = 1e-12, 0.25
"""Bounds of the default learning rate: a mini-batch's own curvature may be several times that of another, or of all rows."""

SMALLEST_SHARE = 0.1
"""Of the posterior's variance, that the iterates are expected to have at the default learning rate."""

FLAT = 1e-10
"""Prior precision, as a part of the sum of all squared gradients, below which a parameter counts as one without a prior."""

MAX_ROWS, MAX_ELEMENTS = 256, 2**23
"""Observations whose gradients are compared, and entries of the matrix that holds them."""


def default_rate(density: LogDensity, start: Tensor, batch_size: int, momentum: float, seed: int) -> float:
    r"""Return the :func:`posterior_rate`, or less if SGD would not stay near ``start[C, P]``.

    With momentum :math:`\beta`, gradient descent is stable where the largest eigenvalue of the Hessian of the loss per
    observation is less than :math:`2 (1 + \beta)` over the rate.

    Warns
    -----
    TooNarrowWarning
        If the largest rate leaves the iterates a small share of the posterior's variance.

    Raises
    ------
    ValueError
        If SGD starts at a spike.
    """
    streams = MemberStreams(seed, range(len(start)))
    # the largest eigenvalue of the Hessian of the loss per observation, of a mini-batch, at the steepest start
    objective = log_joint_objective(density)
    batch = next(IndependentBatches(batch_size).stream(density, streams))
    both = density.shared(
        "gradient of a batch", lambda: Lowered(objective.value_and_grad, objective.looped_value_and_grad)
    )
    noise = torch.randn(start.shape, generator=torch.Generator().manual_seed(seed)).to(start)

    def gradient(theta: Tensor) -> Tensor:
        return both(theta, ObjectiveInputs((), (), (), batch))[1]

    curvature = largest_curvature(gradient, start, torch.ones_like(start), noise)
    steepest = float(curvature.max()) / density.num_data
    stable = PART_OF_STABLE * 2 * (1 + momentum) / max(steepest, 1e-30)
    if stable < SMALLEST_RATE:
        raise ValueError(
            f"SWAG: where SGD starts, the Hessian of the loss per observation has the eigenvalue {steepest:.2g}, and descent "
            f"would be stable at learning rates below {stable:.2g} only. The mode is a spike, as of scales that are parameters, "
            f"or the data are not standardised. Write init=... with another start, fix these scales, or use NUTS()."
        )
    wanted = min(posterior_rate(density, theta, batch_size, momentum, streams) for theta in start)
    if stable < SMALLEST_SHARE * wanted:
        warnings.warn(
            f"SWAG's draws will spread far less than the posterior: at the largest stable learning rate, {stable:.2g}, gradient "
            f"noise gives them about {stable / wanted:.1%} of its variance. Standardise the data, write a smaller batch_size or "
            f"a larger scale, or use Laplace() or NUTS().",
            TooNarrowWarning,
            stacklevel=2,
        )
    return min(wanted, stable)


def posterior_rate(
    density: LogDensity, theta: Tensor, batch_size: int, momentum: float, streams: MemberStreams
) -> float:
    r"""Return the learning rate at which iterates about ``theta[P]`` lose as much log likelihood as draws from the posterior.

    Near a mode, the iterates of SGD with momentum :math:`\beta` on the loss per observation, with independent batches of B rows,
    have the variance :math:`\epsilon / (2 (1 - \beta) B)` wherever the gradients' covariance agrees with the curvature. With
    F the sum over all rows of the outer products of their gradients, :math:`\Lambda` the curvature of minus the log prior, and
    :math:`P_\mathrm{eff} = \mathrm{tr} \, F (F + \Lambda)^{-1}` the effective number of parameters,

    .. math:: \epsilon = 2 (1 - \beta) B \, \frac{P_\mathrm{eff}}{\mathrm{tr} \, F}

    Parameters
    ----------
    density : LogDensity
    theta : Tensor [P]
        A mode.
    batch_size : int
        B.
    momentum : float
        Of SGD.
    streams : MemberStreams
        Of random numbers, by which up to 256 observations are chosen.

    Returns
    -------
    float
        Of the loss per observation; infinity where all observations have the same gradient.

    References
    ----------
    Mandt, Hoffman and Blei (2017), Stochastic gradient descent as approximate Bayesian inference, JMLR 18.

    Examples
    --------
    >>> from bnnzoo.core.model.density import build_density
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian()
    >>> density = build_density(target.model, *target.data)
    >>> bool(0.01 < posterior_rate(density, target.mean["w"], 10, 0.9, MemberStreams(0, range(1))) < 0.1)
    True
    """
    loaded = isinstance(density, StreamedDensity) and isinstance(density.source, LoaderRows)
    held = num_held(density) if loaded else density.num_data  # a loader gives no rows by number
    size = max(2, min(held, MAX_ROWS, MAX_ELEMENTS // max(1, len(theta))))
    chosen = torch.randperm(held, generator=streams.shared)[:size].to(density.device)
    rows = select(density.data, chosen, held) if loaded else rows_of(density, chosen)
    jacobians = row_jacobians(lambda at, *batch: density.log_likelihood(at, *batch)[:, None], rows, min(size, held))
    gradients = jacobians(theta, *rows)[:, 0].double()
    deviations = (gradients - gradients.mean(0)) * (density.num_data / len(gradients)) ** 0.5
    total = float(deviations.square().sum())
    if not total:
        return float("inf")
    effective = number_of_effective(deviations, prior_precision(density, theta))
    return 2 * (1 - momentum) * batch_size * effective / total


def number_of_effective(gradients: Tensor, precision: Tensor) -> float:
    r"""Return :math:`\mathrm{tr} \, G^T G (G^T G + \Lambda)^{-1}` of ``gradients[N, P]`` and the diagonal ``precision[P]``.

    A parameter with a precision of 0, as of a Laplace prior away from its kink, or less, as in a Student prior's tails, counts as
    one without a prior.
    """
    total = float(gradients.square().sum())
    if not total:
        return 0.0
    spectrum = torch.linalg.eigvalsh((gradients / precision.clamp(min=FLAT * total)) @ gradients.mT).clamp(min=0.0)
    return float((spectrum / (1 + spectrum)).nan_to_num(1.0).sum())


def prior_precision(density: LogDensity, theta: Tensor) -> Tensor:
    """Return the curvature ``[P]`` of minus the log prior, whose Hessian is diagonal where latent values are independent."""
    gradient = torch.func.grad(density.log_prior)
    return -torch.func.grad(lambda at: gradient(at).sum())(theta).double()
