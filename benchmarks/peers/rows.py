"""The rows of airfoil self-noise and bike sharing, with the target last, for scripts with bnnzoo and without."""

from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

__all__ = ["FILES", "rows_of"]

FILES = {"airfoil": "airfoil.csv", "bike": "bike/hour.csv"}
LEFT_OUT = {"airfoil": [], "bike": ["casual", "registered", "instant", "dteday"]}


def rows_of(table: str, folder: Path) -> NDArray[np.floating]:
    """Return the rows of "airfoil" or "bike" as numbers."""
    return pd.read_csv(folder / FILES[table]).drop(columns=LEFT_OUT[table]).to_numpy(float)
