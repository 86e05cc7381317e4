"""Random small models: their density, mini-batches and predictions against Pyro's own."""

import warnings
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from pyro import poutine
from torch import Tensor

import bnnzoo as bz
from bnnzoo.core.data.minibatch import select
from bnnzoo.core.model.density import LogDensity, first_run
from bnnzoo.core.posterior.info import FitInfo
from bnnzoo.core.posterior.posterior import Draws
from bnnzoo.core.program.sites import ModelError
from bnnzoo.core.program.surroundings import isolated
from bnnzoo.core.reading.parts import refuse_dependent_parts
from tests.fuzz.small_models import NUM_ROWS, Latent, Outcome, SmallModel, data_of, small_models
from tests.helpers.pyro_density import pyro_log_joint

FEW, MANY = 30, 500
CHECKED = {"deadline": None, "database": None, "derandomize": True, "suppress_health_check": list(HealthCheck)}


def held_against_pyro(model: SmallModel) -> None:
    """Compare everything that can be asked of a model without a fit."""
    x, g, outcomes = data_of(model, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        density, _ = first_run(model, *model.data(x, g, outcomes))
        theta = density.init(2, 1)
        _compare_density(density, theta)
        is_cut = density.num_data == NUM_ROWS  # and not rows by columns, or sites one after the other
        if is_cut and model.mapping:
            with pytest.raises(ModelError, match="batch_size=4 cuts the rows"):
                refuse_dependent_parts(density, NUM_ROWS // 3, "batch_size=4")
        elif not model.mapping:
            if is_cut:
                refuse_dependent_parts(density, NUM_ROWS // 3, "batch_size=4")
            _compare_batches(density, theta[0])
        _compare_predictions(model, density, theta)


def _compare_density(density: LogDensity, theta: Tensor) -> None:
    value, gradient = density.batched_value_and_grad(theta, *density.data)
    for row, point in enumerate(theta):
        leaf = point.clone().requires_grad_()
        expected = pyro_log_joint(density, leaf)
        (slope,) = torch.autograd.grad(expected, leaf, allow_unused=True, materialize_grads=True)
        torch.testing.assert_close(value[row], expected.detach(), rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(gradient[row], slope, rtol=1e-7, atol=1e-8)


def _compare_batches(density: LogDensity, theta: Tensor) -> None:
    """The mean of the log density over a partition of the rows is that of all rows."""
    order = torch.randperm(NUM_ROWS, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        parts = [density.log_joint(theta, *select(density.data, rows, NUM_ROWS)) for rows in order.split(NUM_ROWS // 3)]
        whole = density.log_joint(theta, *density.data)
    torch.testing.assert_close(torch.stack(parts).mean(), whole, rtol=1e-9, atol=1e-9)


def _compare_predictions(model: SmallModel, density: LogDensity, theta: Tensor) -> None:
    x, g, outcomes = data_of(model, 5, num_rows=7)
    rows = model.data(x, g, outcomes)
    tree = bz.predict(Draws(density, FitInfo("mcmc"), theta[None]), *rows)
    for draw, point in enumerate(theta):
        nodes = _nodes(model, density, point, *rows)
        for name in density.observed:
            prefix = f"{name}." if len(density.observed) > 1 else ""
            found = tree["conditional"].dataset.isel(chain=0, draw=draw)
            expected = _mean(nodes[name]["fn"], nodes[name]["value"])
            for kind, moment in expected.items():
                if f"{prefix}{kind}" in found:
                    torch.testing.assert_close(
                        torch.from_numpy(found[f"{prefix}{kind}"].to_numpy().copy()), moment, rtol=1e-9, atol=1e-9
                    )
            terms = tree["predictions_log_likelihood"][name].isel(chain=0, draw=draw).to_numpy()
            torch.testing.assert_close(torch.from_numpy(terms.copy()), _terms(nodes[name]), rtol=1e-9, atol=1e-9)


def _nodes(model: SmallModel, density: LogDensity, theta: Tensor, *data: Tensor) -> Any:
    with isolated(0, density.device), torch.no_grad():
        trace = poutine.trace(poutine.condition(model, density.constrain(theta))).get_trace(*data)
        trace.compute_log_prob()
    return trace.nodes


def _mean(fn: Any, value: Tensor) -> dict[str, Tensor]:
    """Return torch's own mean, with the shape of the values; nothing for labels."""
    if fn.has_enumerate_support and type(fn).__name__ in ("Categorical", "Bernoulli", "BernoulliLogits"):
        return {}
    try:
        return {"mean": fn.mean.expand(value.shape)}
    except (NotImplementedError, RuntimeError):  # torch has none, or one entry where others are meant
        return {}


def _terms(node: Any) -> Tensor:
    """Return Pyro's log density of each row; one scale of all rows is none of their weights."""
    term, scale = node["log_prob"], node["scale"]
    entries = node["value"].shape[: node["value"].ndim - node["fn"].event_dim]
    return (term if isinstance(scale, Tensor) and scale.ndim else term / scale).expand(entries)


SPLIT = SmallModel((Latent("multivariate", "sized", 1.0, "none", "split"),), (Outcome("normal"),))
CONSTANT = SmallModel(
    (), (Outcome("scalar parameters", "unsized", weights=True), Outcome("Poisson", mask=True, given=True))
)


@example(SPLIT)
@example(CONSTANT)
@settings(max_examples=FEW, **CHECKED)
@given(small_models())
def test_a_few_random_models_are_what_pyro_takes_them_for(model: SmallModel) -> None:
    held_against_pyro(model)


@pytest.mark.slow
@settings(max_examples=MANY, **CHECKED)
@given(small_models())
def test_many_random_models_are_what_pyro_takes_them_for(model: SmallModel) -> None:
    held_against_pyro(model)
