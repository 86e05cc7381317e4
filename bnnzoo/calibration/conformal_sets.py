"""Split-conformal sets of classes, with finite-sample coverage."""

from dataclasses import dataclass
from typing import Self

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from bnnzoo.calibration.conformal import conformal_quantile
from bnnzoo.trees import Labelled, average_probs, class_indices, observations

__all__ = ["AdaptiveSets", "LeastAmbiguousSets"]

type Array = NDArray[np.floating]


@dataclass(frozen=True)
class LeastAmbiguousSets:
    r"""Sets of all classes with :math:`1 - \bar p_k \le q` (LAC): small on average, but possibly empty.

    Coverage is marginal, and holds if held-out and new observations are exchangeable; it is lost under covariate shift.

    Parameters
    ----------
    quantile : float
        q, between 0 and 1, or infinite if there were too few held-out observations for the level.

    References
    ----------
    M. Sadinle, J. Lei, L. Wasserman, Least ambiguous set-valued classifiers with bounded error levels, JASA, 2019.

    Examples
    --------
    >>> from bnnzoo.testing import example_tree
    >>> held_out = example_tree("classification", num_rows=40)
    >>> LeastAmbiguousSets.fit(held_out, level=0.8).sets(held_out).dims
    ('obs_id', 'class_id')
    """

    quantile: float

    @classmethod
    def fit(cls, data: Labelled, y: xr.DataArray | None = None, *, level: float) -> Self:
        """Compute the quantile of the scores of held-out observations.

        Parameters
        ----------
        data : DataTree, Dataset or DataArray
            With ``probs[chain, draw, obs_id, class_id]`` of observations that the posterior was not fitted to.
        y : DataArray [obs_id], optional
            Observed labels (default: those of the tree).
        level : float
            Probability that a set contains the label of a new observation.
        """
        probs, labels = _held_out(data, y)
        return cls(conformal_quantile(1 - probs[np.arange(len(labels)), labels], level))

    def sets(self, data: Labelled) -> xr.DataArray:
        """Return whether each class is in the set of each new observation, ``[obs_id, class_id]``.

        Parameters
        ----------
        data : DataTree, Dataset or DataArray
            With ``probs[chain, draw, obs_id, class_id]``.
        """
        return (1 - average_probs(data) <= self.quantile).rename("sets")


@dataclass(frozen=True)
class AdaptiveSets:
    r"""Sets that add classes in decreasing order of probability until their sum reaches q (APS; RAPS with a penalty).

    The score of class k is the total probability of more probable classes, plus U times its own for uniform U, plus
    ``penalty`` for each rank beyond ``free_ranks``. With the random U, coverage is exact instead of at least the level. Sets
    are larger for difficult observations.

    Parameters
    ----------
    quantile : float
        q.
    penalty : float
        0 for APS; positive values, such as 0.01, exclude improbable classes (RAPS).
    free_ranks : int
        Number of ranks without penalty.

    References
    ----------
    Y. Romano, M. Sesia, E. Candès, Classification with valid and adaptive coverage, NeurIPS 2020;
    A. Angelopoulos et al., Uncertainty sets for image classifiers using conformal prediction, ICLR 2021.

    Examples
    --------
    >>> from bnnzoo.testing import example_tree
    >>> held_out = example_tree("classification", num_rows=40)
    >>> AdaptiveSets.fit(held_out, level=0.8, penalty=0.01).sets(held_out).dims
    ('obs_id', 'class_id')
    """

    quantile: float
    penalty: float = 0.0
    free_ranks: int = 1

    @classmethod
    def fit(
        cls,
        data: Labelled,
        y: xr.DataArray | None = None,
        *,
        level: float,
        penalty: float = 0.0,
        free_ranks: int = 1,
        seed: int = 0,
    ) -> Self:
        """Compute the quantile of the scores of held-out observations.

        Parameters
        ----------
        data, y, level
            As for :meth:`LeastAmbiguousSets.fit`.
        penalty, free_ranks
            As for the class.
        seed : int
            Seed of the random numbers U.
        """
        if penalty < 0 or free_ranks < 0:
            raise ValueError(f"penalty={penalty} and free_ranks={free_ranks} must not be negative.")
        probs, labels = _held_out(data, y)
        scores = _adaptive_scores(probs, penalty, free_ranks, np.random.default_rng([seed, 0]))
        return cls(conformal_quantile(scores[np.arange(len(labels)), labels], level), penalty, free_ranks)

    def sets(self, data: Labelled, seed: int = 0) -> xr.DataArray:
        """Return whether each class is in the set of each new observation, ``[obs_id, class_id]``.

        Parameters
        ----------
        data : DataTree, Dataset or DataArray
            With ``probs[chain, draw, obs_id, class_id]``.
        seed : int
            Seed of the random numbers U, which are independent of those of the fit.
        """
        probs = average_probs(data)
        rng = np.random.default_rng([seed, 1])
        scores = _adaptive_scores(probs.to_numpy(), self.penalty, self.free_ranks, rng)
        return probs.copy(data=scores <= self.quantile).rename("sets")


def _held_out(data: Labelled, y: xr.DataArray | None) -> tuple[Array, NDArray[np.integer]]:
    probs = average_probs(data)
    return probs.to_numpy(), class_indices(observations(data, y), probs).to_numpy()


def _adaptive_scores(probs: Array, penalty: float, free_ranks: int, rng: np.random.Generator) -> Array:
    order = np.argsort(-probs, axis=-1, kind="stable")
    falling = np.take_along_axis(probs, order, axis=-1)
    ranks = np.arange(1, probs.shape[-1] + 1)
    uniform = rng.random((*probs.shape[:-1], 1))
    sorted_scores = falling.cumsum(-1) - falling * (1 - uniform) + penalty * np.maximum(ranks - free_ranks, 0)
    scores = np.empty_like(sorted_scores)
    np.put_along_axis(scores, order, sorted_scores, axis=-1)
    return scores
