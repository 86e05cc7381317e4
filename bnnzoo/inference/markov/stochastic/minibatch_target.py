"""The posterior of some chains as they see it: through the gradients of one batch of rows after another."""

import math
from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor
from torch.func import vmap

from bnnzoo.core.data.minibatch import has_rows, select
from bnnzoo.core.data.row_source import LoaderRows
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.reading.streamed import StreamedDensity
from bnnzoo.engine.lowered import Lowered
from bnnzoo.engine.program import GradientFunction
from bnnzoo.engine.value_and_grad import value_and_grad_of
from bnnzoo.inference.markov.noise import normals
from bnnzoo.inference.markov.stochastic.gradients import Anchor, full_gradient, stochastic_gradient
from bnnzoo.inference.markov.stochastic.row_order import RowOrder
from bnnzoo.inference.markov.stochastic.stochastic_settings import StochasticSettings, rows_of_batch
from bnnzoo.inference.optimise.batches import AllRows, StepBatch, refuse_no_rows, selected_rows
from bnnzoo.inference.optimise.objectives import ObjectiveInputs, log_joint_objective
from bnnzoo.inference.optimise.streams import MemberStreams

__all__ = ["MinibatchTarget"]

type Rows = tuple[Tensor, ...]
"""The rows of each chain, or nothing where all chains see the same data, or data that are theirs alone."""


NEVER = 2**62
"""More steps than any chain takes."""


class MinibatchTarget:
    """Batches, and the gradients on them.

    Parameters
    ----------
    density : LogDensity
    settings : StochasticSettings
    keys : Tensor [C, 4]
        Random streams of the chains; see :data:`bnnzoo.inference.markov.stochastic.stochastic_program.NUM_STREAMS`.
    independent : bool
        As for :class:`bnnzoo.inference.markov.stochastic.row_order.RowOrder`.

    Attributes
    ----------
    order : RowOrder or None
        The rows of a step; None for all of them, or for those that a loader gives.
    streams : bool
        Whether rows are read from outside of memory.
    gradient : Lowered
        The stochastic gradient ``(theta, anchor, batch) -> (value, gradient)``, to be called now and then.
    batches_of_data : float
        Number of batches that all rows make, N / B.
    renews_anchor : bool
        Whether chains get a new anchor every ``svrg_period`` steps.
    num_probes, num_probing : int
        Batches, and normal numbers of each parameter, that were used besides those of the steps.
    """

    def __init__(
        self, density: LogDensity, settings: StochasticSettings, keys: Tensor, *, independent: bool = False
    ) -> None:
        self._density, self._keys, objective = density, keys, log_joint_objective(density)
        rows, num_data = rows_of_batch(settings, density), density.num_data
        self.streams = isinstance(density, StreamedDensity)
        loads = isinstance(density, StreamedDensity) and isinstance(density.source, LoaderRows)
        if rows < num_data and not loads:
            refuse_no_rows(rows, density)
        self.order = RowOrder(num_data, rows, independent) if rows < num_data and not loads else None
        self._same = AllRows().stream(density, MemberStreams(0, range(len(keys))))
        self._batched, self._looped = (
            stochastic_gradient(each) for each in (objective.value_and_grad, objective.looped_value_and_grad)
        )
        self.gradient = density.shared("stochastic gradient", lambda: Lowered(self._batched, self._looped))
        self.batches_of_data = max(1.0, num_data / rows)
        self.svrg_period = settings.svrg_period or math.ceil(self.batches_of_data)
        self.renews_anchor = settings.control_variates == "svrg"
        self.num_probes = self.num_probing = 0

    def gradient_function(self) -> GradientFunction:
        """Return the stochastic gradient as the engine takes it, ``(theta, rows, anchor, *data)``.

        Where rows are read from outside of memory, the data are the batch of the first step.
        """
        held, num_data = self._density.data, self._density.num_data
        fed = self.batch(0, 1) if self.streams else StepBatch(held, (None,) * len(held))

        def batch(rows: Rows, data: tuple[Any, ...]) -> StepBatch:
            if not rows:
                return StepBatch(data, fed.dims)
            dims = tuple(0 if has_rows(each, num_data) else None for each in data)
            return StepBatch(select(data, rows[0], num_data), dims)

        def joint_and_grad(theta: Tensor, inputs: ObjectiveInputs) -> tuple[Tensor, Tensor]:
            return value_and_grad_of(lambda leaf: self._density.log_joint(leaf, *inputs.batch.data), theta)

        of_one = stochastic_gradient(joint_and_grad)

        def single(theta: Tensor, rows: Rows, anchor: Anchor, *data: Any) -> tuple[Tensor, Tensor]:
            return of_one(theta, anchor, batch(rows, data))

        def batched(theta: Tensor, rows: Rows, anchor: Anchor, *data: Any) -> tuple[Tensor, Tensor]:
            return self._batched(theta, anchor, batch(rows, data))

        def looped(theta: Tensor, rows: Rows, anchor: Anchor, *data: Any) -> tuple[Tensor, Tensor]:
            return self._looped(theta, anchor, batch(rows, data))

        def shared(key: Hashable, make: Callable[[], Any]) -> Any:
            return self._density.shared(("stochastic gradient", key), make)

        return GradientFunction(single, batched, looped, fed.data, shared)

    def next_renewal(self, steps: int) -> int:
        """Return the number of steps at which anchors, or rows that are read from outside of memory, are the next ones."""
        if self.streams:
            return steps + 1
        return (steps // self.svrg_period + 1) * self.svrg_period if self.renews_anchor else NEVER

    def batch(self, number: int, stream: int) -> StepBatch:
        """Return a batch of one of the chains' streams of rows; where there is no order of rows, the next one."""
        if self.order is None:
            return next(self._same)
        order, steps = self.order, torch.tensor([number], device=self._keys.device)
        return selected_rows(self._density, vmap(lambda key: order.rows(key, steps))(self._keys[:, stream])[:, 0])

    def normals(self, theta: Tensor) -> Tensor:
        """Return the next normal numbers like ``theta[C, P]`` that are not those of the steps."""
        size = theta.shape[1]
        places = self.num_probing * size + torch.arange(size, device=theta.device)
        self.num_probing += 1
        return normals(self._keys[:, 2:3], places, theta.dtype)

    def on_a_batch(self, anchor: Anchor) -> Callable[[Tensor], Tensor]:
        """Return the gradient on the next batch, as a function of ``theta[C, P]``."""
        function = self.value_and_grad_on_a_batch(anchor)
        return lambda theta: function(theta)[1]

    def value_and_grad_on_a_batch(self, anchor: Anchor) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
        """Return the log density and its gradient on the next batch, as functions of ``theta[C, P]``."""
        batch = self.batch(self.num_probes, 3)
        self.num_probes += 1
        return lambda theta: self.gradient(theta, anchor, batch)

    def anchor_at(self, theta: Tensor) -> Anchor:
        """Return the anchor of a control variate at ``theta[C, P]``."""
        return theta.clone(), full_gradient(self.gradient, theta, self._density)
