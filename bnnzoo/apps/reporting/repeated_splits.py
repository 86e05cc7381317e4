"""Scores over repeated splits, with standard errors that allow for the overlap of the training parts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bnnzoo.apps.reporting.results import Baseline, Fitted
from bnnzoo.apps.reporting.scores import ScoreColumn
from bnnzoo.apps.tables import Table
from bnnzoo.documents.page import Grid
from bnnzoo.trees.power import PairedComparison, corrected_error

__all__ = ["Repeat", "repeat_findings", "repeat_grid", "repeats_frame"]

LOG_DENSITY = "log density"


@dataclass(frozen=True)
class Repeat:
    """Scores of one split.

    Attributes
    ----------
    seed : int
        Of the split and of all random numbers.
    num_train, num_test : int
    scores : mapping of str to mapping of str to float
        By the name of the method or simple model, and by the label of the score.
    """

    seed: int
    num_train: int
    num_test: int
    scores: Mapping[str, Mapping[str, float]]

    @property
    def overlap(self) -> float:
        """Held-out over training rows, by which splits of the same rows depend on one another."""
        return self.num_test / self.num_train

    @classmethod
    def of(cls, seed: int, table: Table, everyone: Sequence[Fitted | Baseline]) -> "Repeat":
        """Return the scores of methods and simple models on one split."""
        return cls(seed, len(table.y_train), len(table.y_test), {one.name: one.scores for one in everyone})


def repeat_grid(repeats: Sequence[Repeat], scores: Sequence[ScoreColumn]) -> Grid:
    """Return the mean and the standard error of each score over splits, one row for each method and simple model.

    Parameters
    ----------
    repeats : sequence of Repeat
    scores : sequence of ScoreColumn
    """
    names = list(repeats[0].scores)
    columns = ("method", *(score.label for score in scores), f"{LOG_DENSITY} vs {names[0]}")
    rows = []
    for name in names:
        compared = "reference"
        if name != names[0]:
            compared, least = _shown(_gaps(repeats, name), repeats, "+"), _compared(repeats, name).detectable
            compared += "" if np.isnan(least) else f" ({least:.2g})"
        rows.append((name, *(_shown(_values(repeats, name, score.label), repeats) for score in scores), compared))
    seeds = f"{repeats[0].seed} to {repeats[-1].seed}"
    note = (
        f"Mean ± standard error over {len(repeats)} random splits (seeds {seeds}) of {repeats[0].num_train} training and "
        f"{repeats[0].num_test} held-out rows. Training parts overlap; standard errors allow for it (Nadeau and Bengio 2003). "
        "In brackets stands the smallest difference that so many splits show in 80% of comparisons. "
        "Everything else on this page is of the first split."
    )
    return Grid("Repeated splits", note, columns, tuple(rows))


def repeat_findings(repeats: Sequence[Repeat]) -> list[str]:
    """Return a sentence on each method and simple model: its log density against that of the first method; none for no split."""
    if not repeats:
        return []
    first, *others = repeats[0].scores
    sentences = []
    for name in others:
        found = _compared(repeats, name)
        if np.isnan(found.difference):
            continue
        sentences.append(
            f"{name} compared with {first} in log density over {len(repeats)} splits: {found.verdict()} ({found.weighed()})."
        )
    return sentences


def repeats_frame(repeats: Sequence[Repeat]) -> pd.DataFrame:
    """Return all scores as a table: a row for each split and method."""
    return pd.DataFrame(
        [
            {"seed": repeat.seed, "method": name, **scores}
            for repeat in repeats
            for name, scores in repeat.scores.items()
        ]
    )


def _values(repeats: Sequence[Repeat], name: str, label: str) -> NDArray[np.floating]:
    return np.array([repeat.scores[name][label] for repeat in repeats])


def _shown(values: NDArray[np.floating], repeats: Sequence[Repeat], sign: str = "") -> str:
    mean = float(values.mean())
    error = corrected_error(values, repeats[0].overlap)
    if np.isnan(mean):
        return "–"
    decimals = min(12, max(0, 1 - int(np.floor(np.log10(error))))) if error > 0 else 3
    return f"{mean:{sign},.{decimals}f} ± {error:,.{decimals}f}"


def _gaps(repeats: Sequence[Repeat], name: str) -> NDArray[np.floating]:
    return _values(repeats, name, LOG_DENSITY) - _values(repeats, next(iter(repeats[0].scores)), LOG_DENSITY)


def _compared(repeats: Sequence[Repeat], name: str) -> PairedComparison:
    return PairedComparison.of_splits(_gaps(repeats, name), repeats[0].overlap)
