"""Members that repel each other in the space of functions."""

import pytest
import torch

from bnnzoo.core.model.density import build_density
from bnnzoo.inference import DeepEnsemble, FunctionRepulsion, fit
from bnnzoo.inference.ensembles.repulsion import Repulsive, repulsive_force
from bnnzoo.inference.optimise.batches import AllRows
from bnnzoo.inference.optimise.objectives import ObjectiveInputs, log_joint_objective
from bnnzoo.inference.optimise.streams import MemberStreams
from bnnzoo.testing import linear_gaussian

TARGET = linear_gaussian()


def test_the_force_is_minus_the_gradient_of_the_log_kernel_density_estimate() -> None:
    values = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    leaf = values.clone().requires_grad_()
    estimate = torch.exp(-(leaf[:, None] - values).square().sum(-1) / 0.7).sum(1).log().sum()
    (gradient,) = torch.autograd.grad(estimate, leaf)
    torch.testing.assert_close(repulsive_force(values, 0.7), -gradient)


def test_the_default_bandwidth_is_the_median_heuristic() -> None:
    values = torch.tensor([[0.0], [1.0], [3.0]])  # squared distances 1, 4, 9
    torch.testing.assert_close(
        repulsive_force(values, None), repulsive_force(values, 4.0 / float(torch.tensor(3.0).log()))
    )
    assert bool((repulsive_force(torch.randn(1, 3), None) == 0).all())


def test_the_gradient_is_that_of_the_base_plus_the_force_pulled_back_through_the_function() -> None:
    density = build_density(TARGET.model, *TARGET.data)
    base, repulsion = log_joint_objective(density), FunctionRepulsion(strength=2.0)
    objective = Repulsive.of(base, density, repulsion)
    inputs = ObjectiveInputs((), (), (), next(AllRows().stream(density, MemberStreams(0, range(3)))))
    theta, x = torch.randn(3, 3), TARGET.data[0]
    force = repulsive_force(theta @ x.mT, None) @ x  # the function is linear
    value, gradient = objective.value_and_grad(theta, inputs)
    torch.testing.assert_close(gradient, base.value_and_grad(theta, inputs)[1] + 2.0 * force)
    looped_value, looped = objective.looped_value_and_grad(theta, inputs)
    torch.testing.assert_close(looped, gradient)
    torch.testing.assert_close(looped_value, value)


@pytest.mark.filterwarnings("ignore::bnnzoo.core.fit_warnings.TooNarrowWarning")  # where they do meet
def test_members_no_longer_meet_at_the_mode() -> None:
    settings = {"num_members": 4, "num_steps": 800, "learning_rate": 0.05}
    spread = {}
    for strength in (0.0, 1.0):
        method = DeepEnsemble(**settings, repulsion=FunctionRepulsion(strength))
        spread[strength] = fit(TARGET.model, method, *TARGET.data).theta[0].std(0) / TARGET.sd["w"]
    assert float(spread[0.0].max()) < 0.01
    assert float(spread[1.0].min()) > 0.1


def test_refuses_what_cannot_repel() -> None:
    with pytest.raises(ValueError, match=r"FunctionRepulsion\(strength=-1\.0\): write 0 or more"):
        fit(TARGET.model, DeepEnsemble(repulsion=FunctionRepulsion(-1.0)), *TARGET.data)
    with pytest.raises(ValueError, match=r"keeps members apart, but num_members=1: write 2 or more"):
        fit(TARGET.model, DeepEnsemble(1, repulsion=FunctionRepulsion()), *TARGET.data)
