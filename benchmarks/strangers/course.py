"""Models of a first course, in raw units: one mean, lines, curves, several predictors, groups by index."""

from typing import Any

import numpy as np

from benchmarks.strangers.catalogue import normal_draws, rng, sigmoid, stranger

HEIGHTS = 154 + 8 * rng(0).randn(350)
"""Heights in centimetres."""
WEIGHTS = rng(1).normal(45, 6.5, 350)
"""Weights in kilogrammes."""
TALL = normal_draws(2, 114 + 0.9 * WEIGHTS, scale=5.0)
CHILDREN = rng(3).uniform(5, 60, 400)
GROWTH = normal_draws(4, 60 + 2.8 * CHILDREN - 0.02 * CHILDREN**2, scale=6.0)


@stranger("heights, plate without a size", "course", HEIGHTS)
def heights_bare(z: Any, y: Any) -> None:
    mu, sigma = z.sample("mu", z.dist.Normal(178.0, 20.0)), z.sample("sigma", z.dist.Uniform(0.0, 50.0))
    with z.plate_without_size("plate", len(y)):
        z.sample("y", z.dist.Normal(mu, sigma), obs=y)


@stranger("heights, no plate", "course", HEIGHTS)
def heights_no_plate(z: Any, y: Any) -> None:
    mu, sigma = z.sample("mu", z.dist.Normal(178.0, 20.0)), z.sample("sigma", z.dist.Exponential(1.0))
    z.sample("y", z.dist.Normal(mu, sigma), obs=y)


@stranger("heights, narrow prior of the mean", "course", HEIGHTS)
def heights_narrow(z: Any, y: Any) -> None:
    mu, sigma = z.sample("mu", z.dist.Normal(178.0, 0.1)), z.sample("sigma", z.dist.Uniform(0.0, 50.0))
    with z.plate("plate", len(y)):
        z.sample("y", z.dist.Normal(mu, sigma), obs=y)


@stranger("height by weight, centred", "course", WEIGHTS - WEIGHTS.mean(), TALL)
def height_centred(z: Any, x: Any, y: Any) -> None:
    a, b = z.sample("a", z.dist.Normal(178.0, 20.0)), z.sample("b", z.dist.LogNormal(0.0, 1.0))
    sigma = z.sample("sigma", z.dist.Uniform(0.0, 50.0))
    with z.plate("plate", len(y)):
        z.sample("y", z.dist.Normal(a + b * x, sigma), obs=y)


@stranger("height by weight, raw", "course", WEIGHTS, TALL)
def height_raw(z: Any, x: Any, y: Any) -> None:
    a, b = z.sample("a", z.dist.Normal(178.0, 100.0)), z.sample("b", z.dist.Normal(0.0, 10.0))
    sigma = z.sample("sigma", z.dist.Uniform(0.0, 50.0))
    with z.plate("plate", len(y)):
        z.sample("y", z.dist.Normal(a + b * x, sigma), obs=y)


def quadratic(z: Any, x: Any, y: Any) -> None:
    a, b = z.sample("a", z.dist.Normal(178.0, 20.0)), z.sample("b", z.dist.Normal(0.0, 10.0))
    c, sigma = z.sample("c", z.dist.Normal(0.0, 10.0)), z.sample("sigma", z.dist.Uniform(0.0, 50.0))
    with z.plate("plate", len(y)):
        z.sample("y", z.dist.Normal(a + b * x + c * x**2, sigma), obs=y)


stranger("quadratic, standardised", "course", (CHILDREN - CHILDREN.mean()) / CHILDREN.std(), GROWTH)(quadratic)
stranger("quadratic, raw", "course", CHILDREN, GROWTH)(quadratic)

SCHOOLING, AGE, HOURS = rng(5).randint(8, 20, 300) * 1.0, rng(6).uniform(20, 65, 300), rng(7).normal(38, 8, 300)
INCOME = normal_draws(8, -20_000 + 3_000 * SCHOOLING + 250 * AGE + 400 * HOURS, scale=9_000.0)


@stranger("income in dollars", "regression", np.stack([SCHOOLING, AGE, HOURS], 1), INCOME)
def income(z: Any, x: Any, y: Any) -> None:
    a = z.sample("a", z.dist.Normal(0.0, 50_000.0))
    b = z.sample("b", z.dist.Normal(0.0, 10_000.0).expand([3]).to_event(1))
    sigma = z.sample("sigma", z.dist.HalfCauchy(10_000.0))
    with z.plate("plate", len(y)):
        z.sample("y", z.dist.Normal(a + x @ b, sigma), obs=y)


YEARS = np.arange(0, 121, 2.0)
WARMTH = normal_draws(9, 8 + 0.012 * YEARS, scale=0.4)


def trend(z: Any, x: Any, y: Any) -> None:
    a, b = z.sample("a", z.dist.Normal(0.0, 100.0)), z.sample("b", z.dist.Normal(0.0, 10.0))
    sigma = z.sample("sigma", z.dist.HalfNormal(10.0))
    with z.plate("plate", len(y)):
        z.sample("y", z.dist.Normal(a + b * x, sigma), obs=y)


stranger("years since 1900", "regression", YEARS, WARMTH)(trend)
stranger("calendar years", "regression", 1900 + YEARS, WARMTH)(trend)

RUGGED, AFRICA = rng(10).gamma(1.2, 1.0, 170), (rng(11).rand(170) < 0.3) * 1.0
GDP = normal_draws(12, 9.2 - 0.2 * RUGGED - 1.9 * AFRICA + 0.4 * AFRICA * RUGGED, scale=0.9)


@stranger("interaction", "regression", AFRICA, RUGGED, GDP)
def interaction(z: Any, africa: Any, rugged: Any, y: Any) -> None:
    a = z.sample("a", z.dist.Normal(0.0, 10.0))
    b = [z.sample(f"b_{name}", z.dist.Normal(0.0, 1.0)) for name in ("africa", "rugged", "both")]
    sigma = z.sample("sigma", z.dist.Uniform(0.0, 10.0))
    with z.plate("data", len(y)):
        z.sample("y", z.dist.Normal(a + b[0] * africa + b[1] * rugged + b[2] * africa * rugged, sigma), obs=y)


SEX, HOUSE = rng(13).randint(0, 2, 200), rng(14).randint(0, 4, 200)


@stranger("index of sex", "regression", SEX, normal_draws(15, np.array([135.0, 142.0])[SEX], scale=25.0))
def index(z: Any, sex: Any, y: Any) -> None:
    a = z.sample("a", z.dist.Normal(178.0, 20.0).expand([2]).to_event(1))
    sigma = z.sample("sigma", z.dist.Uniform(0.0, 50.0))
    with z.plate("plate", len(y)):
        z.sample("y", z.dist.Normal(a[sex], sigma), obs=y)


@stranger("two indices", "regression", SEX, HOUSE, normal_draws(16, 0.3 * SEX, 0.2 * HOUSE, scale=0.7))
def indices(z: Any, sex: Any, house: Any, y: Any) -> None:
    with z.plate("sexes", 2):
        a = z.sample("a", z.dist.Normal(0.0, 0.5))
    with z.plate("houses", 4):
        h = z.sample("h", z.dist.Normal(0.0, 0.5))
    sigma = z.sample("sigma", z.dist.Exponential(1.0))
    with z.plate("plate", len(y)):
        z.sample("y", z.dist.Normal(a[sex] + h[house], sigma), obs=y)


LEG = rng(17).uniform(0.4, 0.5, 100) * rng(18).normal(10, 2, 100)
LEGS = np.stack([LEG + 0.02 * rng(19).randn(100), LEG + 0.02 * rng(20).randn(100)], 1)


@stranger("two legs", "regression", LEGS, normal_draws(21, LEG / 0.45, scale=0.6))
def legs(z: Any, x: Any, y: Any) -> None:
    a = z.sample("a", z.dist.Normal(10.0, 100.0))
    left, right = z.sample("left", z.dist.Normal(2.0, 10.0)), z.sample("right", z.dist.Normal(2.0, 10.0))
    sigma = z.sample("sigma", z.dist.Exponential(1.0))
    with z.plate("plate", len(y)):
        z.sample("y", z.dist.Normal(a + left * x[:, 0] + right * x[:, 1], sigma), obs=y)


ROBUST_X = rng(22).uniform(0, 10, 60)
ROBUST_Y = 3 + 1.5 * ROBUST_X + rng(23).standard_t(2.5, 60)


@stranger("Student t, two degrees", "robust", ROBUST_X, ROBUST_Y)
def robust(z: Any, x: Any, y: Any) -> None:
    a, b = z.sample("a", z.dist.Normal(0.0, 10.0)), z.sample("b", z.dist.Normal(0.0, 10.0))
    sigma = z.sample("sigma", z.dist.HalfCauchy(5.0))
    with z.plate("plate", len(y)):
        z.sample("y", z.dist.StudentT(2.0, a + b * x, sigma), obs=y)


@stranger("Student t, degrees unknown", "robust", ROBUST_X, ROBUST_Y)
def robust_degrees(z: Any, x: Any, y: Any) -> None:
    a, b = z.sample("a", z.dist.Normal(0.0, 10.0)), z.sample("b", z.dist.Normal(0.0, 10.0))
    sigma, nu = z.sample("sigma", z.dist.HalfNormal(5.0)), z.sample("nu", z.dist.Gamma(2.0, 0.1))
    with z.plate("plate", len(y)):
        z.sample("y", z.dist.StudentT(nu, a + b * x, sigma), obs=y)


STACKS = rng(24).randn(21, 3)


@stranger("stacks", "robust", STACKS, STACKS @ np.array([7.0, 3.0, -1.0]) + 17 + rng(25).laplace(0, 2, 21))
def stacks(z: Any, x: Any, y: Any) -> None:
    a = z.sample("a", z.dist.Normal(0.0, 300.0))
    b = z.sample("b", z.dist.Normal(0.0, 300.0).expand([3]).to_event(1))
    sigma = z.sample("sigma", z.dist.HalfCauchy(5.0))
    with z.plate("plate", len(y)):
        z.sample("y", z.dist.Laplace(a + x @ b, sigma), obs=y)


DAY = np.linspace(0, 1, 80)
BASIS = np.stack([np.exp(-0.5 * ((DAY - centre) / 0.15) ** 2) for centre in np.linspace(0, 1, 7)], 1)


@stranger("spline", "regression", BASIS, normal_draws(26, 104 + 5 * np.sin(7 * DAY), scale=2.0))
def spline(z: Any, basis: Any, y: Any) -> None:
    a, w = z.sample("a", z.dist.Normal(100.0, 10.0)), z.sample("w", z.dist.Normal(0.0, 10.0).expand([7]).to_event(1))
    sigma = z.sample("sigma", z.dist.Exponential(1.0))
    with z.plate("plate", len(y)):
        z.sample("y", z.dist.Normal(a + basis @ w, sigma), obs=y)


@stranger("half-normal and bounded coefficients", "bounded", WEIGHTS, TALL)
def bounded(z: Any, x: Any, y: Any) -> None:
    a, b = z.sample("a", z.dist.Uniform(50.0, 150.0)), z.sample("b", z.dist.HalfNormal(1.0))
    sigma = z.sample("sigma", z.dist.Gamma(2.0, 0.5))
    with z.plate("plate", len(y)):
        z.sample("y", z.dist.Normal(a + b * x, sigma), obs=y)


DISTANCE, ARSENIC = rng(27).gamma(2, 25, 500), 0.5 + rng(28).gamma(1, 1.1, 500)
SWITCH = (rng(29).rand(500) < sigmoid(-0.009 * DISTANCE + 0.46 * ARSENIC)) * 1.0


@stranger("wells, metres", "logistic", DISTANCE, ARSENIC, SWITCH)
def wells(z: Any, metres: Any, arsenic: Any, y: Any) -> None:
    a, b, c = (z.sample(name, z.dist.Normal(0.0, 10.0)) for name in ("a", "metres", "arsenic"))
    with z.plate("plate", len(y)):
        z.sample("y", z.dist.Bernoulli(logits=a + b * metres + c * arsenic), obs=y)


VOTERS, DOLLARS = rng(30).uniform(18, 90, 400), rng(31).lognormal(10.5, 0.6, 400)
VOTE = (rng(32).rand(400) < sigmoid(-2 + 0.03 * VOTERS + 1e-5 * DOLLARS)) * 1.0


def votes_in_units(z: Any, age: Any, dollars: Any, y: Any) -> None:
    b = z.deterministic("age", z.sample("_b", z.dist.Normal(0.0, 5.0 * age.std())) / age.std())
    c = z.deterministic("dollars", z.sample("_c", z.dist.Normal(0.0, 5.0 * dollars.std())) / dollars.std())
    middle = b * age.mean() + c * dollars.mean()
    a = z.deterministic("a", z.sample("_a", z.dist.Normal(middle, 5.0)) - middle)
    with z.plate("plate", len(y)):
        z.sample("y", z.dist.Bernoulli(logits=a + b * age + c * dollars), obs=y)


@stranger("votes by age and dollars", "logistic", VOTERS, DOLLARS, VOTE, for_reference=votes_in_units)
def votes(z: Any, age: Any, dollars: Any, y: Any) -> None:
    a, b, c = (z.sample(name, z.dist.Normal(0.0, 5.0)) for name in ("a", "age", "dollars"))
    with z.plate("plate", len(y)):
        z.sample("y", z.dist.Bernoulli(logits=a + b * age + c * dollars), obs=y)


FEATURES = rng(33).randn(120, 2)
CLASSES = np.argmax(FEATURES @ np.array([[1.0, -1.0, 0.0], [0.0, 1.0, -1.0]]) + rng(34).gumbel(size=(120, 3)), 1)


@stranger("softmax", "logistic", FEATURES, CLASSES)
def softmax(z: Any, x: Any, y: Any) -> None:
    a = z.sample("a", z.dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    b = z.sample("b", z.dist.Normal(0.0, 1.0).expand([2, 3]).to_event(2))
    with z.plate("plate", len(y)):
        z.sample("y", z.dist.Categorical(logits=a + x @ b), obs=y)


SPARSE = rng(35).randn(60, 10)


# A coefficient stays in place as its scale grows and raw shrinks: the density of the scale falls as its third power.
@stranger(
    "horseshoe",
    "shrinkage",
    SPARSE,
    normal_draws(36, 2 * SPARSE[:, 0] - 1.5 * SPARSE[:, 1]),
    without_variance=("scales",),
)
def horseshoe(z: Any, x: Any, y: Any) -> None:
    tau = z.sample("tau", z.dist.HalfCauchy(0.5))
    scales = z.sample("scales", z.dist.HalfCauchy(1.0).expand([10]).to_event(1))
    raw = z.sample("raw", z.dist.Normal(0.0, 1.0).expand([10]).to_event(1))
    sigma = z.sample("sigma", z.dist.HalfNormal(2.0))
    with z.plate("plate", len(y)):
        z.sample("y", z.dist.Normal(x @ (tau * scales * raw), sigma), obs=y)


@stranger("lasso prior", "shrinkage", SPARSE, normal_draws(36, 2 * SPARSE[:, 0] - 1.5 * SPARSE[:, 1]))
def lasso(z: Any, x: Any, y: Any) -> None:
    b = z.sample("b", z.dist.Laplace(0.0, 0.5).expand([10]).to_event(1))
    sigma = z.sample("sigma", z.dist.InverseGamma(2.0, 2.0))
    with z.plate("plate", len(y)):
        z.sample("y", z.dist.Normal(x @ b, sigma), obs=y)
