"""NUTS where warm-up is hard: effective draws, frozen chains and moments at five seeds, bnnzoo and NumPyro in turn.

Run: python -m benchmarks.warm_up [seeds] [model ...]      (needs numpyro, and posteriordb's data below BNNZOO_DATA)

Default settings, four chains, 1,000 draws of warm-up and 1,000 kept, double precision. Effective draws are the minimum over
scalars of bulk and tail; gradients are the leapfrog steps of the kept draws. Moments are held against posteriordb's, or against
a long run of NumPyro on a form of the model that is easy to sample. A chain is frozen if it stays at one
place for 100 draws on end.
"""

import json
import os
import statistics
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import arviz as az
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as ndist
import pyro
import pyro.distributions as dist
import torch
from numpy.typing import NDArray
from torch.distributions import constraints

import bnnzoo as bz
from benchmarks.pairs import write
from benchmarks.posteriordb import scalars

numpyro.enable_x64()

RESULTS = Path(__file__).parent / "results" / "warm_up.json"
CHAINS, WARMUP, DRAWS, FROZEN = 4, 1000, 1000, 100
AT_BATS = 45.0
HITS = np.array([18.0, 17, 16, 15, 14, 14, 13, 12, 11, 11, 10, 10, 10, 10, 10, 9, 8, 7])
"""Hits of 18 players in their first 45 at-bats of 1970 (Efron and Morris, 1975)."""
EFFECTS = np.array([28.0, 8, -3, 7, -1, 1, 18, 12]), np.array([15.0, 10, 16, 11, 9, 11, 10, 18])
"""Effects of coaching in eight schools, and their standard errors (Rubin, 1981)."""
HIDDEN = 8
NEALS_WIDTHS = {"u": 0.05, "b": 0.05, "v": 0.05 / HIDDEN**0.5, "noise": 0.05}
"""Centres of the vague priors of scales in Neal's network: of weights and biases of its units, of output weights, of noise."""

type Array = NDArray[np.floating]
type Sites = dict[str, Array]


class Problem(NamedTuple):
    """A model in both languages, its data, and what is compared.

    Attributes
    ----------
    reference : callable, str or None
        How to get the moments of its scalars, or the file that has them; None where no long run mixes either.
    quantities : callable, optional
        What is compared in place of the sites, by name, from their values ``[C, S, ...]``.
    """

    pyro_model: Callable[..., None]
    numpyro_model: Callable[..., None]
    data: tuple[Array, ...]
    reference: Callable[..., None] | str | None
    quantities: Callable[[Sites], Sites] | None = None


class Measured(NamedTuple):
    """What a run gave: sites ``[C, S, ...]``, leapfrog steps of its kept draws, divergent ones, and names of warnings."""

    sites: Sites
    gradients: int
    divergent: int
    warned: list[str]


def kilpisjarvi(x: torch.Tensor, y: torch.Tensor, prior: torch.Tensor) -> None:
    alpha = pyro.sample("alpha", dist.Normal(prior[0], prior[1]))
    beta = pyro.sample("beta", dist.Normal(prior[2], prior[3]))
    sigma = pyro.sample("sigma", dist.ImproperUniform(constraints.positive, (), ()))
    with pyro.plate("years", len(y)):
        pyro.sample("y", dist.Normal(alpha + beta * x, sigma), obs=y)


def numpyro_kilpisjarvi(x: Any, y: Any, prior: Any) -> None:
    alpha = numpyro.sample("alpha", ndist.Normal(prior[0], prior[1]))
    beta = numpyro.sample("beta", ndist.Normal(prior[2], prior[3]))
    sigma = numpyro.sample("sigma", ndist.ImproperUniform(ndist.constraints.positive, (), ()))
    numpyro.sample("y", ndist.Normal(alpha + beta * x, sigma), obs=y)


def gaussian_process(x: torch.Tensor, k: torch.Tensor) -> None:
    rho = pyro.sample("rho", dist.Gamma(25.0, 4.0))
    alpha = pyro.sample("alpha", dist.HalfNormal(2.0))
    z = pyro.sample("f_tilde", dist.Normal(0.0, 1.0).expand([len(x)]).to_event(1))
    distance = (x[:, None] - x).square()
    covariance = alpha**2 * (-0.5 * distance / rho**2).exp() + 1e-10 * torch.eye(len(x)).to(x)
    with pyro.plate("data", len(x)):
        pyro.sample("k", dist.Poisson((torch.linalg.cholesky(covariance) @ z).exp()), obs=k)


def numpyro_gaussian_process(x: Any, k: Any) -> None:
    rho = numpyro.sample("rho", ndist.Gamma(25.0, 4.0))
    alpha = numpyro.sample("alpha", ndist.HalfNormal(2.0))
    z = numpyro.sample("f_tilde", ndist.Normal(0.0, 1.0).expand([len(x)]).to_event(1))
    covariance = alpha**2 * jnp.exp(-0.5 * (x[:, None] - x) ** 2 / rho**2) + 1e-10 * jnp.eye(len(x))
    numpyro.sample("k", ndist.Poisson(jnp.exp(jnp.linalg.cholesky(covariance) @ z)), obs=k)


def baseball(hits: torch.Tensor) -> None:
    loc = pyro.sample("loc", dist.Normal(-1.0, 1.0))
    scale = pyro.sample("scale", dist.HalfCauchy(1.0))
    with pyro.plate("players", len(hits)):
        alpha = pyro.sample("alpha", dist.Normal(loc, scale))
        pyro.sample("hits", dist.Binomial(AT_BATS, logits=alpha), obs=hits)


def numpyro_baseball(hits: Any, centred: bool = True) -> None:
    loc = numpyro.sample("loc", ndist.Normal(-1.0, 1.0))
    scale = numpyro.sample("scale", ndist.HalfCauchy(1.0))
    with numpyro.plate("players", len(hits)):
        alpha = numpyro_effects("alpha", loc, scale, centred)
        numpyro.sample("hits", ndist.Binomial(AT_BATS, logits=alpha), obs=hits)


def birds(year: torch.Tensor, count: torch.Tensor) -> None:
    beta = pyro.sample("beta", dist.Uniform(torch.tensor([-20.0, -10, -10, -10]).to(year), 20.0).to_event(1))
    sd = pyro.sample("sd", dist.Uniform(0.0, 5.0))
    trend = beta[0] + beta[1] * year + beta[2] * year**2 + beta[3] * year**3
    with pyro.plate("years", len(year)):
        effect = pyro.sample("effect", dist.Normal(0.0, sd))
        pyro.sample("count", dist.Poisson((trend + effect).exp()), obs=count)


def numpyro_birds(year: Any, count: Any, centred: bool = True) -> None:
    beta = numpyro.sample("beta", ndist.Uniform(jnp.array([-20.0, -10, -10, -10]), 20.0).to_event(1))
    sd = numpyro.sample("sd", ndist.Uniform(0.0, 5.0))
    trend = beta[0] + beta[1] * year + beta[2] * year**2 + beta[3] * year**3
    with numpyro.plate("years", len(year)):
        effect = numpyro_effects("effect", 0.0, sd, centred)
        numpyro.sample("count", ndist.Poisson(jnp.exp(trend + effect)), obs=count)


def schools(y: torch.Tensor, sigma: torch.Tensor) -> None:
    mu = pyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = pyro.sample("tau", dist.HalfCauchy(5.0))
    with pyro.plate("schools", len(y)):
        z = pyro.sample("z", dist.Normal(0.0, 1.0))
        pyro.sample("y", dist.Normal(mu + tau * z, sigma), obs=y)


def numpyro_schools(y: Any, sigma: Any) -> None:
    mu = numpyro.sample("mu", ndist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", ndist.HalfCauchy(5.0))
    with numpyro.plate("schools", len(y)):
        z = numpyro.sample("z", ndist.Normal(0.0, 1.0))
        numpyro.sample("y", ndist.Normal(mu + tau * z, sigma), obs=y)


def regression(x: torch.Tensor, y: torch.Tensor) -> None:
    b = pyro.sample("b", dist.Normal(0.0, 10.0).expand([x.shape[1]]).to_event(1))
    s = pyro.sample("s", dist.HalfNormal(10.0))
    with pyro.plate("n", len(x)):
        pyro.sample("y", dist.Normal(x @ b, s), obs=y)


def numpyro_regression(x: Any, y: Any) -> None:
    b = numpyro.sample("b", ndist.Normal(0.0, 10.0).expand([x.shape[1]]).to_event(1))
    s = numpyro.sample("s", ndist.HalfNormal(10.0))
    numpyro.sample("y", ndist.Normal(x @ b, s), obs=y)


def network_with_outliers(x: torch.Tensor, y: torch.Tensor) -> None:
    scales = [
        pyro.sample(f"precision {name}", dist.Gamma(0.25, 0.25 * width**2)) ** -0.5
        for name, width in NEALS_WIDTHS.items()
    ]
    u, b, v = (
        pyro.sample(name, dist.Normal(0.0, scale).expand([HIDDEN]).to_event(1))
        for name, scale in zip("ubv", scales[:3], strict=True)
    )
    c = pyro.sample("c", dist.Normal(0.0, 100.0))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.StudentT(4.0, torch.tanh(x[:, None] * u + b) @ v + c, scales[3]), obs=y)


def numpyro_network_with_outliers(x: Any, y: Any) -> None:
    scales = [
        numpyro.sample(f"precision {name}", ndist.Gamma(0.25, 0.25 * width**2)) ** -0.5
        for name, width in NEALS_WIDTHS.items()
    ]
    u, b, v = (
        numpyro.sample(name, ndist.Normal(0.0, scale).expand([HIDDEN]).to_event(1))
        for name, scale in zip("ubv", scales[:3], strict=True)
    )
    c = numpyro.sample("c", ndist.Normal(0.0, 100.0))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", ndist.StudentT(4.0, jnp.tanh(x[:, None] * u + b) @ v + c, scales[3]), obs=y)


def networks_values(sites: Sites) -> Sites:
    """Return a network's values ``[C, S, 7]`` at points from -2 to 2, whatever the order of its units."""
    u, b, v = (sites[name][..., None, :] for name in "ubv")
    values = (v * np.tanh(np.linspace(-2, 2, 7)[:, None] * u + b)).sum(-1) + sites["c"][..., None]
    return {"f": values, "noise": sites["precision noise"] ** -0.5}


def simulated_outliers() -> tuple[Array, Array]:
    """Return 100 rows by Neal's recipe, one noise in twenty ten times as wide (FBM's documentation, Ex-netgp-o)."""
    rng = np.random.RandomState(0)
    x = rng.randn(100)
    noise = np.where(rng.rand(100) < 0.05, 1.0, 0.1) * rng.randn(100)
    return x, 0.3 + 0.4 * x + 0.5 * np.sin(2.7 * x) + 1.1 / (1 + x**2) + noise


def numpyro_effects(name: str, loc: Any, scale: Any, centred: bool) -> Any:
    """Draw effects ``[N]`` of a plate, or compute them from standard normal ones."""
    if centred:
        return numpyro.sample(name, ndist.Normal(loc, scale))
    return numpyro.deterministic(name, loc + scale * numpyro.sample(f"{name}_z", ndist.Normal(0.0, 1.0)))


def posteriordb(name: str) -> dict[str, Any]:
    """Return a file of posteriordb."""
    found: dict[str, Any] = json.loads((Path(os.environ["BNNZOO_DATA"]) / "posteriordb" / name).read_text())
    return found


def columns(name: str, *keys: str) -> tuple[Array, ...]:
    """Return columns of a data set of posteriordb."""
    found = posteriordb(f"data/{name}.json")
    return tuple(np.asarray(found[key], float) for key in keys)


def simulated_birds() -> tuple[Array, Array]:
    """Return 40 years, standardised, and counts with a cubic trend and yearly effects of standard deviation 0.1."""
    rng, year = np.random.RandomState(0), np.arange(1.0, 41)
    rate = np.exp(3.5576 - 0.0912 * year + 0.0091 * year**2 - 0.00014 * year**3 + 0.1 * rng.randn(40))
    return (year - year.mean()) / year.std(), rng.poisson(rate).astype(float)


def problems() -> dict[str, Callable[[], Problem]]:
    """Return the problems by name, whose data are read when they are asked for."""
    rng = np.random.RandomState(0)
    x = rng.randn(100, 9) @ (np.eye(9) + rng.randn(9, 9) / 6)
    y = x @ rng.randn(9) + rng.randn(100)
    prior = ("pmualpha", "psalpha", "pmubeta", "psbeta")
    name, gp = "kilpisjarvi_mod", "gp_pois_regr"
    return {
        "kilpisjarvi": lambda: Problem(
            kilpisjarvi,
            numpyro_kilpisjarvi,
            (*columns(name, "x", "y"), np.array(columns(name, *prior))),
            f"{name}-kilpisjarvi",
        ),
        "gp_pois_regr": lambda: Problem(
            gaussian_process, numpyro_gaussian_process, columns(gp, "x", "k"), f"{gp}-{gp}"
        ),
        "baseball": lambda: Problem(
            baseball, numpyro_baseball, (HITS,), lambda *data: numpyro_baseball(*data, centred=False)
        ),
        "birds": lambda: Problem(
            birds, numpyro_birds, simulated_birds(), lambda *data: numpyro_birds(*data, centred=False)
        ),
        "schools": lambda: Problem(schools, numpyro_schools, EFFECTS, numpyro_schools),
        "outliers": lambda: Problem(
            network_with_outliers, numpyro_network_with_outliers, simulated_outliers(), None, networks_values
        ),
        "regression": lambda: Problem(regression, numpyro_regression, (x, y), numpyro_regression),
    }


def run_bnnzoo(problem: Problem, seed: int) -> Measured:
    """Sample with bnnzoo's NUTS."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        data = [torch.from_numpy(value) for value in problem.data]
        posterior = bz.fit(problem.pyro_model, bz.NUTS(), *data, seed=seed, dtype=torch.float64, progress=False)
    sites = {name: value.numpy() for name, value in posterior.density.constrain(posterior.draws()).items()}
    stats = posterior.info.sample_stats
    names = sorted(
        {warning.category.__name__ for warning in caught if warning.category.__module__.startswith("bnnzoo")}
    )
    return Measured(sites, int(stats["n_steps"].sum()), int(stats["diverging"].sum()), names)


def numpyro_sampler(model: Callable[..., None], data: tuple[Array, ...], draws: int = DRAWS, **settings: float) -> Any:
    """Return a function of the seed that samples with NumPyro's NUTS; what it compiles serves every seed."""
    kernel = numpyro.infer.NUTS(model, **settings)
    sampler = numpyro.infer.MCMC(
        kernel,
        num_warmup=WARMUP,
        num_samples=draws,
        num_chains=CHAINS,
        chain_method="sequential",
        progress_bar=False,
        jit_model_args=True,
    )

    def sample(seed: int) -> Measured:
        sampler.run(jax.random.PRNGKey(seed), *map(jnp.array, data), extra_fields=("num_steps", "diverging"))
        sites = {name: np.asarray(value) for name, value in sampler.get_samples(group_by_chain=True).items()}
        extra = sampler.get_extra_fields()
        return Measured(sites, int(extra["num_steps"].sum()), int(extra["diverging"].sum()), [])

    return sample


def moments(problem: Problem) -> dict[str, tuple[float, float]]:
    """Return mean and standard deviation of every scalar of a model; nothing where they are not known."""
    if problem.reference is None:
        return {}
    if isinstance(problem.reference, str):
        found = posteriordb(f"summary/{problem.reference}.summary.json")["params"]
        return {name: (value["mean"], value["sd"]) for name, value in found.items()}
    run = numpyro_sampler(problem.reference, problem.data, 10 * DRAWS, target_accept_prob=0.95)(1000)
    return {name: (float(value.mean()), float(value.std())) for name, value in scalars(run.sites).items()}


def longest_stay(draws: Array) -> int:
    """Return the largest number of draws ``[C, S]`` on end at which a chain stands still."""
    longest = 0
    for chain in draws:
        moves = np.flatnonzero(np.diff(chain)) + 1
        longest = max(longest, int(np.diff([0, *moves, len(chain)]).max()))
    return longest


def summary(run: Measured, problem: Problem, expected: dict[str, tuple[float, float]]) -> dict[str, Any]:
    """Return what is compared."""
    found = scalars(problem.quantities(run.sites) if problem.quantities else run.sites)
    known = {name: value for name, value in found.items() if name in expected or not expected}
    assert known, f"no scalar of {list(found)} is in {list(expected)}"
    kinds: tuple[dict[str, Any], ...] = ({"method": "bulk"}, {"method": "tail", "prob": (0.05, 0.95)})
    ess = min(float(az.ess(value, **kind)) for value in known.values() for kind in kinds)
    facts = {
        "ess": ess,
        "rhat": max(float(az.rhat(value)) for value in known.values()),
        "gradients_per_effective_draw": run.gradients / ess,
        "divergent": run.divergent,
        "longest_stay": max(longest_stay(value) for value in known.values()),
        "warned": run.warned,
    }
    if expected:
        facts["mean_off"] = max(
            float(abs(value.mean() - expected[name][0]) / expected[name][1]) for name, value in known.items()
        )
        ratios = [float(value.std() / expected[name][1]) for name, value in known.items()]
        facts["sd_ratios"] = [min(ratios), max(ratios)]
    return facts


def measured(name: str, problem: Problem, seeds: int) -> dict[str, Any]:
    """Run both in turn on one problem."""
    expected, theirs = moments(problem), numpyro_sampler(problem.numpyro_model, problem.data)
    runs: dict[str, list[dict[str, Any]]] = {"bnnzoo": [], "numpyro": []}
    for seed in range(seeds):
        runs["bnnzoo"].append(summary(run_bnnzoo(problem, seed), problem, expected))
        runs["numpyro"].append(summary(theirs(seed), problem, expected))
        for library, found in runs.items():
            last = {key: np.round(value, 3).tolist() if key != "warned" else value for key, value in found[-1].items()}
            print(name, seed, library, last, flush=True)
    ess = {library: statistics.median(run["ess"] for run in found) for library, found in runs.items()}
    ratio = ess["bnnzoo"] / ess["numpyro"]
    frozen = {library: sum(run["longest_stay"] >= FROZEN for run in found) for library, found in runs.items()}
    print(f"{name}: effective draws {ess}, ratio {ratio:.2f}, runs with a frozen chain {frozen}", flush=True)
    return {"ratio": ratio, "frozen": frozen, "runs": runs}


def main(seeds: int, names: list[str]) -> None:
    """Run the problems, and write what each gave in place of what it gave before."""
    facts = {"chains": CHAINS, "warmup": WARMUP, "draws": DRAWS, "seeds": seeds}
    for name, make in problems().items():
        if name in names or not names:
            found = {name: measured(name, make(), seeds)}
            before = json.loads(RESULTS.read_text())["problems"] if RESULTS.exists() else {}
            write("warm_up", {**facts, "problems": before | found})


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 5, sys.argv[2:])
