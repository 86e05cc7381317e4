"""Effects against analytic derivatives, brute force, and marginaleffects on the same coefficients."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import xarray as xr

import bnnzoo as bz
from bnnzoo.core.posterior import Posterior

SETTINGS = {"num_draws": 30}


def table(num_rows: int = 80, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "x": rng.normal(20.0, 5.0, num_rows),
            "z": rng.uniform(1.0, 3.0, num_rows),
            "k": rng.permutation(np.resize([1, 2, 3, 4], num_rows)),
            "g": rng.permutation(np.resize(["a", "b", "c"], num_rows)),
        }
    )
    frame["y"] = 0.3 * frame.x + np.log(frame.z) + (frame.g == "b") + rng.normal(size=num_rows)
    frame["b"] = (frame.y > frame.y.median()).astype(int)
    return frame


@pytest.fixture(scope="module")
def linear() -> tuple[Posterior, pd.DataFrame]:
    frame = table()
    model = bz.formula("y ~ x * g + log(z) + k", frame)
    return bz.fit(model, bz.Laplace(bz.MAP(num_steps=50)), frame, progress=False), frame


@pytest.fixture(scope="module")
def logistic() -> tuple[Posterior, pd.DataFrame]:
    frame = table()
    model = bz.formula("b ~ x + z", frame, "bernoulli")
    return bz.fit(model, bz.Laplace(bz.MAP(num_steps=50)), frame, progress=False), frame


def coefficients(posterior: Posterior) -> dict[str, np.ndarray]:
    group = bz.to_datatree(posterior, **SETTINGS)["posterior"]
    return {str(name): array.to_numpy() for name, array in group.data_vars.items()}


def test_slopes_equal_analytic_derivatives(linear: Any) -> None:
    posterior, frame = linear
    found = bz.effects.slopes(posterior, ["x", "z"], **SETTINGS)
    values, n = coefficients(posterior), len(frame)
    level = np.stack([np.zeros_like(values["b_x"]), *np.moveaxis(values["b_x:g"], -1, 0)], -1)
    by_x = values["b_x"][..., None] + level[..., frame.g.map({"a": 0, "b": 1, "c": 2})]
    np.testing.assert_allclose(found.draws[..., :n], by_x, atol=1e-6)
    by_z = values["b_log(z)"][..., None] / frame.z.to_numpy()
    np.testing.assert_allclose(found.draws[..., n:], by_z, atol=1e-6)


def test_slopes_of_probabilities_equal_analytic_derivatives(logistic: Any) -> None:
    posterior, frame = logistic
    values = coefficients(posterior)
    eta = values["Intercept"][..., None] + values["b_x"][..., None] * frame.x.to_numpy()
    eta = eta + values["b_z"][..., None] * frame.z.to_numpy()
    probability = 1 / (1 + np.exp(-eta))
    exact = probability * (1 - probability) * values["b_x"][..., None]
    np.testing.assert_allclose(bz.effects.slopes(posterior, "x", **SETTINGS).draws, exact, atol=1e-6)
    average = bz.effects.avg_slopes(posterior, "x", **SETTINGS)
    np.testing.assert_allclose(average.draws[..., 0], exact.mean(-1), atol=1e-6)
    elasticity = bz.effects.slopes(posterior, "x", slope="eyex", **SETTINGS)
    np.testing.assert_allclose(elasticity.draws, exact * frame.x.to_numpy() / probability, atol=1e-6)
    np.testing.assert_allclose(bz.effects.predictions(posterior, **SETTINGS).draws, probability, atol=1e-9)


@pytest.mark.parametrize("comparison", ["difference", "ratio", "lnratio", "lnor", "lift"])
def test_comparisons_equal_brute_force(logistic: Any, comparison: Any) -> None:
    posterior, frame = logistic
    high, low = (
        bz.predict(posterior, frame.assign(x=frame.x + end), **SETTINGS)["conditional"]["probs"].to_numpy()[..., 1]
        for end in (2.5, -2.5)
    )
    functions = {
        "difference": lambda a, b: a - b,
        "ratio": lambda a, b: a / b,
        "lnratio": lambda a, b: np.log(a / b),
        "lnor": lambda a, b: np.log(a / (1 - a) / (b / (1 - b))),
        "lift": lambda a, b: (a - b) / b,
    }
    found = bz.effects.comparisons(posterior, {"x": 5}, comparison=comparison, **SETTINGS)
    np.testing.assert_allclose(found.draws, functions[comparison](high, low), atol=1e-6)
    average = bz.effects.avg_comparisons(posterior, {"x": 5}, comparison=comparison, **SETTINGS)
    expected = functions[comparison](high.mean(-1), low.mean(-1))
    np.testing.assert_allclose(average.draws[..., 0], expected, atol=1e-6)


def test_categories_are_compared_with_the_first_or_as_asked(linear: Any) -> None:
    posterior, frame = linear
    found = bz.effects.avg_comparisons(posterior, "g", **SETTINGS)
    assert found.rows["contrast"].tolist() == ["b - a", "c - a"]
    ends = [
        bz.predict(posterior, frame.assign(g=level), **SETTINGS)["conditional"]["mean"].to_numpy().mean(-1)
        for level in "abc"
    ]
    np.testing.assert_allclose(found.draws[..., 0], ends[1] - ends[0], atol=1e-6)
    labels = {
        "pairwise": ["b - a", "c - a", "c - b"],
        "sequential": ["b - a", "c - b"],
        "revreference": ["a - b", "a - c"],
        "minmax": ["c - a"],
    }
    for wanted, expected in labels.items():
        assert bz.effects.avg_comparisons(posterior, {"g": wanted}, **SETTINGS).rows["contrast"].tolist() == expected
    two = bz.effects.avg_comparisons(posterior, {"g": ["c", "b"]}, **SETTINGS)
    np.testing.assert_allclose(two.draws[..., 0], ends[1] - ends[2], atol=1e-6)


def test_averages_are_by_group_and_weighted(linear: Any) -> None:
    posterior, frame = linear
    mean = bz.predict(posterior, frame, **SETTINGS)["conditional"]["mean"].to_numpy()
    by_group = bz.effects.avg_predictions(posterior, by="g", **SETTINGS)
    assert by_group.rows["g"].tolist() == ["a", "b", "c"]
    for place, level in enumerate("abc"):
        np.testing.assert_allclose(by_group.draws[..., place], mean[..., frame.g == level].mean(-1), atol=1e-9)
    weighted = bz.effects.avg_predictions(posterior, wts="k", **SETTINGS)
    np.testing.assert_allclose(weighted.draws[..., 0], np.average(mean, axis=-1, weights=frame.k), atol=1e-9)
    counterfactual = bz.effects.predictions(posterior, {"g": ["a", "b"]}, by="g", **SETTINGS)
    all_a = bz.predict(posterior, frame.assign(g="a"), **SETTINGS)["conditional"]["mean"].to_numpy().mean(-1)
    np.testing.assert_allclose(counterfactual.draws[..., 0], all_a, atol=1e-9)
    at_mean = bz.effects.predictions(posterior, newdata="mean", **SETTINGS)
    assert len(at_mean) == 1 and at_mean.rows["x"][0] == pytest.approx(frame.x.mean())


def test_frames_of_effects_have_intervals_and_parts(linear: Any) -> None:
    posterior, frame = linear
    effects = bz.effects.avg_comparisons(posterior, {"x": 1}, **SETTINGS)
    flat = effects.draws.ravel()
    (row,) = effects.to_frame(prob=0.9, centre="mean", parts=True).to_dict("records")
    assert row["estimate"] == pytest.approx(flat.mean()) and row["sd"] == pytest.approx(flat.std(ddof=1))
    assert (row["conf_low"], row["conf_high"]) == pytest.approx(tuple(np.quantile(flat, [0.05, 0.95])))
    assert row["prob_positive"] == (flat > 0).mean()
    variance = bz.predict(posterior, frame, **SETTINGS)["conditional"]["variance"].to_numpy().mean()
    assert row["aleatoric"] == pytest.approx(np.sqrt(2 * variance / len(frame)))
    assert row["total"] ** 2 == pytest.approx(row["aleatoric"] ** 2 + row["epistemic"] ** 2)
    narrow = effects.to_frame(prob=0.5, kind="hdi")
    assert narrow.conf_high[0] - narrow.conf_low[0] < row["conf_high"] - row["conf_low"]
    tree = effects.to_tree()
    assert tree["comparisons"]["estimate"].dims == ("chain", "draw", "effect") and "1 comparisons" in repr(effects)


def test_hypotheses_are_functions_of_effects_and_parameters(linear: Any) -> None:
    posterior, _ = linear
    effects = bz.effects.avg_predictions(posterior, by="g", **SETTINGS)
    found = bz.effects.hypotheses(effects, ["b1 - b0 = 0", "exp(b2) / 2 = b1**2"])
    np.testing.assert_allclose(found.draws[..., 0], effects.draws[..., 1] - effects.draws[..., 0])
    np.testing.assert_allclose(found.draws[..., 1], np.exp(effects.draws[..., 2]) / 2 - effects.draws[..., 1] ** 2)
    assert bz.effects.hypotheses(effects, "sequential").rows["term"].tolist() == ["b1 - b0 = 0", "b2 - b1 = 0"]
    values = coefficients(posterior)
    of_parameters = bz.effects.hypotheses(posterior, "b_g[b] - b_g[c] > 0", **SETTINGS)
    np.testing.assert_allclose(of_parameters.draws[..., 0], values["b_g"][..., 0] - values["b_g"][..., 1])
    for bad, sentence in (
        ("b9 = 0", "'b9', which is not known"),
        ("b0 = b1 = b2", "several signs"),
        ("b0.x", "no|more than"),
    ):
        with pytest.raises(ValueError, match=sentence):
            bz.effects.hypotheses(effects, bad)


def test_accumulated_effects_of_an_additive_model_are_its_curve(linear: Any) -> None:
    posterior, frame = linear
    found = bz.effects.accumulated(posterior, "z", num_bins=10, **SETTINGS)
    curve = coefficients(posterior)["b_log(z)"][..., None] * np.log(found.rows["z"].to_numpy())
    np.testing.assert_allclose(np.diff(found.draws), np.diff(curve), atol=1e-9)
    curves = bz.effects.individual(posterior, "x", frame.head(3), num_points=4, **SETTINGS)
    assert len(curves) == 12 and curves.rows["rowid"].tolist() == [0, 1, 2] * 4


def test_classes_are_groups() -> None:
    frame = table()
    model = bz.formula("g ~ x", frame, "categorical")
    posterior = bz.fit(model, bz.Laplace(bz.MAP(num_steps=50)), frame, progress=False)
    found = bz.effects.avg_slopes(posterior, "x", **SETTINGS)
    assert found.rows["group"].tolist() == ["a", "b", "c"]
    np.testing.assert_allclose(found.draws.sum(-1), 0.0, atol=1e-9)
    summary = bz.summarise(bz.predict(posterior, frame.head(3), **SETTINGS))
    np.testing.assert_allclose(summary.filter(like="p(").sum(axis=1), 1.0)
    assert summary.columns.tolist() == ["class", "p(a)", "p(b)", "p(c)"]
    assert set(summary["class"]) <= {"a", "b", "c"}


def test_classes_of_a_formula_keep_their_names_in_files_scores_and_reports(tmp_path: Path) -> None:
    frame = table()
    model = bz.formula("g ~ x", frame, "categorical")
    posterior = bz.fit(model, bz.Laplace(bz.MAP(num_steps=50)), frame, progress=False)
    tree = bz.predict(posterior, frame.head(20), **SETTINGS)
    bz.save_tree(tree, tmp_path / "tree.nc")
    again = xr.open_datatree(tmp_path / "tree.nc", engine="h5netcdf")
    pd.testing.assert_frame_equal(bz.summarise(again), bz.summarise(tree))
    assert bool(np.isfinite(bz.calibration.nll(tree)).all())
    assert ">p(" not in bz.report({"one": tree}, tmp_path / "report.html").read_text()
    assert '<th scope="row">b</th>' in (tmp_path / "report.html").read_text()
    named = bz.predict(posterior, frame.head(2), coords={"class_id": ["u", "v", "w"]}, **SETTINGS)
    assert bz.summarise(named).columns.tolist() == ["class", "p(u)", "p(v)", "p(w)"]


def test_posteriors_of_frames_have_effects_without_a_formula() -> None:
    frame = table()
    model = bz.models.supervised(bz.models.mlp(2, (4,)), bz.priors.fan_in(), bz.likelihoods.gaussian())
    inputs = (frame[["x", "z"]] - frame[["x", "z"]].mean()) / frame[["x", "z"]].std()
    posterior = bz.fit(model, bz.MAP(num_steps=20), inputs, torch.tensor(frame.y.to_numpy()), progress=False)
    found = bz.effects.slopes(posterior, "x", newdata=inputs.head(4))
    step = 1e-5
    high, low = (
        bz.predict(posterior, inputs.head(4).assign(x=inputs.x.head(4) + end))["conditional"]["mean"].to_numpy()
        for end in (step, -step)
    )
    np.testing.assert_allclose(found.draws, (high - low) / (2 * step), atol=1e-6)
    assert len(bz.effects.avg_comparisons(posterior)) == 2
    bare = bz.fit(
        model, bz.MAP(num_steps=2), torch.tensor(inputs.to_numpy()), torch.tensor(frame.y.to_numpy()), progress=False
    )
    with pytest.raises(ValueError, match="was not fitted to a frame with named columns"):
        bz.effects.slopes(bare, "x")


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda e, p: e.slopes(p, "X"), "no column 'X'; the columns are .* Did you mean 'x'"),
        (lambda e, p: e.slopes(p, "x", slope="dx"), "write one of dydx, eyex"),
        (lambda e, p: e.comparisons(p, "x", comparison="minus"), "write one of difference"),
        (lambda e, p: e.comparisons(p, {"g": "first"}), "write two levels, or one of reference"),
        (lambda e, p: e.comparisons(p, {"x": "wide"}), "write a number, two values, or one of iqr"),
        (lambda e, p: e.predictions(p, newdata="median"), "write 'mean', a frame, or datagrid"),
        (lambda e, p: e.predictions(p, by="h"), "no column 'h'"),
        (lambda e, p: e.accumulated(p, "g"), "holds no numbers"),
        (lambda e, p: e.predictions(p, newdata="mean").to_frame(prob=2), "write a probability between 0 and 1"),
        (lambda e, p: e.predictions(p, newdata="mean").to_frame(kind="wide"), "write 'eti' or 'hdi'"),
        (lambda e, p: e.slopes(p, "x", newdata="mean").to_frame(parts=True), "needs the variance of outcomes"),
    ],
)
def test_what_is_not_known_is_refused(linear: Any, call: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        call(bz.effects, linear[0])


def test_predictions_are_a_frame(linear: Any) -> None:
    posterior, frame = linear
    tree = bz.predict(posterior, frame.head(5).set_index(pd.Index(list("vwxyz"))), num_draws=200)
    found = bz.summarise(tree, prob=0.8)
    draws = tree["predictions"]["y"].to_numpy().reshape(-1, 5)
    assert list(found.index) == list("vwxyz") and list(found.columns) == ["mean", "sd", "lower", "upper"]
    np.testing.assert_allclose(found["mean"], draws.mean(0))
    np.testing.assert_allclose(found["upper"], np.quantile(draws, 0.9, axis=0))
    widths = bz.summarise(tree, prob=0.8, kind="hdi").eval("upper - lower")
    assert widths.mean() < 1.02 * found.eval("upper - lower").mean()
    for settings, sentence in (
        ({"prob": 1.5}, "between 0 and 1"),
        ({"kind": "x"}, "'eti' or 'hdi'"),
        ({"group": "q"}, "no group q"),
    ):
        with pytest.raises(ValueError, match=sentence):
            bz.summarise(tree, **settings)
    with pytest.raises(ValueError, match="The tree has no group predictions"):
        bz.summarise(xr.DataTree())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_effects_equal_marginaleffects_on_a_glm_under_flat_priors() -> None:
    import pyro.distributions as dist  # noqa: PLC0415

    smf = pytest.importorskip("statsmodels.formula.api")
    me = pytest.importorskip("marginaleffects")
    frame = table(400).astype({"g": "category"})
    flat = dist.Normal(0.0, 100.0)
    text = "b ~ x + z + g"
    model = bz.formula(text, frame, "bernoulli", priors=dict.fromkeys(["b_x", "b_z", "b_g", "Intercept_c"], flat))
    posterior = bz.fit(model, bz.NUTS(num_chains=4, num_warmup=500, num_draws=1000), frame, progress=False)
    glm = smf.logit(text, frame).fit(disp=0)
    for ours, theirs in (
        (bz.effects.avg_slopes(posterior, ["x", "z"]), me.avg_slopes(glm, variables=["x", "z"])),
        (bz.effects.avg_comparisons(posterior, {"x": 5}), me.avg_comparisons(glm, variables={"x": 5})),
        (bz.effects.avg_comparisons(posterior, "g"), me.avg_comparisons(glm, variables="g")),
        (bz.effects.avg_predictions(posterior, by="g"), me.avg_predictions(glm, by="g")),
    ):
        other = theirs.to_pandas() if hasattr(theirs, "to_pandas") else theirs.data.to_pandas()
        frame_of_ours = ours.to_frame(centre="mean")
        assert len(other) == len(frame_of_ours)
        error = np.abs(frame_of_ours["estimate"].to_numpy() - other["estimate"].to_numpy())
        assert (error < 0.25 * other["std_error"].to_numpy()).all()  # means of posteriors and modes differ by as much
        np.testing.assert_allclose(frame_of_ours["sd"], other["std_error"], rtol=0.1)
