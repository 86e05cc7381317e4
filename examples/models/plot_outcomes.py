"""
Counts and event times
======================

Outcomes that are not Gaussian need another likelihood and nothing else. Two are shown here: overdispersed counts over
different times of observation, and event times of which some are censored. Offsets and censoring are columns of the data,
passed by name to everything that takes the data.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np

import bnnzoo as bz

# %%
# Counts: emergency calls in districts that were observed for different times. The rate depends on the hour of the day, and
# counts vary more than Poisson counts do: their variance is :math:`\mu + \mu^2 / 4`.

rng = np.random.default_rng(0)
num_rows = 250
hour = rng.uniform(0.0, 24.0, num_rows)
days = rng.choice([1.0, 5.0, 20.0], num_rows)


def rate(hour: np.ndarray) -> np.ndarray:
    """Return the expected number of calls per day of observation."""
    return np.exp(0.3 + 0.9 * np.sin(2 * np.pi * (hour - 9.0) / 24.0))


calls = rng.poisson(days * rate(hour) * rng.gamma(4.0, 1 / 4.0, num_rows))


def scaled(hour: np.ndarray) -> np.ndarray:
    """Return the input of the network [N, 1]."""
    return (hour[:, None] - 12.0) / 7.0


# %%
# The network learns the log rate per day, because the logarithm of the number of days is an offset: it is added to the
# output of the network, with coefficient one.

method = bz.NUTS(num_chains=4, num_warmup=300, num_draws=300, target_accept=0.9)
# sphinx_gallery_start_ignore
if "--smoke" in sys.argv:  # smaller settings, for the tests
    method = bz.NUTS(num_chains=2, num_warmup=40, num_draws=40, max_tree_depth=4)
# sphinx_gallery_end_ignore
net = bz.models.mlp(1, hidden=(8,))
likelihoods = {"Poisson": bz.likelihoods.poisson(), "negative binomial": bz.likelihoods.negative_binomial()}
fits = {
    name: bz.fit(
        bz.models.supervised(net, bz.priors.fan_in(2.0), likelihood),
        method,
        scaled(hour),
        calls,
        offset=np.log(days),
        seed=0,
    )
    for name, likelihood in likelihoods.items()
}

# %%
# Which one? Leave-one-out cross-validation and the coverage of 90% intervals agree. A few counts are so improbable under the
# Poisson model that leave-one-out warns of them, which is itself a sign of the wrong likelihood.

trees = {
    name: bz.posterior_predictive(posterior, scaled(hour), calls, offset=np.log(days))
    for name, posterior in fits.items()
}
for name, tree in trees.items():
    draws = tree["posterior_predictive"]["y"]
    low, high = draws.quantile([0.05, 0.95], dim=("chain", "draw")).values
    covered = ((low <= calls) & (calls <= high)).mean()
    elpd = bz.diagnostics.loo(tree).elpd
    print(f"{name}: expected log predictive density {elpd:.0f}, coverage of 90% intervals {covered:.2f}")

# %%
# Predictions need an offset, too. Zero, the logarithm of one day, gives rates per day: the left panel has the mean, with a
# 90% interval, and the right panel intervals for the counts themselves in five days. Poisson intervals are too narrow.

grid = np.linspace(0.0, 24.0, 97)
per_day = {name: bz.predict(posterior, scaled(grid), offset=0.0) for name, posterior in fits.items()}
five_days = {name: bz.predict(posterior, scaled(grid), offset=np.log(5.0)) for name, posterior in fits.items()}

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
for name, color in zip(fits, ("C1", "C0"), strict=True):
    low, high = per_day[name]["conditional"]["mean"].quantile([0.05, 0.95], dim=("chain", "draw")).values
    left.fill_between(grid, low, high, color=color, alpha=0.4, label=name)
    low, high = five_days[name]["predictions"]["y"].quantile([0.05, 0.95], dim=("chain", "draw")).values
    right.fill_between(grid, low, high, color=color, alpha=0.4, step="mid", label=name)
left.plot(grid, rate(grid), "k--", label="truth")
right.plot(hour[days == 5.0], calls[days == 5.0], "k.", markersize=4, label="observed for five days")
left.set(xlabel="hour", ylabel="calls per day", title="Mean, 90% credible interval", xticks=range(0, 25, 6))
right.set(
    xlabel="hour", ylabel="calls in five days", title="90% predictive interval", xticks=range(0, 25, 6), ylim=(0, 42)
)
left.legend()
right.legend()

# %%
# Event times: years until a machine fails, by its load. Observation ended at different times, and of the machines that still
# ran then, only that is known. Leaving them out, or treating the end as a failure, would make machines look worse than they are.

load = rng.uniform(-2.0, 2.0, num_rows)


def scale(load: np.ndarray) -> np.ndarray:
    """Return the time by which 63% of machines have failed."""
    return np.exp(1.0 - 0.6 * load + 0.4 * np.sin(2 * load))


failure, end = scale(load) * rng.weibull(2.0, num_rows), rng.uniform(0.5, 5.0, num_rows)
years, still_running = np.minimum(failure, end), failure > end
print(f"{still_running.mean():.0%} of the times are censored")

# %%
# Two fits: one knows which times are censored, the other treats all as failures. A Laplace approximation takes a second.

model = bz.models.supervised(bz.models.mlp(1, hidden=(8,)), bz.priors.fan_in(2.0), bz.likelihoods.weibull())
x = load[:, None]
survival = {
    "censoring known": bz.fit(model, bz.Laplace(), x, years, censored=still_running),
    "treated as failures": bz.fit(model, bz.Laplace(), x, years),
}

# %%
# Predictions are of failure times. The median over loads, and the survival function of a machine under a load of one: the
# share of predicted times that are later.

loads, times = np.linspace(-2.0, 2.0, 81), np.linspace(0.0, 6.0, 121)
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
for (name, posterior), color in zip(survival.items(), ("C0", "C1"), strict=True):
    drawn = bz.predict(posterior, loads[:, None], num_draws=2000)["predictions"]["y"]
    left.plot(loads, drawn.median(("chain", "draw")), color=color, label=name)
    single = bz.predict(posterior, np.ones((1, 1)), num_draws=2000)["predictions"]["y"].to_numpy().ravel()
    right.plot(times, (single[:, None] > times).mean(0), color=color, label=name)
left.plot(loads, scale(loads) * np.log(2.0) ** 0.5, "k--", label="truth")
right.plot(times, np.exp(-((times / scale(np.ones(1))) ** 2)), "k--", label="truth")
left.plot(load[~still_running], years[~still_running], "k.", markersize=4, label="failed")
left.plot(load[still_running], years[still_running], "^", color="0.6", markersize=4, label="still running")
left.set(xlabel="load", ylabel="years", title="Median time to failure", ylim=(0.0, 12.0))
right.set(xlabel="years", ylabel="probability", title="Survival under a load of one")
left.legend()
plt.show()
