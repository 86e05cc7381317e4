"""Fits of one network to one table with several inference methods, and their scores."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
import xarray as xr

from bnnzoo import models
from bnnzoo.apps.reporting.baselines import baselines
from bnnzoo.apps.reporting.choices import LIKELIHOODS, Shifted, prior_named
from bnnzoo.apps.reporting.gather import diagnostics
from bnnzoo.apps.reporting.partial_dependence import effects_of
from bnnzoo.apps.reporting.repeated_splits import Repeat
from bnnzoo.apps.reporting.report_verdicts import against_reference
from bnnzoo.apps.reporting.results import Baseline, Fitted
from bnnzoo.apps.reporting.scores import CLASSIFICATION, ENOUGH_DRAWS, REGRESSION, ScoreColumn, is_gaussian
from bnnzoo.apps.tables import Table, restore_units
from bnnzoo.core.method import Method
from bnnzoo.core.posterior.posterior import Posterior
from bnnzoo.core.types import Model
from bnnzoo.diagnostics.comparison_verdict import Verdict
from bnnzoo.inference.fit import fit
from bnnzoo.predictive import datatree, posterior_predictive, predict

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
    scores : tuple of ScoreColumn
        Scores for the task.
    baselines : tuple of Baseline
        Scores of simple models of scikit-learn.
    likelihood : str
        Name of the likelihood.
    repeats : tuple of Repeat
        Scores of all splits if there are several, this one first.
    verdicts : tuple of Verdict
        On each method but the first.
    """

    table: Table
    source: str
    model: str
    seed: int
    fitted: tuple[Fitted, ...]
    scores: tuple[ScoreColumn, ...]
    baselines: tuple[Baseline, ...] = ()
    likelihood: str = "gaussian"
    repeats: tuple[Repeat, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    rows: ClassVar[str] = "held-out"

    @property
    def target(self) -> str:
        """Name of the target column."""
        return self.table.target

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, none for regression."""
        return self.table.classes


def model_for(table: Table, num_hidden: int, likelihood: str | None = None, prior: str = "fan_in") -> tuple[Model, str]:
    """Return a Pyro model with one hidden layer for a table, and its description in one line.

    Parameters
    ----------
    table : Table
    num_hidden : int
        Width of the hidden layer.
    likelihood : str, optional
        Name of a likelihood. Default: Gaussian or categorical. Log means of counts are relative to the training mean.
    prior : str
        Name of a prior, or name and scale: ``"normal:0.5"``.

    Returns
    -------
    model : callable
    description : str

    Raises
    ------
    TableError
        If there is no such prior.
    """
    family = LIKELIHOODS[_name(table, likelihood)]
    num_inputs, (made, num_outputs) = len(table.features), family.for_classes(len(table.classes))
    net = models.mlp(num_inputs, hidden=(num_hidden,), out_features=num_outputs)
    if family.support == "count":
        made = Shifted(made, math.log(np.asarray(table.y_train, dtype=float).mean()))
    chosen, weights = prior_named(prior, LOGIT_SCALE if table.classes else 1.0)
    noise = f"{len(table.classes)} classes" if table.classes else family.words
    if family.outcome == "ordered":
        noise = f"{noise} in order, {family.words}"
    layers = f"{num_inputs} inputs, {num_hidden} tanh units, {num_outputs} output{'s' if num_outputs > 1 else ''}"
    return models.supervised(net, chosen, made), f"{layers}; {weights}; {noise}"


def _name(table: Table, likelihood: str | None) -> str:
    return likelihood or ("categorical" if table.classes else "gaussian")


def compare(
    table: Table,
    methods: Mapping[str, Method],
    *,
    source: str,
    num_hidden: int = 15,
    seed: int = 0,
    progress: bool = True,
    announce: Callable[[str], None] = lambda name: None,
    likelihood: str | None = None,
    prior: str = "fan_in",
    others: Iterable[Table] = (),
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
    likelihood, prior : str
        As for :func:`model_for`.
    others : iterable of Table
        Other splits of the same rows, of which only the scores are kept; their seeds follow ``seed``.

    Returns
    -------
    Comparison
    """
    model, description = model_for(table, num_hidden, likelihood, prior)
    scores, name = REGRESSION if table.task == "regression" else CLASSIFICATION, _name(table, likelihood)
    fitted = []
    for method_name, method in methods.items():
        announce(method_name)
        fitted.append(_fit_one(method_name, method, model, table, scores, seed, progress))
    simple = baselines(table, scores, LIKELIHOODS[name].support)
    repeats = [Repeat.of(seed, table, [*fitted, *simple])]
    for number, other in enumerate(others, 1):
        announce(f"split {number + 1}")
        of_split = _scores_of(other, methods, num_hidden, name, prior, seed + number, progress)
        repeats.append(Repeat(seed + number, len(other.y_train), len(other.y_test), of_split))
    kept = tuple(repeats) if len(repeats) > 1 else ()
    found = against_reference(fitted)
    return Comparison(table, source, description, seed, tuple(fitted), scores, simple, name, kept, found)


def _scores_of(
    table: Table,
    methods: Mapping[str, Method],
    num_hidden: int,
    likelihood: str,
    prior: str,
    seed: int,
    progress: bool,
) -> dict[str, Mapping[str, float]]:
    """Return the scores of all methods and simple models on another split."""
    model, _ = model_for(table, num_hidden, likelihood, prior)
    scores = REGRESSION if table.task == "regression" else CLASSIFICATION
    found: dict[str, Mapping[str, float]] = {}
    for name, method in methods.items():
        posterior = _posterior(method, model, table, seed, progress)
        tree = _held_out(posterior, table)
        found[name] = {score.label: score.function(tree) for score in scores}
    return found | {one.name: one.scores for one in baselines(table, scores, LIKELIHOODS[likelihood].support)}


def _fit_one(
    name: str, method: Method, model: Model, table: Table, scores: tuple[ScoreColumn, ...], seed: int, progress: bool
) -> Fitted:
    posterior = _posterior(method, model, table, seed, progress)
    train = torch.from_numpy(table.x_train), torch.from_numpy(table.y_train)
    fitted = posterior_predictive(posterior, *train, num_draws=_num_draws(posterior))
    in_sample, out_of_sample = _labelled(restore_units(fitted, table), table), _held_out(posterior, table)
    found = {score.label: score.function(out_of_sample) for score in scores}
    worst_rhat, min_ess = diagnostics(out_of_sample, in_sample)
    return Fitted(name, in_sample, out_of_sample, found, worst_rhat, min_ess, effects_of(posterior, table))


def _posterior(method: Method, model: Model, table: Table, seed: int, progress: bool) -> Posterior:
    train = torch.from_numpy(table.x_train), torch.from_numpy(table.y_train)
    return fit(model, method, *train, seed=seed, progress=progress, dtype=torch.float64)


def _num_draws(posterior: Posterior) -> int:
    num_chains, available = posterior.draws().shape[:2]
    return min(available, max(1, MAX_DRAWS // num_chains))


def _held_out(posterior: Posterior, table: Table) -> xr.DataTree:
    """Return predictions for the held-out rows in the units of the target."""
    x, y = torch.from_numpy(table.x_test), torch.from_numpy(table.y_test)
    tree = predict(posterior, x, y, num_draws=_num_draws(posterior))
    if table.task == "regression" and not is_gaussian(tree):
        sizes = tree["predictions"].sizes
        repeats = -(-ENOUGH_DRAWS // (sizes["chain"] * sizes["draw"]))
        if repeats > 1:  # few draws of the parameters: one of y for each would represent the noise poorly
            drawn = predict(posterior, x.repeat(repeats, 1), num_draws=sizes["draw"], keep=("predictions/y",))
            values = drawn["predictions"]["y"].to_numpy().reshape(sizes["chain"], sizes["draw"] * repeats, len(x))
            more = datatree.by_row({"y": values}).assign_coords(obs_id=tree["predictions"]["obs_id"])
            tree = tree.assign({"predictions": xr.DataTree(more)})
    return _labelled(restore_units(tree, table), table)


def _labelled(tree: xr.DataTree, table: Table) -> xr.DataTree:
    """Name classes and inputs."""
    names = {"class_id": list(table.classes), "x_dim_0": list(table.features)}

    def name(dataset: xr.Dataset) -> xr.Dataset:
        return dataset.assign_coords({dim: labels for dim, labels in names.items() if dim in dataset.dims})

    return tree.map_over_datasets(name)
