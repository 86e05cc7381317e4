"""Comparisons made of random numbers, for tests that need no fit."""

import numpy as np
import xarray as xr

from bnnzoo.apps.reporting.comparison import Comparison
from bnnzoo.apps.reporting.results import Fitted
from bnnzoo.apps.reporting.scores import CLASSIFICATION, REGRESSION
from bnnzoo.apps.tables import Table, Task
from bnnzoo.predictive import datatree

ATTRIBUTES = {
    "sampling": "mcmc",
    "num_gradients": 1200,
    "seconds": 3.25,
    "seconds_compiling": 1.5,
    "complete": "yes",
    "config": '{"num_draws": 50}',
}


def held_out(task: Task, num_draws: int = 50, num_rows: int = 24, seed: int = 0) -> xr.DataTree:
    """A tree of predictions whose parts belong together."""
    rng = np.random.default_rng(seed)
    shape = (2, num_draws, num_rows)
    if task == "regression":
        mean = rng.normal(size=num_rows) + 0.3 * rng.normal(size=shape)
        y = np.random.default_rng(99).normal(size=num_rows)
        density = -0.5 * (y - mean) ** 2 - 0.5 * np.log(2 * np.pi)
        moments = {"mean": mean, "variance": np.ones(shape), "entropy": np.full(shape, 0.5 * np.log(2 * np.pi * np.e))}
        draws = rng.normal(mean)
    else:
        probs = rng.dirichlet(3 * np.ones(3), shape)
        y = np.random.default_rng(99).integers(3, size=num_rows)
        density = np.log(probs[..., np.arange(num_rows), y])
        moments = {"probs": probs, "entropy": -(probs * np.log(probs)).sum(-1)}
        draws = (probs.cumsum(-1) < rng.random((*shape, 1))).sum(-1)
    groups = {
        "predictions": datatree.by_row({"y": draws}),
        "predictions_log_likelihood": datatree.by_row({"y": density}),
        "predictions_observed_data": datatree.by_row({"y": y}, draws=False),
        "predictions_constant_data": datatree.constant(
            {"x": np.random.default_rng(98).normal(size=(num_rows, 2))}, num_rows, {}
        ),
        "conditional": datatree.conditional(moments),
    }
    return datatree.from_groups(groups, ATTRIBUTES)


def training(num_draws: int = 50, diverging: bool = False) -> xr.DataTree:
    """What a report reads of a training tree."""
    rng = np.random.default_rng(1)
    groups = {
        "posterior": datatree.by_draw({"sigma": rng.gamma(2.0, size=(2, num_draws))}),
        "sample_stats": datatree.by_draw({"diverging": np.full((2, num_draws), diverging)}),
    }
    return datatree.from_groups(groups, ATTRIBUTES)


def comparison(task: Task, **changes: object) -> Comparison:
    """Two methods on 24 held-out rows; ``changes`` go to the second one."""
    scores = REGRESSION if task == "regression" else CLASSIFICATION
    fitted = []
    for seed, name in enumerate(["nuts", "mfvi"]):
        tree = held_out(task, seed=seed)
        settings = {
            "name": name,
            "train": training(),
            "test": tree,
            "scores": {score.label: score.function(tree) for score in scores},
            "worst_rhat": 1.0,
            "min_ess": 500.0,
        }
        fitted.append(Fitted(**(settings | (changes if seed else {}))))
    classes = () if task == "regression" else ("a", "b", "c")
    x, y = np.zeros((24, 2)), held_out(task)["predictions_observed_data"]["y"].to_numpy()
    table = Table(task, "y", ("a", "b"), classes, x, y, x, y, 0.0, 1.0, np.arange(24) + 1)
    return Comparison(table, "numbers", "a network", 7, tuple(fitted), scores)
