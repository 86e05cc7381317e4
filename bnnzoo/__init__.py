"""Bayesian neural networks in Pyro: write the model once, fit it with any method, get one DataTree for ArviZ."""

from bnnzoo import models
from bnnzoo.models import likelihoods, priors, random_module

__all__ = ["likelihoods", "models", "priors", "random_module"]

__version__ = "0.1.0"
