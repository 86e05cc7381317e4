"""
Epistemic uncertainty is disagreement, not ignorance
====================================================

Each draw of a posterior gives probabilities of the classes, a point in the simplex. Total uncertainty is the entropy of their
average; aleatoric uncertainty is their average entropy; the rest, epistemic uncertainty, is how far the draws disagree.
Three clouds of points show what this measures, and two networks what it does not.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr

import bnnzoo as bz

num_draws = 3000
method = bz.NUTS(num_chains=4, num_warmup=150, num_draws=100, max_tree_depth=6)
# sphinx_gallery_start_ignore
if "--smoke" in sys.argv:  # smaller settings, for the tests
    num_draws, method = 300, bz.MAP(num_members=3, num_steps=50, polish_steps=0)
# sphinx_gallery_end_ignore
rng = np.random.default_rng(0)

# %%
# Confident: all draws are sure of one class. Ambiguous: all draws say that the three classes are about equally likely.
# Disagreeing: each draw is sure of one class, but not all of the same. The averages of the last two are the same, and so is their
# total uncertainty, the largest that three classes allow (1.099 nats): of one it is aleatoric, of the other epistemic.

sure = np.full((3, 3), 0.00088) + 0.99736 * np.eye(3)
clouds = {
    "confident": rng.dirichlet((1000.0, 1e-4, 1e-4), num_draws),
    "ambiguous": rng.dirichlet((20.5, 20.5, 20.5), num_draws),
    "disagreeing": sure[rng.integers(3, size=num_draws)],
}
probs = np.stack(list(clouds.values()), axis=1)[None]
draws = xr.DataArray(probs, dims=("chain", "draw", "obs_id", "class_id"), coords={"obs_id": list(clouds)})
tree = xr.DataTree.from_dict({"conditional": xr.Dataset({"probs": draws})})
parts = bz.uncertainty.decompose(tree)
print(f"{'':12}  average              total  aleatoric  epistemic")
for row, name in enumerate(clouds):
    average = probs[0, :, row].mean(0).round(2)
    print(
        f"{name:12}  {average}  ", "  ".join(f"{float(parts[p][row]):.3f}" for p in ("total", "aleatoric", "epistemic"))
    )
bz.plots.plot_simplex(tree, rows=[0, 1, 2], figure_kwargs={"figsize": (9, 3)})

# %%
# Disagreement takes several opinions. A network is fitted to two classes by NUTS, and asked about an input far from both, on the
# line through them. Nothing like it has been observed. But all draws extrapolate from the same side of the boundary, so they
# agree, and epistemic uncertainty is next to nothing: none of them knows, and none disagrees.

y = rng.integers(2, size=120)
x = np.where(y[:, None] == 1, 1.0, -1.0) * np.array([1.0, 0.0]) + 0.3 * rng.normal(size=(120, 2))
model = bz.models.supervised(bz.models.mlp(2, (20,), 2), bz.priors.fan_in(2.0), bz.likelihoods.categorical())
posterior = bz.fit(model, method, x, y, seed=0, progress=False)
far = {
    "along the classes (8, 0)": [8.0, 0.0],
    "along the boundary (0, 8)": [0.0, 8.0],
    "between the classes (0, 0)": [0.0, 0.0],
}
split = bz.uncertainty.decompose(bz.predict(posterior, np.array(list(far.values()))))
for row, name in enumerate(far):
    print(f"{name:28}", {part: round(float(split[part][row]), 3) for part in ("total", "aleatoric", "epistemic")})

# %%
# The other case is the reverse: at (0, 8), as far from the data, the same draws place the boundary differently, and
# disagree. Both inputs are equally unfamiliar. Mutual information finds the second only; to find the first, ask how
# unfamiliar an input is, with a density of the inputs or the features (``bz.ood``).

grid = bz.plots.grid_inputs((-9, -9), (9, 9), 30)
bz.plots.plot_uncertainty_map(bz.predict(posterior, grid), grid, observed=x)
plt.show()
