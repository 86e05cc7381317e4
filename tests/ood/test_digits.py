"""Digits with three classes held out: which features a density needs to find them."""

import numpy as np
import pytest
import xarray as xr
from sklearn.datasets import load_digits

import bnnzoo as bz
from bnnzoo.predictive import features

pytestmark = pytest.mark.slow
MODE = bz.MAP(num_steps=400, learning_rate=0.01, polish_steps=0)


def split(seed):
    """Return training rows and labels, known test rows, and those of three classes held out."""
    digits = load_digits()
    rng = np.random.default_rng(seed)
    known, unknown = np.split(rng.permutation(10), [7])
    rows = rng.permutation(np.flatnonzero(np.isin(digits.target, known)))
    labels = np.searchsorted(np.sort(known), digits.target)
    x = digits.data / 16
    return x[rows[:500]], labels[rows[:500]], x[rows[500:]], x[np.isin(digits.target, unknown)]


def area(net, scale, method, data, **draws):
    """Fit a network and return how well the density of its features finds the classes held out."""
    x, y, inside, outside = data
    model = bz.models.supervised(net, bz.priors.fan_in(scale), bz.likelihoods.categorical())
    posterior = bz.fit(model, method, x, y, progress=False)
    density = bz.ood.GaussianDensity.fit(features(posterior, x, **draws), xr.DataArray(y, dims="obs_id"))
    scores = (density.score(features(posterior, rows, **draws)) for rows in (inside, outside))
    return float(bz.calibration.auroc(*bz.calibration.versus(*scores), num_resamples=1)["value"])


@pytest.mark.parametrize("seed", [200, 201])
@pytest.mark.parametrize("bound", [0.95, None])
def test_a_density_of_features_needs_a_wide_prior(bound, seed):
    """With a spectral bound or without."""
    net = bz.models.residual_mlp(64, 50, 3, 7, bound=bound)
    wide, narrow = (area(net, scale, MODE, split(seed)) for scale in (5.0, 1.4))
    assert wide > 0.85
    assert wide > narrow + 0.1


@pytest.mark.parametrize("seed", [200, 201])
def test_draws_keep_what_the_mode_forgets(seed):
    """A narrow prior shrinks the weights that no known class needs to nothing at the mode, and to noise in a draw."""
    net = bz.models.mlp(64, (50,), 7, "relu")
    draws = bz.MeanFieldVI(
        num_steps=1200, num_particles=2, learning_rate=0.01, init=MODE, init_scale=0.01, num_averaged=200
    )
    data = split(seed)
    of_draws = area(net, 1.4, draws, data, num_draws=10)
    assert of_draws > 0.95
    assert of_draws > area(net, 1.4, MODE, data) + 0.01
