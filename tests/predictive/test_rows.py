"""How often the user's Python model runs before anything is predicted."""

import pytest
import torch

from bnnzoo.predictive import posterior_predictive, predict, rows
from bnnzoo.predictive.sweep import Sweep
from tests.helpers.counting import Counting
from tests.helpers.densities import cases
from tests.helpers.exact import narrow_posterior, standardising


class Reached(Exception):
    """The first prediction begins."""


def reached(*_, **__):
    raise Reached


MODELS = {"regression": cases()["regression"], "mixes rows": (standardising, (torch.randn(20), torch.randn(20)))}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("function", [predict, posterior_predictive])
def test_the_model_runs_at_most_three_times_before_the_first_prediction(name, function, monkeypatch):
    model, data = MODELS[name]
    counting = Counting(model)
    posterior = narrow_posterior(counting, *data)
    monkeypatch.setattr(Sweep, "__call__", reached)
    counting.calls = 0
    with pytest.raises(Reached):
        function(posterior, *data, num_draws=10)
    assert counting.calls <= 3


def test_a_chunk_size_needs_no_measurement_of_its_own(monkeypatch):
    model, data = MODELS["regression"]
    counting = Counting(model)
    posterior = narrow_posterior(counting, *data)
    monkeypatch.setattr(rows, "evaluate", reached)
    counting.calls = 0
    with pytest.raises(Reached):
        predict(posterior, *data, num_draws=10, chunk_size=20)
    assert counting.calls <= 3
