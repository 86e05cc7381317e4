"""Every covariance object against its dense matrix."""

import pytest
import torch

from bnnzoo.core.posterior.covariance import (
    Covariance,
    Dense,
    Diagonal,
    Embedded,
    Kronecker,
    LowRankPlusDiagonal,
    LowRankPrecision,
)


def _block(a: int, g: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    left, _ = torch.linalg.qr(torch.randn(a, a))
    right, _ = torch.linalg.qr(torch.randn(g, g))
    return left, right, torch.rand(a, g) + 0.5


def _cases() -> dict[str, Covariance]:
    torch.manual_seed(0)
    tril = torch.tril(torch.randn(6, 6)) + 3 * torch.eye(6)
    return {
        "diagonal": Diagonal(torch.rand(6) + 0.5),
        "dense": Dense(tril),
        "low rank": LowRankPlusDiagonal(torch.randn(6, 2), torch.rand(6) + 0.5),
        "low-rank precision": LowRankPrecision(
            torch.rand(6) + 0.5, torch.linalg.qr(torch.randn(6, 3))[0], torch.tensor([5.0, 0.3, -0.6])
        ),
        "kronecker": Kronecker((_block(2, 2), _block(2, 1))),
    }


@pytest.mark.parametrize("name", _cases())
def test_agrees_with_its_matrix(name: str) -> None:
    covariance = _cases()[name]
    matrix = covariance.dense()
    root = covariance.sqrt_matmul(torch.eye(covariance.rank))
    torch.testing.assert_close(root.mT @ root, matrix)
    torch.testing.assert_close(covariance.diagonal(), matrix.diagonal())
    torch.testing.assert_close(covariance.logdet(), torch.logdet(matrix))
    x = torch.randn(2, 3, 6)
    expected = (x * torch.linalg.solve(matrix, x.reshape(-1, 6).mT).mT.reshape(x.shape)).sum(-1)
    torch.testing.assert_close(covariance.mahalanobis(x), expected)


def test_embedded_leaves_the_other_entries_alone() -> None:
    inner = _cases()["dense"]
    covariance = Embedded(inner, torch.tensor([7, 1, 2, 3, 4, 5]), num_params=9)
    matrix = covariance.dense()
    torch.testing.assert_close(matrix[7, 1], inner.dense()[0, 1])
    assert bool((matrix[[0, 6, 8]] == 0).all())
    torch.testing.assert_close(covariance.diagonal(), matrix.diagonal())
    draw = covariance.sqrt_matmul(torch.randn(5, 6))
    assert draw.shape == (5, 9) and bool((draw[:, [0, 6, 8]] == 0).all())
    x = torch.randn(4, 9)
    torch.testing.assert_close(covariance.mahalanobis(x), inner.mahalanobis(x[:, covariance.index]))
    torch.testing.assert_close(covariance.logdet(), inner.logdet())


def test_transposed_square_root_gives_the_variance_of_linear_functions() -> None:
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.linalg.qr(torch.randn(n, n, generator=generator))[0] for n in (2, 3))
    kronecker = Kronecker(((left, right, torch.rand(2, 3, generator=generator) + 0.5),))
    low_rank = LowRankPlusDiagonal(torch.randn(6, 2, generator=generator), torch.rand(6, generator=generator) + 0.5)
    dense = Dense(torch.linalg.cholesky(low_rank.dense()))
    embedded = Embedded(Diagonal(torch.tensor([1.0, 2.0])), torch.tensor([1, 4]), 6)
    vectors = torch.linalg.qr(torch.randn(6, 2, generator=generator))[0]
    precision = LowRankPrecision(torch.rand(6, generator=generator) + 0.5, vectors, torch.tensor([9.0, 0.1]))
    x = torch.randn(4, 6, generator=generator)
    for covariance in (kronecker, low_rank, precision, dense, embedded, Diagonal(torch.rand(6, generator=generator))):
        root = covariance.sqrt_rmatmul(x)
        torch.testing.assert_close(root @ root.mT, x @ covariance.dense() @ x.mT)


def test_draws_of_a_kronecker_covariance_do_not_depend_on_signs_of_eigenvectors() -> None:
    """Which of two signs an eigenvector has is a matter of rounding, and of the engine."""
    generator = torch.Generator().manual_seed(4)
    left, right = (torch.linalg.qr(torch.randn(n, n, generator=generator))[0] for n in (3, 2))
    scale, noise = torch.rand(3, 2, generator=generator) + 0.5, torch.randn(7, 6, generator=generator)
    own = Kronecker(((left, right, scale),))
    other = Kronecker(((left * torch.tensor([1.0, -1.0, -1.0]), right * torch.tensor([-1.0, 1.0]), scale),))
    torch.testing.assert_close(own.sqrt_matmul(noise), other.sqrt_matmul(noise))
