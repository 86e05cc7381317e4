"""
What do divergences say?
========================

A trajectory diverges where a step is too long for the place it has come to. It is the one warning of a Hamiltonian sampler that
points at a part of the posterior: the draws may avoid it. The classic case is a hierarchy whose scale can be small. Written in
one way it has a funnel, which no step size suits; written in another it has a narrow place, for which shorter steps are enough.
Warm-up notices narrow places, and takes shorter steps by itself.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
import pyro
import pyro.distributions as dist
import torch

import bnnzoo as bz

# %%
# The effects of coaching in eight schools, with known standard errors (Rubin 1981). The centred model draws each effect around
# the mean, the other one draws how many standard deviations it is away.

effects = torch.tensor([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
errors = torch.tensor([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def centred(errors: torch.Tensor, y: torch.Tensor) -> None:
    mean, scale = pyro.sample("mean", dist.Normal(0.0, 5.0)), pyro.sample("scale", dist.HalfCauchy(5.0))
    with pyro.plate("schools", len(errors)):
        effect = pyro.sample("effect", dist.Normal(mean, scale))
        pyro.sample("y", dist.Normal(effect, errors), obs=y)


def non_centred(errors: torch.Tensor, y: torch.Tensor) -> None:
    mean, scale = pyro.sample("mean", dist.Normal(0.0, 5.0)), pyro.sample("scale", dist.HalfCauchy(5.0))
    with pyro.plate("schools", len(errors)):
        z = pyro.sample("z", dist.Normal(0.0, 1.0))
        effect = pyro.deterministic("effect", mean + scale * z)
        pyro.sample("y", dist.Normal(effect, errors), obs=y)


models, settings = {"centred": centred, "non-centred": non_centred}, {}
# sphinx_gallery_start_ignore
if "--smoke" in sys.argv:  # smaller settings, for the tests
    settings = {"num_chains": 2, "num_warmup": 60, "num_draws": 60, "max_tree_depth": 5}
# sphinx_gallery_end_ignore

# %%
# Both are fitted by default settings. ``tuning["target_accept"]`` is the acceptance at which the steps of each chain aimed in the
# end: 0.8 was asked for. A window of warm-up in which more trajectories are hardly accepted than a Gaussian would have raises it
# halfway to 1.

trees = {}
for name, model in models.items():
    method = bz.NUTS(**settings)
    posterior = bz.fit(model, method, errors, effects, seed=0, dtype=torch.float64, progress=False)
    trees[name] = bz.to_datatree(posterior)
    diverging = trees[name]["sample_stats"]["diverging"]
    print(f"{name}: {int(diverging.sum())} divergences, targets {posterior.info.tuning['target_accept'].tolist()}")

# %%
# Shorter steps suffice for the non-centred model. In the funnel they only come a little further down: trajectories diverge at the
# neck, where the scale is small and all effects must agree. The remedy is the other model, not a target closer to 1.

figure, axes = plt.subplots(1, 2, figsize=(9, 4), sharex=True, sharey=True, layout="constrained")
for axis, (name, tree) in zip(axes, trees.items(), strict=True):
    scale, effect = np.log(tree["posterior"]["scale"].values), tree["posterior"]["effect"].values[..., 0]
    diverging = tree["sample_stats"]["diverging"].values
    axis.scatter(effect.ravel(), scale.ravel(), s=3, alpha=0.25, color="0.5", label="draws")
    axis.scatter(effect[diverging], scale[diverging], s=22, color="C1", label="after a divergence")
    axis.set(title=name, xlabel="effect in the first school", xlim=(-30, 60))
axes[0].set_ylabel("log of the scale")
axes[0].legend(loc="lower right")
plt.show()
