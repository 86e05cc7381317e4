"""Comparison of native code with the graph that it was made from, on an example."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

__all__ = ["Leaves", "alike", "disagreement"]

ROUNDING = 1e-3
"""Difference between values, relative to a tensor's largest entry, from which on it cannot be rounding."""

OF_CHANGE = 2e-4
"""Difference between two leaves after a few steps, relative to how far these moved the leaf."""

ULPS, GROWN = 16.0, 4.0
"""Difference in units of the last place of a leaf's largest entry: sums of some hundred terms, which another order rounds
differently; and in what a difference of one unit in the inputs grows to."""

TRIED = 3

type Leaves = Callable[[Sequence[Tensor]], Sequence[Tensor]]


def disagreement(
    native: Callable[..., Any], graph: Callable[..., Any], inputs: Sequence[Tensor], leaves: Leaves
) -> str | None:
    """Return what native code does to copies of tensors that a graph does not, or None if they differ by rounding only.

    Leaves are compared one by one, by how far the steps of the example have moved them: a wrong gradient hides behind the
    largest entry of a position, and a wrong position behind an energy. What cannot be told from rounding by its size alone is
    held against what differences of one unit in the last place of the inputs grow to.

    Parameters
    ----------
    native, graph : callable
        Functions of tensors, which they change in place.
    inputs : sequence of Tensor
    leaves : callable
        ``tensors -> leaves``: the state and all else that they hold.
    """
    ours, theirs = _after(native, inputs), _after(graph, inputs)
    before, found, expected = ([leaf.clone() for leaf in leaves(each)] for each in (inputs, ours, theirs))
    noise: list[float] | None = None
    for number, (start, a, b) in enumerate(zip(before, found, expected, strict=True)):
        if not a.is_floating_point():
            if not torch.equal(a, b):
                return f"leaf {number} of shape {list(a.shape)} is another one"
            continue
        gap, allowed, moved = _gap(a, b, start)
        if gap > allowed:
            noise = noise or _grown(graph, inputs, leaves, expected)
            if gap > allowed + GROWN * noise[number]:
                return f"leaf {number} of shape {list(a.shape)} is off by {gap:.1e}, and has moved by {moved:.1e}"
    return None


def _after(function: Callable[..., Any], inputs: Sequence[Tensor]) -> list[Tensor]:
    copies = [tensor.clone() for tensor in inputs]
    with torch.no_grad():
        function(*copies)
    return copies


def _gap(a: Tensor, b: Tensor, start: Tensor) -> tuple[float, float, float]:
    """Return how far two tensors are apart, how far rounding may drive them, and how far they are from where they were."""
    same = (a == b) | (a.isnan() & b.isnan())
    apart = torch.where(same, 0.0, (a - b).abs())
    if not bool(apart.isfinite().all()):
        return torch.inf, 0.0, torch.inf
    moved, size = _largest(b - start), max(_largest(b), _largest(start))
    digits = torch.finfo(a.dtype)  # of numbers that are smaller than `tiny` few are left
    return _largest(apart), OF_CHANGE * moved + ULPS * digits.eps * size + digits.tiny, moved


def _largest(values: Tensor) -> float:
    """Return the largest entry but for those that are not finite."""
    return float(values.abs().nan_to_num(0.0, 0.0, 0.0).max()) if values.numel() else 0.0


def _grown(
    graph: Callable[..., Any], inputs: Sequence[Tensor], leaves: Leaves, expected: Sequence[Tensor]
) -> list[float]:
    """Return how far each leaf comes from where it was expected if every input differs in its last place, tried three times."""
    generator = torch.Generator().manual_seed(0)
    grown = [0.0] * len(expected)
    for _ in range(TRIED):
        found = leaves(_after(graph, [_in_last_place(each, generator) for each in inputs]))
        for number, (a, b) in enumerate(zip(found, expected, strict=True)):
            if a.is_floating_point():
                grown[number] = max(grown[number], _largest(a - b))
    return grown


def _in_last_place(tensor: Tensor, generator: torch.Generator) -> Tensor:
    if not tensor.is_floating_point():
        return tensor
    signs = torch.randint(0, 2, tensor.shape, generator=generator).to(tensor.device) * 2 - 1
    return tensor * (1 + torch.finfo(tensor.dtype).eps * signs)


def alike(a: Tensor, b: Tensor) -> bool:
    """Tell whether two tensors differ by rounding at most."""
    if not a.is_floating_point():
        return torch.equal(a, b)
    largest = max(1.0, float(b.nan_to_num(0.0, 0.0, 0.0).abs().amax())) if b.numel() else 1.0
    return torch.allclose(a, b, rtol=ROUNDING, atol=ROUNDING * largest, equal_nan=True)
