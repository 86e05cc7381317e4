"""One network instead of thousands of draws: its errors in Monte Carlo floors, and how much faster it answers.

Run: python -m benchmarks.distil

Posteriors of cards of the zoo by NUTS, with the card's own settings, 4,000 draws. The student has the default settings, which
were chosen on the first three cards with other held-out points; the last two were left aside until then. Draws and student
answer in turn, once a round; seconds are processor time of one answer, so that other load counts little. ``predict`` gives the
moments of each draw only (``keep=("conditional",)``), ``decompose`` also takes the averages that the student gives.
"""

import statistics
import time
import warnings
from collections.abc import Callable

import numpy as np
import torch

from benchmarks.pairs import in_turn, microseconds, write

CARDS = ("foong-one-layer", "neal-three-classes", "cubic", "two-moons", "poisson-counts")
ROWS = (1, 1000)
SEED = 2
NUM_CALLS = 200  # of the student in a round


def seconds(call: Callable[[], object], number: int = 1) -> float:
    """Return the mean processor time of a call."""
    return microseconds(call, number) / 1e6


def measured(name: str) -> dict[str, object]:
    """Return the errors and times of one card."""
    import bnnzoo as bz

    card = bz.zoo.load(name)
    inputs = np.asarray(card.data().train["x"], dtype=float)
    posterior = card.fit("nuts", progress=False)
    start = time.process_time()
    student = bz.distil(posterior, inputs, seed=SEED)
    found = {"distil_seconds": time.process_time() - start, "num_draws": len(posterior.draws().flatten(0, 1))}
    found["errors"] = {
        place: {part: dict(zip(one["measure"].to_numpy(), one[part].to_numpy().tolist(), strict=True)) for part in one}
        for place, one in student.report.groupby("place")
        for one in [one.squeeze("place")]
    }
    rng = np.random.default_rng(SEED)
    for rows in ROWS:
        x = torch.as_tensor(rng.uniform(inputs.min(0), inputs.max(0), (rows, inputs.shape[1])))
        x32 = x.float()

        def predict(x: torch.Tensor = x) -> object:
            return bz.predict(posterior, x, keep=("conditional",))

        def student_alone(x: torch.Tensor = x32) -> object:
            with torch.inference_mode():
                return student.module(x)

        candidates = {
            "predict": lambda: seconds(predict),
            "decompose": lambda: seconds(lambda: bz.uncertainty.decompose(predict())),
            "student": lambda: seconds(student_alone, NUM_CALLS),
        }
        for _ in range(3):
            predict()
        times = in_turn(candidates)
        medians = {each: statistics.median(values) for each, values in times.items()}
        ratios = {each: medians[each] / medians["student"] for each in ("predict", "decompose")}
        found[f"rows_{rows}"] = {"runs": times, "medians": medians, "ratios": ratios}
        print(
            name,
            rows,
            "rows:",
            {each: f"{value:.3g} s" for each, value in medians.items()},
            "ratios",
            ratios,
            flush=True,
        )
    print(student, flush=True)
    return found


def main() -> None:
    """Measure and write the results."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    found = {}
    for name in CARDS:
        found[name] = measured(name)
        write("distil", {"cards": found})


if __name__ == "__main__":
    main()
