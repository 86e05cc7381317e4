"""A model that counts how often Python runs it."""

from typing import Any

from torch import Tensor

__all__ = ["Counting"]


class Counting:
    """A model that counts how often it is called."""

    def __init__(self, model: Any) -> None:
        self.model, self.calls = model, 0

    def __call__(self, *data: Tensor) -> Any:
        self.calls += 1
        return self.model(*data)
