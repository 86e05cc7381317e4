"""Inference methods, each a frozen dataclass of settings, and ``fit``, which takes any of them."""

from bnnzoo.inference.fit import fit
from bnnzoo.inference.map import MAP
from bnnzoo.inference.mean_field_vi import MeanFieldVI

__all__ = ["MAP", "MeanFieldVI", "fit"]
