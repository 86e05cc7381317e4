"""Comparison of native code with the graph that it was made from, on an example."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

__all__ = ["STEPS_TRIED", "Leaves", "alike", "disagreement", "is_close"]

ROUNDING = 1e-3
"""Difference between values, relative to a tensor's largest entry, from which on it cannot be rounding."""

OF_CHANGE = 2e-4
"""Difference between two leaves after a few steps, relative to how far these moved the leaf."""

ULPS, GROWN = 16.0, 4.0
"""Difference in units of the last place of a leaf's largest entry: sums of some hundred terms, which another order rounds
differently; and in what a difference of one unit in the inputs grows to."""

STEPS_TRIED = 3
"""Steps after which newly compiled code must be where what it was made from is."""

TRIED = 24
"""Times that the inputs are changed at most, for a decision to fall otherwise that hangs on rounding."""

type Leaves = Callable[[Sequence[Tensor]], Sequence[Tensor]]


def disagreement(
    native: Callable[..., Any], graph: Callable[..., Any], inputs: Sequence[Tensor], leaves: Leaves
) -> str | None:
    """Return what native code does to copies of tensors that a graph does not, or None if they differ by rounding only.

    Leaves are compared one by one, by how far the steps of the example have moved them: a wrong gradient hides behind the
    largest entry of a position, and a wrong position behind an energy. What cannot be told from rounding by its size alone is
    held against what differences of one unit in the last place of the inputs grow to, which may change a decision, such as a
    number of steps.

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
    apart = [_gap(a, b, start) for start, a, b in zip(before, found, expected, strict=True)]
    beyond = [number for number, (gap, allowed, _) in enumerate(apart) if gap > allowed]
    if not beyond:
        return None
    grown, generator = [0.0] * len(expected), torch.Generator().manual_seed(0)
    for _ in range(TRIED):  # what the graph makes of inputs each of which differs in its last place
        changed = []
        for each in inputs:
            if each.is_floating_point():
                signs = torch.randint(0, 2, each.shape, generator=generator).to(each.device) * 2 - 1
                each = each * (1 + torch.finfo(each.dtype).eps * signs)
            changed.append(each)
        other = leaves(_after(graph, changed))
        grown = [max(most, _distance(a, b)) for most, a, b in zip(grown, other, expected, strict=True)]
        beyond = [number for number in beyond if apart[number][0] > apart[number][1] + GROWN * grown[number]]
        if not beyond:
            return None
    number, (gap, _, moved) = beyond[0], apart[beyond[0]]
    where = f"leaf {number} of shape {list(found[number].shape)}"
    if not found[number].is_floating_point():
        return f"{where} is another one"
    return f"{where} is off by {gap:.1e}, and has moved by {moved:.1e}"


def _after(function: Callable[..., Any], inputs: Sequence[Tensor]) -> list[Tensor]:
    copies = [tensor.clone() for tensor in inputs]
    with torch.no_grad():
        function(*copies)
    return copies


def _gap(a: Tensor, b: Tensor, start: Tensor) -> tuple[float, float, float]:
    """Return how far two tensors are apart, how far rounding may drive them, and how far they are from where they were."""
    far = _distance(a, b)
    if not a.is_floating_point() or far == torch.inf:
        return far, 0.0, torch.inf
    moved, size = _largest(b - start), max(_largest(b), _largest(start))
    digits = torch.finfo(a.dtype)  # of numbers that are smaller than `tiny` few are left
    return far, OF_CHANGE * moved + ULPS * digits.eps * size + digits.tiny, moved


def _largest(values: Tensor) -> float:
    """Return the largest entry but for those that are not finite."""
    return float(values.abs().nan_to_num(0.0, 0.0, 0.0).max()) if values.numel() else 0.0


def _distance(a: Tensor, b: Tensor) -> float:
    """Return the largest difference: infinite between whole numbers, and where one is finite and the other is not."""
    if not a.is_floating_point():
        return 0.0 if torch.equal(a, b) else torch.inf
    same = (a == b) | (a.isnan() & b.isnan())
    apart = torch.where(same, 0.0, (a - b).abs())
    return float(apart.nan_to_num(torch.inf).max()) if apart.numel() else 0.0


def is_close(a: Tensor, b: Tensor) -> bool:
    """Tell whether two values of one function agree to half of their digits, integers and truth values to all."""
    if not a.is_floating_point():
        return torch.equal(a, b)
    share = torch.finfo(a.dtype).eps ** 0.5
    return torch.allclose(a, b, rtol=share, atol=share, equal_nan=True)


def alike(a: Tensor, b: Tensor) -> bool:
    """Tell whether two tensors differ by rounding at most."""
    if not a.is_floating_point():
        return torch.equal(a, b)
    largest = max(1.0, float(b.nan_to_num(0.0, 0.0, 0.0).abs().amax())) if b.numel() else 1.0
    return torch.allclose(a, b, rtol=ROUNDING, atol=ROUNDING * largest, equal_nan=True)
