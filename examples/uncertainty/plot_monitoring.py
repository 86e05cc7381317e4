"""
A saved posterior in use: predictions, monitoring and a report
===============================================================

A network is fitted once and saved. Later, another process loads it, predicts new rows as they arrive, and asks whether the
rows still look like those of the fit, and whether they are predicted as well.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np

import bnnzoo as bz

# %%
# The day of the fit. Save the posterior, and the predictions for held-out rows, which are the reference for later ones.

rng = np.random.default_rng(0)


def rows(number: int, shift: np.ndarray | float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Return two inputs and a target; the first input moves by ``shift``."""
    inputs = rng.normal(size=(number, 2)) + np.array([1.0, 0.0]) * np.reshape(shift, (-1, 1))
    return inputs, np.sin(2 * inputs[:, 0]) + 0.5 * inputs[:, 1] + 0.2 * rng.normal(size=number)


model = bz.models.supervised(bz.models.mlp(2, (20,)), bz.priors.fan_in(2.0), bz.likelihoods.gaussian())
method = bz.NUTS(num_chains=2, num_warmup=300, num_draws=300)
num_new = 1000
# sphinx_gallery_start_ignore
if "--smoke" in sys.argv:  # smaller settings, for the tests
    method = bz.MAP(num_members=4, num_steps=40, polish_steps=0)
    num_new = 100
# sphinx_gallery_end_ignore
x, y = rows(200)
bz.fit(model, method, x, y, seed=0, progress=False).save("model.bnn")

# %%
# Another day. Loading takes the code of the model, but no data. Rows arrive in order, and from the middle on their first
# input moves.

posterior = bz.load("model.bnn", model)
reference = bz.predict(posterior, *rows(500))
new = bz.predict(posterior, *rows(num_new, np.maximum(0.0, np.linspace(-2.5, 2.5, num_new))))
windows = bz.monitor(reference, new, num_windows=10)
print(windows[["unusual", "drift_p_value", "coverage"]].to_dataframe().round(3))

# %%
# Drift shows in the inputs first, without labels: the fraction of unusual rows rises above 5%. Where labels arrive, too, the log
# score and the coverage say what it costs.

bz.plots.plot_windows(windows)

# %%
# The same as a page to pass on, next to the scores, the parts of the uncertainty and the calibration of the new rows.

bz.report({"network": new}, "report.html", windows=windows, title="Predictions of this week")
plt.show()
