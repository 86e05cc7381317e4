"""Flows: densities against automatic differentiation."""

import math

import pytest
import torch
from torch.func import jacrev

from bnnzoo.core.model.density import build_density
from bnnzoo.inference.variational.flow import Flow, SinhArcsinh, flow_over
from bnnzoo.inference.variational.full_rank_vi import FullRank
from bnnzoo.inference.variational.mean_field_vi import MeanField
from bnnzoo.testing import linear_gaussian


def flow_of(num_params: int, dense: bool = True) -> tuple[Flow, torch.Tensor]:
    target = linear_gaussian(num_inputs=num_params)
    family = FullRank(num_params) if dense else MeanField()
    base = family.start(torch.linspace(-1.0, 1.0, num_params), 0.7)
    flow = flow_over(build_density(target.model, *target.data), family, 3, 8, seed=0)
    return flow, flow.start_from(base)


@pytest.mark.parametrize("num_params", [1, 2, 5])
@pytest.mark.parametrize("dense", [True, False])
def test_density_is_that_of_the_draws(num_params: int, dense: bool) -> None:
    flow, params = flow_of(num_params, dense)
    params = params + 0.3 * torch.randn(params.shape)
    for noise in torch.randn(5, num_params):
        theta = flow.draw(params, noise)
        jacobian = jacrev(lambda n: flow.draw(params, n))(noise)
        normal = -0.5 * (noise**2).sum() - 0.5 * num_params * math.log(2 * math.pi)
        expected = normal - torch.linalg.slogdet(jacobian)[1]
        torch.testing.assert_close(flow.log_prob(params, theta), expected, rtol=1e-8, atol=1e-8)


def test_starts_as_the_gaussian() -> None:
    flow, params = flow_of(4)
    base = params[: flow.num_base]
    for noise in torch.randn(3, 4):
        theta = flow.draw(params, noise)
        torch.testing.assert_close(theta, flow.base.draw(base, noise))
        torch.testing.assert_close(flow.log_prob(params, theta), flow.base.log_prob(base, theta))


def test_flows_are_equal_whatever_their_weights_at_the_start() -> None:
    density = build_density(linear_gaussian().model, *linear_gaussian().data)
    flow = flow_over(density, MeanField(), 2, 4, seed=0)
    assert flow == flow_over(density, MeanField(), 2, 4, seed=1)
    assert flow != flow_over(density, MeanField(), 3, 4, seed=0)
    assert flow != flow_over(density, MeanField(), 2, 5, seed=0)
    assert flow != flow_over(density, FullRank(3), 2, 4, seed=0)


def test_sinh_arcsinh_has_its_derivative_and_inverse() -> None:
    transform = SinhArcsinh(torch.tensor(0.4), torch.tensor(-0.3))
    x = torch.linspace(-4.0, 4.0, 9)
    y = transform(x)
    torch.testing.assert_close(transform.inv(y), x)
    slopes = torch.stack([jacrev(transform)(value) for value in x])
    torch.testing.assert_close(transform.log_abs_det_jacobian(x, y), slopes.log())
    identity = SinhArcsinh(torch.tensor(0.0), torch.tensor(0.0))
    torch.testing.assert_close(identity(x), x)
