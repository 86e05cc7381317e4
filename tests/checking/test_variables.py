"""What counts as a number, and what as a grouping."""

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import torch

from bnnzoo.checking.variables import variables_beside, variables_of
from bnnzoo.core.model.density import build_density
from bnnzoo.core.posterior.info import FitInfo


def test_columns_are_numbers_or_groupings() -> None:
    frame = pd.DataFrame(
        {
            "age": np.linspace(20, 60, 40),
            "dose": [0.0, 1.0, 2.0, 4.0] * 10,
            "sex": ["f", "m"] * 20,
            "smokes": [True, False] * 20,
            "clinic": np.arange(40) // 8,
            "id": np.arange(40),
            "name": [str(k) for k in range(40)],
            "gaps": [np.nan, *range(39)],
            "seen": pd.date_range("2020-01-01", periods=40),
        }
    )
    found = variables_beside(frame)
    assert [*found.numbers] == ["age", "dose", "clinic", "id", "seen"]
    assert [*found.groupings] == ["dose", "sex", "smokes", "clinic"]


def test_arguments_are_variables_and_outcomes_are_none() -> None:
    def model(x: torch.Tensor, more: dict[str, torch.Tensor], n: int, y: torch.Tensor) -> None:
        a = pyro.sample("a", dist.Normal(0.0, 1.0))
        with pyro.plate("rows", len(x)):
            pyro.sample("y", dist.Normal(a + x.sum(-1) + more["w"], 1.0), obs=y)

    x, w, y = torch.randn(30, 2), torch.randn(30), torch.randn(30)
    found = variables_of(build_density(model, x, {"w": w, "other": torch.zeros(3)}, 5, y), FitInfo("mcmc"))
    assert [*found.numbers] == ["x[0]", "x[1]", "more['w']"]
    named = variables_of(build_density(model, x, {"w": w}, 5, y), FitInfo("mcmc", columns={"x": ("age", "dose")}))
    assert [*named.numbers] == ["age", "dose", "more['w']"]


def test_levels_that_hold_one_row_each_are_no_grouping() -> None:
    found = variables_beside(pd.DataFrame({"g": ["a", "b"] * 10})).at(np.array([0, 1, 2]))
    assert not found.groupings
