"""Distance-preserving networks: spectral normalisation and residual connections."""

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

__all__ = ["ResidualMLP", "SpectralLinear", "residual_mlp"]


class SpectralLinear(nn.Module):
    r"""Linear layer [..., in_features] to [..., out_features] whose weight is rescaled to a spectral norm of at most `bound`.

    The norm is a function of the weight only, computed at each call by power iteration from a fixed start. So the
    layer has no state that would become stale when weights are sampled or optimised, and works with `torch.func`.

    Parameters
    ----------
    in_features, out_features : int
    bound : float
        Largest spectral norm; weights below it are unchanged.
    num_iterations : int
        Iterations of the power method.

    References
    ----------
    T. Miyato et al., Spectral normalization for generative adversarial networks, ICLR 2018.

    Examples
    --------
    >>> layer = SpectralLinear(4, 3, bound=0.9)
    >>> bool(torch.linalg.matrix_norm(layer.bounded_weight(), 2) < 0.91)
    True
    """

    start: Tensor

    def __init__(self, in_features: int, out_features: int, bound: float = 0.95, num_iterations: int = 15) -> None:
        super().__init__()
        if not bound > 0 or num_iterations < 1:
            raise ValueError(f"bound={bound} and num_iterations={num_iterations} must be positive.")
        template = nn.Linear(in_features, out_features)
        self.weight, self.bias = template.weight, template.bias
        self.bound, self.num_iterations = bound, num_iterations
        # All entries differ, so it is unlikely to be orthogonal to the leading singular vector.
        self.register_buffer("start", torch.cos(torch.arange(1.0, in_features + 1)))

    def bounded_weight(self) -> Tensor:
        """Return the rescaled weight [out_features, in_features]."""
        fixed, right = self.weight.detach(), self.start.to(self.weight)
        for _ in range(self.num_iterations):
            left = _normalized(fixed @ right)
            right = _normalized(fixed.T @ left)
        # At the leading singular vectors, the gradient of the norm is that with the vectors held fixed.
        norm = left @ self.weight @ right
        return self.weight / torch.clamp(norm / self.bound, min=1.0)

    def forward(self, x: Tensor) -> Tensor:
        """Map x [..., in_features]."""
        return linear(x, self.bounded_weight(), self.bias)


class ResidualMLP(nn.Module):
    """Residual network of linear layers; made by `residual_mlp`."""

    def __init__(self, first: nn.Module, blocks: list[nn.Module], head: nn.Module) -> None:
        super().__init__()
        self.first, self.blocks, self.head = first, nn.ModuleList(blocks), head

    def forward(self, x: Tensor) -> Tensor:
        """Map x [..., in_features] to [..., out_features]."""
        features = self.first(x)
        for block in self.blocks:
            features = features + torch.relu(block(features))
        output: Tensor = self.head(features)
        return output


def residual_mlp(
    in_features: int,
    width: int = 64,
    num_blocks: int = 3,
    out_features: int = 1,
    bound: float | None = 0.95,
) -> ResidualMLP:
    r"""Residual multilayer perceptron from [..., in_features] to [..., out_features].

    A block computes :math:`z + relu(W z + b)`. If the spectral norm of W is below one, it is bi-Lipschitz: different
    inputs have different features (the input of ``head``), in proportion to their distance. Densities of features need this
    to avoid feature collapse.

    Parameters
    ----------
    in_features, width, num_blocks, out_features : int
    bound : float, optional
        Largest spectral norm of the weights of the blocks and of the first layer; None for no bound.

    Returns
    -------
    ResidualMLP

    Raises
    ------
    ValueError
        If a size is not positive.

    References
    ----------
    J. Liu et al., Simple and principled uncertainty estimation with deterministic deep learning via distance awareness,
    NeurIPS 2020; J. Mukhoti et al., Deep deterministic uncertainty: a new simple baseline, CVPR 2023.

    Examples
    --------
    >>> residual_mlp(5, width=8, num_blocks=2, out_features=3)(torch.zeros(4, 5)).shape
    torch.Size([4, 3])
    """
    sizes = {"in_features": in_features, "width": width, "num_blocks": num_blocks, "out_features": out_features}
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"residual_mlp: {name} must be positive, but is {size}.")

    def layer(inputs: int) -> nn.Module:
        return nn.Linear(inputs, width) if bound is None else SpectralLinear(inputs, width, bound)

    return ResidualMLP(layer(in_features), [layer(width) for _ in range(num_blocks)], nn.Linear(width, out_features))


def _normalized(vector: Tensor) -> Tensor:
    return vector / torch.clamp(vector.norm(), min=1e-12)
