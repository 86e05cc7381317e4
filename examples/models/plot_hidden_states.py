"""
Hidden states of many kinds
===========================

An unknown number of clusters, a change point, animals that may be dead, gaps in a category, and answers that may be guesses: each
has discrete unknowns, which are summed out of the density and drawn afterwards.
"""

import sys
from typing import Any

import matplotlib.pyplot as plt
import pyro
import pyro.distributions as dist
import torch
from pyro import poutine

import bnnzoo as bz

generator = torch.Generator().manual_seed(0)
steps = 400
# sphinx_gallery_start_ignore
if "--smoke" in sys.argv:  # fewer steps, for the tests
    steps = 20
# sphinx_gallery_end_ignore
settings = {"dtype": torch.float64, "progress": False}

# %%
# **A Dirichlet process, truncated.** More components than needed, whose weights are pieces of a broken stick. Mean-field
# variational inference settles on one numbering of them; chains of a sampler may find others.

y = torch.cat([torch.randn(40, generator=generator) - 4, torch.randn(30, generator=generator) + 3])


def clusters(y: torch.Tensor) -> None:
    alpha = pyro.sample("alpha", dist.Gamma(2.0, 2.0))
    with pyro.plate("sticks", 4):
        beta = pyro.sample("beta", dist.Beta(1.0, alpha))
    left = torch.nn.functional.pad((1 - beta).cumprod(-1), (1, 0), value=1.0)
    weights = torch.nn.functional.pad(beta, (0, 1), value=1.0) * left
    with pyro.plate("components", 5):
        mu = pyro.sample("mu", dist.Normal(0.0, 5.0))
    with pyro.plate("data", len(y)):
        z = pyro.sample("z", dist.Categorical(weights))
        pyro.sample("y", dist.Normal(mu[z], 1.0), obs=y)


tree = bz.to_datatree(bz.fit(clusters, bz.MeanFieldVI(num_steps=steps), y, **settings), num_draws=200)
probs = tree["discrete_probs"]["z"].mean(("chain", "draw"))

fig, ax = plt.subplots(figsize=(6, 3), layout="constrained")
ax.imshow(probs.T, aspect="auto", vmin=0, vmax=1)
ax.set(xlabel="row", ylabel="component", title="Probability of each component")

# %%
# **A change point.** One discrete site for the whole series; its probabilities are those of each year.

counts = torch.poisson(torch.where(torch.arange(60) < 36, 3.0, 1.0), generator=generator)


def change(y: torch.Tensor) -> None:
    rates = pyro.sample("rates", dist.Gamma(2.0, 1.0).expand([2]).to_event(1))
    tau = pyro.sample("tau", dist.Categorical(torch.ones(len(y)) / len(y)))
    after = (torch.arange(len(y)) >= tau.unsqueeze(-1)).long()
    pyro.sample("y", dist.Poisson(rates[after]).to_event(1), obs=y)


tree = bz.to_datatree(bz.fit(change, bz.Laplace(), counts, **settings), num_draws=200)
fig, ax = plt.subplots(figsize=(6, 3), layout="constrained")
ax.bar(range(60), counts.numpy(), color="lightgrey")
right = ax.twinx()
right.plot(tree["discrete_probs"]["tau"].mean(("chain", "draw")))
right.set(ylabel="probability of the change", ylim=(0, None))
ax.set(xlabel="year", ylabel="events")

# %%
# **Capture and recapture.** An animal that is not seen is dead or was missed. The probability that it is alive falls with the
# years since it was last seen.

seen = torch.tensor([[1.0, 1, 1, 0, 0, 0], [1, 0, 1, 0, 1, 1], [1, 1, 0, 0, 0, 0], [1, 1, 1, 1, 1, 0]]).repeat(8, 1)


def survival(y: torch.Tensor) -> None:
    phi, p = pyro.sample("phi", dist.Uniform(0.0, 1.0)), pyro.sample("p", dist.Uniform(0.0, 1.0))
    with pyro.plate("animals", len(y)):
        alive: Any = torch.ones(len(y))
        for t in pyro.markov(range(1, y.shape[1])):
            alive = pyro.sample(f"alive{t}", dist.Bernoulli(phi * alive))
            pyro.sample(f"y{t}", dist.Bernoulli(p * alive), obs=y[:, t])


tree = bz.to_datatree(bz.fit(survival, bz.Laplace(), seen, **settings), num_draws=200)
for t in range(1, 6):
    alive = tree["discrete_probs"][f"alive{t}"].sel({f"alive{t}_value": 1}).mean(("chain", "draw"))
    print(t, alive.values[:4].round(2))

# %%
# **Gaps in a category.** Rows whose group is not known are summed over it, and the tree says how probable each group is.

group = torch.arange(60) % 3
outcome = torch.tensor([-2.0, 0.0, 2.0])[group] + 0.5 * torch.randn(60, generator=generator)
missing = torch.arange(60) % 5 == 0


def gaps(group: torch.Tensor, missing: torch.Tensor, y: torch.Tensor) -> None:
    p = pyro.sample("p", dist.Dirichlet(torch.ones(3)))
    effect = pyro.sample("effect", dist.Normal(torch.zeros(3), 2.0).to_event(1))
    with pyro.plate("data", len(y)):
        with poutine.mask(mask=missing):
            gap = pyro.sample("gap", dist.Categorical(p))
        with poutine.mask(mask=~missing):
            pyro.sample("group", dist.Categorical(p), obs=group)
        pyro.sample("y", dist.Normal(effect[torch.where(missing, gap, group)], 0.5), obs=y)


tree = bz.to_datatree(bz.fit(gaps, bz.Laplace(), group, missing, outcome, **settings), num_draws=200)
guess = tree["discrete_probs"]["gap"].mean(("chain", "draw")).argmax("gap_value").values
print("groups found:", int((guess == group.numpy())[missing.numpy()].sum()), "of", int(missing.sum()))

# %%
# **Answers that may be guesses.** Each answer is a guess or not; the probability of a guess is high where a weak person answers
# a hard item rightly, or an able person an easy one wrongly.

answers = (torch.rand(20, 8, generator=generator) < torch.linspace(0.9, 0.3, 8)).double()


def guessing(y: torch.Tensor) -> None:
    share = pyro.sample("share", dist.Beta(1.0, 4.0))
    with pyro.plate("items", y.shape[1], dim=-1):
        difficulty = pyro.sample("difficulty", dist.Normal(0.0, 1.0))
    with pyro.plate("persons", len(y), dim=-2):
        ability = pyro.sample("ability", dist.Normal(0.0, 1.0))
        with pyro.plate("answers", y.shape[1], dim=-1):
            guess = pyro.sample("guess", dist.Bernoulli(share))
            pyro.sample("y", dist.Bernoulli(torch.where(guess > 0, 0.25, (ability - difficulty).sigmoid())), obs=y)


tree = bz.to_datatree(bz.fit(guessing, bz.MeanFieldVI(num_steps=steps), answers, **settings), num_draws=200)
guessed = tree["discrete_probs"]["guess"].sel(guess_value=1).mean(("chain", "draw"))
fig, ax = plt.subplots(figsize=(6, 3), layout="constrained")
image = ax.imshow(guessed, aspect="auto")
fig.colorbar(image, label="probability of a guess")
ax.set(xlabel="item", ylabel="person")
ax.yaxis.get_major_locator().set_params(integer=True)
