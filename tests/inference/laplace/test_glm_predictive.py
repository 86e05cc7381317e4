"""Classification of real data: linearised predictions against sampling the network, and the prior chosen by the evidence."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from bnnzoo.core.posterior.posterior import Gaussian
from bnnzoo.inference import MAP, Laplace, fit, log_marginal_likelihood
from bnnzoo.models import likelihoods, mlp, priors, supervised
from bnnzoo.predictive import predict

pytestmark = [pytest.mark.reference, pytest.mark.filterwarnings("ignore:The mode was not reached")]
SEEDS = range(5)
NUM_TRAIN = 250


def split(folder: Path, name: str, seed: int) -> tuple[Tensor, ...]:
    """Return train and test parts: 250 rows to learn from, up to 500 others to be judged on."""
    if name == "banana":
        table = np.loadtxt(folder / "banana.csv", delimiter=",")
        x, y = table[:, :2], table[:, 2] - 1
    else:
        x, y = (
            np.concatenate([np.loadtxt(folder / f"australian_scale_{axis}_{part}.csv") for part in ("tr", "te")])
            for axis in "Xy"
        )
    order = np.random.default_rng(seed).permutation(len(x))
    train, test = order[:NUM_TRAIN], order[NUM_TRAIN : NUM_TRAIN + 500]
    x = (x - x[train].mean(0)) / np.where(x[train].std(0) > 0, x[train].std(0), 1.0)
    x, y = torch.from_numpy(x).to(torch.get_default_dtype()), torch.from_numpy((y > 0).astype(np.int64))
    return x[train], y[train], x[test], y[test]


def fitted(x: Tensor, y: Tensor, scale: float, seed: int) -> Gaussian:
    net = mlp(x.shape[1], (20,), 2)
    model = supervised(net, priors.normal(scale), likelihoods.categorical())
    return fit(model, Laplace(MAP(num_steps=300, polish_steps=300), curvature="ggn"), x, y, seed=seed)


def log_score(posterior: Gaussian, x: Tensor, y: Tensor, linearized: bool) -> float:
    probs = predict(posterior, x, num_draws=200, linearized=linearized)["conditional"]["probs"].mean(("chain", "draw"))
    return float(np.log(probs.to_numpy()[np.arange(len(y)), y.numpy()]).mean())


@pytest.mark.parametrize("name", ["banana", "australian"])
def test_linearised_predictions_beat_sampling_the_network(bnnzoo_data: Path, name: str) -> None:
    gains = []
    for seed in SEEDS:
        x, y, x_test, y_test = split(bnnzoo_data / "classif", name, seed)
        posterior = fitted(x, y, 1.0, seed)
        gains.append(log_score(posterior, x_test, y_test, True) - log_score(posterior, x_test, y_test, False))
    assert np.mean(gains) > 4 * np.std(gains, ddof=1) / len(gains) ** 0.5
    assert np.mean(gains) > 0.01


@pytest.mark.parametrize("name", ["banana", "australian"])
def test_prior_of_highest_evidence_beats_the_worst_one(bnnzoo_data: Path, name: str) -> None:
    gains = []
    for seed in SEEDS:
        x, y, x_test, y_test = split(bnnzoo_data / "classif", name, seed)
        posteriors = [fitted(x, y, scale, seed) for scale in (0.05, 0.3, 1.0)]
        scores = [log_score(posterior, x_test, y_test, True) for posterior in posteriors]
        evidence = [float(log_marginal_likelihood(posterior)) for posterior in posteriors]
        gains.append(scores[int(np.argmax(evidence))] - min(scores))
    assert min(gains) > 0
    assert np.mean(gains) > 0.02
