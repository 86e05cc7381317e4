"""Arguments that predictions leave out: observations that the model needs, and numbers of rows."""

from collections import OrderedDict
from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
import xarray as xr
from torch import Tensor

import bnnzoo as bz
from bnnzoo.core.posterior.posterior import Posterior
from bnnzoo.core.types import Model

X = torch.linspace(-1, 1, 40)
Y = 1 + 2 * X + 0.1 * torch.randn(40, generator=torch.Generator().manual_seed(0))
GROUPS = torch.arange(40) % 4
NEW = torch.linspace(-3, 3, 5)


def line(num_rows: int, x: Tensor, y: Tensor | None) -> None:
    a, b = pyro.sample("a", dist.Normal(0.0, 10.0)), pyro.sample("b", dist.Normal(0.0, 10.0))
    with pyro.plate("rows", num_rows):
        pyro.sample("y", dist.Normal(a + b * x, 0.1), obs=y)


def by_length(x: Tensor, y: Tensor) -> None:
    line(len(y), x, y)


def by_shape(x: Tensor, y: Tensor) -> None:
    line(y.shape[0], x, y)


def positive(x: Tensor, y: Tensor) -> None:
    line(len(x), x, torch.where(y > -1e9, y, y))


def size_first(N: int, x: Tensor, y: Tensor) -> None:
    line(N, x, y)


def size_last(x: Tensor, y: Tensor, N: int) -> None:
    line(N, x, y)


def fitted(model: Model, *data: object) -> Posterior:
    return bz.fit(model, bz.Laplace(), *data, progress=False)


def mean(tree: xr.DataTree) -> Tensor:
    return torch.from_numpy(tree["conditional"]["mean"].values.mean((0, 1)))


@pytest.mark.parametrize("model", [by_length, by_shape, positive], ids=lambda m: m.__name__)
def test_a_model_that_needs_observations_predicts_without_them(model: Model) -> None:
    tree = bz.predict(fitted(model, X, Y), NEW, num_draws=50)
    assert dict(tree["predictions"].sizes) == {"chain": 1, "draw": 50, "obs_id": 5}
    torch.testing.assert_close(mean(tree).double(), (1 + 2 * NEW).double(), atol=0.2, rtol=0.0)
    assert "predictions_log_likelihood" not in tree.children
    assert list(tree["predictions_constant_data"].data_vars) == ["x"]


def in_mapping(data: dict[str, Any]) -> None:
    line(len(data["x"]), data["x"], data["y"])


def by_length_of_an_entry(data: dict[str, Any]) -> None:
    by_length(data["x"], data["y"])


def size_in_mapping(data: dict[str, Any]) -> None:
    line(data["N"], data["x"], data["y"])


def deeper(data: dict[str, Any]) -> None:
    line(len(data["x"]), data["x"], data["outcomes"]["y"])


def optional(data: dict[str, Any]) -> None:
    line(len(data["x"]), data["x"], data.get("y"))


@pytest.mark.parametrize(
    ("model", "held"),
    [
        (in_mapping, {"x": X, "y": Y}),
        (by_length_of_an_entry, {"x": X, "y": Y, "unused": Y}),
        (size_in_mapping, OrderedDict(N=40, x=X, y=Y)),
        (deeper, {"x": X, "outcomes": {"y": Y}}),
        (optional, {"x": X, "y": Y}),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_entries_of_mappings_are_left_out_as_arguments_are(model: Model, held: dict[str, Any]) -> None:
    new = {"x": NEW}
    tree = bz.predict(fitted(model, held), new, num_draws=50)
    assert dict(tree["predictions"].sizes) == {"chain": 1, "draw": 50, "obs_id": 5}
    torch.testing.assert_close(mean(tree).double(), (1 + 2 * NEW).double(), atol=0.2, rtol=0.0)
    assert "predictions_log_likelihood" not in tree.children and list(new) == ["x"]


def test_an_entry_that_is_an_input_is_asked_for() -> None:
    def two_inputs(data: dict[str, Any]) -> None:
        line(len(data["x"]), data["x"] + data["z"], data["y"])

    posterior = fitted(two_inputs, {"x": X, "z": 0.1 * Y, "y": Y})
    with pytest.raises(ValueError, match=r"computes with .*\"data\['z'\]\".* elsewhere than where it observes 'y'"):
        bz.predict(posterior, {"x": NEW})


def test_other_observations_of_the_fit_change_no_draw() -> None:
    posterior = fitted(by_length, X, Y)
    less = bz.predict(posterior, NEW, num_draws=20)
    more = bz.predict(posterior, NEW, torch.zeros(5), num_draws=20)
    assert less["predictions"].identical(more["predictions"])
    assert posterior.density.model is by_length


def test_measures_of_new_rows_leave_observations_out_too() -> None:
    posterior = fitted(by_length, X, Y)
    found = bz.measure_predictions(posterior, bz.uncertainty.decompose, NEW, num_draws=20)
    assert dict(found.sizes) == {"obs_id": 5}


@pytest.mark.parametrize("given", [(5, NEW), (NEW,)], ids=["size", "no size"])
def test_numbers_of_rows_that_come_first(given: tuple[object, ...]) -> None:
    tree = bz.predict(fitted(size_first, 40, X, Y), *given, num_draws=20)
    torch.testing.assert_close(mean(tree).double(), (1 + 2 * NEW).double(), atol=0.2, rtol=0.0)


def test_numbers_of_rows_that_come_last_or_by_name() -> None:
    posterior = fitted(size_last, X, Y, 40)
    for tree in (bz.predict(posterior, NEW, num_draws=20), bz.predict(posterior, x=NEW, N=5, num_draws=20)):
        assert tree["predictions"].sizes["obs_id"] == 5


def test_groups_of_new_rows() -> None:
    def model(g: Tensor, y: Tensor) -> None:
        with pyro.plate("groups", 4):
            a = pyro.sample("a", dist.Normal(0.0, 5.0))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(a[g], 0.1), obs=y)

    tree = bz.predict(fitted(model, GROUPS, 1.0 * GROUPS), torch.tensor([3, 0]), num_draws=20)
    torch.testing.assert_close(mean(tree).double(), torch.tensor([3.0, 0.0]).double(), atol=0.1, rtol=0.0)


def test_filled_models_and_mixtures() -> None:
    def model(x: Tensor, y: Tensor) -> None:
        b = pyro.sample("b", dist.Normal(torch.zeros(2), 5.0).to_event(1))
        f = torch.zeros(len(y))
        for i in range(len(y)):
            f[i] = b[0] + b[1] * x[i]
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(f, 0.1), obs=y)

    posterior = bz.fit(model, bz.MeanFieldVI(num_restarts=2, num_steps=50), X[:6], Y[:6], progress=False)
    assert bz.predict(posterior, NEW, num_draws=20)["predictions"].sizes["obs_id"] == 5


def test_observations_that_are_inputs_are_asked_for() -> None:
    def model(x: Tensor, y: Tensor) -> None:
        line(len(x), x + y.roll(1), y)

    with pytest.raises(
        ValueError, match=r"The model computes with 'y' elsewhere than where it observes 'y'.* pass them"
    ):
        bz.predict(fitted(model, X, Y), NEW)


def test_an_input_is_asked_for() -> None:
    def model(x: Tensor, offset: float, y: Tensor) -> None:
        line(len(x), x + offset, y)

    with pytest.raises(TypeError, match="no default for 'offset' and 'y', which are missing"):
        bz.predict(fitted(model, X, 0.5, Y), NEW)
