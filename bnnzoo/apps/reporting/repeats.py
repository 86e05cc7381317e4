"""Scores over repeated splits, with standard errors that allow for the overlap of the training parts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from bnnzoo.apps.reporting.results import Baseline, Fitted
from bnnzoo.apps.reporting.scores import Score
from bnnzoo.apps.tables import Table
from bnnzoo.documents.page import Grid
from bnnzoo.trees.power import detectable_difference

__all__ = ["Repeat", "corrected_error", "repeat_findings", "repeat_grid", "repeats_frame"]

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

    @classmethod
    def of(cls, seed: int, table: Table, everyone: Sequence[Fitted | Baseline]) -> "Repeat":
        """Return the scores of methods and simple models on one split."""
        return cls(seed, len(table.y_train), len(table.y_test), {one.name: one.scores for one in everyone})


def corrected_error(values: ArrayLike, num_train: int, num_test: int) -> float:
    r"""Return the standard error of the mean over random splits of the same rows.

    .. math:: \sqrt{\left(\frac{1}{J} + \frac{n_{test}}{n_{train}}\right) s^2}

    with the variance :math:`s^2` over J splits. The training parts overlap, so that splits are not independent; the usual
    standard error :math:`s / \sqrt{J}` is too small.

    Parameters
    ----------
    values : array_like [J]
    num_train, num_test : int

    References
    ----------
    Nadeau and Bengio (2003), Inference for the generalization error, Machine Learning 52.

    Examples
    --------
    >>> round(corrected_error([1.0, 2.0, 3.0], num_train=80, num_test=20), 4)
    0.7638
    """
    found = np.asarray(values, dtype=float)
    if len(found) < 2:
        return float("nan")
    return float(np.sqrt((1 / len(found) + num_test / num_train) * found.var(ddof=1)))


def repeat_grid(repeats: Sequence[Repeat], scores: Sequence[Score]) -> Grid:
    """Return the mean and the standard error of each score over splits, one row for each method and simple model.

    Parameters
    ----------
    repeats : sequence of Repeat
    scores : sequence of Score
    """
    names = list(repeats[0].scores)
    columns = ("method", *(score.label for score in scores), f"{LOG_DENSITY} vs {names[0]}")
    rows = [
        (
            name,
            *(_shown(_values(repeats, name, score.label), repeats) for score in scores),
            ("reference" if name == next(iter(repeats[0].scores)) else _shown(_gaps(repeats, name), repeats, "+")),
        )
        for name in names
    ]
    seeds = f"{repeats[0].seed} to {repeats[-1].seed}"
    note = (
        f"Mean ± standard error over {len(repeats)} random splits (seeds {seeds}) of {repeats[0].num_train} training and "
        f"{repeats[0].num_test} held-out rows. Training parts overlap; standard errors allow for it (Nadeau and Bengio 2003). "
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
        gaps = _gaps(repeats, name)
        gap, error = float(gaps.mean()), corrected_error(gaps, repeats[0].num_train, repeats[0].num_test)
        if np.isnan(gap):
            continue
        verdict = "no clear difference" if not abs(gap) >= 2 * error else ("better" if gap > 0 else "worse")
        sentences.append(
            f"{name} compared with {first} in log density over {len(repeats)} splits: {verdict} ({gap:+.3f}, standard error "
            f"{error:.3f}; differences from {detectable_difference(error):.2g} on would show)."
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
    error = corrected_error(values, repeats[0].num_train, repeats[0].num_test)
    if np.isnan(mean):
        return "–"
    decimals = min(12, max(0, 1 - int(np.floor(np.log10(error))))) if error > 0 else 3
    return f"{mean:{sign},.{decimals}f} ± {error:,.{decimals}f}"


def _gaps(repeats: Sequence[Repeat], name: str) -> NDArray[np.floating]:
    return _values(repeats, name, LOG_DENSITY) - _values(repeats, next(iter(repeats[0].scores)), LOG_DENSITY)
