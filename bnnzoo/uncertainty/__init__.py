"""Total, aleatoric and epistemic uncertainty of predictions, from moments of p(y | x, theta) for each draw."""

from bnnzoo.trees import (
    entropies,
    gaussian_mixture_entropy,
    laplace_mixture_entropy,
    margin,
    max_probability,
    shannon_entropy,
)
from bnnzoo.uncertainty.credal import probability_bounds
from bnnzoo.uncertainty.decompose import decompose
from bnnzoo.uncertainty.decompose_evidential import (
    decompose_dirichlet,
    decompose_dirichlet_ensemble,
    decompose_normal_inverse_gamma,
    decompose_normal_inverse_gamma_ensemble,
)
from bnnzoo.uncertainty.disagreement import expected_disagreement, variation_ratio, votes
from bnnzoo.uncertainty.disentanglement import rank_correlation
from bnnzoo.uncertainty.entropy import (
    expected_entropy,
    jensen_shannon,
    mutual_information,
    pairwise_kl,
    predictive_entropy,
)
from bnnzoo.uncertainty.logits import logit_disagreement, max_expected_logit
from bnnzoo.uncertainty.summarise import summarise
from bnnzoo.uncertainty.variance import aleatoric_variance, epistemic_variance, total_variance

__all__ = [
    "aleatoric_variance",
    "decompose",
    "decompose_dirichlet",
    "decompose_dirichlet_ensemble",
    "decompose_normal_inverse_gamma",
    "decompose_normal_inverse_gamma_ensemble",
    "entropies",
    "epistemic_variance",
    "expected_disagreement",
    "expected_entropy",
    "gaussian_mixture_entropy",
    "jensen_shannon",
    "laplace_mixture_entropy",
    "logit_disagreement",
    "margin",
    "max_expected_logit",
    "max_probability",
    "mutual_information",
    "pairwise_kl",
    "predictive_entropy",
    "probability_bounds",
    "rank_correlation",
    "shannon_entropy",
    "summarise",
    "total_variance",
    "variation_ratio",
    "votes",
]
