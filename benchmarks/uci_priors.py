"""UCI regression with other priors, noise and depth: variants of the default model, chosen among on training parts alone.

Each variant is fitted to four fifths of the training part of a split and scored on the remaining fifth. On the test part the
default is scored, the variant that this split's fifth prefers, and the one that the fifths of all splits of the set prefer on
average; no other variant is. Inputs and target are standardised by the training part, and scores are in original units.
The variants were written down before any of them had been scored, and are all there are.

Run: python -m benchmarks.uci_priors check DATA [sets]                  (samplers against each other on the fifth of split 0)
     python -m benchmarks.uci_priors DATA [sets] [splits] [processes]   (a run that was stopped goes on where it was)
"""

import json
import os
import sys
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import bnnzoo as bz
from benchmarks.pairs import RESULTS, processor_seconds, write
from benchmarks.uci import SETS, UNITS, fifth, scores_of
from bnnzoo.core.fit_warnings import FitWarning
from bnnzoo.trees.power import PairedComparison


class Variant(NamedTuple):
    """Hidden layers of ReLU units, a prior and a likelihood."""

    hidden: tuple[int, ...] = (UNITS,)
    prior: Any = bz.priors.fan_in()
    likelihood: Any = bz.likelihoods.gaussian()


LAYERWISE = bz.priors.layerwise(by_fan_in=True)
INPUTWISE = {"0.weight": bz.priors.ard()}

DEFAULT = "fan_in"
VARIANTS = {
    DEFAULT: Variant(),
    "layer-wise": Variant(prior=LAYERWISE),
    "input-wise": Variant(prior=bz.priors.by_parameter(INPUTWISE, default=bz.priors.fan_in())),
    "Student noise": Variant(likelihood=bz.likelihoods.student_t()),
    "two layers": Variant(hidden=(UNITS, UNITS)),
    "layer-wise, Student noise": Variant(prior=LAYERWISE, likelihood=bz.likelihoods.student_t()),
    "input-wise and layer-wise": Variant(prior=bz.priors.by_parameter(INPUTWISE, default=LAYERWISE)),
}
"""Fixed before any score was seen; a variant is not added for what was found with these."""

SAMPLERS = {"SGHMC": bz.SGHMC(), "NUTS": bz.NUTS(num_chains=2, num_warmup=200, num_draws=200)}
SAMPLER = "SGHMC"

FILE = "uci_priors"
OVERLAP = {"validation": 1 / 4, "test": 1 / 9}
"""Rows scored over rows fitted."""

type Row = dict[str, Any]


def one_fit(data: Path, name: str, split: int, variant: str, part: str, sampler: str = SAMPLER) -> Row:
    """Return what a variant scores on the fifth of the training part (``validation``), or on the test part."""
    rows = bz.datasets.uci_split(data / name, split).standardized()
    train, scored = (rows.x_train, rows.y_train), (rows.x_test, rows.y_test)
    if part == "validation":
        held, kept = fifth(len(rows.y_train), split)
        train, scored = (rows.x_train[kept], rows.y_train[kept]), (rows.x_train[held], rows.y_train[held])
    hidden, prior, likelihood = VARIANTS[variant]
    model = bz.models.supervised(bz.models.mlp(rows.x_train.shape[1], hidden, activation="relu"), prior, likelihood)
    start = processor_seconds()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", FitWarning)
        found = scores_of(model, SAMPLERS[sampler], train, scored, split)
    return {
        "set": name,
        "split": split,
        "variant": variant,
        "part": part,
        "sampler": sampler,
        "rmse": found["rmse"] * rows.y_scale,
        "log_density": found["log_density"] - float(np.log(rows.y_scale)),
        "seconds": processor_seconds() - start,
        "warnings": sorted({each.category.__name__ for each in caught if issubclass(each.category, FitWarning)}),
    }


def by_split(scores: list[Row], name: str, part: str, measure: str = "log_density") -> dict[str, dict[int, float]]:
    """Return the scores of a part of a set, by variant and split."""
    found: dict[str, dict[int, float]] = {variant: {} for variant in VARIANTS}
    for row in scores:
        if row["set"] == name and row["part"] == part:
            found[row["variant"]][row["split"]] = row[measure]
    return found


def choices(scores: list[Row], name: str) -> dict[str, dict[int, str]]:
    """Return the variant of each split by three rules: the default, the split's own fifth, the mean over all splits' fifths."""
    found = by_split(scores, name, "validation")
    splits = sorted(found[DEFAULT])
    best = max(VARIANTS, key=lambda variant: float(np.mean([found[variant][split] for split in splits])))
    own = {split: max(VARIANTS, key=lambda variant: found[variant][split]) for split in splits}
    return {"default": dict.fromkeys(splits, DEFAULT), "own": own, "average": dict.fromkeys(splits, best)}


def summary(scores: list[Row], name: str) -> dict[str, Any]:
    """Return means with standard errors, and differences from the default, paired by split, with theirs."""
    validation, test = by_split(scores, name, "validation"), by_split(scores, name, "test")
    errors, rules = by_split(scores, name, "test", "rmse"), choices(scores, name)
    facts: dict[str, Any] = {"validation": {}, "test": {}, "choices": {}}
    for variant, values in validation.items():
        gaps = [values[split] - validation[DEFAULT][split] for split in values]
        facts["validation"][variant] = _mean([*values.values()]) | _difference(gaps, OVERLAP["validation"])
    for rule, variants in rules.items():
        values = [test[variant][split] for split, variant in variants.items()]
        gaps = [test[variant][split] - test[DEFAULT][split] for split, variant in variants.items()]
        rmse = _mean([errors[variant][split] for split, variant in variants.items()])
        facts["test"][rule] = _mean(values) | _difference(gaps, OVERLAP["test"]) | {"rmse": rmse}
        facts["choices"][rule] = {variant: [*variants.values()].count(variant) for variant in set(variants.values())}
    return facts


def _mean(values: list[float]) -> dict[str, float]:
    return {"mean": float(np.mean(values)), "error_of_mean": float(np.std(values, ddof=1) / len(values) ** 0.5)}


def _difference(gaps: list[float], overlap: float) -> dict[str, float]:
    found = PairedComparison.of_splits(gaps, overlap)
    return {"difference": found.difference, "standard_error": found.standard_error, "detectable": found.detectable}


def described() -> dict[str, str]:
    """Return the variants, and the sampler that chooses, as they are printed."""
    shown = {
        name: f"{'-'.join(map(str, each.hidden))} ReLU units, {each.prior}, {each.likelihood}"
        for name, each in VARIANTS.items()
    }
    return shown | {"sampler": f"{SAMPLERS[SAMPLER]}"}


def earlier() -> dict[str, list[Row]]:
    """Return what an earlier run wrote: scores only if they are of the same variants and sampler."""
    path = RESULTS / f"{FILE}.json"
    found = json.loads(path.read_text()) if path.exists() else {}
    is_same = found.get("settings") == described()
    return {"scores": found.get("scores", []) if is_same else [], "check": found.get("check", [])}


def record(found: dict[str, list[Row]], summaries: dict[str, Any]) -> None:
    """Write all scores so far."""
    write(FILE, {**found, "settings": described(), "summary": summaries})


def fits_of(pool: ProcessPoolExecutor | None, data: Path, wanted: list[tuple[Any, ...]]) -> Iterator[Row]:
    """Yield the row of each fit, in order, from this process or from several."""
    run = partial(_one_of, data)
    for row in map(run, wanted) if pool is None else pool.map(run, wanted):
        print({key: round(each, 3) if isinstance(each, float) else each for key, each in row.items()}, flush=True)
        yield row


def main(data: str, sets: str = ",".join(SETS), splits: str = "10", processes: str = "1") -> None:
    """Score all variants on the fifths of some sets, then those chosen on the test parts; write after each split."""
    found, numbers, summaries = earlier(), range(int(splits)), {}
    with ProcessPoolExecutor(int(processes), get_context("spawn"), initializer=_one_thread) as workers:
        pool = workers if int(processes) > 1 else None
        for name in sets.split(","):
            _score(pool, Path(data), found, [(name, *each, "validation") for each in product(numbers, VARIANTS)])
            rules = choices(found["scores"], name)
            for split in numbers:
                variants = dict.fromkeys(rule[split] for rule in rules.values())
                _score(pool, Path(data), found, [(name, split, variant, "test") for variant in variants])
            summaries[name] = summary(found["scores"], name)
            record(found, summaries)
            print(name, json.dumps(summaries[name], indent=1), flush=True)


def _score(
    pool: ProcessPoolExecutor | None, data: Path, found: dict[str, list[Row]], wanted: list[tuple[Any, ...]]
) -> None:
    known = {(row["set"], row["split"], row["variant"], row["part"]) for row in found["scores"]}
    for row in fits_of(pool, data, [each for each in wanted if each not in known]):
        found["scores"].append(row)
        if row["part"] == "test" or row["variant"] == [*VARIANTS][-1]:
            record(found, {})


def check(data: str, sets: str = ",".join(SETS)) -> None:
    """Score all variants by both samplers on the fifth of the first split's training part, to see whether they agree."""
    found = earlier()
    known = {(row["set"], row["variant"], row["sampler"]) for row in found["check"]}
    for name, variant, sampler in product(sets.split(","), VARIANTS, SAMPLERS):
        if (name, variant, sampler) not in known:
            found["check"] += fits_of(None, Path(data), [(name, 0, variant, "validation", sampler)])
            record(found, {})


def _one_of(data: Path, fit: tuple[Any, ...]) -> Row:
    return one_fit(data, *fit)


def _one_thread() -> None:
    os.environ["OMP_NUM_THREADS"] = "1"


if __name__ == "__main__":
    if sys.argv[1] == "check":
        check(*sys.argv[2:])
    else:
        main(*sys.argv[1:])
