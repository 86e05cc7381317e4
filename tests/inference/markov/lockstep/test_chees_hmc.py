"""ChEES-HMC: its energy is the Hamiltonian, and a length that is given is kept."""

import torch

from bnnzoo.inference import ChEESHMC, fit
from bnnzoo.testing import linear_gaussian


def test_statistics_of_chees_hmc() -> None:
    target = linear_gaussian()
    posterior = fit(target.model, ChEESHMC(num_chains=4, num_warmup=60, num_draws=30), *target.data, seed=1)
    stats = posterior.info.sample_stats
    expected, _ = posterior.density.value_and_grad(posterior.draws().flatten(0, 1), *target.data)
    torch.testing.assert_close(stats["lp"].flatten(), expected)
    assert bool((stats["energy"] >= -stats["lp"]).all())


def test_a_length_that_is_given_is_kept() -> None:
    target = linear_gaussian()
    method = ChEESHMC(num_chains=4, num_warmup=0, num_draws=40, step_size=0.05, trajectory_length=0.4)
    steps = fit(target.model, method, *target.data).info.sample_stats["n_steps"]
    assert int(steps.min()) >= 1 and int(steps.max()) <= 16
    torch.testing.assert_close(steps.double().mean(), torch.tensor(8.5, dtype=torch.float64), rtol=0.1, atol=0.0)
