"""Weights of rows, for whatever a likelihood observes."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyro.distributions as dist
from pyro.poutine.messenger import Messenger
from torch import Tensor

from bnnzoo.core.likelihood.weighted import Weighted
from bnnzoo.core.program.sites import is_factor, is_observation
from bnnzoo.models.likelihoods.target import refuse_bad_row_weights

__all__ = ["weighted_rows"]


@contextmanager
def weighted_rows(weights: Tensor) -> Iterator[None]:
    r"""Multiply the log likelihood of each row that is observed within by a weight: :math:`w_n \log p(y_n)`.

    Unlike ``pyro.poutine.scale`` it leaves parameters that are sampled within as they are, and the log likelihood of a row in a
    tree of results includes its weight.

    Parameters
    ----------
    weights : Tensor [N]

    Raises
    ------
    ValueError, TypeError
        If a weight is negative or not finite, or there is not one for each row.
    """
    with _Weighting(weights):
        yield


class _Weighting(Messenger):
    def __init__(self, weights: Tensor) -> None:
        super().__init__()
        self.weights = weights

    def _pyro_sample(self, msg: dict[str, Any]) -> None:
        if not msg["cond_indep_stack"] or not (is_factor(msg) or is_observation(msg)):
            return
        fn = msg["fn"]
        refuse_bad_row_weights("supervised", self.weights, fn.batch_shape[-1] if fn.batch_shape else 0)
        weights = self.weights.to(fn.log_factor.dtype) if is_factor(msg) else self.weights
        msg["fn"] = dist.Unit(weights * fn.log_factor) if is_factor(msg) else Weighted(fn, weights)
