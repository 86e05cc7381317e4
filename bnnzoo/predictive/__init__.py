"""Predictions as labelled arrays: the border where torch ends and xarray begins."""

from bnnzoo.predictive.features import features
from bnnzoo.predictive.linearized import function_moments, row_density
from bnnzoo.predictive.marginal import marginal_predictive
from bnnzoo.predictive.measure_predictions import measure_predictions
from bnnzoo.predictive.predict import posterior_predictive, predict, to_datatree
from bnnzoo.predictive.prior_draws import prior_predictive
from bnnzoo.predictive.save_tree import save_tree

__all__ = [
    "features",
    "function_moments",
    "marginal_predictive",
    "measure_predictions",
    "posterior_predictive",
    "predict",
    "prior_predictive",
    "row_density",
    "save_tree",
    "to_datatree",
]
