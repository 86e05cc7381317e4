"""
Deep ensembles on a cubic
=========================

Forty observations of :math:`y = x^3 + \\epsilon` with noise of standard deviation 3 on (-4, 4), the example with which deep
ensembles were introduced and that a practical course has: six networks with a mean and a scale as outputs, 600 steps of
Adam on all rows at a learning rate of 0.08, with and without adversarial training. How sure is the ensemble at the edge of the
data and beyond, and has every member been trained at all?
"""

import sys
import warnings
from dataclasses import dataclass
from itertools import product

import matplotlib.pyplot as plt
import numpy as np
import pyro
import pyro.distributions as dist
import torch
import xarray as xr

import bnnzoo as bz

# %%
# The data of the course, in standard units: losses below are reported in the units of y.

data = bz.datasets.cubic()
x, y = data.x, data.y
y_scale = y.std()
grid = np.linspace(-6, 6, 121)[:, None]
noise_alone = 0.5 * np.log(2 * np.pi * 3**2) + 0.5
constants = {
    "Gaussian": 0.5 * np.log(2 * np.pi * y.var()) + 0.5,
    "Laplace": np.log(2 * np.abs(y - np.median(y)).mean()) + 1,
}
shown = ", ".join(f"of a constant {name} {loss:.2f}" for name, loss in constants.items())
print(f"loss of the noise alone {noise_alone:.2f}, {shown}")

# %%
# A network 1-10-6-30-2, whose second output becomes a scale by softplus, under a Gaussian and under a Laplace likelihood. Members
# of the course were trained without a prior; here it is weak. Its adversarial steps are 0.08 in units of x; `FGSM` has them as a
# fraction of the observed range.

step = 0.08 / float(np.ptp(x))
methods = {
    "plain": bz.DeepEnsemble(6, num_steps=600, learning_rate=0.08, schedule="constant"),
    "adversarial": bz.DeepEnsemble(
        6, num_steps=600, learning_rate=0.08, schedule="constant", adversarial=bz.inference.FGSM(step)
    ),
    "converged": bz.MAP(6, num_steps=3000),
}
count, steps = 60, 600  # members with the starts of the course, below
sigmas = {"Gaussian": bz.likelihoods.heteroscedastic_gaussian(), "Laplace": bz.likelihoods.heteroscedastic_laplace()}
# sphinx_gallery_start_ignore
if "--smoke" in sys.argv:  # smaller settings, for the tests
    methods = {
        "plain": bz.DeepEnsemble(2, num_steps=20, learning_rate=0.08, schedule="constant"),
        "adversarial": bz.DeepEnsemble(2, num_steps=20, adversarial=bz.inference.FGSM(step)),
    }
    count, steps = 2, 20
# sphinx_gallery_end_ignore
net = torch.nn.Sequential(
    *(torch.nn.Linear(1, 10), torch.nn.ReLU(), torch.nn.Linear(10, 6), torch.nn.ReLU()),
    *(torch.nn.Linear(6, 30), torch.nn.ReLU(), torch.nn.Linear(30, 2)),
)

# %%
# For each fit: the loss of each member on the training data (minus its mean log density, in units of y), and the predictive
# standard deviation at the edge of the data (:math:`|x| = 4`) and beyond, of all members and of those that have not failed.


def standard_deviation(mean: xr.DataArray, variance: xr.DataArray) -> xr.DataArray:
    """Return that of the mixture of members or draws, for each x, in units of y."""
    return (variance.mean("member") + mean.var("member")) ** 0.5 * y_scale


trees, kept = {}, {}
for likelihood, method in [(one, other) for one in sigmas for other in methods]:
    model = bz.models.supervised(net, bz.priors.fan_in(3.0), sigmas[likelihood])
    posterior = bz.fit(model, methods[method], x / 4, y / y_scale, seed=1, dtype=torch.float64)
    train = bz.posterior_predictive(posterior, x / 4, y / y_scale)
    tree = bz.predict(posterior, grid / 4)
    trees[likelihood, method] = parts = tree["conditional"].to_dataset().stack(member=("chain", "draw"))
    losses = (np.log(y_scale) - train["log_likelihood"]["y"].mean("obs_id")).stack(member=("chain", "draw")).values
    kept[likelihood, method] = trained = losses < constants[likelihood] - 0.05
    print(
        f"{likelihood:8} {method:11} {int((~trained).sum())} of {losses.size} failed;"
        f" loss {np.median(losses):5.2f} ({losses.min():.2f} to {losses.max():.2f})"
    )
    for name, chosen in {"all": np.ones_like(trained), "not failed": trained}.items():
        if not chosen.any() or (name == "not failed" and trained.all()):
            continue
        total = standard_deviation(parts["mean"][..., chosen], parts["variance"][..., chosen]).values
        sds = {edge: np.interp([-edge, edge], grid[:, 0], total).mean() for edge in (4, 5, 6)}
        print(f"    {name:10}", "  ".join(f"sd at |x|={edge}: {sd:6.1f}" for edge, sd in sds.items()))

# %%
# Each thin line is the mean of a member or draw, dotted if it has failed. The band is two predictive standard deviations of those
# that have not.

figure, axes = plt.subplots(
    len(sigmas), len(methods), figsize=(3 * len(methods), 6), sharex=True, sharey=True, layout="constrained"
)
for axis, (pair, parts) in zip(axes.flat, trees.items(), strict=True):
    trained = kept[pair]
    means = parts["mean"].transpose("obs_id", "member").values * y_scale
    if trained.any():
        total = standard_deviation(parts["mean"][..., trained], parts["variance"][..., trained]).values
        middle = means[:, trained].mean(1)
        axis.fill_between(grid[:, 0], middle - 2 * total, middle + 2 * total, alpha=0.3)
        axis.plot(grid[:, 0], means[:, trained][:, :: max(1, trained.sum() // 6)], "C0", linewidth=0.6)
    axis.plot(grid[:, 0], means[:, ~trained][:, :6], "C3:", linewidth=0.8)
    axis.plot(grid[:, 0], grid[:, 0] ** 3, "k--", linewidth=0.8)
    axis.plot(x[:, 0], y, "k.", markersize=3)
    axis.set(title=f"{pair[1]}, {pair[0]}", ylim=(-300, 300))
figure.supxlabel("x")
figure.supylabel("y")

# %%
# At the settings of the course itself: data in their own units, no prior to speak of, and weights that start at draws from
# N(0, s²), where s, of each matrix or vector, is the absolute value of a draw from N(0, 0.1²). Sixty members show how often one
# fails; the course documents six. Such settings can be read in other ways: 0.1 may be the variance of the draw of s, s the
# variance of the weights, and the softplus of the second output the variance of an observation. Losses are those after the last
# step.


@dataclass(frozen=True)
class VarianceBySoftplus:
    """Gaussian noise whose variance is the softplus of the second output."""

    def __call__(self, output: torch.Tensor, y: torch.Tensor | None = None) -> torch.Tensor:
        """Observe ``y[N]`` given the outputs ``[N, 2]``."""
        scale = (torch.nn.functional.softplus(output[:, 1]) + 1e-6).sqrt()
        with pyro.plate("data", len(output)):
            return pyro.sample("y", dist.Normal(output[:, 0], scale), obs=y)


def starts(sd: float, power: float) -> torch.Tensor:
    """Return draws of weights with standard deviations s to the power, s the absolute value of a draw from N(0, sd²)."""
    rng = np.random.default_rng(0)
    sizes = [parameter.numel() for parameter in net.parameters()]
    drawn = [
        np.concatenate([rng.normal(0, abs(rng.normal(0, sd)) ** power, size) for size in sizes]) for _ in range(count)
    ]
    return torch.tensor(np.stack(drawn))


of_weights = {"N(0, s²)": (0.1, 1.0), "N(0, s²), s of variance 0.1": (0.1**0.5, 1.0), "N(0, s)": (0.1, 0.5)}
of_softplus = {"scale": sigmas["Gaussian"], "variance": VarianceBySoftplus()}
documented = [3.03, 3.53, 5.23, 6.41, 8.25, 9.23]
print("documented: 4 of 6 failed; losses", documented)
for (weights, start), (meaning, likelihood) in product(of_weights.items(), of_softplus.items()):
    course = bz.DeepEnsemble(count, num_steps=steps, learning_rate=0.08, schedule="constant", init=starts(*start))
    model = bz.models.supervised(net, bz.priors.normal(1000.0), likelihood)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bz.FitWarning)  # of members that nearly interpolate
        posterior = bz.fit(model, course, x, y, seed=0, dtype=torch.float64)
    losses = -bz.posterior_predictive(posterior, x, y)["log_likelihood"]["y"].mean("obs_id").values.ravel()
    quartiles = ", ".join(f"{value:.2f}" for value in np.quantile(losses, [0, 0.25, 0.5, 0.75, 1]))
    failed = (losses > constants["Gaussian"] - 0.05).sum()
    print(
        f"weights {weights}, softplus a {meaning}: {failed} of {count} failed; least loss, quartiles and largest {quartiles}"
    )

# %%
# At this learning rate the Gaussian ensemble is hardly trained: one of its six members has failed, with a loss no better than a
# constant's, the others have losses of 2.8 to 4.2, and the standard deviation at the edge of the data is 41. With adversarial
# steps all have losses below 3, and it is 10. That is luck as much as training: with ``seed=3`` three of the adversarial members
# and one of the plain ones are no better than a constant. Under the Laplace likelihood no member fails, and the steps change
# little: losses of 2.6 instead of 2.4, and 7.6 instead of 6.6 at the edge. Every converged member has a lower loss than the noise
# alone: they have fitted the noise, and beyond the data they are the surest, with standard deviations of 10 and 16 at 5 and 6
# (Gaussian) and 7 and 13 (Laplace), where the cubic leaves the data by 61 and 152.
#
# At the settings of the course 4 of 60 members fail, where 4 of 6 are documented. Half of the sixty have losses between 2.6 and
# 3.4. No other reading gives the documented numbers: 0 to 6 of 60 fail, and losses have medians of 2.5 to 3.2, where the
# documented ones have 5.8. Even where 6 of 60 fail, four or more of six would fail in one case of a thousand. The reason is none
# that the settings show.

plt.show()
