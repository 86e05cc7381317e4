"""
What does a mass matrix save?
=============================

A step of a Hamiltonian or microcanonical chain is limited by the narrowest direction of the posterior, and a trajectory has to
cross the widest one. Where parameters are correlated, the two differ by a factor of hundreds, whatever the units. Every sampler
therefore learns a mass matrix during warm-up: ``mass_matrix="diagonal"`` knows the scales of the parameters, and the default,
``"auto"``, up to 16 directions besides, wherever draws and gradients look like those of a Gaussian.
"""

import sys

import arviz as az
import matplotlib.pyplot as plt
import pyro
import pyro.distributions as dist
import torch

import bnnzoo as bz

# %%
# A linear regression on ten measurements of 442 patients in raw units: age in years, blood pressure, six blood values. Two of
# these, total and low-density cholesterol, are correlated at 0.9, and all are far from zero, so that the intercept depends on
# every coefficient.

data = bz.datasets.diabetes()


def progression(x: torch.Tensor, y: torch.Tensor) -> None:
    a = pyro.sample("a", dist.Normal(150.0, 500.0))
    b = pyro.sample("b", dist.Normal(0.0, 50.0).expand([x.shape[1]]).to_event(1))
    sigma = pyro.sample("sigma", dist.HalfNormal(100.0))
    with pyro.plate("patients", len(x)):
        pyro.sample("y", dist.Normal(a + x @ b, sigma), obs=y)


samplers = {"NUTS": bz.NUTS, "HMC": bz.HMC, "ChEESHMC": bz.ChEESHMC, "MAMS": bz.MAMS}
settings = {}
# sphinx_gallery_start_ignore
if "--smoke" in sys.argv:  # smaller settings, for the tests
    samplers, settings = {"MAMS": bz.MAMS}, {"num_chains": 2, "num_warmup": 50, "num_draws": 50, "max_steps": 30}
# sphinx_gallery_end_ignore

# %%
# Each sampler is fitted twice. What counts is the number of gradients, warm-up included, for each effective draw of the
# parameter that mixes worst.

cost = {}
for name, sampler in samplers.items():
    for mass_matrix in ("diagonal", "auto"):
        method = sampler(mass_matrix=mass_matrix, **settings)
        posterior = bz.fit(progression, method, data.x, data.y, seed=0, dtype=torch.float64, progress=False)
        ess = az.ess(bz.to_datatree(posterior)["posterior"].to_dataset())
        cost[name, mass_matrix] = posterior.info.num_gradients / float(ess.to_array().min())
        print(f"{name:9} {mass_matrix:9} {cost[name, mass_matrix]:9,.1f} gradients for an effective draw")

# %%
# The directions that were found are part of what the fit has tuned: variances, directions in units of their roots, and the
# variance along each, which is 1 where no direction was needed. All chains of ``MAMS`` share them.

tuning = posterior.info.tuning
print({name: tuple(value.shape) for name, value in tuning.items()})
print("variances along the directions:", tuning["eigenvalues"][0].numpy().round(5))

# %%
# A line joins the two fits of a sampler.

figure, axes = plt.subplots(figsize=(6.4, 0.6 + 0.6 * len(samplers)), layout="constrained")
for place, name in enumerate(samplers):
    pair = [cost[name, "auto"], cost[name, "diagonal"]]
    axes.plot(pair, [place, place], color="0.8", zorder=0)
    axes.plot(pair[1], place, "o", color="C1", label="diagonal" if place == 0 else None)
    axes.plot(pair[0], place, "o", color="C0", label="auto" if place == 0 else None)
axes.set(xscale="log", yticks=range(len(samplers)), yticklabels=samplers, xlabel="gradients for an effective draw")
axes.margins(y=0.3)
axes.invert_yaxis()
axes.legend(frameon=False, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.0))  # above: its points are no data

# %%
# Centring and standardising the measurements would save a part of this; the correlation among the blood values would remain.

plt.show()
