"""The posterior of some chains as they see it: through the gradients of one batch of rows after another."""

import math
from collections.abc import Callable

from torch import Tensor

from bnnzoo.core.density import LogDensity
from bnnzoo.engine.lowered import Lowered
from bnnzoo.inference.markov.stochastic.gradients import Anchor, full_gradient, stochastic_gradient
from bnnzoo.inference.markov.stochastic.settings import StochasticSettings, rows_of_batch
from bnnzoo.inference.markov.stochastic.source import BatchSource
from bnnzoo.inference.optimise.objectives import log_joint_objective

__all__ = ["Target"]


class Target:
    """Batches, and the gradients on them.

    Parameters
    ----------
    density : LogDensity
    settings : StochasticSettings
    seed : int
    chains : range
        Numbers of these chains among all chains of the fit.
    independent : bool
        As for :class:`bnnzoo.inference.markov.stochastic.source.BatchSource`.

    Attributes
    ----------
    source : BatchSource
    estimates : tuple of callable
        The stochastic gradient, batched over chains and by a loop over them, for models that cannot be traced.
    gradient : Lowered
        The same, to be called now and then.
    batches_of_data : float
        Number of batches that all rows make, N / B.
    """

    def __init__(
        self,
        density: LogDensity,
        settings: StochasticSettings,
        seed: int,
        chains: range,
        *,
        independent: bool = False,
    ) -> None:
        self._density, objective = density, log_joint_objective(density)
        rows = rows_of_batch(settings, density)
        self.source = BatchSource(density, rows, seed, chains, independent=independent)
        self.estimates = (
            stochastic_gradient(objective.value_and_grad),
            stochastic_gradient(objective.looped_value_and_grad),
        )
        self.gradient = Lowered(*self.estimates)
        self.batches_of_data = max(1.0, density.num_data / rows)
        self.svrg_period = settings.svrg_period or math.ceil(self.batches_of_data)

    def on_a_batch(self, anchor: Anchor) -> Callable[[Tensor], Tensor]:
        """Return the gradient on the next batch, as a function of ``theta[C, P]``."""
        batch = self.source.next().batch
        return lambda theta: self.gradient(theta, anchor, batch)[1]

    def value_and_grad_on_a_batch(self, anchor: Anchor) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
        """Return the log density and its gradient on the next batch, as functions of ``theta[C, P]``."""
        batch = self.source.next().batch
        return lambda theta: self.gradient(theta, anchor, batch)

    def anchor_at(self, theta: Tensor) -> Anchor:
        """Return the anchor of a control variate at ``theta[C, P]``."""
        return theta.clone(), full_gradient(self.gradient, theta, self._density)
