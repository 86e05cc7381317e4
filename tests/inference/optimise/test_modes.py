"""Posteriors with several modes: the fit is of the one with the most evidence, and says what it does not hold."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor
from torch.distributions import constraints

from bnnzoo.core.method import Method
from bnnzoo.core.model.density import build_density
from bnnzoo.core.verdict.verdict import troubles
from bnnzoo.inference import (
    FlowVI,
    FullRankVI,
    Laplace,
    LowRankVI,
    MeanFieldVI,
    SeveralModesWarning,
    fit,
)
from bnnzoo.inference.optimise.modes import Peaks, peak_at, peaks_beside
from bnnzoo.inference.optimise.pathfinder import uphill, ways_up
from bnnzoo.testing import linear_gaussian

CENTRES, SD = (
    torch.tensor([[-1.0, -6.0], [1.5, 6.0]], dtype=torch.float64),
    torch.tensor([0.3, 0.4], dtype=torch.float64),
)
METHODS = [MeanFieldVI(), FullRankVI(), Laplace()]
BASKETBALL = "bball_drive_event_0-hmm_drive_0"


def two_peaks(share: float) -> Callable[[Tensor], None]:
    """Return a mixture of two Gaussians far apart, of which the second one has the given share."""

    def model(y: Tensor) -> None:
        theta = pyro.sample("theta", dist.Normal(torch.zeros(2), 10.0).to_event(1))
        weights = torch.tensor([1 - share, share]).to(theta).log()
        each = dist.Normal(CENTRES.to(theta), SD.to(theta)).log_prob(theta).sum(-1)
        prior = dist.Normal(0.0, 10.0).log_prob(theta).sum()
        with pyro.plate("rows", len(y)):
            pyro.factor("peaks", ((weights + each).logsumexp(0) - prior).expand(len(y)))

    return model


def start_of(seed: int) -> int:
    """Return the centre that is uphill of the start of a seed."""
    start = build_density(two_peaks(0.5), torch.zeros(1)).init(1, seed)[0]
    return int(((start - CENTRES.to(start)) / SD.to(start)).square().sum(1).argmin())


def searched(model: Callable[..., None], *data: Tensor, seed: int = 0) -> Peaks:
    density = build_density(model, *data)
    ways = ways_up(density, density.init(1, seed))
    assert ways is not None
    return peaks_beside(density, ways, seed)


def throat(y: Tensor) -> None:
    """A hierarchy whose joint density rises without bound where its scale becomes small."""
    scale = pyro.sample("scale", dist.HalfCauchy(1.0))
    with pyro.plate("groups", 3):
        effect = pyro.sample("effect", dist.Normal(0.0, scale))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal(effect.sum(), 1.0), obs=y)


def rising(y: Tensor) -> None:
    """A density that rises without bound, curved down everywhere but in the middle: Newton's steps become longer and longer."""
    far = pyro.sample("far", dist.ImproperUniform(constraints.real, (), ()))
    with pyro.plate("rows", len(y)):
        pyro.factor("rises", (1 + far.square()).log().expand(len(y)))


def test_a_mode_is_known_from_the_way_to_it_where_there_is_one() -> None:
    density = build_density(two_peaks(0.5), torch.zeros(1))
    (way,) = ways_up(density, density.init(1, 0)) or ()
    expected = peak_at(density, way.top)
    assert way.mode is not None and expected is not None
    assert all(torch.equal(one, other) for one, other in zip(way.mode, expected, strict=True))
    assert any(peak.mode is way.mode for peak in peaks_beside(density, [way], 0).found)
    for model in (throat, rising):
        density = build_density(model, torch.zeros(4))
        (way,) = ways_up(density, density.init(1, 0)) or ()
        assert way.mode is None


@pytest.mark.parametrize(
    "method", [MeanFieldVI(), FullRankVI(), LowRankVI(rank=1), Laplace()], ids=lambda each: type(each).__name__
)
def test_fits_are_of_the_mode_with_the_most_evidence(method: Method) -> None:
    share = 0.999 if start_of(0) == 0 else 0.001
    posterior = fit(two_peaks(share), method, torch.zeros(1), progress=False)
    torch.testing.assert_close(posterior.loc, CENTRES[1 - start_of(0)].to(posterior.loc), rtol=0, atol=0.02)
    first, second = posterior.info.config["modes"]
    assert first["share"] == pytest.approx(0.999, abs=1e-4)
    assert first["log_evidence"] == pytest.approx(math.log(0.999), abs=0.01)
    assert first["num_searches"] + second["num_searches"] == posterior.info.config["num_searches"]


@pytest.mark.parametrize("method", METHODS, ids=lambda each: type(each).__name__)
def test_a_mode_that_matters_is_said(method: Method) -> None:
    with pytest.warns(SeveralModesWarning, match="About 20% of the posterior lies in another mode that") as caught:
        fit(two_peaks(0.8), method, torch.zeros(1), progress=False)
    said = next(str(each.message) for each in caught if each.category is SeveralModesWarning)
    assert "31 of its standard deviations away in 'theta'. Use NUTS(), whose chains" in said
    assert "or Tempered(NUTS()), which finds the weights of modes." in said
    assert "label switching" not in said


def test_restarts_hold_both_modes() -> None:
    seeds = next(s for s in range(50) if {int(i) for i in starts_of(s, 4)} == {0, 1})
    posterior = fit(two_peaks(0.5), MeanFieldVI(num_restarts=4), torch.zeros(1), seed=seeds, progress=False)
    assert not [each for each in troubles(posterior) if each.kind is SeveralModesWarning]
    assert len({round(float(each.loc[1])) for each in posterior.components}) == 2


def starts_of(seed: int, count: int) -> Tensor:
    start = build_density(two_peaks(0.5), torch.zeros(1)).init(count, seed)
    return ((start[:, None] - CENTRES.to(start)) / SD.to(start)).square().sum(2).argmin(1)


def test_restarts_leave_modes_of_no_mass() -> None:
    posterior = fit(two_peaks(1e-6), MeanFieldVI(num_restarts=4), torch.zeros(1), seed=1, progress=False)
    for each in posterior.components:
        torch.testing.assert_close(each.loc, CENTRES[0].to(each.loc), rtol=0, atol=0.02)


@pytest.mark.filterwarnings("ignore::bnnzoo.inference.SeveralModesWarning")
def test_engines_choose_the_same_mode() -> None:
    found = [
        fit(two_peaks(0.7), MeanFieldVI(), torch.zeros(1), seed=3, engine=engine, progress=False)
        for engine in ("native", "graph", "python")
    ]
    for each in found[1:]:
        torch.testing.assert_close(each.loc, found[0].loc, rtol=1e-4, atol=1e-4)
        assert [m["num_searches"] for m in each.info.config["modes"]] == [
            m["num_searches"] for m in found[0].info.config["modes"]
        ]


def test_flows_keep_what_their_base_found() -> None:
    pytest.importorskip("zuko")
    with pytest.warns(SeveralModesWarning, match="About 20% of the posterior"):
        fit(two_peaks(0.8), FlowVI(num_steps=500), torch.zeros(1), progress=False)


def test_labels_that_may_be_exchanged_are_said() -> None:
    def model(y: Tensor) -> None:
        mu = pyro.sample("mu", dist.Normal(torch.zeros(2), 5.0).to_event(1))
        with pyro.plate("rows", len(y)):
            mixing = dist.Categorical(torch.tensor([0.5, 0.5]).to(mu))
            pyro.sample("y", dist.MixtureSameFamily(mixing, dist.Normal(mu, 0.5)), obs=y)

    y = torch.cat([-2 + 0.5 * torch.randn(30), 2 + 0.5 * torch.randn(30)])
    with pytest.warns(SeveralModesWarning, match=r"in labels or signs only \(label switching\)") as caught:
        fit(model, FullRankVI(), y, progress=False)
    assert "Order the components to tell them apart, as by a prior on constraints.ordered_vector." in str(
        caught[0].message
    )
    assert str(caught[0].message).startswith("About 50% of the posterior lies in another mode")


def drives(u: Tensor, v: Tensor, alpha: Tensor) -> None:
    """Speed and distance of a player, exponential in each of two hidden states."""
    rows = [pyro.sample(f"theta{i}", dist.Dirichlet(alpha[i])) for i in range(2)]
    rates = []
    for name in ("phi", "lambda"):
        low = pyro.sample(f"{name}_low", dist.HalfNormal(1.0))
        gap = pyro.sample(f"{name}_gap", dist.ImproperUniform(constraints.positive, (), ()))
        pyro.factor(f"{name}_prior", dist.Normal(3.0, 1.0).log_prob(low + gap))
        rates.append(torch.stack([low, low + gap]))
    emission = dist.Exponential(torch.stack(rates, -1)).to_event(1)
    chain = dist.DiscreteHMM(torch.zeros(2).to(u), torch.stack(rows).log(), emission)
    pyro.sample("y", chain, obs=torch.stack([u, v], -1))


def line(x: Tensor, y: Tensor) -> None:
    w = pyro.sample("w", dist.Normal(torch.zeros(x.shape[1]), 100.0).to_event(1))
    sigma = pyro.sample("sigma", dist.HalfNormal(5.0))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Normal(x @ w, sigma), obs=y)


@pytest.mark.parametrize("scale", [1.0, 300.0])
def test_a_single_mode_is_found_by_all_searches(scale: float) -> None:
    x = torch.cat([torch.ones(100, 1), scale * (5 + torch.randn(100, 3))], 1)
    y = x @ torch.tensor([1.0, 2.0, -1.0, 0.5]).to(x) + torch.randn(100)
    peaks = searched(line, x, y)
    assert len(peaks.found) == 1
    assert peaks.num_searches == 8
    posterior = fit(line, FullRankVI(), x, y, progress=False)
    assert "modes" not in posterior.info.config


def test_networks_are_searched_no_further() -> None:
    def by_hand(x: Tensor, y: Tensor) -> None:
        w = pyro.sample("w", dist.Normal(torch.zeros(2, 4), 1.0).to_event(2))
        v = pyro.sample("v", dist.Normal(torch.zeros(4), 1.0).to_event(1))
        with pyro.plate("rows", len(x)):
            pyro.sample("y", dist.Normal((x @ w).tanh() @ v, 0.1), obs=y)

    x = torch.randn(50, 2)
    assert searched(by_hand, x, x[:, 0].sin()).num_searches == 1


def test_a_mode_that_one_search_reached_is_said() -> None:
    posterior = fit(two_peaks(0.999), FullRankVI(), torch.zeros(1), progress=False)
    first, second = posterior.info.config["modes"]
    once = {**posterior.info.config, "modes": [{**first, "num_searches": 1}, second], "num_searches": 15}
    (found,) = troubles(replace(posterior, info=replace(posterior.info, config=once)))
    assert found.kind is SeveralModesWarning
    assert found.message.startswith(
        "Only one of 15 searches ended in the mode that the approximation is of, and others in"
    )
    assert (
        "there may be a better one. Compare with NUTS() or Tempered(NUTS()), start elsewhere by seed= or init="
        in found.message
    )


@pytest.mark.reference
@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS, ids=lambda each: type(each).__name__)
@pytest.mark.filterwarnings("ignore::bnnzoo.inference.ParetoKWarning")
def test_hidden_states_of_a_basketball_player(method: Method, bnnzoo_data: Path) -> None:
    """Half of the starts end in a mode 60 nats below the other, 300 standard deviations away."""
    raw = json.loads((bnnzoo_data / "posteriordb" / "data" / "bball_drive_event_0.json").read_text())
    data = [np.asarray(raw[key], float) for key in ("u", "v", "alpha")]
    expected = json.loads((bnnzoo_data / "posteriordb" / "summary" / f"{BASKETBALL}.summary.json").read_text())[
        "params"
    ]
    for seed in range(3):
        values = (posterior := fit(drives, method, *data, seed=seed, progress=False)).density.constrain(posterior.loc)
        second = expected["lambda[2]"]
        assert abs(float(values["lambda_low"] + values["lambda_gap"]) - second["mean"]) < second["sd"]


def test_the_decrement_is_the_distance_to_the_mode_in_standard_deviations() -> None:
    target = linear_gaussian()
    density = build_density(target.model, *target.data)
    away = torch.tensor([0.3, -0.2, 0.5])
    theta, decrement, count = uphill(density, target.mean["w"] + away, max_steps=0)
    assert torch.equal(theta, target.mean["w"] + away)
    assert decrement == pytest.approx(float(away @ torch.linalg.solve(target.covariance, away)) ** 0.5, rel=1e-6)
    assert count == 1
    theta, decrement, count = uphill(density, theta)
    torch.testing.assert_close(theta, target.mean["w"], rtol=1e-8, atol=1e-8)
    assert decrement < 1e-5 and count >= 2
