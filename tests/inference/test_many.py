"""Many fits of one model: the same posteriors as one by one, and models that the data change."""

import time
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, ClassVar

import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from torch import Tensor

import bnnzoo as bz
from bnnzoo.core.data.conversion import DataError
from bnnzoo.core.method import FitContext
from bnnzoo.core.model.density import build_density
from bnnzoo.core.model.kinds import first_of_kind, of_kind
from bnnzoo.core.program.sites import ModelError
from bnnzoo.core.program.surroundings import isolated
from bnnzoo.core.program.turns import aside, one_at_a_time
from bnnzoo.core.verdict import verdict
from bnnzoo.engine import choose, points, runner
from bnnzoo.engine.cores import one_core
from bnnzoo.inference.config import run_together
from bnnzoo.inference.fit import fitted
from bnnzoo.inference.many import ManyFits, in_blocks, seed_of_fit
from bnnzoo.inference.optimise import training_engines

NUTS = bz.NUTS(num_chains=2, num_warmup=60, num_draws=40)


def line(x: Tensor, y: Tensor) -> None:
    b = pyro.sample("b", dist.Normal(torch.zeros(2), 1.0).to_event(1))
    sigma = pyro.sample("sigma", dist.HalfNormal(1.0))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Normal(b[0] + b[1] * x, sigma), obs=y)


def datasets(number: int, size: int = 30, seed: int = 0) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.linspace(-1.0, 1.0, size)
    return [(x, 1.0 + slope * x + 0.3 * torch.randn(size, generator=generator)) for slope in range(number)]


def alone(method: Any, data: tuple[Any, ...], number: int, model: Callable[..., None] = line, **settings: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return bz.fit(model, method, *data, seed=seed_of_fit(3, number), progress=False, **settings)


def together(method: Any, data: list[Any], model: Callable[..., None] = line, **settings: Any) -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(bz.fit_many(model, method, data, seed=3, **settings))


@pytest.mark.parametrize("method", [NUTS, bz.HMC(num_chains=1, num_warmup=60, num_draws=40)], ids=["NUTS", "HMC"])
def test_chains_are_those_of_fits_one_by_one_bit_by_bit(method: Any) -> None:
    data = datasets(3)
    for number, found in enumerate(together(method, data, engine="native")):
        one = alone(method, data[number], number, engine="native")
        assert torch.equal(found.draws(), one.draws())
        assert found.info.seed == one.info.seed and found.info.num_gradients == one.info.num_gradients
        assert all(torch.equal(found.info.sample_stats[name], stats) for name, stats in one.info.sample_stats.items())
        assert all(torch.equal(found.info.tuning[name], value) for name, value in one.info.tuning.items())


def test_chains_are_the_same_among_few_and_among_many() -> None:
    data = datasets(25)
    among_many = together(NUTS, data, engine="native")
    assert torch.equal(among_many[1].draws(), together(NUTS, data[:2], engine="native")[1].draws())
    one_by_one = ManyFits(line, NUTS, 25, engine="native")
    last = one_by_one([data[24]], [seed_of_fit(3, 24)])[0]
    assert torch.equal(last.draws(), among_many[24].draws())


@pytest.mark.parametrize(("seconds", "sizes"), [(0.0, [20, 40, 80, 160, 50]), (2.0, [20] * 17 + [10])])
def test_blocks_of_fits_grow_where_they_are_quickly_done(
    seconds: float, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(1000))
    monkeypatch.setattr("bnnzoo.inference.many.time.perf_counter", lambda: seconds * next(clock))
    found = list(in_blocks(range(350)))
    assert [len(each) for each in found] == sizes
    assert [number for block in found for number in block] == [*range(350)]


@pytest.mark.parametrize(
    "method",
    [
        bz.Laplace(),
        bz.MAP(num_members=2),
        bz.MeanFieldVI(num_steps=60),
        bz.FullRankVI(),
        bz.Pathfinder(),
        bz.FlowVI(bz.FullRankVI(num_steps=60), num_steps=60),
        bz.DeepEnsemble(num_members=2, num_steps=80),
        bz.MAMS(num_chains=2, num_warmup=60, num_draws=20),
        bz.SGHMC(num_chains=1, num_warmup=40, num_draws=20),
    ],
    ids=lambda method: type(method).__name__,
)
def test_all_other_methods_agree_with_fits_one_by_one(method: Any) -> None:
    data = datasets(3)
    share = 1e-6 if isinstance(method, bz.MAMS | bz.SGHMC) else 1e-8
    for number, found in enumerate(together(method, data)):
        one = alone(method, data[number], number)
        count = 20 if found.info.sampling == "iid" else None
        assert torch.allclose(found.draws(count), one.draws(count), rtol=share, atol=share), number


@pytest.mark.parametrize(
    "method", [bz.FullRankVI(num_steps=60), bz.FlowVI(bz.FullRankVI(num_steps=60), num_steps=60)], ids=str
)
def test_gradients_of_members_are_traced_once_for_all_fits(method: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    traced, trace = [], runner.inner_graph

    def noted(*args: Any, **kwargs: Any) -> Any:
        traced.append(method)
        return trace(*args, **kwargs)

    monkeypatch.setattr(runner, "inner_graph", noted)
    together(method, datasets(3), engine="native")
    assert len(traced) == (2 if isinstance(method, bz.FlowVI) else 1)  # a flow's Gaussian is trained first


@pytest.mark.parametrize("outcome", [dist.Normal, dist.Bernoulli, dist.Poisson], ids=lambda kind: kind.__name__)
def test_members_of_many_fits_train_in_native_code(outcome: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def model(x: Tensor, y: Tensor) -> None:
        slope = pyro.sample("slope", dist.Normal(0.0, 1.0))
        eta = slope * x
        parts = {
            dist.Normal: {"loc": eta, "scale": 1.0},
            dist.Bernoulli: {"logits": eta},
            dist.Poisson: {"rate": eta.exp()},
        }
        with pyro.plate("rows", len(x)):
            pyro.sample("y", outcome(**parts[outcome]), obs=y)

    made, native = [], training_engines.NativeTraining

    def noted(*args: Any, **kwargs: Any) -> Any:
        found = native(*args, **kwargs)
        made.append(found.copies.how)
        return found

    monkeypatch.setattr(training_engines, "NativeTraining", noted)
    x = torch.linspace(-1.0, 1.0, 20)
    together(bz.MAP(), [(x, (x > 0).to(x))] * 40, model)
    assert set(made) == {"compiled"}


@pytest.mark.parametrize(("engine", "is_native"), [("auto", True), ("graph", False), ("python", False)])
def test_searches_of_many_fits_run_natively_unless_another_engine_is_asked_for(
    engine: Any, is_native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, native = [], points._NativePoints.__call__
    monkeypatch.setattr(points._NativePoints, "__call__", lambda *args: (made.append(1), native(*args))[1])
    data = datasets(2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = ManyFits(line, bz.Laplace(), 10_000, engine=engine)(data, [seed_of_fit(3, number) for number in (0, 1)])
    assert len(made) > 40 if is_native else not made
    for number, each in enumerate(found):
        one = alone(bz.Laplace(), data[number], number, engine=engine)
        assert torch.allclose(each.loc, one.loc, rtol=0, atol=1e-9 if is_native else 0)


_MARK: ContextVar[str] = ContextVar("mark", default="")


@cache
def _posterior() -> Any:
    """Return a posterior that takes no time, however busy the machine."""
    return bz.MAP(num_steps=0, polish_steps=0).run(build_density(line, *datasets(1)[0]), FitContext(0))


@dataclass(frozen=True)
class Waits:
    """A method that waits aside, as native code does, or in its turn, and notes how many of its fits do so at a time."""

    seconds: float
    is_aside: bool
    fails_at: int = -1
    under_way: list[int] = field(default_factory=list)
    needs: ClassVar[frozenset[Any]] = frozenset()

    def run(self, density: Any, context: Any) -> Any:
        began = torch.rand(())
        self.under_way.append(1 + (self.under_way[-1] if self.under_way else 0))
        with aside() if self.is_aside else nullcontext():
            time.sleep(self.seconds * (2 if context.seed == 1 else 1))  # others that began later end before
        self.under_way.append(self.under_way[-1] - 1)
        if context.seed == self.fails_at:
            raise ValueError(f"fit {context.seed} fails in {_MARK.get()}")
        assert _MARK.get() == "a context" and torch.rand(()) != began
        return _posterior()


def waiting(method: Waits, cores: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the seeds of six posteriors, in their order."""
    monkeypatch.setattr("bnnzoo.engine.cores.num_cores", lambda: cores)
    density = _posterior().density
    token = _MARK.set("a context")
    try:
        run = one_at_a_time(run_together)
        return [each.info.seed for each in run(method, [(density, FitContext(seed)) for seed in range(6)])]
    finally:
        _MARK.reset(token)


@pytest.mark.parametrize(
    ("is_aside", "cores", "most"), [(True, 2, 2), (True, 3, 3), (True, 1, 1), (False, 2, 1)], ids=str
)
def test_fits_that_are_mostly_native_run_side_by_side(
    is_aside: bool, cores: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = Waits(0.1, is_aside)
    before = torch.get_rng_state()
    assert waiting(method, cores, monkeypatch) == [*range(6)]
    assert max(method.under_way) == most
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("number", [0, 3])
def test_a_fit_that_fails_beside_others_ends_them_all(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=f"fit {number} fails in a context"):
        waiting(Waits(0.1, True, number), 2, monkeypatch)
    assert one_at_a_time(lambda: "a turn")() == "a turn"  # which nobody kept


def test_training_is_the_same_on_one_thread_and_on_two(monkeypatch: pytest.MonkeyPatch) -> None:
    method = bz.MeanFieldVI(num_steps=60)
    data = datasets(4)
    seeds = [seed_of_fit(3, number) for number in range(len(data))]

    def fitted() -> list[Any]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ManyFits(line, method, 1000)(data, seeds)

    monkeypatch.setattr(choose, "NATIVE_SHARE", -1.0)
    side_by_side = fitted()
    with one_core():
        in_turn = fitted()
    for one, other in zip(side_by_side, in_turn, strict=True):
        assert torch.equal(one.loc, other.loc) and torch.equal(one.draws(20), other.draws(20))


def test_data_of_several_shapes_and_frames_come_back_in_order() -> None:
    small, large = datasets(2, 20), datasets(2, 40)
    mixed = [small[0], large[0], small[1], large[1]]
    found = together(bz.Laplace(), mixed)
    assert [each.density.num_data for each in found] == [20, 40, 20, 40]
    for number, data in enumerate(mixed):
        assert torch.allclose(found[number].loc, alone(bz.Laplace(), data, number).loc, atol=1e-7)

    def frame(x: Tensor, y: Tensor) -> None:
        line(x[:, 0], y)

    frames = [(pd.DataFrame({name: data[0].numpy()}), data[1].numpy()) for name, data in zip("ab", small, strict=True)]
    columns = [each.info.columns for each in together(bz.Laplace(), frames, frame)]
    assert [dict(each)["x"] for each in columns] == [("a",), ("b",)]


def test_a_generator_is_read_as_fits_are_asked_for() -> None:
    asked = []

    def endless() -> Any:
        for number, data in enumerate(datasets(1000, 5)):
            asked.append(number)
            yield data

    found = bz.fit_many(line, bz.MAP(num_steps=20), endless())
    assert next(found).density.num_data == 5 and len(asked) <= 20


def prior_of_data(x: Tensor, y: Tensor) -> None:
    b = pyro.sample("b", dist.Normal(0.0, y.std()))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Normal(b * x, 1.0), obs=y)


def range_of_data(x: Tensor, y: Tensor) -> None:
    b = pyro.sample("b", dist.Uniform(0.0, y.abs().max()))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Normal(b, 1.0), obs=y)


def branch_of_data(x: Tensor, y: Tensor) -> None:
    b = pyro.sample("b", dist.Normal(0.0, 1.0))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Normal(b * x, 1.0) if y[0] > 0 else dist.Cauchy(b * x, 1.0), obs=y)


@pytest.mark.parametrize("model", [prior_of_data, range_of_data, branch_of_data])
def test_a_model_that_the_data_change_is_read_again(model: Callable[..., None]) -> None:
    x = torch.linspace(-1.0, 1.0, 10)
    data = [(x, sign * (1 + scale * x)) for sign, scale in ((1.0, 0.5), (-1.0, 3.0), (1.0, 2.0))]
    method = bz.NUTS(num_chains=1, num_warmup=30, num_draws=20)
    for number, found in enumerate(together(method, data, model, engine="graph")):
        one = alone(method, data[number], number, model, engine="graph")
        assert torch.allclose(
            found.density.constrain(found.draws())["b"], one.density.constrain(one.draws())["b"], rtol=1e-5
        )


@pytest.mark.parametrize("model", [prior_of_data, range_of_data, branch_of_data])
def test_what_the_data_decide_is_seen_in_one_run(model: Callable[..., None]) -> None:
    x = torch.linspace(-1.0, 1.0, 10)
    known = first_of_kind(build_density(model, x, 1 + 0.5 * x))
    theta = torch.full((1, known.num_params), 0.3)
    assert of_kind(known, (x, -2 - x), theta) is None
    if model is not branch_of_data:  # which cannot be traced, and is read anew for all data
        same = of_kind(known, (x, 1 + 0.5 * x), theta)
        assert same is not None and same[0].kind is known.kind
        torch.testing.assert_close(same[1:], same[0].value_and_grad(theta, *same[0].data))


def test_a_range_of_data_is_seen_where_the_density_does_not_show_it() -> None:
    def flat_above_the_smallest(y: Tensor) -> None:
        top = pyro.sample("top", dist.ImproperUniform(dist.constraints.greater_than(y.min()), (), ()))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(top, 1.0), obs=y)

    known = first_of_kind(build_density(flat_above_the_smallest, torch.tensor([0.5, 3.0])))
    theta = torch.full((1, 1), 0.3)
    assert of_kind(known, (torch.tensor([0.5, 2.0]),), theta) is not None
    assert of_kind(known, (torch.tensor([1.5, 2.0]),), theta) is None


def test_graphs_are_shared_by_densities_of_one_model_and_number_of_observations_alone() -> None:
    x, y = datasets(1)[0]
    known = first_of_kind(build_density(line, x, y))
    made = known.shared("anything", object)
    assert replace(known, data=(x, 2 * y)).shared("anything", object) is made
    others = [{"num_data": 5}, {"model": branch_of_data}, {"dtype": torch.float32}, {"kind": None}]
    assert all(replace(known, **change).shared("anything", object) is not made for change in others)


def test_an_argument_that_is_no_tensor_makes_another_kind() -> None:
    def powered(x: Tensor, y: Tensor, power: int) -> None:
        b = pyro.sample("b", dist.Normal(0.0, 1.0))
        with pyro.plate("rows", len(x)):
            pyro.sample("y", dist.Normal(b * x**power, 1.0), obs=y)

    data = [(*datasets(1)[0], power) for power in (1, 2, 1)]
    found = together(bz.Laplace(), data, powered)
    assert torch.allclose(found[0].loc, found[2].loc, atol=1e-6) and not torch.allclose(found[0].loc, found[1].loc)


def test_what_a_fit_refuses_is_refused_when_it_is_due() -> None:
    x, y = datasets(1)[0]
    bad = y.clone()
    bad[3] = torch.nan
    fits = bz.fit_many(line, bz.Laplace(), [(x, y), (x, bad)], seed=3)
    with pytest.raises(DataError, match=r"^Data set 1, counted from 0: .*argument 2 of the model .*row 3"):
        list(fits)
    many = bz.fit_many(line, bz.Laplace(), [*datasets(23), (x, bad)])  # in another block than the first
    with pytest.raises(DataError, match=r"^Data set 23, counted from 0: "):
        list(many)
    with pytest.raises(ModelError, match="LastLayerLaplace"):
        next(bz.fit_many(line, bz.LastLayerLaplace(), [(x, y)]))


def test_calls_that_are_wrong_say_what_to_write() -> None:
    with pytest.raises(
        TypeError, match=r"fit_many\(datasets=...\) is one tensor of shape \(4, 2\). Write a list of data sets"
    ):
        bz.fit_many(line, bz.Laplace(), torch.zeros(4, 2))
    with pytest.raises(TypeError, match=r"is one DataFrame of shape \(2, 1\). Write a list of data sets"):
        bz.fit_many(line, bz.Laplace(), pd.DataFrame({"x": [1.0, 2.0]}))
    with pytest.raises(TypeError, match="The first argument of fit_many is a network of torch"):
        bz.fit_many(torch.nn.Linear(1, 1), bz.Laplace(), [])


def test_each_fit_that_is_off_warns() -> None:
    with pytest.warns(bz.inference.ParetoKWarning, match="its standard deviation of 'b'"):
        list(bz.fit_many(line, bz.MeanFieldVI(), [(x + 5, y) for x, y in datasets(2)]))


def decided(x: Tensor, y: Tensor) -> None:
    """A prior that the data decide, so that fits to data of other signs share nothing."""
    b = pyro.sample("b", dist.Normal(0.0, 1.0 if float(y.sum()) > 0 else 2.0))
    a = pyro.sample("a", dist.Normal(0.0, 1.0))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Normal(a + b * x, 0.5), obs=y)


def test_fits_that_share_nothing_are_judged_elsewhere_too(monkeypatch: pytest.MonkeyPatch) -> None:
    (x, y), alone = datasets(1)[0], []
    monkeypatch.setattr("bnnzoo.inference.many.fitted", lambda *args, **how: alone.append(1) or fitted(*args, **how))
    monkeypatch.setattr(verdict, "accuracy_of", lambda posterior: pytest.fail("the model was evaluated for a verdict"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ManyFits(decided, bz.MeanFieldVI(), 2, judged=False)([(x + 5, y.abs()), (x + 5, -y.abs())], [0, 1])
    assert alone == [1]


def test_fits_that_are_judged_elsewhere_warn_of_what_their_records_say(monkeypatch: pytest.MonkeyPatch) -> None:
    data = [(x + 5, y) for x, y in datasets(2)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        monkeypatch.setattr(
            verdict, "accuracy_of", lambda posterior: pytest.fail("the model was evaluated for a verdict")
        )
        ManyFits(line, bz.MeanFieldVI(), 2, judged=False)(data, [0, 1])

    def root(x: Tensor, y: Tensor) -> None:
        scale = pyro.sample("scale", dist.Normal(0.0, 1.0))
        pyro.factor("part", torch.where(scale > 0, 0.0, torch.nan))
        with pyro.plate("rows", len(x)):
            pyro.sample("y", dist.Normal(scale * x, 1.0), obs=y)

    x = torch.linspace(-1.0, 1.0, 30)
    with pytest.warns(bz.inference.RejectedPointsWarning, match=r"could not be evaluated at \d+ of the points"):
        ManyFits(root, bz.MeanFieldVI(num_steps=600), 2, judged=False)([(x, 0.0 * x)] * 2, [0, 1])


def own_scales(x: Tensor, y: Tensor) -> None:
    width = pyro.sample("width", dist.LogNormal(0.0, 0.5))
    with pyro.plate("three", 3):
        slopes = pyro.sample("slopes", dist.StudentT(7.0, 1.0, 2.0))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Normal(slopes.sum() * x, width), obs=y)


def a_hierarchy(x: Tensor, y: Tensor) -> None:
    width = pyro.sample("width", dist.LogNormal(0.0, 0.5))
    with pyro.plate("three", 3):
        slopes = pyro.sample("slopes", dist.Normal(0.0, width))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Normal(slopes.sum() * x, 1.0), obs=y)


@pytest.mark.parametrize(("model", "runs"), [(own_scales, 0), (a_hierarchy, 1)])
def test_draws_from_a_prior_run_the_model_only_where_one_site_has_a_say_in_another(model: Any, runs: int) -> None:
    counted = []

    def noted(x: Tensor, y: Tensor) -> None:
        counted.append(1)
        model(x, y)

    data = torch.linspace(0.0, 1.0, 5), torch.zeros(5)
    density = build_density(noted, *data)
    counted.clear()
    with isolated(3, density.device):
        theta = density.prior_draw({}, *data)
    assert len(counted) == runs
    with isolated(3, density.device), poutine.trace() as recorder:
        model(*data)
    values = {name: node["value"] for name, node in recorder.trace.nodes.items() if "value" in node}
    found = density.constrain(theta)
    assert all(torch.allclose(found[name], values[name], rtol=1e-9) for name in ("width", "slopes"))
    theta = density.prior_draw({"width": torch.tensor(2.5)}, *data)
    assert float(density.constrain(theta)["width"]) == pytest.approx(2.5)
    density.prior_draw({}, data[0][:2], data[1][:2])
    assert len(counted) == 2 * runs + 1, "other data may give other priors"


@dataclass(frozen=True)
class CountsThreads:
    """A method that notes on how many threads torch computes."""

    found: list[int] = field(default_factory=list)
    needs: ClassVar[frozenset[Any]] = frozenset()

    def run(self, density: Any, context: Any) -> Any:
        self.found.append(torch.get_num_threads())
        return _posterior()


@pytest.mark.parametrize("is_small", [True, False])
def test_torch_computes_on_one_thread_for_small_models(is_small: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bnnzoo.engine.choose.MAX_ENTRIES_FOR_ONE_THREAD", 2**16 if is_small else 0)
    before, method = torch.get_num_threads(), CountsThreads()
    judging: list[int] = []
    monkeypatch.setattr(
        "bnnzoo.inference.many.warn_of_troubles", lambda *_, **__: judging.append(torch.get_num_threads())
    )
    torch.set_num_threads(2)
    try:
        ManyFits(line, method, 1)(datasets(1), [0])
        assert method.found == judging == [1 if is_small else 2]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def counts(x: Tensor, y: Tensor) -> None:
    slope = pyro.sample("slope", dist.Normal(0.0, 1.0))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Poisson((slope * x).exp()), obs=y)


def classes(x: Tensor, y: Tensor) -> None:
    slopes = pyro.sample("slopes", dist.Normal(torch.zeros(3), 1.0).to_event(1))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Categorical(logits=slopes * x[:, None]), obs=y)


def groups(x: Tensor, y: Tensor) -> None:
    means = pyro.sample("means", dist.Normal(torch.zeros(3), 1.0).to_event(1))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Normal(means[y], 1.0), obs=x)


def under_a_point_mass(x: Tensor, y: Tensor) -> None:
    pyro.sample("slope", dist.Normal(0.0, 1.0))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Delta(x), obs=y)


X, LABELS = torch.linspace(-1.0, 1.0, 6), torch.tensor([0, 1, 2, 1, 0, 1])


@pytest.mark.parametrize("method", [bz.NUTS(num_chains=1, num_warmup=20, num_draws=10), bz.Laplace()], ids=str)
@pytest.mark.parametrize(
    ("model", "good", "bad", "sentence"),
    [
        (counts, LABELS.float(), LABELS + 0.5, "Site 'y' observes 0.5 in row 0, which Poisson does not allow"),
        (counts, LABELS.float(), LABELS - 1.0, "Site 'y' observes -1 in row 0, which Poisson does not allow"),
        (classes, LABELS, LABELS + 1, "Site 'y' observes 3 in row 2, which Categorical does not allow"),
        (classes, LABELS, LABELS - 1, "Site 'y' observes -1 in row 0, which Categorical does not allow"),
        (groups, LABELS, LABELS - 1, r"argument 2 \('y'\) holds the code -1 in row 0"),
        (groups, LABELS, LABELS + 1, r"argument 2 \('y'\) holds the code 3 in row 2"),
        (under_a_point_mass, X, X + 1.0, r"under a point mass \(Delta\) that lies elsewhere"),
    ],
)
def test_observations_of_every_data_set_are_checked_as_the_first_ones(
    method: Any, model: Any, good: Tensor, bad: Tensor, sentence: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises((DataError, ModelError), match=rf"^Data set 1, counted from 0: .*{sentence}"):
        together(method, [(X, good), (X, bad), (X, good)], model)
    assert not capfd.readouterr().err


def test_rows_of_every_data_set_are_aligned_as_the_first_ones() -> None:
    def of_series(x: Tensor, y: Tensor) -> None:
        line(x, y)

    x, y = (pd.Series(each.numpy()) for each in datasets(1)[0])
    with pytest.raises(DataError, match=r"^Data set 1, counted from 0: .*the indices of arguments 'x' and 'y' differ"):
        together(bz.Laplace(), [(x, y), (x, y.set_axis(y.index[::-1]))], of_series)


def test_a_data_set_that_lacks_an_argument_is_named() -> None:
    with pytest.raises(TypeError, match=r"^Data set 1, counted from 0: The model takes 'x', 'y', .* which is missing"):
        together(bz.Laplace(), [*datasets(1), (X,)])


@pytest.mark.parametrize("place", [3, 23])
@pytest.mark.parametrize("what", ["a NaN", "another kind", "no support"])
def test_fits_before_one_that_is_refused_are_yielded_first(place: int, what: str) -> None:
    bad = {"a NaN": (X, X.log()), "another kind": (X, X[:3]), "no support": (X, LABELS + 0.5)}[what]
    data = [(X, LABELS.float())] * 25
    data[place] = bad
    found = bz.fit_many(counts, bz.MAP(num_steps=10), data)
    assert [next(found).info.seed for _ in range(place)] == [*range(place)]
    with pytest.raises((DataError, ModelError), match=f"^Data set {place}, counted from 0: "):
        next(found)


@pytest.mark.parametrize("number", [0, 3])
def test_fits_before_one_that_fails_in_its_method_are_yielded_first(number: int) -> None:
    token = _MARK.set("a context")
    try:
        found = bz.fit_many(line, Waits(0.0, True, number), datasets(5))
        assert [next(found).info.seed for _ in range(number)] == [*range(number)]
        with pytest.raises(ValueError, match=f"^Data set {number}, counted from 0: fit {number} fails in a context"):
            next(found)
    finally:
        _MARK.reset(token)


def test_a_data_set_that_is_no_tuple_is_told_to_be_one() -> None:
    x, y = datasets(1)[0]
    with pytest.raises(
        TypeError,
        match=r"^Data set 0, counted from 0: It is a dict with the keys 'x', 'y', and the model takes 'x', 'y'. Write each of "
        r"datasets as a tuple of the model's arguments: \(x, y\).",
    ):
        list(bz.fit_many(line, bz.Laplace(), [{"x": x, "y": y}]))
    with pytest.raises(TypeError, match=r"^Data set 1, counted from 0: It is a list of length 2, and the model takes"):
        list(bz.fit_many(line, bz.Laplace(), [(x, y), [x, y]]))

    def of_mapping(held: dict[str, Tensor]) -> None:
        line(held["x"], held["y"])

    assert len(together(bz.MAP(num_steps=10), [{"x": x, "y": y}] * 2, of_mapping)) == 2
    assert not list(bz.fit_many(line, bz.Laplace(), []))
