"""Data that do not fit a model: converted where that can be, else one sentence, at the fit and at a prediction."""

import traceback

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import nn

import bnnzoo as bz
from bnnzoo.core.data.conversion import DataError
from bnnzoo.testing import check_model
from tests.helpers.exact import narrow_posterior

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 5))
Y = X[:, 0]
WHOLE = RNG.integers(0, 5, (40, 5))
COUNTS = RNG.poisson(3, 40)
PRIOR = bz.priors.normal(1.0)


def supervised(likelihood, inputs=5, outputs=1):
    return bz.models.supervised(bz.models.mlp(inputs, (4,), outputs), PRIOR, likelihood)


REGRESSION = supervised(bz.likelihoods.gaussian(0.1))
ONE_INPUT = supervised(bz.likelihoods.gaussian(0.1), inputs=1)


def own(x, y=None):
    w = pyro.sample("w", dist.Normal(torch.zeros(5), 1.0).to_event(1))
    f = x @ w
    with pyro.plate("data", len(x)):
        pyro.sample("y", dist.Normal(f, 1.0), obs=y)


FRAME = pd.DataFrame(X[:, :2], columns=["a", "b"])


def columns_of(select):
    def model(frame):
        w = pyro.sample("w", dist.Normal(0.0, 1.0))
        a, b = select(frame)
        with pyro.plate("data", len(a)):
            pyro.sample("b", dist.Normal(w * a, 1.0), obs=b)

    return model


by_name = columns_of(lambda frame: (frame["a"], frame["b"]))
by_attribute = columns_of(lambda frame: (frame.a, frame.b))
as_array = columns_of(lambda frame: (frame.astype("f"), frame))


def fitted(model, *data, **settings):
    return bz.fit(model, bz.MAP(num_steps=2, polish_steps=0), *data, progress=False, **settings)


@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(torch.float64, marks=pytest.mark.slow)])
@pytest.mark.parametrize("model", [REGRESSION, own], ids=["network", "own"])
@pytest.mark.parametrize(
    "x", [WHOLE, WHOLE > 2, WHOLE.tolist(), pd.DataFrame(WHOLE), torch.tensor(WHOLE)], ids=lambda x: type(x).__name__
)
def test_whole_numbers_are_converted_where_the_model_needs_it(model, x, dtype: torch.dtype) -> None:
    found = fitted(model, x, Y, dtype=dtype)
    expected = fitted(model, np.asarray(x, dtype=float), Y, dtype=dtype)
    assert found.density.data[0].dtype == dtype
    assert torch.equal(found.draws(), expected.draws())
    first, second = (bz.predict(p, x)["conditional"]["mean"] for p in (found, expected))
    assert (first == second).all()


@pytest.mark.parametrize(
    ("likelihood", "outputs", "y"),
    [
        (bz.likelihoods.poisson(), 1, COUNTS),
        (bz.likelihoods.categorical(), 3, COUNTS % 3),
        (bz.likelihoods.bernoulli(), 1, Y > 0),
    ],
    ids=["counts", "labels", "booleans"],
)
def test_labels_and_counts_stay_whole_beside_inputs_that_are_converted(likelihood, outputs, y) -> None:
    density = fitted(supervised(likelihood, outputs=outputs), WHOLE, y).density
    assert density.data[0].is_floating_point()
    assert not density.data[1].is_floating_point()


def test_tokens_stay_whole() -> None:
    net = nn.Sequential(nn.Embedding(5, 2), nn.Flatten(), nn.Linear(10, 1))
    density = fitted(bz.models.supervised(net, PRIOR, bz.likelihoods.gaussian(0.1)), WHOLE, Y).density
    assert density.data[0].dtype == torch.int64


def test_new_data_take_the_types_of_the_fit() -> None:
    labels = COUNTS % 3
    posterior = fitted(supervised(bz.likelihoods.categorical(), outputs=3), X, labels)
    tree = bz.predict(posterior, WHOLE, labels.astype(float))
    assert tree["predictions_observed_data"]["y"].dtype == np.int64
    assert (bz.predict(posterior, WHOLE > 2)["predictions_constant_data"]["x"] == (WHOLE > 2)).all()
    with pytest.raises(TypeError, match="class labels are integers"):
        bz.predict(posterior, X, labels + 0.5)


def test_the_data_of_a_saved_posterior_are_converted_likewise(tmp_path) -> None:
    fitted(REGRESSION, WHOLE, Y).save(tmp_path / "fit.safetensors")
    assert bz.load(tmp_path / "fit.safetensors", REGRESSION, WHOLE, Y).density.data[0].is_floating_point()


CASES = {
    "one dimension, one input": (
        ONE_INPUT,
        (X[:, 0], Y),
        r"argument 1 \('x'\) has one dimension, shape \[40\], but the network's first layer takes 1 column: write x\[:, None\]",
    ),
    "one dimension": (
        REGRESSION,
        (X[:, 0], Y),
        r"has one dimension, shape \[40\], .* 5 columns: write x\.reshape\(-1, 5\)",
    ),
    "width": (
        REGRESSION,
        (X[:, :3], Y),
        r"argument 1 \('x'\) has 3 columns, but the network's first layer takes 5\. Pass",
    ),
    "one column": (
        REGRESSION,
        (X[:, :1], Y),
        r"argument 1 \('x'\) has 1 column, but the network's first layer takes 5\.",
    ),
    "no columns": (
        REGRESSION,
        (X[:, :0], Y),
        r"argument 1 \('x'\) has 0 columns, but the network's first layer takes 5\.",
    ),
    "whole and wrong": (REGRESSION, (WHOLE[:, :3], Y), r"argument 1 \('x'\) has 3 columns, but"),
    "swapped": (REGRESSION, (Y, X), r"argument 1 .* takes 5, as argument 2 \('y'\) has: the two seem to be swapped"),
    "no rows": (REGRESSION, (X[:0], Y[:0]), r"argument 1 \('x'\) has no rows \(shape \[0, 5\]\)\. Pass at least one"),
    "no target": (own, (X, Y[:0]), r"argument 2 \('y'\) has no rows"),
    "no rows of my own": (own, (X[:0], Y[:0]), r"argument 1 \('x'\) has no rows"),
    "width of my own": (
        own,
        (X[:, :3], Y),
        r"The model failed on its data, x \[40, 3\] \(float64\), y \[40\] \(float64\): size mismatch.*\. Compare these shapes",
    ),
    "swapped of my own": (
        own,
        (Y, X),
        r"The model failed on its data, x \[40\] \(float64\), y \[40, 5\] \(float64\): ",
    ),
    "text": (
        REGRESSION,
        ("x.csv", Y),
        r"argument 1 \('x'\) is of type str, but the network takes numbers: pass an array",
    ),
    "nothing": (REGRESSION, (None, Y), r"argument 1 \('x'\) is of type NoneType"),
    "column by name": (
        by_name,
        (FRAME,),
        r"asks argument 1 \('frame'\) for \[\"a\"\], but .* shape \[40, 2\]\. Pass dict\(frame\) for",
    ),
    "column as an attribute": (by_attribute, (FRAME,), r"for \.a, but frames and arrays reach it as tensors"),
    "method of an array": (
        as_array,
        (FRAME["b"].to_numpy(),),
        r"for \.astype, .* of shape \[40\]\. Write torch's operations",
    ),
    "rows": (
        own,
        (X, Y[:30]),
        "different numbers of rows: argument 1 of the model has 40, argument 2 of the model has 30",
    ),
}


@pytest.mark.parametrize(("model", "data", "sentence"), CASES.values(), ids=CASES)
@pytest.mark.parametrize(
    "use", [fitted, check_model, bz.prior_predictive], ids=["fit", "check_model", "prior_predictive"]
)
def test_data_that_do_not_fit_are_refused_in_a_sentence(use, model, data, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence) as caught:
        use(model, *data)
    assert "Trace Shapes" not in "".join(traceback.format_exception(caught.value))


def test_a_layer_that_does_not_fit_the_one_before_is_named() -> None:
    net = nn.Sequential(nn.Linear(5, 4), nn.Linear(3, 1))
    with pytest.raises(
        DataError, match=r"The layer Linear\(in_features=3.* takes 3 columns, but its input has shape \[40, 4\]"
    ):
        fitted(bz.models.supervised(net, PRIOR, bz.likelihoods.gaussian()), X, Y)


def test_channels_of_a_convolution() -> None:
    net = nn.Sequential(nn.Conv1d(2, 1, 3), nn.Flatten(), nn.Linear(3, 1))
    model = bz.models.supervised(net, PRIOR, bz.likelihoods.gaussian())
    with pytest.raises(DataError, match=r"argument 1 \('x'\) has 1 channel, but the network's first layer takes 2"):
        fitted(model, X[:, None, :], Y)


def test_the_errors_of_the_model_itself_stay_its_own() -> None:
    def model(x):
        pyro.sample("w", dist.Normal(0.0, 1.0))
        raise RuntimeError("out of cheese")

    with pytest.raises(RuntimeError, match=r"^out of cheese$") as caught:
        fitted(model, X)
    assert "Trace Shapes" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (
            (X[0],),
            r"argument 1 has shape \(5,\), but the model was fitted to \(40, 5\): .* Write x\[None, :\] for one row",
        ),
        (
            (X[:3, :3],),
            r"argument 1 has shape \(3, 3\), but the model was fitted to \(40, 5\): .* Give the 5 columns of the fit,",
        ),
        ((X[:0],), r"argument 1 \('x'\) has no rows"),
        ((np.where(X > 2, np.nan, X),), "holds nan at row 15, column 4"),
        ((pd.DataFrame(X).astype("Float64").where(X < 2),), r"holds nan at row 15, column 4 \('4'\)"),
        ((Y, X), r"argument 1 has shape \(40,\)"),
        (("x.csv",), r"argument 1 \('x'\) is of type str"),
        ((X[:5], Y[:4]), "different numbers of rows"),
    ],
)
@pytest.mark.parametrize("model", [REGRESSION], ids=["network"])
def test_new_data_that_do_not_fit_are_refused_in_a_sentence(model, data, sentence: str) -> None:
    posterior = fitted(model, X, Y)
    with pytest.raises(ValueError, match=sentence) as caught:
        bz.predict(posterior, *data)
    assert "Trace Shapes" not in "".join(traceback.format_exception(caught.value))


def test_one_column_may_not_lose_its_dimension() -> None:
    posterior = narrow_posterior(ONE_INPUT, torch.tensor(X[:, :1]), torch.tensor(Y))
    with pytest.raises(ValueError, match=r"fitted to \(40, 1\): .* Write x\[:, None\] for one column"):
        bz.predict(posterior, Y)


def test_an_entry_that_a_mapping_lacks_is_named() -> None:
    def model(data: dict[str, torch.Tensor]) -> None:
        w = pyro.sample("w", dist.Normal(0.0, 1.0))
        with pyro.plate("rows", len(data["x"])):
            pyro.sample("y", dist.Normal(w * data["x"], 1.0), obs=data["y"])

    x, method = torch.linspace(-1, 1, 20), bz.MAP(num_steps=2, polish_steps=0)
    sentence = r"The model asks for data\['y'\], and 'data' holds 'x'\. Add the entry; an observation .* may be None"
    with pytest.raises(DataError, match=sentence):
        bz.fit(model, method, {"x": x}, progress=False)
    posterior = bz.fit(model, method, {"x": x, "y": x}, progress=False)
    with pytest.raises(DataError, match=sentence):
        bz.posterior_predictive(posterior, {"x": x})
    with pytest.raises(DataError, match=sentence):
        bz.prior_predictive(model, {"x": x})
