"""
A line through inputs in many dimensions
========================================

Functions of one input can be plotted; those of ten cannot. Along the line through two observations, and beyond them, they can:
does the uncertainty grow where there are no data?
"""

import sys

import matplotlib.pyplot as plt

import bnnzoo as bz

# %%
# Progression of diabetes from ten inputs, and three methods.

data = bz.datasets.diabetes().split(test_size=0.2, seed=0).standardized()
model = bz.models.supervised(bz.models.mlp(10, hidden=(15,)), bz.priors.fan_in(1.0), bz.likelihoods.gaussian())
methods = {
    "NUTS": bz.NUTS(num_chains=2, num_warmup=300, num_draws=200),
    "mean-field VI": bz.MeanFieldVI(num_steps=4000),
    "deep ensemble": bz.DeepEnsemble(10),
}
# sphinx_gallery_start_ignore
if "--smoke" in sys.argv:  # smaller settings, for the tests
    methods = {
        "NUTS": bz.NUTS(num_chains=2, num_warmup=8, num_draws=10, max_tree_depth=2),
        "mean-field VI": bz.MeanFieldVI(num_steps=300, num_averaged=100),
        "deep ensemble": bz.DeepEnsemble(3, num_steps=30),
    }
# sphinx_gallery_end_ignore
fits = {
    name: bz.fit(model, method, data.x_train, data.y_train, seed=0, progress=False) for name, method in methods.items()
}

# %%
# The line goes from the patient with the lowest predicted progression to the one with the highest, and on by twice their distance
# in both directions. Zero is the first patient, one the second.

mean = bz.predict(fits["NUTS"], data.x_train)["conditional"]["mean"].mean(("chain", "draw")).values
low, high = int(mean.argmin()), int(mean.argmax())
inputs, places = bz.plots.line_inputs(data.x_train[low], data.x_train[high], num_points=61, extend=2.0)
trees = {name: bz.predict(posterior, inputs) for name, posterior in fits.items()}
patients = [0.0, 1.0], data.y_train[[low, high]]
text = {"xlabel": {"text": "place on the line"}, "ylabel": {"text": "progression, standardised"}}
bz.plots.plot_function(trees, places, observed=patients, visuals=text, figure_kwargs={"figsize": (10, 3.2)})

# %%
# The epistemic standard deviation between the two, and at the ends of the line. That of NUTS is three times as large far from the
# data, that of the ensemble five times, though it is much smaller in between. That of mean-field VI stays what it is.

for name, tree in trees.items():
    sd = tree["conditional"]["mean"].std(("chain", "draw")).values
    between = sd[(places >= 0) & (places <= 1)].mean()
    print(f"{name:14} between {between:.2f}, at the ends {sd[0]:.2f} and {sd[-1]:.2f}")
plt.show()
