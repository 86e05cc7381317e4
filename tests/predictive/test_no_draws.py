"""Predictions of outcomes whose distribution cannot be drawn from."""

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

import bnnzoo as bz
from bnnzoo.core.program.sites import ModelError


def test_outcomes_without_draws_are_refused_by_name() -> None:
    class Silent(dist.Normal):
        def rsample(self, sample_shape: torch.Size = torch.Size()) -> Tensor:
            raise NotImplementedError("no draws")

        sample = rsample

    def model(y: Tensor) -> None:
        mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", Silent(mu, 1.0), obs=y)

    y = torch.zeros(3)
    posterior = bz.fit(model, bz.Laplace(), y, progress=False)
    with pytest.raises(ModelError, match=r"Observed site 'y' has a distribution, Silent, that cannot be drawn from"):
        bz.posterior_predictive(posterior, y, num_draws=10)
    assert "posterior" in bz.to_datatree(posterior, num_draws=10)
