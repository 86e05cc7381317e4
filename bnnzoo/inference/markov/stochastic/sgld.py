"""Stochastic gradient Langevin dynamics (Welling and Teh 2011)."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from bnnzoo.core.method import FitContext
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.posterior.posterior import Draws
from bnnzoo.inference.markov.stochastic.stochastic_dynamics import Measured, Step
from bnnzoo.inference.markov.stochastic.stochastic_sampler import sample_stochastic
from bnnzoo.inference.markov.stochastic.stochastic_settings import GradientSettings, plan_of

__all__ = ["SGLD", "Langevin"]


@dataclass(frozen=True)
class Langevin:
    r"""Overdamped Langevin dynamics along stochastic gradients.

    .. math::
        \theta \leftarrow \theta + \tfrac{\epsilon}{2} S^2 \tilde g(\theta) + \sqrt{\epsilon T} \, S \xi, \qquad
        \xi \sim N(0, I)

    with diagonal scales S, fixed after warm-up, step size :math:`\epsilon` and temperature T.

    Parameters
    ----------
    temperature : float
    preconditioned : bool
        Whether S is estimated; it is the identity otherwise.
    """

    temperature: float
    variance_bias: float
    preconditioned: bool
    counts_noise: bool = False

    def start(self, measured: Measured, noise: Tensor) -> tuple[Tensor, ...]:
        """Return nothing: a chain is its position."""
        return ()

    def reversed(self, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return nothing."""
        return ()

    def step_size(self, measured: Measured) -> Tensor:
        r"""Return the step size ``[C]`` at which the stationary variance is too large by ``variance_bias``, at most.

        For a Gaussian posterior of precision H and gradient noise of variance V the relative bias is, to first order,
        :math:`\epsilon S^2 (H + V) / 4`, and H + V is the mean squared stochastic gradient.
        """
        worst = (measured.scale**2 * measured.curvature).amax(1)
        return (4 * self.variance_bias / worst).minimum(1 / measured.stiffness)

    def move(
        self, gradient: Tensor, state: tuple[Tensor, ...], step: Step, noise: Tensor
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return the move ``[P]``."""
        spread = step.noisy * (self.temperature * step.size).sqrt() * step.scale
        return 0.5 * step.size * step.scale**2 * gradient + spread * noise, state


@dataclass(frozen=True, kw_only=True)
class SGLD(GradientSettings):
    """Stochastic gradient Langevin dynamics: gradient steps on mini-batches, plus noise of the step's own variance.

    Nothing is rejected. Both the step size and the noise of the gradient bias the draws: their variances are too large, in
    proportion to the step size. The default step size keeps this bias at ``variance_bias``. The noise is never scaled down: the
    target is the posterior, and a tempered one only if ``temperature`` says so.

    Parameters
    ----------
    step_size : float, optional
        Default: tuned to ``variance_bias``. In squared units of the parameters, or of their scales if these are estimated.
    variance_bias : float
        Relative bias of the variances of a Gaussian posterior to which the step size is tuned: half of it means twice as many
        steps.
    preconditioning : {"diagonal"}, optional
        Whether each parameter has a scale, estimated during warm-up from squared gradients. None: all have the same.

    References
    ----------
    Welling and Teh (2011), Bayesian learning via stochastic gradient Langevin dynamics, ICML. Vollmer, Zygalakis and Teh (2016),
    Exploration of the (non-)asymptotic bias and variance of stochastic gradient Langevin dynamics, JMLR 17.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian()
    >>> method = bz.SGLD(num_chains=2, num_warmup=30, num_draws=20, batch_size=10)
    >>> posterior = bz.fit(target.model, method, *target.data)
    >>> posterior.draws().shape
    torch.Size([2, 20, 3])
    """

    preconditioning: Literal["diagonal"] | None = "diagonal"

    def run(self, density: LogDensity, context: FitContext) -> Draws:
        """Draw from the posterior, up to the bias of the step size; see :func:`bnnzoo.fit`."""
        dynamics = Langevin(self.temperature, self.variance_bias, self.preconditioning is not None)
        return sample_stochastic(self, dynamics, plan_of(self, density, self.schedule), density, context)
