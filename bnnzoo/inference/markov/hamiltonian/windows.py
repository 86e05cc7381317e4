"""Ends of the windows of adaptation of chains in one batch: each chain gets a mass matrix when its own window ends."""

from typing import Any

import torch
from torch import Tensor

from bnnzoo.engine import pytree
from bnnzoo.inference.markov.adaptation import (
    Adaptation,
    growth_of_narrowest,
    metric_from,
    retuned_step_size,
)
from bnnzoo.inference.markov.hamiltonian.kernel import Metric

__all__ = ["close_windows"]


def close_windows(
    metric: Metric, adaptation: Adaptation, counts: Tensor, chains: Tensor, ends: tuple[int, ...]
) -> None:
    """Close the windows of adaptation that end with the latest draws of some chains, whose mass matrices are overwritten."""
    latest = counts[chains]
    ends_window = torch.isin(latest, torch.tensor(ends[1:], dtype=latest.dtype))
    for chain in chains[ends_window].tolist():
        _close_window(metric, adaptation, chain, int(counts[chain]) == ends[1])


def _close_window(metric: Metric, adaptation: Adaptation, chain: int, first: bool) -> None:
    """Give one chain the mass matrix estimated in the window that ends now, and forget the window."""
    learnt: Adaptation = _of_chain(adaptation, chain)
    new = metric_from(learnt.moments)
    growth = growth_of_narrowest(_of_chain(metric, chain), new)
    step = retuned_step_size(learnt.step, growth, first)
    empty = pytree.tree_map(torch.zeros_like, learnt.moments)
    _write_chain(metric, chain, new)
    _write_chain(adaptation, chain, Adaptation(step.log_step.exp(), step, empty))


def _of_chain(state: Any, chain: int) -> Any:
    return pytree.tree_map(lambda value: value[chain].clone(), state)


def _write_chain(state: Any, chain: int, new: Any) -> None:
    """Write one chain's values into the views that make up ``state``."""
    for values, value in zip(pytree.tree_leaves(state), pytree.tree_leaves(new), strict=True):
        values[chain] = value
