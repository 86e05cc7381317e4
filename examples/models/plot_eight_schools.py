"""
Eight schools
=============

Not every model is a network. Eight schools coached their pupils for a test, and each measured an effect with a known standard
error. How much do the effects differ? The hierarchical model pools them as far as the data support it. It is written in
plain Pyro; methods are swapped as for networks, and ArviZ shows the result.
"""

import sys
import warnings

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pyro
import pyro.distributions as dist
import torch

import bnnzoo as bz

warnings.simplefilter("ignore", bz.FitWarning)  # of the approximations, which are judged below

# %%
# The effects and their standard errors (Rubin, 1981).

effects = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
errors = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def schools(errors: torch.Tensor, y: torch.Tensor | None = None) -> None:
    mu = pyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = pyro.sample("tau", dist.HalfCauchy(5.0))
    with pyro.plate("school", len(errors)):
        z = pyro.sample("z", dist.Normal(0.0, 1.0))  # the non-centred form: tau and z are nearly independent
        theta = pyro.deterministic("theta", mu + tau * z)
        pyro.sample("y", dist.Normal(theta, errors), obs=y)


methods = {"NUTS": bz.NUTS(num_warmup=500, num_draws=1000), "mean-field VI": bz.MeanFieldVI(num_steps=4000)}
# sphinx_gallery_start_ignore
if "--smoke" in sys.argv:  # smaller settings, for the tests
    methods = {
        "NUTS": bz.NUTS(num_chains=2, num_warmup=50, num_draws=50),
        "mean-field VI": bz.MeanFieldVI(num_steps=200),
    }
# sphinx_gallery_end_ignore
trees = {}
for name, method in methods.items():
    posterior = bz.fit(schools, method, errors, effects, seed=0, dtype=torch.float64, progress=False)
    trees[name] = bz.posterior_predictive(posterior, errors, effects)
    print(name, az.summary(trees[name], var_names=["mu", "tau", "theta"], kind="stats"), sep="\n")

# %%
# The reference posterior of posteriordb, from long runs, has mean 4.4 (sd 3.3) for mu and 3.6 (sd 3.2) for tau; NUTS agrees. The
# effects shrink towards their mean, by a lot: school 1 from 28 to about 6. Mean-field VI has mu right, but a tau with too short
# a tail (sd 2.3), and so it shrinks the effects a little more.

theta = {name: tree["posterior"]["theta"] for name, tree in trees.items()}
figure, axis = plt.subplots(figsize=(7, 3.6), layout="constrained")
for shift, (name, values) in zip((0.0, 0.2), theta.items(), strict=True):
    low, middle, high = values.quantile([0.05, 0.5, 0.95], ("chain", "draw")).values
    axis.errorbar(np.arange(8) + shift, middle, [middle - low, high - middle], fmt="o", label=name)
axis.errorbar(np.arange(8) - 0.2, effects, 1.645 * errors, fmt="x", color="gray", label="observed")
axis.set(xlabel="school", ylabel="effect", xticks=range(8), xticklabels=range(1, 9))
figure.legend(loc="outside upper center", ncols=3)

# %%
# Is the approximation good enough? If k-hat were above 0.7, the importance weights of VI's draws could not be trusted. It is
# about 0.4: the weights can correct what VI gets wrong about tau.

print(f"k-hat of mean-field VI: {float(bz.diagnostics.psis(trees['mean-field VI'])['pareto_k']):.2f}")
plt.show()
