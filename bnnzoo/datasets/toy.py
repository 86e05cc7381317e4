"""Simulated data with a known truth, in one or two dimensions so that predictions can be plotted."""

import numpy as np
from sklearn.datasets import make_moons

from bnnzoo.datasets.dataset import Dataset

__all__ = ["gap", "heteroscedastic", "moons", "two_clusters"]


def gap(num_data: int = 100, noise: float = 0.1, seed: int = 0) -> Dataset:
    r"""Noisy sine with no data in the middle: x [N, 1] uniform on [-3, -1] and [1, 3], y [N] real.

    :math:`y = \sin(2 x) + 0.3 x + \epsilon`, :math:`\epsilon \sim N(0, \sigma^2)`. The posterior over functions is wide
    between -1 and 1; mean-field approximations are too narrow there.

    Parameters
    ----------
    num_data : int
        Number of observations N, half of them on each side.
    noise : float
        Noise standard deviation :math:`\sigma`.
    seed : int
        Seed.

    Returns
    -------
    Dataset

    Examples
    --------
    >>> from bnnzoo import datasets
    >>> bool(abs(datasets.gap().x).min() >= 1.0)
    True
    """
    generator = np.random.default_rng(seed)
    side = np.where(np.arange(num_data) % 2 == 0, -1.0, 1.0)
    x = side * generator.uniform(1.0, 3.0, num_data)
    y = np.sin(2 * x) + 0.3 * x + noise * generator.standard_normal(num_data)
    return Dataset("gap", x[:, None], y, ("x",))


def heteroscedastic(num_data: int = 200, seed: int = 0) -> Dataset:
    r"""Heteroscedastic sine, with noise that increases from left to right: x [N, 1] uniform on [-3, 3], y [N] real.

    :math:`y = \sin(2 x) + \sigma(x) \epsilon` with :math:`\sigma(x) = 0.05 + 0.15 (x + 3) / 2` and standard normal
    :math:`\epsilon`.

    Parameters
    ----------
    num_data : int
        Number of observations N.
    seed : int
        Seed.

    Returns
    -------
    Dataset

    Examples
    --------
    >>> from bnnzoo import datasets
    >>> datasets.heteroscedastic(num_data=50).y.shape
    (50,)
    """
    generator = np.random.default_rng(seed)
    x = generator.uniform(-3.0, 3.0, num_data)
    scale = 0.05 + 0.15 * (x + 3) / 2
    return Dataset("heteroscedastic", x[:, None], np.sin(2 * x) + scale * generator.standard_normal(num_data), ("x",))


def two_clusters(num_data: int = 100, noise: float = 0.1, seed: int = 0) -> Dataset:
    r"""Regression in the plane with inputs in two clusters: x [N, 2] around (-1, -1) and (1, 1), y [N] real.

    Inputs have standard deviation 0.1 around their centre; :math:`y = \sin(3 x_1) + x_2^2 + \epsilon` with
    :math:`\epsilon \sim N(0, \sigma^2)`. Half-way between the clusters, predictions depend on the prior only.

    Parameters
    ----------
    num_data : int
        Number of observations N, half of them in each cluster.
    noise : float
        Noise standard deviation :math:`\sigma`.
    seed : int
        Seed.

    Returns
    -------
    Dataset

    References
    ----------
    Foong, Burt, Li, Turner (2020), On the expressiveness of approximate inference in Bayesian neural networks.

    Examples
    --------
    >>> from bnnzoo import datasets
    >>> datasets.two_clusters().x.shape
    (100, 2)
    """
    generator = np.random.default_rng(seed)
    centre = np.where(np.arange(num_data) % 2 == 0, -1.0, 1.0)[:, None]
    x = centre + 0.1 * generator.standard_normal((num_data, 2))
    y = np.sin(3 * x[:, 0]) + x[:, 1] ** 2 + noise * generator.standard_normal(num_data)
    return Dataset("two_clusters", x, y, ("x1", "x2"))


def moons(num_data: int = 200, noise: float = 0.2, seed: int = 0) -> Dataset:
    """Two interleaved half circles: x [N, 2], y [N] label 0 or 1.

    Parameters
    ----------
    num_data : int
        Number of observations N, half of them in each class.
    noise : float
        Standard deviation of the noise added to x.
    seed : int
        Seed.

    Returns
    -------
    Dataset

    Examples
    --------
    >>> from bnnzoo import datasets
    >>> datasets.moons(num_data=50).classes
    ('upper', 'lower')
    """
    x, y = make_moons(num_data, noise=noise, random_state=seed)
    return Dataset("moons", x, y.astype(np.int64), ("x1", "x2"), ("upper", "lower"))
