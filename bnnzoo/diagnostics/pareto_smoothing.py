"""Pareto-smoothed importance sampling (PSIS): how far an approximation is from the posterior, and reweighted draws."""

import math
import warnings
from collections.abc import Hashable

import numpy as np
import xarray as xr
from arviz_stats.base.array import array_stats
from numpy.typing import NDArray

from bnnzoo.trees import SAMPLE_DIMS, refuse_no_count, refuse_parts_of_trees

__all__ = ["MIN_DRAWS", "PoorApproximationWarning", "log_ratios", "psis", "psis_resample", "refuse_infinite"]

SHORTEST_TAIL = 5
MIN_DRAWS = 25  # a fifth of the draws, at least five, is the tail to which a Pareto distribution is fitted
MAX_GOOD_K = 0.7
LARGEST_SPAN = 690.0  # of log weights within double precision
EQUAL_WITHIN = 1e-3  # if log weights differ by less, their tail is rounding error


class PoorApproximationWarning(UserWarning):
    """The approximation is too far from the posterior for importance weights to correct it."""


def psis(tree: xr.DataTree) -> xr.Dataset:
    r"""Return the Pareto-smoothed importance weights of an approximation's draws, and their diagnostics.

    .. math:: w_s \propto \frac{p(y, \theta_s)}{q(\theta_s)}, \qquad \theta_s \sim q

    If q is the posterior, all weights are equal. Otherwise the largest weights follow a generalised Pareto
    distribution, whose shape k says how well weighting can correct q: weights have a finite variance only if k < 1/2, and
    a finite mean only if k < 1.

    Parameters
    ----------
    tree : DataTree
        From a method whose draws have a density, such as VI or Laplace, with ``lp`` and ``log_q`` in ``sample_stats``.
        Chains (restarts) are components of an equally weighted mixture, whose density is ``log_q``.

    Returns
    -------
    Dataset
        ``log_weights`` ``[chain, draw]``, which sum to one when exponentiated; ``pareto_k``, minus infinity
        if all weights agree within a thousandth; ``good_k``, below which weighted averages can be trusted,
        ``min(1 - 1 / log10(S), 0.7)`` for S draws; and ``ess``, the effective sample size of the weighted draws.

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
    ratios = log_ratios(tree)
    log_weights, pareto_k = smoothed_log_weights(ratios.to_numpy(), equal_within=EQUAL_WITHIN)
    return xr.Dataset(
        {
            "log_weights": ratios.copy(data=log_weights),
            "pareto_k": pareto_k,
            "good_k": min(1 - 1 / math.log10(ratios.size), MAX_GOOD_K),
            "ess": float(1 / np.exp(2 * log_weights).sum()),
        }
    )


def smoothed_log_weights(
    log_ratios: NDArray[np.floating], r_eff: float = 1.0, equal_within: float = 0.0
) -> tuple[NDArray[np.floating], float]:
    """Return Pareto-smoothed log weights of all draws, and k-hat.

    Equal ratios have no tail, and k-hat is minus infinity. Where only the largest are equal, no distribution fits the tail:
    the weights stay as they are, and k-hat is infinite. It is, too, where all but a few weights vanish beside the largest.
    """
    if np.ptp(log_ratios) <= equal_within:
        return _normalised(log_ratios), -np.inf
    try:
        # ArviZ's psislw expects log likelihoods of left-out data, the negative of the log ratios.
        log_weights, pareto_k = array_stats.psislw(-log_ratios, r_eff=r_eff, axis=tuple(range(log_ratios.ndim)))
    except ValueError:
        if (log_ratios == log_ratios.max()).sum() < SHORTEST_TAIL:
            raise
        return _normalised(log_ratios), np.inf
    # whether weights vanish beside the largest within the tail: ArviZ's fit to it then is its prior's, near zero
    largest = np.sort(log_ratios, axis=None)[::-1]
    tail = min(0.2 * largest.size, 3 * largest.size**0.5)
    return log_weights, np.inf if bool(largest[0] - largest[int(0.75 * tail)] > LARGEST_SPAN) else float(pareto_k)


def _normalised(log_weights: NDArray[np.floating]) -> NDArray[np.floating]:
    return log_weights - np.logaddexp.reduce(log_weights, axis=None)


def psis_resample(tree: xr.DataTree, num_draws: int | None = None, seed: int = 0) -> xr.DataTree:
    """Return a tree with draws resampled by their smoothed importance weights, closer to the posterior than q.

    The result can be used like any other tree. Draws with large weights occur several times; the attribute ``psis_ess``
    is their effective sample size.

    Parameters
    ----------
    tree : DataTree
        As for :func:`psis`. Latent values, weights, predictions and moments are resampled together.
    num_draws : int, optional
        Number of draws to return, in one chain (default: as many as in all chains).
    seed : int

    Returns
    -------
    DataTree
        Without ``log_q``, since the draws are no longer from q, and with the attributes ``psis_pareto_k`` and
        ``psis_ess``.

    Raises
    ------
    ValueError
        As for :func:`psis`, or if ``num_draws`` is not positive.

    Warns
    -----
    PoorApproximationWarning
        If ``pareto_k`` is above ``good_k``: the result then still differs from the posterior.

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
    refuse_no_count("num_draws", num_draws)
    pareto_k, good_k = float(weights["pareto_k"]), float(weights["good_k"])
    if pareto_k > good_k:
        warnings.warn(
            f"The approximation is too far from the posterior for resampling to correct it: the weights have Pareto k "
            f"{pareto_k:.2f}, above {good_k:.2f}. Use a richer family, such as FullRankVI, or NUTS.",
            PoorApproximationWarning,
            stacklevel=2,
        )
    places = _stratified(np.exp(weights["log_weights"].to_numpy()).ravel(), num_draws, np.random.default_rng(seed))
    picked = np.divmod(places, weights.sizes["draw"])
    groups = {name: _picked(str(name), group.to_dataset(), *picked) for name, group in tree.children.items()}
    resampled = xr.DataTree.from_dict(groups)
    resampled.attrs = tree.attrs | {"psis_pareto_k": float(weights["pareto_k"]), "psis_ess": float(weights["ess"])}
    return resampled


def log_ratios(tree: xr.DataTree, wanted: str = "Importance weights need") -> xr.DataArray:
    """Return log p - log q ``[chain, draw]``; ``wanted`` begins the sentence that refuses a tree without them."""
    refuse_parts_of_trees(tree)
    stats = tree["sample_stats"].to_dataset() if "sample_stats" in tree.children else xr.Dataset()
    if tree.attrs.get("has_atoms") == "yes":
        raise ValueError(
            f"{wanted} a density, and draws of {tree.attrs.get('inference_method', 'dropout')} have none: they "
            f"are point masses, one for each set of units that is dropped."
        )
    for name in ("lp", "log_q"):
        if name not in stats:
            raise ValueError(
                f"{wanted} {name!r} in the group 'sample_stats', which has {', '.join(map(str, stats.data_vars)) or 'nothing'}: "
                f"use a tree of an approximation with a density, such as VI or Laplace. Draws of MCMC and resampled draws need "
                f"no weights."
            )
    ratios = (stats["lp"] - stats["log_q"]).compute().transpose(*SAMPLE_DIMS)
    if ratios.size < MIN_DRAWS:
        raise ValueError(f"{wanted} {MIN_DRAWS} draws or more, but there are {ratios.size}.")
    refuse_infinite(ratios.to_numpy())
    return ratios


def refuse_infinite(ratios: NDArray[np.floating]) -> None:
    """Refuse importance ratios unless all are finite.

    Raises
    ------
    ValueError
        Saying how many are not, and what to do.
    """
    if wrong := int((~np.isfinite(ratios)).sum()):
        raise ValueError(
            f"lp - log_q is not finite in {wrong} of {ratios.size} draws, at which the posterior density is zero or cannot be "
            f"computed: fit with dtype=torch.float64, by a richer family or by NUTS(), or remove these draws."
        )


def _stratified(probs: NDArray[np.floating], size: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Draw positions with the given probabilities by stratified resampling, in random order."""
    levels = (np.arange(size) + rng.random(size)) / size
    cumulated = probs.cumsum()
    return rng.permutation(np.searchsorted(cumulated / cumulated[-1], levels))


def _picked(name: str, group: xr.Dataset, chains: NDArray[np.intp], draws: NDArray[np.intp]) -> xr.Dataset:
    """Select draws of a group that has chains and draws, as one chain."""
    if not {*SAMPLE_DIMS} <= {*group.dims} or name.startswith("prior"):
        return group
    if name == "sample_stats":
        group = group.drop_vars(["log_q", "log_jacobian"], errors="ignore")
    orders: dict[Hashable, tuple[Hashable, ...]] = {key: array.dims for key, array in group.data_vars.items()}
    found = group.isel(chain=xr.DataArray(chains, dims="draw"), draw=xr.DataArray(draws, dims="draw"))
    found = found.drop_vars([*SAMPLE_DIMS], errors="ignore").expand_dims(chain=[0])
    found = found.assign_coords(draw=np.arange(len(draws)))
    return found.assign({key: found[key].transpose(*order) for key, order in orders.items()})
