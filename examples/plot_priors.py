"""
Functions that a prior over weights means
=========================================

Nobody has an opinion about a single weight of a network. A prior is judged by the functions it implies: this page draws
them, before any data is seen, for networks of 10 and of 200 hidden units.

Under independent standard normal weights the functions grow with the width, because every further unit adds variance.
Dividing the variance of a weight by the number of inputs of its layer, `fan_in`, keeps their size. Cauchy weights of the
output, with a scale divided by the width, let single units stand out: a few functions have one large step, most have
none. Under layer-wise scales with a prior of their own the size is left to the data: nearly flat and very steep functions
are both likely.
"""

import argparse

import matplotlib.pyplot as plt
import numpy as np
import pyro.distributions as dist

import bnnzoo as bz

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--smoke", action="store_true", help="a few draws, to see that the script runs")
num_draws = 20 if parser.parse_args().smoke else 400

# %%
# A prior is an object that is asked once for every parameter of the network. `by_parameter` hands the parameters to
# different priors by name; ``"2.weight"`` are the weights from the hidden layer to the output.


def make_priors(width: int) -> dict[str, bz.priors.Prior]:
    """The priors to compare, for a network with `width` hidden units."""
    cauchy = bz.priors.student_t(df=1.0, scale=2.0 / width)
    return {
        "normal(1)": bz.priors.normal(1.0),
        "fan_in(3, 3)": bz.priors.fan_in(3.0, 3.0),
        "Cauchy output weights": bz.priors.by_parameter({"2.weight": cauchy}, default=bz.priors.normal(3.0)),
        "layer-wise scales": bz.priors.layerwise(dist.HalfNormal(3.0), by_fan_in=True),
    }


# %%
# `prior_predictive` returns the same tree as a fitted model does. The functions are the conditional means, one for each
# draw: what the network would say if its weights were known.

x = np.linspace(-3, 3, 121)[:, None]
no_data = np.zeros(len(x))  # says that y is real and what is observed; its values are not used


def draw_functions(prior: bz.priors.Prior, width: int) -> np.ndarray:
    """Functions [draw, x] of a network with one hidden layer under a prior."""
    model = bz.models.supervised(bz.models.mlp(1, (width,)), prior, bz.likelihoods.gaussian(0.1))
    tree = bz.prior_predictive(model, x, no_data, num_draws=num_draws, seed=0)
    return tree["conditional"]["mean"].sel(chain=0).values


# %%
# Shaded are the central 50% and 90% of functions at each x; the lines are ten of them.

widths = (10, 200)
figure, axes = plt.subplots(2, 4, figsize=(12, 5), sharex=True, sharey="col", layout="constrained")
for row, width in enumerate(widths):
    for axis, (name, prior) in zip(axes[row], make_priors(width).items(), strict=True):
        functions = draw_functions(prior, width)
        for level, shade in ((0.9, 0.15), (0.5, 0.3)):
            low, high = np.quantile(functions, [(1 - level) / 2, (1 + level) / 2], axis=0)
            axis.fill_between(x[:, 0], low, high, color="C0", alpha=shade, linewidth=0)
        axis.plot(x[:, 0], functions[:10].T, color="C1", linewidth=0.8)
        axis.set(title=name, ylim=(-25, 25) if name == "normal(1)" else (-12, 12))
    axes[row, 0].set_ylabel(f"f(x), {width} units")
for axis in axes[-1]:
    axis.set_xlabel("x")
plt.show()
