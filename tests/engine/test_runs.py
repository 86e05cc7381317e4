"""Native code that runs at one point after another gives what the graph gives at each."""

import pytest
import torch
from torch import Tensor

from bnnzoo.engine.cpp.translate import for_native
from bnnzoo.engine.graphs import trace
from bnnzoo.engine.runs import NativeRuns

ROUNDING = {torch.float32: 2e-5, torch.float64: 1e-12}
CONSTANT = torch.arange(12.0).reshape(4, 3)


def function(theta: Tensor, x: Tensor, n: Tensor) -> tuple[Tensor, ...]:
    weights = theta[:12].view(4, 3)
    hidden = torch.relu(x @ weights.T) @ (weights + CONSTANT.to(theta))
    return hidden, hidden.sum(1), theta[12].exp(), theta[12].expand(len(x)), (n > 2) & (theta[12] > 0), x


def inputs(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    theta = torch.randn(7, 13, generator=generator, dtype=dtype)
    return theta, torch.randn(9, 3, generator=generator, dtype=dtype), torch.arange(9)


@pytest.mark.parametrize("dtype", ROUNDING, ids=str)
def test_every_run_is_that_of_the_graph(dtype: torch.dtype):
    theta, x, n = inputs(dtype)
    graph, _ = trace(function, [theta[0].clone(), x, n])
    runs = NativeRuns(graph, [theta[0], x, n], moving={0})
    found = runs(theta, x.T.contiguous().T, n)
    expected = [torch.stack(each) for each in zip(*(function(row, x, n) for row in theta), strict=True)]
    for value, wanted in zip(found, expected, strict=True):
        assert value.dtype == wanted.dtype
        torch.testing.assert_close(value, wanted, rtol=ROUNDING[dtype], atol=ROUNDING[dtype])
    assert runs(theta[:1], x, n)[0].shape == (1, 9, 3)


def test_layers_of_networks_are_written_in_cpp():
    theta, x, _ = inputs(torch.float64)

    def layers(theta: Tensor, x: Tensor) -> tuple[Tensor, ...]:
        hidden = torch.nn.functional.linear(x, theta[:12].view(4, 3), theta[:4])
        scaled = torch.nn.functional.layer_norm(hidden, (4,), theta[4:8], theta[8:12])
        return scaled, torch.addmm(theta[:4], x, theta[:12].view(3, 4), beta=2, alpha=0.5), x.mean(), x.mean(0)

    graph, _ = trace(layers, [theta[0].clone(), x], for_native())
    found = NativeRuns(graph, [theta[0], x], moving={0})(theta, x)
    for value, wanted in zip(found, zip(*(layers(row, x) for row in theta), strict=True), strict=True):
        torch.testing.assert_close(value, torch.stack(wanted), rtol=1e-12, atol=1e-12)


def test_values_are_written_where_they_belong():
    theta, x, n = inputs(torch.float64)
    runs = NativeRuns(trace(function, [theta[0].clone(), x, n])[0], [theta[0], x, n], moving={0})
    whole = torch.zeros(7, 30, 3, dtype=torch.float64)
    place = whole[:, 10:19]
    assert runs.fits(0, place)
    assert not runs.fits(0, whole) and not runs.fits(0, place.float()) and not runs.fits(1, whole[:, ::3, 0])
    found = runs(theta, x, n, into=[place])
    assert found[0] is place
    assert torch.equal(place, runs(theta, x, n)[0])
    assert not whole[:, :10].any() and not whole[:, 19:].any()


def test_something_has_to_move():
    with pytest.raises(ValueError, match="NativeRuns needs an input that moves"):
        NativeRuns(trace(lambda x: (x + 1,), [torch.ones(2)])[0], [torch.ones(2)], moving=set())
