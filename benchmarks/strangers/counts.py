"""Counts, categories, survival, and data that are measured badly or not at all."""

from typing import Any

import numpy as np

from benchmarks.strangers.catalogue import normal_draws, rng, sigmoid, stranger

POPULATION = rng(60).lognormal(8, 1.5, 40)
TOOLS = rng(61).poisson(np.exp(1.5 + 0.25 * np.log(POPULATION))) * 1.0


@stranger("Poisson", "count", np.log(POPULATION), TOOLS)
def poisson(z: Any, x: Any, y: Any) -> None:
    a, b = z.sample("a", z.dist.Normal(0.0, 10.0)), z.sample("b", z.dist.Normal(0.0, 1.0))
    with z.plate("islands", len(y)):
        z.sample("y", z.dist.Poisson(z.exp(a + b * x)), obs=y)


EXPOSURE = rng(62).uniform(1, 300, 60)
ACCIDENTS = rng(63).poisson(0.05 * EXPOSURE * rng(64).gamma(3, 1 / 3, 60)) * 1.0
AGE = rng(65).uniform(18, 80, 60)


@stranger("Poisson with an offset, raw ages", "count", AGE, np.log(EXPOSURE), ACCIDENTS)
def offset(z: Any, age: Any, log_exposure: Any, y: Any) -> None:
    a, b = z.sample("a", z.dist.Normal(0.0, 5.0)), z.sample("b", z.dist.Normal(0.0, 1.0))
    with z.plate("drivers", len(y)):
        z.sample("y", z.dist.Poisson(z.exp(a + b * age + log_exposure)), obs=y)


@stranger("negative binomial", "count", np.log(EXPOSURE), ACCIDENTS)
def negative_binomial(z: Any, log_exposure: Any, y: Any) -> None:
    a, phi = z.sample("a", z.dist.Normal(0.0, 5.0)), z.sample("phi", z.dist.Exponential(0.1))
    with z.plate("drivers", len(y)):
        z.sample("y", z.dist.GammaPoisson(phi, phi / z.exp(a + log_exposure)), obs=y)


MONKS = rng(66).poisson(1.0, 200) * (rng(67).rand(200) > 0.3) * 1.0


@stranger("zero-inflated, scalars", "count", MONKS)
def inflated(z: Any, y: Any) -> None:
    gate, rate = z.sample("gate", z.dist.Beta(2.0, 6.0)), z.sample("rate", z.dist.LogNormal(0.0, 1.0))
    with z.plate("days", len(y)):
        z.sample("y", z.dist.ZeroInflatedPoisson(gate=gate, rate=rate), obs=y)


@stranger("zero-inflated, by hand", "count", MONKS)
def inflated_by_hand(z: Any, y: Any) -> None:
    gate, rate = z.sample("gate", z.dist.Beta(2.0, 6.0)), z.sample("rate", z.dist.LogNormal(0.0, 1.0))
    each = z.dist.Poisson(rate).log_prob(y) + z.log(1 - gate)
    zero = z.log(gate + (1 - gate) * z.exp(-rate))
    z.factor("likelihood", z.where(y == 0, zero, each).sum())


APPLICANTS = rng(68).randint(20, 400, 12) * 1.0
ADMITTED = rng(69).binomial(APPLICANTS.astype(int), rng(70).beta(2, 3, 12)) * 1.0
GENDER = np.arange(12) % 2


@stranger("beta-binomial", "count", GENDER, APPLICANTS, ADMITTED)
def beta_binomial(z: Any, gender: Any, n: Any, y: Any) -> None:
    a = z.sample("a", z.dist.Normal(0.0, 1.5).expand([2]).to_event(1))
    phi = z.sample("phi", z.dist.Exponential(0.3))
    p = z.sigmoid(a)[gender]
    with z.plate("departments", len(y)):
        z.sample("y", z.dist.BetaBinomial(p * (phi + 2), (1 - p) * (phi + 2), n), obs=y)


STORY = rng(71).randn(250)
RATING = np.digitize(0.8 * STORY + rng(72).logistic(size=250), [-2.0, -0.5, 0.7, 2.0])


@stranger("ordinal, intercepts", "ordinal", RATING)
def ordinal_intercepts(z: Any, y: Any) -> None:
    ordered = z.dist.transforms.OrderedTransform()
    cuts = z.sample("cuts", z.dist.TransformedDistribution(z.dist.Normal(z.zeros(4), 1.5).to_event(1), ordered))
    with z.plate("answers", len(y)):
        z.sample("y", z.dist.OrderedLogistic(z.zeros(len(y)), cuts), obs=y)


@stranger("ordinal", "ordinal", STORY, RATING)
def ordinal(z: Any, x: Any, y: Any) -> None:
    b = z.sample("b", z.dist.Normal(0.0, 1.0))
    ordered = z.dist.transforms.OrderedTransform()
    cuts = z.sample("cuts", z.dist.TransformedDistribution(z.dist.Normal(z.zeros(4), 1.5).to_event(1), ordered))
    with z.plate("answers", len(y)):
        z.sample("y", z.dist.OrderedLogistic(b * x, cuts), obs=y)


@stranger("Dirichlet", "simplex", np.bincount(RATING, minlength=5) * 1.0)
def dirichlet(z: Any, counts: Any) -> None:
    p = z.sample("p", z.dist.Dirichlet(z.ones(5)))
    z.sample("y", z.dist.Multinomial(250, p), obs=counts)


TREATED = (rng(73).rand(150) < 0.5) * 1.0
LIFE = np.exp(2.5 + 0.6 * TREATED) * rng(74).weibull(1.4, 150)
END = 20.0
DIED, SEEN = (LIFE < END) * 1.0, np.minimum(LIFE, END)


@stranger("exponential survival", "survival", TREATED, LIFE)
def exponential(z: Any, x: Any, t: Any) -> None:
    a, b = z.sample("a", z.dist.Normal(0.0, 5.0)), z.sample("b", z.dist.Normal(0.0, 2.0))
    with z.plate("patients", len(t)):
        z.sample("t", z.dist.Exponential(z.exp(-(a + b * x))), obs=t)


@stranger("censored Weibull, factor", "survival", TREATED, SEEN, DIED)
def weibull_factor(z: Any, x: Any, t: Any, died: Any) -> None:
    a, b = z.sample("a", z.dist.Normal(0.0, 5.0)), z.sample("b", z.dist.Normal(0.0, 2.0))
    k = z.sample("k", z.dist.Gamma(2.0, 1.0))
    log_ratio = z.log(t) - (a + b * x)
    z.factor("likelihood", (died * (z.log(k) + k * log_ratio - z.log(t)) - z.exp(k * log_ratio)).sum())


@stranger("censored exponential, mask", "survival", TREATED, SEEN, DIED > 0)
def exponential_mask(z: Any, x: Any, t: Any, died: Any) -> None:
    a, b = z.sample("a", z.dist.Normal(0.0, 5.0)), z.sample("b", z.dist.Normal(0.0, 2.0))
    rate = z.exp(-(a + b * x))
    with z.plate("patients", len(t)):
        with z.mask(died):
            z.sample("t", z.dist.Exponential(rate), obs=t)
        with z.mask(~died):
            z.factor("censored", -rate * t)


@stranger("log-normal survival", "survival", TREATED, LIFE)
def lognormal(z: Any, x: Any, t: Any) -> None:
    a, b = z.sample("a", z.dist.Normal(0.0, 5.0)), z.sample("b", z.dist.Normal(0.0, 2.0))
    sigma = z.sample("sigma", z.dist.HalfCauchy(1.0))
    with z.plate("patients", len(t)):
        z.sample("t", z.dist.LogNormal(a + b * x, sigma), obs=t)


TRUE_X = rng(75).normal(26, 2, 30)
DIVORCE, DIVORCE_ERROR = normal_draws(76, 35 - TRUE_X, scale=1.2), rng(77).uniform(0.3, 2.0, 30)


@stranger("measurement error", "latent data", normal_draws(78, TRUE_X, scale=0.7), DIVORCE, DIVORCE_ERROR)
def measured(z: Any, x_seen: Any, y: Any, error: Any) -> None:
    a, b = z.sample("a", z.dist.Normal(0.0, 30.0)), z.sample("b", z.dist.Normal(0.0, 5.0))
    sigma = z.sample("sigma", z.dist.HalfNormal(3.0))
    with z.plate("states", len(y)):
        x = z.sample("x", z.dist.Normal(26.0, 2.0))
        z.sample("x_seen", z.dist.Normal(x, 0.7), obs=x_seen)
        z.sample("y", z.dist.Normal(a + b * (x - 26.0), z.sqrt(sigma**2 + error**2)), obs=y)


MISSING = np.arange(0, 40, 5)
KNOWN = np.setdiff1d(np.arange(40), MISSING)
BRAIN = rng(79).normal(0, 1, 40)
MILK = normal_draws(80, 0.7 * BRAIN, scale=0.6)


@stranger("missing data", "latent data", BRAIN[KNOWN], MILK[KNOWN], MILK[MISSING])
def missing(z: Any, x: Any, y: Any, y_missing: Any) -> None:
    a, b = z.sample("a", z.dist.Normal(0.0, 0.5)), z.sample("b", z.dist.Normal(0.0, 0.5))
    sigma, mean = z.sample("sigma", z.dist.Exponential(1.0)), z.sample("mean", z.dist.Normal(0.0, 0.5))
    spread = z.sample("spread", z.dist.Exponential(1.0))
    with z.plate("absent", len(y_missing)):
        imputed = z.sample("imputed", z.dist.Normal(mean, spread))
        z.sample("y_missing", z.dist.Normal(a + b * imputed, sigma), obs=y_missing)
    with z.plate("present", len(y)):
        z.sample("x", z.dist.Normal(mean, spread), obs=x)
        z.sample("y", z.dist.Normal(a + b * x, sigma), obs=y)


DOSE = np.repeat([0.1, 0.3, 1.0, 3.0, 10.0, 30.0], 6)


@stranger("dose response", "nonlinear", DOSE, normal_draws(81, 10 + 80 * DOSE / (2.0 + DOSE), scale=6.0))
def dose_response(z: Any, dose: Any, y: Any) -> None:
    bottom, top = z.sample("bottom", z.dist.Normal(0.0, 20.0)), z.sample("top", z.dist.Normal(100.0, 30.0))
    ec50, sigma = z.sample("ec50", z.dist.LogNormal(0.0, 1.0)), z.sample("sigma", z.dist.HalfNormal(10.0))
    with z.plate("wells", len(y)):
        z.sample("y", z.dist.Normal(bottom + (top - bottom) * dose / (ec50 + dose), sigma), obs=y)


SEA_AGE = np.sort(rng(82).uniform(1, 30, 27))


@stranger("dugongs", "nonlinear", SEA_AGE, normal_draws(83, 2.65 - 0.97 * 0.87**SEA_AGE, scale=0.1))
def dugongs(z: Any, x: Any, y: Any) -> None:
    alpha, beta = z.sample("alpha", z.dist.Normal(0.0, 30.0)), z.sample("beta", z.dist.Normal(0.0, 30.0))
    shape, tau = z.sample("shape", z.dist.Uniform(0.5, 1.0)), z.sample("tau", z.dist.Gamma(0.01, 0.01))
    with z.plate("animals", len(y)):
        z.sample("y", z.dist.Normal(alpha - beta * shape**x, 1 / z.sqrt(tau)), obs=y)


LETHAL = np.array([1.6907, 1.7242, 1.7552, 1.7842, 1.8113, 1.8369, 1.861, 1.8839])
BEETLES = np.array([59.0, 60, 62, 56, 63, 59, 62, 60])
KILLED = np.array([6.0, 13, 18, 28, 52, 53, 61, 60])
"""Beetles exposed to carbon disulphide (Bliss, 1935)."""


@stranger("beetles", "binomial", LETHAL, BEETLES, KILLED)
def beetles(z: Any, dose: Any, n: Any, y: Any) -> None:
    a, b = z.sample("a", z.dist.Normal(0.0, 100.0)), z.sample("b", z.dist.Normal(0.0, 100.0))
    with z.plate("groups", len(y)):
        z.sample("y", z.dist.Binomial(n, logits=a + b * dose), obs=y)


LEVER = rng(84).randint(0, 4, 200)


@stranger("levers", "logistic", LEVER, (rng(85).rand(200) < sigmoid(np.array([0.2, 0.6, -0.1, 0.5]))[LEVER]) * 1.0)
def levers(z: Any, treatment: Any, y: Any) -> None:
    b = z.sample("b", z.dist.Normal(0.0, 0.5).expand([4]).to_event(1))
    with z.plate("pulls", len(y)):
        z.sample("y", z.dist.Bernoulli(logits=b[treatment]), obs=y)
