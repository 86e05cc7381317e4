"""
Evidence is not knowledge
=========================

An evidential network returns a Dirichlet distribution over class probabilities, and so has an epistemic uncertainty of its
own, without any posterior. But evidence is a function like any other and extrapolates like one: far from all data it grows.
"""

import argparse

import matplotlib.pyplot as plt
import numpy as np
import torch
import xarray as xr

import bnnzoo as bz
from bnnzoo.models.evidential import concentration
from bnnzoo.predictive import features

parser = argparse.ArgumentParser()
parser.add_argument("--smoke", action="store_true", help="seconds instead of minutes, of no statistical worth")
smoke = parser.parse_args().smoke

# %%
# Two clusters on a line, and a network that is fitted to them from five starts.

rng = np.random.default_rng(0)
labels = np.repeat([0, 1], 60)
x = rng.normal(scale=0.3, size=(120, 1)) + np.where(labels, 1.0, -1.0)[:, None]
model = bz.models.supervised(
    bz.models.mlp(1, hidden=(10,), out_features=2, activation="relu"),
    bz.priors.normal(1.0),
    bz.models.dirichlet_evidence(),
)
method = bz.MAP(num_members=5, num_steps=50 if smoke else 500, polish_steps=0)
posterior = bz.fit(model, method, x, labels, seed=0, progress=False)

# %%
# The network's output at places far beyond the clusters, as concentrations, and what they say is unknown.

places = np.linspace(-20, 20, 401)[:, None]
output = features(posterior, places, layer="2")
alpha = xr.apply_ufunc(lambda v: concentration(torch.as_tensor(v)).numpy(), output).rename(feature="class_id")
epistemic = bz.uncertainty.decompose_dirichlet(alpha)["epistemic"].isel(chain=0)

# %%
# Little is known between the clusters. But the network claims to know most where it has seen nothing at all.

figure, axis = plt.subplots(figsize=(6.5, 3.2), layout="constrained")
axis.plot(places[:, 0], epistemic.transpose("obs_id", "draw"), color="C1", alpha=0.6)
axis.plot(x[:, 0], np.zeros(len(x)), "k|", label="data")
axis.set(xlabel="x", ylabel="epistemic uncertainty (nats)")
axis.legend()
plt.show()
