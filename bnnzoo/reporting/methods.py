"""Fits of one network to one table with several inference methods, and their scores."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
import xarray as xr

from bnnzoo import models
from bnnzoo.core.method import Method
from bnnzoo.core.types import Model
from bnnzoo.inference.fit import fit
from bnnzoo.predictive import posterior_predictive, predict
from bnnzoo.reporting.baselines import baselines
from bnnzoo.reporting.effects import effects_of
from bnnzoo.reporting.gather import diagnostics
from bnnzoo.reporting.results import Baseline, Fitted
from bnnzoo.reporting.scores import CLASSIFICATION, REGRESSION, Score
from bnnzoo.tables import Table, restore_units

__all__ = ["Comparison", "compare", "model_for"]

LOGIT_SCALE = 2.5  # prior scale of a class's logits: probabilities neither all equal nor all near 0 and 1
MAX_DRAWS = 2000  # over all chains; more would not change scores or figures


@dataclass(frozen=True)
class Comparison:
    """Results of several methods on one table.

    Attributes
    ----------
    table : Table
    source : str
        Source of the table, for the report.
    model : str
        Description of the model in one line.
    seed : int
    fitted : tuple of Fitted
        The first is the reference.
    scores : tuple of Score
        Scores for the task.
    baselines : tuple of Baseline
        Scores of simple models of scikit-learn.
    """

    table: Table
    source: str
    model: str
    seed: int
    fitted: tuple[Fitted, ...]
    scores: tuple[Score, ...]
    baselines: tuple[Baseline, ...] = ()
    rows: ClassVar[str] = "held-out"

    @property
    def target(self) -> str:
        """Name of the target column."""
        return self.table.target

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, none for regression."""
        return self.table.classes


def model_for(table: Table, num_hidden: int) -> tuple[Model, str]:
    """Return a Pyro model with one hidden layer for a table, and its description in one line.

    Parameters
    ----------
    table : Table
    num_hidden : int
        Width of the hidden layer.

    Returns
    -------
    model : callable
    description : str
    """
    num_inputs, num_outputs = len(table.features), max(1, len(table.classes))
    net = models.mlp(num_inputs, hidden=(num_hidden,), out_features=num_outputs)
    is_regression = table.task == "regression"
    likelihood = models.likelihoods.gaussian() if is_regression else models.likelihoods.categorical()
    noise = "Gaussian noise of unknown scale" if is_regression else f"{num_outputs} classes"
    scale = 1.0 if is_regression else LOGIT_SCALE
    layers = f"{num_inputs} inputs, {num_hidden} tanh units, {num_outputs} output{'s' if num_outputs > 1 else ''}"
    description = f"{layers}; weights N(0, {scale**2:g}/fan-in), biases N(0, 1); {noise}"
    return models.supervised(net, models.priors.fan_in(scale), likelihood), description


def compare(
    table: Table,
    methods: Mapping[str, Method],
    *,
    source: str,
    num_hidden: int = 15,
    seed: int = 0,
    progress: bool = True,
    announce: Callable[[str], None] = lambda name: None,
) -> Comparison:
    """Fit one network to a table with several methods and predict the held-out observations.

    Parameters
    ----------
    table : Table
    methods : mapping of str to Method
        The first is the reference.
    source : str
        Source of the table, for the report.
    num_hidden : int
        Width of the hidden layer.
    seed : int
    progress : bool
        Show progress bars on a terminal.
    announce : callable
        Called with the name of each method before it runs.

    Returns
    -------
    Comparison
    """
    model, description = model_for(table, num_hidden)
    scores = REGRESSION if table.task == "regression" else CLASSIFICATION
    fitted = []
    for name, method in methods.items():
        announce(name)
        fitted.append(_fit_one(name, method, model, table, scores, seed, progress))
    return Comparison(table, source, description, seed, tuple(fitted), scores, baselines(table, scores))


def _fit_one(
    name: str, method: Method, model: Model, table: Table, scores: tuple[Score, ...], seed: int, progress: bool
) -> Fitted:
    train = torch.from_numpy(table.x_train), torch.from_numpy(table.y_train)
    held_out = torch.from_numpy(table.x_test), torch.from_numpy(table.y_test)
    posterior = fit(model, method, *train, seed=seed, progress=progress, dtype=torch.float64)
    num_chains, available = posterior.draws().shape[:2]
    num_draws = min(available, max(1, MAX_DRAWS // num_chains))
    trees = (
        _labelled(restore_units(tree, table), table)
        for tree in (
            posterior_predictive(posterior, *train, num_draws=num_draws),
            predict(posterior, *held_out, num_draws=num_draws),
        )
    )
    in_sample, out_of_sample = trees
    found = {score.label: score.function(out_of_sample) for score in scores}
    worst_rhat, min_ess = diagnostics(out_of_sample, in_sample)
    return Fitted(name, in_sample, out_of_sample, found, worst_rhat, min_ess, effects_of(posterior, table))


def _labelled(tree: xr.DataTree, table: Table) -> xr.DataTree:
    """Name classes and inputs."""
    names = {"class_id": list(table.classes), "x_dim_0": list(table.features)}

    def name(dataset: xr.Dataset) -> xr.Dataset:
        return dataset.assign_coords({dim: labels for dim, labels in names.items() if dim in dataset.dims})

    return tree.map_over_datasets(name)
