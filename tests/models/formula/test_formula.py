"""Models by formula: the density of the code, encodings of new frames, and what is refused."""

import warnings
from typing import Any

import cloudpickle
import numpy as np
import pandas as pd
import polars as pl
import pyro
import pyro.distributions as dist
import pytest
import torch

import bnnzoo as bz
from bnnzoo.core.arguments import positional
from bnnzoo.core.conversion import DataError
from bnnzoo.core.density import LogDensity, build_density
from bnnzoo.core.minibatch import as_tensors
from bnnzoo.core.prior_terms import log_jacobian
from bnnzoo.core.sites import ModelWarning
from bnnzoo.models.formula import FAMILIES, FormulaError
from tests.models.formula.frames import CASES, kinds_of_columns

CPU = torch.device("cpu")


def density_of(model: Any, frame: Any) -> LogDensity:
    data = as_tensors(positional(model, (frame,), {}), torch.float64, CPU)
    return build_density(model, *data, dtype=torch.float64)


@pytest.mark.parametrize(("text", "likelihood"), CASES)
def test_every_kind_of_formula_is_a_density(text: str | list[str], likelihood: str) -> None:
    frame = kinds_of_columns()
    density = density_of(bz.formula(text, frame, likelihood), frame)
    theta = density.init(2, 0)
    value, gradient = density.batched_value_and_grad(theta, *density.data)
    assert value.isfinite().all() and gradient.isfinite().all()
    assert density.num_data == len(frame) and density.observed == ("y",)
    assert (gradient.abs().sum(0) > 0).all()


def test_every_likelihood_has_a_case() -> None:
    assert {likelihood for _, likelihood in CASES} == set(FAMILIES)


def test_the_code_has_the_density_of_the_model_written_by_hand() -> None:
    frame = kinds_of_columns()
    density = density_of(bz.formula("y ~ x + sex + (x | g)", frame), frame)
    codes = torch.tensor(frame.g.map({level: i for i, level in enumerate("abcdef")}).to_numpy())
    x = torch.tensor(frame.x.to_numpy() - frame.x.mean())
    male = torch.tensor((frame.sex == "m").to_numpy(dtype=float) - 0.5)
    raw = torch.tensor(frame.x.to_numpy())
    y, sd = torch.tensor(frame.y.to_numpy()), float(frame.y.std())
    sd_x, sd_male = float(frame.x.std()), float((frame.sex == "m").std())

    def log_joint(v: dict[str, torch.Tensor]) -> torch.Tensor:
        effects = v["z_g"] @ (v["sd_g"][:, None] * v["L_g"]).mT
        mean = v["Intercept_c"] + v["b_x"] * x + v["b_sex"] * male + effects[codes, 0] + effects[codes, 1] * raw
        return (
            dist.Normal(0.0, 2.5 * sd / sd_x).log_prob(v["b_x"])
            + dist.Normal(0.0, 2.5 * sd / sd_male).log_prob(v["b_sex"])
            + dist.StudentT(3.0, float(frame.y.median()), 2.5 * sd).log_prob(v["Intercept_c"])
            + dist.Exponential(torch.tensor([1.0, sd_x]) / sd).log_prob(v["sd_g"]).sum()
            + dist.LKJCholesky(2, 1.0).log_prob(v["L_g"])
            + dist.Normal(0.0, 1.0).log_prob(v["z_g"]).sum()
            + dist.Exponential(1 / sd).log_prob(v["sigma"])
            + dist.Normal(mean, v["sigma"]).log_prob(y).sum()
        )

    for theta in density.init(3, 1):
        ours = density.log_joint(theta, *density.data) - log_jacobian(density, theta)
        expected = log_joint(density.constrain(theta))
        assert abs(ours - expected) < 2e-3 * len(density.sites)  # priors are written with four digits
        nodes = density.nodes(theta, *density.data)
        values = density.constrain(theta)
        at_zero = values["Intercept_c"] - values["b_x"] * frame.x.mean() - values["b_sex"] * 0.5
        torch.testing.assert_close(nodes["Intercept"]["value"], at_zero)


def test_the_printed_code_runs_by_itself() -> None:
    frame = kinds_of_columns()
    model = bz.formula("n ~ x + sex", frame, "poisson")
    namespace: dict[str, Any] = {"pyro": pyro, "dist": dist, "torch": torch, "likelihoods": bz.likelihoods}
    exec(str(model).replace("sample_outcome(likelihoods.poisson(), mu, y)", "likelihoods.poisson()(mu, y)"), namespace)
    density = density_of(model, frame)
    plain = build_density(namespace["model"], *density.data, dtype=torch.float64)
    theta = density.init(1, 0)[0]
    there = plain.unconstrain(density.constrain(theta))
    ours = density.log_joint(theta, *density.data) - log_jacobian(density, theta)
    torch.testing.assert_close(ours, plain.log_joint(there, *plain.data) - log_jacobian(plain, there))


def test_coordinates_have_the_units_of_the_data() -> None:
    frame = kinds_of_columns()
    frame["y"] *= 1e6
    density = density_of(bz.formula("y ~ x + sex", frame), frame)
    values = density.constrain(torch.ones(density.num_params, dtype=torch.float64))
    sd = frame.y.std()
    assert float(values["b_x"]) == pytest.approx(sd / frame.x.std())
    assert float(values["Intercept_c"]) == pytest.approx(frame.y.median() + sd)
    assert float(values["sigma"]) == pytest.approx(sd * np.e)


def test_estimates_come_back_in_the_units_of_the_data() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"year": 2000.0 + rng.integers(0, 20, 200), "sex": rng.permutation(np.resize(["f", "m"], 200))}
    )
    frame["cost"] = 5e4 + 300 * (frame.year - 2000) + 2000 * (frame.sex == "m") + 500 * rng.normal(size=200)
    posterior = bz.fit(bz.formula("cost ~ year + sex", frame), bz.Laplace(), frame, progress=False)
    tree = bz.to_datatree(posterior, num_draws=400)["posterior"]
    design = np.column_stack([np.ones(200), frame.year, frame.sex == "m"])
    exact = np.linalg.lstsq(design, frame.cost, rcond=None)[0]
    for name, value in zip(("Intercept", "b_year", "b_sex"), exact, strict=True):
        assert abs(float(tree[name].mean()) - value) < 0.25 * float(tree[name].std())


def test_new_frames_are_encoded_as_the_training_data_were() -> None:
    frame = kinds_of_columns()
    model = bz.formula("y ~ center(x) + sex + s(z) + gp(x) + nn(x, z) + (x | g)", frame)
    whole = model.from_data((frame,))
    some = frame.iloc[[5, 50]].sort_values("x")
    for all_rows, few in zip(whole, model.from_data((some.drop(columns="y"),), new=True), strict=True):
        if few is not None:
            np.testing.assert_allclose(np.asarray(few), np.asarray(all_rows.loc[some.index]))


@pytest.mark.parametrize("kind", [lambda f: pl.DataFrame(f.to_dict("list")), lambda f: f.to_dict("list"), lambda f: f])
def test_frames_of_other_kinds_are_taken(kind: Any) -> None:
    frame = kinds_of_columns()[["y", "x", "sex", "g"]]
    first = bz.formula("y ~ x + sex + (1 | g)", frame).from_data((frame,))
    other = bz.formula("y ~ x + sex + (1 | g)", kind(frame)).from_data((kind(frame),))
    for a, b in zip(first, other, strict=True):
        assert (a is None and b is None) or np.array_equal(np.asarray(a), np.asarray(b))


def test_priors_are_shown_and_replaced_by_name() -> None:
    frame = kinds_of_columns()
    prior = dist.MixtureSameFamily(
        dist.Categorical(torch.ones(2)), dist.Normal(torch.zeros(2), torch.tensor([0.1, 5.0]))
    )
    given = {"b_x": dist.Laplace(0.0, 2.0), "b_c": dist.Normal(0.0, 0.5), "Intercept_c": prior}
    model = bz.formula("y ~ x + c + (x | g)", frame, priors=given)
    shown = model.priors
    assert list(shown.index) == ["b_x", "b_c", "Intercept_c", "sd_g", "L_g", "sigma"]
    assert shown.rule["b_x"] == "given" and shown.prior["b_x"] == "dist.Laplace(loc=0.0, scale=2.0)"
    density = density_of(model, frame)
    values = density.constrain(density.init(1, 0)[0])
    expected = {"b_x": given["b_x"].log_prob(values["b_x"]), "b_c": given["b_c"].log_prob(values["b_c"]).sum()}
    nodes = density.nodes(density.init(1, 0)[0], *density.data)
    for name, value in (expected | {"Intercept_c": prior.log_prob(values["Intercept_c"])}).items():
        torch.testing.assert_close(nodes[name]["fn"].log_prob(values[name]).sum(), value)


def test_rows_without_an_outcome_are_left_out_and_can_be_predicted() -> None:
    frame = kinds_of_columns()
    with pytest.warns(ModelWarning, match="rows have no outcome 'outcome_with_gaps' and are left out of the fit"):
        model = bz.formula("outcome_with_gaps ~ x", frame)
    seen = int(frame.outcome_with_gaps.notna().sum())
    posterior = bz.fit(model, bz.Laplace(), frame, progress=False)
    assert posterior.density.num_data == seen
    tree = bz.posterior_predictive(posterior, frame, num_draws=20)
    assert list(tree["observed_data"]["obs_id"].to_numpy()) == list(frame.index[frame.outcome_with_gaps.notna()])
    predicted = bz.predict(posterior, frame, num_draws=20)
    assert predicted["predictions"]["y"].sizes["obs_id"] == len(frame) and "predictions_log_likelihood" not in predicted


def test_a_posterior_of_a_formula_is_saved_and_loaded(tmp_path: Any) -> None:
    frame = kinds_of_columns()
    model = bz.formula("b ~ x + s(z) + (1 | g)", frame, "bernoulli")
    posterior = bz.fit(model, bz.MAP(num_steps=5, polish_steps=0), frame, progress=False)
    posterior.save(tmp_path / "fit.bnn")
    again = bz.formula("b ~ x + s(z) + (1 | g)", frame, "bernoulli")
    new = frame.head(4).drop(columns="b")
    for loaded in (bz.load(tmp_path / "fit.bnn", again, frame), bz.load(tmp_path / "fit.bnn", again)):
        assert bz.predict(loaded, new)["predictions"].equals(bz.predict(posterior, new)["predictions"])
    with pytest.raises(ValueError, match="holds another fit"):
        bz.load(
            tmp_path / "fit.bnn",
            bz.formula("b ~ x + s(z, k=10) + (1 | g)", frame.assign(z=frame.z**2), "bernoulli"),
            frame,
        )


def test_models_can_be_sent_to_other_processes() -> None:
    frame = kinds_of_columns()
    model = bz.formula("y ~ x + nn(x, z) + (1 | g)", frame)
    other = cloudpickle.loads(cloudpickle.dumps(model))
    ours, theirs = density_of(model, frame), density_of(other, frame)
    theta = ours.init(1, 0)[0]
    torch.testing.assert_close(ours.log_joint(theta, *ours.data), theirs.log_joint(theta, *theirs.data))


def test_the_model_is_an_ordinary_callable() -> None:
    frame = kinds_of_columns()
    model = bz.formula("y ~ x", frame)
    assert model(frame).shape == (60,)
    trace = pyro.poutine.trace(model).get_trace(frame)
    assert {"b_x", "Intercept_c", "sigma", "y"} <= set(trace.nodes)
    assert repr(model) == "formula('y ~ x'; 60 rows, likelihood gaussian)"


def test_trees_have_levels_as_coordinates_and_hide_what_only_serves() -> None:
    frame = kinds_of_columns()
    posterior = bz.fit(bz.formula("y ~ c + (x | g)", frame), bz.MAP(num_steps=5, polish_steps=0), frame, progress=False)
    tree = bz.posterior_predictive(posterior, frame)
    group = tree["posterior"]
    assert list(group["b_c"]["c_level"].to_numpy()) == ["v", "w"]
    assert group["r_g"].dims[2:] == ("g", "g_coefficient") and list(group["g"].to_numpy()) == list("abcdef")
    assert list(group["cor_g"]["g_pair"].to_numpy()) == ["Intercept:x"]
    assert set(tree["auxiliary"].data_vars) == {"Intercept_c", "z_g", "L_g"}
    assert not set(tree["auxiliary"].data_vars) & set(group.data_vars)


@pytest.mark.parametrize(
    ("text", "settings", "sentence"),
    [
        ("y ~ age", {}, "needs a column 'age', and the frame has x, z, g"),
        ("y ~ Sex", {}, "Did you mean 'sex'\\?"),
        ("sex ~ x", {}, "the outcome 'sex' holds text or categories, and likelihood 'gaussian' needs numbers"),
        ("y ~ x", {"likelihood": "poisson"}, "the outcome 'y' is .* at row 0, .* it must be a count"),
        ("y ~ x", {"likelihood": "gausian"}, "did you mean 'gaussian'\\?"),
        ("y ~ x", {"likelihood": "heteroscedastic_gaussian"}, "write likelihood='gaussian' and a formula of sigma"),
        ("c ~ x", {"likelihood": "bernoulli"}, "has 3 different values .* write likelihood='categorical' or 'ordinal'"),
        ("cens(t, e) ~ x", {"likelihood": "gamma"}, "likelihood 'gamma' takes none: write likelihood='weibull'"),
        ("cbind(y, y2) ~ x", {}, "cbind\\(y1, y2\\) goes with 'multivariate_gaussian'"),
        (
            ["y ~ x", "phi ~ x"],
            {},
            "neither a parameter of likelihood 'gaussian' \\(it has sigma\\) nor a covariate in mi",
        ),
        (["y ~ x", "sigma ~ x", "sigma ~ z"], {}, "two formulas of 'sigma'"),
        ("y ~ gaps", {}, "'gaps' is missing at row .* impute a numeric column within the model: mi\\(gaps\\)"),
        ("y ~ mi(x)", {}, "no value of 'x' is missing: write x"),
        ("y ~ s(x, z)", {}, "takes one variable, and has 2: write nn"),
        ("y ~ s(x, m=2)", {}, "has no setting 'm'; it has k"),
        ("y ~ s(x, k=1)", {}, "k=1 must be a whole number from 3"),
        ("y ~ s(sex)", {}, "'sex' holds text or categories, where the formula needs numbers"),
        ("y ~ nn(x, width=3)", {}, "has no setting 'width'; it has hidden, activation"),
        ("y ~ gp(x, c=0.5)", {}, "c=0.5 must be a factor of at least 1"),
        (
            "y ~ x",
            {"priors": {"b_z": dist.Normal(0.0, 1.0)}},
            "no such site; it has b_x, Intercept_c, sigma. Did you mean 'b_x'",
        ),
        ("y ~ x", {"priors": {"b_x": 1.0}}, "must be a Pyro distribution"),
        ("y ~ x", {"new_levels": "ask"}, "write 'refuse' or 'draw'"),
        ("y ~ nothing(x)", {}, "'nothing\\(x\\)' in the formula needs a column 'nothing'"),
        ("y ~ .", {}, "write the names of those that are meant"),
        ("y ~ x + y", {}, "has the outcome 'y' among its covariates"),
        ("y ~ date", {}, "'date' holds dates. Write them as numbers"),
        ("y ~ log(sex)", {}, "'log\\(sex\\)' cannot be evaluated on the frame"),
        ("b ~ x", {"likelihood": "binomial"}, "is not known: did you mean 'bernoulli'\\? Choose one of gaussian, "),
        ("n ~ x", {"likelihood": "Negbinomial"}, "did you mean 'negative_binomial'\\?"),
        ("n ~ x", {"likelihood": "xyz"}, "likelihood='xyz' is not known: choose one of gaussian, laplace"),
        ("c ~ x", {"likelihood": "ordinal"}, "'c' is text, whose values \\(u, v, w\\) have no order.*ordered=True\\)"),
        ("y ~ one", {}, "'one' has one level in these rows, which tells nothing: leave it out of the formula"),
    ],
)
def test_what_does_not_fit_is_refused(text: Any, settings: dict[str, Any], sentence: str) -> None:
    frame = kinds_of_columns()
    frame.loc["row 0", "y"] = -1.5
    frame["date"], frame["one"] = pd.date_range("2024-01-01", periods=len(frame)), "same"
    with pytest.raises((FormulaError, DataError), match=sentence):
        bz.formula(text, frame, **settings)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda f: f.drop(columns="z"), "needs a column 'z'"),
        (lambda f: f.assign(sex="x"), "'sex' is 'x' at row 0, which the training data did not have; they had f, m"),
        (lambda f: f.assign(g="new"), "has the level 'new'.*new_levels='draw'"),
        (lambda f: f.assign(z=np.nan), "'z' is missing at row 0"),
        (lambda f: f.assign(g=None), "the group 'g' is missing at row 0"),
        (lambda f: f.assign(x=1e3), "'x' is 1000 at row 0, and gp\\(x\\) reaches from"),
        (lambda f: f.iloc[:0], "the frame has no rows"),
        (lambda f: f.assign(z="a"), "'z' holds text or categories, where the formula needs numbers"),
        (lambda f: f.iloc[0], "a formula takes a frame, and this is a series. Write frame.iloc\\[\\[0\\]\\]"),
    ],
)
def test_new_rows_that_do_not_fit_are_refused(change: Any, sentence: str) -> None:
    frame = kinds_of_columns()
    model = bz.formula("y ~ sex + s(z) + gp(x) + (1 | g)", frame)
    with pytest.raises(DataError, match=sentence):
        model.from_data((change(frame.head(3)),), new=True)


def test_frames_with_text_are_refused_elsewhere_with_the_name_of_formula() -> None:
    frame = kinds_of_columns()[["x", "sex"]]
    model = bz.models.supervised(bz.models.mlp(2), bz.priors.fan_in(), bz.likelihoods.gaussian())
    with pytest.raises(
        DataError, match=r"by formula, which takes frames as they are: bnnzoo\.formula\('y ~ x', frame\)"
    ):
        bz.fit(model, bz.MAP(num_steps=1), frame, torch.zeros(60), progress=False)


def test_truth_values_under_a_likelihood_that_was_not_asked_for_are_told() -> None:
    frame = kinds_of_columns()
    for outcome in (frame.e, frame.e == 1):
        with pytest.warns(
            ModelWarning, match="All outcomes 'e' are 0 or 1.*write likelihood='bernoulli', or likelihood='gaussian'"
        ):
            assert "gaussian" in repr(bz.formula("e ~ x", frame.assign(e=outcome)))
    assert "gaussian" in repr(bz.formula("e ~ x", frame, "gaussian"))
    assert "likelihood gaussian" in repr(bz.formula("y ~ x", frame))


def test_columns_without_information_are_told() -> None:
    frame = kinds_of_columns()
    with pytest.warns(ModelWarning, match="'time' of the formula is the same in every row"):
        bz.formula("y ~ x + time", frame.assign(time=2.0))
    with pytest.warns(ModelWarning, match="remove the category that does not occur"):
        bz.formula("y ~ o", frame[frame.o != "mid"])
    assert bz.formula("y ~ `a.b`", frame.rename(columns={"z": "a.b"})).priors.index[0] == "b_a.b"


def test_warnings_of_libraries_do_not_reach_the_user() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bz.formula("y ~ x + sex + (1 | g)", kinds_of_columns())


def test_categories_that_are_numbers_may_be_predicted_as_numbers() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"arm": pd.Categorical(rng.choice([1.0, 2.0], 40)), "x": rng.normal(size=40)})
    frame["y"] = frame.x + 3 * (frame.arm == 2.0) + rng.normal(size=40)
    posterior = bz.fit(bz.formula("y ~ x * arm", frame), bz.Laplace(), frame, progress=False)
    new = pd.DataFrame({"arm": [2.0, 1.0], "x": 0.0})
    means = [
        bz.predict(posterior, each)["conditional"]["mean"].to_numpy()
        for each in (new, new.astype({"arm": pd.CategoricalDtype([1.0, 2.0])}))
    ]
    np.testing.assert_array_equal(*means)
    assert bz.effects.predictions(posterior, {"arm": [1, 2]}, newdata="mean").draws.shape[-1] == 2
    with pytest.raises(
        DataError, match=r"'arm' is 3\.0 at row 0, which the training data did not have; they had 1\.0, 2\.0"
    ):
        bz.predict(posterior, new.assign(arm=[3.0, 1.0]))
