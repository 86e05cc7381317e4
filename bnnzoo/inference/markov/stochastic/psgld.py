"""Preconditioned stochastic gradient Langevin dynamics (Li, Chen, Carlson and Carin 2016)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from bnnzoo.core.method import FitContext
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.posterior.posterior import Draws
from bnnzoo.core.settings import Fraction, Positive
from bnnzoo.inference.markov.stochastic.stochastic_dynamics import Measured, Step
from bnnzoo.inference.markov.stochastic.stochastic_sampler import sample_stochastic
from bnnzoo.inference.markov.stochastic.stochastic_settings import GradientSettings, plan_of

__all__ = ["PSGLD", "RMSPropLangevin"]


@dataclass(frozen=True)
class RMSPropLangevin:
    r"""Langevin dynamics with RMSprop's running preconditioner.

    .. math::
        V \leftarrow \alpha V + (1 - \alpha) (\tilde g / N)^2, \quad G = \frac{1}{\lambda + \sqrt V}, \quad
        \theta \leftarrow \theta + \tfrac{\epsilon}{2} G \tilde g(\theta) + \sqrt{\epsilon T G} \, \xi

    The exact dynamics have the further term :math:`\tfrac{\epsilon}{2} \Gamma`, :math:`\Gamma_i = \partial G_i / \partial
    \theta_i`. It is of order :math:`1 - \alpha` and is left out, as in the paper.

    Parameters
    ----------
    num_data : int
        N, so that V is that of the mean gradient of an observation.
    temperature, variance_bias : float
        As for SGLD.
    decay, damping : float
        :math:`\alpha` and :math:`\lambda`.
    """

    num_data: int
    temperature: float
    variance_bias: float
    decay: float
    damping: float
    counts_noise: bool = False
    preconditioned: bool = False

    def start(self, measured: Measured, noise: Tensor) -> tuple[Tensor, ...]:
        """Return V before the first step ``[C, P]``: that of the gradients to be expected."""
        return (measured.curvature / self.num_data**2,)

    def reversed(self, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return V, which has no direction."""
        return state

    def step_size(self, measured: Measured) -> Tensor:
        """Return the step size ``[C]`` by the rule of SGLD, with G in place of its squared scales."""
        root = self._preconditioner(measured.curvature / self.num_data**2)
        stable = 1 / (measured.stiffness * root.amax(1))
        return (4 * self.variance_bias / (root * measured.curvature).amax(1)).minimum(stable)

    def move(
        self, gradient: Tensor, state: tuple[Tensor, ...], step: Step, noise: Tensor
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return the move, and V."""
        (square,) = state
        square = self.decay * square + (1 - self.decay) * (gradient / self.num_data) ** 2
        preconditioner = self._preconditioner(square)
        spread = step.noisy * (self.temperature * step.size * preconditioner).sqrt()
        return 0.5 * step.size * preconditioner * gradient + spread * noise, (square,)

    def _preconditioner(self, square: Tensor) -> Tensor:
        return 1 / (self.damping + torch.sqrt(square))


@dataclass(frozen=True, kw_only=True)
class PSGLD(GradientSettings):
    """Preconditioned SGLD: each parameter's step adapts to the recent size of its gradient, as in RMSprop.

    Unlike the scales of :class:`SGLD`, which are fixed after warm-up, this preconditioner keeps changing. The dynamics would need
    a correction for this, the term Gamma of the paper; it is left out, as the authors do, which biases the draws a little further
    (less the closer ``decay`` is to 1).

    Parameters
    ----------
    step_size : float, optional
        Default: tuned to ``variance_bias``.
    decay : float
        How slowly squared gradients are forgotten. The paper has 0.99.
    damping : float
        What is added to the root mean square of an observation's gradient.

    References
    ----------
    Li, Chen, Carlson and Carin (2016), Preconditioned stochastic gradient Langevin dynamics for deep neural networks, AAAI.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian()
    >>> method = bz.PSGLD(num_chains=2, num_warmup=30, num_draws=20, batch_size=10)
    >>> posterior = bz.fit(target.model, method, *target.data)
    >>> posterior.draws().shape
    torch.Size([2, 20, 3])
    """

    decay: Fraction = 0.999
    damping: Positive = 1e-5

    def run(self, density: LogDensity, context: FitContext) -> Draws:
        """Draw from the posterior, up to the bias of the step size; see :func:`bnnzoo.fit`."""
        num_data = max(1, density.num_data)
        dynamics = RMSPropLangevin(num_data, self.temperature, self.variance_bias, self.decay, self.damping)
        return sample_stochastic(self, dynamics, plan_of(self, density, self.schedule), density, context)
