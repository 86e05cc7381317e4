"""Graphs split at their random numbers, and drawn from generators: nothing else changes."""

import torch
from torch import Tensor

from bnnzoo.engine.graphs import trace
from bnnzoo.engine.random_graphs import draws_from_generator, split_at_random

X = torch.linspace(-1.0, 1.0, 6, dtype=torch.float64)


def function(x: Tensor) -> tuple[Tensor, ...]:
    scale = x.sum().exp()
    noise = torch.randn(6, dtype=x.dtype)
    return x.tanh(), x.sigmoid() + scale.expand(6) * noise, torch.bernoulli(x.sigmoid()), x


def test_both_parts_give_what_the_graph_gives():
    graph, _ = trace(function, [X])
    split = split_at_random(graph)
    assert split.is_known == (True, False, False, True)
    assert split.after is not None
    torch.manual_seed(0)
    expected = graph(X)
    torch.manual_seed(0)
    first, last, *border = split.before(X)
    drawn = split.after(X, *border)
    for found, value in zip((first, *drawn, last), expected, strict=True):
        assert torch.equal(found, value)


def test_what_is_made_larger_is_handed_over_small():
    graph, _ = trace(function, [X])
    _, _, *border = split_at_random(graph).before(X)
    assert sorted(value.numel() for value in border) == [1, 6]


def test_a_graph_without_random_numbers_has_one_part():
    split = split_at_random(trace(lambda x: (x.exp(),), [X])[0])
    assert split.after is None
    assert split.is_known == (True,)


def test_a_generator_draws_the_numbers_of_the_global_stream():
    graph, _ = trace(function, [X])
    torch.manual_seed(5)
    expected = graph(X)
    state = torch.get_rng_state()
    assert draws_from_generator(graph)
    found = graph(torch.Generator().manual_seed(5), X)
    assert all(map(torch.equal, found, expected))
    assert torch.equal(torch.get_rng_state(), state)
