"""Adversarial training against closed forms of the linear-Gaussian model."""

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

from bnnzoo import likelihoods, models, priors
from bnnzoo.core.model.density import build_density
from bnnzoo.inference import FGSM, DeepEnsemble, VirtualAdversarial, fit
from bnnzoo.inference.ensembles.adversarial import input_space
from bnnzoo.inference.optimise.batches import AllRows
from bnnzoo.inference.optimise.objectives import ObjectiveInputs, log_joint_objective
from bnnzoo.inference.optimise.streams import MemberStreams
from bnnzoo.testing import linear_gaussian
from tests.helpers.densities import cases

TARGET = linear_gaussian()
DENSITY = build_density(TARGET.model, *TARGET.data)
THETA = torch.tensor([0.4, -1.0, 0.3])
STREAMS = MemberStreams(0, range(1))


def everything(noise: tuple[Tensor, ...] = ()) -> ObjectiveInputs:
    batch = next(AllRows().stream(DENSITY, STREAMS))
    return ObjectiveInputs((), (), noise, batch)


def test_inputs_are_the_arguments_that_are_not_observed_and_ranges_those_of_each_column() -> None:
    found = input_space(DENSITY, "x")
    assert found.places == (0,)
    torch.testing.assert_close(found.ranges[0], TARGET.data[0].amax(0) - TARGET.data[0].amin(0))


def test_fgsm_is_half_the_objective_at_the_data_and_half_at_the_inputs_moved_by_the_sign() -> None:
    x, y = TARGET.data
    residual = y - x @ THETA
    ranges = x.amax(0) - x.amin(0)
    # the log likelihood falls fastest along -sign(residual * w)
    moved = x - 0.05 * ranges * torch.sign(residual[:, None] * THETA)
    expected = 0.5 * DENSITY.log_joint(THETA, x, y) + 0.5 * DENSITY.log_joint(THETA, moved, y)
    objective = FGSM(0.05).objective(log_joint_objective(DENSITY).function, DENSITY, input_space(DENSITY, "x"))
    torch.testing.assert_close(objective(THETA, everything()), expected)
    assert float(DENSITY.log_joint(THETA, moved, y)) < float(DENSITY.log_joint(THETA, x, y))


def test_virtual_adversarial_finds_the_direction_in_which_predictions_change_most() -> None:
    x, _ = TARGET.data
    slope = THETA * (x.amax(0) - x.amin(0))
    largest = 0.1**2 * slope.square().sum() / (2 * TARGET.noise**2)  # KL of two normals, in the direction of the slope
    method = VirtualAdversarial(epsilon=0.1, strength=2.0)
    space = input_space(DENSITY, "x")
    (noise,) = method.noise(STREAMS, space, len(x), DENSITY)(STREAMS.shared)
    assert noise.shape == (1, *x.shape)
    base = log_joint_objective(DENSITY).function
    value = method.objective(base, DENSITY, space)(THETA, everything((noise[0],)))
    torch.testing.assert_close(value, base(THETA, everything()) - 2.0 * len(x) * largest)


def test_no_step_changes_nothing() -> None:
    settings = {"num_members": 2, "num_steps": 30, "batch_size": 10}
    plain = fit(TARGET.model, DeepEnsemble(**settings), *TARGET.data)
    still = fit(TARGET.model, DeepEnsemble(**settings, adversarial=FGSM(0.0)), *TARGET.data)
    torch.testing.assert_close(still.theta, plain.theta)


@pytest.mark.parametrize("adversarial", [FGSM(0.05), VirtualAdversarial(0.05)], ids=["fgsm", "virtual"])
@pytest.mark.parametrize(
    "case",
    [
        "categorical",
        "heteroscedastic",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("regression", "bernoulli", "poisson", "two_sites")),
    ],
)
def test_any_likelihood_can_be_trained(case: str, adversarial: FGSM | VirtualAdversarial) -> None:
    model, data = cases()[case]
    method = DeepEnsemble(num_members=2, num_steps=40, batch_size=7, learning_rate=0.03, adversarial=adversarial)
    posterior = fit(model, method, *data)
    loss = posterior.info.fit_stats["loss"]
    assert bool(posterior.theta.isfinite().all())
    assert float(loss[:, -10:].mean()) < float(loss[:, :10].mean())


def test_adversarial_training_makes_predictions_flatter() -> None:
    x = torch.linspace(-1, 1, 30)[:, None]
    model = models.supervised(models.mlp(1, (10,)), priors.normal(3.0), likelihoods.gaussian(0.1))
    y = (3 * x[:, 0]).sin()
    norms = []
    for adversarial in (None, FGSM(0.3)):
        posterior = fit(model, DeepEnsemble(2, num_steps=300, adversarial=adversarial), x, y)
        means = torch.stack([posterior.density.conditional(row, x, y)["mean"] for row in posterior.theta[0]])
        norms.append(float(means.diff(dim=1).abs().max()))
    assert norms[1] < 0.7 * norms[0]


@pytest.mark.parametrize(
    ("adversarial", "sentence"),
    [
        (FGSM(-0.1), r"FGSM\(epsilon=-0\.1\): write 0 or more"),
        (VirtualAdversarial(-0.1), r"VirtualAdversarial\(epsilon=-0\.1\): write 0 or more"),
        (VirtualAdversarial(num_iterations=0), r"VirtualAdversarial\(num_iterations=0\): write 1 or more"),
    ],
)
def test_refuses_impossible_settings(adversarial: FGSM | VirtualAdversarial, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        fit(TARGET.model, DeepEnsemble(adversarial=adversarial), *TARGET.data)


def test_refuses_a_model_without_inputs() -> None:
    def model(y: Tensor) -> None:
        mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
        with pyro.plate("data", len(y)):
            pyro.sample("y", dist.Normal(mu, 1.0), obs=y)

    with pytest.raises(
        ValueError, match=r"FGSM\(\.\.\.\) moves inputs, but no argument of the model is a floating-point"
    ):
        fit(model, DeepEnsemble(adversarial=FGSM()), torch.arange(4.0))


def test_refuses_a_likelihood_without_a_divergence() -> None:
    x, y = TARGET.data
    model = models.supervised(models.mlp(3, (3,)), priors.normal(1.0), likelihoods.student_t())
    with pytest.raises(ValueError, match=r"does not know for site 'y' \(StudentT\)\. Use adversarial=FGSM\(\)"):
        fit(model, DeepEnsemble(adversarial=VirtualAdversarial()), x, y)
