"""
A spiral with three arms
========================

A deep ensemble of four networks separates the arms of a spiral. Where is it sure, where do its members disagree, and what does
adversarial training change? Each question is answered by a map and by a number.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
import torch

import bnnzoo as bz

# %%
# One thousand points a class, with noise of 0.3 in the angle, and a network 2-150-150-3.

points_per_class, hidden, num_steps, batch_size, size = 1000, (150, 150), 1500, 128, 81
# sphinx_gallery_start_ignore
if "--smoke" in sys.argv:  # smaller settings, for the tests
    points_per_class, hidden, num_steps, batch_size, size = 30, (10,), 20, 20, 9
# sphinx_gallery_end_ignore
random = np.random.default_rng(0)
radius = np.linspace(0, 1, points_per_class)
angles = [4 * radius + 2 * np.pi * arm / 3 + 0.3 * random.normal(size=points_per_class) for arm in range(3)]
x = np.concatenate([np.stack([radius * np.sin(a), radius * np.cos(a)], 1) for a in angles]).astype(np.float32)
labels = np.repeat(np.arange(3), points_per_class)
side = np.linspace(-2, 2, size, dtype=np.float32)
grid = np.stack(np.meshgrid(side, side), -1).reshape(-1, 2)

model = bz.models.supervised(
    bz.models.mlp(2, hidden, out_features=3, activation=torch.nn.ReLU),
    bz.priors.fan_in(2.0),
    bz.likelihoods.categorical(),
)
settings = {"num_steps": num_steps, "batch_size": batch_size, "learning_rate": 0.01}
methods = {
    "plain": bz.DeepEnsemble(4, **settings),
    "adversarial": bz.DeepEnsemble(4, **settings, adversarial=bz.inference.FGSM(0.02)),
}
posteriors = {name: bz.fit(model, method, x, labels, seed=0) for name, method in methods.items()}

# %%
# Maps of the class, of the expected entropy (what every member finds ambiguous) and of the mutual information (what they
# disagree about). Points lie within the unit circle.

figure, axes = plt.subplots(2, 3, figsize=(10, 6.4), sharex=True, sharey=True, layout="constrained")
maps = {}
for row, (name, posterior) in zip(axes, posteriors.items(), strict=True):
    tree = bz.predict(posterior, grid)
    parts = bz.uncertainty.decompose(tree)
    maps[name] = parts.assign(probs=tree["conditional"]["probs"].mean(("chain", "draw")))
    shown = {
        "class": maps[name]["probs"].argmax("class_id"),
        "expected entropy": parts["aleatoric"],
        "mutual information": parts["epistemic"],
    }
    for axis, (title, values) in zip(row, shown.items(), strict=True):
        image = axis.pcolormesh(side, side, values.values.reshape(size, size), rasterized=True)
        axis.plot(x[::10, 0], x[::10, 1], "w.", markersize=1)
        axis.set(title=f"{name}: {title}", aspect="equal")
        figure.colorbar(image, ax=axis)

# %%
# The questions, answered by numbers. *Overconfident*: share of the region outside of radius 1.3, where there are no data, in
# which the ensemble gives one class more than 95 percent. *Diverse*: mean mutual information there and among the data.

far = np.linalg.norm(grid, axis=1) > 1.3
near = np.linalg.norm(grid, axis=1) < 1.0
for name, found in maps.items():
    posterior = posteriors[name]
    probs = bz.predict(posterior, x)["conditional"]["probs"].mean(("chain", "draw"))
    accuracy = float((probs.argmax("class_id").values == labels).mean())
    sure = (found["probs"].max("class_id") > 0.95).values
    information, entropy = found["epistemic"].values, found["aleatoric"].values
    print(
        f"{name:12} accuracy {accuracy:.3f}; overconfident far away {sure[far].mean():.2f}; mutual information "
        f"{information[far].mean():.3f} far away, {information[near].mean():.3f} among the data; expected entropy "
        f"{entropy[far].mean():.3f} far away, {entropy[near].mean():.3f} among the data"
    )

# %%
# Among the data the ensemble is as unsure as the overlap of the arms requires, and its members agree. Far away it is sure in most
# places: the regions of a class go on for ever. Members disagree only in wedges around the borders between classes.
# Adversarial training with steps this small smooths the borders a little, and does not change that.

plt.show()
