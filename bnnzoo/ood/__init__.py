"""Out-of-distribution scores from the features of a network."""

from bnnzoo.ood.gaussian_density import GaussianDensity
from bnnzoo.ood.label_regression import GaussianProcess
from bnnzoo.ood.mahalanobis import Mahalanobis, NearestFeatures, sum_of_layers

__all__ = ["GaussianDensity", "GaussianProcess", "Mahalanobis", "NearestFeatures", "sum_of_layers"]
