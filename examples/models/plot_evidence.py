"""
Evidential deep learning far from the data
==========================================

An evidential network returns a Dirichlet distribution over class probabilities, and so reports an epistemic
uncertainty without a posterior over weights. But its evidence extrapolates like any other function of a network: far
from all data it grows.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
import torch
import xarray as xr

import bnnzoo as bz
from bnnzoo.models.evidential import concentration
from bnnzoo.predictive import features

# %%
# Two clusters on a line, and a network fitted from five starting points.

rng = np.random.default_rng(0)
labels = np.repeat([0, 1], 60)
x = rng.normal(scale=0.3, size=(120, 1)) + np.where(labels, 1.0, -1.0)[:, None]
model = bz.models.supervised(
    bz.models.mlp(1, hidden=(10,), out_features=2, activation="relu"),
    bz.priors.normal(1.0),
    bz.models.dirichlet_evidence(),
)
method = bz.MAP(num_members=5, num_steps=500, polish_steps=0)
# sphinx_gallery_start_ignore
if "--smoke" in sys.argv:  # smaller settings, for the tests
    method = bz.MAP(num_members=5, num_steps=50, polish_steps=0)
# sphinx_gallery_end_ignore
posterior = bz.fit(model, method, x, labels, seed=0, progress=False)

# %%
# The concentrations that the network returns at inputs far beyond the clusters, and their epistemic uncertainty.

places = np.linspace(-20, 20, 401)[:, None]
output = features(posterior, places, layer="2")
alpha = xr.apply_ufunc(lambda v: concentration(torch.as_tensor(v)).numpy(), output).rename(feature="class_id")
epistemic = bz.uncertainty.decompose_dirichlet(alpha)["epistemic"].isel(chain=0)

# %%
# The network reports high uncertainty between the clusters, and the lowest uncertainty far from all data.

figure, axis = plt.subplots(figsize=(6.5, 3.2), layout="constrained")
axis.plot(places[:, 0], epistemic.transpose("obs_id", "draw"), color="C1", alpha=0.6)
axis.plot(x[:, 0], np.zeros(len(x)), "k|", label="data")
axis.set(xlabel="x", ylabel="epistemic uncertainty (nats)")
axis.legend()
plt.show()
