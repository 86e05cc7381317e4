"""Predictions as labelled arrays: the border where torch ends and xarray begins."""

from bnnzoo.predictive.features import features
from bnnzoo.predictive.predict import posterior_predictive, predict, prior_predictive, to_datatree

__all__ = ["features", "posterior_predictive", "predict", "prior_predictive", "to_datatree"]
