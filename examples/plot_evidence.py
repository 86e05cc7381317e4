"""
Evidence is not knowledge
=========================

An evidential network returns a Dirichlet distribution over class probabilities, and so has an epistemic uncertainty of its
own, without any posterior. It is a function like any other, and extrapolates like one: far from all data its evidence grows.
An ensemble, whose members were free to differ there, does not make that mistake.
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
# Two clusters in the plane, and a line through both that goes on far beyond them.

rng = np.random.default_rng(0)
labels = np.repeat([0, 1], 60)
x = rng.normal(scale=0.4, size=(120, 2)) + np.where(labels, 1.0, -1.0)[:, None]
distance = np.linspace(-8, 8, 161)
line = distance[:, None] * np.array([[1.0, -1.0]]) + 1.0  # away from both, along the boundary and beyond

net = bz.models.mlp(2, hidden=(20,), out_features=2, activation="relu")
method = bz.MAP(num_members=5, num_steps=50 if smoke else 1000, polish_steps=0)

evidential = bz.models.supervised(net, bz.priors.fan_in(1.5), bz.models.dirichlet_evidence())
fitted = bz.fit(evidential, method, x, labels, seed=0, progress=False)
output = features(fitted, line, layer="2")
alpha = xr.apply_ufunc(lambda v: concentration(torch.as_tensor(v)).numpy(), output).rename(feature="class_id")
split = bz.uncertainty.decompose_dirichlet(alpha).isel(chain=0)

# %%
# The same network with an ordinary likelihood, as an ensemble of five.

ordinary = bz.models.supervised(net, bz.priors.fan_in(1.5), bz.likelihoods.categorical())
tree = bz.predict(bz.fit(ordinary, method, x, labels, seed=0, progress=False), line)
ensemble = bz.uncertainty.mutual_information(tree)

# %%
# Epistemic uncertainty of both along the line, each relative to its largest value.

figure, axis = plt.subplots(figsize=(6.5, 3.2), layout="constrained")
for draw in range(5):
    member = split["epistemic"].isel(draw=draw)
    axis.plot(
        distance, member / member.max(), color="C1", alpha=0.5, label="evidential, each of five" if draw == 0 else None
    )
axis.plot(distance, ensemble / ensemble.max(), color="C0", label="ensemble of five")
axis.axvspan(-0.7, 0.7, color="gray", alpha=0.2, label="near the second cluster")
axis.set(xlabel="distance from the cluster, along a line away from both", ylabel="epistemic uncertainty / its maximum")
axis.legend(fontsize="small")
plt.show()
