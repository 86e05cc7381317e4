"""Data of posteriordb that come with the package, and their licence."""

import json
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

__all__ = ["LICENCE_OF_DATA", "NOTICE", "posteriordb_data"]

LICENCE_OF_DATA = "BSD-3-Clause"
"""SPDX identifier."""

NOTICE = "LICENCE.md"
"""Beside the data: the notice that their licence asks for, and where they come from."""


def posteriordb_data(name: str) -> dict[str, NDArray[np.float64]]:
    """Return the arrays of a data file of posteriordb by their names there.

    Parameters
    ----------
    name : str
        One of ``arma``, ``eight_schools``, ``gp_pois_regr`` and ``sblri``.

    Examples
    --------
    >>> posteriordb_data("eight_schools")["sigma"].shape
    (8,)
    """
    found = json.loads((files("bnnzoo.zoo") / "posteriordb" / f"{name}.json").read_text(encoding="utf-8"))
    return {key: np.asarray(value, dtype=float) for key, value in found.items()}
