"""Results of several methods on the same rows: what tables and figures of a report are made from."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import xarray as xr

from bnnzoo.apps.reporting.effects import Effect
from bnnzoo.apps.reporting.scores import Score
from bnnzoo.diagnostics.verdict import Verdict

__all__ = ["Baseline", "Fitted", "Results", "TreeResults"]


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
    def scores(self) -> tuple[Score, ...]: ...
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
    scores: tuple[Score, ...]
    target: str
    classes: tuple[str, ...]
    rows: str
    baselines: tuple[Baseline, ...] = ()
    notes: tuple[str, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
