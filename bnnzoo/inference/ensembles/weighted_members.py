"""An ensemble whose members count unequally."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.posterior.guides import guide_of
from bnnzoo.core.posterior.info import FitInfo
from bnnzoo.core.posterior.saving import StoredPosterior
from bnnzoo.core.types import Whole

__all__ = ["WeightedMembers"]

DEFAULT_DRAWS = 100


@dataclass(frozen=True, repr=False)
class WeightedMembers(StoredPosterior):
    """Members of an ensemble with weights: draws are members, each as often as its weight says.

    Attributes
    ----------
    density : LogDensity
    info : FitInfo
    theta : Tensor
        Members ``[M, P]``.
    log_weights : Tensor
        Logarithms ``[M]`` of their weights, up to a constant.
    """

    density: LogDensity
    info: FitInfo
    theta: Tensor
    log_weights: Tensor

    @property
    def weights(self) -> Tensor:
        """Weights ``[M]`` of the members, which sum to one."""
        return self.log_weights.softmax(0)

    def draws(self, num_draws: int | None = None, seed: Whole | None = None) -> Tensor:
        """Return draws ``[1, S, P]``, 100 by default; :meth:`members` says which member each one is.

        Whatever averages over draws averages over the members by their weights, up to the rounding of their numbers.
        """
        return self.theta[self.members(num_draws, seed).to(self.theta.device)]

    def members(self, num_draws: int | None = None, seed: Whole | None = None) -> Tensor:
        r"""Return the number ``[1, S]`` of the member that each draw is: :math:`S w_m` rounded up or down of each, in order.

        The seed does not matter: places :math:`(i + 1/2) / S` are looked up in the cumulated weights.
        """
        num_draws = num_draws or DEFAULT_DRAWS
        bounds = self.weights.cpu().double().cumsum(0)
        places = (torch.arange(num_draws, dtype=torch.float64) + 0.5) / num_draws * bounds[-1]
        return torch.searchsorted(bounds, places).clamp(max=len(bounds) - 1)[None]

    def log_prob(self, theta: Tensor) -> None:
        """Return None: members are points and have no density."""

    def as_guide(self) -> Callable[..., dict[str, Tensor]]:
        """Return a Pyro guide that picks a member at random by its weight, for ``Predictive``; its log density counts as 0."""

        def sample(shape: torch.Size) -> Tensor:
            return self.theta[self.weights.multinomial(max(1, shape.numel()), replacement=True)].reshape(*shape, -1)

        return guide_of(self.density, sample, lambda theta: theta.new_zeros(theta.shape[:-1]))

    def _summary(self) -> list[str]:
        return [f"{len(self.theta)} weighted members"]
