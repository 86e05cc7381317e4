"""
How much data does a method need? A simulation study
====================================================

Data sets are simulated from a model at parameters that are known, methods are fitted to each, and their estimates are held
against the truth. Laplace's approximation and mean-field VI of a logistic regression are compared with NUTS at three sample
sizes. On twenty observations the posterior of the slope is skewed towards large values, and so is its mean; Laplace centres a
Gaussian at the mode instead. Mean-field VI ignores that slope and intercept depend on each other: its intervals are too narrow.
"""

import sys
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pyro
import pyro.distributions as dist
import torch

import bnnzoo as bz

warnings.simplefilter("ignore", bz.FitWarning)  # of approximations that the study is about to judge

# %%
# A logistic regression with an intercept and a slope that is large.


def model(x: torch.Tensor, y: torch.Tensor | None = None) -> None:
    intercept = pyro.sample("intercept", dist.Normal(0.0, 2.0))
    slope = pyro.sample("slope", dist.Normal(0.0, 5.0))
    with pyro.plate("data", len(x)):
        pyro.sample("y", dist.Bernoulli(logits=intercept + slope * x), obs=y)


# %%
# The design: the study draws so many rows of it as the sample size says. The observations only say where the simulated ones go.

x = np.linspace(-1.0, 1.0, 320, dtype="float32")
num_repeats = 200
# sphinx_gallery_start_ignore
if "--smoke" in sys.argv:  # smaller settings, for the tests
    num_repeats = 6
# sphinx_gallery_end_ignore
methods = {
    "NUTS": bz.NUTS(num_chains=1, num_warmup=300, num_draws=400),
    "Laplace": bz.Laplace(),
    "mean-field VI": bz.MeanFieldVI(),
}
found = bz.validation.study(
    model,
    methods,
    x,
    np.zeros_like(x),
    sizes=(20, 80, 320),
    truth={"intercept": -1.0, "slope": 4.0},
    num_repeats=num_repeats,
    progress=False,
)
print(found["coverage"].sel(quantity="slope", level=0.9).to_dataframe()[["coverage"]].unstack("size").round(2))
print(found["bias"].sel(quantity="slope").to_dataframe()[["bias"]].unstack("size").round(2))

# %%
# Bias and coverage of the slope, with two standard errors. All methods see the same data sets, so that differences between them
# are known better than the bars say.

figure, axes = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
panels = (
    ("bias", found["bias"], found["bias_se"]),
    ("coverage", *(found[each].sel(level=0.9) for each in ("coverage", "coverage_se"))),
)
for axis, (name, values, errors) in zip(axes, panels, strict=True):
    for number, method in enumerate(methods):
        own, error = (each.sel(inference_method=method, quantity="slope") for each in (values, errors))
        axis.errorbar(own["size"] * 1.06**number, own, 2 * error, marker="o", capsize=3, label=method)
    axis.axhline(0.0 if name == "bias" else 0.9, color="black", linewidth=0.8)
    axis.set(
        xscale="log",
        xlabel="sample size",
        ylabel=f"{name} of the slope" + (", 90% interval" if name == "coverage" else ""),
    )
    axis.set_xticks([20, 80, 320], ["20", "80", "320"])
    axis.minorticks_off()
axes[0].legend()
plt.show()
