"""How far an approximation is from the posterior, and draws of it reweighted: Pareto-smoothed importance sampling."""

import math
import warnings
from collections.abc import Hashable

import numpy as np
import xarray as xr
from arviz_stats.base.array import array_stats
from numpy.typing import NDArray

from bnnzoo.labelled import SAMPLE_DIMS

__all__ = ["MIN_DRAWS", "PoorApproximationWarning", "psis", "psis_resample"]

MIN_DRAWS = 25  # a fifth of them, at least five, is the tail to which a Pareto distribution is fitted
MAX_GOOD_K = 0.7
ALIKE = 1e-3  # log weights that differ by less have no tail; its shape would be that of rounding errors


class PoorApproximationWarning(UserWarning):
    """The approximation is too far from the posterior for importance weights to mend it."""


def psis(tree: xr.DataTree) -> xr.Dataset:
    r"""Return the importance weights of the draws of an approximation, Pareto-smoothed, and what they say about it.

    .. math:: w_s \propto \frac{p(y, \theta_s)}{q(\theta_s)}, \qquad \theta_s \sim q

    Where q is the posterior all weights are equal. Where it is not, the largest weights follow a generalised Pareto
    distribution, whose shape k says how well weighting can make up for it: weights have finite variance only below
    k = 1/2, a finite mean below 1.

    Parameters
    ----------
    tree : DataTree
        Of a method whose draws have a density, such as VI or Laplace: with ``lp`` and ``log_q`` in ``sample_stats``.
        All chains (restarts) together are draws from the equally weighted mixture, whose density ``log_q`` is.

    Returns
    -------
    Dataset
        ``log_weights`` ``[chain, draw]``, which sum to one when exponentiated; ``pareto_k``, minus infinity
        where all weights agree within a thousandth; ``good_k``, below which
        weighted averages can be trusted, ``min(1 - 1 / log10(S), 0.7)`` for S draws; and ``ess``, the number of
        independent draws of the posterior that the weighted draws are worth.

    Raises
    ------
    ValueError
        If ``lp`` or ``log_q`` is missing or not finite, or there are fewer than 25 draws.

    References
    ----------
    Vehtari, Simpson, Gelman, Yao and Gabry (2024), Pareto smoothed importance sampling, JMLR 25. Yao, Vehtari, Simpson
    and Gelman (2018), Yes, but did it work? Evaluating variational inference, ICML.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian()
    >>> tree = bz.to_datatree(bz.fit(target.model, bz.Laplace(), *target.data, progress=False))
    >>> result = bz.diagnostics.psis(tree)  # Laplace is exact here
    >>> bool(result["pareto_k"] < result["good_k"]), round(float(result["ess"]))
    (True, 1000)
    """
    log_ratios = _log_ratios(tree)
    # ArviZ's psislw takes what loo gives it, log likelihoods of left-out data: the negative of the log ratios.
    log_weights, pareto_k = array_stats.psislw(-log_ratios.to_numpy(), axis=(-2, -1))
    if np.ptp(log_ratios.to_numpy()) < ALIKE:
        pareto_k = -np.inf
    return xr.Dataset(
        {
            "log_weights": log_ratios.copy(data=log_weights),
            "pareto_k": float(pareto_k),
            "good_k": min(1 - 1 / math.log10(log_ratios.size), MAX_GOOD_K),
            "ess": float(1 / np.exp(2 * log_weights).sum()),
        }
    )


def psis_resample(tree: xr.DataTree, num_draws: int | None = None, seed: int = 0) -> xr.DataTree:
    """Return a tree whose draws are resampled by their smoothed importance weights, nearer to the posterior than q.

    Every measure and picture takes the result as it takes any other tree. Draws with large weights occur several
    times; the attribute ``psis_ess`` says how many independent draws they are worth.

    Parameters
    ----------
    tree : DataTree
        As for :func:`psis`; latent values, weights, predictions and moments are all resampled alike.
    num_draws : int, optional
        Number of draws to return, in one chain; as many as there are in all chains unless given.
    seed : int

    Returns
    -------
    DataTree
        Without ``log_q``, for the draws are no longer those of q, and with the attributes ``psis_pareto_k`` and
        ``psis_ess``.

    Raises
    ------
    ValueError
        As for :func:`psis`, or if ``num_draws`` is not positive.

    Warns
    -----
    PoorApproximationWarning
        If ``pareto_k`` is above ``good_k``: what is returned is then still not the posterior.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian(correlation=0.3)
    >>> posterior = bz.fit(target.model, bz.MeanFieldVI(), *target.data, progress=False)
    >>> tree = bz.predict(posterior, *target.data, num_draws=2000)
    >>> dict(bz.diagnostics.psis_resample(tree, num_draws=500)["predictions"].sizes)
    {'chain': 1, 'draw': 500, 'obs_id': 40}
    """
    weights = psis(tree)
    num_draws = weights["log_weights"].size if num_draws is None else num_draws
    if num_draws < 1:
        raise ValueError(f"num_draws={num_draws}; write a positive number.")
    _warn_if_poor(weights)
    places = _stratified(np.exp(weights["log_weights"].to_numpy()).ravel(), num_draws, np.random.default_rng(seed))
    picked = np.divmod(places, weights.sizes["draw"])
    groups = {name: _picked(str(name), group.to_dataset(), *picked) for name, group in tree.children.items()}
    resampled = xr.DataTree.from_dict(groups)
    resampled.attrs = tree.attrs | {"psis_pareto_k": float(weights["pareto_k"]), "psis_ess": float(weights["ess"])}
    return resampled


def _log_ratios(tree: xr.DataTree) -> xr.DataArray:
    """Return log p - log q ``[chain, draw]``."""
    stats = tree["sample_stats"].to_dataset() if "sample_stats" in tree.children else xr.Dataset()
    for name in ("lp", "log_q"):
        if name not in stats:
            raise ValueError(
                f"Importance weights need {name!r} in the group 'sample_stats', which has {_listed(stats)}: take a tree of an "
                f"approximation with a density, such as VI or Laplace. Draws of MCMC need no weights, and resampled "
                f"ones have had theirs."
            )
    ratios = (stats["lp"] - stats["log_q"]).compute().transpose(*SAMPLE_DIMS)
    if ratios.size < MIN_DRAWS:
        raise ValueError(f"Importance weights need {MIN_DRAWS} draws or more, but there are {ratios.size}.")
    if wrong := int((~np.isfinite(ratios)).sum()):
        raise ValueError(f"lp - log_q is not finite in {wrong} of {ratios.size} draws: leave those out, or fit again.")
    return ratios


def _warn_if_poor(weights: xr.Dataset) -> None:
    pareto_k, good_k = float(weights["pareto_k"]), float(weights["good_k"])
    if pareto_k > good_k:
        warnings.warn(
            f"The approximation is too far from the posterior for resampling to mend it: the weights have Pareto k "
            f"{pareto_k:.2f}, above {good_k:.2f}. Take a richer family, such as FullRankVI, or NUTS.",
            PoorApproximationWarning,
            stacklevel=3,
        )


def _stratified(probs: NDArray[np.floating], size: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Draw positions with the given probabilities, each about as often as expected, in an order that means nothing."""
    levels = (np.arange(size) + rng.random(size)) / size
    cumulated = probs.cumsum()
    return rng.permutation(np.searchsorted(cumulated / cumulated[-1], levels))


def _picked(name: str, group: xr.Dataset, chains: NDArray[np.intp], draws: NDArray[np.intp]) -> xr.Dataset:
    """Pick draws of whatever has chain and draw, as one chain."""
    if not {*SAMPLE_DIMS} <= {*group.dims}:
        return group
    if name == "sample_stats":
        group = group.drop_vars("log_q")
    orders: dict[Hashable, tuple[Hashable, ...]] = {key: array.dims for key, array in group.data_vars.items()}
    found = group.isel(chain=xr.DataArray(chains, dims="draw"), draw=xr.DataArray(draws, dims="draw"))
    found = found.drop_vars([*SAMPLE_DIMS], errors="ignore").expand_dims(chain=[0])
    found = found.assign_coords(draw=np.arange(len(draws)))
    return found.assign({key: found[key].transpose(*order) for key, order in orders.items()})


def _listed(stats: xr.Dataset) -> str:
    return ", ".join(map(str, stats.data_vars)) or "nothing"
