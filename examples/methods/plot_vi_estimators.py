"""
Gradient variance: local reparametrisation and flipout
======================================================

Mean-field variational inference maximises a bound whose gradient is estimated with random weights. If one draw of the
weights serves a whole batch, all observations share its error, and larger batches do not average it out. Local
reparametrisation and flipout act as if every observation had its own draw, so that errors cancel. The divergence from
the prior can be estimated from the same draws or computed in closed form. All of these estimators are unbiased; this
example compares their variances.
"""

import sys
import warnings
from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch.func import grad, vmap

import bnnzoo as bz
from bnnzoo.core.model.density import build_density

# %%
# A small network and 512 observations.

rng = np.random.default_rng(0)
x = rng.normal(size=(512, 4))
y = np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.3 * rng.normal(size=512)
data = (torch.from_numpy(x).float(), torch.from_numpy(y).float())
net = bz.models.mlp(4, hidden=(20,), activation="tanh")
model = bz.models.supervised(net, bz.priors.fan_in(1.0), bz.likelihoods.gaussian(scale=0.3))
density = build_density(model, *data)

estimators = {
    "one draw for all rows": bz.MeanFieldVI(),
    "the same, closed-form divergence": bz.MeanFieldVI(closed_form_kl=True),
    "flipout": bz.MeanFieldVI(estimator="flipout"),
    "local reparametrisation": bz.MeanFieldVI(estimator="local"),
}

# %%
# The variance of a gradient estimate, summed over its entries, for one particle and a given number of rows.

num_gradients, steps, sizes = 200, [1, 10, 100, 1000], [8, 32, 128, 512]
# sphinx_gallery_start_ignore
if "--smoke" in sys.argv:  # smaller settings, for the tests
    num_gradients, steps, sizes = 20, [1, 10, 30], [8, 64, 512]
# sphinx_gallery_end_ignore


def total_variance(method: bz.MeanFieldVI, params: torch.Tensor, rows: int) -> float:
    """Return the total variance of the gradient of one particle's bound, on the first ``rows`` rows."""
    batch = tuple(part[:rows] for part in data)
    bound = replace(method, batch_size=rows).bound(density, method.family(density.num_params))
    noise_size = density.num_params + bound.num_extra
    noise = torch.randn(num_gradients, noise_size, generator=torch.Generator().manual_seed(0))
    gradients = vmap(grad(lambda p, n: bound(p, n, batch, None, 1.0)), in_dims=(None, 0), chunk_size=50)(params, noise)
    return float(gradients.var(0).sum())


# %%
# The variational parameters after a number of steps: means and log standard deviations.

warnings.filterwarnings("ignore", category=bz.inference.FitWarning)  # fits are cut short on purpose
path = []
for num_steps in steps:
    method = bz.MeanFieldVI(num_steps=num_steps, learning_rate=0.01, schedule="constant", num_averaged=1)
    fitted = bz.fit(model, method, *data, seed=0, progress=False)
    path.append(torch.cat([fitted.loc, fitted.covariance.scale.log()]))

along = {name: [total_variance(method, params, 512) for params in path] for name, method in estimators.items()}
by_rows = {name: [total_variance(method, path[-1], size) for size in sizes] for name, method in estimators.items()}

# %%
# Left: the variance along a fit, with all observations. Right: the variance at the end of the fit, by batch size. The
# likelihood of a batch is scaled up to all observations, so that all gradients estimate the same quantity.

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
for style, name in zip(("C0-", "C0--", "C2-", "C1-"), estimators, strict=True):
    left.loglog(steps, along[name], style, marker=".", label=name)
    right.loglog(sizes, by_rows[name], style, marker=".")
left.set(xlabel="steps of the fit", ylabel="variance of the gradient", title="along a fit, all 512 rows")
right.set(xlabel="rows in the batch", title=f"after {steps[-1]} steps")
figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
plt.show()

for name in estimators:
    print(f"{name:37s} first step {along[name][0]:.3g}, last {along[name][-1]:.3g}; batch of 8 {by_rows[name][0]:.3g}")

# %%
# With one draw for all rows the variance is more than fifty times that of the others, from the first step to the
# last. Beyond 32 rows a larger batch hardly helps, because the shared error remains. With the other estimators the
# variance is inversely proportional to the batch size. The closed-form divergence makes no difference here, because
# the variance of the likelihood term dominates.
