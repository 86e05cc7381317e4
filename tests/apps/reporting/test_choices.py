"""Likelihoods and priors by name, and targets in the units that they need."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import beta, gamma, nbinom
from sklearn.linear_model import PoissonRegressor

from bnnzoo import MAP, Laplace, MeanFieldVI
from bnnzoo.apps.reporting import compare, model_for
from bnnzoo.apps.reporting.baselines import baselines
from bnnzoo.apps.reporting.choices import (
    LIKELIHOODS,
    PRIORS,
    Shifted,
    Splitting,
    family_named,
    infer_likelihood,
    prior_named,
    refuse_outside,
)
from bnnzoo.apps.reporting.scores import REGRESSION, coverage, draws_of
from bnnzoo.apps.tables import TableError


def frame(support, num_rows=60):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(num_rows, 2))
    mean = np.exp(3.0 + 0.5 * x[:, 0])
    y = {
        "real": 50 + 10 * x[:, 0] + rng.normal(size=num_rows),
        "count": rng.negative_binomial(3.0, 3.0 / (3.0 + mean)),
        "positive": rng.gamma(4.0, 1000 * mean / 4.0),
        "proportion": np.clip(rng.beta(3.0, 2.0, num_rows), 0.01, 0.99),
        "class": np.where(x[:, 0] + rng.normal(size=num_rows) > 0, "hot", "cold"),
        "order": 1 + np.digitize(2 * x[:, 0] + rng.logistic(size=num_rows), [-2.0, 0.0, 2.0]),
    }[support]
    return pd.DataFrame({"u": x[:, 0], "v": x[:, 1], "y": y})


def table(support, likelihood=None, seed=0, num_rows=60):
    data = frame(support, num_rows)
    splitting = Splitting("y", likelihood=likelihood).resolved(data)
    return splitting.table(data, seed), splitting


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_every_likelihood_fits_its_targets(name):
    found, splitting = table("order" if LIKELIHOODS[name].outcome == "ordered" else LIKELIHOODS[name].support, name)
    assert splitting.likelihood == name
    result = compare(found, {"map": MAP(num_steps=2)}, source="numbers", num_hidden=2, likelihood=name, progress=False)
    assert LIKELIHOODS[name].words in result.model or name == "categorical"
    (fitted,) = result.fitted
    assert np.isfinite([*fitted.scores.values()][1])
    if LIKELIHOODS[name].support != "class":
        assert np.isfinite([*fitted.scores.values()]).all()
        assert draws_of(fitted.test).shape[0] >= 100


def test_predictions_of_positive_targets_and_counts_are_in_their_units():
    for support, likelihood in (("positive", "gamma"), ("count", "negative_binomial")):
        found, _ = table(support, likelihood, num_rows=150)
        result = compare(
            found, {"mfvi": MeanFieldVI(num_steps=1500)}, source="", num_hidden=3, likelihood=likelihood, progress=False
        )
        (fitted,) = result.fitted
        y = fitted.test["predictions_observed_data"]["y"].to_numpy()
        original = frame(support, 150)["y"].to_numpy()
        np.testing.assert_allclose(np.sort(y), np.sort(original[found.test_rows - 1]))
        mean_only, line = result.baselines
        assert fitted.scores["log density"] > mean_only.scores["log density"] + 0.05
        assert abs(fitted.scores["log density"] - line.scores["log density"]) < 0.35
        assert 0.7 < coverage(fitted.test) <= 1.0
        assert draws_of(fitted.test).min() >= 0


def test_targets_have_the_scale_of_their_likelihood():
    positive, _ = table("positive", "gamma")
    assert np.isclose(positive.y_train.mean(), 1.0)
    assert positive.y_loc == 0.0
    assert positive.y_scale == pytest.approx(
        np.delete(frame("positive")["y"].to_numpy(), positive.test_rows - 1).mean()
    )
    counts, _ = table("count", "poisson")
    assert (counts.y_loc, counts.y_scale) == (0.0, 1.0)
    real, _ = table("real")
    assert np.isclose(real.y_train.std(), 1.0)


def test_log_means_of_counts_are_relative_to_the_training_mean():
    found, _ = table("count", "poisson")
    model, _ = model_for(found, 2, "poisson")
    assert isinstance(model.likelihood, Shifted)
    assert model.likelihood.offset == pytest.approx(np.log(found.y_train.mean()))
    output, y = torch.zeros(3, 1), torch.tensor([1.0, 2.0, 3.0])
    torch.testing.assert_close(Shifted(LIKELIHOODS["poisson"].make(), 0.5)(output, y), y)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0, 0, 0, 1, 0, 2, 0, 9, 1, 0, 0, 3], "negative_binomial"),
        ([1.0, 1.2, 0.9, 30.0, 2.0, 1.1], "gamma"),
        ([0.0, 0.5, 0.1, 30.5, 0.2, 0.1], "gaussian"),
        ([25, 150, 97, 206, 141, 310], "gaussian"),
        ([-1.0, 0.0, 50.0, 0.1], "gaussian"),
    ],
)
def test_likelihoods_are_inferred_from_the_values(values, expected):
    assert infer_likelihood(pd.Series(values), "regression") == expected
    assert infer_likelihood(pd.Series(values), "classification") == "categorical"


def test_an_order_of_classes_is_worth_something():
    found, _ = table("order", "ordinal", num_rows=80)
    assert found.classes == ("1", "2", "3", "4")
    scores = {}
    for likelihood in ("ordinal", "categorical"):
        settings = {"source": "", "num_hidden": 3, "likelihood": likelihood, "progress": False}
        result = compare(found, {"laplace": Laplace()}, **settings)
        (fitted,) = result.fitted
        assert fitted.test["conditional"]["probs"].sizes["class_id"] == 4
        scores[likelihood] = fitted.scores["log density"]
    assert (
        "4 classes in order, cumulative logit link"
        in compare(found, {"map": MAP()}, **settings | {"likelihood": "ordinal"}).model
    )
    assert scores["ordinal"] > scores["categorical"]


def test_a_likelihood_implies_the_task():
    few = frame("count").assign(y=lambda data: data["y"] % 4)
    assert Splitting("y").resolved(few).task == "classification"
    assert Splitting("y", likelihood="poisson").resolved(few).task == "regression"


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: family_named("normal"), "There is no likelihood 'normal'; choose from gaussian, laplace"),
        (
            lambda: family_named("poisson", "classification"),
            "poisson is not for classification; choose from categorical",
        ),
        (
            lambda: Splitting("y", likelihood="ordinal").resolved(frame("class")),
            "The likelihood ordinal needs classes in order, but target column 'y' is text such as '(hot|cold)'; write numbers",
        ),
        (lambda: family_named("categorical", "regression"), "categorical is not for regression; choose from gaussian"),
        (lambda: prior_named("flat"), "There is no prior 'flat'; choose from fan_in, normal"),
        (lambda: prior_named("normal:-1"), "The scale of prior normal must be a positive number, not '-1'"),
        (lambda: prior_named("normal:wide"), "must be a positive number, not 'wide'; write --prior normal:0.5"),
        (
            lambda: refuse_outside(pd.Series([1, 2.5], name="y"), "poisson"),
            "the value 2.5 in row 2, but .* whole numbers",
        ),
        (
            lambda: refuse_outside(pd.Series([1, 0], name="y"), "gamma"),
            "the value 0 in row 2, .* gamma is for positive",
        ),
        (
            lambda: refuse_outside(pd.Series([1.0], name="y"), "beta"),
            "the value 1 in row 1, .* strictly between 0 and 1",
        ),
        (
            lambda: Splitting("y", "regression", "poisson").table(frame("count").assign(y=3), 0),
            "Target column 'y' is constant in the training part",
        ),
    ],
)
def test_wrong_choices_are_refused(call, sentence):
    with pytest.raises(TableError, match=sentence):
        call()


@pytest.mark.parametrize("name", PRIORS)
def test_every_prior_is_of_a_model_with_a_finite_density(name):
    found, _ = table("real")
    model, description = model_for(found, 2, prior=f"{name}:0.5")
    assert "0.5" in description or "0.25" in description
    x, y = torch.from_numpy(found.x_train), torch.from_numpy(found.y_train)
    torch.manual_seed(0)
    assert torch.isfinite(model(x)).all()
    assert model(x, y) is not None


def test_baselines_of_other_supports_have_the_densities_of_scipy():
    counts, _ = table("count", "poisson")
    mean_only, line = baselines(counts, REGRESSION, "count")
    fitted = PoissonRegressor(alpha=1e-4, max_iter=1000).fit(counts.x_train, counts.y_train)
    mean = fitted.predict(counts.x_test)
    np.testing.assert_allclose(line.test["conditional"]["mean"].to_numpy().ravel(), mean)
    variance = line.test["conditional"]["variance"].to_numpy().ravel()
    size = (mean**2 / (variance - mean)).mean()
    expected = nbinom.logpmf(counts.y_test, size, size / (size + mean)).mean()
    assert line.scores["log density"] == pytest.approx(expected, abs=1e-6)
    assert line.scores["log density"] > mean_only.scores["log density"]
    positive, _ = table("positive", "gamma")
    mean_only, line = baselines(positive, REGRESSION, "positive")
    assert line.name == "gamma regression"
    shape = (mean_only.test["conditional"]["mean"] ** 2 / mean_only.test["conditional"]["variance"]).to_numpy().mean()
    y = positive.y_scale * positive.y_test
    expected = gamma.logpdf(y, shape, scale=positive.y_scale * positive.y_train.mean() / shape).mean()
    assert mean_only.scores["log density"] == pytest.approx(expected, abs=1e-6)
    proportions, _ = table("proportion", "beta")
    mean_only, line = baselines(proportions, REGRESSION, "proportion")
    assert line.name == "linear regression of the logit"
    a, b, _, _ = beta.fit(proportions.y_train, floc=0, fscale=1)
    free = beta.logpdf(proportions.y_train, a, b).sum()
    mean, variance = (mean_only.test["conditional"][name].to_numpy()[0, 0, 0] for name in ("mean", "variance"))
    precision = mean * (1 - mean) / variance - 1
    own = beta.logpdf(proportions.y_train, mean * precision, (1 - mean) * precision).sum()
    assert free - 1.0 < own <= free + 1e-6
