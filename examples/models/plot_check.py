"""
Is the model right?
===================

``check`` asks a model what it misses in its data. Counts of visits in eight clinics: a Poisson regression, what it lacks, and the
model that has it.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import bnnzoo as bz

# %%
# **Data.** Visits of 320 patients. They depend on age, not in a straight line, and on the clinic.

rng = np.random.default_rng(0)
frame = pd.DataFrame({"age": rng.uniform(20, 80, 320), "clinic": rng.choice(list("ABCDEFGH"), 320)})
effects = dict(zip("ABCDEFGH", rng.normal(0, 0.5, 8), strict=True))
rate = np.exp(1.0 + 0.9 * np.sin(frame["age"] / 12) + frame["clinic"].map(effects))
frame["visits"] = rng.poisson(rate).astype(float)

# %%
# **A straight line.** ``beside`` names what the model does not use: the clinic.

method = bz.NUTS(target_accept=0.9)
# sphinx_gallery_start_ignore
if "--smoke" in sys.argv:  # smaller settings, for the tests
    method = bz.NUTS(num_chains=2, num_warmup=200, num_draws=100)
# sphinx_gallery_end_ignore
line = bz.formula("visits ~ age", frame, likelihood="poisson")
first = bz.check(line, frame, method=method, beside=frame[["clinic"]])
print(first)

# %%
# Every question is in a frame, with its p-value and the size of the effect.

print(first.asked.sort_values("p_value").head(8).round(4).to_string(index=False))

# %%
# **A curve, and an effect of each clinic.**

curve = bz.formula("visits ~ s(age) + (1 | clinic)", frame, likelihood="poisson")
second = bz.check(curve, frame, method=method)
print(second)

# %%
# The two fits beside the data of one clinic.

clinic = max(effects, key=lambda name: effects[name])
grid = pd.DataFrame({"age": np.linspace(20, 80, 61), "clinic": clinic})
fig, ax = plt.subplots(figsize=(7, 3.2), layout="constrained")
chosen = frame[frame["clinic"] == clinic]
ax.scatter(chosen["age"], chosen["visits"], s=10, color="0.4", label=f"clinic {clinic}")
for name, found in {"visits ~ age": first, "visits ~ s(age) + (1 | clinic)": second}.items():
    mean = bz.predict(found.posterior, grid)["conditional"]["mean"].mean(("chain", "draw"))
    ax.plot(grid["age"], mean, label=name)
ax.set(xlabel="age", ylabel="visits")
ax.legend()
