"""Methods on splits of the UCI benchmark, in processes or on any executor, with results on disk after each fit."""

import json
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bnnzoo.apps.benchmarking.sources import BenchmarkError, local_split, openml_split
from bnnzoo.calibration import coverage_curve, miscalibration_area, nll
from bnnzoo.core.executors import as_ready
from bnnzoo.core.fit_warnings import FitWarning
from bnnzoo.core.method import Method
from bnnzoo.datasets import Split
from bnnzoo.diagnostics import function_space
from bnnzoo.engine.cores import num_cores
from bnnzoo.engine.files import whole_file
from bnnzoo.engine.shares import Share, file_of, parts_in, refuse_missing
from bnnzoo.inference import fit
from bnnzoo.inference.config import settings_as_json
from bnnzoo.models import likelihoods, mlp, priors, supervised
from bnnzoo.predictive import predict
from bnnzoo.trees.power import PairedComparison

__all__ = [
    "MEASURES",
    "WHOLE",
    "Score",
    "differences",
    "merge_uci",
    "read_scores",
    "run_uci",
    "score_split",
    "summarise",
    "write_scores",
]

UNITS = 50
LEVEL = 0.9
MEASURES = ("rmse", "log_density", "coverage", "calibration", "seconds")

WHOLE = "uci.json"
"""Name of the file that is put together of what tasks have written."""


@dataclass(frozen=True, kw_only=True)
class Score:
    """What one method scored on the test part of one split.

    Parameters
    ----------
    set, splits : str
        Name of the set; ``standard``, ``gap`` or ``openml``.
    method, settings : str
        Name and settings (JSON) of the method.
    split : int
        Number of the split, which is also the seed of the fit.
    rmse : float
        Root mean squared error of the predictive mean, in original units.
    log_density : float
        Mean log predictive density in original units: log-mean-exp over draws.
    coverage : float
        Fraction of test observations inside the central 90% interval.
    calibration : float
        Miscalibration area, dimensionless.
    seconds : float
        Wall time of the fit and the prediction.
    overlap : float, optional
        Test rows over training rows; None in files of earlier releases, where it is taken to be 1/9, and 1/2 for gap splits.
    rhat : float, optional
        The largest R-hat of the predictions of test observations; None for independent draws and in files of earlier releases.
    """

    set: str
    splits: str
    method: str
    settings: str
    split: int
    rmse: float
    log_density: float
    coverage: float
    calibration: float
    seconds: float
    overlap: float | None = None
    rhat: float | None = None


def score_split(method: Method, split: Split, seed: int = 0) -> dict[str, Any]:
    """Fit one hidden layer of 50 ReLU units to the training part of a split and score its test part.

    Inputs and target are standardised by the training part; the noise is inferred; scores are in original units.

    Parameters
    ----------
    method : Method
    split : Split
        In original units.
    seed : int

    Returns
    -------
    dict
        The measures of :class:`Score`.
    """
    part, start = split.standardized(), time.perf_counter()
    net = mlp(part.x_train.shape[1], (UNITS,), activation="relu")
    model = supervised(net, priors.fan_in(), likelihoods.gaussian())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)
        posterior = fit(model, method, part.x_train, part.y_train, seed=seed, progress=False)
    tree = predict(posterior, part.x_test, part.y_test, seed=seed, weights=False)
    mean = tree["conditional"]["mean"].mean(("chain", "draw")).to_numpy()
    is_chain = tree.attrs["sampling"] == "mcmc"
    return {
        "rmse": float(np.sqrt(np.mean((mean - part.y_test) ** 2)) * part.y_scale),
        "log_density": float(-nll(tree).mean() - np.log(part.y_scale)),
        "coverage": float(coverage_curve(tree, levels=[LEVEL])["coverage"][0]),
        "calibration": float(miscalibration_area(tree)),
        "seconds": time.perf_counter() - start,
        "overlap": len(part.y_test) / len(part.y_train),
        "rhat": float(function_space(tree)["rhat"].max()) if is_chain else None,
    }


def run_uci(
    path: Path,
    sets: Sequence[str],
    methods: Mapping[str, Method],
    splits: Sequence[int],
    *,
    data: Path | None = None,
    gap: bool = False,
    executor: Executor | None = None,
    task: tuple[int, int] | None = None,
    announce: Callable[[Score], None] = lambda score: None,
) -> list[Score]:
    """Score methods on splits, and write each score as soon as it is there; those that a file has are not run again.

    Parameters
    ----------
    path : Path
        JSON file; is created if need be. With ``task``, the folder into which each task writes a file of its own.
    sets : sequence of str
    methods : mapping of str to Method
    splits : sequence of int
    data : Path, optional
        Folder of the sets, see :func:`local_split`. Default: OpenML.
    gap : bool
        Take the gap splits.
    executor : concurrent.futures.Executor, optional
        Such as ``client.get_executor()`` of a Dask cluster. Default: a process for each core.
    task : tuple of int, optional
        Number of this call, from 0, and how many calls share the fits; see :func:`merge_uci`.
    announce : callable
        Receives each new score.

    Returns
    -------
    list of Score
        Those asked for, or this task's share of them.

    Raises
    ------
    BenchmarkError
        If a set or split is not there or damaged, or the file is of another kind; nothing has been run then.
    ShareError
        If there is no such task, or it would have nothing to do.
    """
    share, keys = Share.given(task), _keys(sets, methods, splits, data, gap)
    parts = {(name, split): _split(data, name, split, gap) for name in sets for split in splits}
    file = file_of(path, task, "json")
    own = {_key(score): score for score in read_scores(file)}
    known = own if task is None else _scores_in(path)
    mine = [keys[number] for number in share.numbers(len(keys), "fits")]
    tasks = [(key, methods[key[2]], parts[key[0], key[4]]) for key in mine if key not in known]
    for score in as_ready(executor, _scored, tasks, f"{len(tasks)} fits", num_cores()):
        known[_key(score)] = own[_key(score)] = score
        write_scores(own.values(), file)
        announce(score)
    return [known[key] for key in mine]


def merge_uci(
    path: Path,
    num_tasks: int,
    sets: Sequence[str],
    methods: Mapping[str, Method],
    splits: Sequence[int],
    *,
    data: Path | None = None,
    gap: bool = False,
) -> list[Score]:
    """Put together what the tasks of a benchmark have written: the file ``uci.json`` is that of a single call.

    Parameters
    ----------
    path : Path
        The folder of their files.
    num_tasks : int
        How many there are.
    sets, methods, splits, data, gap
        As for :func:`run_uci`.

    Returns
    -------
    list of Score
        Those asked for.

    Raises
    ------
    UnfinishedError
        If scores are missing; the message names them and the tasks to run again.
    """
    keys, known = _keys(sets, methods, splits, data, gap), _scores_in(path)
    missing = {number: f"{key[0]} by {key[2]}, split {key[4]}" for number, key in enumerate(keys) if key not in known}
    refuse_missing(missing, len(keys), num_tasks, "fits")
    found = [known[key] for key in keys]
    write_scores(found, path / WHOLE)
    return found


def summarise(scores: Iterable[Score]) -> dict[tuple[str, str, str], dict[str, tuple[float, float]]]:
    """Return mean and standard error over splits of each measure, by set, kind of splits and method.

    The standard error is not a number for a single split.

    Examples
    --------
    >>> shared = dict(set="yacht", splits="standard", method="nuts", settings="{}", coverage=0.9, calibration=0.0, seconds=1.0)
    >>> scores = [Score(split=k, rmse=rmse, log_density=-1.0, **shared) for k, rmse in enumerate((1.0, 2.0))]
    >>> summarise(scores)["yacht", "standard", "nuts"]["rmse"]
    (1.5, 0.5)
    """
    groups: dict[tuple[str, str, str], list[Score]] = {}
    for score in scores:
        groups.setdefault((score.set, score.splits, score.method), []).append(score)
    return {key: {name: _mean(group, name) for name in MEASURES} for key, group in groups.items()}


def differences(scores: Iterable[Score], reference: str) -> dict[tuple[str, str, str], PairedComparison]:
    """Return how the log density of each method differs from that of a reference, on the splits that both have been scored on.

    Standard errors allow for the overlap of the training parts (Nadeau and Bengio 2003), which those of :func:`summarise` and of
    published tables do not.

    Parameters
    ----------
    scores : iterable of Score
    reference : str
        Name of a method.

    Returns
    -------
    dict
        By set, kind of splits and method, the reference left out; empty for a set on which it has no scores.
    """
    found: dict[tuple[str, str], dict[str, dict[int, Score]]] = {}
    for score in scores:
        found.setdefault((score.set, score.splits), {}).setdefault(score.method, {})[score.split] = score
    compared = {}
    for (name, kind), by_method in found.items():
        base = by_method.pop(reference, {})
        for method, own in by_method.items():
            if shared := [split for split in own if split in base]:
                gaps = [own[split].log_density - base[split].log_density for split in shared]
                overlap = np.mean([_overlap(own[split]) for split in shared])
                compared[name, kind, method] = PairedComparison.of_splits(gaps, float(overlap))
    return compared


def _overlap(score: Score) -> float:
    return score.overlap or (1 / 2 if score.splits == "gap" else 1 / 9)


def read_scores(path: Path) -> list[Score]:
    """Return the scores of a file, none if there is no such file.

    Raises
    ------
    BenchmarkError
        If the file holds something else.
    """
    if not path.is_file():
        return []
    try:
        return [Score(**each) for each in json.loads(path.read_text())["scores"]]
    except (ValueError, KeyError, TypeError) as error:
        raise BenchmarkError(f"{path} holds no scores ({error}): choose another file, or remove it.") from error


def write_scores(scores: Iterable[Score], path: Path) -> None:
    """Write scores to a file in the order of their names, whole or not at all."""
    scores = sorted(scores, key=_key)
    with whole_file(path) as partial:
        partial.write_text(json.dumps({"scores": [asdict(score) for score in scores]}, indent=1) + "\n")


type Key = tuple[str, str, str, str, int]


def _scored(fit_of: tuple[Key, Method, Split]) -> Score:
    (name, kind, method, settings, number), how, split = fit_of
    return Score(
        set=name, splits=kind, method=method, settings=settings, split=number, **score_split(how, split, number)
    )


def _keys(
    sets: Sequence[str], methods: Mapping[str, Method], splits: Sequence[int], data: Path | None, gap: bool
) -> list[Key]:
    """Return what is asked for, the splits of a set and a method one after the other."""
    kind = "gap" if gap else "standard" if data is not None else "openml"
    settings = {name: settings_as_json(method) for name, method in methods.items()}
    keys = [(name, kind, method, settings[method], split) for name in sets for method in methods for split in splits]
    return list(dict.fromkeys(keys))


def _scores_in(folder: Path) -> dict[Key, Score]:
    """Return the scores that tasks have written, in any division of the work."""
    return {_key(score): score for part in parts_in(folder, "json") for score in read_scores(part)}


def _split(data: Path | None, name: str, split: int, gap: bool) -> Split:
    if data is not None:
        return local_split(data, name, split, gap)
    if gap:
        raise BenchmarkError("The gap splits are not at OpenML: name the folder that has them, as in --data DIR.")
    return openml_split(name, split)


def _key(score: Score) -> Key:
    return score.set, score.splits, score.method, score.settings, score.split


def _mean(scores: Sequence[Score], measure: str) -> tuple[float, float]:
    values = np.array([getattr(score, measure) for score in scores])
    error = values.std(ddof=1) / np.sqrt(values.size) if values.size > 1 else np.nan
    return float(values.mean()), float(error)
