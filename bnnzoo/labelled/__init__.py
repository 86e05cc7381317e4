"""Reading labelled predictions: what every measure does before it computes anything.

Measures take a DataTree (of bnnzoo or of any other library), its group ``conditional``, or a single DataArray. What
they need is looked up here, so that what is missing is named in one way, and means over draws are taken here, so that
memory is bounded in one way.
"""

from bnnzoo.labelled.alignment import Observed, aligned
from bnnzoo.labelled.blocks import average_probs, draw_means, draw_variance, sum_draws, tiles
from bnnzoo.labelled.entropy import SMALLEST_PROB, entropies, plogp, shannon_entropy, sum_plogp
from bnnzoo.labelled.lookup import (
    SAMPLE_DIMS,
    Labelled,
    class_indices,
    companion,
    first_moment,
    moment,
    num_draws,
    observations,
    require_probs,
    require_several_draws,
)

__all__ = [
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
    "moment",
    "num_draws",
    "observations",
    "plogp",
    "require_probs",
    "require_several_draws",
    "shannon_entropy",
    "sum_draws",
    "sum_plogp",
    "tiles",
]
