"""Names for what every part of bnnzoo hands on."""

from collections.abc import Callable
from typing import Any

__all__ = ["Data", "Model"]

type Model = Callable[..., Any]
type Data = tuple[Any, ...]
