"""
Is the method right for this model? Simulation-based calibration
================================================================

Parameters are drawn from the prior, data are simulated from them, and the model is fitted to each data set. The rank of the
true parameter among the draws of a right posterior is uniform. Mean-field VI ignores the correlation between the intercept
and the slope of this regression, and its draws are too narrow; Laplace's approximation, exact here but for the noise, is not.
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

warnings.simplefilter("ignore", bz.FitWarning)  # of a fit that ranks are about to find out

# %%
# A regression whose inputs are far from zero, so that intercept and slope are strongly correlated.

x = np.linspace(2.0, 4.0, 20, dtype="float32")


def model(x: torch.Tensor, y: torch.Tensor | None = None) -> None:
    intercept = pyro.sample("intercept", dist.Normal(0.0, 1.0))
    slope = pyro.sample("slope", dist.Normal(0.0, 1.0))
    with pyro.plate("data", len(x)):
        pyro.sample("y", dist.Normal(intercept + slope * x, 0.5), obs=y)


# %%
# The observations only say where the simulated ones go.

num_simulations = 100
# sphinx_gallery_start_ignore
if "--smoke" in sys.argv:  # smaller settings, for the tests
    num_simulations = 20
# sphinx_gallery_end_ignore
methods = {"mean-field VI": bz.MeanFieldVI(num_steps=500), "Laplace": bz.Laplace()}
ranks = {
    name: bz.validation.sbc(
        model, method, x, np.zeros_like(x), num_simulations=num_simulations, keep=True, progress=False
    )
    for name, method in methods.items()
}
for name, found in ranks.items():
    print(name)
    print(bz.validation.sbc_verdict(found).round(3))

# %%
# Ranks of mean-field VI, whose draws are too narrow: the truth is often below or above nearly all of them. All bars of a right
# method lie inside the band in 95 of 100 cases.

bz.plots.plot_ranks(ranks["mean-field VI"], var_names=["intercept", "slope", "log_likelihood"])
plt.show()

# %%
# The same by ArviZ, without bins: the difference between the distribution of the ranks and the uniform one.

az.plot_ecdf_pit(ranks["mean-field VI"], var_names=["intercept", "slope", "log_likelihood"])
plt.show()

# %%
# Ranks judge one quantity at a time. With the draws kept, a classifier that learns to tell truths from draws judges all of them
# together, correlations included.

for name, found in ranks.items():
    print(f"{name}: {bz.validation.sbc_joint(found).loc['joint', 'sentence']}")
