"""Enter trees of predictions of other libraries into a table of the zoo.

Run: python -m benchmarks.peers.enter FOLDER TABLE      (files are named CARD.METHOD.nc)
"""

import sys
from pathlib import Path

from bnnzoo.zoo.catalogue import load
from bnnzoo.zoo.foreign import read_predictions
from bnnzoo.zoo.table import enter

if __name__ == "__main__":
    folder, table = map(Path, sys.argv[1:])
    for path in sorted(folder.glob("*.nc")):
        name, _, method = path.stem.partition(".")
        cell = enter(table, read_predictions(path, name), load(name), method)
        print(name, method, cell.distance, "off" if cell.off else "right", flush=True)
