"""Time series, state spaces, differential equations, Gaussian processes, mixtures and small networks."""

from typing import Any

import numpy as np

from benchmarks.strangers.catalogue import normal_draws, rng, stranger


def autoregressive(coefficients: list[float], seed: int, steps: int = 100) -> np.ndarray:
    """Return a series about 10."""
    noise, y = rng(seed).randn(steps), np.zeros(steps)
    for t in range(steps):
        y[t] = sum(c * y[t - 1 - lag] for lag, c in enumerate(coefficients) if t > lag) + noise[t]
    return y + 10


@stranger("AR(1)", "series", autoregressive([0.8], 90))
def ar1(z: Any, y: Any) -> None:
    a, b = z.sample("a", z.dist.Normal(0.0, 10.0)), z.sample("b", z.dist.Normal(0.0, 1.0))
    sigma = z.sample("sigma", z.dist.HalfCauchy(2.0))
    with z.plate("time", len(y) - 1):
        z.sample("y", z.dist.Normal(a + b * y[:-1], sigma), obs=y[1:])


@stranger("AR(2), stationary by bounds", "series", autoregressive([0.5, 0.3], 91))
def ar2(z: Any, y: Any) -> None:
    mu = z.sample("mu", z.dist.Normal(0.0, 20.0))
    b1, b2 = z.sample("b1", z.dist.Uniform(-1.0, 1.0)), z.sample("b2", z.dist.Uniform(-1.0, 1.0))
    sigma = z.sample("sigma", z.dist.HalfNormal(5.0))
    with z.plate("time", len(y) - 2):
        z.sample("y", z.dist.Normal(mu + b1 * (y[1:-1] - mu) + b2 * (y[:-2] - mu), sigma), obs=y[2:])


LEVEL = 50 + np.cumsum(rng(92).randn(40)) * 2


@stranger("local level, non-centred", "series", normal_draws(93, LEVEL, scale=3.0))
def local_level(z: Any, y: Any) -> None:
    start = z.sample("start", z.dist.Normal(50.0, 20.0))
    drift, sigma = z.sample("drift", z.dist.HalfNormal(5.0)), z.sample("sigma", z.dist.HalfNormal(5.0))
    with z.plate("steps", len(y)):
        eps = z.sample("eps", z.dist.Normal(0.0, 1.0))
    with z.plate("time", len(y)):
        z.sample("y", z.dist.Normal(start + drift * z.cumsum(eps, 0), sigma), obs=y)


VOLATILITY = np.zeros(60)
for _t in range(1, 60):
    VOLATILITY[_t] = 0.95 * VOLATILITY[_t - 1] + 0.3 * rng(940 + _t).randn()


@stranger("stochastic volatility", "series", np.exp(VOLATILITY / 2) * rng(95).randn(60))
def volatility(z: Any, y: Any) -> None:
    scale, nu = z.sample("scale", z.dist.Exponential(5.0)), z.sample("nu", z.dist.Exponential(0.1))
    with z.plate("steps", len(y)):
        eps = z.sample("eps", z.dist.Normal(0.0, 1.0))
    with z.plate("time", len(y)):
        z.sample("y", z.dist.StudentT(nu + 2.0, 0.0, z.exp(scale * z.cumsum(eps, 0) / 2)), obs=y)


def returns(steps: int = 60) -> np.ndarray:
    """Return a GARCH(1, 1) series."""
    noise, variance, y = rng(96).randn(steps), 1.0, np.zeros(steps)
    for t in range(steps):
        y[t] = 0.5 + variance**0.5 * noise[t]
        variance = 0.3 + 0.3 * (y[t] - 0.5) ** 2 + 0.5 * variance
    return y


@stranger("GARCH", "series", returns())
def garch(z: Any, y: Any) -> None:
    mu, omega = z.sample("mu", z.dist.Normal(0.0, 5.0)), z.sample("omega", z.dist.HalfNormal(5.0))
    alpha, share = z.sample("alpha", z.dist.Uniform(0.0, 1.0)), z.sample("share", z.dist.Uniform(0.0, 1.0))
    variances = [mu * 0 + 1.0]
    for t in range(len(y) - 1):
        variances.append(omega + alpha * (y[t] - mu) ** 2 + (1 - alpha) * share * variances[-1])
    with z.plate("time", len(y)):
        z.sample("y", z.dist.Normal(mu, z.sqrt(z.stack(variances))), obs=y)


def runge_kutta(slope: Any, state: Any, step: float, steps: int) -> list[Any]:
    """Return the states at the start and after each step."""
    states = [state]
    for _ in range(steps):
        k1 = slope(state)
        k2 = slope([s + step / 2 * k for s, k in zip(state, k1, strict=True)])
        k3 = slope([s + step / 2 * k for s, k in zip(state, k2, strict=True)])
        k4 = slope([s + step * k for s, k in zip(state, k3, strict=True)])
        state = [s + step / 6 * (a + 2 * b + 2 * c + d) for s, a, b, c, d in zip(state, k1, k2, k3, k4, strict=True)]
        states.append(state)
    return states


LOGISTIC = 100 / (1 + 19 * np.exp(-0.6 * np.arange(15)))


@stranger("logistic growth", "equation", LOGISTIC * np.exp(0.1 * rng(97).randn(15)))
def growth(z: Any, y: Any) -> None:
    rate, capacity = z.sample("rate", z.dist.LogNormal(-1.0, 1.0)), z.sample("capacity", z.dist.Normal(120.0, 40.0))
    start, sigma = z.sample("start", z.dist.HalfNormal(10.0)), z.sample("sigma", z.dist.HalfNormal(0.5))
    states = runge_kutta(lambda s: [rate * s[0] * (1 - s[0] / capacity)], [start], 1.0, len(y) - 1)
    with z.plate("time", len(y)):
        z.sample("y", z.dist.Normal(z.stack([s[0] for s in states]), 100 * sigma), obs=y)


def lotka_volterra(rates: Any) -> Any:
    """Return the slopes of prey and predators."""
    return lambda s: [rates[0] * s[0] - rates[1] * s[0] * s[1], rates[2] * s[0] * s[1] - rates[3] * s[1]]


HARES = np.array(runge_kutta(lotka_volterra([0.55, 0.028, 0.024, 0.8]), [33.0, 6.0], 0.25, 76))[::4]


@stranger("Lotka-Volterra", "equation", HARES * np.exp(0.2 * rng(98).randn(*HARES.shape)))
def hares(z: Any, y: Any) -> None:
    rates = [
        z.sample("birth", z.dist.LogNormal(-0.6, 0.3)),
        z.sample("eaten", z.dist.LogNormal(-3.5, 0.3)),
        z.sample("fed", z.dist.LogNormal(-3.7, 0.3)),
        z.sample("death", z.dist.LogNormal(-0.2, 0.3)),
    ]
    prey, predators = z.sample("prey", z.dist.LogNormal(3.5, 0.5)), z.sample("predators", z.dist.LogNormal(1.8, 0.5))
    sigma = z.sample("sigma", z.dist.HalfNormal(0.5))
    states = runge_kutta(lotka_volterra(rates), [prey, predators], 0.5, 2 * (len(y) - 1))[::2]
    mean = z.stack([z.stack(state) for state in states])
    z.sample("y", z.dist.LogNormal(z.log(mean), sigma).to_event(2), obs=y)


PLACES = np.linspace(-2, 2, 20)


def kernel(z: Any, x: Any, amplitude: Any, length: Any, noise: Any) -> Any:
    """Return a squared exponential covariance with noise on the diagonal."""
    return amplitude**2 * z.exp(-0.5 * ((x[:, None] - x) / length) ** 2) + noise * z.eye(len(x))


@stranger("Gaussian process, marginal", "Gaussian process", PLACES, normal_draws(99, np.sin(2 * PLACES), scale=0.3))
def process(z: Any, x: Any, y: Any) -> None:
    amplitude, length = (
        z.sample("amplitude", z.dist.LogNormal(0.0, 1.0)),
        z.sample("length", z.dist.InverseGamma(5.0, 5.0)),
    )
    sigma = z.sample("sigma", z.dist.HalfNormal(1.0))
    covariance = kernel(z, x, amplitude, length, sigma**2 + 1e-4)
    z.sample("y", z.dist.MultivariateNormal(z.zeros(len(y)), covariance), obs=y)


@stranger(
    "Gaussian process, Poisson", "Gaussian process", PLACES, rng(100).poisson(np.exp(1 + np.sin(2 * PLACES))) * 1.0
)
def poisson_process(z: Any, x: Any, y: Any) -> None:
    amplitude, length = z.sample("amplitude", z.dist.HalfNormal(2.0)), z.sample("length", z.dist.Gamma(4.0, 4.0))
    factor = z.cholesky(kernel(z, x, amplitude, length, 1e-3))
    with z.plate("places", len(y)):
        raw = z.sample("raw", z.dist.Normal(0.0, 1.0))
    with z.plate("counts", len(y)):
        z.sample("y", z.dist.Poisson(z.exp(factor @ raw)), obs=y)


GEYSER = np.where(rng(101).rand(150) < 0.4, 54 + 6 * rng(102).randn(150), 80 + 6 * rng(103).randn(150))


@stranger("mixture by hand", "mixture", GEYSER)
def mixture_by_hand(z: Any, y: Any) -> None:
    low = z.sample("low", z.dist.Normal(70.0, 20.0))
    gap, share = z.sample("gap", z.dist.HalfNormal(30.0)), z.sample("share", z.dist.Beta(2.0, 2.0))
    sigma = z.sample("sigma", z.dist.HalfNormal(10.0))
    first = z.log(share) + z.dist.Normal(low, sigma).log_prob(y)
    second = z.log(1 - share) + z.dist.Normal(low + gap, sigma).log_prob(y)
    z.factor("likelihood", z.logsumexp(z.stack([first, second]), 0).sum())


@stranger("mixture, same family", "mixture", GEYSER)
def mixture(z: Any, y: Any) -> None:
    weights = z.sample("weights", z.dist.Dirichlet(z.ones(2)))
    ordered = z.dist.transforms.OrderedTransform()
    means = z.sample("means", z.dist.TransformedDistribution(z.dist.Normal(z.zeros(2), 50.0).to_event(1), ordered))
    sigma = z.sample("sigma", z.dist.LogNormal(1.0, 1.0).expand([2]).to_event(1))
    with z.plate("eruptions", len(y)):
        z.sample("y", z.dist.MixtureSameFamily(z.dist.Categorical(weights), z.dist.Normal(means, sigma)), obs=y)


LINE_X = rng(104).uniform(0, 200, 20)
LINE_Y = normal_draws(105, 30 + 2.2 * LINE_X, 150 * (rng(106).rand(20) < 0.2), scale=20.0)


@stranger("line with outliers", "mixture", LINE_X, LINE_Y)
def outliers(z: Any, x: Any, y: Any) -> None:
    a, b = z.sample("a", z.dist.Normal(0.0, 200.0)), z.sample("b", z.dist.Normal(0.0, 10.0))
    share, spread = z.sample("share", z.dist.Uniform(0.0, 0.5)), z.sample("spread", z.dist.HalfNormal(300.0))
    good = z.log(1 - share) + z.dist.Normal(a + b * x, 20.0).log_prob(y)
    bad = z.log(share) + z.dist.Normal(a + b * x, z.sqrt(400.0 + spread**2)).log_prob(y)
    z.factor("likelihood", z.logsumexp(z.stack([good, bad]), 0).sum())


CURVE_X = np.linspace(-2, 2, 40)


@stranger("random features, one hidden layer", "network", CURVE_X, normal_draws(107, np.sin(2 * CURVE_X), scale=0.2))
def hidden_layer(z: Any, x: Any, y: Any) -> None:
    knots = z.stack([z.tanh(2 * x - c) for c in (-3.0, -1.5, 0.0, 1.5, 3.0)], 1)
    w, b = z.sample("w", z.dist.Normal(0.0, 1.0).expand([5]).to_event(1)), z.sample("b", z.dist.Normal(0.0, 1.0))
    sigma = z.sample("sigma", z.dist.HalfNormal(1.0))
    with z.plate("data", len(y)):
        z.sample("y", z.dist.Normal(b + knots @ w, sigma), obs=y)


CONTROL = rng(108).poisson(12, 60) * 1.0
SWITCHED = np.arange(60) >= 25


@stranger("change of rate at a known time", "count", CONTROL + 6 * SWITCHED, SWITCHED * 1.0)
def change(z: Any, y: Any, after: Any) -> None:
    early, late = z.sample("early", z.dist.Exponential(0.05)), z.sample("late", z.dist.Exponential(0.05))
    with z.plate("time", len(y)):
        z.sample("y", z.dist.Poisson(z.where(after > 0, late, early)), obs=y)
