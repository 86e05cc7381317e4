"""Hierarchies, centred and not: schools, counties, cafes, players, and their like."""

from typing import Any

import numpy as np

from benchmarks.strangers.catalogue import normal_draws, rng, sigmoid, stranger

EFFECTS = np.array([28.0, 8, -3, 7, -1, 1, 18, 12])
"""Effects of coaching in eight schools (Rubin, 1981)."""
ERRORS = np.array([15.0, 10, 16, 11, 9, 11, 10, 18])
"""Their standard errors."""


def schools_apart(z: Any, sigma: Any, y: Any) -> None:
    mu, tau = z.sample("mu", z.dist.Normal(0.0, 5.0)), z.sample("tau", z.dist.HalfCauchy(5.0))
    with z.plate("schools", len(y)):
        theta = z.deterministic("theta", mu + tau * z.sample("_eta", z.dist.Normal(0.0, 1.0)))
        z.sample("y", z.dist.Normal(theta, sigma), obs=y)


@stranger("eight schools, centred", "hierarchy", ERRORS, EFFECTS, for_reference=schools_apart)
def schools(z: Any, sigma: Any, y: Any) -> None:
    mu, tau = z.sample("mu", z.dist.Normal(0.0, 5.0)), z.sample("tau", z.dist.HalfCauchy(5.0))
    with z.plate("schools", len(y)):
        theta = z.sample("theta", z.dist.Normal(mu, tau))
        z.sample("y", z.dist.Normal(theta, sigma), obs=y)


@stranger("eight schools, non-centred", "hierarchy", ERRORS, EFFECTS)
def schools_raw(z: Any, sigma: Any, y: Any) -> None:
    eta = z.sample("eta", z.dist.Normal(z.zeros(8), z.ones(8)))
    mu, tau = z.sample("mu", z.dist.Normal(0.0, 10.0)), z.sample("tau", z.dist.HalfCauchy(25.0))
    z.sample("y", z.dist.Normal(mu + tau * eta, sigma), obs=y)


COUNTY = rng(40).randint(0, 20, 300)
FLOOR = (rng(41).rand(300) < 0.2) * 1.0
RADON = normal_draws(42, 1.4 + 0.35 * rng(43).randn(20)[COUNTY], -0.7 * FLOOR, scale=0.75)


@stranger("radon, centred", "hierarchy", COUNTY, FLOOR, RADON)
def radon(z: Any, county: Any, floor: Any, y: Any) -> None:
    mu, tau = z.sample("mu", z.dist.Normal(0.0, 10.0)), z.sample("tau", z.dist.HalfCauchy(2.0))
    b, sigma = z.sample("b", z.dist.Normal(0.0, 10.0)), z.sample("sigma", z.dist.HalfCauchy(2.0))
    with z.plate("counties", 20):
        a = z.sample("a", z.dist.Normal(mu, tau))
    with z.plate("houses", len(y)):
        z.sample("y", z.dist.Normal(a[county] + b * floor, sigma), obs=y)


@stranger("radon, non-centred, uniform scales", "hierarchy", COUNTY, FLOOR, RADON)
def radon_raw(z: Any, county: Any, floor: Any, y: Any) -> None:
    mu, tau = z.sample("mu", z.dist.Normal(0.0, 1.0)), z.sample("tau", z.dist.Uniform(0.0, 100.0))
    b, sigma = z.sample("b", z.dist.Normal(0.0, 1.0)), z.sample("sigma", z.dist.Uniform(0.0, 100.0))
    with z.plate("counties", 20):
        eta = z.sample("eta", z.dist.Normal(0.0, 1.0))
    with z.plate("houses", len(y)):
        z.sample("y", z.dist.Normal(mu + tau * eta[county] + b * floor, sigma), obs=y)


CAFE = np.repeat(np.arange(12), 10)
AFTERNOON = np.tile([0.0, 1.0], 60)
SLOPES = rng(44).multivariate_normal([3.5, -1.0], [[1.0, -0.35], [-0.35, 0.25]], 12)
WAIT = normal_draws(45, SLOPES[CAFE, 0] + SLOPES[CAFE, 1] * AFTERNOON, scale=0.5)


@stranger("cafes, LKJ, centred", "LKJ", CAFE, AFTERNOON, WAIT)
def cafes(z: Any, cafe: Any, afternoon: Any, y: Any) -> None:
    mean = z.sample("mean", z.dist.Normal(0.0, 5.0).expand([2]).to_event(1))
    scales = z.sample("scales", z.dist.Exponential(1.0).expand([2]).to_event(1))
    factor = z.sample("factor", z.dist.LKJCholesky(2, 2.0))
    sigma = z.sample("sigma", z.dist.Exponential(1.0))
    with z.plate("cafes", 12):
        b = z.sample("b", z.dist.MultivariateNormal(mean, scale_tril=scales[:, None] * factor))
    with z.plate("visits", len(y)):
        z.sample("y", z.dist.Normal(b[cafe, 0] + b[cafe, 1] * afternoon, sigma), obs=y)


@stranger("cafes, LKJ, non-centred", "LKJ", CAFE, AFTERNOON, WAIT)
def cafes_raw(z: Any, cafe: Any, afternoon: Any, y: Any) -> None:
    mean = z.sample("mean", z.dist.Normal(0.0, 5.0).expand([2]).to_event(1))
    scales = z.sample("scales", z.dist.HalfNormal(2.0).expand([2]).to_event(1))
    factor = z.sample("factor", z.dist.LKJCholesky(2, 2.0))
    sigma = z.sample("sigma", z.dist.Exponential(1.0))
    raw = z.sample("raw", z.dist.Normal(0.0, 1.0).expand([12, 2]).to_event(2))
    b = mean + raw @ (scales[:, None] * factor).T
    z.sample("y", z.dist.Normal(b[cafe, 0] + b[cafe, 1] * afternoon, sigma).to_event(1), obs=y)


RAT = np.repeat(np.arange(15), 5)
DAYS = np.tile([8.0, 15, 22, 29, 36], 15)
GRAMMES = normal_draws(46, (106 + 11 * rng(47).randn(15))[RAT], (6.2 + 0.5 * rng(48).randn(15))[RAT] * DAYS, scale=6.0)


@stranger("rats", "hierarchy", RAT, DAYS, GRAMMES)
def rats(z: Any, rat: Any, days: Any, y: Any) -> None:
    a0, b0 = z.sample("a0", z.dist.Normal(0.0, 100.0)), z.sample("b0", z.dist.Normal(0.0, 100.0))
    sa, sb = z.sample("sa", z.dist.HalfCauchy(25.0)), z.sample("sb", z.dist.HalfCauchy(5.0))
    sigma = z.sample("sigma", z.dist.HalfCauchy(25.0))
    with z.plate("rats", 15):
        a, b = z.sample("a", z.dist.Normal(a0, sa)), z.sample("b", z.dist.Normal(b0, sb))
    with z.plate("weighings", len(y)):
        z.sample("y", z.dist.Normal(a[rat] + b[rat] * (days - 22.0), sigma), obs=y)


AT_BATS = np.full(18, 45.0)
HITS = rng(49).binomial(45, rng(50).beta(60, 160, 18)) * 1.0


# As kappa grows, the likelihood tends to that of one common chance: the tail of kappa's prior, of index 1.5, remains.
@stranger("baseball, beta", "binomial hierarchy", AT_BATS, HITS, without_variance=("kappa",))
def baseball(z: Any, at_bats: Any, hits: Any) -> None:
    phi, kappa = z.sample("phi", z.dist.Uniform(0.0, 1.0)), z.sample("kappa", z.dist.Pareto(1.0, 1.5))
    with z.plate("players", len(hits)):
        p = z.sample("p", z.dist.Beta(phi * kappa, (1 - phi) * kappa))
        z.sample("hits", z.dist.Binomial(at_bats, p), obs=hits)


def baseball_apart(z: Any, at_bats: Any, hits: Any) -> None:
    mu, tau = z.sample("mu", z.dist.Normal(-1.0, 1.0)), z.sample("tau", z.dist.HalfCauchy(1.0))
    with z.plate("players", len(hits)):
        a = z.deterministic("a", mu + tau * z.sample("_eta", z.dist.Normal(0.0, 1.0)))
        z.sample("hits", z.dist.Binomial(at_bats, logits=a), obs=hits)


@stranger("baseball, log odds", "binomial hierarchy", AT_BATS, HITS, for_reference=baseball_apart)
def baseball_logits(z: Any, at_bats: Any, hits: Any) -> None:
    mu, tau = z.sample("mu", z.dist.Normal(-1.0, 1.0)), z.sample("tau", z.dist.HalfCauchy(1.0))
    with z.plate("players", len(hits)):
        a = z.sample("a", z.dist.Normal(mu, tau))
        z.sample("hits", z.dist.Binomial(at_bats, logits=a), obs=hits)


OPERATIONS = np.array([47.0, 148, 119, 810, 211, 196, 148, 215, 207, 97, 256, 360])
DEATHS = np.array([0.0, 18, 8, 46, 8, 13, 9, 31, 14, 8, 29, 24])
"""Cardiac surgery in twelve hospitals (Spiegelhalter et al., 1996)."""


@stranger("surgical", "binomial hierarchy", OPERATIONS, DEATHS)
def surgical(z: Any, n: Any, r: Any) -> None:
    mu, variance = z.sample("mu", z.dist.Normal(0.0, 1000.0)), z.sample("variance", z.dist.InverseGamma(0.001, 0.001))
    with z.plate("hospitals", len(r)):
        b = z.sample("b", z.dist.Normal(mu, z.sqrt(variance)))
        z.sample("r", z.dist.Binomial(n, logits=b), obs=r)


@stranger("surgical, fixed", "binomial", OPERATIONS, DEATHS)
def surgical_fixed(z: Any, n: Any, r: Any) -> None:
    with z.plate("hospitals", len(r)):
        p = z.sample("p", z.dist.Beta(1.0, 1.0))
        z.sample("r", z.dist.Binomial(n, p), obs=r)


TIMES = np.array([94.3, 15.7, 62.9, 126.0, 5.24, 31.4, 1.05, 1.05, 2.1, 10.5])
FAILURES = np.array([5.0, 1, 5, 14, 3, 19, 1, 1, 4, 22])
"""Pumps of a power plant (Gaver and O'Muircheartaigh, 1987)."""


@stranger("pumps", "count hierarchy", TIMES, FAILURES)
def pumps(z: Any, t: Any, y: Any) -> None:
    alpha, beta = z.sample("alpha", z.dist.Exponential(1.0)), z.sample("beta", z.dist.Gamma(0.1, 1.0))
    with z.plate("pumps", len(y)):
        rate = z.sample("rate", z.dist.Gamma(alpha, beta))
        z.sample("y", z.dist.Poisson(rate * t), obs=y)


SEED_X = np.repeat([0.0, 0, 1, 1], 5)
SEED_EXTRACT = np.tile([0.0, 1], 10)
PLATED = rng(51).randint(10, 80, 20) * 1.0
GERMINATED = (
    rng(52).binomial(PLATED.astype(int), sigmoid(-0.5 + 0.1 * SEED_X + 1.3 * SEED_EXTRACT + 0.3 * rng(53).randn(20)))
    * 1.0
)


@stranger("seeds", "binomial hierarchy", SEED_X, SEED_EXTRACT, PLATED, GERMINATED)
def seeds(z: Any, x1: Any, x2: Any, n: Any, r: Any) -> None:
    a = [z.sample(f"a{i}", z.dist.Normal(0.0, 10.0)) for i in range(4)]
    tau = z.sample("tau", z.dist.HalfNormal(1.0))
    with z.plate("dishes", len(r)):
        b = z.sample("b", z.dist.Normal(0.0, tau))
        z.sample("r", z.dist.Binomial(n, logits=a[0] + a[1] * x1 + a[2] * x2 + a[3] * x1 * x2 + b), obs=r)


TADPOLES = np.tile([10.0, 25, 35], 12)
SURVIVED = rng(54).binomial(TADPOLES.astype(int), sigmoid(1.3 + 1.5 * rng(55).randn(36))) * 1.0


@stranger("frogs, no pooling", "binomial", TADPOLES, SURVIVED)
def frogs(z: Any, n: Any, y: Any) -> None:
    with z.plate("tanks", len(y)):
        a = z.sample("a", z.dist.Normal(0.0, 1.5))
        z.sample("y", z.dist.Binomial(n, logits=a), obs=y)


@stranger("frogs, non-centred", "binomial hierarchy", TADPOLES, SURVIVED)
def frogs_raw(z: Any, n: Any, y: Any) -> None:
    mean, scale = z.sample("mean", z.dist.Normal(0.0, 1.5)), z.sample("scale", z.dist.Exponential(1.0))
    with z.plate("tanks", len(y)):
        raw = z.sample("raw", z.dist.Normal(0.0, 1.0))
        z.sample("y", z.dist.Binomial(n, logits=mean + scale * raw), obs=y)


SEASON = np.arange(40.0)
COUPLES = rng(56).poisson(np.exp(4 + 0.01 * SEASON - 0.0008 * (SEASON - 20) ** 2 + 0.1 * rng(57).randn(40))) * 1.0


@stranger("Poisson GLMM", "count hierarchy", (SEASON - 20) / 20, COUPLES)
def glmm(z: Any, t: Any, y: Any) -> None:
    a, b1, b2 = (z.sample(name, z.dist.Normal(0.0, 10.0)) for name in ("a", "b1", "b2"))
    sigma = z.sample("sigma", z.dist.HalfCauchy(1.0))
    with z.plate("years", len(y)):
        eps = z.sample("eps", z.dist.Normal(0.0, 1.0))
        z.sample("y", z.dist.Poisson(z.exp(a + b1 * t + b2 * t**2 + sigma * eps)), obs=y)


PUPIL, ITEM = np.repeat(np.arange(20), 8), np.tile(np.arange(8), 20)
ANSWERS = (rng(58).rand(160) < sigmoid(rng(59).randn(20)[PUPIL] - np.linspace(-1, 1, 8)[ITEM])) * 1.0


@stranger("2PL", "item response", PUPIL, ITEM, ANSWERS)
def two_parameters(z: Any, pupil: Any, item: Any, y: Any) -> None:
    with z.plate("pupils", 20):
        ability = z.sample("ability", z.dist.Normal(0.0, 1.0))
    with z.plate("items", 8):
        slope, difficulty = (
            z.sample("slope", z.dist.LogNormal(0.0, 0.5)),
            z.sample("difficulty", z.dist.Normal(0.0, 2.0)),
        )
    with z.plate("answers", len(y)):
        z.sample("y", z.dist.Bernoulli(logits=slope[item] * (ability[pupil] - difficulty[item])), obs=y)
