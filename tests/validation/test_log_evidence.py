"""Evidence by bridge and importance sampling, against closed forms and thermodynamic integration."""

import math
import warnings
from itertools import product

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch

import bnnzoo as bz
from bnnzoo.core.posterior.posterior import Draws
from bnnzoo.inference import log_marginal_likelihood
from bnnzoo.testing.targets import linear_gaussian
from bnnzoo.validation import LogEvidence, log_evidence, model_probabilities


def fitted(model, method, *data):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return bz.fit(model, method, *data, progress=False)


def normal(y):
    mu = pyro.sample("mu", dist.Normal(1.0, 2.0))
    with pyro.plate("data", len(y)):
        pyro.sample("y", dist.Normal(mu, 0.5), obs=y)


def of_normal(y: torch.Tensor) -> float:
    covariance = 0.25 * torch.eye(len(y)) + 4.0
    return float(torch.distributions.MultivariateNormal(torch.ones(len(y)), covariance).log_prob(y))


def binomial(y, n):
    p = pyro.sample("p", dist.Beta(2.0, 3.0))
    with pyro.plate("data", len(y)):
        pyro.sample("y", dist.Binomial(n, p), obs=y)


def of_binomial(y: torch.Tensor, n: float) -> float:
    choices = sum(math.lgamma(n + 1) - math.lgamma(each + 1) - math.lgamma(n - each + 1) for each in y.tolist())

    def log_beta(a: float, b: float) -> float:
        return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)

    total = float(y.sum())
    return choices + log_beta(2 + total, 3 + n * len(y) - total) - log_beta(2, 3)


Y, COUNTS, TRIALS = torch.tensor([0.3, 1.2, 0.8, 2.0]), torch.tensor([3.0, 5.0, 2.0]), 10.0
LINE = linear_gaussian()
EXACT = {
    "normal": (normal, (Y,), of_normal(Y)),
    "beta-binomial": (binomial, (COUNTS, TRIALS), of_binomial(COUNTS, TRIALS)),
    "line": (LINE.model, LINE.data, float(LINE.log_evidence)),
}


@pytest.mark.parametrize(
    ("name", "method"),
    [
        *product(EXACT, (bz.NUTS(), bz.Pathfinder(), bz.Laplace())),
        *product(("normal", "line"), (bz.FullRankVI(),)),
    ],
    ids=lambda each: each if isinstance(each, str) else type(each).__name__,
)
def test_conjugate_models_to_a_hundredth_of_a_nat_within_the_error_that_is_said(name: str, method) -> None:
    model, data, exact = EXACT[name]
    found = log_evidence(fitted(model, method, *data))
    assert found.how == ("bridge sampling" if isinstance(method, bz.NUTS) else "importance sampling")
    assert abs(found.value - exact) < min(0.01, 4 * found.error + 1e-9)


def test_the_gaussian_nearest_to_a_skewed_posterior_is_refused() -> None:
    """Its weights differ by a twentieth, and the few of the heavier tail are far from the others: Pareto k is large."""
    model, data, _ = EXACT["beta-binomial"]
    with pytest.raises(
        ValueError, match=r"not to be trusted: the Pareto k of the weights of FullRankVI is 3\.\d+, above"
    ):
        log_evidence(fitted(model, bz.FullRankVI(), *data))


def test_it_is_the_laplace_estimate_where_the_posterior_is_gaussian() -> None:
    posterior = fitted(LINE.model, bz.Laplace(), *LINE.data)
    assert float(log_evidence(posterior)) == pytest.approx(float(log_marginal_likelihood(posterior)), abs=1e-9)


def test_the_error_is_that_of_repeated_runs() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of few draws
        fits = list(bz.fit_many(binomial, bz.NUTS(num_draws=250), [(COUNTS, TRIALS)] * 30))
    found = [log_evidence(each, num_draws=500, seed=number) for number, each in enumerate(fits)]
    z = np.array([(each.value - EXACT["beta-binomial"][2]) / each.error for each in found])
    assert abs(z.mean()) < 4 / math.sqrt(30)
    assert 0.6 < z.std() < 1.6


def skewed(num_params: int) -> Draws:
    """Return exact draws of Gamma(2, 1) variables, whose evidence is one, in chains."""

    def model():
        pyro.sample("x", dist.Gamma(2.0, 1.0).expand([num_params]).to_event(1))

    start = fitted(model, bz.NUTS(num_warmup=100, num_draws=30))
    generator = torch.Generator().manual_seed(0)
    exact = -torch.rand(4, 3000, num_params, 2, generator=generator, dtype=torch.float64).log().sum(-1)
    return Draws(start.density, start.info, exact.log())


def test_skewed_posteriors_in_five_dimensions() -> None:
    found = log_evidence(skewed(5))
    assert abs(found.value) < min(0.03, 4 * found.error)


def test_what_is_not_to_be_trusted_is_refused() -> None:
    model, data, _ = EXACT["line"]
    chains = fitted(model, bz.NUTS(), *data)
    apart = Draws(chains.density, chains.info, chains.theta + torch.arange(4.0)[:, None, None])
    for posterior, settings, message in (
        (apart, {}, r"the chains of NUTS disagree, R-hat of a parameter is 2\.\d+"),
        (
            fitted(model, bz.NUTS(num_draws=10), *data),
            {},
            r"first half of the chains has 20 draws, .*takes 40.*num_draws",
        ),
        (chains, {"max_error": 1e-5}, r"standard error of 0\.00\d* nats, above max_error=1e-05"),
        (
            fitted(model, bz.MeanFieldVI(num_steps=200, init_scale=0.02), *data),
            {},
            r"Pareto k of the weights of MeanFieldVI",
        ),
        (fitted(model, bz.MAP(num_members=2), *data), {}, r"members of an ensemble, which have no density"),
        (chains, {"num_draws": 0}, "num_draws"),
        (chains, {"max_error": -1.0}, "max_error"),
    ):
        with pytest.raises(ValueError, match=message):
            log_evidence(posterior, **settings)


def test_a_posterior_without_its_data_is_refused(tmp_path) -> None:
    fitted(normal, bz.Laplace(), Y).save(tmp_path / "posterior.bnn")
    with pytest.raises(ValueError, match=r"without its data.*bnnzoo\.load"):
        log_evidence(bz.load(tmp_path / "posterior.bnn", normal))


def wider(y):
    mu = pyro.sample("mu", dist.Normal(1.0, 200.0))
    with pyro.plate("data", len(y)):
        pyro.sample("y", dist.Normal(mu, 0.5), obs=y)


def test_models_have_the_probabilities_that_closed_forms_give() -> None:
    fits = {"narrow": fitted(normal, bz.NUTS(), Y), "wide": fitted(wider, bz.Laplace(), Y)}
    found = model_probabilities(fits)
    covariance = 0.25 * torch.eye(4) + 200.0**2
    other = float(torch.distributions.MultivariateNormal(torch.ones(4), covariance).log_prob(Y))
    expected = of_normal(Y) - other
    assert float(found["log_bayes_factor"].sel(model="narrow", against="wide")) == pytest.approx(expected, abs=0.01)
    assert float(found["log_bayes_factor"].sel(model="wide", against="narrow")) == pytest.approx(-expected, abs=0.01)
    assert float(found["probability"].sel(model="narrow")) == pytest.approx(1 / (1 + math.exp(-expected)), abs=1e-3)
    assert float(found["probability"].sum()) == pytest.approx(1.0)
    frame = found[["log_evidence", "log_evidence_se", "probability", "probability_se"]].to_dataframe()
    assert frame.shape == (2, 4) and list(frame.index) == ["narrow", "wide"]


def test_prior_probabilities_and_errors_of_evidences_count() -> None:
    fits = {
        name: LogEvidence(value, error, "bridge sampling", 1)
        for name, value, error in (("a", -10.0, 0.1), ("b", -11.0, 0.2), ("c", -13.0, 0.0))
    }
    found = model_probabilities(fits, prior={"a": 1.0, "b": 2.0, "c": 1.0})
    weights = np.exp([0.0, -1.0, -3.0]) * [1, 2, 1]
    np.testing.assert_allclose(found["probability"], weights / weights.sum())
    noise = np.random.default_rng(0).normal(size=(200_000, 3)) * [0.1, 0.2, 0.0] + [0.0, -1.0 + math.log(2), -3.0]
    drawn = np.exp(noise) / np.exp(noise).sum(1, keepdims=True)
    np.testing.assert_allclose(found["probability_se"], drawn.std(0), rtol=0.03)
    np.testing.assert_allclose(found["log_bayes_factor_se"].sel(model="a", against="b"), math.hypot(0.1, 0.2))


def of_logs(y):
    mu = pyro.sample("mu", dist.Normal(1.0, 2.0))
    with pyro.plate("data", len(y)):
        pyro.sample("y", dist.Normal(mu, 0.5), obs=y.abs().log())


def test_models_that_cannot_be_compared_are_refused() -> None:
    one = fitted(normal, bz.Laplace(), Y)
    for fits, settings, message in (
        ({"a": one}, {}, "fits has 1"),
        ({"a": one, "b": fitted(normal, bz.Laplace(), Y[:2])}, {}, r"different observations \(a to 4, b to 2\)"),
        (
            {"a": one, "b": fitted(normal, bz.Laplace(), Y + 1)},
            {},
            "a observes 4 numbers of mean .*, b 4 numbers of mean",
        ),
        ({"a": one, "b": fitted(of_logs, bz.Laplace(), Y)}, {}, r"a model of log\(y\) is compared as one of y"),
        ({"a": one, "b": one}, {"prior": {"a": 1.0}}, "prior names a, but fits has a, b"),
        ({"a": one, "b": one}, {"prior": {"a": 1.0, "b": 0.0}}, "prior\\['b'\\]"),
        ({"a": one, "b": fitted(normal, bz.MAP(), Y)}, {}, r"fits\['b'\]: Draws of MAP are members"),
    ):
        with pytest.raises(ValueError, match=message):
            model_probabilities(fits, **settings)


def test_the_same_observations_in_another_order_precision_and_under_another_name_are_compared() -> None:
    def renamed(outcome):
        mu = pyro.sample("mu", dist.Normal(1.0, 2.0))
        with pyro.plate("data", len(outcome)):
            pyro.sample("outcome", dist.Normal(mu, 0.5), obs=outcome)

    fits = {"one": fitted(normal, bz.Laplace(), Y), "other": fitted(renamed, bz.Laplace(), Y.flip(0).float())}
    assert float(model_probabilities(fits)["log_bayes_factor"][0, 1]) == pytest.approx(0.0, abs=1e-3)


def test_who_looks_among_the_diagnostics_is_told_where_it_is() -> None:
    with pytest.raises(AttributeError, match=r"did you mean bnnzoo\.validation\.log_evidence"):
        bz.diagnostics.log_evidence  # noqa: B018


@pytest.mark.slow
def test_a_horseshoe_regression_against_thermodynamic_integration() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(40, 6, generator=generator)
    y = 2 * x[:, 0] - x[:, 1] + torch.randn(40, generator=generator)

    def model_at(temperature: float):
        def model(x, y):
            tau = pyro.sample("tau", dist.HalfCauchy(1.0))
            local = pyro.sample("local", dist.HalfCauchy(torch.ones(6)).to_event(1))
            z = pyro.sample("z", dist.Normal(torch.zeros(6), 1.0).to_event(1))
            sigma = pyro.sample("sigma", dist.HalfNormal(2.0))
            with pyro.poutine.scale(scale=temperature), pyro.plate("data", len(x)):
                pyro.sample("y", dist.Normal(x @ (tau * local * z), sigma), obs=y)

        return model

    whole = fitted(model_at(1.0), bz.NUTS(num_warmup=2000, num_draws=8000, target_accept=0.99), x, y)
    found = log_evidence(whole)
    assert found.error < 0.1

    # log p(y) is the integral over t of the mean log likelihood under p(y | theta)^t p(theta), by Simpson's rule in t^(1/5)
    places = np.linspace(0.0, 1.0, 33)
    means, errors = [], []
    density = whole.density
    for place in places:
        power = place**5
        if power == 0.0:
            draws = torch.stack([whole.density.prior_draw({}, x, y) for _ in range(4000)])[None]
        else:
            draws = fitted(model_at(float(power)), bz.NUTS(num_draws=1500, target_accept=0.98), x, y).theta
        flat = torch.stack([density.log_likelihood(row, x, y).sum() for row in draws.flatten(0, 1)[::2]])
        means.append(float(flat.mean()) * 5 * place**4)
        errors.append(float(flat.std() / math.sqrt(len(flat) / 4)) * 5 * place**4)
    weights = np.array([1, *([4, 2] * 15), 4, 1]) / 3 / 32
    value, error = float(weights @ np.array(means)), float(np.sqrt((weights**2 * np.array(errors) ** 2).sum()))
    assert error < 0.1
    assert abs(found.value - value) < 4 * math.hypot(error, found.error) + 0.05  # and the rule's own error
