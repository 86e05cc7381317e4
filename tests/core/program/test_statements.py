"""Statements that torch or Pyro refuse in words of their own are refused by the name of the site, or work."""

from collections.abc import Callable

import numpy as np
import pyro
import pyro.contrib.gp as gp
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

import bnnzoo as bz
from bnnzoo.core.model.density import build_density
from bnnzoo.core.program.filling import FillingModel
from bnnzoo.core.program.sites import ModelError

Y = torch.linspace(0.5, 1.5, 20, dtype=torch.float64)
SHORT = bz.Laplace(bz.MAP(num_steps=20))


def observe(mean: Tensor, y: Tensor) -> None:
    with pyro.plate("data", len(y)):
        pyro.sample("y", dist.Normal(mean, 1.0), obs=y)


def by_numpy(y: Tensor) -> None:
    observe(torch.as_tensor(np.tanh(pyro.sample("a", dist.Normal(0.0, 1.0)).numpy())), y)


def named_by_data(y: Tensor) -> None:
    observe(pyro.sample("a", dist.Normal(0.0, 1.0)), y)
    pyro.sample(y, dist.Normal(0.0, 1.0))


def named_by_number(y: Tensor) -> None:
    pyro.sample(3, dist.Normal(0.0, 1.0))


def first_zero(y: Tensor) -> None:
    e = pyro.sample("e", dist.Normal(torch.zeros(20), 1.0).to_event(1))
    e[0] = 0.0
    observe(e, y)


def doubled(y: Tensor) -> None:
    observe(pyro.sample("e", dist.Normal(torch.zeros(20), 1.0).to_event(1)).mul_(2.0), y)


def of_torch(y: Tensor) -> None:
    a = pyro.sample("a", dist.LogNormal(0.0, 1.0))
    with pyro.plate("data", len(y)):
        pyro.sample("y", torch.distributions.Kumaraswamy(a, torch.tensor(2.0)), obs=y / 3)


def latent_of_torch(y: Tensor) -> None:
    observe(pyro.sample("a", torch.distributions.Normal(0.0, 1.0)), y)


def gaussian_process(y: Tensor) -> None:
    gp.models.GPRegression(torch.linspace(0, 1, 20), y, gp.kernels.RBF(1)).model()


REFUSED: dict[str, tuple[Callable[..., None], str]] = {
    "numpy": (by_numpy, r"calls \.numpy\(\) on a latent value, after site 'a', where gradients stop"),
    "tensor as name": (
        named_by_data,
        r"names a site by an object of type Tensor, after site 'y'.* pyro\.sample\('y', \.\.\.\)",
    ),
    "number as name": (named_by_number, r"names a site by an object of type int, at its first site"),
    "element in place": (first_zero, r"changes a latent value in place, after site 'e'.* value = value\.clone\(\)"),
    "in place": (doubled, r"changes a latent value in place, after site 'e'"),
    "torch's": (
        of_torch,
        r"Site 'y' has a distribution of torch, Kumaraswamy.* write pyro\.distributions\.Kumaraswamy",
    ),
    "torch's, latent": (latent_of_torch, r"Site 'a' has a distribution of torch, Normal"),
    "GP": (gaussian_process, r"learnable parameter 'kernel\.\w+'.* m\.kernel\.\w+ = pyro\.nn\.PyroSample\(\.\.\.\)"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_statement_is_refused_by_the_name_of_its_site(name: str) -> None:
    model, sentence = REFUSED[name]
    with pytest.raises(ModelError, match=sentence):
        bz.fit(model, SHORT, Y, progress=False)


def recursive(a: Tensor, join: bool, num: int = 6) -> Tensor:
    """An autoregression's means, joined or written into a tensor."""
    if join:
        values = [torch.tensor(1.0)]
        for _ in range(1, num):
            values.append(a * values[-1] + 0.1 * a**2)
        return torch.stack(values)
    m = torch.zeros(num)
    m[0] = 1.0
    for t in range(1, num):
        m[t] = a * m[t - 1] + 0.1 * a**2
    return m


def square(a: Tensor, join: bool, num: int = 6) -> Tensor:
    """Sums over rows of a matrix that is filled from those before."""
    if join:
        rows = [torch.ones(3)]
        for _ in range(1, num):
            rows.append(a * rows[-1].flip(0).exp() + 0.01)
        return torch.stack(rows).sum(1)
    m = torch.zeros(num, 3)
    m[0] = 1.0
    for t in range(1, num):
        m[t] = a * m[t - 1].flip(0).exp() + 0.01
    return m.sum(1)


@pytest.mark.parametrize("means", [recursive, square], ids=["vector", "matrix"])
def test_values_written_where_earlier_ones_were_read_have_the_gradient_of_a_list(means: Callable) -> None:
    y = Y[:6]

    def model(join: bool) -> Callable[[Tensor], None]:
        return lambda y: observe(means(pyro.sample("a", dist.Normal(0.0, 0.5)), join), y)

    filled, joined = (build_density(model(join), y) for join in (False, True))
    assert isinstance(filled.model, FillingModel) and not isinstance(joined.model, FillingModel)
    theta = torch.tensor([[0.3], [0.9], [-0.5]])
    for density in (filled, joined):
        found = density.batched_value_and_grad(theta, y), density.value_and_grad(theta, y)
        expected = joined.batched_value_and_grad(theta, y)
        for one in found:
            torch.testing.assert_close(one[0], expected[0], rtol=1e-12, atol=1e-12)
            torch.testing.assert_close(one[1], expected[1], rtol=1e-10, atol=1e-12)


def test_a_factor_may_be_named_as_a_dimension() -> None:
    def model(y: Tensor) -> None:
        a = pyro.sample("a", dist.Normal(0.0, 1.0))
        pyro.factor("chain", -(a**2))
        observe(a, y)

    tree = bz.posterior_predictive(bz.fit(model, SHORT, Y, progress=False), Y, num_draws=4)
    a = tree["posterior"]["a"]
    np.testing.assert_allclose(tree["log_prior"]["chain_factor"], -(a**2), rtol=1e-12)


def test_outcomes_of_different_numbers_of_classes_and_columns_share_a_tree() -> None:
    def model(x: Tensor, *outcomes: Tensor) -> None:
        a = pyro.sample("a", dist.Normal(0.0, 1.0))
        f = a * x
        y = (*outcomes, *(None,) * (4 - len(outcomes)))
        with pyro.plate("data", len(x)):
            pyro.sample("two", dist.Bernoulli(logits=f), obs=y[0])
            pyro.sample("three", dist.Categorical(logits=torch.stack([f, -f, 0 * f], -1)), obs=y[1])
            pyro.sample("pair", dist.Normal(torch.stack([f, -f], -1), 1.0).to_event(1), obs=y[2])
            pyro.sample("triple", dist.Normal(torch.stack([f, -f, f], -1), 1.0).to_event(1), obs=y[3])

    data = Y, (Y > 1).to(Y), torch.arange(20) % 3, torch.zeros(20, 2), torch.zeros(20, 3)
    tree = bz.posterior_predictive(bz.fit(model, SHORT, *data, progress=False), *data, num_draws=4)
    probs = tree["conditional"]["two.probs"]
    assert dict(probs.sizes) == {"chain": 1, "draw": 4, "obs_id": 20, "class_id": 3}
    assert bool((probs[..., 2] == 0).all()) and bool(np.isclose(probs.sum("class_id"), 1.0).all())
    assert tree["conditional"]["pair.mean"].dims[-1] == "output_id"
    assert tree["conditional"]["triple.mean"].dims[-1] == "output_id_triple"
    assert tree["posterior_predictive"]["triple"].dims[-1] == "output_id_triple"
    assert tree["observed_data"]["triple"].dims == ("obs_id", "output_id_triple")


def test_an_error_that_is_not_explained_keeps_its_cause() -> None:
    cause = ValueError("the file has no columns")

    def model(x: torch.Tensor, y: torch.Tensor | None = None) -> None:
        raise KeyError("dose") from cause

    with pytest.raises(KeyError, match="dose") as caught:
        build_density(model, torch.ones(3), torch.ones(3))
    assert caught.value.__cause__ is cause
