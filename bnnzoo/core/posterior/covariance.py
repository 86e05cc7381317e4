"""Covariances of Gaussian posteriors: what they share is a square root, a determinant, a diagonal and a distance."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from bnnzoo.core.posterior.stored import Stored

__all__ = ["Covariance", "Dense", "Diagonal", "Embedded", "Kronecker", "LowRankPlusDiagonal", "LowRankPrecision"]


@runtime_checkable
class Covariance(Protocol):
    """A positive semi-definite matrix ``[P, P]`` known through products with its square root.

    ``rank`` is the number R of standard normal numbers that :meth:`sqrt_matmul` turns into one vector. With L the square
    root, :meth:`sqrt_matmul` is the product with L and :meth:`sqrt_rmatmul` that with its transpose, so that the variance
    of a linear function x is the squared norm of the latter.
    """

    @property
    def rank(self) -> int: ...
    def sqrt_matmul(self, noise: Tensor) -> Tensor: ...
    def sqrt_rmatmul(self, x: Tensor) -> Tensor: ...
    def logdet(self) -> Tensor: ...
    def diagonal(self) -> Tensor: ...
    def mahalanobis(self, x: Tensor) -> Tensor: ...
    def dense(self) -> Tensor: ...


@dataclass(frozen=True)
class Diagonal(Stored):
    """Independent entries with standard deviations ``scale[P]``."""

    scale: Tensor

    @property
    def rank(self) -> int:
        """Number of standard normal numbers a draw takes."""
        return self.scale.numel()

    def sqrt_matmul(self, noise: Tensor) -> Tensor:
        """Return ``[..., P]`` with this covariance from standard normal ``noise[..., P]``."""
        return self.scale * noise

    def sqrt_rmatmul(self, x: Tensor) -> Tensor:
        """Return ``[..., R]``, the transposed square root times ``x[..., P]``."""
        return self.scale * x

    def logdet(self) -> Tensor:
        """Return the log determinant ``[]``."""
        return 2 * self.scale.log().sum()

    def diagonal(self) -> Tensor:
        """Return the variances ``[P]``."""
        return self.scale**2

    def mahalanobis(self, x: Tensor) -> Tensor:
        """Return the squared Mahalanobis norm ``[...]`` of ``x[..., P]``."""
        return ((x / self.scale) ** 2).sum(-1)

    def dense(self) -> Tensor:
        """Return the matrix ``[P, P]``."""
        return torch.diag(self.diagonal())


@dataclass(frozen=True)
class Dense(Stored):
    """Any covariance, by its lower Cholesky factor ``scale_tril[P, P]``."""

    scale_tril: Tensor

    @property
    def rank(self) -> int:
        """Number of standard normal numbers a draw takes."""
        return self.scale_tril.shape[-1]

    def sqrt_matmul(self, noise: Tensor) -> Tensor:
        """Return ``[..., P]`` with this covariance from standard normal ``noise[..., P]``."""
        return noise @ self.scale_tril.mT

    def sqrt_rmatmul(self, x: Tensor) -> Tensor:
        """Return ``[..., R]``, the transposed square root times ``x[..., P]``."""
        return x @ self.scale_tril

    def logdet(self) -> Tensor:
        """Return the log determinant ``[]``."""
        return 2 * self.scale_tril.diagonal().log().sum()

    def diagonal(self) -> Tensor:
        """Return the variances ``[P]``."""
        return (self.scale_tril**2).sum(-1)

    def mahalanobis(self, x: Tensor) -> Tensor:
        """Return the squared Mahalanobis norm ``[...]`` of ``x[..., P]``."""
        flat = x.reshape(-1, x.shape[-1]).mT
        whitened = torch.linalg.solve_triangular(self.scale_tril, flat, upper=False)
        return (whitened**2).sum(0).reshape(x.shape[:-1])

    def dense(self) -> Tensor:
        """Return the matrix ``[P, P]``."""
        return self.scale_tril @ self.scale_tril.mT


@dataclass(frozen=True)
class LowRankPlusDiagonal(Stored):
    """``factor factor^T + diag(scale^2)`` with ``factor[P, K]`` and ``scale[P]``."""

    factor: Tensor
    scale: Tensor

    @property
    def rank(self) -> int:
        """Number of standard normal numbers a draw takes: K + P."""
        return self.factor.shape[-1] + self.scale.numel()

    def sqrt_matmul(self, noise: Tensor) -> Tensor:
        """Return ``[..., P]`` with this covariance from standard normal ``noise[..., K + P]``."""
        low, own = noise.split([self.factor.shape[-1], self.scale.numel()], dim=-1)
        return low @ self.factor.mT + self.scale * own

    def sqrt_rmatmul(self, x: Tensor) -> Tensor:
        """Return ``[..., R]``, the transposed square root times ``x[..., P]``."""
        return torch.cat([x @ self.factor, self.scale * x], -1)

    def logdet(self) -> Tensor:
        """Return the log determinant ``[]`` by the matrix determinant lemma."""
        return 2 * (self._capacitance_tril().diagonal().log().sum() + self.scale.log().sum())

    def diagonal(self) -> Tensor:
        """Return the variances ``[P]``."""
        return (self.factor**2).sum(-1) + self.scale**2

    def mahalanobis(self, x: Tensor) -> Tensor:
        """Return the squared Mahalanobis norm ``[...]`` of ``x[..., P]`` by the Woodbury identity."""
        whitened = x / self.scale
        projected = (whitened @ (self.factor / self.scale[:, None])).reshape(-1, self.factor.shape[-1]).mT
        inner = torch.linalg.solve_triangular(self._capacitance_tril(), projected, upper=False)
        return (whitened**2).sum(-1) - (inner**2).sum(0).reshape(x.shape[:-1])

    def dense(self) -> Tensor:
        """Return the matrix ``[P, P]``."""
        return self.factor @ self.factor.mT + torch.diag(self.scale**2)

    def _capacitance_tril(self) -> Tensor:
        whitened = self.factor / self.scale[:, None]
        return torch.linalg.cholesky(torch.eye(whitened.shape[-1]).to(whitened) + whitened.mT @ whitened)


@dataclass(frozen=True)
class LowRankPrecision(Stored):
    """Inverse of a diagonal plus low-rank matrix, ``S (I + V diag(values) V^T)^-1 S`` with ``S = diag(scale)``.

    Attributes
    ----------
    scale : Tensor [P]
        Standard deviations where the low-rank part is zero.
    vectors : Tensor [P, K]
        V, of orthonormal columns.
    values : Tensor [K]
        Each greater than -1.
    """

    scale: Tensor
    vectors: Tensor
    values: Tensor

    @property
    def rank(self) -> int:
        """Number of standard normal numbers a draw takes: P."""
        return self.scale.numel()

    def sqrt_matmul(self, noise: Tensor) -> Tensor:
        """Return ``[..., P]`` with this covariance from standard normal ``noise[..., P]``."""
        return self.scale * self._shrunk(noise)

    def sqrt_rmatmul(self, x: Tensor) -> Tensor:
        """Return ``[..., P]``, the transposed square root times ``x[..., P]``."""
        return self._shrunk(self.scale * x)

    def logdet(self) -> Tensor:
        """Return the log determinant ``[]``."""
        return 2 * self.scale.log().sum() - self.values.log1p().sum()

    def diagonal(self) -> Tensor:
        """Return the variances ``[P]``."""
        return self.scale**2 * (1 - (self.vectors**2 * (self.values / (1 + self.values))).sum(-1))

    def mahalanobis(self, x: Tensor) -> Tensor:
        """Return the squared Mahalanobis norm ``[...]`` of ``x[..., P]``."""
        white = x / self.scale
        return (white**2).sum(-1) + (self.values * (white @ self.vectors) ** 2).sum(-1)

    def dense(self) -> Tensor:
        """Return the matrix ``[P, P]``."""
        root = self.sqrt_matmul(torch.eye(self.rank).to(self.scale))
        return root.mT @ root

    def _shrunk(self, x: Tensor) -> Tensor:
        """Return the symmetric root of ``(I + V diag(values) V^T)^-1`` times ``x[..., P]``."""
        change = (1 + self.values).rsqrt() - 1
        return x + (x @ self.vectors * change) @ self.vectors.mT


@dataclass(frozen=True)
class Kronecker(Stored):
    """Block diagonal with one block ``(A_b tensor G_b + shift)^-1`` for each group of parameters, by its eigenvectors.

    Attributes
    ----------
    blocks : tuple of (Tensor, Tensor, Tensor)
        Eigenvectors ``[a, a]`` and ``[g, g]`` of the two factors, and the standard deviation ``[a, g]`` along each product of
        them. A block with one factor only has ``g`` equal to 1.
    """

    blocks: tuple[tuple[Tensor, Tensor, Tensor], ...]

    @property
    def rank(self) -> int:
        """Number of standard normal numbers a draw takes: P."""
        return sum(scale.numel() for _, _, scale in self.blocks)

    def sqrt_matmul(self, noise: Tensor) -> Tensor:
        """Return ``[..., P]`` with this covariance from standard normal ``noise[..., P]``.

        The root is the symmetric one, so that draws do not depend on the signs of eigenvectors, which rounding decides.
        """
        parts = zip(self.blocks, self._split(noise), strict=True)
        rotated = [left @ (scale * (left.mT @ part @ right)) @ right.mT for (left, right, scale), part in parts]
        return torch.cat([part.flatten(-2) for part in rotated], -1)

    def sqrt_rmatmul(self, x: Tensor) -> Tensor:
        """Return the transposed square root, which is the root itself, times ``x[..., P]``."""
        return self.sqrt_matmul(x)

    def logdet(self) -> Tensor:
        """Return the log determinant ``[]``."""
        return 2 * torch.stack([scale.log().sum() for _, _, scale in self.blocks]).sum()

    def diagonal(self) -> Tensor:
        """Return the variances ``[P]``."""
        return torch.cat([(left**2 @ scale**2 @ (right**2).mT).flatten() for left, right, scale in self.blocks])

    def mahalanobis(self, x: Tensor) -> Tensor:
        """Return the squared Mahalanobis norm ``[...]`` of ``x[..., P]``."""
        parts = zip(self.blocks, self._split(x), strict=True)
        return torch.stack(
            [((left.mT @ part @ right / scale) ** 2).sum((-2, -1)) for (left, right, scale), part in parts]
        ).sum(0)

    def dense(self) -> Tensor:
        """Return the matrix ``[P, P]``."""
        root = self.sqrt_matmul(torch.eye(self.rank).to(self.blocks[0][2]))
        return root.mT @ root

    def _split(self, x: Tensor) -> list[Tensor]:
        sizes = [scale.numel() for _, _, scale in self.blocks]
        return [
            part.unflatten(-1, tuple(scale.shape))
            for part, (_, _, scale) in zip(x.split(sizes, -1), self.blocks, strict=True)
        ]


@dataclass(frozen=True)
class Embedded(Stored):
    """A covariance over the entries ``index[R]`` of ``theta[P]``, in ascending order; the others are treated as known.

    Its log determinant and Mahalanobis norm are those of the entries that vary.
    """

    covariance: Covariance
    index: Tensor
    num_params: int

    @property
    def rank(self) -> int:
        """Number of standard normal numbers a draw takes."""
        return self.covariance.rank

    def sqrt_matmul(self, noise: Tensor) -> Tensor:
        """Return ``[..., P]`` with this covariance from standard normal ``noise[..., R]``."""
        inner = self.covariance.sqrt_matmul(noise)
        return inner.new_zeros(*inner.shape[:-1], self.num_params).index_copy(-1, self.index, inner)

    def sqrt_rmatmul(self, x: Tensor) -> Tensor:
        """Return ``[..., R]``, the transposed square root times ``x[..., P]``."""
        return self.covariance.sqrt_rmatmul(x[..., self.index])

    def logdet(self) -> Tensor:
        """Return the log determinant ``[]`` over the entries that vary."""
        return self.covariance.logdet()

    def diagonal(self) -> Tensor:
        """Return the variances ``[P]``, zero for the entries that are fixed."""
        inner = self.covariance.diagonal()
        return inner.new_zeros(self.num_params).index_copy(0, self.index, inner)

    def mahalanobis(self, x: Tensor) -> Tensor:
        """Return the squared Mahalanobis norm ``[...]`` of the varying entries of ``x[..., P]``."""
        return self.covariance.mahalanobis(x[..., self.index])

    def dense(self) -> Tensor:
        """Return the matrix ``[P, P]``."""
        inner = self.covariance.dense()
        full = inner.new_zeros(self.num_params, self.num_params)
        full[self.index[:, None], self.index] = inner
        return full
