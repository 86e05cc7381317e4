"""Training from starts that explain the data hopelessly: a wide prior, a deep network, a scale that depends on the inputs."""

import numpy as np
import pytest
import torch

import bnnzoo as bz
from bnnzoo.core.method import FitContext, Method
from bnnzoo.core.model.density import build_density
from bnnzoo.inference.starts import MAX_LOSS_PER_OBSERVATION, evaluated_starts, starting_points
from bnnzoo.models import likelihoods, mlp, priors, supervised

pytestmark = pytest.mark.filterwarnings("ignore::bnnzoo.FitWarning")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 3))
Y = np.sin(X[:, 0]) + 0.5 * X[:, 1] + 0.1 * RNG.normal(size=120)
Y = (Y - Y.mean()) / Y.std()

TRAINED: dict[str, Method] = {
    "MAP": bz.MAP(num_steps=800, polish_steps=0),
    "DeepEnsemble": bz.DeepEnsemble(2, num_steps=800),
    "MeanFieldVI": bz.MeanFieldVI(num_steps=1500),
    "LowRankVI": bz.LowRankVI(num_steps=1500),
    "MCDropout": bz.MCDropout(0.05, num_steps=800),
    "SGHMC": bz.SGHMC(num_chains=2, num_warmup=100, num_draws=50, batch_size=60),
    "StochasticMCLMC": bz.StochasticMCLMC(num_chains=2, num_warmup=100, num_draws=50, batch_size=60),
}


def model():
    return supervised(
        mlp(3, (24, 24), 2, activation="tanh"), priors.normal(1.0), likelihoods.heteroscedastic_gaussian()
    )


@pytest.mark.parametrize(
    "name",
    ["DeepEnsemble", *(pytest.param(each, marks=pytest.mark.slow) for each in TRAINED if each != "DeepEnsemble")],
)
def test_a_wide_prior_does_not_keep_a_method_from_learning(name: str) -> None:
    posterior = bz.fit(model(), TRAINED[name], X, Y, seed=0, progress=False)
    mean = bz.predict(posterior, X, Y)["conditional"]["mean"].mean(("chain", "draw")).to_numpy()
    assert np.sqrt(np.mean((mean - Y) ** 2)) < 0.5  # a constant has 1


def test_hopeless_starts_are_moved_towards_the_middle_and_no_further_than_that_helps() -> None:
    density = build_density(model(), *map(torch.from_numpy, (X, Y)))
    context = FitContext(seed=0)
    drawn = evaluated_starts(None, 4, density, context)
    moved = evaluated_starts(None, 4, density, context, trains=True)
    assert bool((drawn.value < -1000 * len(Y)).any())  # nats per observation
    ratio = (drawn.theta / moved.theta).median(1).values
    torch.testing.assert_close(moved.theta * ratio[:, None], drawn.theta)
    torch.testing.assert_close(ratio.log2(), ratio.log2().round())
    value, gradient = density.value_and_grad(moved.theta, *density.data)
    torch.testing.assert_close((moved.value, moved.gradient), (value, gradient))
    further, _ = density.value_and_grad(moved.theta / 2, *density.data)
    assert bool((further <= moved.value + MAX_LOSS_PER_OBSERVATION * len(Y)).all())
    torch.testing.assert_close(drawn.theta, density.init(4, 0))  # samplers start where the model does


def test_other_starts_stay_where_they_are() -> None:
    known_noise = supervised(mlp(3, (24, 24)), priors.fan_in(), likelihoods.gaussian(scale=0.5))
    density = build_density(known_noise, *map(torch.from_numpy, (X, Y)))
    found = starting_points(None, 4, density, FitContext(seed=0), trains=True)
    torch.testing.assert_close(found, density.init(4, 0))


def test_the_prior_of_many_weights_moves_no_start() -> None:
    """It would gain 3,800 nats from half a start, where ten observations may gain 100 before they count as hopeless."""
    much_noise = supervised(mlp(3, (100, 100), activation="tanh"), priors.normal(1.0), likelihoods.gaussian(scale=20.0))
    density = build_density(much_noise, *map(torch.from_numpy, (X[:10], Y[:10])))
    start = density.init(1, 0)
    assert float(density.log_prior(start[0] / 2) - density.log_prior(start[0])) > 3000
    torch.testing.assert_close(starting_points(None, 1, density, FitContext(seed=0), trains=True), start)


def test_small_noise_does_not_make_the_gauss_newton_matrix_indefinite_in_single_precision() -> None:
    x = torch.linspace(-1.0, 1.0, 50, dtype=torch.float32)[:, None]
    net = mlp(1, (30,), 1)
    narrow = supervised(net, priors.normal(1.0), likelihoods.gaussian(scale=1e-4))
    y = torch.sin(3 * x[:, 0])
    posterior = bz.fit(narrow, bz.Laplace(map=bz.MAP(num_steps=300)), x, y, seed=0, dtype=torch.float32)
    eigenvalues = torch.linalg.eigvalsh(posterior.covariance.dense().double())
    assert posterior.draws().dtype == torch.float32
    assert float(eigenvalues[-1]) < 1.01  # the prior's is 1 where the data say nothing
