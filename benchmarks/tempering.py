"""Parallel tempering where the answer is known: weights of modes and log evidence, with what the ladders say of themselves.

The period of a star is that of the gallery page, which is run as it is and has quadrature; the mixture in 20 dimensions and the
beta-binomial model have closed forms; the regression with a horseshoe prior is held against bridge sampling of a chain of NUTS.
Double precision; seconds are processor time of one fit, compilation included.

Run: python -m benchmarks.tempering [period|mixture|binomial|horseshoe ...]
     python -m benchmarks.tempering table
"""

import json
import math
import runpy
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from numpy.typing import NDArray
from torch import Tensor

import bnnzoo as bz
from benchmarks.pairs import RESULTS, processor_seconds, write
from bnnzoo.validation import log_evidence

PERIOD = Path(__file__).parents[1] / "examples" / "methods" / "plot_tempering.py"
CENTRES = torch.stack([torch.full((20,), -3.0), torch.full((20,), 3.0), 3.0 - 6.0 * (torch.arange(20) < 10)]).double()
WEIGHTS = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
COUNTS, TRIALS = torch.tensor([3.0, 5.0, 2.0]), 10.0
LADDERS = 4

type Facts = dict[str, Any]


def mixture() -> None:
    """A mixture of three Gaussians in 20 dimensions, as a factor by which a broad prior is multiplied; its evidence is one."""
    prior = dist.Normal(torch.zeros(20, dtype=torch.float64), 5.0).to_event(1)
    z = pyro.sample("z", prior)
    terms = WEIGHTS.log() + dist.Normal(CENTRES, 1.0).to_event(1).log_prob(z)
    pyro.factor("mixture", terms.logsumexp(0) - prior.log_prob(z))


def binomial(y: Tensor, n: float) -> None:
    """Counts among ``n`` with one probability."""
    p = pyro.sample("p", dist.Beta(2.0, 3.0))
    with pyro.plate("data", len(y)):
        pyro.sample("y", dist.Binomial(n, p), obs=y)


def evidence_of_binomial(y: Tensor, n: float) -> float:
    """Return the log evidence of ``binomial`` in closed form."""

    def log_beta(a: float, b: float) -> float:
        return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)

    choices = sum(math.log(math.comb(int(n), int(each))) for each in y)
    total = float(y.sum())
    return choices + log_beta(2 + total, 3 + n * len(y) - total) - log_beta(2, 3)


def horseshoe(x: Tensor, y: Tensor) -> None:
    """A linear regression with a horseshoe prior and known noise."""
    tau = pyro.sample("tau", dist.HalfCauchy(0.5))
    scale = pyro.sample("scale", dist.HalfCauchy(torch.ones(x.shape[1])).to_event(1))
    z = pyro.sample("z", dist.Normal(torch.zeros(x.shape[1]), 1.0).to_event(1))
    with pyro.plate("data", len(x)):
        pyro.sample("y", dist.Normal(x @ (tau * scale * z), 1.0), obs=y)


def rows_of_horseshoe() -> tuple[Tensor, Tensor]:
    """Return thirty rows of four inputs, of which the first has an effect."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(30, 4, generator=generator, dtype=torch.float64)
    return x, 2.0 * x[:, 0] + torch.randn(30, generator=generator, dtype=torch.float64)


def fitted(model: Callable[..., None], method: Any, *data: Any, seed: int = 1) -> tuple[Any, Facts]:
    """Fit in double precision; return the posterior, and its log evidence and cost."""
    began = processor_seconds()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bz.FitWarning)
        posterior = bz.fit(model, method, *data, seed=seed, dtype=torch.float64, progress=False)
    seconds, found = processor_seconds() - began, log_evidence(posterior)
    return posterior, {"seconds": seconds, "log_evidence": found.value, "log_evidence_se": found.error}


def of_ladders(posterior: Any) -> Facts:
    """Return what the record of a tempered fit says."""
    said = posterior.info.config["tempering"]
    kept = ("round_trips", "communication_barrier", "log_evidence", "log_evidence_se")
    settings = {"ladders": posterior.theta.shape[0], "draws": posterior.theta.shape[1]}
    return settings | {"temperatures": len(said["inverse_temperatures"][0])} | {key: said[key] for key in kept}


def of_weights(found: Any, exact: Any) -> Facts:
    """Return weights of modes, the right ones, and the largest difference."""
    pair = {"weights": np.asarray(found).tolist(), "exact_weights": np.asarray(exact).tolist()}
    return pair | {"weights_off": float(np.abs(np.asarray(found) - np.asarray(exact)).max())}


def shares(values: NDArray[np.floating], edges: NDArray[np.floating]) -> list[float]:
    """Return the shares of values between edges."""
    return (np.histogram(values, edges)[0] / values.size).tolist()


def period() -> Facts:
    """Run the gallery page, and return its numbers."""
    began, page = processor_seconds(), runpy.run_path(str(PERIOD))
    frequencies = {
        name: posterior.density.constrain(posterior.draws())["frequency"].numpy()
        for name, posterior in page["fits"].items()
    }
    found = of_weights(shares(frequencies["Tempered(NUTS)"], page["edges"]), page["between"])
    return {
        **of_ladders(page["fits"]["Tempered(NUTS)"]),
        **found,
        "weights_by_nuts": shares(frequencies["NUTS"], page["edges"]),
        "exact_log_evidence": float(page["log_evidence"]),
        "seconds_of_the_page": processor_seconds() - began,
    }


def of_mixture() -> Facts:
    """Return how far the weights of three modes in 20 dimensions are off."""
    sampler = bz.NUTS(num_chains=LADDERS, num_warmup=500, num_draws=1500)
    posterior, found = fitted(mixture, bz.Tempered(sampler, num_temperatures=12))
    nearest = (posterior.draws()[:, :, None] - CENTRES).square().sum(-1).argmin(-1)
    weights = [float((nearest == mode).double().mean()) for mode in range(len(WEIGHTS))]
    return of_ladders(posterior) | found | of_weights(weights, WEIGHTS) | {"exact_log_evidence": 0.0}


def of_binomial() -> Facts:
    """Return the log evidence of a conjugate model."""
    sampler = bz.NUTS(num_chains=LADDERS, num_draws=10_000)
    posterior, found = fitted(binomial, bz.Tempered(sampler, num_temperatures=6), COUNTS, TRIALS)
    return of_ladders(posterior) | found | {"exact_log_evidence": evidence_of_binomial(COUNTS, TRIALS)}


def of_horseshoe() -> Facts:
    """Return the log evidence of a regression by tempering and by bridge sampling."""
    budget: dict[str, Any] = {"num_chains": LADDERS, "num_draws": 4000}
    posterior, found = fitted(horseshoe, bz.Tempered(bz.NUTS(**budget), num_temperatures=8), *rows_of_horseshoe())
    _, by_bridge = fitted(horseshoe, bz.NUTS(**budget, target_accept=0.95), *rows_of_horseshoe())
    return of_ladders(posterior) | found | {"by_bridge": by_bridge}


CASES: dict[str, Callable[[], Facts]] = {
    "period": period,
    "mixture": of_mixture,
    "binomial": of_binomial,
    "horseshoe": of_horseshoe,
}


def stored() -> dict[str, Facts]:
    """Return what has been measured."""
    path = RESULTS / "tempering.json"
    return json.loads(path.read_text())["cases"] if path.exists() else {}


def table(cases: dict[str, Facts]) -> str:
    """Return the table of the documentation."""
    heads = "ladders x draws, temperatures | weights of modes | exactly | log evidence | exactly | Λ | round trips | seconds"
    lines = [f"| | {heads} |", "|---" * 9 + "|"]
    for name, found in cases.items():
        weights, exact = (
            ", ".join(f"{each:.3f}" for each in found.get(key, ())) for key in ("weights", "exact_weights")
        )
        bridge = found.get("by_bridge")
        known = (
            f"{bridge['log_evidence']:.2f} ± {bridge['log_evidence_se']:.2f}, by bridge sampling"
            if bridge
            else f"{found['exact_log_evidence']:.3f}"
        )
        cells = (
            f"{found['ladders']} x {found['draws']:,}, {found['temperatures']}",
            weights,
            exact,
            f"{found['log_evidence']:.3f} ± {found['log_evidence_se']:.3f}",
            known,
            f"{found['communication_barrier']:.1f}",
            f"{found['round_trips']:,}",
            f"{found['seconds']:.0f}" if "seconds" in found else "",
        )
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main(names: Sequence[str]) -> None:
    """Measure each case, and write it."""
    for name in names:
        cases = stored() | {name: CASES[name]()}
        write("tempering", {"cases": {each: cases[each] for each in CASES if each in cases}})
        print(name, cases[name], flush=True)
    print(table(stored()))


if __name__ == "__main__":
    main(() if sys.argv[1:] == ["table"] else sys.argv[1:] or tuple(CASES))
