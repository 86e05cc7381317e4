"""The settings that all variational methods share."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor

from bnnzoo.core.method import Declared, Need
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.settings import Count, NonNegative, Positive, Range
from bnnzoo.inference.optimise.schedules import ScheduleName
from bnnzoo.inference.starts import Start
from bnnzoo.inference.variational.elbo import Bound, PathwiseBound, Reparametrised, VariationalFamily

__all__ = ["BoundSettings", "Keep", "VISettings", "annealed", "pass_weights"]

DEFAULT_SCALE = 0.1

type Keep = Literal["all", "best"]
type KLWeighting = Literal["uniform", "geometric"]


@dataclass(frozen=True, kw_only=True)
class BoundSettings(ABC, Declared):
    """How a bound is maximised, whatever the family.

    :class:`bnnzoo.inference.MeanFieldVI` explains each setting.
    """

    num_steps: Count | None = 2000
    num_particles: Count = 8
    learning_rate: Positive = 0.03
    schedule: ScheduleName = "cosine"
    batch_size: Count | None = None
    num_averaged: Count | None = None
    tolerance: NonNegative | None = None
    num_restarts: Count = 1
    keep: Keep = "all"
    kl_annealing: Annotated[float, Range(0, 0.3)] = 0.0
    kl_weighting: KLWeighting = "uniform"
    init: Start = None

    needs: ClassVar[frozenset[Need]] = frozenset()
    parts: ClassVar[str | None] = "num_restarts"
    in_batches: ClassVar[Mapping[str, object] | None] = {}
    default_steps: ClassVar[int] = 2000

    @property
    def window(self) -> int:
        """Number of last iterates in the mean; while the learning rate falls, the last fifth hardly moves.

        Raises
        ------
        ValueError
            If there are fewer steps.
        """
        window = max(1, self.steps // 5) if self.num_averaged is None else self.num_averaged
        if window > self.steps:
            raise ValueError(f"num_averaged={window}: write 1 to num_steps={self.steps}.")
        return window

    @property
    def steps(self) -> int:
        """Number of steps of one search."""
        return self.default_steps if self.num_steps is None else self.num_steps

    def kl_weights(self, num_data: int) -> Tensor | None:
        """Return the weight of the divergence at each step ``[num_steps]``; None for 1 throughout.

        Raises
        ------
        ValueError
            If weights within a pass are asked for without mini-batches.
        """
        rising = annealed(self.steps, self.kl_annealing) if self.kl_annealing else None
        if self.kl_weighting == "uniform":
            return rising
        if self.batch_size is None:
            raise ValueError(
                'kl_weighting="geometric" weights the mini-batches of a pass, and batch_size is None: write batch_size=128, or '
                'kl_weighting="uniform".'
            )
        within = pass_weights(max(1, num_data // self.batch_size))
        repeated = within.repeat(-(-self.steps // len(within)))[: self.steps]
        return repeated if rising is None else repeated * rising

    @property
    def entropy_weight(self) -> float:
        """How much the entropy counts; 1 approximates the posterior."""
        return 1.0

    @property
    def start_scale(self) -> float:
        """Initial spread of the family, for those that have one."""
        return 1.0

    @abstractmethod
    def bound(self, density: LogDensity, family: Reparametrised) -> Bound:
        """Return how the bound is estimated."""


@dataclass(frozen=True, kw_only=True)
class VISettings(BoundSettings):
    """How the evidence lower bound of a family with a density is maximised.

    :class:`bnnzoo.inference.MeanFieldVI` explains each setting.
    """

    num_steps: Count | None = None
    temperature: Positive = 1.0
    init_scale: Positive | None = None

    by_density: ClassVar[bool] = True

    @property
    def entropy_weight(self) -> float:
        """The temperature."""
        return self.temperature

    @property
    def start_scale(self) -> float:
        """The initial standard deviation in unconstrained space; there are no others where curvature says nothing."""
        return DEFAULT_SCALE if self.init_scale is None else self.init_scale

    def bound(self, density: LogDensity, family: Reparametrised) -> Bound:
        """Return how the bound is estimated; default: from reparametrised draws alone."""
        assert isinstance(family, VariationalFamily)
        return PathwiseBound(density, family)


def annealed(num_steps: int, fraction: float) -> Tensor:
    """Return weights ``[num_steps]`` of the divergence that average to one.

    They rise from 0 over a fraction of the steps, are somewhat above 1 in the middle to make up for it, and exactly 1
    in the second half, so that the result maximises the bound itself.

    Raises
    ------
    ValueError
        If the fraction is out of range.

    Examples
    --------
    >>> annealed(10, 0.2)
    tensor([0.2500, 0.7500, 1.3333, 1.3333, 1.3333, 1.0000, 1.0000, 1.0000, 1.0000,
            1.0000])
    """
    num_rising, num_last = round(fraction * num_steps), num_steps // 2
    num_middle = num_steps - num_rising - num_last
    if num_rising < 1 or num_middle < 1:
        raise ValueError(
            f"kl_annealing={fraction} of num_steps={num_steps}: write a fraction of the steps up to 0.3, such as 0.2, or 0 "
            f"for no annealing."
        )
    rise = (torch.arange(num_rising) + 0.5) / num_rising
    level = (num_steps - num_last - float(rise.sum())) / num_middle
    return torch.cat([rise, torch.full((num_middle,), level), torch.ones(num_last)])


def pass_weights(num_batches: int) -> Tensor:
    r"""Return the weights ``[M]`` of the divergence within one pass over the data, heavy first and light last.

    .. math:: w_i = M \frac{2^{M - i}}{2^M - 1}, \qquad i = 1, \dots, M

    They average to one, so that a pass as a whole weights the divergence as the bound does. The first batches are fitted close to
    the prior; the last ones see little of it.

    References
    ----------
    Blundell, Cornebise, Kavukcuoglu and Wierstra (2015), Weight uncertainty in neural networks, ICML, section 3.4.

    Examples
    --------
    >>> pass_weights(3)
    tensor([1.7143, 0.8571, 0.4286], dtype=torch.float64)
    """
    halves = torch.pow(torch.tensor(0.5, dtype=torch.float64), torch.arange(1, num_batches + 1))
    return num_batches * halves / halves.sum()
