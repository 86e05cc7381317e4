"""Noise of reparametrised draws: standard normal, in antithetic pairs, and the same for a restart wherever it runs."""

import pytest
import torch

from bnnzoo.inference.variational.even_noise import Noise


def test_noise_is_standard_normal_in_pairs() -> None:
    (noise,) = Noise((2, 64, 3), torch.zeros(()), seed=3)(torch.Generator())
    assert noise.shape == (2, 64, 3)
    assert not torch.equal(noise[0], noise[1])
    torch.testing.assert_close(noise.sum(1), torch.zeros(2, 3), atol=1e-12, rtol=0)
    assert ((noise.var(1) - 1).abs() < 0.2).all()
    (odd,) = Noise((1, 3, 30_000), torch.zeros((), dtype=torch.float32), seed=3)(torch.Generator().manual_seed(1))
    assert odd.shape == (1, 3, 30_000)
    assert odd.dtype == torch.float32
    assert (odd.mean().abs() < 5 / 300) & ((odd.var() - 1).abs() < 0.05)


@pytest.mark.parametrize(("size", "num_extra"), [(3, 0), (3, 40), (22_000, 0)])
def test_a_restarts_noise_does_not_depend_on_the_others_beside_it(size: int, num_extra: int) -> None:
    def three_steps(members: range | None) -> torch.Tensor:
        noise, generator = Noise((3, 4, size), torch.zeros(()), 7, num_extra, members), torch.Generator().manual_seed(7)
        return torch.stack([noise(generator)[0] for _ in range(3)])

    together = three_steps(None)
    assert together.shape == (3, 3, 4, size + num_extra)
    for restart in range(3):
        assert torch.equal(three_steps(range(restart, restart + 1)), together[:, restart : restart + 1])


def test_noise_of_several_steps_at_once_is_that_of_one_after_the_other() -> None:
    def noise(size: int = 3, num_extra: int = 0) -> Noise:
        return Noise((2, 3, size), torch.zeros((), dtype=torch.float32), 7, num_extra)

    one_by_one, ahead = noise(), noise().ahead(5)
    assert ahead is not None
    assert torch.equal(ahead, torch.stack([one_by_one(torch.Generator())[0] for _ in range(5)]))
    assert noise(num_extra=1).ahead(5) is None
    assert noise(size=22_000).ahead(5) is None
