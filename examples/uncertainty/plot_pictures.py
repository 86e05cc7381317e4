"""
Uncertainty maps, simplexes and histograms
==========================================

Three classes in the plane. A map shows where a classifier is uncertain and why, the simplex shows the draws behind one
prediction, and histograms show whether the uncertainty detects errors and out-of-distribution inputs.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np

import bnnzoo as bz

# %%
# Two of the classes overlap; the third lies apart.

rng = np.random.default_rng(0)
centres = np.array([[-1.0, 0.0], [0.5, 0.0], [0.0, 3.0]])
y = rng.integers(3, size=240)
x = centres[y] + 0.6 * rng.normal(size=(240, 2))
model = bz.models.supervised(bz.models.mlp(2, (20,), 3), bz.priors.fan_in(2.0), bz.likelihoods.categorical())
methods = {
    "NUTS": bz.NUTS(num_chains=2, num_warmup=300, num_draws=200),
    "MFVI": bz.MeanFieldVI(num_steps=2000),
}
num_points = 40
# sphinx_gallery_start_ignore
if "--smoke" in sys.argv:  # smaller settings, for the tests
    methods = {
        "NUTS": bz.MAP(num_members=4, num_steps=40, polish_steps=0),
        "MFVI": bz.MeanFieldVI(num_steps=40),
    }
    num_points = 10
# sphinx_gallery_end_ignore
fits = {name: bz.fit(model, method, x[:160], y[:160], seed=0, progress=False) for name, method in methods.items()}

# %%
# Aleatoric uncertainty is largest where classes meet among the observations, epistemic uncertainty where they meet far from them.

grid = bz.plots.grid_inputs((-4, -3), (4, 6), num_points)
maps = {name: bz.predict(fit, grid) for name, fit in fits.items()}
bz.plots.plot_uncertainty_map(maps, grid, observed=x[:160])

# %%
# The draws behind three predictions: inside a class, between two of them, and far from all.

three = bz.predict(fits["NUTS"], np.array([[0.0, 3.0], [-0.25, 0.0], [4.0, -2.0]]))
bz.plots.plot_simplex(three, rows=[0, 1, 2], figure_kwargs={"figsize": (9, 3)})

# %%
# Does the entropy tell wrong predictions from right ones?

test = {name: bz.predict(fit, x[160:], y[160:]) for name, fit in fits.items()}
bz.plots.plot_uncertainty_histogram(test, num_bins=12)
print(bz.calibration.confusion_matrix(test["NUTS"]).values)
bz.calibration.rank_errors(test["NUTS"], by="nll").to_dataframe().head()

# %%
# And inputs unlike the training data from others? The mutual information does under NUTS, and hardly under mean-field VI (MFVI).

far = {name: bz.predict(fit, x[160:] + np.array([6.0, -4.0])) for name, fit in fits.items()}
bz.plots.plot_uncertainty_histogram(test, far, uncertainty=bz.uncertainty.mutual_information, num_bins=12)

# %%
# The evidence lower bound on its way up.

bz.plots.plot_optimisation(bz.to_datatree(fits["MFVI"]))
plt.show()
