"""
Noise of the gradient in variational inference
==============================================

Mean-field variational inference maximises a bound whose gradient is estimated with random weights. One draw of the weights for
a whole batch gives all its rows the same error, which more rows do not average out. With local reparametrisation or flipout
every row has weights of its own, as it were, and the errors of rows cancel. The divergence from the prior can be estimated from
the same draws or computed in closed form. All estimators have the same mean; this page compares their variances.
"""

import argparse
from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch.func import grad, vmap

import bnnzoo as bz
from bnnzoo.core.density import build_density

parser = argparse.ArgumentParser()
parser.add_argument("--smoke", action="store_true", help="seconds instead of minutes, of no statistical worth")
smoke = parser.parse_args().smoke

# %%
# A small network on 512 rows.

rng = np.random.default_rng(0)
x = rng.normal(size=(512, 4))
y = np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.3 * rng.normal(size=512)
data = (torch.from_numpy(x).float(), torch.from_numpy(y).float())
net = bz.models.mlp(4, hidden=(20,), activation="tanh")
model = bz.models.supervised(net, bz.priors.fan_in(1.0), bz.likelihoods.gaussian(scale=0.3))
density = build_density(model, *data)

estimators = {
    "one draw for all rows": bz.MeanFieldVI(),
    "the same, divergence in closed form": bz.MeanFieldVI(closed_form_kl=True),
    "flipout": bz.MeanFieldVI(estimator="flipout"),
    "local reparametrisation": bz.MeanFieldVI(estimator="local"),
}

# %%
# The scatter of a gradient is the sum over all entries of its variance about the noise, for one particle and the rows given.


def scatter(method: bz.MeanFieldVI, params: torch.Tensor, rows: int) -> float:
    """Return the total variance of the gradient of one particle's bound, on the first ``rows`` rows."""
    batch = tuple(part[:rows] for part in data)
    bound = replace(method, batch_size=rows).bound(density, method.family(density.num_params))
    noise_size = density.num_params + bound.num_extra
    noise = torch.randn(20 if smoke else 200, noise_size, generator=torch.Generator().manual_seed(0))
    gradients = vmap(grad(lambda p, n: bound(p, n, batch, None, 1.0)), in_dims=(None, 0), chunk_size=50)(params, noise)
    return float(gradients.var(0).sum())


# %%
# Where a fit is after a number of steps: means and log standard deviations.

steps = [1, 10, 30] if smoke else [1, 10, 100, 1000]
path = []
for num_steps in steps:
    method = bz.MeanFieldVI(num_steps=num_steps, learning_rate=0.01, schedule="constant", num_averaged=1)
    fitted = bz.fit(model, method, *data, seed=0, progress=False)
    path.append(torch.cat([fitted.loc, fitted.covariance.scale.log()]))

sizes = [8, 64, 512] if smoke else [8, 32, 128, 512]
along = {name: [scatter(method, params, 512) for params in path] for name, method in estimators.items()}
by_rows = {name: [scatter(method, path[-1], size) for size in sizes] for name, method in estimators.items()}

# %%
# On the left the scatter along a fit, on all rows; on the right, at the end of the fit, on batches of a part of the rows. The
# likelihood of a batch is scaled up to all rows, so that the gradients estimate the same thing.

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
# One draw for all rows leaves over fifty times the variance of the others, from the first step to the last, and beyond 32
# rows a larger batch hardly helps: what remains is the error that rows share. By rows, the variance falls in proportion to
# the size of the batch. The divergence in closed form makes no difference as long as the likelihood's noise is so much
# larger than its own.
