"""Results of several methods on the same rows: what tables and figures of a report are made from."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isnan, nan
from typing import Protocol, runtime_checkable

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from bnnzoo.apps.reporting.scores import ScoreColumn, log_density
from bnnzoo.diagnostics.comparison_verdict import Verdict
from bnnzoo.trees import shannon_entropy
from bnnzoo.trees.power import PairedComparison
from bnnzoo.uncertainty import decompose

__all__ = [
    "Baseline",
    "Effect",
    "Fitted",
    "Parts",
    "Results",
    "TreeResults",
    "all_parts",
    "can_be_split",
    "paired_difference",
    "split",
]

type Array = NDArray[np.floating]


@dataclass(frozen=True)
class Effect:
    """Mean prediction at values of one input, averaged over the other inputs of the training rows.

    Attributes
    ----------
    name : str
        Of the column.
    values : ndarray [G] or tuple of str
        Of the input, in its own units; categories of a column of text.
    mean, low, high : ndarray [K, G]
        Posterior mean and 90% interval of the average prediction: of the target in its units (K = 1), or of the probability
        of each class.
    """

    name: str
    values: Array | tuple[str, ...]
    mean: Array
    low: Array
    high: Array

    @property
    def size(self) -> float:
        """The range of the mean over the values: how much the input matters."""
        return float(np.ptp(self.mean, axis=1).max())


@dataclass(frozen=True)
class Fitted:
    """Results of one method, in the units of the target.

    Attributes
    ----------
    name : str
        As written by the user.
    train, test : DataTree
        From :func:`bnnzoo.posterior_predictive` and :func:`bnnzoo.predict`.
    scores : mapping of str to float
        By the label of the score; NaN where a group is missing.
    worst_rhat, min_ess : float
        Of the predictions; NaN if undefined: R-hat for independent draws, both for fewer than four draws.
    effects : tuple of Effect
        Partial dependence on each input, where the model is at hand.
    """

    name: str
    train: xr.DataTree
    test: xr.DataTree
    scores: Mapping[str, float]
    worst_rhat: float
    min_ess: float
    effects: tuple[Effect, ...] = ()

    @property
    def is_chain(self) -> bool:
        """Tell whether the draws are from Markov chains."""
        return bool(self.test.attrs["sampling"] == "mcmc")

    def stats(self) -> xr.Dataset:
        """Return what the sampler recorded of each draw, nothing if it recorded nothing."""
        return self.train["sample_stats"].to_dataset() if "sample_stats" in self.train.children else xr.Dataset()

    def has(self, *groups: str) -> bool:
        """Tell whether the predictions have all of some groups."""
        return {*groups} <= {*self.test.children}

    def to_tree(self) -> xr.DataTree:
        """Return one tree for saving: that of the training data, with predictions for held-out observations in ``held_out``."""
        tree = self.train.copy()
        kept = ("predictions", "predictions_log_likelihood", "predictions_observed_data", "conditional")
        for group in (*kept, "predictions_constant_data"):
            tree[f"held_out/{group}"] = self.test[group].copy()
        return tree


@dataclass(frozen=True)
class Baseline:
    """Scores of a simple model that scikit-learn fits to the training part.

    Attributes
    ----------
    name : str
    test : DataTree
        Its predictions, as those of a method with a single draw, in the units of the target.
    scores : mapping of str to float
        By the label of the score.
    """

    name: str
    test: xr.DataTree
    scores: Mapping[str, float]


@runtime_checkable
class Results(Protocol):
    """What tables and figures read: the methods, the first of which is the reference, and what they predict.

    ``rows`` names the observations: held-out, new or training. ``classes`` are empty for regression.
    """

    @property
    def fitted(self) -> tuple[Fitted, ...]: ...
    @property
    def scores(self) -> tuple[ScoreColumn, ...]: ...
    @property
    def baselines(self) -> tuple[Baseline, ...]: ...
    @property
    def target(self) -> str: ...
    @property
    def classes(self) -> tuple[str, ...]: ...
    @property
    def rows(self) -> str: ...
    @property
    def verdicts(self) -> tuple[Verdict, ...]: ...


@dataclass(frozen=True)
class TreeResults:
    """Results read from trees, by whichever library they were made.

    Attributes
    ----------
    fitted, scores, baselines, target, classes, rows
        See :class:`Results`.
    notes : tuple of str
        What was left out or replaced, one sentence each.
    verdicts : tuple of Verdict
        On each method but the first.
    """

    fitted: tuple[Fitted, ...]
    scores: tuple[ScoreColumn, ...]
    target: str
    classes: tuple[str, ...]
    rows: str
    baselines: tuple[Baseline, ...] = ()
    notes: tuple[str, ...] = ()
    verdicts: tuple[Verdict, ...] = ()


@dataclass(frozen=True)
class Parts:
    """Aleatoric and epistemic uncertainty [N]: variances for regression, entropies in nats for classification."""

    aleatoric: NDArray[np.floating]
    epistemic: NDArray[np.floating]


def all_parts(results: Results) -> dict[str, Parts]:
    """Return the split of each method that can be split, by name."""
    return {one.name: split(one.test) for one in results.fitted if can_be_split(one.test)}


def can_be_split(tree: xr.DataTree) -> bool:
    """Tell whether a tree has the moments that a split needs."""
    names = {*tree["conditional"].data_vars} if "conditional" in tree.children else set()
    return "probs" in names or {"mean", "variance"} <= names


def split(tree: xr.DataTree) -> Parts:
    """Return the split of a tree of predictions."""
    given = tree["conditional"].to_dataset()
    if given.sizes["chain"] * given.sizes["draw"] == 1:  # a point estimate has no epistemic uncertainty
        noise = shannon_entropy(given["probs"]) if "probs" in given else given["variance"]
        values = noise.isel(chain=0, draw=0).to_numpy()
        return Parts(values, np.zeros_like(values))
    parts = decompose(tree)
    return Parts(parts["aleatoric"].to_numpy(), parts["epistemic"].to_numpy())


def paired_difference(fitted: Fitted | Baseline, reference: Fitted | Baseline) -> PairedComparison:
    """Return the mean difference of two log densities of the same rows, with its power; NaN where one is missing."""
    if any(isnan(one.scores["log density"]) for one in (fitted, reference)):
        return PairedComparison(nan, nan, 0)
    return PairedComparison.of_rows(log_density(fitted.test) - log_density(reference.test))
