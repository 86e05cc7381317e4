"""PyMC's NUTS and ADVI, and nutpie, on cards of the zoo, with their own defaults.

Run: python -m benchmarks.peers.pymc_methods REFERENCES OUT [card,card] [method,method]
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from benchmarks.peers.cards import NUM_DRAWS, Fitted, outputs, run


def model_of(card, x, y):
    """Return PyMC's model of a card."""
    with pm.Model() as model:
        for number, (fan_in, width, sd) in enumerate(card.layers):
            w = pm.Normal(f"w{number}", 0.0, sd, shape=(fan_in, width))
            b = pm.Normal(f"b{number}", 0.0, card.bias_sd, shape=width)
            x = x @ w + b
            x = pt.tanh(x) if number < len(card.layers) - 1 else x
        f = x[:, 0]
        if card.kind == "normal":
            pm.Normal("y", f, card.noise, observed=y)
        elif card.kind == "poisson":
            pm.Poisson("y", pt.exp(f), observed=y)
        else:
            pm.Bernoulli("y", logit_p=f, observed=y)
    return model


def fitted(card, found, is_chain, gradients=None):
    """Return what is left of draws in PyMC's result."""
    sites = {name: found.posterior[name].to_numpy() for name in found.posterior.data_vars}
    return Fitted(outputs(card, sites), is_chain, gradients)


def by_nuts(sampler):
    """Return a method that calls `pm.sample` with its default settings, and four chains: of 1,000 + 1,000."""

    def fit(card, x, y):
        with model_of(card, x, y):
            found = pm.sample(nuts_sampler=sampler, chains=4, cores=1, random_seed=0, progressbar=False)
        steps = found.sample_stats["n_steps"].to_numpy()
        return fitted(card, found, True, int(np.sum(steps)))

    return fit


def by_advi(card, x, y):
    """Call `pm.fit` with its defaults: mean-field, 10,000 steps."""
    with model_of(card, x, y):
        found = pm.fit(random_seed=0, progressbar=False).sample(NUM_DRAWS, random_seed=0)
    return fitted(card, found, False, 10_000)


METHODS = {"pymc-nuts": by_nuts("pymc"), "nutpie": by_nuts("nutpie"), "pymc-advi": by_advi}

if __name__ == "__main__":
    run(METHODS)
