"""Simulation-based calibration of NUTS on the models of the zoo's references, which goes on where it stopped.

python -m benchmarks.calibrated_cards FOLDER SIMULATIONS ["CARD;CARD"]

A reference is a long run of an exact sampler; is that right on average, over data that its model makes? FOLDER
takes the ranks of each card; the record is written after each. Of so many models some are called off by chance: these get four
times as many simulations.
"""

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import bnnzoo as bz
from benchmarks.calibrated import CHAIN, calibrated
from benchmarks.pairs import RESULTS, write
from bnnzoo.zoo.reference import referenced

RECORD = "calibrated_cards"


def main() -> None:
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    warnings.simplefilter("ignore")
    folder, number = Path(sys.argv[1]), int(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    record = RESULTS / f"{RECORD}.json"
    cells: dict[str, Any] = json.loads(record.read_text())["cells"] if record.exists() else {}
    for name in sys.argv[3].split(";") if len(sys.argv) > 3 else referenced():
        card = bz.zoo.load(name)
        for simulations in (number, 4 * number):
            cells[name] = calibrated(
                card.model(),
                card.data().train.values(),
                bz.NUTS(**CHAIN),
                simulations,
                folder / f"{name}.sbc",
                card.dtype,
            )
            if not cells[name].get("off"):
                break
        print(f"{name:30} {cells[name]}", flush=True)
        write(RECORD, {"unit": "ranks of truths among 19 draws", "cells": dict(sorted(cells.items()))})


if __name__ == "__main__":
    main()
