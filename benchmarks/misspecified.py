"""How often ``bnnzoo.check`` finds what is wrong with a model, and how often it finds fault with one that is right.

Ten models, twenty ways in which data differ from what one of them says. The levels of the check are probabilities that were set
before any of this was run; its rules were written on data with seeds below 1,000, and the table is of seeds from 10,000 on.

    python -m benchmarks.misspecified [data sets of each] [first seed]
"""

import sys
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from numpy.typing import NDArray
from torch import Tensor

import bnnzoo as bz
from benchmarks.pairs import write
from bnnzoo.checking import ModelCheck

type Array = NDArray[Any]
type Columns = dict[str, Array]


def gaussian(x: Tensor, z: Tensor, y: Tensor | None = None) -> None:
    """Regress on two variables."""
    a = pyro.sample("a", dist.Normal(0.0, 10.0))
    b, c = (pyro.sample(name, dist.Normal(0.0, 5.0)) for name in "bc")
    sigma = pyro.sample("sigma", dist.HalfNormal(5.0))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Normal(a + b * x + c * z, sigma), obs=y)


def confident(x: Tensor, z: Tensor, y: Tensor | None = None) -> None:
    """Regress with priors for standardised outcomes."""
    a, b, c = (pyro.sample(name, dist.Normal(0.0, 0.3)) for name in "abc")
    sigma = pyro.sample("sigma", dist.HalfNormal(2.0))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Normal(a + b * x + c * z, sigma), obs=y)


def student(x: Tensor, y: Tensor | None = None) -> None:
    """Regress with heavy tails."""
    a, b = (pyro.sample(name, dist.Normal(0.0, 5.0)) for name in "ab")
    sigma = pyro.sample("sigma", dist.HalfNormal(5.0))
    nu = pyro.sample("nu", dist.Gamma(2.0, 0.1))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.StudentT(nu, a + b * x, sigma), obs=y)


def logistic(x: Tensor, z: Tensor, y: Tensor | None = None) -> None:
    """Regress the log odds."""
    a, b, c = (pyro.sample(name, dist.Normal(0.0, 2.5)) for name in "abc")
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Bernoulli(logits=a + b * x + c * z), obs=y)


def binomial(x: Tensor, y: Tensor | None = None) -> None:
    """Regress the log odds of successes in twelve trials."""
    a, b = (pyro.sample(name, dist.Normal(0.0, 2.5)) for name in "ab")
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Binomial(12, logits=a + b * x), obs=y)


def poisson(x: Tensor, y: Tensor | None = None) -> None:
    """Regress the log rate."""
    a, b = (pyro.sample(name, dist.Normal(0.0, 2.5)) for name in "ab")
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Poisson((a + b * x).exp()), obs=y)


def negative_binomial(x: Tensor, y: Tensor | None = None) -> None:
    """Regress the log mean of overdispersed counts."""
    a, b = (pyro.sample(name, dist.Normal(0.0, 2.5)) for name in "ab")
    size = pyro.sample("size", dist.Gamma(2.0, 0.2))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.GammaPoisson(size, size / (a + b * x).exp()), obs=y)


def gamma(x: Tensor, y: Tensor | None = None) -> None:
    """Regress the log mean of positive values."""
    a, b = (pyro.sample(name, dist.Normal(0.0, 2.5)) for name in "ab")
    shape = pyro.sample("shape", dist.Gamma(2.0, 0.2))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Gamma(shape, shape / (a + b * x).exp()), obs=y)


def grouped(x: Tensor, g: Tensor, y: Tensor | None = None) -> None:
    """Regress with an intercept for each of twelve groups."""
    a, b = (pyro.sample(name, dist.Normal(0.0, 5.0)) for name in "ab")
    tau, sigma = (pyro.sample(name, dist.HalfNormal(3.0)) for name in ("tau", "sigma"))
    with pyro.plate("groups", 12):
        eta = pyro.sample("eta", dist.Normal(0.0, 1.0))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Normal(a + b * x + tau * eta[g.long()], sigma), obs=y)


def autoregressive(y: Tensor) -> None:
    """Regress each value on the one before."""
    a = pyro.sample("a", dist.Normal(0.0, 2.0))
    phi = pyro.sample("phi", dist.Uniform(-1.0, 1.0))
    sigma = pyro.sample("sigma", dist.HalfNormal(3.0))
    with pyro.plate("rows", len(y) - 1):
        pyro.sample("y", dist.Normal(a + phi * y[:-1], sigma), obs=y[1:])


@dataclass(frozen=True)
class Case:
    """Data for one of the models: ``columns`` are its arguments in order, ``beside`` what it does not use."""

    model: Callable[..., None]
    columns: Columns
    beside: Columns


def _two(rng: np.random.Generator, size: int) -> tuple[Array, Array]:
    x = rng.normal(size=size)
    return x, 0.4 * x + rng.normal(size=size)


def _line(rng: np.random.Generator, size: int = 150) -> tuple[Array, Array, Array]:
    x, z = _two(rng, size)
    return x, z, 1.0 + 0.8 * x - 0.5 * z


def _gaussian(rng: np.random.Generator, noise: Array | None = None, mean: Array | float = 0.0) -> Case:
    x, z, centre = _line(rng)
    return Case(gaussian, {"x": x, "z": z, "y": centre + mean + (rng.normal(size=150) if noise is None else noise)}, {})


def _right() -> dict[str, Callable[[np.random.Generator], Case]]:
    def of_x(model: Callable[..., None], size: int, draw: Callable[[np.random.Generator, Array], Array]) -> Any:
        def make(rng: np.random.Generator) -> Case:
            x = rng.normal(size=size)
            return Case(model, {"x": x, "y": draw(rng, x)}, {})

        return make

    def two(rng: np.random.Generator) -> Case:
        x, z = _two(rng, 300)
        return Case(
            logistic,
            {"x": x, "z": z, "y": (rng.random(300) < 1 / (1 + np.exp(-(0.3 + x - 0.7 * z)))).astype(float)},
            {},
        )

    def small(rng: np.random.Generator) -> Case:
        x, z = _two(rng, 150)
        return Case(confident, {"x": x, "z": z, "y": 0.1 + 0.3 * x - 0.2 * z + 0.9 * rng.normal(size=150)}, {})

    def groups(rng: np.random.Generator) -> Case:
        g, x = np.repeat(np.arange(12), 14), rng.normal(size=168)
        y = 1 + 0.7 * x + 0.8 * rng.normal(size=12)[g] + rng.normal(size=168)
        return Case(grouped, {"x": x, "g": g, "y": y}, {})

    def series(rng: np.random.Generator) -> Case:
        y = np.zeros(200)
        for t in range(1, 200):
            y[t] = 0.3 + 0.6 * y[t - 1] + rng.normal()
        return Case(autoregressive, {"y": y}, {})

    return {
        "gaussian": _gaussian,
        "confident": small,
        "student_t": of_x(student, 150, lambda rng, x: 1 + x + rng.standard_t(4, size=len(x))),
        "logistic": two,
        "binomial": of_x(
            binomial, 120, lambda rng, x: rng.binomial(12, 1 / (1 + np.exp(-(0.2 + 0.8 * x)))).astype(float)
        ),
        "poisson": of_x(poisson, 200, lambda rng, x: rng.poisson(np.exp(0.8 + 0.5 * x)).astype(float)),
        "negative_binomial": of_x(
            negative_binomial,
            200,
            lambda rng, x: rng.poisson(np.exp(1 + 0.5 * x) * rng.gamma(2.0, 0.5, len(x))).astype(float),
        ),
        "gamma": of_x(gamma, 150, lambda rng, x: rng.gamma(3.0, np.exp(0.5 + 0.5 * x) / 3.0)),
        "grouped": groups,
        "autoregressive": series,
    }


RIGHT = _right()


def _replaced(case: Case, y: Array, **beside: Array) -> Case:
    return Case(case.model, {**case.columns, "y": y}, beside)


def _curve(rng: np.random.Generator) -> Case:
    case = _gaussian(rng)
    return _replaced(case, case.columns["y"] + 0.5 * case.columns["x"] ** 2)


def _missing_covariate(rng: np.random.Generator) -> Case:
    case, w = _gaussian(rng), rng.normal(size=150)
    return _replaced(case, case.columns["y"] + 0.6 * w, w=w)


def _ignored_groups(rng: np.random.Generator) -> Case:
    case, g = _gaussian(rng), np.repeat(np.arange(10), 15)
    return _replaced(case, case.columns["y"] + 0.9 * rng.normal(size=10)[g], g=g)


def _interaction(rng: np.random.Generator) -> Case:
    case = _gaussian(rng)
    return _replaced(case, case.columns["y"] + 0.5 * case.columns["x"] * case.columns["z"])


def _heteroscedastic(rng: np.random.Generator) -> Case:
    x, z, centre = _line(rng)
    return Case(gaussian, {"x": x, "z": z, "y": centre + np.exp(0.5 * x) * rng.normal(size=150)}, {})


def _skewed(rng: np.random.Generator) -> Case:
    return _gaussian(rng, rng.exponential(size=150) - 1)


def _heavy(rng: np.random.Generator) -> Case:
    return _gaussian(rng, rng.standard_t(2, size=150))


def _two_kinds(rng: np.random.Generator) -> Case:
    return _gaussian(rng, np.where(rng.random(150) < 0.5, -1.8, 1.8) + 0.5 * rng.normal(size=150))


def _autocorrelated(rng: np.random.Generator) -> Case:
    noise = rng.normal(size=150)
    for t in range(1, 150):
        noise[t] += 0.5 * noise[t - 1]
    return _gaussian(rng, noise)


def _repeated(rng: np.random.Generator) -> Case:
    case = _gaussian(rng)
    rows = np.concatenate([np.arange(120), rng.integers(0, 120, 30)])
    return Case(gaussian, {name: each[rows] for name, each in case.columns.items()}, {})


def _truncated(rng: np.random.Generator) -> Case:
    x, z, centre = _line(rng, 600)
    y = centre + rng.normal(size=600)
    seen = np.flatnonzero(y > 1.0)[:150]
    return Case(gaussian, {"x": x[seen], "z": z[seen], "y": y[seen]}, {})


def _censored(rng: np.random.Generator) -> Case:
    case = _gaussian(rng)
    return _replaced(case, np.minimum(case.columns["y"], 2.0))


def _wrong_units(rng: np.random.Generator) -> Case:
    x, z = _two(rng, 150)
    return Case(confident, {"x": x, "z": z, "y": 4.0 + 3.0 * x - 2.0 * z + rng.normal(size=150)}, {})


def _slips(rng: np.random.Generator) -> Case:
    case = _gaussian(rng)
    y = case.columns["y"].copy()
    y[rng.choice(150, 3, replace=False)] *= 10
    return _replaced(case, y)


def _overdispersed(rng: np.random.Generator) -> Case:
    x = rng.normal(size=200)
    return Case(poisson, {"x": x, "y": rng.poisson(np.exp(0.8 + 0.5 * x) * rng.gamma(2.0, 0.5, 200)).astype(float)}, {})


def _zero_inflated(rng: np.random.Generator) -> Case:
    x = rng.normal(size=200)
    y = np.where(rng.random(200) < 0.25, 0, rng.poisson(np.exp(1.2 + 0.4 * x)))
    return Case(poisson, {"x": x, "y": y.astype(float)}, {})


def _missing_offset(rng: np.random.Generator) -> Case:
    x, days = rng.normal(size=200), rng.uniform(1.0, 4.0, 200)
    return Case(
        negative_binomial,
        {"x": x, "y": rng.poisson(days * np.exp(0.3 + 0.4 * x) * rng.gamma(5.0, 0.2, 200)).astype(float)},
        {"days": days},
    )


def _wrong_link(rng: np.random.Generator) -> Case:
    x = rng.normal(size=150)
    return Case(gamma, {"x": x, "y": rng.gamma(6.0, np.maximum(3.0 + 1.2 * x, 0.15) / 6.0)}, {})


def _extra_binomial(rng: np.random.Generator) -> Case:
    x = rng.normal(size=120)
    p = 1 / (1 + np.exp(-(0.2 + 0.8 * x)))
    return Case(binomial, {"x": x, "y": rng.binomial(12, rng.beta(5 * p, 5 * (1 - p))).astype(float)}, {})


def _bent_odds(rng: np.random.Generator) -> Case:
    x, z = _two(rng, 300)
    odds = -0.6 + 0.4 * x - 0.7 * z + 0.9 * x**2
    return Case(logistic, {"x": x, "z": z, "y": (rng.random(300) < 1 / (1 + np.exp(-odds))).astype(float)}, {})


def _varying_slopes(rng: np.random.Generator) -> Case:
    case = RIGHT["grouped"](rng)
    g, x = case.columns["g"], case.columns["x"]
    return _replaced(case, case.columns["y"] + 0.8 * rng.normal(size=12)[g] * x)


def _pooled_variance(rng: np.random.Generator) -> Case:
    g, x = np.repeat(np.arange(12), 14), rng.normal(size=168)
    scale = np.exp(0.6 * rng.normal(size=12))
    y = 1 + 0.7 * x + 0.8 * rng.normal(size=12)[g] + scale[g] * rng.normal(size=168)
    return Case(grouped, {"x": x, "g": g, "y": y}, {})


def _second_lag(rng: np.random.Generator) -> Case:
    y = np.zeros(200)
    for t in range(2, 200):
        y[t] = 0.3 + 0.2 * y[t - 1] + 0.5 * y[t - 2] + rng.normal()
    return Case(autoregressive, {"y": y}, {})


WRONG: dict[str, Callable[[np.random.Generator], Case]] = {
    "non-linearity": _curve,
    "missing covariate": _missing_covariate,
    "ignored groups": _ignored_groups,
    "missing interaction": _interaction,
    "heteroscedasticity": _heteroscedastic,
    "skewed errors": _skewed,
    "heavy tails": _heavy,
    "two kinds of rows": _two_kinds,
    "autocorrelation": _autocorrelated,
    "duplicated rows": _repeated,
    "truncation": _truncated,
    "censoring": _censored,
    "prior of other units": _wrong_units,
    "slips of the decimal point": _slips,
    "overdispersion": _overdispersed,
    "zero inflation": _zero_inflated,
    "missing offset": _missing_offset,
    "wrong link": _wrong_link,
    "clustered trials": _extra_binomial,
    "non-linearity of log odds": _bent_odds,
    "varying slopes": _varying_slopes,
    "pooled variance": _pooled_variance,
    "a second lag": _second_lag,
}


def checked(case: Case, seed: int) -> ModelCheck:
    """Return the check of one data set, as typed."""
    data = [
        torch.from_numpy(each).double() if each.dtype.kind == "f" else torch.from_numpy(each)
        for each in case.columns.values()
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return bz.check(case.model, *data, beside=case.beside or None, seed=seed)


def measured(makers: Mapping[str, Callable[[np.random.Generator], Case]], number: int, first: int) -> dict[str, Any]:
    """Return for each kind of data how many of ``number`` data sets are found at fault, and of what."""
    table = {}
    for place, (name, make) in enumerate(makers.items()):
        began, kinds = time.process_time(), []
        for seed in range(first, first + number):
            found = checked(make(np.random.default_rng([seed, place])), seed)
            kinds.append([each.kind for each in found.faults])
        table[name] = {
            "data_sets": number,
            "at_fault": sum(bool(each) for each in kinds),
            "first_findings": _counted([each[0] for each in kinds if each]),
            "processor_seconds_each": (time.process_time() - began) / number,
        }
        print(f"{name:28} {table[name]['at_fault']:3} of {number}   {table[name]['first_findings']}", flush=True)
    return table


def _counted(values: list[str]) -> dict[str, int]:
    return {each: values.count(each) for each in sorted(set(values), key=values.count, reverse=True)}


def main() -> None:
    number, first = (int(given) for given in (*sys.argv[1:], *("20", "10000")[len(sys.argv) - 1 :]))
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    found = {"first_seed": first, "right": measured(RIGHT, 2 * number, first), "wrong": measured(WRONG, number, first)}
    rates = {
        kind: sum(each["at_fault"] for each in found[kind].values())
        / sum(each["data_sets"] for each in found[kind].values())
        for kind in ("right", "wrong")
    }
    print(f"right models at fault: {rates['right']:.1%}; wrong ones found: {rates['wrong']:.1%}")
    if first >= 10_000:
        write("misspecified", found | {"rates": rates})


if __name__ == "__main__":
    main()
