"""
Prior predictive checks: priors over functions
==============================================

Nobody has an opinion about a single weight of a network. Judge a prior by the functions it implies: this example
draws functions from four priors, for networks with 10 and with 200 hidden units.

Under independent standard normal weights, functions grow with the width of the network, because each unit adds
variance. Dividing the variance of a weight by the fan-in, the number of inputs of its layer, keeps their size
constant. Cauchy output weights with a scale inversely proportional to the width let single units dominate: a few
functions have one large step, most have none. Layer-wise scales with a hyperprior leave the size to the data: nearly
flat and very steep functions both have high prior probability.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
import pyro.distributions as dist

import bnnzoo as bz

num_draws = 400
# sphinx_gallery_start_ignore
if "--smoke" in sys.argv:  # smaller settings, for the tests
    num_draws = 20
# sphinx_gallery_end_ignore

# %%
# A prior is called once for each parameter of the network. `by_parameter` chooses a prior by the name of the
# parameter; ``"2.weight"`` are the weights from the hidden layer to the output.


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
# `prior_predictive` returns a tree like that of a fitted model. The functions are the conditional means, one for each
# draw of the weights.

x = np.linspace(-3, 3, 121)[:, None]
no_data = np.zeros(len(x))  # only marks y as observed; the values are not used


def draw_functions(prior: bz.priors.Prior, width: int) -> np.ndarray:
    """Functions [draw, x] of a network with one hidden layer under a prior."""
    model = bz.models.supervised(bz.models.mlp(1, (width,)), prior, bz.likelihoods.gaussian(0.1))
    tree = bz.prior_predictive(model, x, no_data, num_draws=num_draws, seed=0)
    return tree["conditional"]["mean"].sel(chain=0).values


# %%
# Shaded: central 50% and 90% of the functions at each x. Lines: ten of them.

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
