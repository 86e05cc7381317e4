"""Out-of-distribution scores from the features of a network."""

from bnnzoo.ood.gaussian_density import GaussianDensity
from bnnzoo.ood.gaussian_process_score import GaussianProcessScore
from bnnzoo.ood.mahalanobis import Mahalanobis, NearestFeatures, sum_of_layers

__all__ = ["GaussianDensity", "GaussianProcessScore", "Mahalanobis", "NearestFeatures", "sum_of_layers"]
