"""Every method of bnnzoo as a scikit-learn estimator."""

from bnnzoo.sklearn.classifier import BNNClassifier
from bnnzoo.sklearn.regressor import BNNRegressor

__all__ = ["BNNClassifier", "BNNRegressor"]
