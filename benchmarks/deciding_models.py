"""Models that decide by their data or solve general systems, as texts that run in Pyro and in NumPyro."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

__all__ = ["DECIDING", "Text"]


class Text(NamedTuple):
    """A model ``(namespace, linear algebra, *data)``, and its data."""

    text: Callable[..., None]
    data: tuple[np.ndarray, ...]


RANDOM = np.random.default_rng(0)
X = RANDOM.normal(1.0, 1.0, 60).astype(np.float32)
Y = (2 * X + RANDOM.normal(0.0, 1.0, 60)).astype(np.float32)
CODES = RANDOM.integers(0, 8, 60)
SEEN = RANDOM.random(60) < 0.7
GAPS = np.where(RANDOM.random(60) < 0.2, np.nan, X).astype(np.float32)
WALK = (np.cumsum(RANDOM.normal(0.1, 0.3, 30)) + RANDOM.normal(0.0, 0.3, 30)).astype(np.float32)
PLACES = np.sort(RANDOM.random(30) * 6).astype(np.float32)
WAVE = (np.sin(PLACES) + RANDOM.normal(0.0, 0.2, 30)).astype(np.float32)


def counted_groups(z: Any, la: Any, codes: Any, y: Any) -> None:
    """Count the groups in the model."""
    mu, tau = z.sample("mu", z.dist.Normal(0.0, 5.0)), z.sample("tau", z.dist.HalfNormal(2.0))
    scale = z.sample("scale", z.dist.HalfNormal(2.0))
    with z.plate("groups", int(codes.max()) + 1):
        effect = z.sample("effect", z.dist.Normal(0.0, 1.0))
    with z.plate("rows", len(codes)):
        z.sample("y", z.dist.Normal(mu + tau * effect[codes], scale), obs=y)


def chosen_rows(z: Any, la: Any, x: Any, y: Any, seen: Any) -> None:
    """Choose the rows with an outcome."""
    a, b = z.sample("a", z.dist.Normal(0.0, 5.0)), z.sample("b", z.dist.Normal(0.0, 5.0))
    scale = z.sample("scale", z.dist.HalfNormal(2.0))
    with z.plate("rows", len(x[seen])):
        z.sample("y", z.dist.Normal(a + b * x[seen], scale), obs=y[seen])


def missing_values(z: Any, la: Any, x: Any, y: Any) -> None:
    """Have missing values of a covariate as latent ones."""
    gaps = x != x
    mean, sd = z.sample("mean", z.dist.Normal(0.0, 2.0)), z.sample("sd", z.dist.HalfNormal(2.0))
    b, scale = z.sample("b", z.dist.Normal(0.0, 5.0)), z.sample("scale", z.dist.HalfNormal(2.0))
    with z.plate("gaps", int(gaps.sum())):
        fill = z.sample("fill", z.dist.Normal(mean, sd))
    with z.plate("whole", len(x) - len(fill)):
        z.sample("x", z.dist.Normal(mean, sd), obs=x[~gaps])
    places = (gaps.cumsum(0) - 1) * gaps
    with z.plate("rows", len(x)):
        z.sample("y", z.dist.Normal(b * z.where(gaps, fill[places], x), scale), obs=y)


def kalman_filter(z: Any, la: Any, y: Any) -> None:
    """Filter a local linear trend by general solutions."""
    q, s = z.sample("q", z.dist.HalfNormal(1.0)), z.sample("s", z.dist.HalfNormal(1.0))
    eye = z.eye(2)
    forward = eye + z.stack([z.zeros(2), eye[0]]).T
    mean, covariance, total = z.zeros(2), 5.0 * eye, 0.0
    seen = eye[:1]
    for t in range(len(y)):
        mean, covariance = forward @ mean, forward @ covariance @ forward.T + q**2 * eye
        spread = seen @ covariance @ seen.T + s**2 * z.eye(1)
        gap = y[t] - seen @ mean
        total = total - 0.5 * la.slogdet(spread)[1] - 0.5 * (gap @ la.solve(spread, gap))
        gain = covariance @ seen.T @ la.inv(spread)
        mean, covariance = mean + gain @ gap, covariance - gain @ seen @ covariance
    z.factor("likelihood", total)


def gaussian_process(z: Any, la: Any, x: Any, y: Any) -> None:
    """Write the density of a Gaussian process with an inverse and a determinant."""
    size, length = z.sample("size", z.dist.HalfNormal(1.0)), z.sample("length", z.dist.LogNormal(0.0, 0.5))
    noise = z.sample("noise", z.dist.HalfNormal(0.5))
    apart = (x[:, None] - x) ** 2
    covariance = size**2 * z.exp(-0.5 * apart / length**2) + (noise**2 + 1e-4) * z.eye(len(x))
    z.factor("likelihood", -0.5 * (y @ la.inv(covariance) @ y) - 0.5 * la.slogdet(covariance)[1])


DECIDING = {
    "counted groups": Text(counted_groups, (CODES, Y)),
    "chosen rows": Text(chosen_rows, (X, Y, SEEN)),
    "missing values": Text(missing_values, (GAPS, Y)),
    "Kalman filter": Text(kalman_filter, (WALK,)),
    "inverse and determinant": Text(gaussian_process, (PLACES, WAVE)),
}
