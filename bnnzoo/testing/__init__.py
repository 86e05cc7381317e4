"""The public conformance suite: run it on models, methods and measures of your own."""

from bnnzoo.testing.check_measure import check_measure, example_tree
from bnnzoo.testing.check_method import check_method
from bnnzoo.testing.check_model import check_model
from bnnzoo.testing.dropout_target import dropout_network
from bnnzoo.testing.isolation import leaves_no_trace
from bnnzoo.testing.monte_carlo import check_moments
from bnnzoo.testing.targets import (
    LinearGaussian,
    Target,
    banana,
    funnel,
    ill_conditioned,
    linear_gaussian,
    linear_network,
    skewed,
)

__all__ = [
    "LinearGaussian",
    "Target",
    "banana",
    "check_measure",
    "check_method",
    "check_model",
    "check_moments",
    "dropout_network",
    "example_tree",
    "funnel",
    "ill_conditioned",
    "leaves_no_trace",
    "linear_gaussian",
    "linear_network",
    "skewed",
]
