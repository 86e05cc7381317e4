"""A linear model whose parameters tests train, by any objective, optimiser, schedule and batches."""

from typing import Any

import torch
from torch import Tensor

from bnnzoo.core.method import FitContext
from bnnzoo.core.model.density import build_density
from bnnzoo.inference.optimise.batches import AllRows, Batches
from bnnzoo.inference.optimise.objectives import Objective, log_joint_objective
from bnnzoo.inference.optimise.optimisers import Adam, Optimiser
from bnnzoo.inference.optimise.schedules import Cosine, Schedule
from bnnzoo.inference.optimise.train import train
from bnnzoo.inference.optimise.training_run import Trained
from bnnzoo.testing import linear_gaussian

__all__ = ["START", "TARGET", "trained"]

TARGET = linear_gaussian()
START = torch.randn(3, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def trained(
    objective: Objective | None = None,
    optimiser: Optimiser | None = None,
    schedule: Schedule | None = None,
    batches: Batches | None = None,
    start: Tensor = START,
    **settings: Any,
) -> Trained:
    """Train three members of the model in the precision of their starts."""
    own = build_density(TARGET.model, *(each.to(start.dtype) for each in TARGET.data), dtype=start.dtype)
    return train(
        log_joint_objective(own) if objective is None else objective,
        optimiser or Adam(0.03),
        schedule or Cosine(),
        batches or AllRows(),
        start,
        **{"num_steps": 50, "density": own, "context": FitContext(3), **settings},
    )
