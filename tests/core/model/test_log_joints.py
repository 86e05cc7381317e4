"""Log joint densities at many points of a model that cannot be batched."""

import pyro
import pyro.distributions as dist
import torch

from bnnzoo.core.model.density import build_density
from bnnzoo.core.model.log_joints import DRAWS_ONE_BY_ONE, log_joint_of_some


def with_a_branch() -> None:
    w = pyro.sample("w", dist.Normal(0.0, 1.0))
    if float(w.detach()) == 3.0:
        raise FloatingPointError("no factorisation")


def test_of_draws_that_cannot_be_batched_some_are_taken_from_all_over() -> None:
    """Evenly, so that chains and parts of an ensemble that follow one another are all there."""
    density = build_density(with_a_branch, dtype=torch.float64)
    theta = torch.arange(3.0 * DRAWS_ONE_BY_ONE, dtype=torch.float64)[:, None]
    few, found = log_joint_of_some(density, theta)
    torch.testing.assert_close(few, theta[::3])
    expected = dist.Normal(0.0, 1.0).log_prob(few[:, 0])
    expected[1] = -torch.inf
    torch.testing.assert_close(found, expected)
