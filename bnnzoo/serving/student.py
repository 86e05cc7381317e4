"""The module that stands in for the draws, and how it learns."""

import math
from collections.abc import Mapping
from itertools import count, takewhile

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bnnzoo.serving.summaries import ROUNDING, Summaries, differences

__all__ = ["Student", "learn"]

type Array = NDArray[np.floating]
type Outputs = dict[str, Tensor]

RATE, BATCH = 5e-3, 512
ROUND = 100
"""Iterations of L-BFGS between looks at the error."""
GOOD = 0.5
"""Error at the points it learns from, in floors, at which the student has learned enough."""


class Student(nn.Module):
    """Predictive moments of each row of raw inputs ``[N, ...]``, as a dict; plain torch.

    Of real predictions it gives ``mean``, ``sd`` and the variances ``total``, ``aleatoric`` and ``epistemic``; of classes
    ``probs`` and, in nats, ``total`` (their entropy), ``aleatoric`` and ``epistemic`` (the mutual information). ``outside``
    ``[N]`` tells which rows lie outside the box of what it learned; they get the answer of the box's nearest point.

    Parameters
    ----------
    network : Module
        From standardised inputs to as many numbers as :meth:`num_outputs` says.
    box : pair of ndarray
        Its corners.
    inputs : ndarray [M, ...]
        From which means and standard deviations are taken.
    whole : mapping of str to ndarray
        The summaries at these inputs, as in :class:`~bnnzoo.serving.summaries.Summaries`.
    """

    low: Tensor
    high: Tensor
    slope: Tensor
    intercept: Tensor
    target_mean: Tensor
    target_sd: Tensor

    def __init__(self, network: nn.Module, box: tuple[Array, Array], inputs: Array, whole: Mapping[str, Array]) -> None:
        super().__init__()
        self.network, self.is_classes = network, "probs" in whole
        self.shape = whole["probs" if self.is_classes else "mean"].shape[1:]
        sd = inputs.std(0)
        slope = 1 / np.where(sd > 0, sd, 1.0)
        buffers = {"low": box[0], "high": box[1], "slope": slope, "intercept": -inputs.mean(0) * slope}
        if not self.is_classes:
            targets = np.stack([whole["mean"], *(np.log(whole[part]) for part in ("aleatoric", "epistemic"))], -1)
            buffers |= {"target_mean": targets.mean(0), "target_sd": targets.std(0)}
        for name, value in buffers.items():
            self.register_buffer(name, torch.as_tensor(value))

    @staticmethod
    def num_outputs(whole: Mapping[str, Array]) -> int:
        """Return how many numbers the network has to give for a row: three for each outcome, or one more than classes."""
        if "probs" in whole:
            *outcomes, classes = whole["probs"].shape[1:]
            return math.prod(outcomes) * (classes + 1)
        return 3 * math.prod(whole["mean"].shape[1:])

    def forward(self, x: Tensor) -> Outputs:
        """Return the moments of each row of ``x[N, ...]``."""
        held = x.clamp(self.low, self.high)
        out = self.network(torch.addcmul(self.intercept, held, self.slope))
        found = self._classes(out) if self.is_classes else self._numbers(out)
        return {**found, "outside": (held != x).flatten(1).any(1)}

    def _numbers(self, out: Tensor) -> Outputs:
        out = torch.addcmul(self.target_mean, out.reshape(-1, *self.shape, 3), self.target_sd)
        aleatoric, epistemic = out[..., 1:].exp().unbind(-1)
        total = aleatoric + epistemic
        return {"mean": out[..., 0], "sd": total.sqrt(), "total": total, "aleatoric": aleatoric, "epistemic": epistemic}

    def _classes(self, out: Tensor) -> Outputs:
        *outcomes, classes = self.shape
        out = out.reshape(-1, *outcomes, classes + 1)
        log_probs = out[..., :-1].log_softmax(-1)
        probs = log_probs.exp()
        total = -(probs * log_probs).sum(-1)
        epistemic = total * out[..., -1].sigmoid()  # the mutual information is no larger than the entropy
        return {"probs": probs, "total": total, "aleatoric": total - epistemic, "epistemic": epistemic}


def learn(student: Student, inputs: Array, summaries: Summaries, num_steps: int, seed: int) -> float:
    """Fit a student by Adam for ``num_steps`` steps, then by L-BFGS for at most a quarter as many iterations; return its error.

    An error of one floor counts the same wherever and in whatever it is made: the floors are averages over the two halves of the
    inputs, which lie inside the data and anywhere. Beyond one floor the loss is linear, since errors are judged by their means.
    What is returned is the largest of the mean errors, in floors, in a half.
    """
    like = next(student.parameters())
    x = torch.as_tensor(inputs).to(like)
    target = {name: torch.as_tensor(values).to(like) for name, values in summaries.whole.items()}
    middle = len(x) // 2
    floors = {
        name: torch.as_tensor(np.repeat([half.mean() for half in np.split(each, [middle])], [middle, len(x) - middle]))
        .clamp(min=ROUNDING)
        .to(like)
        for name, each in summaries.floors().items()
    }

    def in_floors(rows: Tensor | slice) -> Tensor:
        """Return the errors ``[M, ..., measure]`` at some rows."""
        found, wanted = student(x[rows]), {name: values[rows] for name, values in target.items()}
        if student.is_classes:
            apart = (found["probs"] - wanted["probs"]).square().sum(-1)
            errors = {
                "probs": (apart + ROUNDING**2).sqrt(),
                "mutual_information": found["epistemic"] - wanted["epistemic"],
            }
        else:
            errors = differences(found, wanted, wanted)
        dims = (1,) * (next(iter(errors.values())).ndim - 1)
        return torch.stack([each / floors[name][rows].reshape(-1, *dims) for name, each in errors.items()], -1)

    def loss(rows: Tensor | slice) -> Tensor:
        each = in_floors(rows)
        return nn.functional.smooth_l1_loss(each, torch.zeros_like(each))

    generator = torch.Generator().manual_seed(seed)
    adam = torch.optim.Adam(student.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(adam, RATE, total_steps=num_steps + 1, pct_start=0.1)
    for _ in range(num_steps):
        adam.zero_grad()
        loss(torch.randint(len(x), (BATCH,), generator=generator)).backward()
        adam.step()
        schedule.step()

    def worst() -> float:
        with torch.no_grad():
            each = in_floors(slice(None)).abs()
        return max(float(half.flatten(0, -2).mean(0).max()) for half in (each[:middle], each[middle:]))

    lbfgs = torch.optim.LBFGS(
        student.parameters(), max_iter=ROUND, history_size=20, line_search_fn="strong_wolfe", tolerance_change=0.0
    )

    def closure() -> Tensor:
        lbfgs.zero_grad()
        value = loss(slice(None))
        value.backward()
        return value

    for _ in takewhile(lambda done: done < num_steps // (4 * ROUND) and worst() > GOOD, count()):
        lbfgs.step(closure)
    return worst()
