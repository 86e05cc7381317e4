"""
Many short chains
=================

On a GPU a hundred chains cost little more than four, so that each may be short. R-hat then says nothing of warm-up: it is high
because chains are short, whether they have forgotten their starts or not. Chains that start together, in superchains, tell.
"""

import sys
import warnings

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pyro
import pyro.distributions as dist
import torch
import xarray as xr
from torch import Tensor

import bnnzoo as bz

warnings.simplefilter("ignore", bz.FitWarning)  # chains that are too short are the subject of this page

# %%
# Counts of an event in twenty wards, with a rate for each.

WARDS = 20
random = np.random.default_rng(3)
ward = np.repeat(np.arange(WARDS), 4)
days = random.integers(20, 60, len(ward)).astype(float)
events = random.poisson(days * np.exp(-2.5 + 0.6 * random.normal(size=WARDS)[ward])).astype(float)


def model(ward: Tensor, days: Tensor, events: Tensor | None = None) -> None:
    rate = pyro.sample("rate", dist.Normal(-2.0, 2.0))
    scale = pyro.sample("scale", dist.HalfNormal(1.0))
    with pyro.plate("wards", WARDS):
        effect = pyro.sample("effect", dist.Normal(0.0, 1.0))
    with pyro.plate("observations", len(ward)):
        pyro.sample("events", dist.Poisson(days * (rate + scale * effect[ward]).exp()), obs=events)


# %%
# 128 chains keep ten draws each, after a warm-up that is longer from fit to fit. Sixteen chains each start at one of eight
# points, which ``init`` puts far away; by default chains start near the posterior, and ten iterations are enough here.

num_chains, num_superchains, lengths = 128, 8, (10, 20, 40, 80, 160, 320)
long_run = bz.NUTS(num_draws=2000)
# sphinx_gallery_start_ignore
if "--smoke" in sys.argv:  # smaller settings, for the tests
    num_chains, num_superchains, lengths = 8, 4, (5, 10)
    long_run = bz.NUTS(num_chains=2, num_warmup=30, num_draws=20)
# sphinx_gallery_end_ignore
data = torch.from_numpy(ward), torch.from_numpy(days), torch.from_numpy(events)
points = torch.randn(num_superchains, WARDS + 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
starts = points.repeat_interleave(num_chains // num_superchains, 0)


def drawn(method: bz.ChEESHMC | bz.NUTS) -> xr.Dataset:
    """Return the draws of a fit."""
    posterior = bz.fit(model, method, *data, seed=1, dtype=torch.float64, progress=False)
    return bz.to_datatree(posterior)["posterior"].to_dataset()


exact = drawn(long_run)
rows = []
for length in lengths:
    method = bz.ChEESHMC(
        num_chains=num_chains, num_superchains=num_superchains, num_warmup=length, num_draws=10, init=starts
    )
    draws = drawn(method)
    nested = az.rhat_nested(draws, superchain_ids=draws["superchain"].values)
    off = abs(draws.mean(["chain", "draw"]) - exact.mean(["chain", "draw"])) / exact.std(["chain", "draw"])
    rows.append([max(float(each[name].max()) for name in exact.data_vars) for each in (az.rhat(draws), nested, off)])
    print(f"warm-up {length:3}: R-hat {rows[-1][0]:.2f}, nested {rows[-1][1]:.3f}, means off by {rows[-1][2]:.2f} sd")

# %%
# Nested R-hat falls to 1 where the means are right, and R-hat does not: ten draws of a chain do not cover the posterior, but
# those of sixteen chains do. The verdict of a fit and :func:`bnnzoo.diagnostics.convergence` take it where there are superchains.

rhat, nested, off = np.array(rows).T
figure, axes = plt.subplots(1, 2, figsize=(8.5, 3.2), layout="constrained")
axes[0].plot(lengths, rhat - 1, "o-", label="R-hat")
axes[0].plot(lengths, nested - 1, "s-", label="nested R-hat")
axes[0].set_ylabel("R-hat of the worst parameter, less 1")
axes[0].legend()
axes[1].plot(lengths, off, "o-", color="C2")
axes[1].set_ylabel("error of the worst mean, posterior sd")
for axis in axes:
    axis.set(xlabel="iterations of warm-up", xscale="log", yscale="log")
    axis.set_xticks(lengths, map(str, lengths))
    axis.minorticks_off()

plt.show()
