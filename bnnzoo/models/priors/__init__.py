"""Priors over the parameters of a network.

A prior is a callable ``prior(site_name, parameter, fan_in) -> Distribution``. `bnnzoo.random_module` calls it once per
parameter, inside the model, so it may sample hyperparameters with `pyro.sample`, at sites such as
``f"{site_name}.scale"``.
"""

from bnnzoo.models.priors.by_parameter import ByParameter, by_parameter
from bnnzoo.models.priors.fixed import fan_in, laplace, normal, student_t
from bnnzoo.models.priors.hierarchical import ard, gamma_precision, horseshoe, layerwise
from bnnzoo.models.priors.prior import Prior

__all__ = [
    "ByParameter",
    "Prior",
    "ard",
    "by_parameter",
    "fan_in",
    "gamma_precision",
    "horseshoe",
    "laplace",
    "layerwise",
    "normal",
    "student_t",
]
