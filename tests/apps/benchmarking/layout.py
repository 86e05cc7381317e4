"""A small data set in the layout of the UCI benchmark."""

from pathlib import Path

import numpy as np

__all__ = ["NOISE", "SCALE", "write_rows", "write_set"]

NOISE, SCALE = 0.1, 7.0


def write_set(folder: Path, name: str, num_splits: int, seed: int) -> None:
    """Write a set whose target is a line of two inputs in units of seven, with noise of a tenth of that."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(80, 2))
    y = SCALE * (x @ [1.0, -0.5] + NOISE * rng.normal(size=80)) + 100.0
    made = folder / name
    made.mkdir(parents=True)
    np.savetxt(made / "data.txt", np.column_stack([x, y]))
    np.savetxt(made / "index_features.txt", [0, 1], fmt="%d")
    np.savetxt(made / "index_target.txt", [2], fmt="%d")
    for split in range(num_splits):
        write_rows(made, split, rng.permutation(80))


def write_rows(folder: Path, split: int, order: np.ndarray) -> None:
    """Write the rows of a split: the first 60 for training, the others for the test."""
    folder.mkdir(parents=True, exist_ok=True)
    np.savetxt(folder / f"index_train_{split}.txt", order[:60], fmt="%d")
    np.savetxt(folder / f"index_test_{split}.txt", order[60:], fmt="%d")
