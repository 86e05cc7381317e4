"""Settings that all variational methods share."""

import pytest
import torch

from bnnzoo.core.model.density import build_density
from bnnzoo.core.posterior.posterior import Gaussian
from bnnzoo.inference import MeanFieldVI, fit
from bnnzoo.inference.variational.elbo import elbo
from bnnzoo.inference.variational.mean_field_vi import MeanField
from bnnzoo.inference.variational.variational_settings import VISettings, annealed, pass_weights
from bnnzoo.testing.targets import linear_gaussian


def test_annealing_weights_average_to_one_and_end_at_one() -> None:
    weights = annealed(1000, 0.2)
    assert weights.mean() == pytest.approx(1.0)
    assert (weights[500:] == 1).all()
    assert weights[0] < 0.01
    target = linear_gaussian()
    posterior = fit(target.model, MeanFieldVI(num_steps=1000, num_averaged=200, kl_annealing=0.2), *target.data)
    assert isinstance(posterior, Gaussian)
    assert ((posterior.loc - target.mean["w"]).abs() < 0.06 * target.sd["w"]).all()
    assert ((posterior.covariance.diagonal() / target.mean_field_sd() ** 2 - 1).abs() < 0.03).all()


def test_annealing_needs_steps_to_rise_over() -> None:
    with pytest.raises(ValueError, match=r"kl_annealing=0.01 of num_steps=20: write a fraction of the steps up to 0.3"):
        annealed(20, 0.01)


def test_the_window_is_a_fifth_of_the_steps_by_default() -> None:
    assert [VISettings(num_steps=steps).window for steps in (1, 4, 5, 2000)] == [1, 1, 1, 400]
    assert VISettings(num_averaged=7).window == 7


def test_without_annealing_there_are_no_weights() -> None:
    assert VISettings().kl_weights(100) is None
    assert torch.equal(VISettings(num_steps=50, kl_annealing=0.2).kl_weights(100), annealed(50, 0.2))


def test_weights_within_a_pass_are_those_of_the_paper() -> None:
    expected = torch.tensor([4 * 2 ** (4 - i) / (2**4 - 1) for i in range(1, 5)], dtype=torch.float64)
    torch.testing.assert_close(pass_weights(4), expected)
    assert pass_weights(1).tolist() == [1.0]
    many = pass_weights(5000)  # 2^5000 is no floating-point number
    assert many.mean() == pytest.approx(1.0) and many.isfinite().all() and many[0] == pytest.approx(2500)


def test_every_pass_begins_with_the_heaviest_weight() -> None:
    weights = VISettings(num_steps=10, batch_size=12, kl_weighting="geometric").kl_weights(40)
    torch.testing.assert_close(weights, pass_weights(3).repeat(4)[:10])
    both = VISettings(num_steps=10, batch_size=12, kl_weighting="geometric", kl_annealing=0.2).kl_weights(40)
    torch.testing.assert_close(both, weights * annealed(10, 0.2))
    assert VISettings(num_steps=3, batch_size=50, kl_weighting="geometric").kl_weights(40).tolist() == [1.0] * 3


def test_a_pass_with_geometric_weights_adds_up_to_the_bound() -> None:
    target = linear_gaussian()
    density = build_density(target.model, *target.data)
    params, noise = torch.randn(6), torch.randn(5, 3)
    x, y = target.data
    batches = [(x[rows], y[rows]) for rows in torch.randperm(40).split(8)]
    pairs = zip(batches, pass_weights(5), strict=True)
    mean = torch.stack([elbo(density, MeanField(), params, noise, batch, weight) for batch, weight in pairs]).mean()
    torch.testing.assert_close(mean, elbo(density, MeanField(), params, noise, target.data))


def test_geometric_weights_leave_the_optimum_where_it_is() -> None:
    target = linear_gaussian()
    settings = {"num_steps": 3000, "batch_size": 10, "kl_weighting": "geometric", "learning_rate": 0.01}
    posterior = fit(target.model, MeanFieldVI(**settings), *target.data)
    assert ((posterior.loc - target.mean["w"]).abs() < 0.1 * target.sd["w"]).all()
    # Adam scales down the large gradients of the first batch of a pass: 12% of a variance at any step size and number of draws
    assert ((posterior.covariance.diagonal() / target.mean_field_sd() ** 2 - 1).abs() < 0.15).all()


def test_geometric_weights_need_mini_batches() -> None:
    target = linear_gaussian()
    with pytest.raises(
        ValueError, match=r'kl_weighting="geometric" weights the mini-batches of a pass, and batch_size is None'
    ):
        fit(target.model, MeanFieldVI(kl_weighting="geometric"), *target.data)
