"""What a run of 1,000 draws a chain says about cards that have a long run and no accepted reference posterior.

A reference needs R-hat below 1.01 and more than 1,000 effective draws of every prediction. Warm-up, chains and sampler are those of
the card's long run. Cards of an earlier run are kept in the file of results.

Run: BNNZOO_DATA=... python -m benchmarks.unreferenced CARD ...
"""

import json
import sys
import warnings
from dataclasses import replace
from typing import Any

import bnnzoo as bz
from benchmarks.pairs import RESULTS, processor_seconds, write

NAME, NUM_DRAWS = "unreferenced", 1000


def probe(name: str) -> dict[str, Any]:
    """Run the sampler of a card's long run for fewer draws, and judge its predictions."""
    card, began = bz.zoo.load(name), processor_seconds()
    method: Any = card.long_run
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bz.FitWarning)  # that it has not converged is what is asked
        posterior = card.fit(replace(method, num_draws=NUM_DRAWS), seed=0)
    function = bz.diagnostics.function_space(card.predict(posterior, weights=False))
    return {
        "sampler": type(method).__name__,
        "chains": method.num_chains,
        "warmup": method.num_warmup,
        "draws": NUM_DRAWS,
        "max_rhat": float(function["rhat"].max()),
        "min_ess_bulk": float(function["ess_bulk"].min()),
        "gradients": posterior.info.num_gradients,
        "seconds": processor_seconds() - began,
    }


if __name__ == "__main__":
    for each in sys.argv[1:]:
        path = RESULTS / f"{NAME}.json"
        found = json.loads(path.read_text())["cards"] if path.exists() else {}
        found[each] = probe(each)
        print(each, found[each], flush=True)
        write(NAME, {"cards": found})
