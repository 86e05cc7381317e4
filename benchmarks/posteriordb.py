"""Pyro models, in words of our own, of posteriors of posteriordb: data and moments of its reference draws are read from disk.

Four of them are the models of cards of the zoo, whose arguments are made from the data here.

Scalars are named as posteriordb names them. Data: the folder ``posteriordb`` below ``BNNZOO_DATA``.
"""

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.distributions import constraints

from bnnzoo.zoo.cards.arma import AutoregressiveMovingAverage
from bnnzoo.zoo.cards.eight_schools import EightSchools
from bnnzoo.zoo.cards.gaussian_process_counts import ProcessCounts
from bnnzoo.zoo.cards.ridge_regression import RidgeRegression

__all__ = ["POSTERIORS", "Textbook", "arguments_of", "file_of", "moments_of", "scalars"]

type Array = NDArray[np.floating]


class Textbook(NamedTuple):
    """A model, the name of its data, and how they become its arguments."""

    model: Callable[..., None]
    data: str
    arguments: Callable[[dict[str, Array]], tuple[Array, ...]]


def file_of(name: str) -> dict[str, Any]:
    """Return a file of posteriordb."""
    found: dict[str, Any] = json.loads((Path(os.environ["BNNZOO_DATA"]) / "posteriordb" / name).read_text())
    return found


def arguments_of(name: str) -> tuple[Array, ...]:
    """Return what the model of a posterior is called with."""
    textbook = POSTERIORS[name]
    raw = {key: np.asarray(value, float) for key, value in file_of(f"data/{textbook.data}.json").items()}
    return tuple(np.asarray(each) for each in textbook.arguments(raw))


def moments_of(name: str) -> dict[str, tuple[float, float]]:
    """Return mean and standard deviation of every scalar of a posterior."""
    found = file_of(f"summary/{name}.summary.json")["params"]
    return {scalar: (value["mean"], value["sd"]) for scalar, value in found.items()}


def scalars(sites: dict[str, Array]) -> dict[str, Array]:
    """Return the draws ``[C, S]`` of every scalar, named like ``beta[1]``."""
    found: dict[str, Array] = {}
    for name, value in sites.items():
        flat = value.reshape(*value.shape[:2], -1)
        names = [name] if value.ndim == 2 else [f"{name}[{i + 1}]" for i in range(flat.shape[2])]
        found |= {each: flat[..., i] for i, each in enumerate(names)}
    return found


def flat(*shape: int) -> Any:
    return dist.ImproperUniform(constraints.real, (), ()).expand(shape).to_event(len(shape))


def positive(name: str) -> Tensor:
    """Draw a scale without a prior."""
    found: Tensor = pyro.sample(name, dist.ImproperUniform(constraints.positive, (), ()))
    return found


def observe(mean: Tensor, sigma: Tensor, y: Tensor) -> None:
    with pyro.plate("data", len(y)):
        pyro.sample("y", dist.Normal(mean, sigma), obs=y)


def least_squares(x: Tensor, y: Tensor) -> None:
    """Regress without a prior."""
    beta = pyro.sample("beta", flat(x.shape[1]))
    observe(x @ beta, positive("sigma"), y)


def cauchy_noise(x: Tensor, y: Tensor) -> None:
    """Regress with a prior of the noise alone."""
    beta = pyro.sample("beta", flat(x.shape[1]))
    observe(x @ beta, pyro.sample("sigma", dist.HalfCauchy(2.5)), y)


def ridge(x: Tensor, y: Tensor) -> None:
    """Regress with normal priors."""
    RidgeRegression(x.shape[1])(x, y)


def diamonds(gram: Tensor, projected: Tensor, centre: Tensor, scatter: Tensor, rows: Tensor) -> None:
    """Regress log prices on correlated, centred columns, by what is sufficient of 5,000 rows: a gradient costs a tenth."""
    b = pyro.sample("b", dist.Normal(0.0, 1.0).expand([len(gram)]).to_event(1))
    intercept = pyro.sample("Intercept", dist.StudentT(3.0, 8.0, 10.0))
    sigma = pyro.sample("sigma", dist.FoldedDistribution(dist.StudentT(3.0, 0.0, 10.0)))
    error = scatter + rows * (centre - intercept) ** 2 + b @ (gram @ b - 2 * projected)
    pyro.factor("y", -rows * sigma.log() - error / (2 * sigma**2))


def kilpisjarvi(x: Tensor, y: Tensor, prior: Tensor) -> None:
    alpha = pyro.sample("alpha", dist.Normal(prior[0], prior[1]))
    beta = pyro.sample("beta", dist.Normal(prior[2], prior[3]))
    observe(alpha + beta * x, positive("sigma"), y)


def schools(y: Tensor, sigma: Tensor) -> None:
    EightSchools(len(y))(torch.arange(len(y)), sigma, y)


def gaussian_process(x: Tensor, k: Tensor) -> None:
    ProcessCounts(x)(torch.arange(len(x)), k)


def arma(y: Tensor) -> None:
    AutoregressiveMovingAverage(y)(torch.arange(len(y)), y)


def mixture(y: Tensor) -> None:
    """Mix two normal distributions, the lower one first."""
    low = pyro.sample("mu[1]", dist.Normal(0.0, 2.0))
    gap = pyro.sample("gap", dist.ImproperUniform(constraints.positive, (), ()))
    high = pyro.deterministic("mu[2]", low + gap)
    pyro.factor("prior", dist.Normal(0.0, 2.0).log_prob(high))
    sigma = pyro.sample("sigma", dist.HalfNormal(2.0).expand([2]).to_event(1))
    theta = pyro.sample("theta", dist.Beta(5.0, 5.0))
    mixing = dist.Categorical(probs=torch.stack([theta, 1 - theta]))
    with pyro.plate("data", len(y)):
        pyro.sample("y", dist.MixtureSameFamily(mixing, dist.Normal(torch.stack([low, high]), sigma)), obs=y)


def forward(log_emission: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Return the log likelihood of a Markov chain of two hidden states, from ``log_emission[T, 2]`` and rows of transitions."""
    log_rates = torch.stack([first, second]).log()
    state = log_emission[0]
    for emitted in log_emission[1:]:
        state = (state[:, None] + log_rates).logsumexp(0) + emitted
    return state.logsumexp(0)


def hidden_states(y: Tensor) -> None:
    rows = [pyro.sample(f"theta{i}", dist.Dirichlet(torch.ones(2).to(y))) for i in (1, 2)]
    low = pyro.sample("mu[1]", dist.Normal(3.0, 1.0))
    gap = pyro.sample("gap", dist.ImproperUniform(constraints.positive, (), ()))
    high = pyro.deterministic("mu[2]", low + gap)
    pyro.factor("prior", dist.Normal(10.0, 1.0).log_prob(high))
    pyro.factor("y", forward(dist.Normal(torch.stack([low, high]), 1.0).log_prob(y[:, None]), *rows))


def drives(u: Tensor, v: Tensor, alpha: Tensor) -> None:
    """Speed and distance on a basketball court, exponential in each of two hidden states."""
    rows = [pyro.sample(f"theta{i}", dist.Dirichlet(alpha[i - 1])) for i in (1, 2)]
    rates = []
    for name in ("phi", "lambda"):
        low = pyro.sample(f"{name}[1]", Positive(dist.Normal(0.0, 1.0)))
        gap = pyro.sample(f"{name}_gap", dist.ImproperUniform(constraints.positive, (), ()))
        high = pyro.deterministic(f"{name}[2]", low + gap)
        pyro.factor(f"{name}_prior", dist.Normal(3.0, 1.0).log_prob(high))
        rates.append(torch.stack([low, high]))
    emission = dist.Exponential(torch.stack(rates, -1)).to_event(1)
    chain = dist.DiscreteHMM(torch.zeros(2).to(u), torch.stack(rows).log(), emission)
    pyro.sample("y", chain, obs=torch.stack([u, v], -1))


STEPS_PER_TIME = 4


def runge_kutta(slope: Callable[[Tensor, Any], Tensor], state: Tensor, time: Any, step: Any) -> Tensor:
    """Return the state after a step of the method of Runge and Kutta of fourth order."""
    one = slope(state, time)
    two = slope(state + step / 2 * one, time + step / 2)
    three = slope(state + step / 2 * two, time + step / 2)
    four = slope(state + step * three, time + step)
    return state + step / 6 * (one + 2 * two + 2 * three + four)


def elimination(times: Tensor, concentration: Tensor, dose: Tensor, volume: Tensor) -> None:
    """Concentrations of a drug that is absorbed at a constant rate and eliminated as Michaelis and Menten have it."""
    k_a, k_m, v_m, sigma = (pyro.sample(name, dist.HalfCauchy(1.0)) for name in ("k_a", "K_m", "V_m", "sigma"))

    def slope(c: Tensor, time: Tensor) -> Tensor:
        return (-k_a * time).exp() * dose * k_a / volume - v_m / volume * c / (k_m + c)

    states, state, time = [], torch.zeros_like(k_a), torch.zeros_like(times[0])
    for until in times:
        step = (until - time) / STEPS_PER_TIME
        for number in range(STEPS_PER_TIME):
            state = runge_kutta(slope, state, time + number * step, step)
        states.append(state)
        time = until
    with pyro.plate("data", len(times)):
        pyro.sample("C_hat", dist.LogNormal(torch.stack(states).log(), sigma), obs=concentration)


def lotka_volterra(y_init: Tensor, y: Tensor) -> None:
    """Count hares and lynxes once a year; their equation is solved by steps of Runge and Kutta, eight a year."""
    growth = [pyro.sample(f"theta[{i}]", positive_normal(1.0, 0.5)) for i in (1, 3)]
    contact = [pyro.sample(f"theta[{i}]", positive_normal(0.05, 0.05)) for i in (2, 4)]
    sigma = pyro.sample("sigma", dist.LogNormal(-1.0, 1.0).expand([2]).to_event(1))
    start = pyro.sample("z_init", dist.LogNormal(math.log(10.0), 1.0).expand([2]).to_event(1))

    def slope(z: Tensor, time: float) -> Tensor:
        hares = growth[0] - contact[0] * z[1]
        lynxes = contact[1] * z[0] - growth[1]
        return torch.stack([hares, lynxes]) * z

    states, state, step = [], start, 1 / 8
    for _ in range(len(y)):
        for _ in range(8):
            state = runge_kutta(slope, state, 0.0, step)
        states.append(state)
    pyro.sample("y_init", dist.LogNormal(start.log(), sigma).to_event(1), obs=y_init)
    with pyro.plate("years", len(y)):
        pyro.sample("y", dist.LogNormal(torch.stack(states).log(), sigma).to_event(1), obs=y)


def positive_normal(mean: float, sd: float) -> Any:
    """Return a normal distribution cut off at zero, without its constant."""
    return Positive(dist.Normal(mean, sd))


class Positive(dist.TorchDistribution):
    """A density restricted to positive numbers, up to a constant."""

    arg_constraints: ClassVar[dict[str, Any]] = {}
    support = constraints.positive

    def __init__(self, base: Any) -> None:
        self.base = base
        super().__init__(validate_args=False)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        found: Tensor = self.base.sample(sample_shape).abs()
        return found

    def log_prob(self, value: Tensor) -> Tensor:
        found: Tensor = self.base.log_prob(value)
        return found


def columns(*names: str) -> Callable[[dict[str, Array]], tuple[Array, ...]]:
    return lambda d: tuple(d[name] for name in names)


def design(y: str, *names: str, log: bool = False) -> Callable[[dict[str, Array]], tuple[Array, ...]]:
    """Return a function from data to an intercept and columns ``[N, K]``, and ``y``."""

    def made(d: dict[str, Array]) -> tuple[Array, ...]:
        x = np.stack([np.ones_like(d[y]), *(d[name] for name in names)], 1)
        return x, np.log(d[y]) if log else d[y]

    return made


def interaction(y: str, first: str, second: str, halves: bool) -> Callable[[dict[str, Array]], tuple[Array, ...]]:
    """Return columns of two inputs, one or both standardised, and of their product."""

    def standard(value: Array) -> Array:
        return (value - value.mean()) / ((2 if halves else 1) * value.std(ddof=1))

    def made(d: dict[str, Array]) -> tuple[Array, ...]:
        one, two = standard(d[first]), standard(d[second]) if halves else d[second]
        return np.stack([np.ones_like(one), one, two, one * two], 1), d[y] if halves else np.log(d[y])

    return made


def trees(d: dict[str, Array]) -> tuple[Array, ...]:
    one, two, height = d["diam1"], d["diam2"], d["canopy_height"]
    logs = [np.log(one * two * height), np.log(one * two), np.log(one / two), np.log(d["total_height"])]
    return np.stack([np.ones_like(one), *logs, d["group"]], 1), np.log(d["weight"])


def votes(d: dict[str, Array]) -> tuple[Array, ...]:
    ages = [(d["age_discrete"] == i).astype(float) for i in (2, 3, 4)]
    rest = [d["educ1"], d["gender"], d["income"]]
    x = np.stack([np.ones_like(d["income"]), d["real_ideo"], d["race_adj"], *ages, *rest], 1)
    return x, d["partyid7"]


def jewels(d: dict[str, Array]) -> tuple[Array, ...]:
    x, y = d["X"][:, 1:] - d["X"][:, 1:].mean(0), d["Y"]
    rest = y - y.mean()
    return x.T @ x, x.T @ rest, y.mean(), rest @ rest, np.array(float(len(y)))


def summers(d: dict[str, Array]) -> tuple[Array, ...]:
    return d["x"], d["y"], np.array([d[name] for name in ("pmualpha", "psalpha", "pmubeta", "psbeta")])


POSTERIORS: dict[str, Textbook] = {
    "arma-arma11": Textbook(arma, "arma", columns("y")),
    "bball_drive_event_0-hmm_drive_0": Textbook(drives, "bball_drive_event_0", columns("u", "v", "alpha")),
    "diamonds-diamonds": Textbook(diamonds, "diamonds", jewels),
    "earnings-earn_height": Textbook(least_squares, "earnings", design("earn", "height")),
    "earnings-logearn_interaction_z": Textbook(
        least_squares, "earnings", interaction("earn", "height", "male", halves=False)
    ),
    "eight_schools-eight_schools_noncentered": Textbook(schools, "eight_schools", columns("y", "sigma")),
    "gp_pois_regr-gp_pois_regr": Textbook(gaussian_process, "gp_pois_regr", columns("x", "k")),
    "hmm_example-hmm_example": Textbook(hidden_states, "hmm_example", columns("y")),
    "hudson_lynx_hare-lotka_volterra": Textbook(lotka_volterra, "hudson_lynx_hare", columns("y_init", "y")),
    "kidiq-kidscore_momhsiq": Textbook(cauchy_noise, "kidiq", design("kid_score", "mom_hs", "mom_iq")),
    "kidiq-kidscore_momiq": Textbook(cauchy_noise, "kidiq", design("kid_score", "mom_iq")),
    "kidiq_with_mom_work-kidscore_interaction_z": Textbook(
        least_squares, "kidiq_with_mom_work", interaction("kid_score", "mom_hs", "mom_iq", halves=True)
    ),
    "kilpisjarvi_mod-kilpisjarvi": Textbook(kilpisjarvi, "kilpisjarvi_mod", summers),
    "low_dim_gauss_mix-low_dim_gauss_mix": Textbook(mixture, "low_dim_gauss_mix", columns("y")),
    "mesquite-logmesquite_logvash": Textbook(least_squares, "mesquite", trees),
    "mesquite-mesquite": Textbook(
        least_squares,
        "mesquite",
        design("weight", "diam1", "diam2", "canopy_height", "total_height", "density", "group"),
    ),
    "nes1972-nes": Textbook(least_squares, "nes1972", votes),
    "nes1992-nes": Textbook(least_squares, "nes1992", votes),
    "one_comp_mm_elim_abs-one_comp_mm_elim_abs": Textbook(
        elimination, "one_comp_mm_elim_abs", columns("times", "C_hat", "D", "V")
    ),
    "sblri-blr": Textbook(ridge, "sblri", columns("X", "y")),
}
