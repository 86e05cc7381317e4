"""The models of docs/your_models.md, as they stand there, fitted by every method of its table."""

import functools
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

import bnnzoo as bz
from bnnzoo.core.program.sites import ModelError
from bnnzoo.inference.laplace.family import LaplaceError

PAGE = (Path(__file__).parents[1] / "docs" / "your_models.md").read_text()
NUM_ROWS, NUM_TRAIN = 100, 60
NUM_DRAWS = 200
QUICK = {"mixed_effects", "pyro_modules"}  # fitted by MAP in the default run

METHODS = {
    "MAP": bz.MAP(num_steps=600),
    "Laplace": bz.Laplace(map=bz.MAP(num_steps=600, num_members=8)),
    "LastLayerLaplace": bz.LastLayerLaplace(map=bz.MAP(num_steps=600, num_members=8)),
    "MeanFieldVI": bz.MeanFieldVI(num_steps=1500),
    "NUTS": bz.NUTS(num_chains=2, num_warmup=200, num_draws=NUM_DRAWS // 2, max_tree_depth=7),
}


@functools.cache
def models() -> dict[str, Any]:
    """Run the page's code and return its names."""
    names: dict[str, Any] = {"__name__": "page"}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        exec("\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)), names)
    return names


def table() -> tuple[list[str], dict[str, list[str]]]:
    """Return the methods of the page's table, and the cells of each model."""
    section = PAGE.split("## Which method takes which model\n")[1].split("\n## ")[0]
    lines = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")]
    (_, *methods), *rows = lines
    return [name.strip("`") for name in methods], {name.strip("`"): cells for name, *cells in rows}


def inputs(name: str) -> tuple[Tensor, ...]:
    """Return all arguments of a model but the outcome."""
    x = torch.randn(NUM_ROWS, 2)
    others = {
        "mixed_effects": (x, torch.arange(NUM_ROWS) % 5),
        "counts": (x, torch.rand(NUM_ROWS) + 0.5),
        "convolution": (torch.randn(NUM_ROWS, 1, 8, 8),),
        "recurrence": (torch.randn(NUM_ROWS, 5, 1),),
    }
    return others.get(name, (x,))


def outcome(name: str, given: tuple[Tensor, ...]) -> Tensor:
    """Draw the outcomes from something that each model can learn."""
    x, noise = given[0].flatten(1), torch.randn(NUM_ROWS, 2)
    wave = torch.sin(x[:, 0]) + 0.5 * x[:, -1]
    if name == "mixed_effects":
        return wave + torch.tensor([-0.8, -0.4, 0.0, 0.4, 0.8])[given[1]] + 0.3 * noise[:, 0]
    if name == "counts":
        return torch.poisson(given[1] * wave.exp())
    if name == "zero_inflated":
        return torch.where(torch.rand(NUM_ROWS) < 0.3, 0.0, torch.poisson((1.0 + wave / 2).exp()))
    if name == "ordinal":
        return dist.OrderedLogistic(2.0 * wave, torch.tensor([-2.0, 0.0, 2.0])).sample()
    if name == "several_outputs":
        return torch.stack([wave, x[:, 1]], -1) + 0.3 * torch.stack(
            [noise[:, 0], 0.8 * noise[:, 0] + 0.6 * noise[:, 1]], -1
        )
    if name == "mixture_density":
        return torch.where(torch.rand(NUM_ROWS) < 0.5, 1.0, -1.0) * (1.5 + wave / 2) + 0.3 * noise[:, 0]
    if name == "convolution":
        return (given[0][:, 0, :4].mean((1, 2)) - given[0][:, 0, 4:].mean((1, 2)) + 0.1 * noise[:, 0] > 0).long()
    if name == "recurrence":
        return torch.tanh(given[0].sum((1, 2)) / 2) + 0.2 * noise[:, 0]
    if name == "censored":
        return dist.Weibull(torch.nn.functional.softplus(wave + 1.0), 2.0).sample()
    return wave + 0.3 * noise[:, 0]


@functools.cache
def data(name: str) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Return the arguments to learn from and those held out."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        given = inputs(name)
        columns = (*given, outcome(name, given))
        if name == "censored":
            columns = (*columns[:-1], columns[-1].clamp(max=1.0), columns[-1] < 1.0)
        if name == "missing_outcomes":
            columns = (*columns, torch.arange(NUM_ROWS) % 4 > 0)
        if name == "weighted":
            columns = (*columns, torch.where(torch.arange(NUM_ROWS) < NUM_TRAIN, 1.0 + torch.arange(NUM_ROWS) % 2, 1.0))
    return tuple(c[:NUM_TRAIN] for c in columns), tuple(c[NUM_TRAIN:] for c in columns)


@functools.cache
def held_out(name: str, method: str) -> float:
    """Fit, predict, and return the mean log predictive density of held-out rows."""
    train, new = data(name)
    posterior = bz.fit(models()[name], METHODS[method], *train, seed=0, progress=False)
    tree = bz.predict(posterior, *new, num_draws=None if "Laplace" not in method and "VI" not in method else NUM_DRAWS)
    terms = tree["predictions_log_likelihood"].to_dataset().fillna(0.0).data_vars.values()  # NaN where masked
    values = sum(term.to_numpy().reshape(term.sizes["chain"] * term.sizes["draw"], -1) for term in terms)
    assert np.isfinite(values).all()
    return float((np.logaddexp.reduce(values, axis=0) - math.log(len(values))).mean())


CELLS = [
    pytest.param(
        name, method, cell, marks=[] if method == "MAP" and name in QUICK else [pytest.mark.slow], id=f"{name}-{method}"
    )
    for name, cells in table()[1].items()
    for method, cell in zip(table()[0], cells, strict=True)
]


@pytest.fixture(autouse=True)
def _as_users_run_it() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    yield
    torch.set_default_dtype(before)


@pytest.mark.filterwarnings("ignore::UserWarning")  # about convergence: predictions are compared instead
@pytest.mark.parametrize(("name", "method", "cell"), CELLS)
def test_every_cell_of_the_table_is_so(name: str, method: str, cell: str) -> None:
    if cell == "refused":
        with pytest.raises((LaplaceError, ModelError), match=r"HierarchicalLaplace|or use Laplace\(\)"):
            held_out(name, method)
        return
    assert cell == "yes"
    found = held_out(name, method)
    if "Laplace" in method and cell == "yes":
        assert held_out(name, "NUTS") - found < math.log(2)


def test_every_model_of_the_page_is_in_the_table() -> None:
    functions = re.findall(r"^def (\w+)\(", PAGE, re.MULTILINE)
    assert {*functions, "pyro_modules"} - {"network"} == set(table()[1])
    assert table()[0] == list(METHODS)
