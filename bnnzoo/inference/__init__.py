"""Inference methods, each a frozen dataclass of settings, and ``fit``, which takes any of them."""

from bnnzoo.inference.fit import fit
from bnnzoo.inference.laplace import Laplace, log_marginal_likelihood
from bnnzoo.inference.map import MAP
from bnnzoo.inference.mean_field_vi import MeanFieldVI
from bnnzoo.inference.svi import SVI

__all__ = ["MAP", "SVI", "Laplace", "MeanFieldVI", "fit", "log_marginal_likelihood"]
