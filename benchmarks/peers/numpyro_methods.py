"""NumPyro's NUTS and Gaussian guides, and blackjax's Pathfinder and MCLMC, on cards of the zoo, with their own defaults.

Run: python -m benchmarks.peers.numpyro_methods REFERENCES OUT [card,card] [method,method]

SVI has no default optimiser or length: Adam with a step of 0.01 and 20,000 steps, fixed before a result was seen.
"""

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS, SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoMultivariateNormal, AutoNormal
from numpyro.infer.util import initialize_model

from benchmarks.peers.cards import NUM_DRAWS, Fitted, outputs, run

STEPS, STEP_SIZE = 20_000, 0.01


def model_of(card):
    """Return NumPyro's model of a card."""

    def model(x, y=None):
        for number, (fan_in, width, sd) in enumerate(card.layers):
            w = numpyro.sample(f"w{number}", dist.Normal(0.0, sd).expand([fan_in, width]).to_event(2))
            b = numpyro.sample(f"b{number}", dist.Normal(0.0, card.bias_sd).expand([width]).to_event(1))
            x = x @ w + b
            x = jnp.tanh(x) if number < len(card.layers) - 1 else x
        f = x[:, 0]
        outcome = {
            "normal": lambda: dist.Normal(f, card.noise),
            "poisson": lambda: dist.Poisson(jnp.exp(f)),
            "bernoulli": lambda: dist.Bernoulli(logits=f),
        }
        numpyro.sample("y", outcome[card.kind](), obs=y)

    return model


def by_nuts(card, x, y):
    """Fit as typed: four chains of 1,000 + 1,000."""
    mcmc = MCMC(NUTS(model_of(card)), num_warmup=1000, num_samples=NUM_DRAWS, num_chains=4, progress_bar=False)
    mcmc.run(jax.random.PRNGKey(0), jnp.asarray(x), jnp.asarray(y), extra_fields=("num_steps",))
    steps = int(np.sum(mcmc.get_extra_fields()["num_steps"]))
    return Fitted(outputs(card, mcmc.get_samples(group_by_chain=True)), True, steps)


def by_guide(guide_class):
    """Return a method that fits a guide and draws from it."""

    def fit(card, x, y):
        guide = guide_class(model_of(card))
        svi = SVI(model_of(card), guide, numpyro.optim.Adam(STEP_SIZE), Trace_ELBO())
        found = svi.run(jax.random.PRNGKey(0), STEPS, jnp.asarray(x), jnp.asarray(y), progress_bar=False)
        drawn = guide.sample_posterior(jax.random.PRNGKey(1), found.params, sample_shape=(1, NUM_DRAWS))
        return Fitted(outputs(card, drawn), False, STEPS)

    return fit


def _density(card, x, y):
    args = (jnp.asarray(x), jnp.asarray(y))
    start, potential, constrain, _ = initialize_model(jax.random.PRNGKey(0), model_of(card), model_args=args)
    return start.z, (lambda z: -potential(z)), constrain


def by_pathfinder(card, x, y):
    """Fit blackjax's single-path Pathfinder."""
    start, log_density, constrain = _density(card, x, y)
    state, _ = blackjax.vi.pathfinder.approximate(jax.random.PRNGKey(0), log_density, start)
    drawn, _ = blackjax.vi.pathfinder.sample(jax.random.PRNGKey(1), state, NUM_DRAWS)
    return Fitted(outputs(card, {name: np.asarray(v)[None] for name, v in jax.vmap(constrain)(drawn).items()}))


def by_mclmc(card, x, y):
    """Run blackjax's MCLMC, tuned by its own function: one chain of 40,000 steps, every tenth kept."""
    start, log_density, constrain = _density(card, x, y)
    steps, thin = 40_000, 10
    state = blackjax.mcmc.mclmc.init(position=start, logdensity_fn=log_density, rng_key=jax.random.PRNGKey(2))
    kernel = blackjax.mcmc.mclmc.build_kernel(integrator=blackjax.mcmc.integrators.isokinetic_mclachlan)
    state, tuned, num_tuning = blackjax.mclmc_find_L_and_step_size(
        mclmc_kernel=kernel, logdensity_fn=log_density, num_steps=steps, state=state, rng_key=jax.random.PRNGKey(3)
    )
    sampler = blackjax.mclmc(
        log_density, L=tuned.L, step_size=tuned.step_size, inverse_mass_matrix=tuned.inverse_mass_matrix
    )

    def step(current, key):
        moved, _ = sampler.step(key, current)
        return moved, moved.position

    _, path = jax.lax.scan(step, state, jax.random.split(jax.random.PRNGKey(4), steps))
    kept = jax.vmap(constrain)(jax.tree.map(lambda v: v[::thin], path))
    gradients = 2 * (int(num_tuning) + steps)  # two a step of the integrator
    return Fitted(outputs(card, {name: np.asarray(v)[None] for name, v in kept.items()}), True, gradients)


METHODS = {
    "numpyro-nuts": by_nuts,
    "numpyro-auto-normal": by_guide(AutoNormal),
    "numpyro-auto-mvn": by_guide(AutoMultivariateNormal),
    "blackjax-pathfinder": by_pathfinder,
    "blackjax-mclmc": by_mclmc,
}

if __name__ == "__main__":
    run(METHODS)
