"""The random numbers behind reparametrised draws, spread evenly."""

import torch
from torch import Tensor
from torch.quasirandom import SobolEngine

__all__ = ["Noise"]

SMALLEST = 1e-10  # of the uniform numbers behind the noise: a Sobol sequence may hit 0


class Noise:
    """Standard normal noise ``[C, K, R]`` for every step of some restarts, spread more evenly than independent draws.

    Particles come in antithetic pairs, which cancels the noise of a mean's gradient where the log density is nearly
    quadratic. Across pairs and steps they follow a scrambled Sobol sequence, so that what an optimiser averages over steps
    converges faster than with independent draws; beyond the 21,201 dimensions of that sequence they are independent.
    Either way each particle by itself is standard normal, and the gradients are unbiased.

    Parameters
    ----------
    shape : tuple of int
        Number of all restarts of the fit, of particles, and of the numbers R that a draw of the family uses.
    like : Tensor
        Of the noise's dtype and device.
    seed : int
    num_extra : int
        Independent numbers beyond those R, at their end.
    members : range, optional
        Which of the restarts the noise is for, the same whichever are chosen; default: all of them.

    References
    ----------
    Buchholz, Wenzel and Mandt (2018), Quasi-Monte Carlo variational inference, ICML.
    """

    def __init__(
        self,
        shape: tuple[int, int, int],
        like: Tensor,
        seed: int,
        num_extra: int = 0,
        members: range | None = None,
    ) -> None:
        self._num_restarts, self._num_particles, self._size = shape
        self._like, self._num_extra = like, num_extra
        members = range(self._num_restarts) if members is None else members
        self._rows = slice(members.start, members.stop)
        seeds = torch.randint(2**31, (self._num_restarts,), generator=torch.Generator().manual_seed(seed))
        is_short = self._size <= SobolEngine.MAXDIM
        own = seeds[self._rows].tolist()
        self._engines = [SobolEngine(self._size, scramble=True, seed=s) for s in own] if is_short else []

    def __call__(self, generator: torch.Generator) -> tuple[Tensor]:
        """Return the noise of the next step."""
        if self._engines:
            half = self._quasi_random(1)[0]
        else:
            half = self._independent(self._num_pairs, self._size, generator, torch.get_default_dtype())
        if self._num_extra:
            half = torch.cat([half, self._independent(self._num_pairs, self._num_extra, generator, half.dtype)], 2)
        return (self._of_both_signs(half),)

    def ahead(self, num_steps: int) -> Tensor | None:
        """Return the noise ``[num_steps, C, K, R]`` of the next steps, None where some of it comes from the shared stream."""
        is_own = self._engines and not self._num_extra
        return self._of_both_signs(self._quasi_random(num_steps)) if is_own else None

    @property
    def _num_pairs(self) -> int:
        return (self._num_particles + 1) // 2

    def _quasi_random(self, num_steps: int) -> Tensor:
        """Draw one half of the particles ``[num_steps, C, pairs, R]`` from the sequence of each restart."""
        num = num_steps * self._num_pairs
        uniform = torch.stack([engine.draw(num, dtype=torch.float64) for engine in self._engines])
        half = torch.special.ndtri(uniform.clamp(SMALLEST, 1 - SMALLEST))
        return half.view(len(half), num_steps, self._num_pairs, self._size).transpose(0, 1)

    def _of_both_signs(self, half: Tensor) -> Tensor:
        return torch.cat([half, -half], -2)[..., : self._num_particles, :].to(self._like)

    def _independent(self, pairs: int, size: int, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
        """Draw for all restarts, so that those of one depend on its number alone and not on who else is here."""
        return torch.randn(self._num_restarts, pairs, size, generator=generator, dtype=dtype)[self._rows]
