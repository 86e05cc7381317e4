"""Arguments by name reach the model in its own order."""

import pytest
import torch
from torch import nn

from bnnzoo.core.arguments import argument_names, positional


def model(x, mask=None, y=None) -> None: ...


class Module(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor | None = None) -> None: ...


def test_names_and_positions_are_put_together() -> None:
    assert positional(model, (1, 2, 3), {}) == (1, 2, 3)
    assert positional(model, (), {"y": 3, "x": 1}) == (1, None, 3)
    assert positional(model, (1,), {"mask": 2}) == (1, 2)
    assert positional(Module(), (1,), {"y": 2}) == (1, 2)


def test_names_of_arguments() -> None:
    assert argument_names(model, 2) == ["x", "mask"]
    assert argument_names(Module(), 2) == ["x", "y"]
    assert argument_names(lambda *data: None, 2) == ["argument_0", "argument_1"]


@pytest.mark.parametrize(
    ("args", "kwargs", "sentence"),
    [
        ((), {"z": 1}, r"no positional argument 'z'; its arguments are x, mask, y"),
        ((1,), {"x": 1}, r"'x' of the model is passed twice"),
        ((), {"y": 1}, r"argument 'x' is missing, and the model has no default"),
        ((), {}, r"takes 'x', 'mask', 'y', and has no default for 'x', which is missing. Pass None for observations"),
    ],
)
def test_what_does_not_fit_is_refused(args, kwargs, sentence) -> None:
    with pytest.raises(TypeError, match=sentence):
        positional(model, args, kwargs)
