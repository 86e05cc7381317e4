"""Simulated data with a known truth, in one or two dimensions so that predictions can be plotted."""

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import make_moons

from bnnzoo.datasets.dataset import Dataset
from bnnzoo.docstrings import with_shared_entries

__all__ = ["binary", "cubic", "gap", "heteroscedastic", "moons", "spiral", "two_clusters"]

TOY = """What every toy data set takes and returns.

Parameters
----------
num_data : int
    Number of observations N.
seed : int
    Seed.

Returns
-------
Dataset

Raises
------
ValueError
    If there are too few observations.
"""


@with_shared_entries(TOY)
def binary(num_data: int = 200, seed: int = 0) -> Dataset:
    """Two classes on a line with a clean part, a gap and an overlap: x [N, 1] in [-6, 6], y [N] label 0 or 1.

    Inputs are uniform on [-6, -2] and [2, 6], half on each side. On the left all labels are 0. On the right they are 1 up to 3.5,
    0 or 1 with equal probability from 3.5 to 4.5, and 0 beyond. Uncertainty is aleatoric in the overlap; it is epistemic from -2
    to 2, where there are no data and the classes on both sides differ.

    Examples
    --------
    >>> from bnnzoo import datasets
    >>> data = datasets.binary()
    >>> bool(data.y[data.x[:, 0] < 0].any())
    False
    """
    _refuse_too_few("binary", num_data, 1)
    generator = np.random.default_rng(seed)
    x = _sides(num_data) * generator.uniform(2.0, 6.0, num_data)
    probability = np.select([x < 0, x < 3.5, x < 4.5], [0.0, 1.0, 0.5], 0.0)
    y = (generator.uniform(size=num_data) < probability).astype(np.int64)
    return Dataset("binary", x[:, None], y, ("x",), ("first", "second"))


@with_shared_entries(TOY)
def cubic(num_data: int = 40, seed: int = 173) -> Dataset:
    r"""Cubic with noise: x [N, 1] uniform on [-4, 4], y [N] real.

    :math:`y = x^3 + \epsilon`, :math:`\epsilon \sim N(0, 3^2)`. By default these are the observations of a course's practical:
    all inputs are drawn first, then all noise, from the generator of numpy's ``RandomState``.

    References
    ----------
    Lakshminarayanan, Pritzel, Blundell (2017), Simple and scalable predictive uncertainty estimation using deep ensembles.

    Examples
    --------
    >>> from bnnzoo import datasets
    >>> datasets.cubic().x.shape
    (40, 1)
    """
    _refuse_too_few("cubic", num_data, 1)
    generator = np.random.RandomState(seed)  # as the practical has it
    x = generator.uniform(-4.0, 4.0, num_data)
    return Dataset("cubic", x[:, None], x**3 + generator.normal(0.0, 3.0, num_data), ("x",))


@with_shared_entries(TOY)
def spiral(num_data: int = 3000, seed: int = 0) -> Dataset:
    r"""Three arms of a spiral: x [N, 2] in the unit disc, y [N] label 0, 1 or 2.

    Along arm j the radius r rises from 0 to 1 and the angle from 8 j to 8 (j + 1), with noise :math:`N(0, 0.3^2 (1 + r)^2)`;
    then :math:`x = (r \sin t, r \cos t)`. By default these are the observations of a course's practical, from the generator
    of numpy's ``RandomState``.

    Parameters
    ----------
    num_data : int
        Number of observations N, a third of them (rounded down) on each arm.

    Examples
    --------
    >>> from bnnzoo import datasets
    >>> datasets.spiral().x.shape
    (3000, 2)
    """
    _refuse_too_few("spiral", num_data, 3)
    generator = np.random.RandomState(seed)  # as the practical has it
    radius = np.linspace(0.0, 1.0, num_data // 3)
    angles = [
        np.linspace(8 * arm, 8 * (arm + 1), len(radius)) + 0.3 * (radius + 1) * generator.randn(len(radius))
        for arm in range(3)
    ]
    x = np.concatenate([np.stack([radius * np.sin(angle), radius * np.cos(angle)], 1) for angle in angles])
    return Dataset("spiral", x, np.repeat(np.arange(3), len(radius)), ("x1", "x2"), ("first", "second", "third"))


@with_shared_entries(TOY)
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

    Examples
    --------
    >>> from bnnzoo import datasets
    >>> bool(abs(datasets.gap().x).min() >= 1.0)
    True
    """
    _refuse_too_few("gap", num_data, 1)
    generator = np.random.default_rng(seed)
    x = _sides(num_data) * generator.uniform(1.0, 3.0, num_data)
    y = np.sin(2 * x) + 0.3 * x + noise * generator.standard_normal(num_data)
    return Dataset("gap", x[:, None], y, ("x",))


@with_shared_entries(TOY)
def heteroscedastic(num_data: int = 200, seed: int = 0) -> Dataset:
    r"""Heteroscedastic sine, with noise that increases from left to right: x [N, 1] uniform on [-3, 3], y [N] real.

    :math:`y = \sin(2 x) + \sigma(x) \epsilon` with :math:`\sigma(x) = 0.05 + 0.15 (x + 3) / 2` and standard normal
    :math:`\epsilon`.

    Examples
    --------
    >>> from bnnzoo import datasets
    >>> datasets.heteroscedastic(num_data=50).y.shape
    (50,)
    """
    _refuse_too_few("heteroscedastic", num_data, 1)
    generator = np.random.default_rng(seed)
    x = generator.uniform(-3.0, 3.0, num_data)
    scale = 0.05 + 0.15 * (x + 3) / 2
    return Dataset("heteroscedastic", x[:, None], np.sin(2 * x) + scale * generator.standard_normal(num_data), ("x",))


@with_shared_entries(TOY)
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

    References
    ----------
    Foong, Burt, Li, Turner (2020), On the expressiveness of approximate inference in Bayesian neural networks.

    Examples
    --------
    >>> from bnnzoo import datasets
    >>> datasets.two_clusters().x.shape
    (100, 2)
    """
    _refuse_too_few("two_clusters", num_data, 1)
    generator = np.random.default_rng(seed)
    centre = _sides(num_data)[:, None]
    x = centre + 0.1 * generator.standard_normal((num_data, 2))
    y = np.sin(3 * x[:, 0]) + x[:, 1] ** 2 + noise * generator.standard_normal(num_data)
    return Dataset("two_clusters", x, y, ("x1", "x2"))


@with_shared_entries(TOY)
def moons(num_data: int = 200, noise: float = 0.2, seed: int = 0) -> Dataset:
    """Two interleaved half circles: x [N, 2], y [N] label 0 or 1.

    Parameters
    ----------
    num_data : int
        Number of observations N, half of them in each class.
    noise : float
        Standard deviation of the noise added to x.

    Examples
    --------
    >>> from bnnzoo import datasets
    >>> datasets.moons(num_data=50).classes
    ('upper', 'lower')
    """
    _refuse_too_few("moons", num_data, 2)
    x, y = make_moons(num_data, noise=noise, random_state=seed)
    return Dataset("moons", x, y.astype(np.int64), ("x1", "x2"), ("upper", "lower"))


def _sides(num_data: int) -> NDArray[np.float64]:
    """Return -1 and 1 in turn, ``[num_data]``."""
    return np.where(np.arange(num_data) % 2 == 0, -1.0, 1.0)


def _refuse_too_few(name: str, num_data: int, least: int) -> None:
    if not num_data >= least:
        raise ValueError(f"{name}(num_data={num_data}): write {least} or more.")
