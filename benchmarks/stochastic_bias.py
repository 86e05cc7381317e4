"""Bias of stochastic-gradient chains on linear-Gaussian models with an exact answer, at the same number of gradients.

1,000 rows, 10 inputs, batches of 20. With orthogonal inputs of one scale the gradient noise is isotropic; of unequal scales, it
is nearly so after preconditioning; with correlated inputs a diagonal preconditioner cannot make it so. Reported are the mean
over parameters of variance over exact variance, its Monte Carlo standard error, the root mean square error of means in
posterior sds, and the effective draws.

Run: python -m benchmarks.stochastic_bias [draws]
"""

import sys
from typing import Any

import numpy as np
import torch
from arviz_stats.base.array import array_stats

import bnnzoo as bz
from benchmarks.pairs import save
from bnnzoo.testing import LinearGaussian, ill_conditioned, linear_gaussian

CHAINS, BATCH, STEPS = 8, 20, 40


def summary(target: LinearGaussian, method: Any) -> dict[str, float]:
    """Fit and compare with the exact moments."""
    posterior = bz.fit(target.model, method, *target.data, dtype=torch.float64, progress=False)
    mean, sd = target.mean["w"].numpy(), target.sd["w"].numpy()
    z = (posterior.density.constrain(posterior.draws())["w"].numpy() - mean) / sd
    ess = {k: array_stats.ess(v, chain_axis=0, draw_axis=1, method="mean") for k, v in {"z": z, "z2": z**2}.items()}
    ratio = (z**2).mean((0, 1))
    return {
        "variance_ratio": float(ratio.mean()),
        "standard_error": float(np.sqrt((z**2).var((0, 1)) / ess["z2"]).mean() / np.sqrt(len(mean))),
        "lowest": float(ratio.min()),
        "highest": float(ratio.max()),
        "rms_error_of_means": float(np.sqrt((z.mean((0, 1)) ** 2).mean())),
        "min_ess": float(ess["z"].min()),
        "gradients_of_a_chain": posterior.info.num_gradients / CHAINS,
    }


def main(num_draws: int = 1000) -> None:
    """Run every sampler on every model and write what was found."""
    targets = {
        "isotropic noise": linear_gaussian(num_data=1000, num_inputs=10, correlation=0.0),
        "unequal scales": ill_conditioned(condition=100.0, num_data=1000, num_inputs=10),
        "correlated noise": linear_gaussian(num_data=1000, num_inputs=10, correlation=0.6),
    }
    budget: dict[str, Any] = {
        "num_chains": CHAINS, "num_draws": num_draws, "batch_size": BATCH, "steps_per_draw": STEPS, "num_warmup": 150
    }  # fmt: skip
    methods = {
        "StochasticMCLMC": bz.StochasticMCLMC(**budget),
        "StochasticMCLMC, no preconditioning": bz.StochasticMCLMC(**budget, preconditioning=None),
        "SGHMC": bz.SGHMC(**budget),
        "SGHMC, noise corrected": bz.SGHMC(**budget, noise_correction=True),
    }
    runs = {}
    for model, target in targets.items():
        for name, method in methods.items():
            runs[f"{model}: {name}"] = found = summary(target, method)
            print(model, name, {key: round(value, 3) for key, value in found.items()}, flush=True)
    ratios = {name: [found["variance_ratio"]] for name, found in runs.items()}
    save("stochastic_bias", "variance / exact", ratios, next(iter(ratios)), runs=runs, draws=num_draws, batch=BATCH)


if __name__ == "__main__":
    main(*(int(value) for value in sys.argv[1:]))
