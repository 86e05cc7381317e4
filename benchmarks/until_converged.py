"""Gradients until chains agree: those before R-hat of the predictions stays below 1.01, with those of warm-up.

Chains of default length, as typed but for ``mass_matrix``; networks keep the diagonal where ``NUTS()`` is typed. R-hat
(rank-normalised, split, the largest over rows) is that of the first 50, 75, 100, ... kept draws of all chains; functions are
compared, not weights. Foong's network predicts along the diagonal of its card, energy the test rows of its split.

Run: python -m benchmarks.until_converged foong|energy ...    (needs foong2d and uci below BNNZOO_DATA; goes on where it ended)
     python -m benchmarks.until_converged table
"""

import json
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import arviz as az
import numpy as np
from numpy.typing import NDArray

import bnnzoo as bz
from benchmarks.pairs import RESULTS, processor_seconds, write
from bnnzoo.apps.benchmarking import local_split
from bnnzoo.core.method import Method
from bnnzoo.zoo.cards.foong_one_layer import CARD as PLANE

LIMIT = 1.01
FIRST, EVERY = 50, 25
"""Kept draws of a chain at which R-hat is first looked at, and how many there are from one look to the next."""
SPLIT = 1
METHODS: dict[str, Callable[[], Method]] = {
    "NUTS, diagonal": lambda: bz.NUTS(mass_matrix="diagonal"),
    "NUTS, fisher": lambda: bz.NUTS(mass_matrix="fisher"),
    "NUTS, low_rank": lambda: bz.NUTS(mass_matrix="low_rank"),
    "NUTS": bz.NUTS,
    "MAMS": bz.MAMS,
}
RUNS: dict[str, tuple[tuple[str, ...], range]] = {
    "foong": (("NUTS, diagonal", "NUTS, fisher", "NUTS, low_rank", "MAMS"), range(3)),
    "energy": (("NUTS", "MAMS"), range(1)),
}
"""Methods and seeds of each problem."""
BASELINE = "NUTS, diagonal"

type Row = dict[str, Any]


def problem(name: str) -> tuple[Any, tuple[Any, ...], Any]:
    """Return a model, its data, and the inputs at which predictions are compared."""
    if name == "foong":
        data = PLANE.data()
        return PLANE.model(), (data.train["x"], data.train["y"]), data.test_inputs["x"]
    part = local_split(Path(os.environ["BNNZOO_DATA"]), name, SPLIT).standardized()
    net = bz.models.mlp(part.x_train.shape[1], (50,), activation="relu")
    model = bz.models.supervised(net, bz.priors.fan_in(), bz.likelihoods.gaussian())
    return model, (part.x_train, part.y_train), part.x_test


def one_fit(name: str, method: str, seed: int) -> Row:
    """Sample, and return gradients and R-hat at each look."""
    began, (model, data, x) = processor_seconds(), problem(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bz.FitWarning)  # whether chains agree is what is asked
        posterior = bz.fit(model, METHODS[method](), *data, seed=seed, progress=False)
    tree = bz.predict(posterior, x, num_draws=None, weights=False)
    values = tree["conditional"]["mean"].transpose("chain", "draw", ...).to_numpy().astype(float)
    steps = posterior.info.sample_stats["n_steps"].numpy()
    found = looks(values.reshape(*values.shape[:2], -1), steps, posterior.info.num_gradients)
    return {"problem": name, "method": method, "seed": seed, "seconds": processor_seconds() - began} | found


def looks(values: NDArray[np.floating], steps: NDArray[np.integer], gradients: int) -> Row:
    """Return what is seen of chains ``[chain, draw, row]`` whose kept draws took so many steps ``[chain, draw]``.

    Parameters
    ----------
    values : array
        Of the function at each row.
    steps : array
        Gradients of each draw.
    gradients : int
        Those of all chains, with warm-up.
    """
    drawn = [*range(FIRST, values.shape[1] + 1, EVERY)]
    rhat = [float(np.max(az.rhat(values[:, :each], chain_axis=0, draw_axis=1))) for each in drawn]
    first = settles(rhat)
    warm_up, spent = gradients - int(steps.sum()), steps.sum(0).cumsum()
    ess = float(np.min(az.ess(values, chain_axis=0, draw_axis=1)))
    return {
        "chains": len(values),
        "warm_up": warm_up,
        "gradients": gradients,
        "draws_needed": None if first is None else drawn[first],
        "gradients_needed": None if first is None else warm_up + int(spent[drawn[first] - 1]),
        "rhat": rhat[-1],
        "ess": ess,
        "per_million_gradients": 1e6 * ess / gradients,
        "rhat_by_draws": dict(zip(map(str, drawn), rhat, strict=True)),
    }


def settles(rhat: Sequence[float]) -> int | None:
    """Return the first place from which on all values are below the limit, if there is one."""
    above = [place for place, value in enumerate(rhat) if not value < LIMIT]
    first = above[-1] + 1 if above else 0
    return first if first < len(rhat) else None


def stored() -> list[Row]:
    """Return the fits that are there."""
    path = RESULTS / "until_converged.json"
    return json.loads(path.read_text())["fits"] if path.exists() else []


def summary(rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """Return medians over seeds by problem and method, of seeds that did not get there as if they never would."""
    found: dict[str, dict[str, Any]] = {}
    for name, (methods, _) in RUNS.items():
        for method in methods:
            some = [row for row in rows if (row["problem"], row["method"]) == (name, method)]
            if some:
                found.setdefault(name, {})[method] = described(some)
    for methods_of in found.values():
        base = methods_of.get(BASELINE, {}).get("gradients_needed")
        for row in methods_of.values():
            needed = row["gradients_needed"]
            row["of_diagonal"] = needed / base if needed and base else None
            for key in ("gradients_needed", "warm_up", "gradients"):
                row[f"{key}_in_millions"] = None if row[key] is None else row[key] / 1e6
    return found


def described(rows: Sequence[Row]) -> dict[str, Any]:
    """Return medians over seeds; ``None`` where half of them or more do not get below the limit."""

    def needed(key: str) -> float | None:
        middle = median(np.inf if row[key] is None else row[key] for row in rows)
        return None if middle == np.inf else middle

    return {
        "seeds": len(rows),
        "reached": sum(row["gradients_needed"] is not None for row in rows),
        **{key: needed(key) for key in ("draws_needed", "gradients_needed")},
        **{key: median(row[key] for row in rows) for key in ("warm_up", "gradients", "ess", "per_million_gradients")},
        "worst_rhat": max(row["rhat"] for row in rows),
    }


def table(found: dict[str, dict[str, Any]]) -> str:
    """Return the table of the documentation; gradients in millions."""
    heads = ("seeds that reach it", "draws of a chain", "gradients, 10⁶", "of the diagonal's", "of warm-up, 10⁶")
    heads += ("of the whole fit, 10⁶", "effective draws per 10⁶ gradients", "largest R-hat in the end")
    lines = ["| | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]

    def text(value: float | None, digits: int, unit: float = 1.0) -> str:
        return "not reached" if value is None else f"{value / unit:,.{digits}f}"

    for name, methods in found.items():
        for method, row in methods.items():
            cells = [
                f"{row['reached']} of {row['seeds']}",
                text(row["draws_needed"], 0),
                text(row["gradients_needed"], 2, 1e6),
                "" if row["of_diagonal"] is None else f"{row['of_diagonal']:.2f}",
                text(row["warm_up"], 2, 1e6),
                text(row["gradients"], 2, 1e6),
                text(row["per_million_gradients"], 0),
                text(row["worst_rhat"], 3),
            ]
            lines.append(f"| {name}, `{method}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main(names: Sequence[str]) -> None:
    """Fit what is not there yet, and write it after each fit."""
    rows = stored()
    done = {(row["problem"], row["method"], row["seed"]) for row in rows}
    for name in names:
        methods, seeds = RUNS[name]
        for seed in seeds:
            for method in methods:
                if (name, method, seed) in done:
                    continue
                rows.append(one_fit(name, method, seed))
                write("until_converged", {"limit": LIMIT, "summary": summary(rows), "fits": rows})
                print({key: value for key, value in rows[-1].items() if key != "rhat_by_draws"}, flush=True)
    write("until_converged", {"limit": LIMIT, "summary": summary(rows), "fits": rows})
    print(table(summary(rows)))


if __name__ == "__main__":
    main(() if sys.argv[1:] == ["table"] else sys.argv[1:] or tuple(RUNS))
