"""Quality of predictions: proper scores, calibration, recalibration, conformal prediction, error detection and error analysis."""

from bnnzoo.calibration.auroc import aupr, auroc, bootstrap, fpr_at_95, misclassified, versus
from bnnzoo.calibration.classification import accuracy, class_scores, confusion_matrix, rank_errors
from bnnzoo.calibration.conformal import (
    AbsoluteResidual,
    ConformalizedQuantiles,
    NormalizedResidual,
    conformal_quantile,
)
from bnnzoo.calibration.conformal_sets import AdaptiveSets, LeastAmbiguousSets
from bnnzoo.calibration.coverage import coverage_curve, miscalibration_area, pit, sharpness
from bnnzoo.calibration.ece import classwise_ece, ece, reliability_curve
from bnnzoo.calibration.predictive_check import predictive_check
from bnnzoo.calibration.proper_scores import brier, brier_split, nll, nll_of_probs
from bnnzoo.calibration.real_scores import crps, energy_score, interval_score
from bnnzoo.calibration.recalibration import Isotonic, Platt, Temperature, VectorScaling
from bnnzoo.calibration.selective import aurc, risk_coverage_curve, risk_threshold

__all__ = [
    "AbsoluteResidual",
    "AdaptiveSets",
    "ConformalizedQuantiles",
    "Isotonic",
    "LeastAmbiguousSets",
    "NormalizedResidual",
    "Platt",
    "Temperature",
    "VectorScaling",
    "accuracy",
    "aupr",
    "aurc",
    "auroc",
    "bootstrap",
    "brier",
    "brier_split",
    "class_scores",
    "classwise_ece",
    "conformal_quantile",
    "confusion_matrix",
    "coverage_curve",
    "crps",
    "ece",
    "energy_score",
    "fpr_at_95",
    "interval_score",
    "miscalibration_area",
    "misclassified",
    "nll",
    "nll_of_probs",
    "pit",
    "predictive_check",
    "rank_errors",
    "reliability_curve",
    "risk_coverage_curve",
    "risk_threshold",
    "sharpness",
    "versus",
]
