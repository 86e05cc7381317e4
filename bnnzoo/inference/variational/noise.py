"""The random numbers behind reparametrised draws, spread evenly."""

import torch
from torch import Tensor
from torch.quasirandom import SobolEngine

__all__ = ["Noise"]

SMALLEST = 1e-10  # of the uniform numbers behind the noise: a Sobol sequence may hit 0


class Noise:
    """Standard normal noise ``[C, K, R]`` for every step of every restart, spread more evenly than independent draws.

    Particles come in pairs of opposite sign, which cancels the noise of a mean's gradient where the log density is
    nearly quadratic. Across pairs and steps they follow a scrambled Sobol sequence, so that what an optimiser
    averages over steps converges faster than with independent draws; beyond the 21,201 dimensions of that sequence
    they are independent. Either way each particle by itself is standard normal, and the gradients are unbiased.

    References
    ----------
    Buchholz, Wenzel and Mandt (2018), Quasi-Monte Carlo variational inference, ICML.
    """

    def __init__(self, shape: tuple[int, int, int], like: Tensor, seed: int, num_extra: int = 0) -> None:
        self._restarts, self._particles, self._size = shape
        self._like, self._num_extra = like, num_extra
        seeds = torch.randint(2**31, (self._restarts,), generator=torch.Generator().manual_seed(seed)).tolist()
        is_short = self._size <= SobolEngine.MAXDIM
        self._engines = [SobolEngine(self._size, scramble=True, seed=s) for s in seeds] if is_short else []

    def __call__(self, generator: torch.Generator) -> tuple[Tensor]:
        """Return the noise of the next step."""
        pairs = (self._particles + 1) // 2
        if self._engines:
            uniform = torch.stack([engine.draw(pairs, dtype=torch.float64) for engine in self._engines])
            half = torch.special.ndtri(uniform.clamp(SMALLEST, 1 - SMALLEST))
        else:
            half = torch.randn(self._restarts, pairs, self._size, generator=generator)
        if self._num_extra:
            extra = torch.randn(self._restarts, pairs, self._num_extra, generator=generator, dtype=half.dtype)
            half = torch.cat([half, extra], 2)
        return (torch.cat([half, -half], 1)[:, : self._particles].to(self._like),)
