"""Objectives: the log joint density with and without weights of rows, batched and by loops."""

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

from bnnzoo.core.model.density import build_density
from bnnzoo.inference.optimise.batches import StepBatch
from bnnzoo.inference.optimise.objectives import MemberObjective, ObjectiveInputs, log_joint_objective
from bnnzoo.testing import linear_gaussian
from tests.helpers.densities import cases

TARGET = linear_gaussian()


def shared(*data: Tensor, weights: Tensor | None = None) -> ObjectiveInputs:
    return ObjectiveInputs((), (), (), StepBatch(data, (None,) * len(data), weights))


@pytest.mark.parametrize("name", ["regression", "masked_and_scaled", "hierarchical", "categorical"])
def test_is_the_log_joint_density_and_weights_of_one_change_nothing(name: str) -> None:
    model, data = cases()[name]
    density = build_density(model, *data)
    theta = 0.3 * torch.randn(3, density.num_params)
    objective = log_joint_objective(density)
    value, gradient = objective.value_and_grad(theta, shared(*data))
    expected = density.value_and_grad(theta, *data)
    torch.testing.assert_close((value, gradient), tuple(expected))
    weighted = objective.value_and_grad(theta, shared(*data, weights=torch.ones(3, len(data[0]))))
    torch.testing.assert_close(weighted, (value, gradient))


def test_weights_are_repeated_rows() -> None:
    density = build_density(TARGET.model, *TARGET.data)
    x, y = TARGET.data
    weights = torch.zeros(1, len(y))
    weights[0, 3], weights[0, 8] = 30.0, 10.0
    repeated = torch.tensor([3] * 30 + [8] * 10)
    theta = torch.randn(1, 3)
    found = log_joint_objective(density).value_and_grad(theta, shared(x, y, weights=weights))
    expected = log_joint_objective(density).value_and_grad(theta, shared(x[repeated], y[repeated]))
    torch.testing.assert_close(found, expected)


def test_members_see_rows_weights_constants_and_noise_of_their_own_and_loops_agree() -> None:
    density = build_density(TARGET.model, *TARGET.data)
    x, y = TARGET.data
    rows = torch.stack([torch.randperm(len(y))[:9] for _ in range(4)])
    theta, anchors, noise = torch.randn(3, 4, 3).unbind(0)
    inputs = ObjectiveInputs(
        (torch.tensor(0.7),), (anchors,), (noise,), StepBatch((x[rows], y[rows]), (0, 0), torch.rand(4, 9))
    )
    log_joint = log_joint_objective(density)

    def anchored(theta: Tensor, inputs: ObjectiveInputs) -> Tensor:
        (anchor,), (noise,), (scale,) = inputs.constants, inputs.noise, inputs.scalars
        return log_joint.function(theta, inputs) - scale * ((theta - anchor - noise) ** 2).sum()

    objective = MemberObjective(anchored)
    batched = objective.value_and_grad(theta, inputs)
    torch.testing.assert_close(batched, objective.looped_value_and_grad(theta, inputs))
    for member in range(4):
        weights = inputs.batch.row_weights[member : member + 1]
        alone = shared(x[rows[member]], y[rows[member]], weights=weights)
        value, _ = log_joint.value_and_grad(theta[member : member + 1], alone)
        penalty = 0.7 * ((theta[member] - anchors[member] - noise[member]) ** 2).sum()
        torch.testing.assert_close(batched[0][member], value[0] - penalty)


def test_weights_need_rows() -> None:
    def model(y: Tensor) -> None:
        mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
        pyro.sample("y", dist.Normal(mu, 1.0).expand([4]).to_event(1), obs=y)

    density = build_density(model, torch.zeros(4))
    with pytest.raises(
        ValueError, match=r"site 'y' has a log likelihood of shape \(\) for 4 rows. Put it into a plate"
    ):
        log_joint_objective(density).value_and_grad(torch.zeros(1, 1), shared(torch.zeros(4), weights=torch.ones(1, 4)))
