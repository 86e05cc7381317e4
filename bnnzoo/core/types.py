"""Names for what every part of bnnzoo hands on."""

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["Data", "Model", "Whole"]

type Model = Callable[..., Any]
type Data = tuple[Any, ...]
type Whole = int | np.integer[Any]
"""A whole number, of Python's or of numpy's types."""
