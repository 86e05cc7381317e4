"""A student is as good as the draws it learned from, or says that it is not."""

import json
import math
import subprocess
import sys
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import nn

import bnnzoo as bz
from bnnzoo.serving import Distilled, InexactStudentWarning
from bnnzoo.serving.student import Student
from bnnzoo.serving.summaries import Summaries, errors, moments_of_chains

SHORT: dict[str, Any] = {"num_points": 400, "num_steps": 400}
NOISE = 0.5
X = torch.linspace(-1, 1, 40)[:, None]
Y = 2 * X[:, 0] - 0.3 + NOISE * torch.randn(40, generator=torch.Generator().manual_seed(0))
LINE = bz.models.supervised(bz.models.mlp(1, ()), bz.priors.fan_in(1.0), bz.likelihoods.gaussian(scale=NOISE))


class Constant(nn.Module):
    """Ignores its inputs."""

    def __init__(self, outputs: int = 3) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.bias.expand(len(x), -1)


def small(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, 16), nn.Tanh(), nn.Linear(16, outputs))


def fitted(likelihood: Any, outputs: int, y: torch.Tensor, num_members: int = 6) -> tuple[Any, torch.Tensor]:
    x = torch.linspace(-1, 1, 60)[:, None] * torch.tensor([1.0, -0.5]) + torch.linspace(0, 3, 60).sin()[:, None]
    model = bz.models.supervised(bz.models.mlp(2, (4,), outputs), bz.priors.fan_in(1.0), likelihood)
    return bz.fit(model, bz.MAP(num_members=num_members, num_steps=60, polish_steps=0), x, y, progress=False), x


@pytest.fixture(scope="module")
def posterior() -> Any:
    return bz.fit(LINE, bz.Laplace(), X, Y, progress=False)


@pytest.fixture(scope="module")
def student(posterior: Any) -> Distilled:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return bz.distil(posterior, X, small(1, 3), **SHORT)


@pytest.fixture(scope="module")
def of_classes() -> tuple[Distilled, Any, torch.Tensor]:
    posterior, x = fitted(bz.likelihoods.categorical(), 3, torch.arange(60) % 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InexactStudentWarning)
        return bz.distil(posterior, x, small(2, 4), **SHORT), posterior, x


def test_a_line_is_learned_to_within_a_floor_of_the_closed_form(student: Distilled, posterior: Any) -> None:
    features = np.column_stack([X.numpy(), np.ones(40)])
    covariance = np.linalg.inv(features.T @ features / NOISE**2 + np.eye(2))
    mean = features @ covariance @ features.T @ Y.numpy() / NOISE**2
    epistemic = np.einsum("ni,ij,nj->n", features, covariance, features)
    found, drawn = student.predict(X), bz.uncertainty.decompose(bz.predict(posterior, X))
    # 1,000 draws leave errors of 0.03 epistemic standard deviations in the mean, of 4.5% in the variance
    assert (abs(found["mean"].to_numpy() - mean) / epistemic**0.5).max() < 0.15
    np.testing.assert_allclose(found["epistemic"], epistemic, rtol=0.2)
    np.testing.assert_allclose(found["aleatoric"], NOISE**2, rtol=1e-5)
    np.testing.assert_allclose(found["epistemic"], drawn["epistemic"], rtol=0.15)
    np.testing.assert_allclose(found["total"], found["aleatoric"] + found["epistemic"], rtol=1e-5)
    np.testing.assert_allclose(found["sd"] ** 2, found["total"], rtol=1e-5)
    assert student.is_exact and "It is as good as the draws inside the data." in repr(student)


def test_a_student_that_cannot_learn_is_noticed(posterior: Any) -> None:
    network = Constant()
    with pytest.warns(
        InexactStudentWarning, match=r"inside the data its error in .* floors, and should be at most 1.5"
    ):
        found = bz.distil(posterior, X, network, **SHORT)
    assert not found.is_exact and "It is not as good as the draws" in repr(found)
    assert float(found.report["ratio"].sel(place="inside", measure="mean")) > 5
    assert not network.bias.any()  # a copy learned


def test_floors_are_differences_of_halves_of_the_draws() -> None:
    rng = np.random.default_rng(0)
    tree = bz.testing.example_tree("regression", num_rows=5, seed=0)
    group = tree["conditional"].to_dataset().isel(chain=[0, 0])
    group = group.assign(mean=group["mean"] + xr_noise(group["mean"], rng))
    tree["conditional"] = type(tree)(group)
    found = Summaries.of(moments_of_chains(tree))
    parts = bz.uncertainty.decompose(tree)
    np.testing.assert_allclose(found.whole["epistemic"], parts["epistemic"])
    np.testing.assert_allclose(found.whole["aleatoric"], parts["aleatoric"])
    means = group["mean"].mean("draw").to_numpy()
    np.testing.assert_allclose(found.floors()["mean"], abs(means[0] - means[1]) / parts["epistemic"].to_numpy() ** 0.5)
    logs = [np.log(bz.uncertainty.total_variance(group.isel(chain=[chain]))) / 2 for chain in (0, 1)]
    np.testing.assert_allclose(found.floors()["log_sd"], abs(logs[0] - logs[1]))
    assert all((each == 0).all() for each in errors(found.whole, found.whole, found.whole).values())


def xr_noise(like: Any, rng: np.random.Generator) -> Any:
    return like.copy(data=rng.normal(size=like.shape))


def test_a_single_chain_is_cut_into_blocks() -> None:
    tree = bz.testing.example_tree("classification", num_rows=5, seed=0)
    tree["conditional"] = type(tree)(tree["conditional"].to_dataset().isel(chain=[0], draw=slice(5)))
    probs = tree["conditional"]["probs"].to_numpy()[0]
    found = Summaries.of(moments_of_chains(tree))
    np.testing.assert_allclose(found.whole["probs"], probs[:4].mean(0))
    parts = bz.uncertainty.decompose(tree["conditional"].to_dataset().isel(draw=slice(4)))
    np.testing.assert_allclose(found.whole["epistemic"], parts["epistemic"], atol=1e-12)
    np.testing.assert_allclose(found.floors()["probs"], abs(probs[:2].mean(0) - probs[2:4].mean(0)).sum(-1) / 2)


def test_classes_have_probabilities_and_mutual_information(of_classes: tuple[Distilled, Any, torch.Tensor]) -> None:
    student, posterior, x = of_classes
    found, tree = student.predict(x), bz.predict(posterior, x)
    np.testing.assert_allclose(found["probs"].sum("class_id"), 1.0, rtol=1e-5)
    assert (found["epistemic"] >= 0).all() and (found["epistemic"] <= found["total"]).all()
    probs = tree["conditional"]["probs"].mean(("chain", "draw"))
    assert float(abs(found["probs"] - probs).max()) < 0.05
    assert float(abs(found["epistemic"] - bz.uncertainty.decompose(tree)["epistemic"]).max()) < 0.05


def test_monitor_watches_the_student(student: Distilled) -> None:
    x = X
    same, moved = (bz.monitor(student.tree(x), student.tree(x + move), num_windows=1) for move in (0.0, 3.0))
    assert float(same["unusual"][0]) < 0.1 < 0.5 < float(moved["unusual"][0])


@pytest.mark.parametrize("kind", ["student", "of_classes"])
def test_the_tree_has_the_moments_of_the_student(kind: str, request: pytest.FixtureRequest) -> None:
    found = request.getfixturevalue(kind)
    student, x = (found, X) if kind == "student" else (found[0], found[2])
    parts, own = bz.uncertainty.decompose(student.tree(x)), student.predict(x)
    for name in ("total", "aleatoric", "epistemic"):
        np.testing.assert_allclose(parts[name], own[name], rtol=1e-3, atol=1e-6)


def test_several_outcomes_and_counts() -> None:
    y = torch.randn(60, 2, generator=torch.Generator().manual_seed(0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InexactStudentWarning)
        posterior, x = fitted(bz.likelihoods.gaussian(), 2, y)
        found = bz.distil(posterior, x, num_points=200, num_steps=100, dtype=torch.float64).predict(x[:7])
        assert dict(found["mean"].sizes) == {"obs_id": 7, "output_id": 2} and found["mean"].dtype == float
        posterior, x = fitted(bz.likelihoods.poisson(), 1, (torch.arange(60) % 4).to(x))
        assert (bz.distil(posterior, x, num_points=200, num_steps=100).predict(x)["aleatoric"] > 0).all()


def test_rows_outside_of_the_box_are_marked_and_get_the_answer_of_its_edge(student: Distilled) -> None:
    high = float(student.module.high)
    found = student.predict([[high], [high + 5.0], [0.0]])
    assert found["outside"].values.tolist() == [False, True, False]
    assert float(found["sd"][0]) == float(found["sd"][1])


def test_a_seed_gives_the_same_student_and_leaves_the_global_stream(posterior: Any) -> None:
    before = torch.get_rng_state()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InexactStudentWarning)
        one, other = (bz.distil(posterior, X, num_points=100, num_steps=100, seed=3) for _ in range(2))
    assert (torch.get_rng_state() == before).all()
    assert one.predict(X).identical(other.predict(X))


def test_a_file_is_read_without_bnnzoo_and_holds_no_pickle(student: Distilled, tmp_path: Path) -> None:
    path, x = tmp_path / "student.pt2", [[-1.0], [0.0], [1.0], [9.0]]
    student.save(path)
    again = Distilled.load(path)
    np.testing.assert_allclose(again.predict(x)["sd"], student.predict(x)["sd"], rtol=1e-5)
    assert repr(again) == repr(student)
    with zipfile.ZipFile(path) as archive:
        assert not [name for name in archive.namelist() if archive.read(name)[:2] in (b"PK", b"\x80\x02", b"\x80\x04")]
    script = (
        f"import json, sys, torch; out = torch.export.load({str(path)!r}).module()(torch.tensor({x}));"
        "assert 'bnnzoo' not in sys.modules; print(json.dumps(out['mean'].tolist()))"
    )
    printed = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script], check=True, capture_output=True, text=True
    ).stdout
    np.testing.assert_allclose(json.loads(printed), student.predict(x)["mean"], rtol=1e-5)


def test_files_of_others_are_refused(student: Distilled, tmp_path: Path) -> None:
    other, own, planted = tmp_path / "other.pt2", tmp_path / "own.pt2", tmp_path / "planted.pt2"
    other.write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"other.pt2 holds no student: write it with distilled.save\(path\)"):
        Distilled.load(other)
    student.save(own)
    with zipfile.ZipFile(own) as source, zipfile.ZipFile(planted, "w") as target:
        for name in source.namelist():
            target.writestr(name, b"\x80\x02." if name.endswith("sample_inputs/model.pt") else source.read(name))
    with pytest.raises(ValueError, match="has pickled parts, which could run any code"):
        Distilled.load(planted)


@pytest.mark.parametrize(
    ("inputs", "options", "sentence"),
    [
        (X[:, [0, 0]], {}, r"rows of shape \(2,\), but the model was fitted to rows of shape \(1,\)"),
        (X[:, 0], {}, r"inputs have shape \(40,\): pass at least 10 rows \[N, \.\.\.\]"),
        (X[:3], {}, "pass at least 10 rows"),
        (torch.where(torch.arange(40)[:, None] == 4, torch.nan, X), {}, "inputs are not finite in row 4: leave"),
        (np.full((40, 1), "a"), {}, "inputs hold <U1: pass an array of numbers"),
        (X, {"network": nn.Linear(1, 2)}, r"makes \(2, 2\) of two rows .* must make \(2, 3\), three for each outcome"),
        (
            X,
            {"network": nn.Linear(2, 3)},
            r"fails at two rows of inputs, \(2, 1\) \(RuntimeError: mat1 .*\): change its first layer",
        ),
        (X, {"network": "mlp"}, r"distil\(network='mlp'\): write"),
        (X, {"num_points": 10}, r"distil\(num_points=10\): write .*100"),
        (X, {"num_steps": 2.5}, r"distil\(num_steps=2.5\): write"),
        (X, {"reach": -1.0}, r"distil\(reach=-1.0\): write"),
        (X, {"dtype": torch.int64}, r"dtype=torch.int64\): write torch.float32 or torch.float64"),
        (X, {"num_draws": 2}, "compares halves of the draws, and there are 2: fit by a method"),
    ],
)
def test_arguments_that_cannot_be(inputs: Any, options: dict, sentence: str, posterior: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=sentence):
        bz.distil(posterior, inputs, **options)


def test_inputs_of_predict_that_cannot_be(student: Distilled) -> None:
    with pytest.raises(ValueError, match=r"inputs have shape \(3, 2\), but the student takes \[N, 1\]"):
        student.predict(np.zeros((3, 2)))
    with pytest.raises(ValueError, match="inputs are not finite in row 1: leave such rows out, or impute them"):
        student.predict([[0.0], [np.nan]])


def with_offset(x: torch.Tensor, offset: torch.Tensor, y: torch.Tensor | None = None) -> None:
    slope = pyro.sample("slope", dist.Normal(0.0, 1.0))
    with pyro.plate("data", len(x)):
        pyro.sample("y", dist.Normal(slope * x[:, 0] + offset, 1.0), obs=y)


def two_sites(x: torch.Tensor, y: torch.Tensor | None = None, z: torch.Tensor | None = None) -> None:
    slope = pyro.sample("slope", dist.Normal(0.0, 1.0))
    with pyro.plate("data", len(x)):
        pyro.sample("y", dist.Normal(slope * x[:, 0], 1.0), obs=y)
        pyro.sample("z", dist.Normal(slope * x[:, 0], 1.0), obs=z)


def heavy(x: torch.Tensor, y: torch.Tensor | None = None) -> None:
    slope = pyro.sample("slope", dist.Normal(0.0, 1.0))
    with pyro.plate("data", len(x)):
        pyro.sample("y", dist.StudentT(1.5, slope * x[:, 0], 1.0), obs=y)


@pytest.mark.parametrize(
    ("model", "num_outcomes", "sentence"),
    [
        (
            with_offset,
            2,
            "takes models of one array of inputs, and this one was fitted to 2 arguments besides its outcome",
        ),
        (two_sites, 2, "takes models of one observed site, and this one has y, z"),
        (heavy, 1, r"moments are infinite or undefined in 100% of the points, as those of a Student-t"),
    ],
)
def test_models_that_cannot_be_distilled(model: Any, num_outcomes: int, sentence: str) -> None:
    x = X
    outcomes = [x[:, 0] + torch.randn(40) for _ in range(num_outcomes)]
    posterior = bz.fit(model, bz.MAP(num_members=4, num_steps=20, polish_steps=0), x, *outcomes, progress=False)
    with pytest.raises(ValueError, match=sentence):
        bz.distil(posterior, x, num_points=100)


def test_what_is_no_posterior_and_a_formula() -> None:
    with pytest.raises(
        TypeError, match=r"distil takes the posterior that bnnzoo\.fit returned, but its first argument is"
    ):
        bz.distil(LINE, X)
    frame = pd.DataFrame({"x": np.arange(20.0), "y": np.arange(20.0) % 3})
    posterior = bz.fit(bz.formula("y ~ x", frame), bz.Laplace(), frame, progress=False)
    with pytest.raises(ValueError, match="this model, of a formula, takes a data frame"):
        bz.distil(posterior, frame)


def test_errors_are_in_standard_deviations_and_logarithms_of_them() -> None:
    whole = {"mean": np.zeros(2), "aleatoric": np.array([1.0, 3.0]), "epistemic": np.array([0.25, 1.0])}
    other = {"mean": np.array([1.0, -1.0]), "aleatoric": np.array([1.0, 12.0]), "epistemic": np.array([1.0, 4.0])}
    found = errors(other, whole, whole)
    np.testing.assert_allclose(found["mean"], [2.0, 1.0])
    np.testing.assert_allclose(found["log_sd"], [np.log(2 / 1.25) / 2, np.log(2.0)])
    np.testing.assert_allclose(found["log_sd_aleatoric"], [0.0, np.log(2.0)])
    np.testing.assert_allclose(found["log_sd_epistemic"], [np.log(2.0), np.log(2.0)])


def test_mutual_information_is_the_share_of_the_entropy_that_the_last_output_says() -> None:
    inputs = np.linspace(-1.0, 1.0, 5)[:, None]
    network = nn.Linear(1, 4).double()
    with torch.no_grad():
        network.weight.zero_()
        network.bias.copy_(torch.tensor([1.0, 0.0, -2.0, 0.7]))
    student = Student(network, (inputs[0], inputs[-1]), inputs, {"probs": np.full((5, 3), 1 / 3)})
    found = student(torch.as_tensor(inputs))
    probs = torch.tensor([1.0, 0.0, -2.0]).double().softmax(0)
    entropy = -(probs * probs.log()).sum()
    torch.testing.assert_close(found["probs"], probs.expand(5, 3))
    torch.testing.assert_close(found["total"], entropy.expand(5))
    torch.testing.assert_close(found["epistemic"], entropy.expand(5) / (1 + math.exp(-0.7)))
    torch.testing.assert_close(found["aleatoric"] + found["epistemic"], found["total"])
