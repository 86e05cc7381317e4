"""What is no count, no seed, no tensor or no posterior is said in one sentence, whoever is asked."""

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
import xarray as xr

import bnnzoo as bz
from bnnzoo.core.data.conversion import DataError
from bnnzoo.core.program.sites import ModelError

RNG = np.random.default_rng(0)
PROBS = xr.DataArray(RNG.dirichlet([1.0, 1.0], (1, 5, 20)), dims=("chain", "draw", "obs_id", "class_id"))
LABELS = xr.DataArray(RNG.integers(0, 2, 20), dims="obs_id")
SCORE = xr.DataArray(RNG.random(20), dims="obs_id")
X, Y = torch.linspace(-1.0, 1.0, 12)[:, None], torch.linspace(0.0, 1.0, 12)
COUNTS = {
    "num_bins": [
        lambda n: bz.calibration.ece(PROBS, LABELS, num_bins=n),
        lambda n: bz.calibration.classwise_ece(PROBS, LABELS, num_bins=n),
        lambda n: bz.calibration.reliability_curve(PROBS, LABELS, num_bins=n),
        lambda n: bz.calibration.brier_split(PROBS, LABELS, num_bins=n),
    ],
    "batch_size": [
        lambda n: bz.acquisition.select(SCORE, n),
        lambda n: bz.acquisition.batch_bald(PROBS, n),
    ],
    "num_configurations": [lambda n: bz.acquisition.batch_bald(PROBS, 2, num_configurations=n)],
    "num_resamples": [lambda n: bz.calibration.auroc(SCORE, SCORE, num_resamples=n)],
}


@pytest.mark.parametrize(("name", "call"), [(name, call) for name, calls in COUNTS.items() for call in calls])
def test_what_is_no_count_is_refused_by_its_name(name: str, call) -> None:
    for value in (2.5, True, "2"):
        with pytest.raises(TypeError, match=rf"^{name}={value!r}: write a whole number\.$"):
            call(value)
    with pytest.raises(ValueError, match=rf"^{name}=0: write a positive number\.$"):
        call(0)


@pytest.mark.parametrize("kind", [np.int32, np.int64, np.uint8, np.uint32])
def test_seeds_are_numpys_integers_as_well_as_pythons(kind) -> None:
    model = bz.models.supervised(bz.models.mlp(1, (3,)), bz.priors.normal(1.0), bz.likelihoods.gaussian())
    method = bz.MeanFieldVI(num_steps=5)
    first, second = (bz.fit(model, method, X, Y, seed=seed, progress=False) for seed in (7, kind(7)))
    assert torch.equal(first.draws(3, 5), second.draws(3, kind(5)))
    calls = (
        lambda seed: bz.predict(first, X, num_draws=3, seed=seed),
        lambda seed: bz.posterior_predictive(first, X, Y, num_draws=3, seed=seed),
        lambda seed: bz.to_datatree(first, num_draws=3, seed=seed),
        lambda seed: bz.prior_predictive(model, X, Y, num_draws=3, seed=seed),
    )
    for call in calls:
        assert call(5).identical(call(kind(5)))


def improper(x=None) -> None:
    w = pyro.sample("w", dist.ImproperUniform(dist.constraints.real, (), ()))
    s = pyro.sample("s", dist.Normal(w, 1.0))
    if x is not None:
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(s, 1.0), obs=x)


@pytest.mark.parametrize("method", [bz.NUTS(), bz.MeanFieldVI(), bz.MAP(), bz.Laplace(), bz.SGLD()])
def test_an_improper_prior_without_data_has_no_posterior_under_any_method(method) -> None:
    sentence = r"^Site 'w' has an improper prior and the model observes nothing.* a proper prior such as dist\.Normal"
    with pytest.raises(ModelError, match=sentence):
        bz.fit(improper, method, progress=False)
    assert bz.fit(improper, bz.MAP(num_steps=5, polish_steps=0), Y, progress=False).theta.shape[-1] == 2


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors", "ignore:.*quantiz", "ignore:.*deprecated")
def test_tensors_of_other_kinds_are_named() -> None:
    model = bz.models.supervised(bz.models.mlp(1, (3,)), bz.priors.normal(1.0), bz.likelihoods.gaussian())
    quantised = torch.quantize_per_tensor(X.float(), 0.1, 0, torch.qint8)
    for value, what in (
        (quantised, r"quantised tensor.*\.dequantize\(\)"),
        (torch.nested.nested_tensor([X, X[:3]]), "nested tensor"),
        (X.to("meta"), "'meta', which has no values"),
    ):
        with pytest.raises(DataError, match=what):
            bz.fit(model, bz.MAP(), value, Y, progress=False)
