"""``check`` from model and data to a verdict, a page and JSON."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import torch
from typer.testing import CliRunner

import bnnzoo as bz
from bnnzoo.checking import ModelCheck
from bnnzoo.cli import app

ROWS = 160
CHOSEN = bz.NUTS(num_chains=2, num_warmup=300, num_draws=600)


def line(x: torch.Tensor, y: torch.Tensor | None = None) -> None:
    a, b = (pyro.sample(name, dist.Normal(0.0, 5.0)) for name in "ab")
    sigma = pyro.sample("sigma", dist.HalfNormal(5.0))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Normal(a + b * x, sigma), obs=y)


def data(seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    x, g = rng.normal(size=ROWS), np.arange(ROWS) % 8
    return pd.DataFrame(
        {"x": x, "g": g, "y": 1 + x + 0.5 * rng.normal(size=ROWS), "bent": 1 + x**2 + 0.5 * rng.normal(size=ROWS)}
    )


@pytest.fixture(scope="module")
def right() -> ModelCheck:
    frame = data()
    return bz.check(line, frame["x"], frame["y"], method=CHOSEN, beside=frame[["g"]])


@pytest.fixture(scope="module")
def bent() -> ModelCheck:
    frame = data()
    return bz.check(line, frame["x"], frame["bent"], method=CHOSEN)


def test_a_model_that_is_right_has_no_fault(right: ModelCheck) -> None:
    assert right.faults == ()
    assert right.verdict == "No check finds fault with the model (19 questions to the data)."
    about = set(right.asked["about"])
    assert about == {"", "fitted", "x", "g", "x, g"}
    assert str(right).splitlines()[-1] == (
        "- Not checked: calibration by simulation; pass num_simulations=50, which takes as many fits."
    )


def test_a_curve_is_said_with_what_to_write(bent: ModelCheck) -> None:
    first = bent.faults[0]
    assert (first.kind, first.evidence["about"]) == ("curve", "x")
    assert first.sentence.startswith("Residuals of y bend with x (correlation 0.")
    assert first.advice == "Add x to the model, or let its effect bend: s(x), a polynomial or a network."
    neighbours = bent.asked[(bent.asked["kind"] == "neighbours") & (bent.asked["about"] == "x")]
    assert float(neighbours["p_value"].iloc[0]) < 1e-6  # and the curve explains it
    assert {"neighbours", "order"}.isdisjoint(each.kind for each in bent.faults)
    assert bent.verdict.startswith(f"The model has {len(bent.faults)} fault")


def test_what_the_model_does_not_use_is_tried() -> None:
    frame = data()
    shifted = frame["y"] + 0.4 * (frame["g"] - 3.5)
    found = bz.check(line, frame["x"], shifted, method=CHOSEN, beside={"g": frame["g"].map(str)})
    assert found.faults[0].sentence == "Residuals of y differ between the levels of g (p < 0.0001)."
    assert found.faults[0].advice == "Add an effect of each level, (1 | g) or g."


def test_a_slope_that_is_missing_altogether_is_no_slope_that_varies() -> None:
    frame = data()
    w = np.random.default_rng(3).normal(size=ROWS)
    beside = {"w": w, "sex": np.where(np.arange(ROWS) % 2, "m", "f")}
    found = bz.check(line, frame["x"], frame["y"] + 0.5 * w, method=CHOSEN, beside=beside)
    slopes = found.asked[(found.asked["kind"] == "slopes") & (found.asked["about"] == "w, sex")]
    assert float(slopes["p_value"].iloc[0]) < 1e-6
    assert [each.kind for each in found.faults] == ["curve"]
    assert found.faults[0].sentence.startswith("Residuals of y rise with w (correlation 0.")
    apart = bz.check(
        line, frame["x"], frame["y"] + 0.8 * np.where(np.arange(ROWS) % 2, w, -w), method=CHOSEN, beside=beside
    )
    assert [each.kind for each in apart.faults] == ["slopes"]
    assert apart.faults[0].advice == "Let the slope vary: (w | sex)."


def test_what_is_found_unfolds_in_a_notebook(bent: ModelCheck) -> None:
    html = bent._repr_html_()
    assert html.startswith(f"<p>{bent.verdict}</p><ul><li>Residuals of y bend with x")
    assert html.count("<details>") == 1 and html.count("<tr") == len(bent.asked) + 1
    assert repr(bent) == str(bent)


def test_an_outcome_beside_the_model_is_no_variable() -> None:
    frame = data()
    above = frame["y"] > 1
    model = bz.formula("above ~ x", frame.assign(above=np.where(above, "yes", "no")), "bernoulli")
    posterior = bz.fit(model, CHOSEN, model.frame, progress=False)
    beside = frame[["g"]].assign(above=np.where(above, "yes", "no"), y=frame["y"], row=np.arange(ROWS))
    found = bz.check(posterior, beside=beside)
    assert "above in beside, which is the outcome." in found.skipped
    assert "above" not in " ".join(found.asked["about"]) and "y" in set(found.asked["about"])
    plain = bz.check(line, frame["x"], frame["y"], method=CHOSEN, beside=frame[["y", "g"]])
    assert "y in beside, which is the outcome." in plain.skipped and not plain.faults


def test_a_posterior_is_checked_without_another_fit(right: ModelCheck) -> None:
    again = bz.check(right.posterior)
    assert again.posterior is right.posterior
    assert not again.faults
    with pytest.raises(TypeError, match=r"^check\(posterior\): leave the data out, which the posterior has\.$"):
        bz.check(right.posterior, data()["x"])


def test_rows_that_repeat_and_values_at_a_limit_are_said() -> None:
    frame = data()
    rows = np.r_[np.arange(ROWS), np.arange(20)]
    twice = bz.check(line, frame["x"].iloc[rows].to_numpy(), frame["y"].iloc[rows].to_numpy(), method=CHOSEN)
    assert "20 of 180 rows repeat another one in every value." in [each.sentence for each in twice.faults]
    ended = bz.check(line, frame["x"], frame["y"].clip(upper=1.5), method=CHOSEN)
    (limit,) = [each for each in ended.faults if each.kind == "limit"]
    assert limit.sentence.endswith(
        "values of y are the largest, 1.5: a continuous likelihood gives that no probability."
    )


def test_rows_of_a_few_levels_may_repeat() -> None:
    arm = np.arange(ROWS) % 2
    successes = np.random.default_rng(0).binomial(6, 0.3 + 0.3 * arm)

    def model(arm: torch.Tensor, y: torch.Tensor) -> None:
        odds = pyro.sample("odds", dist.Normal(torch.zeros(2), 1.5).to_event(1))
        with pyro.plate("rows", len(arm)):
            pyro.sample("y", dist.Binomial(6, logits=odds[arm]), obs=y)

    found = bz.check(model, torch.from_numpy(arm), torch.from_numpy(successes).double(), method=bz.Laplace())
    assert "repeated rows" not in {each.kind for each in found.faults}


def test_a_prior_for_other_units_is_said() -> None:
    def narrow(x: torch.Tensor, y: torch.Tensor) -> None:
        a, b = (pyro.sample(name, dist.Normal(0.0, 1.0)) for name in "ab")
        with pyro.plate("rows", len(x)):
            pyro.sample("y", dist.Normal(a + b * x, 1.0), obs=y)

    frame = data()
    found = bz.check(narrow, frame["x"], 60 + frame["y"], method=CHOSEN)
    sentences = [each.sentence for each in found.faults]
    assert any(each.startswith("The posterior of a lies far above its prior, 4.1 times as far") for each in sentences)
    assert any(each.startswith("The prior hardly produces data like these: the mean of y is 6") for each in sentences)


@pytest.mark.filterwarnings("ignore::bnnzoo.FitWarning")
def test_what_the_fit_warns_of_comes_first_and_is_no_fault_of_the_model() -> None:
    def funnel(y: torch.Tensor) -> None:
        tau = pyro.sample("tau", dist.HalfCauchy(5.0))
        with pyro.plate("rows", len(y)):
            mu = pyro.sample("mu", dist.Normal(0.0, tau))
            pyro.sample("y", dist.Normal(mu, 5.0), obs=y)

    found = bz.check(funnel, torch.linspace(-3, 3, 8), method=bz.NUTS(num_chains=2, num_warmup=200, num_draws=600))
    assert found.findings[0].sentence.startswith("The fit warns: ")
    assert "but its fit is in doubt." in found.verdict
    assert not any(each.kind == "fit" for each in found.faults)


def test_models_that_cannot_be_checked_are_refused() -> None:
    def factor(y: torch.Tensor) -> None:
        a = pyro.sample("a", dist.Normal(0.0, 1.0))
        with pyro.plate("rows", len(y)):
            pyro.factor("f", -((y - a) ** 2))

    y = torch.randn(10)
    with pytest.raises(
        ValueError, match=r"^check compares a model with its observations, but the likelihood is the factor 'f'\.$"
    ):
        bz.check(factor, y, method=bz.Laplace())
    rows = ("'g' in beside has 3 rows, but the data have 160 rows: one value each.", {"g": [1, 2, 3]})
    columns = ("'g' in beside has the shape [160, 2], but the data have 160 rows: one", {"g": np.zeros((160, 2))})
    words = ("beside is of type str: pass a frame, or a mapping such as {'clinic': clinic}.", "clinic")
    for sentence, beside in (rows, columns, words):
        with pytest.raises((TypeError, ValueError), match=f"^{re.escape(sentence)}"):
            bz.check(line, data()["x"], data()["y"], method=bz.Laplace(), beside=beside)
    with pytest.raises(ValueError, match=r"^check\(num_simulations=-1\): write 0 or more\.$"):
        bz.check(line, data()["x"], data()["y"], num_simulations=-1)


def test_page_and_json_are_written_whole(bent: ModelCheck, tmp_path: Path) -> None:
    path = bent.save(tmp_path / "check")
    written = json.loads((path / "check.json").read_text())
    assert written["verdict"] == bent.verdict
    assert written["findings"][0]["kind"] == "curve"
    page = (path / "check.html").read_text()
    assert "Residuals of y bend with x" in page
    assert ">spread: x</th>" in page
    assert "Does the scatter depend on it?" in page
    with pytest.raises(FileExistsError, match=r"already exists; choose another path, or remove it\.$"):
        bent.save(path)


@pytest.mark.slow
def test_calibration_by_simulation_is_asked_for() -> None:
    frame = data().head(30)
    found = bz.check(line, frame["x"], frame["y"], method=bz.MeanFieldVI(), num_simulations=20)
    assert not any("calibration by simulation" in each for each in found.skipped)
    assert all(each.kind != "calibration" or "data sets from the prior" in each.sentence for each in found.faults)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    data().to_csv(tmp_path / "data.csv", index=False)
    return tmp_path / "data.csv"


SHORT = ("--num-warmup", "200", "--num-draws", "300")


def test_the_command_checks_a_program(table: Path, tmp_path: Path) -> None:
    program = tmp_path / "model.py"
    program.write_text(
        "import pyro, pyro.distributions as dist\n"
        "def model(x, bent):\n"
        "    a, b = (pyro.sample(name, dist.Normal(0.0, 5.0)) for name in 'ab')\n"
        "    sigma = pyro.sample('sigma', dist.HalfNormal(5.0))\n"
        "    with pyro.plate('rows', len(x)):\n"
        "        pyro.sample('bent', dist.Normal(a + b * x, sigma), obs=bent)\n"
    )
    result = CliRunner().invoke(app, ["check", str(program), str(table), "--out", str(tmp_path / "out"), *SHORT])
    assert result.exit_code == 0, result.output
    assert "Residuals of bent bend with x" in result.output
    assert sorted(each.name for each in (tmp_path / "out").iterdir()) == ["check.html", "check.json"]


def test_the_command_checks_a_formula(table: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["check", "y ~ x", str(table), "--out", str(tmp_path / "out"), *SHORT])
    assert result.exit_code == 0, result.output
    written = json.loads((tmp_path / "out" / "check.json").read_text())
    assert {"g", "x", "bent"} <= {each["about"] for each in written["asked"]}


@pytest.mark.parametrize(
    ("program", "sentence"),
    [
        (None, "There is no file 'model.py'. Write the name of a Python file, or a formula, 'y ~ x'."),
        ("a = 1", "'model.py' defines no function 'model'. Write def model(x, y): with columns as arguments."),
        (
            "def model(z, y): ...",
            "The model takes 'z', which is no column of the table (x, g, y, bent): its arguments are columns",
        ),
    ],
)
def test_the_command_refuses_in_one_sentence(
    program: str | None, sentence: str, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(table.parent)
    if program is not None:
        Path("model.py").write_text(program)
    result = CliRunner().invoke(app, ["check", "model.py", str(table)])
    assert result.exit_code == 2
    assert sentence in " ".join(result.output.split())
    assert not Path("check").exists()
