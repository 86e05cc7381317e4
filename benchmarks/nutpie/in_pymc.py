"""A worker that fits one of the eight models with nutpie, without bnnzoo or torch: ``python -m benchmarks.nutpie.in_pymc``."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import nutpie
import pymc as pm

from benchmarks.nutpie.data import DATA
from benchmarks.nutpie.worker import CHAINS, Points, Sampled, serve

__all__: list[str] = []


def linear(x: Any, y: Any) -> None:
    b = pm.Normal("b", 0.0, 10.0, shape=x.shape[1])
    s = pm.HalfNormal("s", 10.0)
    pm.Normal("y", x @ b, s, observed=y)


def schools(y: Any, sigma: Any) -> None:
    mu = pm.Normal("mu", 0.0, 5.0)
    tau = pm.HalfCauchy("tau", 5.0)
    z = pm.Normal("z", 0.0, 1.0, shape=len(y))
    pm.Normal("y", mu + tau * z, sigma, observed=y)


def counties(y: Any, floor: Any, county: Any) -> None:
    mu = pm.Normal("mu", 0.0, 10.0)
    tau = pm.HalfNormal("tau", 5.0)
    b = pm.Normal("b", 0.0, 10.0)
    a = pm.Normal("a", mu, tau, shape=85)
    s = pm.HalfNormal("s", 5.0)
    pm.Normal("y", a[county] + b * floor, s, observed=y)


def logistic(x: Any, y: Any) -> None:
    a = pm.Normal("a", 0.0, 2.5)
    b = pm.Normal("b", 0.0, 2.5, shape=x.shape[1])
    pm.Bernoulli("y", logit_p=a + x @ b, observed=y)


def counts(x: Any, group: Any, y: Any) -> None:
    a = pm.Normal("a", 0.0, 2.5)
    b = pm.Normal("b", 0.0, 2.5, shape=x.shape[1])
    tau = pm.HalfNormal("tau", 2.5)
    z = pm.Normal("z", 0.0, 1.0, shape=40)
    pm.Poisson("y", pm.math.exp(a + x @ b + tau * z[group]), observed=y)


def gaussian(tril: Any) -> None:
    pm.MvNormal("theta", np.zeros(len(tril)), chol=tril)


def volatility(y: Any) -> None:
    mu = pm.Normal("mu", 0.0, 2.0)
    tau = pm.Exponential("tau", 10.0)
    nu = pm.Exponential("nu", 0.1)
    z = pm.Normal("z", 0.0, 1.0, shape=len(y))
    pm.StudentT("y", nu=nu, mu=0.0, sigma=pm.math.exp(mu + tau * z.cumsum()), observed=y)


MODELS: dict[str, Callable[..., None]] = dict(
    zip(DATA, (linear, linear, schools, counties, logistic, counts, gaussian, volatility), strict=True)
)


def built(name: str) -> Any:
    """Return the PyMC model."""
    with pm.Model() as model:
        MODELS[name](*DATA[name]())
    return model


def sampler(name: str) -> Callable[[str, int], Sampled]:
    """Return what samples a model with default settings; the kind is nutpie's ``adaptation``. The model is compiled once."""
    compiled: list[Any] = []

    def sample(kind: str, seed: int) -> Sampled:
        if not compiled:
            compiled.append(nutpie.compile_pymc_model(built(name)))
        chosen = {} if kind == "default" else {"adaptation": kind}
        tree = nutpie.sample(compiled[0], chains=CHAINS, seed=seed, progress_bar=False, **chosen)
        kept, warmup = (tree[group]["n_steps"].values for group in ("sample_stats", "warmup_sample_stats"))
        return Sampled(
            {str(site): np.asarray(value.values, float) for site, value in tree["posterior"].data_vars.items()},
            gradients=int(kept.sum()),
            all_gradients=int(kept.sum() + warmup.sum()),
            divergent=int(tree["sample_stats"]["diverging"].values.sum()),
            warmup=warmup.shape[1],
        )

    return sample


def log_density(name: str, points: Points | None) -> tuple[Points, list[float]]:
    """Return log densities at points of unconstrained sites."""
    model = built(name)
    assert points is not None
    compute, values = model.compile_logp(), {str(rv.name): str(value.name) for rv, value in model.rvs_to_values.items()}
    shapes = model.initial_point()
    return points, [
        float(
            compute({values[s]: np.reshape(np.array(v, float), np.shape(shapes[values[s]])) for s, v in point.items()})
        )
        for point in points
    ]


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    serve(sampler, log_density)
