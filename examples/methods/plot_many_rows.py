"""
Data larger than memory
=======================

A method that trains on mini-batches needs a few rows at a time, and so does a prediction. Both can leave the rows in a
file: training reads a memory-mapped array batch by batch, and predictions are measured, or written to disk, some rows at
a time. Here a network is fitted to a file, its uncertainty at every row is decomposed without a tree of all predictions,
and a part of them is stored.
"""

import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import bnnzoo as bz

num_rows, num_steps, num_draws = 100_000, 3000, 100
# sphinx_gallery_start_ignore
if "--smoke" in sys.argv:
    num_rows, num_steps, num_draws = 2_000, 20, 5
# sphinx_gallery_end_ignore

# %%
# A file of observations whose noise grows with x, and in which there are few rows around zero.

rng = np.random.default_rng(0)
folder = Path(tempfile.mkdtemp())
x = np.lib.format.open_memmap(folder / "x.npy", "w+", np.float32, (num_rows, 1))
y = np.lib.format.open_memmap(folder / "y.npy", "w+", np.float32, (num_rows,))
for start in range(0, num_rows, 10_000):
    rows = slice(start, min(start + 10_000, num_rows))
    place = rng.choice([-1.0, 1.0], x[rows].shape) + 0.25 * rng.normal(size=x[rows].shape)
    x[rows] = place
    y[rows] = np.sin(3 * place[:, 0]) + (0.2 + 0.1 * place[:, 0].clip(-1, 2)) * rng.normal(size=len(place))

# %%
# The arrays are opened, not read. With ``batch_size=256`` each step reads 256 rows.

x, y = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("x", "y"))
net = bz.models.mlp(1, hidden=(30,), out_features=2)
model = bz.models.supervised(net, bz.priors.fan_in(), bz.likelihoods.heteroscedastic_gaussian())
method = bz.MeanFieldVI(num_steps=num_steps, batch_size=256, num_particles=1, learning_rate=0.01)
posterior = bz.fit(model, method, x, y, progress=False)
print(posterior)

# %%
# The total uncertainty of every row, split into an aleatoric and an epistemic part. The draws of some rows are made, measured
# and dropped before those of the next ones.

parts = bz.measure_predictions(posterior, bz.uncertainty.decompose, x, num_draws=num_draws, keep=("conditional",))
order = np.argsort(x[:, 0])[:: max(1, num_rows // 500)]
figure, axis = plt.subplots(layout="constrained")
for name in ("aleatoric", "epistemic"):
    axis.plot(x[order, 0], parts[name].values[order], label=name)
axis.set(xlabel="x", ylabel="variance", yscale="log")
axis.legend()
plt.show()

# %%
# The draws themselves go to a zarr store. Only the named variables are computed, and the tree is opened without being loaded.

keep = ("predictions", "conditional/mean")
tree = bz.predict(posterior, x[:5_000], num_draws=num_draws, keep=keep, store=folder / "run.zarr")
print({name: list(group.data_vars) for name, group in tree.children.items()})
print("share of rows inside the interval of two standard deviations:")
mean, sd = (getattr(tree["predictions"]["y"], each)(("chain", "draw")).to_numpy() for each in ("mean", "std"))
print(f"{(np.abs(y[:5_000] - mean) < 2 * sd).mean():.3f}")
