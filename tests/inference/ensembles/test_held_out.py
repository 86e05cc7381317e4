"""Rows held out from training, and weights by how well they are predicted."""

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

from bnnzoo.core.model.density import build_density
from bnnzoo.inference.ensembles.held_out import log_density_of_rows, split_rows, stacking_log_weights
from bnnzoo.testing import linear_gaussian
from tests.helpers.densities import cases


def test_parts_have_every_row_once_and_their_likelihoods_add_up() -> None:
    target = linear_gaussian()
    density = build_density(target.model, *target.data)
    train, held_out = split_rows(density, 0.25, seed=1)
    theta = torch.tensor([0.1, 0.2, 0.3])
    assert (train.num_data, held_out.num_data) == (30, 10)
    both = train.log_likelihood(theta, *train.data).sum() + held_out.log_likelihood(theta, *held_out.data).sum()
    torch.testing.assert_close(both, density.log_likelihood(theta, *density.data).sum())
    torch.testing.assert_close(
        train.log_joint(theta, *train.data), train.log_prior(theta) + train.log_likelihood(theta, *train.data).sum()
    )
    rows = log_density_of_rows(held_out)(theta.expand(2, 3))
    torch.testing.assert_close(rows[1], held_out.log_likelihood(theta, *held_out.data))


def test_stacking_weights_are_those_of_calculus() -> None:
    # q rows have densities (a, b) under the two components, the others (b, a): w a + (1 - w) b = q (a + b)
    a, b, share = 0.9, 0.2, 0.6
    first = torch.tensor([a] * 6 + [b] * 4)
    found = stacking_log_weights(torch.stack([first, a + b - first]).log()).exp()
    weight = (share * (a + b) - b) / (a - b)
    torch.testing.assert_close(found, torch.tensor([weight, 1 - weight]), rtol=1e-5, atol=1e-5)


def test_stacking_takes_no_notice_of_a_component_that_has_no_density() -> None:
    found = stacking_log_weights(torch.tensor([[-1.0, -1.0], [float("nan"), -torch.inf]])).exp()
    torch.testing.assert_close(found, torch.tensor([1.0, 0.0]), atol=1e-6, rtol=0)


def test_refuses_models_whose_rows_cannot_be_held_out() -> None:
    def no_rows(y: Tensor) -> None:
        mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
        pyro.sample("y", dist.Normal(mu, 1.0).expand([4]).to_event(1), obs=y)

    with pytest.raises(
        ValueError, match=r"held_out=0\.2 needs rows, but no argument of the model has one row for each"
    ):
        split_rows(build_density(no_rows, torch.arange(4.0)), 0.2, seed=0)
    model, data = cases()["eight_schools"]  # one latent variable for each row
    with pytest.raises(ValueError, match=r"The model cannot be evaluated on some of its rows.*Leave held_out out"):
        split_rows(build_density(model, *data), 0.25, seed=0)
