"""
Posteriors with several modes
=============================

A star was observed in two nights, and between them nobody knows how many periods went by. Each number is a mode of the posterior,
and a chain of NUTS stays in the one that it finds. Parallel tempering moves between them through the prior, gives each its
weight, and estimates the evidence of the model. Here all of it can be compared with quadrature.
"""

import sys
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pyro
import pyro.distributions as dist
import torch
from torch import Tensor

import bnnzoo as bz

warnings.simplefilter("ignore", bz.FitWarning)  # chains of NUTS disagree, which is the subject of this page

# %%
# Twelve observations of a wave with noise. Amplitudes of sine and cosine are normal, the frequency is uniform.

LOW, HIGH, NOISE = 0.2, 1.2, 0.5
random = np.random.default_rng(2)
t = np.sort(np.concatenate([random.uniform(0.0, 2.0, 6), random.uniform(8.0, 10.0, 6)]))
y = 0.9 * np.sin(2 * np.pi * 0.55 * t) + NOISE * random.normal(size=len(t))


def waves(frequency: Tensor, t: Tensor) -> Tensor:
    """Return sine and cosine at times ``[N]``, ``[N, 2]``."""
    return torch.stack([(2 * torch.pi * frequency * t).sin(), (2 * torch.pi * frequency * t).cos()], -1)


def model(t: Tensor, y: Tensor | None = None) -> None:
    frequency = pyro.sample("frequency", dist.Uniform(LOW, HIGH))
    amplitudes = pyro.sample("amplitudes", dist.Normal(torch.zeros(2, dtype=t.dtype), 1.0).to_event(1))
    with pyro.plate("observations", len(t)):
        pyro.sample("y", dist.Normal(waves(frequency, t) @ amplitudes, NOISE), obs=y)


ladder = bz.Tempered(bz.NUTS(num_chains=4, num_warmup=500, num_draws=2000), num_temperatures=7)
chains = bz.NUTS(num_chains=4, num_warmup=500, num_draws=2000)
# sphinx_gallery_start_ignore
if "--smoke" in sys.argv:  # smaller settings, for the tests
    ladder = bz.Tempered(bz.HMC(num_chains=2, num_warmup=20, num_draws=10, max_steps=5), num_temperatures=3)
    chains = bz.NUTS(num_chains=2, num_warmup=20, num_draws=10, max_tree_depth=3)
# sphinx_gallery_end_ignore
fits = {
    name: bz.fit(model, method, t, y, seed=1, dtype=torch.float64, progress=False)
    for name, method in {"NUTS": chains, "Tempered(NUTS)": ladder}.items()
}

# %%
# Given a frequency the observations are normal, so that the posterior of the frequency is known up to a sum over a grid. So is
# the evidence.

grid = torch.linspace(LOW, HIGH, 4001, dtype=torch.float64)
times, observed = torch.from_numpy(t), torch.from_numpy(y)
basis = torch.stack([waves(each, times) for each in grid])
covariance = basis @ basis.mT + NOISE**2 * torch.eye(len(t), dtype=torch.float64)
log_density = torch.distributions.MultivariateNormal(torch.zeros_like(observed), covariance).log_prob(observed)
exact = log_density.softmax(0) / (grid[1] - grid[0])
log_evidence = float(log_density.logsumexp(0)) - np.log(len(grid))

figure, axes = plt.subplots(1, 2, figsize=(8.5, 3.2), sharey=True, layout="constrained")
bins = np.linspace(LOW, HIGH, 101)
for axis, (name, posterior) in zip(axes, fits.items(), strict=True):
    frequency = posterior.density.constrain(posterior.draws())["frequency"].numpy()
    axis.hist(frequency.T, bins, density=True, stacked=True, label=[f"chain {n}" for n in range(len(frequency))])
    axis.plot(grid, exact, "k", linewidth=0.8, label="quadrature")
    axis.set(title=name, xlabel="frequency")
axes[0].set_ylabel("posterior density")
axes[0].legend(fontsize="small")

# %%
# Chains of NUTS are where they have started, and their numbers in a mode say nothing of its weight. Each ladder has visited all
# modes many times. Shares of draws below 0.49, between the two, and above 0.62:

edges = np.array([LOW, 0.49, 0.62, HIGH])
for name, posterior in fits.items():
    frequency = posterior.density.constrain(posterior.draws())["frequency"].numpy()
    shares = np.array([np.histogram(chain, edges)[0] for chain in frequency]) / frequency.shape[1]
    print(f"{name:15} {shares.mean(0).round(3)}; by chain", *shares.round(2))
between = np.histogram(grid, edges, weights=exact * (grid[1] - grid[0]))[0]
print(f"{'quadrature':15} {between.round(3)}")

# %%
# How well the ladders work is in the record of the fit. A state that went from the prior to the posterior and back has forgotten
# where it was: the weight of a mode is known as if from so many independent draws.

said = fits["Tempered(NUTS)"].info.config["tempering"]
print(f"round trips {said['round_trips']}, communication barrier {said['communication_barrier']:.2f}")
print("inverse temperatures", np.round(said["inverse_temperatures"][0], 4))
print("rejection rates     ", np.round(said["rejection_rates"][0], 2))
print(f"log evidence {said['log_evidence']:.3f} ± {said['log_evidence_se']:.3f}, by quadrature {log_evidence:.3f}")

plt.show()
