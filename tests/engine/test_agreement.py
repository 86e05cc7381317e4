"""Native code that does something else than its graph is refused, however little it is off; rounding is not."""

from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

import bnnzoo as bz
from bnnzoo.core.model.density import build_density
from bnnzoo.engine import loops
from bnnzoo.engine.agreement import alike, disagreement
from bnnzoo.inference.markov.chain_settings import HamiltonianSettings
from bnnzoo.inference.markov.hamiltonian.hamiltonian_sampler import HamiltonianChains
from bnnzoo.inference.markov.hamiltonian.nuts import NUTSKernel

NUM_PARAMS = 14


class Example(NamedTuple):
    """The loop of a chain as native code and as a graph, and what it is tried on."""

    native: Any
    graph: Any
    inputs: list[Tensor]
    leaves: Any


def example_of(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> Example:
    """Return NUTS on a network of 14 parameters and 60 rows, whose state holds energies of hundreds beside positions."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60, 2, generator=generator, dtype=dtype)
    y = x.prod(1) + 0.1 * torch.randn(60, generator=generator, dtype=dtype)
    model = bz.models.supervised(bz.models.mlp(2, hidden=(3,)), bz.priors.fan_in(1.0), bz.likelihoods.gaussian())
    density = build_density(model, x, y, dtype=dtype)
    assert density.num_params == NUM_PARAMS
    found: list[Example] = []

    def spied(*args: Any) -> str | None:
        found.append(Example(*args))
        return disagreement(*args)

    monkeypatch.setattr(loops, "disagreement", spied)
    monkeypatch.setattr(loops, "COMPILED", {})
    monkeypatch.setattr(loops, "compiled_before", lambda name: None)
    settings = HamiltonianSettings(num_warmup=20, num_draws=5)
    HamiltonianChains(NUTSKernel(8), density, settings, density.init(1, 0), 0, 0, "native")
    return found[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_step_that_is_wrong_by_a_thousandth_of_itself_is_refused(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = example_of(dtype, monkeypatch)
    assert disagreement(*example) is None
    before = example.leaves(example.inputs)
    places = [place for place, leaf in enumerate(before) if leaf.shape == (NUM_PARAMS,)]

    def wrong(place: int, factor: float) -> Any:
        def call(*tensors: Tensor) -> None:
            start = example.leaves([tensor.clone() for tensor in tensors])[place]
            example.native(*tensors)
            leaf = example.leaves(tensors)[place]
            leaf += factor * (leaf - start)

        return call

    after = [tensor.clone() for tensor in example.inputs]
    example.native(*after)
    moved = [place for place in places if not torch.equal(before[place], example.leaves(after)[place])]
    assert len(moved) >= 3  # positions, momenta and gradients, at least
    for place in moved:
        reason = disagreement(wrong(place, 1e-3), *example[1:])
        assert reason is not None and reason.startswith(f"leaf {place} of shape [14] is off by")
        assert disagreement(wrong(place, 1e-9), *example[1:]) is None


def test_rounding_that_grows_is_told_from_an_error() -> None:
    """A difference of two large numbers is known as well as they are, and no better."""
    inputs = [torch.tensor([1.2345e4], dtype=torch.float32), torch.tensor([1.2344e4, 0.0], dtype=torch.float32)]

    def difference(offset: float) -> Any:
        def run(a: Tensor, b: Tensor) -> None:
            b[1] = (a[0] * a[0] - b[0] * b[0] + offset) / b[0]

        return run

    assert disagreement(difference(8.0), difference(0.0), inputs, list) is None
    reason = disagreement(difference(1e3), difference(0.0), inputs, list)
    assert reason == "leaf 1 of shape [2] is off by 8.1e-02, and has moved by 2.0e+00"


def test_a_decision_that_rounding_takes_is_told_from_an_error() -> None:
    def counted(limit: float, is_turned: bool) -> Any:
        def function(terms: Tensor, count: Tensor) -> None:
            a, b, c = terms
            count.copy_((a + (b + c) if is_turned else (a + b) + c) > limit)

        return function

    inputs = [torch.tensor([1.0, 1e8, -1e8], dtype=torch.float32), torch.tensor(0)]
    assert disagreement(counted(0.5, True), counted(0.5, False), inputs, list) is None
    assert disagreement(counted(-1e3, True), counted(1e3, False), inputs, list) == "leaf 1 of shape [] is another one"


def test_what_is_not_finite_is_so_in_both() -> None:
    def setting(value: float) -> Any:
        return lambda a: a.fill_(value)

    inputs = [torch.zeros(2)]
    for value in (torch.nan, torch.inf):
        assert disagreement(setting(value), setting(value), inputs, list) is None
        assert disagreement(setting(value), setting(1.0), inputs, list) is not None
        assert disagreement(setting(1.0), setting(value), inputs, list) is not None
    whole = [torch.zeros(2, dtype=torch.int64)]
    assert disagreement(setting(1), setting(2), whole, list) == "leaf 0 of shape [2] is another one"


def test_values_alike() -> None:
    assert alike(torch.tensor([1.0, torch.nan]), torch.tensor([1.0005, torch.nan]))
    assert not alike(torch.tensor([1.0]), torch.tensor([1.01])) and not alike(torch.tensor([1]), torch.tensor([2]))
