"""Round trips: states on their way from the prior to the posterior and back."""

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["RoundTrips"]

UP, DOWN = 1, 2


class RoundTrips(NamedTuple):
    """Where the states of ladders ``[L]`` of K temperatures are, and where they have been.

    Attributes
    ----------
    states : Tensor
        Number ``[L, K]`` of the state at each temperature.
    ways : Tensor
        Of each state ``[L, K]``: 1 if it was at the prior last, 2 if it has been at the posterior since, 0 before.
    round_trips : Tensor
        How often ``[L]`` a state came back to the prior from the posterior.
    """

    states: Tensor
    ways: Tensor
    round_trips: Tensor

    @classmethod
    def of(cls, num_ladders: int, num_temperatures: int) -> "RoundTrips":
        """Return states that have not moved."""
        states = torch.arange(num_temperatures).repeat(num_ladders, 1)
        return cls(states, torch.zeros_like(states), torch.zeros_like(states[:, 0]))

    def followed(self, places: Tensor, *, counts: bool) -> "RoundTrips":
        """Return where states are after an exchange, after which temperatures have the states of ``places[L, K]``.

        Examples
        --------
        >>> there, back = torch.tensor([[1, 0]]), torch.tensor([[1, 0]])
        >>> trips = RoundTrips.of(1, 2).followed(torch.tensor([[0, 1]]), counts=True)
        >>> trips.followed(there, counts=True).followed(back, counts=True).round_trips
        tensor([1])
        """
        states = self.states.take_along_dim(places, 1)
        first, last = states[:, :1], states[:, -1:]
        returned = self.ways.take_along_dim(first, 1)[:, 0] == DOWN
        ways = self.ways.scatter(1, first, UP)
        at_end = ways.take_along_dim(last, 1)
        ways = ways.scatter(1, last, torch.where(at_end == UP, DOWN, at_end))
        return RoundTrips(states, ways, self.round_trips + returned if counts else self.round_trips)
