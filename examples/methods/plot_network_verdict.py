"""
Is an approximation to a network any good?
==========================================

The posterior of a network's weights has many modes that give the same function, so that no Gaussian is close to it, and yet the
predictions of one may be. ``fit`` therefore judges networks by their functions: short Hamiltonian chains start at the draws, and
show where the expected outcomes of training rows move to. If they move far, the fit says so, with the observation that is off
most.
"""

import sys
import warnings

import matplotlib.pyplot as plt

import bnnzoo as bz

# %%
# The card ``cubic`` of the zoo: forty observations of a cubic, a network of twenty hidden units, and a reference posterior. Five
# methods as they are usually typed, one of which is exact.

card = bz.zoo.load("cubic")
data = card.data()
methods = {
    "MAMS": bz.MAMS(),
    "SGHMC": bz.SGHMC(),
    "FullRankVI": bz.FullRankVI(),
    "MeanFieldVI": bz.MeanFieldVI(),
    "Laplace": bz.Laplace(),
}
# sphinx_gallery_start_ignore
if "--smoke" in sys.argv:  # smaller settings, for the tests
    methods = {"MeanFieldVI": bz.MeanFieldVI(num_steps=50), "Laplace": bz.Laplace()}
# sphinx_gallery_end_ignore

# %%
# Every fit collects its warnings.

trees, said = {}, {}
for name, method in methods.items():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", bz.FitWarning)
        posterior = card.fit(method, progress=False)
    trees[name] = card.predict(posterior, num_draws=None)
    said[name] = " ".join(str(each.message) for each in caught if issubclass(each.category, bz.FitWarning))
    print(f"{name}: {said[name] or 'nothing to say'}\n")

# %%
# Were the warnings right? The reference posterior knows. Bands are two standard deviations of the function, and dashes those of
# the reference; test rows reach beyond the data, which lie between the dotted lines.

x, inside = data.test["x"][:, 0], data.train["x"]
exact = bz.zoo.reference("cubic")["summary"]
figure, panels = plt.subplots(1, len(methods), figsize=(2.1 * len(methods), 2.8), sharey=True, layout="constrained")
for axes, (name, tree) in zip(panels, trees.items(), strict=True):
    drawn = tree["conditional"]["mean"]
    mean, sd = (each.to_numpy() for each in (drawn.mean(("chain", "draw")), drawn.std(("chain", "draw"))))
    axes.fill_between(x, mean - 2 * sd, mean + 2 * sd, alpha=0.4, color="C1" if said[name] else "C0")
    for sign in (-2, 2):
        axes.plot(x, exact["mean"] + sign * exact["sd"], "k--", linewidth=0.8)
    for edge in (inside.min(), inside.max()):
        axes.axvline(edge, color="k", linestyle=":", linewidth=0.8)
    axes.set(title=f"{name}{', warned' if said[name] else ''}", xlabel="x")

# %%
# The exact sampler is right and has nothing to say. The chains of ``SGHMC`` have not met: its draws are near, but worth few
# independent ones. The approximations are off where the data are, and say so, each with the observation at which it is off most.
# Beyond the data VI is far too sure of itself, and Laplace too wide, but there nothing is compared: what the posterior is where
# there are no data, only an exact sampler knows.

plt.show()
