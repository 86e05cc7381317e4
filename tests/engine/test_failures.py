"""Numerical failures: which errors count as such, and linear algebra that returns NaN where it would raise."""

import math
from collections.abc import Callable

import numpy as np
import pyro
import pytest
import torch
from torch import Tensor
from torch.func import vmap
from torch.fx import GraphModule

from bnnzoo.engine.failures import FailuresAsNaN, is_numerical, rescued
from bnnzoo.engine.lowered import Lowered
from bnnzoo.engine.value_and_grad import eager_value_and_grad, looped_value_and_grad

GOOD, BAD = torch.tensor([[2.0, 0.5], [0.5, 1.0]]), torch.tensor([[1.0, 2.0], [2.0, 1.0]])


def raised(function: Callable[[], object]) -> Exception:
    try:
        function()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize(
    "function",
    [
        lambda: torch.linalg.cholesky(BAD),
        lambda: torch.linalg.inv(torch.zeros(2, 2)),
        lambda: np.linalg.cholesky(BAD.numpy()),
        lambda: math.log(-1.0),
        lambda: math.exp(1e9),
        lambda: 1 / 0,
        lambda: torch.distributions.Normal(0.0, torch.tensor(0.0), validate_args=True),
        lambda: torch.distributions.Gamma(1.0, 1.0, validate_args=True).log_prob(torch.tensor(-1.0)),
        lambda: torch.normal(0.0, torch.tensor([-1.0])),
        lambda: torch.multinomial(torch.tensor([float("nan"), 1.0]), 1),
        lambda: torch.poisson(torch.tensor([float("nan")])),
        lambda: torch.bernoulli(torch.tensor([float("nan")])),
    ],
)
def test_errors_of_numbers_are_told_apart(function: Callable[[], object]) -> None:
    assert is_numerical(raised(function))


@pytest.mark.parametrize(
    "function", [lambda: torch.zeros(2) @ torch.zeros(3), lambda: int("a"), lambda: {}["a"], lambda: torch.zeros(()).a]
)
def test_errors_of_code_are_not_numerical(function: Callable[[], object]) -> None:
    assert not is_numerical(raised(function))


NAN_AND_HALF = torch.tensor([math.nan, 0.5])
DRAWN: dict[str, Callable[[], torch.distributions.Distribution]] = {
    "Poisson": lambda: torch.distributions.Poisson(NAN_AND_HALF),
    "Bernoulli": lambda: torch.distributions.Bernoulli(NAN_AND_HALF),
    "binomial": lambda: torch.distributions.Binomial(3, NAN_AND_HALF),
    "normal": lambda: torch.distributions.Normal(0.0, NAN_AND_HALF),
    "normal about it": lambda: torch.distributions.Normal(NAN_AND_HALF, 1.0),
    "gamma": lambda: torch.distributions.Gamma(NAN_AND_HALF, 1.0),
    "beta": lambda: torch.distributions.Beta(NAN_AND_HALF, 1.0),
    "negative binomial": lambda: torch.distributions.NegativeBinomial(NAN_AND_HALF, 0.5),
    "negative rate": lambda: torch.distributions.Poisson(torch.tensor([-1.0, 0.5])),
    "categorical": lambda: torch.distributions.Categorical(torch.stack([NAN_AND_HALF, torch.ones(2)], -1)),
}


@pytest.mark.parametrize("name", DRAWN)
def test_what_is_drawn_given_nan_is_nan(name: str) -> None:
    torch.manual_seed(0)
    with pyro.validation_enabled(False), FailuresAsNaN():
        found = DRAWN[name]().sample()
    assert found.isnan().tolist() == [True, False]


def test_classes_stay_whole_numbers_where_none_is_lost() -> None:
    with FailuresAsNaN():
        assert torch.distributions.Categorical(torch.ones(2, 3)).sample().dtype == torch.int64


def test_numbers_drawn_before_a_failure_are_drawn_again_from_the_same_stream() -> None:
    graph = torch.fx.Graph()
    *rates, stream = (graph.placeholder(name) for name in ("good", "bad", "stream"))
    graph.output(tuple(graph.call_function(torch.ops.aten.poisson.default, (rate, stream)) for rate in rates))
    drawn = GraphModule({}, graph)
    good, bad = torch.full((20,), 5.0), torch.tensor([-1.0, 5.0])
    found, lost = rescued(drawn, drawn)(good, bad, torch.Generator().manual_seed(3))
    assert torch.equal(found, torch.poisson(good, generator=torch.Generator().manual_seed(3)))
    assert lost.isnan().tolist() == [True, False]


def test_a_point_of_a_simplex_is_lost_as_a_whole() -> None:
    with pyro.validation_enabled(False), FailuresAsNaN():
        found = torch.distributions.Dirichlet(torch.tensor([[1.0, math.nan, 2.0], [1.0, 1.0, 2.0]])).sample()
    assert found.isnan().tolist() == [[True] * 3, [False] * 3]


FACTORISATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "cholesky": torch.linalg.cholesky,
    "solve": lambda a: torch.linalg.solve(torch.where(a[..., :1, :1] == 1, 0.0, a), torch.ones(2)),
}


@pytest.mark.parametrize("name", FACTORISATIONS)
def test_only_the_matrix_that_fails_is_nan(name: str) -> None:
    both = torch.stack([GOOD, BAD, GOOD])
    with FailuresAsNaN():
        found = FACTORISATIONS[name](both)
        batched = vmap(FACTORISATIONS[name])(both)
    assert found.isnan().flatten(1).any(1).tolist() == [False, True, False]
    torch.testing.assert_close(found, batched, equal_nan=True)
    torch.testing.assert_close(found[0], FACTORISATIONS[name](GOOD))


def test_gradients_of_what_fails_are_nan_and_the_others_as_ever() -> None:
    both = torch.stack([GOOD, BAD]).requires_grad_()
    with FailuresAsNaN():
        (gradient,) = torch.autograd.grad(torch.linalg.cholesky(both).sum(), both)
    alone = GOOD.clone().requires_grad_()
    (expected,) = torch.autograd.grad(torch.linalg.cholesky(alone).sum(), alone)
    torch.testing.assert_close(gradient[0], expected)
    assert bool(gradient[1].isnan().all())


def test_a_factorisation_whose_caller_looks_at_the_outcome_is_left_alone() -> None:
    with FailuresAsNaN():
        factor, info = torch.linalg.cholesky_ex(BAD)
    assert int(info) == 2 and not bool(factor.isnan().any())


def log_abs_eigenvalues(theta: Tensor) -> Tensor:
    matrix = torch.where(theta.sum() > 0, 1.0, torch.nan) * (theta[:, None] * theta + torch.eye(len(theta)))
    return torch.linalg.eigvalsh(matrix).log().sum()


@pytest.mark.parametrize("num_calls", [1, pytest.param(1e9, marks=pytest.mark.slow)], ids=["traced", "compiled"])
def test_decompositions_that_raise_return_nan_in_lowered_functions(num_calls: float) -> None:
    theta = torch.tensor([[1.0, 2.0], [-1.0, -2.0], [0.5, 0.5]])
    expected = (1 + theta.square().sum(1)).log()
    found = Lowered(vmap(log_abs_eigenvalues)).specialize(theta, num_calls=num_calls)(theta)
    assert found.isfinite().tolist() == [True, False, True]
    torch.testing.assert_close(found[[0, 2]], expected[[0, 2]])


def test_a_function_is_traced_at_a_point_at_which_it_fails() -> None:
    lowered = Lowered(vmap(torch.linalg.cholesky))
    found = lowered(torch.stack([BAD, GOOD]))
    assert lowered.specialize(torch.stack([BAD, GOOD])).how == "traced"
    assert found[0].isnan().any() and found[1].isfinite().all()


def test_loops_give_minus_infinity_where_the_function_fails() -> None:
    def log_density(theta: Tensor) -> Tensor:
        return -math.exp(float(theta[0].detach())) * theta.square().sum()

    value, gradient = looped_value_and_grad(log_density)(torch.tensor([[0.0, 1.0], [1e9, 1.0]]))
    assert value.tolist() == [-1.0, -math.inf]
    assert gradient[0].tolist() == [0.0, -2.0] and bool(gradient[1].isnan().all())


def test_loops_raise_errors_of_code() -> None:
    with pytest.raises(RuntimeError, match="size"):
        eager_value_and_grad(lambda theta: theta @ torch.zeros(3), torch.zeros(2))
