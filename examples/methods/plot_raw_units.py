"""
Which fits are right, and do they say so?
=========================================

Swapping the inference method takes one argument. Whether the new fit is any good is another matter, and ``fit`` answers it at
its end: approximations are compared with the posterior, and a fit that is off says by how much, and where. Here are five methods
on two models as they are usually typed, in raw units and with default settings.
"""

import sys
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pyro
import pyro.distributions as dist
import torch

import bnnzoo as bz

# %%
# The first model is a quadratic regression of weight on height, in kilograms and centimetres. Nothing is standardised or
# centred, so that the three coefficients are almost collinear. The second has eight schools whose effects share a scale: its
# posterior is a funnel, of which no Gaussian is a good description.

random = np.random.default_rng(0)
height = random.normal(165, 12, size=200)
weight = 20 + 0.0016 * height**2 + random.normal(0, 5, size=200)


def growth(height: torch.Tensor, weight: torch.Tensor) -> None:
    a = pyro.sample("a", dist.Normal(0.0, 100.0))
    b = pyro.sample("b", dist.Normal(0.0, 10.0))
    c = pyro.sample("c", dist.Normal(0.0, 1.0))
    sigma = pyro.sample("sigma", dist.Uniform(0.0, 50.0))
    with pyro.plate("people", len(height)):
        pyro.sample("weight", dist.Normal(a + b * height + c * height**2, sigma), obs=weight)


def schools(se: torch.Tensor, effect: torch.Tensor) -> None:
    mu = pyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = pyro.sample("tau", dist.HalfCauchy(5.0))
    with pyro.plate("schools", 8):
        theta = pyro.sample("theta", dist.Normal(mu, tau))
        pyro.sample("effect", dist.Normal(theta, se), obs=effect)


se = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
effect = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
problems = {"quadratic": (growth, (height, weight), "b"), "eight schools": (schools, (se, effect), "tau")}

methods = {
    "NUTS": bz.NUTS(),
    "MeanFieldVI": bz.MeanFieldVI(),
    "FullRankVI": bz.FullRankVI(),
    "Laplace": bz.Laplace(),
    "Pathfinder": bz.Pathfinder(),
}
# sphinx_gallery_start_ignore
if "--smoke" in sys.argv:  # smaller settings, for the tests
    methods = {
        "NUTS": bz.NUTS(num_chains=2, num_warmup=50, num_draws=50, max_tree_depth=5),
        "MeanFieldVI": bz.MeanFieldVI(num_steps=50),
    }
# sphinx_gallery_end_ignore

# %%
# Every fit collects its warnings.

draws, said = {}, {}
for problem, (model, data, site) in problems.items():
    for name, method in methods.items():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", bz.FitWarning)
            posterior = bz.fit(model, method, *data, seed=0, dtype=torch.float64, progress=False)
        draws[problem, name] = bz.to_datatree(posterior)["posterior"][site].to_numpy().ravel()
        said[problem, name] = " ".join(str(each.message) for each in caught if issubclass(each.category, bz.FitWarning))

for (problem, name), sentence in said.items():
    print(f"{problem}, {name}: {sentence or 'nothing to say'}\n")

# %%
# The intervals hold 90% of the draws. Crosses mark the fits that warned.

figure, panels = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
for axes, (problem, (_, _, site)) in zip(panels, problems.items(), strict=True):
    for place, name in enumerate(methods):
        low, middle, high = np.quantile(draws[problem, name], [0.05, 0.5, 0.95])
        warned = bool(said[problem, name])
        axes.plot([low, high], [place, place], color="C1" if warned else "C0")
        axes.plot(middle, place, "x" if warned else "o", color="C1" if warned else "C0")
    axes.set(yticks=range(len(methods)), yticklabels=methods, xlabel=f"{site}, 90% interval", title=problem)
    axes.invert_yaxis()

# %%
# On the quadratic, NUTS, full-rank VI and Laplace agree and are quiet: NUTS learns the ridge from gradients during warm-up.
# Mean-field VI cannot be right: its interval is that of one coefficient with the others held fixed, a hundredth as wide. On the
# eight schools all but Laplace warn. Laplace integrates over the scale of a hierarchy, as INLA does, and has nothing to warn of.
# Pathfinder follows an optimiser for some dozen steps: on the ridge of the quadratic that is too few, in the funnel no Gaussian
# would do, and the weights of its draws tell both.

plt.show()
