"""Leaving the future out of 80 rows, 40 times: a process of its own for :mod:`benchmarks.many_fits`, which pads pasts or not.

python -m benchmarks.futures METHOD padded|by_length
"""

import json
import os
import sys
import warnings

import torch

import bnnzoo as bz
from benchmarks.many_fits import regression
from bnnzoo.validation import refits

METHODS = {
    "NUTS": bz.NUTS(num_chains=1, num_warmup=300, num_draws=300),
    "Laplace": bz.Laplace(),
    "MeanFieldVI": bz.MeanFieldVI(),
}
NUM_ROWS, PASTS = 80, 40


def main() -> None:
    method, way = METHODS[sys.argv[1]], sys.argv[2]
    warnings.simplefilter("ignore")
    if way == "by_length":
        refits.padding_that_pays = lambda *_: None
    series = torch.randn(NUM_ROWS + 1, generator=torch.Generator().manual_seed(0))
    x = torch.stack([torch.ones(NUM_ROWS), series[:-1]], 1)
    before = sum(os.times()[:4])  # compilers included
    bz.validation.leave_future_out(regression(2)[0], method, x, series[1:], min_observations=NUM_ROWS - PASTS)
    print(json.dumps({"processor": sum(os.times()[:4]) - before}))


if __name__ == "__main__":
    main()
