"""Models: random networks for any Pyro model, priors, likelihoods and the usual supervised model."""

from bnnzoo.models import likelihoods, priors
from bnnzoo.models.networks import mlp
from bnnzoo.models.random_module import random_module
from bnnzoo.models.supervised import supervised

__all__ = ["likelihoods", "mlp", "priors", "random_module", "supervised"]
