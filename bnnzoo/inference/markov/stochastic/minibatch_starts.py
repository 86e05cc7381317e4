"""Starting points of stochastic-gradient chains: members trained on mini-batches, unless starts are given."""

import torch
from torch import Tensor

from bnnzoo.core.data.minibatch import select
from bnnzoo.core.method import FitContext
from bnnzoo.core.model.density import LogDensity
from bnnzoo.inference.markov.stochastic.stochastic_settings import StochasticSettings, rows_of_batch
from bnnzoo.inference.optimise.batches import AllRows, MemberBatches
from bnnzoo.inference.optimise.objectives import log_joint_objective
from bnnzoo.inference.optimise.optimisers import Adam
from bnnzoo.inference.optimise.schedules import Cosine
from bnnzoo.inference.optimise.train import train
from bnnzoo.inference.starts import moved_inwards, refuse_not_finite, starting_points, starts_of_model

__all__ = ["optimised_starts"]

LEARNING_RATE = 0.03


def optimised_starts(settings: StochasticSettings, density: LogDensity, context: FitContext) -> Tensor:
    """Return one starting point for each chain ``[C, P]``, near a mode of its own unless ``init`` says where.

    No gradient on all rows is computed, so that the work does not grow with the data. A chain whose training ends where the
    density cannot be evaluated begins where it could be last.

    Raises
    ------
    ModelError
        If the density was finite nowhere on the way of a chain; the message names the site.
    KeyboardInterrupt
        If training was interrupted: there are no draws yet.
    """
    if settings.init is not None or settings.optimise_steps == 0:
        return starting_points(settings.init, settings.num_chains, density, context, traced=True)
    rows = rows_of_batch(settings, density)
    found = train(
        log_joint_objective(density),
        Adam(LEARNING_RATE),
        Cosine(),
        AllRows() if rows >= density.num_data else MemberBatches(rows),
        _begun(settings, density, context, rows),
        num_steps=settings.optimise_steps,
        density=density,
        context=context,
    )
    if not found.complete:
        raise KeyboardInterrupt("Interrupted on the way to a mode, before the chains began.")
    finite = found.trace[:, -1].isfinite() & found.params.isfinite().all(1)
    theta = torch.where(finite[:, None], found.params, found.last_good)
    refuse_not_finite(theta, finite | found.trace.isfinite().any(1), density)
    return theta


def _begun(settings: StochasticSettings, density: LogDensity, context: FitContext, rows: int) -> Tensor:
    """Return where training begins ``[C, P]``: where the model starts, or further inwards if a mini-batch is hopeless there."""
    batch = select(density.data, slice(rows), density.num_data) if rows < density.num_data else density.data
    found = starts_of_model(settings.num_chains, density, context, *batch)
    return moved_inwards(found, density, *batch).theta
