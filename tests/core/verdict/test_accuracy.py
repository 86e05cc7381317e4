"""How far approximations are from posteriors that are known, and what is said of it."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from bnnzoo.core.model.density import build_density
from bnnzoo.core.posterior.covariance import Dense
from bnnzoo.core.posterior.info import FitInfo
from bnnzoo.core.posterior.posterior import Gaussian, Mixture
from bnnzoo.core.verdict import accuracy, quantities
from bnnzoo.core.verdict.accuracy import SURE_K, Accuracy, accuracy_of, off_its_optimum
from bnnzoo.core.verdict.importance import NUM_DRAWS, Shift, WeightedDraws, drawn_from
from bnnzoo.core.verdict.quantities import Quantities, site_values
from bnnzoo.core.verdict.short_chains import Moved, moves, shift_by_chains
from bnnzoo.testing import linear_gaussian
from tests.helpers.exact import exact_posterior

INFO = FitInfo("iid", method="FullRankVI", seed=1)


def judged(posterior: Gaussian | Mixture) -> Accuracy:
    found = accuracy_of(posterior)
    assert found is not None
    return found


def beside(shift: float = 0.0, scale: float = 1.0, entry: int | None = None) -> Gaussian:
    """The exact posterior of a correlated linear model, with another mean or other standard deviations of some entries."""
    exact = exact_posterior(linear_gaussian())
    target = linear_gaussian()
    scales, shifts = torch.ones(3), torch.zeros(3)
    which = slice(None) if entry is None else entry
    scales[which], shifts[which] = scale, shift
    root = torch.linalg.cholesky(target.covariance)
    return Gaussian(exact.density, INFO, target.mean["w"] + shifts * target.sd["w"], Dense(scales[:, None] * root))


@pytest.mark.parametrize(
    ("change", "clause"),
    [
        ({"shift": 0.5, "entry": 1}, "its mean of 'w'[1] is 0.5 standard deviations too high"),
        ({"shift": -0.6, "entry": 2}, "its mean of 'w'[2] is 0.6 standard deviations too low"),
        ({"scale": 1.5, "entry": 0}, "its standard deviation of 'w'[0] is 1.5 times the posterior's"),
        ({"scale": 0.7}, "is 0."),
        ({"scale": 0.5}, "is 0."),
        ({"scale": 3.0}, "is 3 times"),
        ({"scale": 0.15}, "times the posterior's"),
        ({"scale": 1.1}, ""),
        ({"scale": 0.9}, ""),
        ({"shift": 0.1}, ""),
        ({}, ""),
    ],
)
def test_what_is_off_is_told_with_its_direction_and_size(change: dict[str, float], clause: str) -> None:
    found = judged(beside(**change)).trouble
    assert clause in found and bool(clause) == bool(found)


def test_an_approximation_that_is_too_wide_has_a_small_pareto_k() -> None:
    """Its weights are bounded: no heavy tail shows what their mean does."""
    found = judged(beside(scale=2.7))
    assert found.k < 0 and "times the posterior's" in found.trouble


def gaussian(model: object, sd: float = 1.0, size: int = 1) -> Gaussian:
    density = build_density(model)  # type: ignore[arg-type]
    return Gaussian(density, INFO, torch.zeros(density.num_params), Dense(sd * torch.eye(density.num_params)))


def test_a_heavy_tail_is_no_trouble_where_moments_are_right() -> None:
    def model() -> None:
        pyro.sample("x", dist.StudentT(8.0, torch.zeros(20), 1.0).to_event(1))

    right, narrow = (judged(gaussian(model, sd)) for sd in (math.sqrt(8 / 6), 0.5))
    assert right.k > 0.4 and right.trouble == ""
    assert narrow.k > 0.7 and "times the posterior's" in narrow.trouble


def test_values_of_sites_are_judged_and_not_their_logarithms() -> None:
    """Of a scale near zero the logarithm has a long tail to the left, and the mean and sd that users see have none."""

    def model() -> None:
        pyro.sample("tau", dist.HalfNormal(1.0))

    draws = torch.randn(100_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64).abs().log()
    density = build_density(model)
    matched = Gaussian(density, INFO, draws.mean()[None], Dense(draws.std()[None, None]))
    assert "'tau'" in judged(matched).trouble


def test_draws_at_which_the_model_fails_are_told() -> None:
    def model() -> None:
        x = pyro.sample("x", dist.Normal(torch.tensor(0.0), 1.0))
        pyro.factor("root", 0.0 * (x + 1.0).sqrt())

    found = judged(gaussian(model))
    assert "the posterior density is zero or cannot be computed at 16% of its draws" in found.trouble


def test_a_model_that_cannot_be_batched_is_judged_by_fewer_draws() -> None:
    def model() -> None:
        x = pyro.sample("x", dist.Normal(torch.tensor(0.0), 1.0))
        pyro.factor("nothing", torch.zeros(()) * math.copysign(1.0, x.item()))

    wide = judged(gaussian(model, 2.0))
    assert 250 < len(wide.drawn.theta) <= 300 and "is 2" in wide.trouble
    assert judged(gaussian(model)).trouble == ""


def test_factorisations_that_fail_along_the_way_reject_single_points() -> None:
    def model() -> None:
        x = pyro.sample("x", dist.StudentT(3.0, torch.zeros(2), 1.0).to_event(1))
        pyro.factor("f", 0.0 * torch.linalg.cholesky(torch.eye(2) * (3.0 - x[0])).sum())

    density = build_density(model)
    draws = torch.randn(1000, 2, generator=torch.Generator().manual_seed(0))
    draws = draws[draws[:, 0] < 2.5]
    found = next(moves(density, WeightedDraws(draws, torch.zeros(len(draws)))))
    assert found.acceptance > 0.5 and bool((found.theta[..., 0] < 3.0).all())
    assert float(found.theta[..., 0].max()) > 2.0


class ThreadsOfProducts(TorchFunctionMode):
    """Takes down how many threads torch has where it multiplies matrices."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[int] = []

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if "matmul" in func.__name__:
            self.found.append(torch.get_num_threads())
        return func(*args, **(kwargs or {}))


def test_products_of_short_chains_are_too_small_for_threads() -> None:
    def model() -> None:
        pyro.sample("x", dist.Normal(torch.zeros(2), 1.0).to_event(1))

    before, draws = torch.get_num_threads(), torch.randn(1000, 2, generator=torch.Generator().manual_seed(0))
    torch.set_num_threads(2)
    try:
        with ThreadsOfProducts() as threads:
            next(moves(build_density(model), WeightedDraws(draws, torch.zeros(len(draws)))))
        assert len(threads.found) > 36 and set(threads.found) == {1}
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_short_chains_go_on_where_their_first_trajectories_leave_it_open() -> None:
    """Gaussians that are right, clearly too narrow, and too narrow by a little less than the limit."""

    def lengths(sd: float) -> list[int]:
        def model() -> None:
            pyro.sample("x", dist.Normal(torch.zeros(2), 1.0).to_event(1))

        density = build_density(model)
        draws = sd * torch.randn(4000, 2, generator=torch.Generator().manual_seed(0))
        sites = partial(site_values, density)
        quantities = Quantities(sites, sites, ("x[0]", "x[1]"), torch.zeros(2, dtype=torch.float64))
        found: list[int] = []

        def judged(chains: Moved) -> tuple[Shift, Shift]:
            found.append(len(chains.theta))
            shift = shift_by_chains(quantities, quantities.own(draws), chains)
            return shift, shift

        chains = moves(density, WeightedDraws(draws, torch.zeros(len(draws))))
        accuracy._by_short_chains(quantities, chains, judged)
        return found

    assert lengths(1.0) == [18] and lengths(0.5) == [18]
    assert lengths(math.exp(-0.9 * accuracy.MAX_LOG_RATIO))[:2] == [18, 36]


def test_chains_that_do_not_move_say_that_a_part_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    narrow = beside(scale=0.5)
    assert "times the posterior" in judged(narrow).trouble
    monkeypatch.setattr(accuracy, "moves", lambda density, drawn: iter([Moved(drawn.theta[None], 0.1)]))
    assert judged(narrow).trouble == "it misses a part of the posterior"
    monkeypatch.setattr(accuracy, "moves", lambda density, drawn: iter(()))  # of a model that cannot be batched
    assert judged(narrow).trouble == "it misses a part of the posterior"


def test_all_components_of_a_mixture_are_drawn_from() -> None:
    one, other = beside(shift=-0.1), beside(shift=0.1)
    both = Mixture(one.density, INFO, (one, other))
    drawn = drawn_from(both)
    assert drawn is not None and len(drawn.theta) == NUM_DRAWS
    assert judged(both).trouble == ""
    far = Mixture(one.density, INFO, (one, beside(shift=6.0)))
    assert judged(far).trouble


@pytest.mark.parametrize("limit", ["MANY_ROWS", "MANY_PARAMS"])
def test_what_is_too_large_is_not_judged(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wide = beside(scale=2.0)
    assert judged(wide).trouble
    monkeypatch.setattr(quantities, limit, 2)
    assert accuracy_of(wide) is None


def test_what_cannot_be_judged_is_not() -> None:
    exact = exact_posterior(linear_gaussian())
    assert (
        accuracy_of(Gaussian(exact.density, FitInfo("iid", config={"temperature": 0.5}), exact.loc, exact.covariance))
        is None
    )
    assert accuracy_of(Gaussian(exact.density, FitInfo("iid", has_atoms=True), exact.loc, exact.covariance)) is None


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"shift": 0.6}, "if 'w' moved by"),
        ({"scale": 2.0}, "if 'w' were narrower"),
        ({"scale": 0.5}, "if 'w' were wider"),
        ({}, ""),
    ],
)
def test_a_gaussian_beside_the_optimum_of_its_bound_is_told_which_way(change: dict[str, float], where: str) -> None:
    posterior = beside(**change)
    found = off_its_optimum(posterior, judged(posterior).drawn)
    assert where in found and bool(where) == bool(found)


def best_factorised(correlation: float) -> Gaussian:
    """The optimum of the factorised family for a Gaussian: the conditional standard deviations."""
    covariance = torch.full((3, 3), correlation) + (1 - correlation) * torch.eye(3)

    def model() -> None:
        pyro.sample("x", dist.MultivariateNormal(torch.zeros(3), covariance))

    conditional = torch.linalg.inv(covariance).diagonal().rsqrt()
    return Gaussian(build_density(model), INFO, torch.zeros(3), Dense(conditional.diag()))


@pytest.mark.parametrize("correlation", [0.2, 0.6, 0.9])
def test_a_converged_factorised_approximation_is_narrow_and_at_its_optimum(correlation: float) -> None:
    posterior = best_factorised(correlation)
    found = judged(posterior)
    assert off_its_optimum(posterior, found.drawn) == ""
    assert bool(found.trouble) == (correlation > 0.5)


def skewed(shape: float, size: int) -> tuple[object, Tensor, Tensor]:
    """Gamma variables, and the moments of their logarithms."""

    def model() -> None:
        pyro.sample("x", dist.Gamma(torch.full((size,), shape), 1.0).to_event(1))

    value = torch.tensor(shape, dtype=torch.float64)
    return model, torch.digamma(value), torch.polygamma(1, value).sqrt()


@pytest.mark.slow
def test_verdicts_of_many_approximations_are_right() -> None:
    """Means off by 0.3 sds or sds outside 0.75 to 1.33 are told in 95% of cases, and others in 5% at most."""
    rng, told = np.random.default_rng(0), {True: [0, 0], False: [0, 0]}
    for _ in range(150):
        size, shape = int(rng.integers(1, 12)), float(rng.uniform(1.0, 40.0))
        model, loc, sd = skewed(shape, size)
        density = build_density(model)  # type: ignore[arg-type]
        scale, shift = float(np.exp(rng.uniform(-0.6, 0.6))), float(rng.choice([0.0, 1.0]) * rng.uniform(-0.6, 0.6))
        centre, spread = loc + shift * sd, scale * sd
        q = Gaussian(density, INFO, centre.expand(size).to(density.dtype), Dense(spread * torch.eye(size)))
        mean = torch.exp(centre + spread**2 / 2)
        off_mean = abs(float(mean) - shape) / math.sqrt(shape)
        ratio = float(mean * torch.expm1(spread**2).sqrt()) / math.sqrt(shape)
        is_off = off_mean > 0.3 or not 0.75 < ratio < 1.33
        is_close = (
            0.22 < off_mean < 0.3 or 0.75 < ratio < 0.8 or 1.25 < ratio < 1.33
        )  # to the border, where either will do
        if is_off or not is_close:
            told[is_off][bool(judged(q).trouble)] += 1
    assert told[True][1] >= 0.95 * sum(told[True])
    assert told[False][1] <= 0.05 * sum(told[False])
    assert sum(told[False]) >= 15


@pytest.mark.parametrize("seed", [0, 3])
def test_a_skewed_site_is_judged_by_more_draws_than_are_evaluated(seed: int) -> None:
    """The nearest Gaussian to the logit of Beta(1, 48) has 1.22 times its sd, and a kurtosis by which 4,000 draws err by 5%."""

    def model() -> None:
        pyro.sample("p", dist.Beta(torch.tensor(1.0, dtype=torch.float64), 48.0))

    nodes, weights = (torch.as_tensor(each) for each in np.polynomial.hermite_e.hermegauss(60))
    weights = weights / weights.sum()
    loc, sd = torch.tensor(-4.0, dtype=torch.float64), torch.tensor(1.0, dtype=torch.float64)
    for _ in range(200):  # E[gradient] = 0 and E[curvature] = 1 / sd^2
        share = torch.sigmoid(loc + sd * nodes)
        loc, sd = loc - (49 * weights @ share).log(), (49 * weights @ (share * (1 - share))).rsqrt()
    density = build_density(model, dtype=torch.float64)
    nearest = Gaussian(density, FitInfo("iid", method="FullRankVI", seed=seed), loc[None], Dense(sd[None, None]))
    assert judged(nearest).trouble == ""
    assert (
        "standard deviation of 'p'"
        in judged(Gaussian(density, nearest.info, loc[None], Dense(1.2 * sd[None, None]))).trouble
    )


@pytest.mark.parametrize(
    ("shape", "scale", "ratio"),
    [
        (6.0, 0.75, 0.63),
        (8.0, 0.8, 0.71),
        (12.0, 0.75, 0.69),
        (20.0, 0.84, None),
        (12.0, 1.15, None),
        (8.0, 1.15, None),
    ],
)
def test_squares_may_have_a_tail_where_weights_have_none(shape: float, scale: float, ratio: float | None) -> None:
    """Gaussians in the log of an inverse gamma: by weights alone the first three have 0.77 to 0.82 of its sd."""

    def model() -> None:
        pyro.sample("tau", dist.InverseGamma(torch.tensor(shape, dtype=torch.float64), 1.0))

    density, a = build_density(model, dtype=torch.float64), torch.tensor(shape, dtype=torch.float64)
    near = Gaussian(density, INFO, -torch.digamma(a)[None], Dense(scale * torch.polygamma(1, a).sqrt()[None, None]))
    found = judged(near)
    assert found.k < SURE_K
    if ratio is None:
        assert found.trouble == ""
    else:
        assert float(found.trouble.split(" is ")[1].split()[0]) == pytest.approx(ratio, abs=0.05)
