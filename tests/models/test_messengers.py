"""Messengers, reparametrisations and distributions of Pyro: the log density of each is Pyro's own, or it is refused by name."""

import warnings
from pathlib import Path

import pytest
import torch

import bnnzoo as bz
from bnnzoo.core.model.density import first_run
from bnnzoo.core.program.sites import ModelError
from tests.helpers.messengers import (
    LATENT,
    MESSENGERS,
    OBSERVED,
    REFUSED,
    REPARAMETRISATIONS,
    UNCOMPILED,
    X,
    Y,
)
from tests.helpers.pyro_density import pyro_log_joint

MODELS = {
    **MESSENGERS,
    **REPARAMETRISATIONS,
    **LATENT,
    **{f"{name}, observed": each for name, each in OBSERVED.items()},
}
PAGE = Path(__file__).parents[2] / "docs" / "your_models.md"


@pytest.mark.parametrize("name", [name for name in MODELS if name not in UNCOMPILED])
def test_the_density_and_its_gradient_are_pyros(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        density, _ = first_run(MODELS[name], X, Y)
    theta = density.init(3, 1)
    values, gradients = density.batched_value_and_grad(theta, *density.data)
    for point, value, gradient in zip(theta, values, gradients, strict=True):
        leaf = point.clone().requires_grad_()
        expected = pyro_log_joint(density, leaf)
        (slope,) = torch.autograd.grad(expected, leaf, allow_unused=True, materialize_grads=True)
        torch.testing.assert_close(value, expected.detach(), rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(gradient, slope, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("name", UNCOMPILED)
def test_what_cannot_be_traced_runs_as_python(name: str) -> None:
    with pytest.warns(Warning, match="could not be traced into a tensor graph and runs as Python"):
        posterior = bz.fit(MODELS[name], bz.MAP(num_steps=3, polish_steps=0), X, Y, dtype=torch.float64, progress=False)
    theta = posterior.theta[0, 0]
    assert torch.isfinite(pyro_log_joint(posterior.density, theta))
    torch.testing.assert_close(
        posterior.density.log_joint(theta, *posterior.density.data), pyro_log_joint(posterior.density, theta)
    )


@pytest.mark.filterwarnings("ignore:Singular sample detected")  # of torch's Wishart
@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_fitted_is_refused_by_name(name: str) -> None:
    model, sentence = REFUSED[name]
    with pytest.raises(ModelError, match=sentence):
        bz.fit(model, bz.MAP(), X, Y, dtype=torch.float64, progress=False)


def test_the_table_of_the_docs_is_this_one() -> None:
    text = PAGE.read_text().split("## Messengers and distributions")[1].split("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| ")
    ]
    groups = {"messengers and statements": MESSENGERS, "reparametrisations": REPARAMETRISATIONS, "latent sites": LATENT}
    groups |= {"observed sites": OBSERVED, "run as Python, with a warning": UNCOMPILED, "refused, by name": REFUSED}
    found = {row[0]: row[1].split("; ") for row in rows if row[0]}
    assert found == {name: [*each] for name, each in groups.items()}
