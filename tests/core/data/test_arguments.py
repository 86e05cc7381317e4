"""Arguments by name reach the model in its own order."""

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import bnnzoo as bz
from bnnzoo.core.data.arguments import argument_names, changed_settings, positional


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


def _seeded(x, seed=0, y=None):
    w = pyro.sample("w", dist.Normal(0.0, 1.0))
    with pyro.plate("data", len(x)):
        pyro.sample("y", dist.Normal(w * x + seed, 1.0), obs=y)


@pytest.mark.parametrize(
    ("args", "named"),
    [((), {"x": torch.ones(3), "seed": 7, "y": torch.ones(3)}), ((torch.ones(3),), {"y": torch.ones(3)})],
)
def test_an_argument_named_like_a_setting_is_not_taken_for_it(args, named) -> None:
    with pytest.raises(
        TypeError, match=r"'seed' is an argument of the model and a setting of fit, which takes seed= for"
    ):
        bz.fit(_seeded, bz.MAP(num_steps=2, polish_steps=0), *args, progress=False, **named)


@pytest.mark.parametrize("call", [bz.predict, bz.posterior_predictive])
def test_predictions_do_not_take_an_argument_for_a_setting_either(call) -> None:
    x = torch.linspace(-1, 1, 5)
    posterior = bz.fit(_seeded, bz.MAP(num_steps=1), x, 0, x, progress=False)
    with pytest.raises(TypeError, match=rf"'seed' is an argument of the model and a setting of {call.__name__}"):
        call(posterior, x=x, seed=3, y=x)
    assert "conditional" in call(posterior, x, 0, x, seed=3).children
    with pytest.raises(TypeError, match="a setting of prior_predictive"):
        bz.prior_predictive(_seeded, x=x, seed=3, y=x)


def test_a_loader_gives_all_arguments_of_a_model_without_defaults() -> None:
    loader = DataLoader(TensorDataset(torch.zeros(4)), batch_size=2)
    assert positional(lambda x, y: None, (loader,), {}) == (loader,)


def test_a_setting_is_the_fits_once_the_models_argument_of_that_name_is_given() -> None:
    method = bz.MAP(num_steps=2, polish_steps=0)
    data = torch.ones(3), 5, torch.ones(3)
    first, other = (bz.fit(_seeded, method, *data, seed=seed, progress=False) for seed in (0, 7))
    assert first.density.data[1] == other.density.data[1] == 5
    assert not torch.equal(first.draws(), other.draws())


def test_a_setting_of_equal_value_has_not_changed_and_one_of_another_kind_has() -> None:
    def study(model, *data, levels=(0.5, 0.9), progress=True, path=None) -> None: ...

    equal = tuple(np.array([0.5, 0.9]).tolist())
    unchanged = {"model": model, "data": (), "levels": equal, "progress": True, "path": None}
    assert changed_settings(study, unchanged) == {"levels": False, "progress": False, "path": False}
    for name, value in (("levels", (0.5,)), ("progress", 1), ("path", "a")):
        assert changed_settings(study, unchanged | {name: value})[name]
