"""Six cards in plain numbers, and the run of a library's methods on them: shared by the scripts, which need no bnnzoo."""

import json
import sys
import time
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

__all__ = ["CARDS", "NUM_DRAWS", "Fitted", "PeerCard", "expected", "run"]

NUM_DRAWS = 1000

Sites = Mapping[str, NDArray[np.floating]]


class PeerCard(NamedTuple):
    """A multilayer perceptron with tanh units, or a linear predictor, and what is observed given its output.

    Attributes
    ----------
    kind : str
        "normal", "bernoulli" or "poisson".
    sizes : tuple of int
        Inputs, hidden units and output.
    gain : float
        Weights are N(0, gain² / fan-in) where there are hidden units, and N(0, gain²) otherwise.
    bias_sd : float
    noise : float
        Standard deviation of a normal outcome.
    """

    kind: str
    sizes: tuple[int, ...]
    gain: float
    bias_sd: float = 1.0
    noise: float = 1.0

    @property
    def layers(self) -> list[tuple[int, int, float]]:
        """Fan-in, width and standard deviation of the weights of each layer."""
        is_network = len(self.sizes) > 2
        return [
            (fan_in, width, self.gain / fan_in**0.5 if is_network else self.gain)
            for fan_in, width in pairwise(self.sizes)
        ]


CARDS = {
    "linear-regression": PeerCard("normal", (3, 1), 1.0, noise=0.5),
    "logistic-regression": PeerCard("bernoulli", (2, 1), 1.5, bias_sd=1.5),
    "cubic": PeerCard("normal", (1, 20, 1), 3.0, noise=3 / 25),
    "two-moons": PeerCard("bernoulli", (2, 10, 1), 3.0),
    "overlapping-classes": PeerCard("bernoulli", (1, 10, 1), 3.0),
    "poisson-counts": PeerCard("poisson", (1, 10, 1), 1.5),
}


class Fitted(NamedTuple):
    """What a fit leaves behind.

    Attributes
    ----------
    predict : callable
        Returns draws ``[chain, draw, row]`` of the network's output at inputs ``[row, column]``.
    is_chain : bool
    gradients : int, optional
    """

    predict: Callable[[NDArray[np.floating]], NDArray[np.floating]]
    is_chain: bool = False
    gradients: int | None = None


def expected(card: PeerCard, output: NDArray[np.floating]) -> tuple[str, NDArray[np.floating]]:
    """Return the name and the draws of the expected outcome or of the class probabilities."""
    if card.kind == "bernoulli":
        p = 1 / (1 + np.exp(-output))
        return "probs", np.stack([1 - p, p], -1)
    return "mean", np.exp(output) if card.kind == "poisson" else output


def outputs(card: PeerCard, sites: Sites) -> Callable[[NDArray[np.floating]], NDArray[np.floating]]:
    """Return the network's output for draws ``[chain, draw, ...]`` of the sites w0, b0, w1, ..."""

    def predict(x: NDArray[np.floating]) -> NDArray[np.floating]:
        for number in range(len(card.layers)):
            x = x @ np.asarray(sites[f"w{number}"]) + np.asarray(sites[f"b{number}"])[..., None, :]
            x = np.tanh(x) if number < len(card.layers) - 1 else x
        return x[..., 0]

    return predict


def run(methods: Mapping[str, Callable[[PeerCard, NDArray[np.floating], NDArray[np.floating]], Fitted | None]]) -> None:
    """Write a netCDF tree for each card and method that has none, as the command line asks.

    Arguments are what ``bnnzoo zoo export`` wrote, the folder for the trees and, separated by commas, cards and methods. A method
    returns ``None`` for a card to which it does not apply.
    """
    references, out = map(Path, sys.argv[1:3])
    asked = [each.split(",") for each in sys.argv[3:5]]
    names, chosen = (*asked, *([*CARDS], [*methods])[len(asked) :])
    out.mkdir(parents=True, exist_ok=True)
    for name, method in ((name, method) for name in names for method in chosen):
        path = out / f"{name}.{method}.nc"
        if path.exists():
            continue
        data = json.loads((references / "data" / f"{name}.json").read_text())
        x, y, test = (np.array(data[part][column]) for part, column in (("train", "x"), ("train", "y"), ("test", "x")))
        began = time.perf_counter()
        fitted = methods[method](CARDS[name], x, y)
        if fitted is None:
            continue
        seconds = time.perf_counter() - began
        quantity, values = expected(CARDS[name], fitted.predict(test))
        dims = ("chain", "draw", "obs_id", "class_id")[: values.ndim]
        tree = xr.DataTree.from_dict({"conditional": xr.Dataset({quantity: (dims, values.astype(float))})})
        tree.attrs = {"sampling": "mcmc" if fitted.is_chain else "iid", "seconds": seconds, "seed": 0}
        tree.attrs |= {} if fitted.gradients is None else {"num_gradients": fitted.gradients}
        tree.to_netcdf(path, engine="h5netcdf")
        print(name, method, f"{seconds:.1f} s", flush=True)
