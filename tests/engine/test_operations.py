"""Graphs compute what functions of many kinds of operations compute, gradients and batches included, at points not traced."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import grad_and_value, vmap

from bnnzoo.engine.graphs import trace
from bnnzoo.engine.value_and_grad import value_and_grad_of

GENERATOR = torch.Generator().manual_seed(0)
A = torch.randn(4, 4, generator=GENERATOR, dtype=torch.float64)
S = A @ A.T + torch.eye(4, dtype=torch.float64)
MASK, ROWS = torch.tensor([True, False, True, True]), torch.tensor([2, 0, 1, 1])


def slices(x: Tensor) -> Tensor:
    z = torch.zeros(5)
    z[1:3] = x[:2]
    return z.square().sum()


def columns(x: Tensor) -> Tensor:
    z = torch.zeros(4, 2)
    z[:, 0] = x
    return (z @ x[:2]).sum()


def recursion(x: Tensor) -> Tensor:
    z = torch.zeros(6)
    for i in range(5):
        z[i + 1] = z[i].clone() * 0.5 + x[i % 4]
    return z.sum()


def through_a_view(x: Tensor) -> Tensor:
    z = x * 1.0
    z.view(2, 2).mul_(2.0)
    return (z * x).sum()


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "cholesky": lambda x: torch.linalg.cholesky(S + x.diag().abs()).sum(),
    "solve": lambda x: torch.linalg.solve(S + x.diag().abs(), x).sum(),
    "eigenvalues": lambda x: torch.linalg.eigh(S + x.diag().abs())[0].log().sum(),
    "singular values": lambda x: torch.linalg.svdvals(S + x.diag()).sum(),
    "determinant": lambda x: torch.linalg.slogdet(S + x.diag().abs())[1],
    "mask": lambda x: (x[MASK] ** 2).sum(),
    "rows by number": lambda x: x[ROWS].sin().sum(),
    "where": lambda x: torch.where(x > 0, x, 2.0).sum() + torch.where(MASK, 1.0, 0.0) @ x,
    "whole numbers": lambda x: (x * (ROWS / 3)).sum() + (x * (ROWS // 2)).sum() + x[ROWS].sum() * ROWS.sum() / 4,
    "running sums": lambda x: x.cumsum(0).prod(),
    "order": lambda x: x.sort()[0] @ torch.arange(4.0),
    "scatter": lambda x: torch.zeros(5).scatter_add(0, ROWS, x).exp().sum(),
    "added by number": lambda x: torch.zeros(5).index_add_(0, ROWS, x).exp().sum(),
    "put by number": lambda x: torch.zeros(5).index_put_((ROWS,), x, accumulate=True).exp().sum(),
    "slices": slices,
    "columns": columns,
    "recursion": recursion,
    "through a view": through_a_view,
    "gamma": lambda x: torch.lgamma(x.abs() + 1).sum() + torch.special.expit(x).sum(),
    "softmax": lambda x: F.softplus(x).sum() + F.softmax(x, 0) @ x + torch.logsumexp(x[None] + A, 1).sum(),
    "convolution": lambda x: F.conv1d(x[None, None], torch.ones(1, 1, 2)).square().sum(),
    "einsum": lambda x: torch.einsum("i,ij,j->", x, A, x),
    "norms": lambda x: x.norm() + torch.linalg.vector_norm(x, 1) + torch.cdist(x[:, None], x[:, None] + 1).sum(),
    "bounds": lambda x: x.clamp(-0.5, 0.5).sum() + x.clamp_min(0).sum() + torch.nan_to_num(x / 2).sum(),
    "parts": lambda x: sum((part.prod() for part in x.chunk(2)), x.sum()),
    "complex numbers": lambda x: (torch.polar(x.abs(), x) * torch.tensor(1 + 2j)).real.sum() + torch.fft.rfft(x).abs().sum(),
    "turned around": lambda x: (x.roll(1) * x.flip(0)).sum() + torch.stack([x, x * 2]).T.reshape(-1).view(4, 2)[:, 1].sum(),
    "single precision": lambda x: (x.float() * torch.ones(4, dtype=torch.float32)).double().sum(),
    "without its gradient": lambda x: (x.detach() * 2).sum() + x.sum(),
    "repeated": lambda x: x.repeat_interleave(ROWS).sum() + x.repeat(2).prod(),
    "triangles": lambda x: (A * x).triu(1).sum() + torch.tril_indices(4, 4)[0].sum() * x[0],
}  # fmt: skip

WRITES = {"added by number", "put by number", "slices", "columns", "recursion"}
"""Functions that write into a tensor of their own, which torch cannot batch."""

CASES = [(name, False) for name in FUNCTIONS] + [(name, True) for name in FUNCTIONS if name not in WRITES]


@pytest.mark.filterwarnings("ignore:Casting complex values")
@pytest.mark.parametrize(("name", "batched"), CASES)
def test_graphs_compute_what_functions_compute(name: str, batched: bool) -> None:
    function = FUNCTIONS[name]

    def evaluate(x: Tensor) -> tuple[Tensor, ...]:
        return vmap(grad_and_value(function))(torch.stack([x, x + 1])) if batched else value_and_grad_of(function, x)

    graph, _ = trace(evaluate, [torch.tensor([0.5, -0.2, 2.0, -1.1])])
    x = torch.tensor([-1.5, 0.7, 0.3, 1.2])
    for _ in range(2):  # and leave their constants as they are
        for found, expected in zip(graph(x), evaluate(x), strict=True):
            torch.testing.assert_close(found, expected)
