"""NumPyro's NUTS and Gaussian guides, and blackjax's Pathfinder and MCLMC, on cards of the zoo, with their own defaults.

Run: python numpyro_methods.py REFERENCES OUT [card,card] [method,method]

REFERENCES is what ``bnnzoo zoo export`` wrote; OUT gets a netCDF tree for each card and method. SVI has no default optimiser or
length: Adam with a step of 0.01 and 20,000 steps, fixed before a result was seen.
"""

import json
import sys
import time
from itertools import pairwise
from pathlib import Path

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import xarray as xr
from numpyro.infer import MCMC, NUTS, SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoMultivariateNormal, AutoNormal
from numpyro.infer.util import initialize_model

NUM_DRAWS = 1000
STEPS, STEP_SIZE = 20_000, 0.01


def network(x, sizes, gain, act):
    """Draw weights N(0, gain² / fan-in) and biases N(0, 1) and return the output of a multilayer perceptron."""
    for number, (fan_in, width) in enumerate(pairwise(sizes)):
        w = numpyro.sample(f"w{number}", dist.Normal(0.0, gain / fan_in**0.5).expand([fan_in, width]).to_event(2))
        b = numpyro.sample(f"b{number}", dist.Normal(0.0, 1.0).expand([width]).to_event(1))
        x = x @ w + b
        x = act(x) if number < len(sizes) - 2 else x
    return x[:, 0]


def linear(x, sd):
    """Draw coefficients and an intercept N(0, sd²)."""
    w = numpyro.sample("w", dist.Normal(0.0, sd).expand([x.shape[1]]).to_event(1))
    return x @ w + numpyro.sample("b", dist.Normal(0.0, sd))


def outcome(predictor, kind, noise, y):
    """Observe y, and record the expected outcome or the class probabilities."""
    if kind == "normal":
        numpyro.deterministic("mean", predictor)
        numpyro.sample("y", dist.Normal(predictor, noise), obs=y)
    elif kind == "poisson":
        numpyro.deterministic("mean", jnp.exp(predictor))
        numpyro.sample("y", dist.Poisson(jnp.exp(predictor)), obs=y)
    else:
        p = jax.nn.sigmoid(predictor)
        numpyro.deterministic("probs", jnp.stack([1 - p, p], -1))
        numpyro.sample("y", dist.Bernoulli(logits=predictor), obs=y)


def model_of(card):
    """Return NumPyro's model of a card, written from the words of its JSON file."""
    tanh = jnp.tanh
    models = {
        "linear-regression": lambda x, y=None: outcome(linear(x, 1.0), "normal", 0.5, y),
        "logistic-regression": lambda x, y=None: outcome(linear(x, 1.5), "bernoulli", None, y),
        "cubic": lambda x, y=None: outcome(network(x, (1, 20, 1), 3.0, tanh), "normal", 3 / 25, y),
        "two-moons": lambda x, y=None: outcome(network(x, (2, 10, 1), 3.0, tanh), "bernoulli", None, y),
        "overlapping-classes": lambda x, y=None: outcome(network(x, (1, 10, 1), 3.0, tanh), "bernoulli", None, y),
        "poisson-counts": lambda x, y=None: outcome(network(x, (1, 10, 1), 1.5, tanh), "poisson", None, y),
    }
    return models[card]


def by_nuts(model, x, y):
    """Return draws of the sites as typed: four chains of 1,000 + 1,000."""
    mcmc = MCMC(NUTS(model), num_warmup=1000, num_samples=NUM_DRAWS, num_chains=4, progress_bar=False)
    mcmc.run(jax.random.PRNGKey(0), x, y, extra_fields=("num_steps",))
    sites = {name: np.asarray(v) for name, v in mcmc.get_samples(group_by_chain=True).items()}
    return sites, int(np.sum(mcmc.get_extra_fields()["num_steps"]))


def by_guide(guide_class):
    """Return a function that fits a guide and draws from it."""

    def run(model, x, y):
        guide = guide_class(model)
        svi = SVI(model, guide, numpyro.optim.Adam(STEP_SIZE), Trace_ELBO())
        found = svi.run(jax.random.PRNGKey(0), STEPS, x, y, progress_bar=False)
        drawn = guide.sample_posterior(jax.random.PRNGKey(1), found.params, sample_shape=(NUM_DRAWS,))
        return {name: np.asarray(v)[None] for name, v in drawn.items()}, STEPS

    return run


def _density(model, x, y):
    start, potential, constrain, _ = initialize_model(jax.random.PRNGKey(0), model, model_args=(x, y))
    return start.z, (lambda z: -potential(z)), constrain


def by_pathfinder(model, x, y):
    """Return draws of blackjax's single-path Pathfinder."""
    start, log_density, constrain = _density(model, x, y)
    state, _ = blackjax.vi.pathfinder.approximate(jax.random.PRNGKey(0), log_density, start)
    drawn, _ = blackjax.vi.pathfinder.sample(jax.random.PRNGKey(1), state, NUM_DRAWS)
    return {name: np.asarray(v)[None] for name, v in jax.vmap(constrain)(drawn).items()}, None


def by_mclmc(model, x, y):
    """Return draws of blackjax's MCLMC, tuned by its own function: one chain of 40,000 steps, every tenth kept."""
    start, log_density, constrain = _density(model, x, y)
    steps, thin = 40_000, 10
    state = blackjax.mcmc.mclmc.init(position=start, logdensity_fn=log_density, rng_key=jax.random.PRNGKey(2))
    kernel = lambda inverse_mass_matrix: blackjax.mcmc.mclmc.build_kernel(  # noqa: E731
        logdensity_fn=log_density,
        integrator=blackjax.mcmc.integrators.isokinetic_mclachlan,
        inverse_mass_matrix=inverse_mass_matrix,
    )
    state, tuned, *_ = blackjax.mclmc_find_L_and_step_size(
        mclmc_kernel=kernel, num_steps=steps, state=state, rng_key=jax.random.PRNGKey(3)
    )
    sampler = blackjax.mclmc(
        log_density, L=tuned.L, step_size=tuned.step_size, inverse_mass_matrix=tuned.inverse_mass_matrix
    )

    def step(current, key):
        moved, _ = sampler.step(key, current)
        return moved, moved.position

    _, path = jax.lax.scan(step, state, jax.random.split(jax.random.PRNGKey(4), steps))
    kept = jax.tree.map(lambda v: v[::thin], path)
    gradients = 2 * 2 * steps  # two a step of the integrator, in tuning and after it
    return {name: np.asarray(v)[None] for name, v in jax.vmap(constrain)(kept).items()}, gradients


METHODS = {
    "numpyro-nuts": by_nuts,
    "numpyro-auto-normal": by_guide(AutoNormal),
    "numpyro-auto-mvn": by_guide(AutoMultivariateNormal),
    "blackjax-pathfinder": by_pathfinder,
    "blackjax-mclmc": by_mclmc,
}
MCMC_METHODS = ("numpyro-nuts", "blackjax-mclmc")


def predicted(model, sites, x):
    """Return draws [chain, draw, row, ...] of the expected outcome, or of the class probabilities, at test rows."""
    flat = {name: v.reshape(-1, *v.shape[2:]) for name, v in sites.items() if name not in ("mean", "probs")}
    found = numpyro.infer.Predictive(model, flat)(jax.random.PRNGKey(5), x)
    name = "probs" if "probs" in found else "mean"
    chains = next(iter(sites.values())).shape[0]
    return name, np.asarray(found[name]).reshape(chains, -1, *found[name].shape[1:])


def main(references, out, cards, methods):
    """Write a tree for each card and method that has none."""
    out.mkdir(parents=True, exist_ok=True)
    for card in cards:
        data = json.loads((references / "data" / f"{card}.json").read_text())
        x, y = (jnp.asarray(np.array(data["train"][name])) for name in ("x", "y"))
        test = jnp.asarray(np.array(data["test"]["x"]))
        for method in methods:
            path = out / f"{card}.{method}.nc"
            if path.exists():
                continue
            model, begun = model_of(card), time.perf_counter()
            sites, gradients = METHODS[method](model, x, y)
            seconds = time.perf_counter() - begun
            name, values = predicted(model, sites, test)
            dims = ("chain", "draw", "obs_id", "class_id")[: values.ndim]
            tree = xr.DataTree.from_dict({"conditional": xr.Dataset({name: (dims, values.astype(float))})})
            tree.attrs = {"sampling": "mcmc" if method in MCMC_METHODS else "iid", "seconds": seconds, "seed": 0}
            tree.attrs |= {} if gradients is None else {"num_gradients": gradients}
            tree.to_netcdf(path, engine="h5netcdf")
            print(card, method, f"{seconds:.1f} s", flush=True)


if __name__ == "__main__":
    all_cards = (
        "linear-regression",
        "logistic-regression",
        "cubic",
        "two-moons",
        "overlapping-classes",
        "poisson-counts",
    )
    asked = [each.split(",") for each in sys.argv[3:5]] + [None, None]
    main(Path(sys.argv[1]), Path(sys.argv[2]), asked[0] or all_cards, asked[1] or tuple(METHODS))
