"""Split-conformal sets of classes, with finite-sample coverage."""

from dataclasses import dataclass
from typing import Self

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from bnnzoo.calibration.conformal import conformal_quantile
from bnnzoo.labelled import Labelled, average_probs, class_indices, observations

__all__ = ["AdaptiveSets", "LeastAmbiguousSets"]

type Array = NDArray[np.floating]


@dataclass(frozen=True)
class LeastAmbiguousSets:
    r"""Sets of all classes with :math:`1 - \bar p_k \le q` (LAC): small on average, and empty where all are improbable.

    Coverage is marginal, over held-out and new rows that are exchangeable; when inputs shift it does not hold.

    Parameters
    ----------
    quantile : float
        q, between 0 and 1, or infinite where there were too few held-out rows for the level.

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
        """Find the quantile of the scores of held-out rows.

        Parameters
        ----------
        data : DataTree, Dataset or DataArray
            With ``probs[chain, draw, obs_id, class_id]`` of rows that the posterior was not fitted to.
        y : DataArray [obs_id], optional
            Observed labels; those of the tree unless given.
        level : float
            Probability with which a set is to hold the label of a new observation.
        """
        probs, labels = _held_out(data, y)
        return cls(conformal_quantile(1 - probs[np.arange(len(labels)), labels], level))

    def sets(self, data: Labelled) -> xr.DataArray:
        """Return whether each class is in the set of each new row, ``[obs_id, class_id]``.

        Parameters
        ----------
        data : DataTree, Dataset or DataArray
            With ``probs[chain, draw, obs_id, class_id]``.
        """
        return (1 - average_probs(data) <= self.quantile).rename("sets")


@dataclass(frozen=True)
class AdaptiveSets:
    r"""Sets that take classes by falling probability until their sum reaches q (APS, and RAPS with a penalty).

    The score of class k is the total probability of the classes before it, plus U times its own for U uniform between 0
    and 1, plus ``penalty`` for each rank beyond ``free_ranks``. The random U makes the coverage exact rather than at
    least the level; the sets are larger for difficult rows.

    Parameters
    ----------
    quantile : float
        q.
    penalty : float
        0 for APS; positive numbers, such as 0.01, make sets of improbable classes smaller (RAPS).
    free_ranks : int
        Number of classes without penalty.

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
        """Find the quantile of the scores of held-out rows.

        Parameters
        ----------
        data, y, level
            As for :meth:`LeastAmbiguousSets.fit`.
        penalty, free_ranks
            As for the class.
        seed : int
            Of the random numbers U.
        """
        if penalty < 0 or free_ranks < 0:
            raise ValueError(f"penalty={penalty} and free_ranks={free_ranks} must not be negative.")
        probs, labels = _held_out(data, y)
        scores = _adaptive_scores(probs, penalty, free_ranks, np.random.default_rng([seed, 0]))
        return cls(conformal_quantile(scores[np.arange(len(labels)), labels], level), penalty, free_ranks)

    def sets(self, data: Labelled, seed: int = 0) -> xr.DataArray:
        """Return whether each class is in the set of each new row, ``[obs_id, class_id]``.

        Parameters
        ----------
        data : DataTree, Dataset or DataArray
            With ``probs[chain, draw, obs_id, class_id]``.
        seed : int
            Of the random numbers U; independent of those of the fit.
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
