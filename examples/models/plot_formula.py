"""
From a formula to an effect
===========================

A day with a data frame: a trial in twelve clinics, in which the response to a dose is curved. The model is a formula, with an
effect that varies among clinics and a spline; the answer is a comparison with its interval.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import bnnzoo as bz

# %%
# The frame has text, and nothing is standardised.

rng = np.random.default_rng(1)
num_rows = 360
frame = pd.DataFrame(
    {
        "clinic": rng.permutation(np.resize([f"clinic {i:02d}" for i in range(12)], num_rows)),
        "arm": rng.permutation(np.resize(["control", "treated"], num_rows)),
        "age": rng.normal(55.0, 9.0, num_rows).round(),
        "dose": rng.uniform(0.0, 100.0, num_rows),
    }
)
of_clinic = dict(zip(sorted(frame.clinic.unique()), rng.normal(0.0, 4.0, 12), strict=True))
response = 12 / (1 + np.exp(-(frame.dose - 50) / 8))
frame["score"] = 50 + 0.15 * frame.age + response + 3 * (frame.arm == "treated") + frame.clinic.map(of_clinic)
frame["score"] += rng.normal(0.0, 3.0, num_rows)

# %%
# Priors come from the scale of the data. ``print(model)`` shows the Pyro model.

model = bz.formula("score ~ age + arm + s(dose) + (1 | clinic)", frame)
print(model)
print(model.priors["prior"])

# %%
# Any method fits it.

method = bz.NUTS()
# sphinx_gallery_start_ignore
if "--smoke" in sys.argv:  # smaller settings, for the tests
    method = bz.NUTS(num_chains=2, num_warmup=200, num_draws=100)
# sphinx_gallery_end_ignore
posterior = bz.fit(model, method, frame, seed=0, progress=False)
print(posterior)

# %%
# The effect of the treatment, and of a dose of 75 against one of 25, averaged over the patients of the trial.

effects = bz.effects.avg_comparisons(posterior, {"arm": "reference", "dose": [25, 75]})
print(effects.to_frame(prob=0.9).round(2))
bz.plots.plot_comparisons(effects, backend="matplotlib")

# %%
# The curve of the dose in both arms, for a typical patient. The band is epistemic: of the expected score, not of single patients.

faint = {"observed": {"alpha": 0.3, "size": 8}}
grid = {"dose": np.linspace(0.0, 100.0, 41), "arm": ["control", "treated"]}
curve = bz.effects.predictions(posterior, grid, newdata="mean")
bz.plots.plot_predictions(
    curve, "dose", hue="arm", observed=(frame.dose, frame.score), backend="matplotlib", visuals=faint
)

# %%
# Where does more dose still help? The slope along the dose, with its interval.

steps = bz.effects.datagrid(frame, dose=np.linspace(5.0, 95.0, 31))
bz.plots.plot_slopes(bz.effects.slopes(posterior, "dose", newdata=steps), "dose", backend="matplotlib")
plt.show()

# %%
# New patients, as a frame.

new = pd.DataFrame({"clinic": ["clinic 03", "clinic 07"], "arm": "treated", "age": [40, 70], "dose": [30.0, 80.0]})
print(bz.summarise(bz.predict(posterior, new), prob=0.9).round(1))
