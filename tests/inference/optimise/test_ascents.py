"""Searches for modes among many fits: native code takes the steps that Python takes."""

import math
from collections.abc import Iterator
from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

from bnnzoo.core.model.density import LogDensity, build_density
from bnnzoo.core.model.kinds import first_of_kind, of_kind
from bnnzoo.engine.fits import fits_to_come
from bnnzoo.engine.runs import NativeRuns
from bnnzoo.inference.optimise import ascents
from bnnzoo.inference.optimise.ascents import AffineCoordinates, Ascent, SearchPoints, climbed
from bnnzoo.inference.optimise.lbfgs import Limits

FAR = Limits(200, 1e-9)


def curve(x: Tensor, y: Tensor) -> None:
    slope = pyro.sample("slope", dist.Normal(torch.zeros(2), 2.0).to_event(1))
    scale = pyro.sample("scale", dist.HalfNormal(1.0))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.StudentT(4.0, slope[0] * x + slope[1] * x.sin(), scale), obs=y)


def data(seed: int) -> tuple[Tensor, Tensor]:
    x = torch.linspace(-2.0, 2.0, 30)
    return x, x - 0.5 * x.sin() + 0.3 * torch.randn(30, generator=torch.Generator().manual_seed(seed))


def searched(
    density: LogDensity, limits: Limits = FAR, units: AffineCoordinates | None = None, **settings: Any
) -> Ascent:
    start = density.init(5, 1)
    value, gradient = density.value_and_grad(start, *density.data)
    z = start if units is None else torch.linalg.solve(units.root, (start - units.loc).mT).mT
    gradient = gradient if units is None else gradient @ units.root
    return climbed(density, density.value_and_grad, SearchPoints(z, value, gradient), limits, units, **settings)


@pytest.fixture
def kinds() -> Iterator[tuple[LogDensity, LogDensity]]:
    """Two densities of one kind, of thousands."""
    known = first_of_kind(build_density(curve, *data(0)))
    other = of_kind(known, data(1), known.init(1, 0))
    assert other is not None
    with fits_to_come(1000):
        yield known, other[0]


def made(density: LogDensity) -> Any:
    """Return what the fits of a density's kind share of searches."""
    return density.shared("searches for modes", lambda: "nothing")


@pytest.mark.parametrize(
    "limits", [FAR, Limits(7, 0.0), Limits(200, 0.0, 1e-3, 12)], ids=["far", "steps", "evaluations"]
)
@pytest.mark.parametrize("in_units", [False, True])
def test_native_code_takes_the_steps_of_python(kinds: Any, limits: Limits, in_units: bool) -> None:
    root = torch.tensor([[0.5, 0.0, 0.0], [0.2, 2.0, 0.0], [0.0, -0.3, 1.5]])
    units = AffineCoordinates(torch.tensor([0.3, -0.2, 0.1]), root) if in_units else None
    for density, seed in zip(kinds, (0, 1), strict=True):
        found = searched(density, limits, units)
        expected = searched(build_density(curve, *data(seed)), limits, units, keeps_way=True)
        for one, other in zip((*found.end, *found[1:]), (*expected.end, *expected[1:]), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)
    assert isinstance(made(kinds[1]), ascents._NativeAscents)


def test_the_way_leads_from_the_start_to_the_end(kinds: Any) -> None:
    density = kinds[0]
    found = searched(density)
    assert torch.equal(found.way[:, 0], density.init(5, 1)) and torch.equal(found.way[:, -1], found.end.z)
    heights, _ = density.value_and_grad(found.way.flatten(0, 1), *density.data)
    assert bool((heights.view(5, -1).diff(dim=1) >= -1e-9).all())
    torch.testing.assert_close(heights.view(5, -1)[:, -1], found.end.value)
    assert found.end.gradient.abs().max() < 1e-6


def test_of_few_fits_none_is_compiled() -> None:
    density = first_of_kind(build_density(curve, *data(0)))
    with fits_to_come(ascents.MIN_FITS_TO_COMPILE_SEARCHES - 1):
        searched(density)
    assert made(density) == "nothing"


def test_a_search_beside_another_that_is_not_finite_goes_on(kinds: Any) -> None:
    density = kinds[0]
    start = density.init(2, 1)
    start[1, 2] = 1e3  # a scale of e^1000
    value, gradient = density.value_and_grad(start, *density.data)
    assert value.isfinite().tolist() == [True, False]
    found = climbed(density, density.value_and_grad, SearchPoints(start, value, gradient), FAR).end
    assert found.value.isfinite().tolist() == [True, False]
    assert math.isclose(found.value[0], searched(density).end.value.max())


def test_code_whose_steps_lead_elsewhere_is_not_used(kinds: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    call = NativeRuns.__call__

    def off(self: Any, *inputs: Tensor) -> list[Tensor]:
        first, *others = call(self, *inputs)
        return [first + 1e-3, *others]

    monkeypatch.setattr(NativeRuns, "__call__", off)
    torch.testing.assert_close(searched(kinds[0]).end.gradient, torch.zeros(5, 3), rtol=0, atol=1e-6)
    assert made(kinds[0]) is None


def test_without_a_compiler_python_searches(kinds: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: Any) -> None:
        raise RuntimeError("no compiler")

    monkeypatch.setattr("bnnzoo.inference.optimise.ascents.NativeRuns", fails)
    torch.testing.assert_close(searched(kinds[0]).end.gradient, torch.zeros(5, 3), rtol=0, atol=1e-6)
    assert made(kinds[0]) is None
