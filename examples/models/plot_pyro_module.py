"""
One PyroModule, four methods
============================

A classifier of digits with 784 inputs, 256 hidden units and ten classes, written with Pyro's own modules: layers are
``PyroModule[nn.Linear]``, and their weights ``PyroSample``. bnnzoo takes it as it is, and recognises the weights as those of a
network, so that methods that need layers work, too.
"""

import os
import sys
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pyro
import pyro.distributions as dist
import torch
from pyro.infer.autoguide import AutoDiagonalNormal
from pyro.nn import PyroModule, PyroSample
from sklearn.datasets import load_digits
from torch import Tensor, nn

import bnnzoo as bz
from bnnzoo.inference import SVI, LastLayerLaplace

warnings.simplefilter("ignore", bz.FitWarning)  # budgets are short

# %%
# The settings of the methods. MNIST is read where ``BNNZOO_DATA`` is a folder that has it; otherwise the digits of scikit-learn,
# with 64 inputs, stand in.

num_train, width = 1000, 256
path = Path(os.environ.get("BNNZOO_DATA", "")) / "images" / "mnist_5000.npz"
methods = {
    "SVI": SVI(guide=AutoDiagonalNormal, num_steps=1000, learning_rate=0.01),
    "mean-field VI": bz.MeanFieldVI(num_steps=1000, learning_rate=0.01),
    "ensemble": bz.DeepEnsemble(5, num_steps=300, learning_rate=0.005),
    "last-layer Laplace": LastLayerLaplace(map=bz.MAP(num_steps=300, learning_rate=0.005, polish_steps=0)),
}
nuts = bz.NUTS(num_chains=2, num_warmup=200, num_draws=100, max_tree_depth=7)
# sphinx_gallery_start_ignore
if "--smoke" in sys.argv:  # smaller settings, for the tests
    num_train, width, path = 100, 8, Path("none")
    methods = {
        "SVI": SVI(guide=AutoDiagonalNormal, num_steps=20),
        "mean-field VI": bz.MeanFieldVI(num_steps=20),
        "ensemble": bz.DeepEnsemble(2, num_steps=20),
        "last-layer Laplace": LastLayerLaplace(map=bz.MAP(num_steps=20, polish_steps=0)),
    }
    nuts = bz.NUTS(num_chains=2, num_warmup=10, num_draws=10, max_tree_depth=3)
# sphinx_gallery_end_ignore
if path.exists():
    with np.load(path) as file:
        x, y = file["images"].reshape(-1, 784).astype("float32") / 255, file["labels"].astype(int)
else:
    x, y = (load_digits().data / 16).astype("float32"), load_digits().target
order = np.random.default_rng(0).permutation(len(x))
train, test = order[:num_train], order[num_train : num_train + 500]

# %%
# The prior divides the variance of the weights by the number of inputs of a layer (the fan-in), times nine, since most pixels are
# black: under N(0, 1/fan-in) weights a mode hardly leaves the prior. ``by_fan_in=False`` has N(0, 1) weights.


class Classifier(PyroModule):
    def __init__(self, sizes: tuple[int, int, int], by_fan_in: bool = True, hierarchical: bool = False) -> None:
        super().__init__()
        self.hierarchical = hierarchical
        self.hidden = PyroModule[nn.Linear](sizes[0], sizes[1])
        self.out = PyroModule[nn.Linear](sizes[1], sizes[2])
        for layer in (self.hidden, self.out):
            shape = layer.weight.shape
            scale = 3 * shape[1] ** -0.5 if by_fan_in else 1.0
            layer.bias = PyroSample(dist.Normal(0.0, 1.0).expand(shape[:1]).to_event(1))
            if hierarchical:  # one unknown scale for each layer, around that of the fan-in
                layer.scale = PyroSample(dist.LogNormal(0.0, 1.0))
                layer.weight = PyroSample(
                    lambda module, s=scale, n=shape: dist.Normal(0.0, s * module.scale).expand(n).to_event(2)
                )
            else:
                layer.weight = PyroSample(dist.Normal(0.0, scale).expand(shape).to_event(2))

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        logits = self.out(torch.relu(self.hidden(x)))
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Categorical(logits=logits), obs=y)
        return logits


# %%
# What do the two priors say about logits, before any data?

sizes = (x.shape[1], width, 10)
for by_fan_in in (False, True):
    prior = Classifier(sizes, by_fan_in)
    pyro.set_rng_seed(0)
    with torch.no_grad():
        logits = torch.stack([prior(torch.as_tensor(x[test[:50]])) for _ in range(50)])
    sure = float((logits.softmax(-1).max(-1).values > 0.99).float().mean())
    print(
        f"{'fan-in' if by_fan_in else 'N(0, 1)'}: sd of the logits {float(logits.std()):.1f}; {sure:.0%} of predictions are sure"
    )

# %%
# Under N(0, 1) weights, logits have a standard deviation near 100 for MNIST, so that nearly every function drawn from the prior
# is sure of its classes before it has seen any. The fan-in keeps it near three. Four methods fit the same model.

trees = {}
for name, method in methods.items():
    posterior = bz.fit(Classifier(sizes), method, x[train], y[train], seed=0, progress=False)
    num_draws = None if posterior.info.sampling == "ensemble" else 50
    trees[name] = bz.predict(posterior, x[test], y[test], num_draws=num_draws)

# %%
# NUTS on a small version: 49 inputs (or the 64 of scikit-learn's digits), eight hidden units, 300 rows. The hierarchical form
# of the same class gives each layer an unknown scale, a factor of that of the prior.

side = round(x.shape[1] ** 0.5)
block = side // 7 if side > 8 else 1
small = x.reshape(len(x), side // block, block, side // block, block).mean((2, 4)).reshape(len(x), -1)
for name, hierarchical in {"NUTS, small": False, "NUTS, small, hierarchical": True}.items():
    model = Classifier((small.shape[1], 8, 10), hierarchical=hierarchical)
    posterior = bz.fit(model, nuts, small[train[:300]], y[train[:300]], seed=0, progress=False)
    trees[name] = bz.predict(posterior, small[test], y[test])
    if hierarchical:
        print(
            {
                site: round(float(v.median()), 2)
                for site, v in trees[name]["posterior"].items()
                if site.endswith("scale")
            }
        )

for name, tree in trees.items():
    wrong = float(bz.calibration.misclassified(tree).mean())
    print(f"{name:26} accuracy {1 - wrong:.3f}, log score {-float(bz.calibration.nll(tree).mean()):.3f}")

# %%
# On 1,000 images of MNIST the ensemble and last-layer Laplace predict best, and the small network of NUTS does better with an
# unknown scale: the data ask for weights five times as large as the prior has them. All give the same kind of tree, and so the
# same pictures. These four are underconfident: they are right more often than their probabilities say, as under a prior that is
# too tight.

bz.plots.plot_reliability({name: tree for name, tree in trees.items() if "small" not in name}, num_bins=8)
plt.show()
