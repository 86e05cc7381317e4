"""Distance-preserving networks: spectral normalisation and residual connections."""

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

__all__ = ["ResidualMLP", "SpectralLinear", "residual_mlp"]


class SpectralLinear(nn.Module):
    r"""Linear layer [..., in_features] to [..., out_features] whose weight is rescaled to a spectral norm of at most `bound`.

    The largest eigenvalue of :math:`A = W^\top W` (or :math:`W W^\top`, if that is smaller) is taken to be
    :math:`\operatorname{tr} A^{n+1} / \operatorname{tr} A^n`, with :math:`n = 2^{\text{num\_squarings}}`, which tends to it from
    below. It is a smooth function of the weight alone: the layer has no state that would become stale when weights are
    sampled or optimised, its gradient is exact however close the largest singular values are, and it works with `torch.func`.

    Parameters
    ----------
    in_features, out_features : int
    bound : float
        Largest spectral norm; weights below it are unchanged.
    num_squarings : int
        Of A. Each costs a product of square matrices of the smaller of both sizes.

    References
    ----------
    T. Miyato et al., Spectral normalization for generative adversarial networks, ICLR 2018.

    Examples
    --------
    >>> layer = SpectralLinear(4, 3, bound=0.9)
    >>> bool(torch.linalg.matrix_norm(layer.bounded_weight(), 2) < 0.91)
    True
    """

    def __init__(self, in_features: int, out_features: int, bound: float = 0.95, num_squarings: int = 6) -> None:
        super().__init__()
        if not bound > 0 or num_squarings < 0:
            raise ValueError(f"bound={bound} must be positive, and num_squarings={num_squarings} not negative.")
        template = nn.Linear(in_features, out_features)
        self.weight, self.bias = template.weight, template.bias
        self.bound, self.num_squarings = bound, num_squarings

    def bounded_weight(self) -> Tensor:
        """Return the rescaled weight [out_features, in_features]."""
        is_wide = self.weight.shape[0] < self.weight.shape[1]
        gram = self.weight @ self.weight.T if is_wide else self.weight.T @ self.weight
        power = _of_unit_trace(gram)
        for _ in range(self.num_squarings):
            power = _of_unit_trace(power @ power)
        squared_norm = (gram * power).sum()
        return self.weight / torch.clamp(squared_norm / self.bound**2, min=1.0).sqrt()

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


def _of_unit_trace(matrix: Tensor) -> Tensor:
    return matrix / torch.clamp(matrix.diagonal().sum(), min=torch.finfo(matrix.dtype).tiny)
