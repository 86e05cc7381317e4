"""``fit(engine=...)`` for methods that train: the same posterior however the arithmetic is run, and by the engine asked for."""

from typing import Any

import pytest
import torch

import bnnzoo as bz
from bnnzoo.engine.lowered import Lowered, Specialized
from bnnzoo.testing import linear_gaussian
from tests.helpers.executors import InProcess

TARGET = linear_gaussian()
X = torch.linspace(-2, 2, 30, dtype=torch.float64)[:, None]
NETWORK = bz.models.supervised(
    bz.models.mlp(1, hidden=(4,)), prior=bz.priors.fan_in(1.0), likelihood=bz.likelihoods.gaussian(0.2)
)
MODELS: dict[str, tuple[Any, tuple[torch.Tensor, ...]]] = {
    "linear": (TARGET.model, TARGET.data),
    "network": (NETWORK, (X, torch.sin(2 * X[:, 0]))),
}
METHODS: dict[str, Any] = {
    "MAP": bz.MAP(num_steps=60),
    "MeanFieldVI": bz.MeanFieldVI(num_steps=60),
    "FullRankVI": bz.FullRankVI(num_steps=60),
    "DeepEnsemble": bz.DeepEnsemble(num_members=2, num_steps=60),
    "SWAG": bz.SWAG(num_steps=60),
    "Laplace": bz.Laplace(),
}


CASES = [(name, model) for name in METHODS for model in MODELS if (name, model) != ("FullRankVI", "linear")]
"""All but one, which starts at its optimum: Adam divides gradients by their size, and there they are rounding error."""

WITHIN = {"Laplace": 1e-6, "MAP": 1e-7, "SWAG": 1e-7}
"""Laplace's modes are found to a tolerance, within which rounding decides where the iteration ends; and a weight behind a unit
that is never active has no gradient but that of its prior, which Adam divides by its size."""


def fitted(name: str, model: str, engine: str, dtype: torch.dtype, executor: InProcess | None = None) -> Any:
    function, data = MODELS[model]
    data = tuple(each.to(dtype) for each in data)
    settings: Any = {"seed": 2, "dtype": dtype, "engine": engine, "executor": executor, "progress": False}
    return bz.fit(function, METHODS[name], *data, **settings)


@pytest.mark.filterwarnings("ignore::bnnzoo.inference.FitWarning")  # sixty steps are too few
@pytest.mark.parametrize("dtype", [torch.float64, pytest.param(torch.float32, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("name", "model"), CASES)
def test_engines_end_at_the_same_posterior(name: str, model: str, dtype: torch.dtype) -> None:
    fits = [fitted(name, model, engine, dtype) for engine in ("native", "graph", "python")]
    native, graph, python = (fit.draws(5 if fit.info.sampling == "iid" else None) for fit in fits)
    within = WITHIN.get(name, 1e-8) if dtype is torch.float64 else 5e-3
    torch.testing.assert_close(native, graph, rtol=within, atol=within)
    torch.testing.assert_close(python, graph, rtol=within, atol=within)


@pytest.mark.filterwarnings("ignore::bnnzoo.inference.FitWarning")
@pytest.mark.parametrize("engine", ["native", "graph", "python"])
@pytest.mark.parametrize(
    ("name", "executor"),
    [("MAP", None), ("MeanFieldVI", None), ("DeepEnsemble", None), ("DeepEnsemble", InProcess())],
)
def test_training_runs_by_the_engine_asked_for_and_says_so(
    name: str, executor: InProcess | None, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here, and for each member by itself on an executor."""
    hows: set[str] = set()
    specialize = Lowered.specialize

    def seen(lowered: Lowered, *args: Any, **kwargs: Any) -> Specialized:
        made = specialize(lowered, *args, **kwargs)
        hows.add(made.how)
        return made

    monkeypatch.setattr(Lowered, "specialize", seen)
    info = fitted(name, "linear", engine, torch.float64, executor).info
    assert info.engine.engine == engine and info.engine.running > 0
    assert info.engine.tracing + info.engine.compiling == pytest.approx(info.compiling)
    assert hows == {"eager"} if engine == "python" else "eager" not in hows
