"""Stochastic gradients: unbiased, the prior counted once, and less noisy with control variates."""

import pytest
import torch
from torch import Tensor

from bnnzoo.core.model.density import LogDensity, build_density
from bnnzoo.inference import SGLD
from bnnzoo.inference.markov.noise import keys_of
from bnnzoo.inference.markov.stochastic import gradients
from bnnzoo.inference.markov.stochastic.gradients import no_moments, observed
from bnnzoo.inference.markov.stochastic.minibatch_target import MinibatchTarget
from bnnzoo.inference.markov.stochastic.stochastic_program import NUM_STREAMS
from bnnzoo.inference.markov.stochastic.stochastic_settings import StochasticSettings
from bnnzoo.inference.optimise.batches import IndependentBatches
from bnnzoo.inference.optimise.streams import MemberStreams
from bnnzoo.models import likelihoods, mlp, priors, supervised
from bnnzoo.testing import linear_gaussian

NUM_ROWS, BATCH = 120, 12


def network_density() -> LogDensity:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(NUM_ROWS, 2, generator=generator)
    y = torch.sin(x[:, 0]) + 0.1 * torch.randn(NUM_ROWS, generator=generator)
    return build_density(supervised(mlp(2, (4,)), priors.normal(1.0), likelihoods.gaussian()), x, y)


def target_of(density: LogDensity, settings: StochasticSettings | None = None) -> MinibatchTarget:
    keys = torch.stack([keys_of(3, chain, NUM_STREAMS) for chain in range(2)])
    return MinibatchTarget(density, settings or SGLD(batch_size=BATCH), keys)


@pytest.mark.parametrize("anchored", [False, True])
def test_gradients_over_a_pass_average_to_the_gradient_on_all_rows(anchored: bool) -> None:
    density = network_density()
    target, theta = target_of(density), density.init(2, 1)
    anchor = target.anchor_at(theta + 0.3) if anchored else ()
    found = [target.on_a_batch(anchor)(theta) for _ in range(NUM_ROWS // BATCH)]
    torch.testing.assert_close(sum(found) / len(found), density.value_and_grad(theta, *density.data)[1])


def test_the_gradient_on_all_rows_is_the_same_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    density = network_density()
    target, theta = target_of(density), density.init(2, 1)
    monkeypatch.setattr(gradients, "ROWS_AT_A_TIME", 50)  # the last of three blocks is shorter
    torch.testing.assert_close(target.anchor_at(theta)[1], density.value_and_grad(theta, *density.data)[1])


def noise_of(target: MinibatchTarget, theta: Tensor, anchor: tuple[Tensor, ...]) -> float:
    found = torch.stack([target.on_a_batch(anchor)(theta) for _ in range(200)])
    return float(found.var(0).mean())


def test_control_variates_remove_all_noise_from_a_linear_gaussian_model_at_the_anchor_and_most_of_it_nearby() -> None:
    """The gradient of a row is linear in theta: what is left is of second order in the distance, relative to the noise."""
    exact = linear_gaussian(num_data=NUM_ROWS)
    density = build_density(exact.model, *exact.data)
    target, mean = target_of(density), exact.mean["w"].expand(2, 3)
    anchor = target.anchor_at(mean)
    plain = noise_of(target, mean, ())
    assert noise_of(target, mean, anchor) < 1e-20 * plain
    draw = mean + exact.sd["w"] * torch.randn(2, 3, generator=torch.Generator().manual_seed(2))
    assert noise_of(target, draw, anchor) < plain / 20  # about P / N of it at a draw of the posterior


def test_control_variates_lower_the_noise_on_a_network_by_the_squared_distance_from_the_anchor() -> None:
    density = network_density()
    target, centre = target_of(density), density.init(2, 1)
    direction = torch.randn(centre.shape, generator=torch.Generator().manual_seed(1))
    anchor = target.anchor_at(centre)
    plain = noise_of(target, centre, ())
    near, nearer = (noise_of(target, centre + size * direction, anchor) for size in (0.02, 0.01))
    assert near < plain / 50
    assert near / nearer == pytest.approx(4, rel=0.5)


def test_moments_tell_noise_from_curvature() -> None:
    generator = torch.Generator().manual_seed(0)
    steady, moments = torch.tensor([[3.0, 0.0]]), no_moments(torch.zeros(1, 2))
    for _ in range(4000):
        moments = observed(moments, steady + 2 * torch.randn(1, 2, generator=generator))
    torch.testing.assert_close(moments.mean_square, torch.tensor([[13.0, 4.0]]), rtol=0.1, atol=0)
    torch.testing.assert_close(moments.noise, torch.tensor([[4.0, 4.0]]), rtol=0.1, atol=0)


def test_independent_batches_repeat_rows() -> None:
    stream = IndependentBatches(40).indices(50, MemberStreams(0, range(2)))
    rows = next(stream)
    assert rows is not None and rows.shape == (2, 40) and len(rows[0].unique()) < 40
    assert not torch.equal(rows[0], rows[1])
