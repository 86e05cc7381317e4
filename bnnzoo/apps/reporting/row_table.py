"""Held-out predictions as a table, one row per observation."""

import numpy as np
import pandas as pd

from bnnzoo.apps.reporting.comparison import Comparison
from bnnzoo.apps.reporting.scores import class_probabilities, interval, log_density, observed

__all__ = ["predictions_frame"]


def predictions_frame(comparison: Comparison) -> pd.DataFrame:
    """Return the number of each held-out row, its observation, and each method's prediction, in the units of the target.

    Columns of a method ``m``: for regression ``m.mean``, ``m.sd``, ``m.lower_90``, ``m.upper_90``; for classification
    ``m.predicted`` and the probability ``m.p(c)`` of each class c; for both ``m.log_density`` of the observation.
    """
    table = comparison.table
    y = observed(comparison.fitted[0].test)
    labels = np.asarray(table.classes)
    columns = {"row": table.test_rows, table.target: labels[y.astype(int)] if table.classes else y}
    for fitted in comparison.fitted:
        if table.classes:
            probs = class_probabilities(fitted.test)
            columns[f"{fitted.name}.predicted"] = labels[probs.argmax(-1)]
            columns |= {f"{fitted.name}.p({name})": probs[:, k] for k, name in enumerate(table.classes)}
        else:
            moments = fitted.test["conditional"].to_dataset()
            mean, draws = moments["mean"], ("chain", "draw")
            lower, upper = interval(fitted.test)
            columns[f"{fitted.name}.mean"] = mean.mean(draws).to_numpy()
            columns[f"{fitted.name}.sd"] = (moments["variance"].mean(draws) + mean.var(draws)).to_numpy() ** 0.5
            columns |= {f"{fitted.name}.lower_90": lower, f"{fitted.name}.upper_90": upper}
        columns[f"{fitted.name}.log_density"] = log_density(fitted.test)
    return pd.DataFrame(columns)
