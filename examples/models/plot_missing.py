"""
What if a covariate is missing?
===============================

Blood pressure under two treatments, given body weight, which was not taken of everybody: least of patients whose pressure was
high, and who were sent on at once. Rows without weight cannot be dropped, then. ``mi(weight)`` makes what is missing part of
the model.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import bnnzoo as bz

# %%
# **The frame.** The treatment lowers pressure by eight, and each kilogram raises it by 0.5. The higher the pressure, the more
# often weight is missing. Lighter patients were treated more often than heavy ones.

rng = np.random.default_rng(3)
num_rows = 400
full = pd.DataFrame({"height": rng.normal(172.0, 9.0, num_rows)})
full["weight"] = 75 + 0.9 * (full.height - 172) + rng.normal(0.0, 9.0, num_rows)
full["arm"] = np.where(rng.uniform(size=num_rows) < 1 / (1 + np.exp((full.weight - 75) / 8)), "treated", "control")
full["pressure"] = 130 + 0.5 * (full.weight - 75) - 8 * (full.arm == "treated") + rng.normal(0.0, 7.0, num_rows)
is_missing = rng.uniform(size=num_rows) < 1 / (1 + np.exp(-(full.pressure - 131) / 4))
frame = full.assign(weight=full.weight.where(~is_missing))
print(f"weight is missing in {is_missing.mean():.0%} of rows")

# %%
# **Three fits:** to the rows that are complete, to all rows with a model of weight given height, and, for comparison, to the
# data before any was lost.

method = bz.NUTS()
# sphinx_gallery_start_ignore
if "--smoke" in sys.argv:  # smaller settings, for the tests
    method = bz.NUTS(num_chains=2, num_warmup=200, num_draws=100)
# sphinx_gallery_end_ignore
complete = frame.dropna()
plain = "pressure ~ arm + weight"
imputed = ["pressure ~ arm + mi(weight)", "weight ~ height"]
fits = {
    "nothing lost": bz.fit(bz.formula(plain, full), method, full, progress=False),
    "complete rows": bz.fit(bz.formula(plain, complete), method, complete, progress=False),
    "mi(weight)": bz.fit(bz.formula(imputed, frame), method, frame, progress=False),
}

# %%
# **The effect of the treatment.** Complete rows alone see too small an effect, since the control patients with the highest
# pressure are gone.

rows = {name: bz.effects.avg_comparisons(fit, "arm").to_frame().iloc[0] for name, fit in fits.items()}
table = pd.DataFrame(rows).T[["estimate", "conf_low", "conf_high"]].astype(float)
print(table.round(1))

fig, ax = plt.subplots(figsize=(6.5, 2.2), layout="constrained")
places = np.arange(len(table))[::-1]
ax.hlines(places, table["conf_low"], table["conf_high"])
ax.plot(table["estimate"], places, "o")
ax.axvline(-8.0, color="0.5", linestyle=":", label="truth")
ax.set_yticks(places, table.index)
ax.set_xlabel("effect of the treatment on pressure, 95% intervals")
ax.legend()

# %%
# **What was imputed.** Each missing weight has a posterior of its own, which knows the patient's height, arm and pressure.
# Here the truth is known, too: nine in ten 90% intervals should hold it.

weights = bz.posterior_predictive(fits["mi(weight)"], frame)["posterior"]["mi_weight"]
low, middle, high = weights.quantile([0.05, 0.5, 0.95], ("chain", "draw")).to_numpy()
truth = full["weight"][is_missing].to_numpy()
print(f"{((low <= truth) & (truth <= high)).mean():.0%} of {len(truth)} lost weights are in their 90% interval")

fig, ax = plt.subplots(figsize=(4.5, 3.6), layout="constrained")
ax.errorbar(truth, middle, [middle - low, high - middle], fmt="o", markersize=3, linewidth=0.5)
ax.axline((75, 75), slope=1.0, color="0.5", linestyle=":")
ax.set(xlabel="weight that was lost", ylabel="imputed, 90% interval")
plt.show()
