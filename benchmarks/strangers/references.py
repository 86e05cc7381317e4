"""Means, standard deviations and quantiles of each posterior with their Monte Carlo errors.

They are NumPyro's, from a long run of the same text, or importance sampling's where that run takes too long to compile.
"""

import json
import math
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.strangers.catalogue import STRANGERS, Stranger
from benchmarks.strangers.independent import Unconstrained, importance_draws, newton
from benchmarks.strangers.namespaces import numpyro_names
from bnnzoo.core.verdict.pareto import pareto_k

REFERENCES = Path(__file__).parents[1] / "results" / "strangers_references.json"
SETTINGS = ({"warmup": 1000, "target": 0.9, "dense": False}, {"warmup": 3000, "target": 0.99, "dense": True})
"""Tried in turn, until R-hat is below 1.01 and 400 draws are effective; the second starts at medians of the prior."""


BY_IMPORTANCE = frozenset({"Lotka-Volterra"})
"""Models of few parameters whose loops NumPyro did not compile within three minutes."""
NUM_DRAWS, MAX_K = 40_000, 0.5


def references(names: list[str]) -> None:
    """Write the reference of every model that has no good one yet, after each model."""
    for name in names or list(STRANGERS):
        if not stored().get(name, {}).get("good"):
            try:
                found = (by_importance if name in BY_IMPORTANCE else reference)(STRANGERS[name])
            except Exception as error:
                print(f"{name}: {type(error).__name__}: {str(error)[:200]}", flush=True)
                continue
            REFERENCES.write_text(json.dumps(stored() | {name: found}, indent=0) + "\n")
            facts = {key: found[key] for key in ("rhat", "ess", "divergences", "seconds", "good")}
            print(name, facts, flush=True)


def stored() -> dict[str, Any]:
    """Return the references that are there."""
    found: dict[str, Any] = json.loads(REFERENCES.read_text()) if REFERENCES.exists() else {}
    return found


def reference(stranger: Stranger) -> dict[str, Any]:
    """Run NumPyro's NUTS, four chains of 2,000 draws in double precision, and describe the draws."""
    import jax
    import jax.numpy as jnp
    import numpyro

    jax.config.update("jax_enable_x64", True)
    names, data = numpyro_names(), [jnp.asarray(each) for each in stranger.data]
    text = stranger.for_reference or stranger.text
    data = [each.astype("float64") if each.dtype.kind == "f" else each for each in data]
    found: dict[str, Any] = {}
    for setting in SETTINGS:
        start = time.process_time()
        kernel = numpyro.infer.NUTS(
            lambda *data: text(names, *data),
            target_accept_prob=setting["target"],
            dense_mass=bool(setting["dense"]),
            init_strategy=(numpyro.infer.init_to_median if setting["dense"] else numpyro.infer.init_to_uniform)(),
        )
        sampler = numpyro.infer.MCMC(
            kernel,
            num_warmup=int(setting["warmup"]),
            num_samples=2000,
            num_chains=4,
            chain_method="vectorized",
            progress_bar=False,
        )
        try:
            sampler.run(jax.random.PRNGKey(0), *data, extra_fields=("diverging",))
        except ValueError:  # a start at which the model cannot be evaluated
            continue
        draws = sampler.get_samples(group_by_chain=True)
        draws = {name: np.asarray(each) for name, each in draws.items() if not name.startswith("_")}
        found = described(draws) | {
            "divergences": int(sampler.get_extra_fields()["diverging"].sum()),
            "seconds": round(time.process_time() - start, 1),
            "how": f"NumPyro NUTS, 4 x 2,000 after {setting['warmup']}, target {setting['target']}, dense: {setting['dense']}"
            + (", in another parametrisation" if stranger.for_reference else ""),
            "versions": {name: version(name) for name in ("numpyro", "jax")},
        }
        found["good"] = found["rhat"] < 1.01 and found["ess"] > 400
        if found["good"]:
            break
    return found


def by_importance(stranger: Stranger) -> dict[str, Any]:
    """Weigh draws of Student's t around the mode of Pyro's density, and describe them."""
    start = time.process_time()
    density = Unconstrained(stranger)
    theta, weights = importance_draws(density, *newton(density, density.prior_median()), NUM_DRAWS)
    k = pareto_k(weights[weights > 0].log())
    ess, sites = float(1 / weights.square().sum()), {}
    for name, value in density.values(theta).items():
        flat = value.reshape(NUM_DRAWS, -1)
        mean = weights @ flat
        sd = (weights @ (flat - mean).square()).sqrt()
        values, order = flat.sort(0)
        shares = weights[order].cumsum(0)
        quantiles = [values.gather(0, (shares < q).sum(0)[None])[0] for q in (0.05, 0.5, 0.95)]
        sites[name] = {
            "mean": _numbers(mean.numpy()),
            "sd": _numbers(sd.numpy()),
            "ess": [round(ess, 1)] * len(mean),
            "mcse": _numbers((sd / math.sqrt(ess)).numpy()),
            "quantiles": [_numbers(each.numpy()) for each in quantiles],
        }
    return {
        "sites": sites,
        "rhat": 1.0,
        "ess": round(ess, 1),
        "divergences": 0,
        "seconds": round(time.process_time() - start, 1),
        "how": f"importance sampling, {NUM_DRAWS} draws of Student's t around the mode, Pareto k {k:.2f}",
        "versions": {name: version(name) for name in ("torch", "pyro-ppl")},
        "good": k < MAX_K and ess > 400,
    }


def described(draws: dict[str, np.ndarray]) -> dict[str, Any]:
    """Return the moments of every entry ``[chain, draw, ...]``, constant entries left out, and the worst R-hat and ESS."""
    import arviz as az

    sites: dict[str, Any] = {}
    worst, fewest = 0.0, np.inf
    for name, values in draws.items():
        flat = values.reshape(*values.shape[:2], -1).astype(float)
        sd = flat.std((0, 1))
        varies = sd > 1e-9 * (1e-300 + np.abs(flat).max((0, 1)))
        ess = np.array([_ess(flat[:, :, i]) if varies[i] else np.nan for i in range(flat.shape[2])])
        sites[name] = {
            "mean": _numbers(flat.mean((0, 1))),
            "sd": _numbers(np.where(varies, sd, 0.0)),
            "ess": _numbers(ess, 4),
            "mcse": _numbers(sd / np.sqrt(ess)),
            "quantiles": [_numbers(np.quantile(flat, q, axis=(0, 1))) for q in (0.05, 0.5, 0.95)],
        }
        if varies.any():
            rhats = (
                [float(az.rhat(flat[:, :, i])) for i in range(flat.shape[2]) if varies[i]] if len(flat) > 1 else [1.0]
            )
            worst, fewest = max(worst, *rhats), min(fewest, float(np.nanmin(ess)))
    return {"sites": sites, "rhat": round(worst, 4), "ess": round(float(fewest), 1)}


def _ess(values: np.ndarray) -> float:
    """Return the smaller of the effective sample sizes of the mean and of the square."""
    import arviz as az

    return min(float(az.ess(values)), float(az.ess((values - values.mean()) ** 2)))


def _numbers(values: np.ndarray, digits: int = 7) -> list[float | None]:
    return [float(f"{value:.{digits}g}") if np.isfinite(value) else None for value in values]
