"""Functions of a point at many points: the graph decides what is right, and native code takes over where it pays."""

import warnings

import pytest
import torch

from bnnzoo.engine import points as points_module
from bnnzoo.engine.fits import fits_to_come
from bnnzoo.engine.points import Points

X = torch.linspace(-1, 1, 30, dtype=torch.float64)


def alone(theta, x):
    """Return a log density and a factorisation, which fails where theta is negative."""
    covariance = theta[0] * torch.eye(2, dtype=theta.dtype) + theta[1] ** 2
    return {"log": -(theta[0] * x).square().sum() / 2, "root": torch.linalg.cholesky_ex(covariance)[0].diagonal()}


def batched(theta, x):
    return torch.func.vmap(lambda row: alone(row, x))(theta)


def made(number):
    """Return the function after its first call, with how often it runs in native code."""
    found = Points(alone, batched, num_calls=1000)
    with fits_to_come(number):
        found(torch.ones(4, 2, dtype=torch.float64), X)
    return found


def is_native(points, monkeypatch):
    """Tell whether a call leaves the graph alone."""
    calls = []
    specialize = points_module.Lowered.specialize
    monkeypatch.setattr(
        points_module.Lowered, "specialize", lambda *args, **n: (calls.append(1), specialize(*args, **n))[1]
    )
    points(torch.ones(4, 2, dtype=torch.float64), X)
    return not calls


def test_native_code_gives_what_the_graph_gives():
    theta = torch.rand(64, 2, dtype=torch.float64) + 0.1
    native, graph = made(100_000)(theta, X), batched(theta, X)
    assert native.keys() == graph.keys()
    for name, values in native.items():
        torch.testing.assert_close(values, graph[name], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("number", "native"), [(1, False), (100_000, True)])
def test_native_code_is_made_where_many_fits_pay_for_it(number, native, monkeypatch):
    assert is_native(made(number), monkeypatch) == native


def test_an_operation_without_native_code_stays_a_graph():
    def sorts(theta):
        return torch.linalg.eigvalsh(theta.outer(theta)).amax()

    found = Points(sorts, torch.func.vmap(sorts), num_calls=1000)
    theta = torch.rand(5, 3, dtype=torch.float64)
    with fits_to_come(100_000):
        first, again = found(theta), found(theta)
    torch.testing.assert_close(first, theta.square().sum(1))
    torch.testing.assert_close(again, first)


def test_native_code_that_disagrees_is_not_used(monkeypatch):
    found = Points(lambda theta, x: {"log": theta.sum(), "root": theta}, batched, num_calls=1000)
    with fits_to_come(100_000):
        found(torch.ones(4, 2, dtype=torch.float64), X)
    assert not is_native(found, monkeypatch)


@pytest.mark.parametrize("is_traced", [True, False])
def test_one_point_and_a_few_share_a_graph(is_traced):
    sizes = []

    def several(theta, x):
        sizes.append(len(theta))
        assert is_traced or float(theta.sum()) > 0  # of which no graph can be made
        return batched(theta, x)

    def looped(theta, x):
        sizes.append(-len(theta))
        return batched(theta, x)

    found = Points(alone, several, num_calls=0, fallback=looped, at_least=8)
    theta = torch.rand(12, 2, dtype=torch.float64) + 0.1
    for number in (1, 3, 8, 12):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            values = found(theta[:number], X)
        for name, expected in batched(theta[:number], X).items():
            torch.testing.assert_close(values[name], expected)
    if is_traced:
        assert set(sizes) == {8, 12}
    else:  # as Python no point is evaluated for nothing
        sizes.clear()
        found(theta[:3], X)
        assert sizes == [-3]


@pytest.mark.parametrize(("num_calls", "number"), [(0, 1), (1000, 1), (1000, 100_000)])
def test_a_loop_looks_again_at_points_of_other_shapes_and_at_other_arguments(num_calls, number):
    found = Points(alone, batched, num_calls, at_least=3)
    theta = torch.rand(5, 2, dtype=torch.float64) + 0.1
    with fits_to_come(number):
        evaluate = found.repeated()
        for rows, x in [(theta, X), (theta, X), (theta[:1], X), (theta[:2], X), (theta[:2], 3 * X), (theta, X[::2])]:
            values = evaluate(rows, x)
            for name, expected in batched(rows, x).items():
                torch.testing.assert_close(values[name], expected)


@pytest.mark.parametrize(("compiles", "expected"), [(True, [1, 2, 3, 4, 5]), (False, [1, 1])])
def test_a_loop_asks_for_a_faster_form_once_it_has_run_as_long_as_that_takes(compiles, expected, monkeypatch):
    found, asked = Points(alone, batched, num_calls=0), []
    specialize = found.specialize
    monkeypatch.setattr(found, "specialize", lambda *a, num_calls: (asked.append(num_calls), specialize(*a))[1])
    monkeypatch.setattr(points_module.Specialized, "stays_for", 1.0)  # a faster form pays at the second call
    evaluate = found.repeated(compiles=compiles)
    for _ in range(5):
        evaluate(torch.rand(5, 2, dtype=torch.float64) + 0.1, X)
    assert asked == expected  # where it compiles nothing, once for what native code has to give, and once for the loop
