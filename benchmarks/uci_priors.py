"""UCI regression with other priors, noise and depth: variants of the default model, chosen among on training parts alone.

Each variant is fitted to four fifths of the training part of a split and scored on the remaining fifth. On the test part the
default is scored, the variant that this split's fifth prefers, and the one that the fifths of all splits of the set prefer on
average; no other variant is. Inputs and target are standardised by the training part, and scores are in original units.
The variants were written down before any of them had been scored, and are all there are.

Run: python -m benchmarks.uci_priors check DATA [sets]      (samplers against each other on the fifth of split 0)
     python -m benchmarks.uci_priors DATA [sets] [splits]   (a run that was stopped goes on; other sets can run beside it)
"""

import json
import sys
import warnings
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import bnnzoo as bz
from benchmarks.pairs import RESULTS, processor_seconds, write
from benchmarks.uci import SETS, UNITS, fifth, in_original_units, scores_of
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

SHORT = {"num_chains": 2, "num_warmup": 200, "num_draws": 200}
SAMPLERS = {"SGHMC": bz.SGHMC(), "NUTS": bz.NUTS(**SHORT), "MAMS": bz.MAMS(**SHORT)}
SAMPLER = "MAMS"
"""The one that chooses, and is scored on test parts: the cheapest that agrees with NUTS on training parts (``check``)."""

FILE = "uci_priors"
OVERLAP = {"validation": 1 / 4, "test": 1 / 9}
"""Rows scored over rows fitted."""

type Row = dict[str, Any]
type Fit = tuple[str, int, str, str, str]
"""Set, split, variant, part and sampler."""


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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)  # R-hat is written, and short runs are not judged
        posterior = bz.fit(model, SAMPLERS[sampler], *train, seed=split, progress=False)
    tree = bz.predict(posterior, *scored, seed=split, weights=False)
    found = scores_of(tree, scored[1])
    seconds = processor_seconds() - start
    return {
        "set": name,
        "split": split,
        "variant": variant,
        "part": part,
        "sampler": sampler,
        **in_original_units(found, rows),
        "rhat": [float(each) for each in bz.diagnostics.function_space(tree)["rhat"].quantile([0.5, 1.0])],
        "seconds": seconds,
    }


def by_split(scores: list[Row], name: str, part: str, measure: str = "log_density") -> dict[str, dict[int, float]]:
    """Return the scores of a part of a set, by variant and split."""
    found: dict[str, dict[int, float]] = {variant: {} for variant in VARIANTS}
    for row in scores:
        if (row["set"], row["part"], row["sampler"]) == (name, part, SAMPLER):
            found[row["variant"]][row["split"]] = row[measure]
    return found


def choices(scores: list[Row], name: str) -> dict[str, dict[int, str]]:
    """Return the variant of each split on whose fifth all are scored: the default, the best there, the best on all fifths."""
    found = by_split(scores, name, "validation")
    splits = sorted(set.intersection(*map(set, found.values())))
    best = max(VARIANTS, key=lambda variant: sum(found[variant][split] for split in splits))
    own = {split: max(VARIANTS, key=lambda variant: found[variant][split]) for split in splits}
    return {"default": dict.fromkeys(splits, DEFAULT), "own": own, "average": dict.fromkeys(splits, best)}


def summary(scores: list[Row], name: str) -> dict[str, Any]:
    """Return means with standard errors, and differences from the default, paired by split, with theirs."""
    validation, test = by_split(scores, name, "validation"), by_split(scores, name, "test")
    errors, rules = by_split(scores, name, "test", "rmse"), choices(scores, name)
    facts: dict[str, Any] = {"validation": {}, "test": {}, "choices": {}}
    splits = [*rules["default"]]
    for variant, values in validation.items():
        facts["validation"][variant] = compared(values, validation[DEFAULT], splits, "validation")
    tested = [split for split in splits if all(split in test[rule[split]] for rule in rules.values())]
    for rule, variants in rules.items():
        facts["choices"][rule] = {each: [*variants.values()].count(each) for each in sorted({*variants.values()})}
        for measure, found in (("log_density", test), ("rmse", errors)):
            values = {split: found[variants[split]][split] for split in tested}
            facts["test"].setdefault(rule, {})[measure] = compared(values, found[DEFAULT], tested, "test")
    return facts


def compared(values: dict[int, float], default: dict[int, float], splits: list[int], part: str) -> dict[str, float]:
    """Return mean and standard error over splits, and the same of differences from the default; none of one split."""
    if len(splits) < 2:
        return {}
    own = np.array([values[split] for split in splits])
    gap = PairedComparison.of_splits(own - [default[split] for split in splits], OVERLAP[part])
    return {
        "splits": len(splits),
        "mean": float(own.mean()),
        "error_of_mean": float(own.std(ddof=1) / len(own) ** 0.5),
        "difference": gap.difference,
        "standard_error": gap.standard_error,
        "detectable": gap.detectable,
    }


def described() -> dict[str, str]:
    """Return the variants and samplers as they are printed."""
    shown = {
        name: f"{'-'.join(map(str, each.hidden))} ReLU units, {each.prior}, {each.likelihood}"
        for name, each in VARIANTS.items()
    }
    return shown | {name: f"{each}" for name, each in SAMPLERS.items()}


def earlier() -> list[Row]:
    """Return the scores of an earlier run, and of one beside this; those of other variants or samplers do not count."""
    path = RESULTS / f"{FILE}.json"
    found = json.loads(path.read_text()) if path.exists() else {}
    return found["scores"] if found.get("settings") == described() else []


def record(scores: list[Row]) -> None:
    """Write the scores, those of a run beside this one as well, and what follows for the sets that are complete."""
    known = {_key(row) for row in scores}
    scores += [row for row in earlier() if _key(row) not in known]
    sets = [name for name in SETS if len(choices(scores, name)["default"]) > 1]
    summaries = {name: summary(scores, name) for name in sets}
    write(FILE, {"scores": sorted(scores, key=_key), "settings": described(), "summary": summaries})


def add(scores: list[Row], data: str, wanted: list[Fit]) -> None:
    """Add the scores of fits that have none yet, and write them after each of them."""
    known = {_key(row) for row in scores}
    for fit in wanted:
        if fit not in known:
            scores.append(row := one_fit(Path(data), *fit))
            print({key: round(each, 3) if isinstance(each, float) else each for key, each in row.items()}, flush=True)
            record(scores)


def main(data: str, sets: str = ",".join(SETS), splits: str = "10") -> None:
    """Score all variants on the fifths of some sets, and then on the test parts those that are chosen."""
    scores, numbers = earlier(), range(int(splits))
    for name in sets.split(","):
        add(
            scores,
            data,
            [(name, split, variant, "validation", SAMPLER) for split, variant in product(numbers, VARIANTS)],
        )
        rules = choices(scores, name)
        for split in numbers:
            variants = dict.fromkeys(rule[split] for rule in rules.values())
            add(scores, data, [(name, split, variant, "test", SAMPLER) for variant in variants])
        print(name, json.dumps(summary(scores, name), indent=1), flush=True)


def check(data: str, sets: str = ",".join(SETS)) -> None:
    """Score all variants by all samplers on the fifth of the first split's training part, to see whether they agree."""
    add(
        earlier(),
        data,
        [(name, 0, *each) for name, *each in product(sets.split(","), VARIANTS, ["validation"], SAMPLERS)],
    )


def _key(row: Row) -> Fit:
    return row["set"], row["split"], row["variant"], row["part"], row["sampler"]


if __name__ == "__main__":
    if sys.argv[1] == "check":
        check(*sys.argv[2:])
    else:
        main(*sys.argv[1:])
