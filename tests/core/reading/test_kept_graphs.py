"""Graphs that a fit leaves to the next one of the same model: taken where the function is the same, and only there."""

import warnings
from collections import deque
from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

import bnnzoo as bz
from bnnzoo.core.data.conversion import DataError
from bnnzoo.core.model.density import made_of
from bnnzoo.core.posterior.posterior import Posterior
from bnnzoo.core.reading import kept_graphs
from bnnzoo.engine import graphs, points
from bnnzoo.engine.torch_private import LoweringWarning

X = torch.linspace(-1.0, 1.0, 20, dtype=torch.float64)
Y = 0.5 + 1.5 * X + 0.3 * torch.cos(7 * X)
SHORT = {
    "NUTS": bz.NUTS(num_chains=2, num_warmup=50, num_draws=50),
    "SGHMC": bz.SGHMC(num_chains=2, num_warmup=100, num_draws=50),
    "MAP": bz.MAP(),
    "Laplace": bz.Laplace(),
    "MeanFieldVI": bz.MeanFieldVI(num_steps=500),
    "FlowVI": bz.FlowVI(num_steps=30),
    "Pathfinder": bz.Pathfinder(),
    "DeepEnsemble": bz.DeepEnsemble(num_members=2),
    "SWAG": bz.SWAG(num_steps=60),
}


def line(x: Tensor, y: Tensor) -> None:
    a, b = (pyro.sample(name, dist.Normal(0.0, 2.0)) for name in "ab")
    sigma = pyro.sample("sigma", dist.HalfNormal(1.0))
    with pyro.plate("data", len(x)):
        pyro.sample("y", dist.Normal(a + b * x, sigma), obs=y)


@pytest.fixture(autouse=True)
def _none_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_graphs, "_KEPT", deque(maxlen=kept_graphs.NUM_KEPT))


def fitted(model: Any, method: Any, *data: Any, seed: int = 0) -> Posterior:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bz.inference.FitWarning)
        return bz.fit(model, method, *data, seed=seed, progress=False, dtype=torch.float64)


def draws_of(posterior: Posterior) -> Tensor:
    return posterior.draws()


def forget() -> None:
    kept_graphs._KEPT.clear()


@pytest.mark.parametrize("engine", ["auto", "graph"])
@pytest.mark.parametrize("name", SHORT)
def test_a_fit_with_kept_graphs_has_the_draws_of_one_without(name: str, engine: str, monkeypatch) -> None:
    monkeypatch.setenv("BNNZOO_ENGINE", engine)
    method = SHORT[name]
    first = fitted(line, method, X, Y)
    again = fitted(line, method, X, Y)
    other = fitted(line, method, X.clone(), 2 * Y, seed=3)
    assert made_of(first.density) is made_of(again.density) is made_of(other.density)
    forget()
    afresh = fitted(line, method, X, 2 * Y, seed=3)
    assert made_of(afresh.density) is not made_of(other.density)
    assert torch.equal(draws_of(first), draws_of(again))
    assert torch.equal(draws_of(other), draws_of(afresh))


def test_fits_of_two_shapes_in_turn_keep_the_graphs_of_both() -> None:
    made = [made_of(fitted(line, bz.MAP(), X[:rows], Y[:rows]).density) for rows in (20, 15, 20, 15, 15, 20)]
    assert made[0] is made[2] is made[5] is not made[1]
    assert made[1] is made[3] is made[4]


@pytest.mark.parametrize("engine", ["auto", "native"])
def test_a_later_fit_traces_nothing(engine: str, monkeypatch) -> None:
    monkeypatch.setenv("BNNZOO_ENGINE", engine)

    def refused(*_: Any, **__: Any) -> None:
        raise AssertionError("traced")

    names = [name for name in SHORT if name != "SWAG"]  # whose rate, which the data decide, is part of a step
    for name in names:
        fitted(line, SHORT[name], X, Y)
    monkeypatch.setattr(graphs, "operations_of", refused)
    with warnings.catch_warnings():
        warnings.simplefilter("error", LoweringWarning)
        for name in names:
            fitted(line, SHORT[name], X, Y + 1)


@pytest.mark.parametrize("engine", ["graph", "native"])
def test_a_later_fit_by_swag_traces_its_step_alone(engine: str, monkeypatch) -> None:
    monkeypatch.setenv("BNNZOO_ENGINE", engine)
    traced, trace = [], graphs.operations_of
    fitted(line, SHORT["SWAG"], X, Y)
    monkeypatch.setattr(graphs, "operations_of", lambda *args: traced.append(1) or trace(*args))
    fitted(line, SHORT["SWAG"], X, Y + 1)
    assert len(traced) <= 1


def test_the_graphs_of_a_fit_judged_in_native_code_are_kept(monkeypatch) -> None:
    monkeypatch.setattr(points, "NATIVE_PAYS_FROM_SECONDS", 0.0)
    model = bz.models.supervised(bz.models.mlp(1, (4,)), bz.priors.fan_in(1.0), bz.likelihoods.gaussian(scale=0.3))
    first, again = (fitted(model, bz.MeanFieldVI(num_steps=500), X[:, None], y) for y in (Y, Y + 0.1))
    assert any(made_of(first.density).shared("short chains", lambda: None)._native.values())
    assert made_of(first.density) is made_of(again.density)


def test_other_settings_shapes_and_types_have_graphs_of_their_own() -> None:
    made = [
        made_of(fitted(line, bz.MAP(), X, Y).density),
        made_of(fitted(line, bz.MAP(polish_steps=99), X, Y).density),
        made_of(fitted(line, bz.MAP(), X[:-1], Y[:-1]).density),
        made_of(bz.fit(line, bz.MAP(), X, Y, progress=False, dtype=torch.float32).density),
        made_of(fitted(lambda x, y: line(x, y), bz.MAP(), X, Y).density),
    ]
    assert len({id(each) for each in made}) == len(made)


def test_a_model_that_reads_something_else_by_now_is_traced_anew() -> None:
    """A number, a tensor written into, an attribute and a function of a network: each changes the posterior."""
    known = {"scale": 1.0, "offset": torch.zeros(20, dtype=torch.float64), "link": torch.nn.ReLU()}

    def model(x: Tensor, y: Tensor) -> None:
        b = pyro.sample("b", dist.Normal(0.0, known["scale"]))
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(known["link"](b * x) + known["offset"], 0.5), obs=y)

    def mean() -> float:
        return float(fitted(model, bz.Laplace(), X, Y).loc)

    def changed(before: float) -> float:
        kept = mean()
        forget()
        afresh = mean()
        assert kept == afresh
        assert abs(kept - before) > 1e-3
        return kept

    found = mean()
    assert mean() == found
    known["scale"] = 0.1
    found = changed(found)
    known["offset"].add_(0.5)
    found = changed(found)
    known["link"] = torch.nn.Identity()
    changed(found)


def test_arguments_that_are_no_tensors_have_graphs_of_their_own() -> None:
    def model(x: Tensor, y: Tensor, power: int, link: str) -> None:
        b = pyro.sample("b", dist.Normal(0.0, 1.0))
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(b * getattr(x, link)() ** power, 1.0), obs=y)

    cases = [(1, "exp"), (2, "exp"), (1, "cos"), (1, "exp")]
    for method in (bz.MAP(), SHORT["NUTS"]):
        made = [made_of(fitted(model, method, X, Y, *case).density) for case in cases]
        assert made[0] is made[3] and len({id(each) for each in made}) == 3


def test_counts_have_graphs_for_each_precision() -> None:
    def model(y: Tensor) -> None:
        rate = pyro.sample("rate", dist.Gamma(2.0, 1.0))
        with pyro.plate("data", len(y)):
            pyro.sample("y", dist.Poisson(rate), obs=y)

    counts = torch.tensor([0, 3, 1])
    single, double = (bz.fit(model, bz.MAP(), counts, progress=False, dtype=d) for d in (torch.float32, torch.float64))
    assert made_of(single.density) is not made_of(double.density)


def test_a_number_that_one_late_row_reads_counts() -> None:
    table = torch.zeros(10, dtype=torch.float64)
    group = torch.tensor([0] * 60 + [7] * 4)
    y = torch.ones(64, dtype=torch.float64)

    def model(group: Tensor, y: Tensor) -> None:
        b = pyro.sample("b", dist.Normal(0.0, 1.0))
        with pyro.plate("data", len(y)):
            pyro.sample("y", dist.Normal(b + table[group], 1.0), obs=y)

    first = float(fitted(model, bz.MAP(), group, y).theta)
    table[7] = 5.0
    assert float(fitted(model, bz.MAP(), group, y).theta) == pytest.approx(first - 20 / 65, abs=1e-6)


def test_a_model_that_has_no_value_at_the_points_where_it_is_compared_is_traced_each_time() -> None:
    def model(y: Tensor) -> None:
        b = pyro.sample("b", dist.Normal(5.0, 0.1))
        pyro.factor("root", (b - 4.0).sqrt())
        with pyro.plate("data", len(y)):
            pyro.sample("y", dist.Normal(b, 1.0), obs=y)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LoweringWarning)
        fitted(model, bz.MAP(init=torch.tensor([[5.0]], dtype=torch.float64)), Y)
    assert not kept_graphs._KEPT


def test_a_method_of_an_object_is_one_model_until_the_object_changes() -> None:
    class Line:
        scale = 2.0

        def model(self, x: Tensor, y: Tensor) -> None:
            b = pyro.sample("b", dist.Normal(0.0, self.scale))
            with pyro.plate("data", len(x)):
                pyro.sample("y", dist.Normal(b * x, 1.0), obs=y)

    line = Line()
    first, again = (fitted(line.model, bz.MAP(), X, Y) for _ in range(2))
    assert made_of(first.density) is made_of(again.density)
    line.scale = 0.1
    changed = fitted(line.model, bz.MAP(), X, Y)
    assert made_of(changed.density) is not made_of(first.density)
    assert abs(float(changed.theta)) < 0.5 * abs(float(first.theta))


def test_what_the_data_decide_is_decided_by_those_at_hand() -> None:
    def model(group: Tensor, y: Tensor) -> None:
        upper = pyro.sample("upper", dist.Uniform(0.0, y.max() + 1.0))
        if group.max() > 1:
            upper = 2 * upper
        with pyro.plate("data", len(y)):
            pyro.sample("y", dist.Normal(upper, 1.0), obs=y)

    few, many = torch.tensor([0, 1, 1, 0]), torch.tensor([0, 2, 1, 0])
    y = torch.tensor([1.0, 2.0, 1.5, 1.8], dtype=torch.float64)
    cases = [(few, y), (many, y), (few, 3 * y), (many, 3 * y)]
    in_turn = [draws_of(fitted(model, bz.MAP(), *case)) for case in cases]
    for case, found in zip(cases, in_turn, strict=True):
        forget()
        assert torch.equal(draws_of(fitted(model, bz.MAP(), *case)), found)


def test_a_model_that_cannot_be_traced_is_told_each_time() -> None:
    def model(x: Tensor, y: Tensor) -> None:
        b = pyro.sample("b", dist.Normal(0.0, 1.0))
        slope = b if float(b.detach()) > -100 else -b
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(slope * x, 1.0), obs=y)

    for _ in range(2):
        with pytest.warns(LoweringWarning, match="could not be traced"):
            bz.fit(model, bz.NUTS(num_chains=1, num_warmup=5, num_draws=5), X, Y, progress=False)
    assert not kept_graphs._KEPT


def test_few_fits_are_kept_and_none_of_much_data() -> None:
    for number in range(kept_graphs.NUM_KEPT + 2):
        fitted(line, bz.MAP(polish_steps=50 + number), X, Y)
    assert len(kept_graphs._KEPT) == kept_graphs.NUM_KEPT
    forget()
    much = torch.linspace(0.0, 1.0, kept_graphs.MAX_NUMBERS, dtype=torch.float64)
    fitted(line, bz.MAP(), much, much)
    assert not kept_graphs._KEPT
    half = much[: len(much) // 2]
    fitted(line, bz.MAP(), half, half + (1e4 * half).sin())
    assert len(kept_graphs._KEPT) == 1


def test_a_refused_fit_leaves_what_is_kept() -> None:
    first = fitted(line, bz.MAP(), X, Y)
    with pytest.raises(DataError):
        fitted(line, bz.MAP(), X, Y * float("nan"))
    assert made_of(fitted(line, bz.MAP(), X, Y).density) is made_of(first.density)
