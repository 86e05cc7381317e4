"""Whole numbers keep their kind: codes of groups beside outcomes of 0 and 1, codes out of range, arrays within mappings."""

from collections import namedtuple
from typing import Any

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

import bnnzoo as bz
from bnnzoo.core.data.minibatch import as_tensors
from bnnzoo.core.model.density import build_density

CODES = torch.arange(40) % 5
X = torch.linspace(-1, 1, 40)
METHOD = bz.MAP(num_steps=2, polish_steps=0)


def clinics(clinic: Tensor, x: Tensor, y: Tensor) -> None:
    with pyro.plate("clinics", 5):
        effect = pyro.sample("effect", dist.Normal(0.0, 1.0))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Bernoulli(logits=effect[clinic] + x), obs=y)


@pytest.mark.parametrize("kind", [bool, int, np.int8, np.uint8, float])
def test_outcomes_of_any_kind_stand_beside_codes(kind: Any) -> None:
    y = (X > 0).numpy().astype(kind)
    posterior = bz.fit(clinics, METHOD, CODES, X, y, progress=False)
    assert not posterior.density.data[0].is_floating_point()
    data = CODES, X.double(), (X > 0).double()
    expected = build_density(clinics, *data).log_joint(torch.ones(5, dtype=torch.float64), *data)
    found = posterior.density.log_joint(torch.ones(5).to(posterior.theta), *posterior.density.data)
    assert float(found) == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize(
    ("codes", "sentence"),
    [
        (
            CODES + 1,
            r"argument 1 \('clinic'\) holds the code 5 in row 4, .* indexes 5 groups by it.*Subtract 1: codes begin at 0",
        ),
        (torch.where(CODES == 3, 9, CODES), r"holds the code 9 in row 3, .* codes run from 0 to 4\. Number the groups"),
        (torch.where(CODES == 2, -1, CODES), r"holds the code -1 in row 2, .* would count from the last group"),
        (
            CODES.double(),
            r"argument 1 \('clinic'\) holds floating-point numbers \(torch.float64\), and the model indexes by it\. .*\.long\(\)",
        ),
    ],
)
def test_codes_out_of_range_are_named(codes: Tensor, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        bz.fit(clinics, METHOD, codes, X, (X > 0).int(), progress=False)


Rows = namedtuple("Rows", ["x", "weights"])


@pytest.mark.parametrize(
    "held",
    [
        {"x": X.numpy(), "extra": {"deeper": np.arange(3)}},
        {"x": pd.Series(X.numpy(), index=range(100, 140))},
        {"x": X.tolist()},
        {"x": pd.DataFrame({"x": X.numpy()})["x"]},
    ],
)
def test_arrays_within_mappings_are_converted(held: dict[str, Any]) -> None:
    def model(data: dict[str, Tensor], y: Tensor) -> None:
        w = pyro.sample("w", dist.Normal(0.0, 1.0))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(w * data["x"], 1.0), obs=y)

    posterior = bz.fit(model, METHOD, held, X, progress=False)
    assert isinstance(posterior.density.data[0]["x"], Tensor)
    assert not isinstance(held["x"], Tensor)  # the user's own mapping is as it was


def test_arrays_within_named_tuples_are_converted_and_what_is_missing_in_them_is_named() -> None:
    def model(data: Any, y: Tensor) -> None:
        w = pyro.sample("w", dist.Normal(0.0, 1.0))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(w * data.x, 1.0), obs=y)

    posterior = bz.fit(model, METHOD, Rows(X.numpy(), None), X, progress=False)
    assert isinstance(posterior.density.data[0], Rows)
    gaps = X.clone()
    gaps[7] = torch.nan
    with pytest.raises(ValueError, match=r"argument 1 of the model\.x holds nan at row 7"):
        bz.fit(model, METHOD, Rows(gaps, None), X, progress=False)
    with pytest.raises(ValueError, match=r"argument 1 of the model\['x'\] holds nan at row 7"):
        bz.fit(model, METHOD, {"x": gaps}, X, progress=False)


@pytest.mark.parametrize("kind", [bool, int, np.uint8])
def test_outcomes_within_mappings_stand_beside_codes_as_arguments_do(kind: Any) -> None:
    def model(data: dict[str, Any]) -> None:
        clinics(data["clinic"], data["inputs"].x, data["y"])

    y = (X > 0).numpy().astype(kind)
    held = {"clinic": pd.Series(CODES.numpy()), "inputs": Rows(X.numpy(), None), "y": y}
    posterior, beside = (
        bz.fit(model, METHOD, held, progress=False),
        bz.fit(clinics, METHOD, CODES, X, y, progress=False),
    )
    assert not posterior.density.data[0]["clinic"].is_floating_point()
    torch.testing.assert_close(posterior.theta, beside.theta, rtol=0, atol=0)


def test_new_data_within_mappings_take_the_types_of_the_fit() -> None:
    def model(data: dict[str, Any], y: Tensor | None = None) -> None:
        w = pyro.sample("w", dist.Normal(torch.zeros(2), 1.0).to_event(1))
        with pyro.plate("rows", len(data["x"])):
            pyro.sample("y", dist.Normal(data["x"] @ w, 1.0), obs=y)

    x = np.stack([np.arange(40), np.ones(40)], 1)
    posterior = bz.fit(model, METHOD, {"x": x.astype(float), "unused": [1, 2]}, X, progress=False)
    for new in ({"x": x.astype(int), "unused": [1, 2]}, {"x": x.astype(int)}):
        given, expected = bz.predict(posterior, new), bz.predict(posterior, {"x": x.astype(float)})
        np.testing.assert_array_equal(given["predictions"]["y"], expected["predictions"]["y"])


def squares(y: Tensor) -> None:
    mu = pyro.sample("mu", dist.Normal(0.0, 100.0))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal(mu, 1.0), obs=(y * y - 128.0 * (y > 250)).float())


@pytest.mark.parametrize("kind", [np.int8, np.int16, np.uint8])
def test_small_integers_do_not_wrap(kind: Any) -> None:
    density = build_density(
        squares, *as_tensors((np.array([20, 100], dtype=kind),), torch.float64, torch.device("cpu"))
    )
    assert density.data[0].dtype == torch.int64 and (density.data[0] ** 2).tolist() == [400, 10000]


def test_integers_beyond_64_bits_are_refused() -> None:
    with pytest.raises(ValueError, match=r"holds 18446744073709551615, beyond 64-bit integers.*floating-point"):
        bz.fit(squares, METHOD, np.array([1, 2**64 - 1], dtype=np.uint64), progress=False)


def test_labels_as_text_name_factorize() -> None:
    with pytest.raises(ValueError, match=r"labels of groups or classes with pandas\.factorize"):
        bz.fit(squares, METHOD, np.array(["a", "b"]), progress=False)


MISSING = torch.where(CODES == 2, -1, CODES)


def in_a_mapping(data: dict[str, Tensor], x: Tensor, y: Tensor | None = None) -> None:
    clinics(data["clinic"], x, y)


def in_a_matrix(matrix: Tensor, x: Tensor, y: Tensor | None = None) -> None:
    clinics(matrix[:, 1].long(), x, y)


def one_hot(clinic: Tensor, x: Tensor, y: Tensor | None = None) -> None:
    clinics(torch.nn.functional.one_hot(clinic, 5).argmax(1), x, y)


def with_default(clinic: Tensor, x: Tensor, y: Tensor | None = None) -> None:
    clinics(clinic, x, y)


@pytest.mark.filterwarnings("ignore:The model could not be traced")  # torch's one_hot looks at its codes
@pytest.mark.parametrize(
    ("model", "given", "name"),
    [
        (with_default, lambda codes: codes, r"\('clinic'\)"),
        (in_a_mapping, lambda codes: {"clinic": codes}, r"\(\"data\['clinic'\]\"\)"),
        (in_a_matrix, lambda codes: torch.stack([X, codes.to(X)], 1), r"\('matrix', column 1\)"),
        (one_hot, lambda codes: codes, r"\('clinic'\)"),
    ],
)
def test_negative_codes_are_refused_wherever_they_are_and_at_predictions_too(model: Any, given: Any, name: str) -> None:
    y, sentence = (X > 0).float(), rf"argument 1 {name} holds the code -1 in row 2, .* would count from the last group"
    with pytest.raises(ValueError, match=sentence):
        bz.fit(model, METHOD, given(MISSING), X, y, progress=False)
    posterior = bz.fit(model, METHOD, given(CODES), X, y, progress=False)
    with pytest.raises(ValueError, match=sentence):
        bz.predict(posterior, given(MISSING), X)
    assert bz.predict(posterior, given(CODES), X)["predictions"].sizes["obs_id"] == 40


def test_indices_that_the_model_computes_are_its_own_affair() -> None:
    def circular(x: Tensor, y: Tensor) -> None:
        a = pyro.sample("a", dist.Normal(0.0, 1.0))
        with pyro.plate("rows", len(x)):
            pyro.sample("y", dist.Normal(a * x[torch.arange(len(x)) - 1], 1.0), obs=y)

    bz.fit(circular, METHOD, X, X, progress=False)


def test_whole_numbers_that_were_tried_as_others_are_not_called_floating_point_numbers() -> None:
    """What a model cannot do is said of the data as they were given, and not of those that were converted for it."""

    def model(clinic: Tensor, y: Tensor) -> None:
        effect = pyro.sample("effect", dist.Normal(torch.zeros(5), 1.0).to_event(1))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(effect[clinic] + torch.arange(3), 1.0), obs=y)

    with pytest.raises(ValueError, match=r"clinic \[40\] \(int64\), y \[40\] \(float64\): The size of tensor a \(40\)"):
        bz.fit(model, METHOD, CODES, X, progress=False)
