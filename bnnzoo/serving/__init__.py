"""Serving without draws: one network that stands in for them."""

from bnnzoo.serving.distil import distil
from bnnzoo.serving.distilled import Distilled, InexactStudentWarning

__all__ = ["Distilled", "InexactStudentWarning", "distil"]
