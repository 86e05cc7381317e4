"""
Discrete latent variables
=========================

Discrete latent sites are summed out of the density, and drawn afterwards. A mixture and a hidden Markov model, as Pyro's users
write them.
"""

import sys

import matplotlib.pyplot as plt
import pyro
import pyro.distributions as dist
import torch

import bnnzoo as bz

# %%
# **A mixture.** Nothing marks the class ``z``. The tree holds its draws, and the probability of each value for each row.

generator = torch.Generator().manual_seed(0)
y = torch.cat([torch.randn(60, generator=generator) - 2, torch.randn(40, generator=generator) + 2])


def mixture(y: torch.Tensor) -> None:
    w = pyro.sample("w", dist.Dirichlet(torch.ones(2)))
    mu = pyro.sample("mu", dist.Normal(torch.tensor([-2.0, 2.0]), 1.0).to_event(1))
    with pyro.plate("data", len(y)):
        z = pyro.sample("z", dist.Categorical(w))
        pyro.sample("y", dist.Normal(mu[z], 1.0), obs=y)


posterior = bz.fit(mixture, bz.Laplace(), y, dtype=torch.float64, progress=False)
tree = bz.posterior_predictive(posterior, y, num_draws=200)
upper = tree["discrete_probs"]["z"].sel(z_value=1).mean(("chain", "draw"))

fig, ax = plt.subplots(figsize=(6, 3), layout="constrained")
ax.scatter(y, upper, s=8)
ax.set(xlabel="y", ylabel="probability of the upper class")

# %%
# Each row keeps a log likelihood of its own, in which its class is summed over, so leave-one-out works as for any model.

print(bz.diagnostics.loo(tree))

# %%
# **A hidden Markov model**, as a loop by ``pyro.markov``. The probabilities of its states are smoothed ones, given all
# of the data.

steps = 60
# sphinx_gallery_start_ignore
if "--smoke" in sys.argv:  # a shorter series, for the tests
    steps = 12
# sphinx_gallery_end_ignore
states = (torch.arange(steps) // (steps // 4)) % 2
series = 2.0 * states + 0.7 * torch.randn(steps, generator=generator)


def hidden_markov(y: torch.Tensor) -> None:
    stay = pyro.sample("stay", dist.Beta(9.0, 1.0))
    mu = pyro.sample("mu", dist.Normal(torch.tensor([0.0, 2.0]), 0.5).to_event(1))
    moves = torch.stack([torch.stack([stay, 1 - stay]), torch.stack([1 - stay, stay])])
    x = 0
    for t in pyro.markov(range(len(y))):
        x = pyro.sample(f"x{t}", dist.Categorical(moves[x]))
        pyro.sample(f"y{t}", dist.Normal(mu[x], 0.7), obs=y[t])


posterior = bz.fit(hidden_markov, bz.MAP(num_steps=200, polish_steps=0), series, dtype=torch.float64, progress=False)
probs = bz.to_datatree(posterior)["discrete_probs"]
smoothed = [float(probs[f"x{t}"].sel({f"x{t}_value": 1}).mean()) for t in range(steps)]

fig, ax = plt.subplots(figsize=(6, 3), layout="constrained")
ax.plot(series, ".", label="observations")
ax.plot(smoothed, label="probability of the upper state")
ax.set(xlabel="time")
ax.legend()
