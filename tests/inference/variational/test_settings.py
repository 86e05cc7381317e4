"""Settings that all variational methods share."""

import pytest
import torch

from bnnzoo.core.posterior import Gaussian
from bnnzoo.inference import MeanFieldVI, fit
from bnnzoo.inference.variational.settings import VISettings, annealed
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
    assert VISettings().kl_weights is None
    assert torch.equal(VISettings(num_steps=50, kl_annealing=0.2).kl_weights, annealed(50, 0.2))
