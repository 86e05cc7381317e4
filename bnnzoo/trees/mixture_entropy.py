"""Differential entropy of real predictions: of the mixture over draws, by quadrature with an error estimate."""

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from bnnzoo.trees.lookup import SAMPLE_DIMS, Labelled, moment, refuse_single_draw

__all__ = ["gaussian_mixture_entropy", "laplace_mixture_entropy"]

type Array = NDArray[np.floating]

FIRST_NODES = 256
MAX_BLOCK = 2**20  # components x nodes evaluated together


def gaussian_mixture_entropy(data: Labelled, tolerance: float = 1e-6, max_nodes: int = 2**14) -> xr.Dataset:
    r"""Split the entropy, in nats, of predictions whose likelihood is Gaussian given the parameters.

    The predictive density is the mixture :math:`f = \frac1S \sum_s N(\mu_s, \sigma_s^2)`; total is its differential
    entropy :math:`-\int f \log f`, aleatoric the average :math:`\frac1S \sum_s \frac12 \log 2 \pi e \sigma_s^2`, and
    epistemic their difference, the mutual information between y and the parameters. Unlike a variance, an entropy
    distinguishes two modes from one wide mode.

    Parameters
    ----------
    data : DataTree or Dataset
        With ``mean`` and ``variance``, both ``[chain, draw, obs_id, ...]``, of at least two draws.
    tolerance : float
        In nats: the grid is refined until halving its step changes the entropy by less than this.
    max_nodes : int
        Largest number of nodes.

    Returns
    -------
    Dataset
        ``total``, ``aleatoric``, ``epistemic`` and ``error``, an estimate of the error of total and epistemic, in nats.
        Differential entropies depend on the unit of y: they may be negative, and increase by log c if the unit is c
        times smaller. The epistemic part does not change.

    Raises
    ------
    ValueError
        If there is a single draw, or a variance is not positive and finite.

    References
    ----------
    S. Depeweg et al., Decomposition of uncertainty in Bayesian deep learning, ICML 2018.

    Examples
    --------
    >>> draws = dict(dims=("chain", "draw", "obs_id"))
    >>> group = xr.Dataset({"mean": xr.DataArray([[[-50.0], [50.0]]], **draws),
    ...                     "variance": xr.DataArray([[[1.0], [1.0]]], **draws)})
    >>> float(gaussian_mixture_entropy(group)["epistemic"][0].round(5))  # two modes far apart: log 2
    0.69315
    """
    return _split(data, _Gaussian, tolerance, max_nodes)


def laplace_mixture_entropy(data: Labelled, tolerance: float = 1e-6, max_nodes: int = 2**14) -> xr.Dataset:
    r"""Split the entropy, in nats, of predictions whose likelihood is Laplace given the parameters.

    As :func:`gaussian_mixture_entropy`, with components of scale :math:`b_s = \sqrt{Var_s / 2}` and entropy
    :math:`1 + \log 2 b_s`.

    Parameters
    ----------
    data : DataTree or Dataset
        With ``mean`` and ``variance`` (which is 2 b²), both ``[chain, draw, obs_id, ...]``, of at least two draws.
    tolerance : float
        In nats: the grid is refined until halving its step changes the entropy by less than this.
    max_nodes : int
        Largest number of nodes.

    Returns
    -------
    Dataset
        ``total``, ``aleatoric``, ``epistemic`` and ``error`` in nats.

    Raises
    ------
    ValueError
        If there is a single draw, or a variance is not positive and finite.

    Examples
    --------
    >>> draws = dict(dims=("chain", "draw", "obs_id"))
    >>> group = xr.Dataset({"mean": xr.DataArray([[[0.0], [0.0]]], **draws),
    ...                     "variance": xr.DataArray([[[2.0], [2.0]]], **draws)})
    >>> float(laplace_mixture_entropy(group)["total"][0].round(4))  # 1 + log 2
    1.6931
    """
    return _split(data, _Laplace, tolerance, max_nodes)


class _Gaussian:
    """Standard Gaussian component; its tails are cut off beyond double precision."""

    reach = 9.0

    @staticmethod
    def scale(variance: Array) -> Array:
        return np.sqrt(variance)

    @staticmethod
    def density(z: Array) -> Array:
        return np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)

    @staticmethod
    def entropy(scale: Array) -> Array:
        return 0.5 * (1 + np.log(2 * np.pi)) + np.log(scale)


class _Laplace:
    """Standard Laplace component."""

    reach = 34.0

    @staticmethod
    def scale(variance: Array) -> Array:
        return np.sqrt(variance / 2)

    @staticmethod
    def density(z: Array) -> Array:
        return 0.5 * np.exp(-np.abs(z))

    @staticmethod
    def entropy(scale: Array) -> Array:
        return 1 + np.log(2 * scale)


type _Family = type[_Gaussian] | type[_Laplace]


def _split(data: Labelled, family: _Family, tolerance: float, max_nodes: int) -> xr.Dataset:
    mean, variance = moment(data, "mean"), moment(data, "variance")
    refuse_single_draw(mean, "the entropy of a mixture")
    if not bool(((variance > 0) & np.isfinite(variance)).all()):
        raise ValueError("The entropy of a mixture needs variances that are positive and finite, but some are not.")

    def row(locs: Array, variances: Array) -> tuple[float, float, float]:
        return _entropies(locs.ravel(), family.scale(variances.ravel()), family, tolerance, max_nodes)

    total, aleatoric, error = xr.apply_ufunc(
        row, mean.compute(), variance.compute(), input_core_dims=[SAMPLE_DIMS, SAMPLE_DIMS],
        output_core_dims=[[], [], []], vectorize=True,
    )  # fmt: skip
    parts = {"total": total, "aleatoric": aleatoric, "epistemic": (total - aleatoric).clip(min=0.0), "error": error}
    return xr.Dataset({name: part.assign_attrs(units="nats") for name, part in parts.items()})


def _entropies(
    locs: Array, scales: Array, family: _Family, tolerance: float, max_nodes: int
) -> tuple[float, float, float]:
    """Return the entropy of a mixture, the mean entropy of its components, and an error estimate of the first.

    The trapezoidal rule converges faster than any power of its step if the density is smooth and vanishes at
    both ends. The error includes the mass that the grid misses, since two grids may miss the same narrow component.
    """
    low, high = (locs - family.reach * scales).min(), (locs + family.reach * scales).max()
    count = int(np.clip(2 ** np.ceil(np.log2((high - low) / scales.min())), FIRST_NODES, max_nodes // 2))
    density = _mixture_density(np.linspace(low, high, count + 1), locs, scales, family)
    while True:
        step = (high - low) / count
        middles = low + step * (np.arange(count) + 0.5)
        finer = np.empty(2 * count + 1)
        finer[::2], finer[1::2] = density, _mixture_density(middles, locs, scales, family)
        coarse, fine = (_minus_f_log_f(f) * width for f, width in ((density, step), (finer, step / 2)))
        error = abs(fine - coarse) + abs(1 - finer.sum() * step / 2)
        density, count = finer, 2 * count
        if error < tolerance or count >= max_nodes:
            return float(fine), float(family.entropy(scales).mean()), float(error)


def _minus_f_log_f(density: Array) -> float:
    positive = density[density > 0]
    return -float((positive * np.log(positive)).sum())


def _mixture_density(nodes: Array, locs: Array, scales: Array, family: _Family) -> Array:
    length = max(1, MAX_BLOCK // len(locs))
    blocks = [nodes[start : start + length, None] for start in range(0, len(nodes), length)]
    return np.concatenate([(family.density((block - locs) / scales) / scales).mean(1) for block in blocks])
