"""State as arrays and back: structure, kinds of leaves and values survive."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from bnnzoo.engine.packed import Packed
from bnnzoo.inference.markov.snapshots import from_arrays, to_arrays


class State(NamedTuple):
    packed: Packed
    scale: Tensor
    length: float
    num_steps: int
    block: np.ndarray


def state(value: float) -> State:
    packed = Packed({"a": torch.full((2,), value), "b": torch.ones(3, dtype=torch.bool)})
    return State(packed, torch.tensor(value, dtype=torch.float32), value, int(value), np.full(3, value))


def test_everything_comes_back() -> None:
    saved = {"state": (state(3.0),), "calls": [1, 2]}
    found = from_arrays(to_arrays(saved), like={"state": (state(0.0),), "calls": [0, 0]})
    (back,) = found["state"]
    assert found["calls"] == [1, 2] and isinstance(back, State)
    assert back.length == 3.0 and back.num_steps == 3 and type(back.num_steps) is int
    assert back.scale.dtype == torch.float32 and float(back.scale) == 3.0
    assert torch.equal(back.packed.value["a"], torch.full((2,), 3.0)) and bool(back.packed.value["b"].all())
    np.testing.assert_array_equal(back.block, np.full(3, 3.0))


def test_a_snapshot_does_not_change_afterwards() -> None:
    tensor = torch.zeros(2)
    arrays = to_arrays({"x": tensor})
    tensor += 1
    assert arrays["x.0"].tolist() == [0.0, 0.0]
    back = from_arrays(arrays, like={"x": tensor})["x"]
    back += 1
    assert arrays["x.0"].tolist() == [0.0, 0.0]
