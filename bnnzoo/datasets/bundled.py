"""Data sets that are bundled with scikit-learn, so that no download is needed."""

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris, load_wine

from bnnzoo.datasets.dataset import Dataset

__all__ = ["breast_cancer", "diabetes", "digits", "iris", "wine"]


def diabetes() -> Dataset:
    """Disease progression one year after baseline, from ten measurements: x [442, 10], y [442] real.

    Returns
    -------
    Dataset

    References
    ----------
    Efron, Hastie, Johnstone, Tibshirani (2004), Least angle regression.

    Examples
    --------
    >>> from bnnzoo import datasets
    >>> datasets.diabetes().x.shape
    (442, 10)
    """
    found = load_diabetes(scaled=False)
    return Dataset("diabetes", found.data.astype(float), found.target.astype(float), tuple(found.feature_names))


def breast_cancer() -> Dataset:
    """Malignant (0) or benign (1) tumours, from thirty measurements of cell nuclei: x [569, 30], y [569].

    Returns
    -------
    Dataset

    References
    ----------
    Street, Wolberg, Mangasarian (1993), Nuclear feature extraction for breast tumor diagnosis.

    Examples
    --------
    >>> from bnnzoo import datasets
    >>> datasets.breast_cancer().classes
    ('malignant', 'benign')
    """
    return _classes("breast_cancer", load_breast_cancer)


def digits() -> Dataset:
    """Handwritten digits as 8 x 8 pixels of 0 to 16, in reading order: x [1797, 64], y [1797] 0 to 9.

    Returns
    -------
    Dataset

    References
    ----------
    Alpaydin, Kaynak (1998), Cascading classifiers.

    Examples
    --------
    >>> from bnnzoo import datasets
    >>> datasets.digits().x.shape
    (1797, 64)
    """
    return _classes("digits", load_digits)


def iris() -> Dataset:
    """Three species of iris from four lengths and widths in cm: x [150, 4], y [150].

    Returns
    -------
    Dataset

    References
    ----------
    Fisher (1936), The use of multiple measurements in taxonomic problems.

    Examples
    --------
    >>> from bnnzoo import datasets
    >>> datasets.iris().classes
    ('setosa', 'versicolor', 'virginica')
    """
    return _classes("iris", load_iris)


def wine() -> Dataset:
    """Three cultivars of wine from thirteen chemical measurements: x [178, 13], y [178].

    Returns
    -------
    Dataset

    References
    ----------
    Aeberhard, Coomans, de Vel (1994), Comparative analysis of statistical pattern recognition methods in high
    dimensional settings.

    Examples
    --------
    >>> from bnnzoo import datasets
    >>> datasets.wine().x.shape
    (178, 13)
    """
    return _classes("wine", load_wine)


def _classes(name: str, load: Callable[[], Any]) -> Dataset:
    found = load()
    features, classes = (tuple(map(str, names)) for names in (found.feature_names, found.target_names))
    return Dataset(name, found.data.astype(float), found.target.astype(np.int64), features, classes)
