"""Models: networks with random weights for any Pyro model, priors, likelihoods and the standard supervised model."""

from bnnzoo.models import likelihoods, priors
from bnnzoo.models.evidential import dirichlet_evidence, normal_inverse_gamma_evidence
from bnnzoo.models.flat_priors import flat_priors
from bnnzoo.models.gaussian_process import gaussian_process
from bnnzoo.models.lora import adapter_state, lora
from bnnzoo.models.networks import convnet, mlp
from bnnzoo.models.random_module import random_module
from bnnzoo.models.sparse_gaussian_process import inducing_points
from bnnzoo.models.spectral import SpectralLinear, residual_mlp
from bnnzoo.models.supervised import supervised

__all__ = [
    "SpectralLinear",
    "adapter_state",
    "convnet",
    "dirichlet_evidence",
    "flat_priors",
    "gaussian_process",
    "inducing_points",
    "likelihoods",
    "lora",
    "mlp",
    "normal_inverse_gamma_evidence",
    "priors",
    "random_module",
    "residual_mlp",
    "supervised",
]
