"""Reading labelled predictions: the first step of every measure.

Measures take a DataTree (from bnnzoo or any other library), its group ``conditional``, or a single DataArray. This package
looks up what they need, with one error message for what is missing, and computes means over draws in bounded memory.
"""

from bnnzoo.trees.alignment import Observed, aligned
from bnnzoo.trees.argument_kinds import (
    refuse_no_count,
    refuse_no_probability,
    refuse_no_tree,
    refuse_no_trees,
    refuse_other_kind,
    refuse_other_kinds,
    refuse_parts_of_trees,
)
from bnnzoo.trees.block_means import average_probs, draw_means, draw_variance, log_mean_exp, sum_draws, tiles
from bnnzoo.trees.class_entropy import SMALLEST_PROB, entropies, plogp, shannon_entropy, sum_plogp
from bnnzoo.trees.confidence import margin, max_probability
from bnnzoo.trees.lookup import (
    LABELLED_PROBS,
    SAMPLE_DIMS,
    Labelled,
    class_indices,
    companion,
    first_moment,
    moment,
    num_draws,
    observations,
    refuse_bad_probs,
    refuse_single_draw,
)
from bnnzoo.trees.mixture_entropy import gaussian_mixture_entropy, laplace_mixture_entropy

__all__ = [
    "LABELLED_PROBS",
    "SAMPLE_DIMS",
    "SMALLEST_PROB",
    "Labelled",
    "Observed",
    "aligned",
    "average_probs",
    "class_indices",
    "companion",
    "draw_means",
    "draw_variance",
    "entropies",
    "first_moment",
    "gaussian_mixture_entropy",
    "laplace_mixture_entropy",
    "log_mean_exp",
    "margin",
    "max_probability",
    "moment",
    "num_draws",
    "observations",
    "plogp",
    "refuse_bad_probs",
    "refuse_no_count",
    "refuse_no_probability",
    "refuse_no_tree",
    "refuse_no_trees",
    "refuse_other_kind",
    "refuse_other_kinds",
    "refuse_parts_of_trees",
    "refuse_single_draw",
    "shannon_entropy",
    "sum_draws",
    "sum_plogp",
    "tiles",
]
