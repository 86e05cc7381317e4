"""Mass matrices from draws and gradients, against closed forms."""

import math
import tracemalloc
import warnings
from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from threadpoolctl import ThreadpoolController
from torch import Tensor
from torch.func import vmap

import bnnzoo
from bnnzoo.core.model.density import build_density
from bnnzoo.engine import pytree
from bnnzoo.inference.markov import metrics
from bnnzoo.inference.markov.adaptation import initial_adaptation
from bnnzoo.inference.markov.hamiltonian import adaptation_windows
from bnnzoo.inference.markov.hamiltonian.adaptation_windows import Windows
from bnnzoo.inference.markov.hamiltonian.hamiltonian_program import STATS, HamiltonianResting
from bnnzoo.inference.markov.hamiltonian.kernel import LowRankMatrix, Metric, momentum_from, transposed_root, velocity
from bnnzoo.inference.markov.metrics import (
    drifts,
    growth_of_step,
    has_converged,
    identity_metric,
    inverse_mass_of,
    mass_matrix_for,
    metric_of,
    metrics_from,
)
from bnnzoo.models import likelihoods, priors, supervised


def alone(metric: Metric) -> Metric:
    """Return the mass matrix of one chain as that of the only one."""
    found: Metric = pytree.tree_map(lambda value: value[None], metric)
    return found


def metric_from(theta: Tensor, gradient: Tensor, mass_matrix: Any) -> Metric:
    """Return the mass matrix of one chain from its draws ``[n, P]`` and gradients."""
    found: Metric = pytree.tree_map(lambda value: value[0], metrics_from(theta[None], gradient[None], mass_matrix)[0])
    return found


def growth(old: Metric, new: Metric, gradient: Tensor) -> Tensor:
    return growth_of_step(alone(old), alone(new), gradient[None])


KINDS = ["auto", "diagonal", "dense", "fisher", "low_rank"]
SD = torch.tensor([0.1, 1.0, 5.0], dtype=torch.float64)


def gaussian(covariance: Tensor, num_draws: int, mean: float = 3.0) -> tuple[Tensor, Tensor]:
    """Return draws of a Gaussian ``[n, P]``, and the gradients of its log density there."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(num_draws, len(covariance), generator=generator, dtype=torch.float64)
    centred = noise @ torch.linalg.cholesky(covariance).mT
    return mean + centred, -torch.linalg.solve(covariance, centred.mT).mT


def correlated(size: int, *variances: float) -> Tensor:
    """Return a covariance with these variances along random directions, in units from 0.01 to 100."""
    generator = torch.Generator().manual_seed(1)
    axes = torch.linalg.qr(torch.randn(size, len(variances), generator=generator, dtype=torch.float64)).Q
    scale = torch.logspace(-2, 2, size, dtype=torch.float64)
    plain = torch.eye(size, dtype=torch.float64) + (axes * (torch.tensor(variances).double() - 1)) @ axes.mT
    return scale[:, None] * plain * scale


def matrix(metric: Metric) -> Tensor:
    """Return the inverse mass ``[P, P]`` of one chain."""
    some = pytree.tree_leaves(metric)[0]
    return vmap(lambda row: velocity(metric, row))(torch.eye(len(some)).to(some))


def fisher_divergence(metric: Metric, theta: Tensor, gradient: Tensor) -> Tensor:
    """Return the mean square of ``L^-1 (theta - mean) + L^T gradient``, for ``M^-1 = L L^T``: 0 for this Gaussian."""
    wide = vmap(lambda value: transposed_root(metric, value))(theta - theta.mean(0))
    steep = vmap(lambda value: transposed_root(metric, velocity(metric, value)))(gradient - gradient.mean(0))
    return (wide + steep).square().mean()


def autoregression(size: int) -> Tensor:
    """Return a covariance of which hardly any eigenvalue is near 1: most are small, a tenth is large."""
    steps = torch.arange(size)
    scale = torch.logspace(-1, 1, size, dtype=torch.float64)
    return 0.9 ** (steps[:, None] - steps).abs().double() * scale[:, None] * scale


def extremes(covariance: Tensor, metric: Metric) -> tuple[float, float]:
    """Return the smallest and the largest eigenvalue of a covariance in units of a metric."""
    root = vmap(lambda row: transposed_root(metric, row))(torch.linalg.cholesky(covariance).mT)
    values = torch.linalg.svdvals(root).square()
    return float(values.min()), float(values.max())


def conditions(covariance: Tensor, metric: Metric) -> float:
    """Return the condition number of a covariance in units of a metric."""
    low, high = extremes(covariance, metric)
    return high / low


def test_the_covariance_of_a_gaussian_is_found_exactly_from_a_few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "CUTOFF", 1.0)
    monkeypatch.setattr(metrics, "REGULAR", 1e-12)
    covariance = correlated(8, 1e4, 50.0, 0.01)
    theta, gradient = gaussian(covariance, 12)
    metric = metric_from(theta, gradient, "low_rank")
    found, scale = matrix(metric), covariance.diagonal().sqrt()
    torch.testing.assert_close(found / scale / scale[:, None], covariance / scale / scale[:, None], rtol=0, atol=1e-5)
    assert float(fisher_divergence(metric, theta, gradient)) < 1e-6
    assert float(fisher_divergence(metric_from(theta, gradient, "diagonal"), theta, gradient)) > 10


def test_directions_near_one_are_left_out_and_what_is_left_is_well_conditioned() -> None:
    covariance = correlated(12, 1e3, 1e-3)
    theta, gradient = gaussian(covariance, 100)
    metric = metric_from(theta, gradient, "low_rank")
    assert isinstance(metric.inverse_mass, LowRankMatrix)
    eigenvalues, directions = metric.inverse_mass.eigenvalues, metric.inverse_mass.directions
    kept = eigenvalues != 1
    assert 2 <= int(kept.sum()) < 12 and bool((eigenvalues[kept].log().abs() > math.log(2)).all())
    assert bool((directions[:, ~kept] == 0).all())
    torch.testing.assert_close(directions[:, kept].mT @ directions[:, kept], torch.eye(int(kept.sum())).double())
    assert conditions(covariance, metric) < 4.1  # all that is left is between 1/2 and 2
    assert conditions(covariance, metric_from(theta, gradient, "fisher")) > 1e3


def test_of_many_directions_those_are_kept_that_leave_the_others_best_conditioned() -> None:
    covariance = autoregression(60)
    theta, gradient = gaussian(covariance, 300)
    scale = (theta.var(0) / gradient.var(0)) ** 0.25
    values = torch.linalg.eigvalsh(covariance / scale / scale[:, None])
    best = min(float(values[k + 43] / values[k]) for k in range(17))
    for kind in ("low_rank", "auto"):
        low, high = extremes(covariance, metric_from(theta, gradient, kind))
        assert high / low == pytest.approx(best, rel=0.02)
        assert high * low == pytest.approx(1.0, rel=0.02)  # the scale is in the middle of what is left
    by_fisher = conditions(covariance, metric_from(theta, gradient, "fisher"))
    assert float(values[-1] / values[0]) == pytest.approx(by_fisher, rel=0.02)
    assert best < by_fisher / 8


@pytest.mark.parametrize("num_draws", [10, 30])
def test_more_parameters_than_draws(num_draws: int) -> None:
    """The wide directions are among what draws span, the narrow ones among what gradients do."""
    covariance = correlated(80, 1e3, 300.0, 1e-3)
    theta, gradient = gaussian(covariance, num_draws)
    low_rank, fisher = (metric_from(theta, gradient, kind) for kind in ("low_rank", "fisher"))  # type: ignore[arg-type]
    assert all(bool(leaf.isfinite().all()) for leaf in pytree.tree_leaves(low_rank))
    assert isinstance(low_rank.inverse_mass, LowRankMatrix) and low_rank.inverse_mass.directions.shape == (80, 16)
    assert conditions(covariance, low_rank) < conditions(covariance, fisher) / 20


def test_gradients_give_variances_of_a_gaussian_from_few_draws() -> None:
    theta, gradient = gaussian(torch.diag(SD**2), 5)
    torch.testing.assert_close(metric_from(theta, gradient, "fisher").inverse_mass, SD**2, rtol=1e-6, atol=0.0)


def test_variances_are_shrunk_as_in_stan() -> None:
    theta, gradient = gaussian(torch.diag(SD**2), 500)
    metric = metric_from(theta, gradient, "diagonal")
    torch.testing.assert_close(metric.inverse_mass, (500 * theta.var(0) + 5e-3) / 505)


def test_a_dense_mass_matrix_is_the_covariance_factorised() -> None:
    theta, gradient = gaussian(torch.diag(SD**2), 500)
    metric = metric_from(theta, gradient, "dense")
    floor = 5e-3 / 505 * torch.eye(3, dtype=torch.float64)
    torch.testing.assert_close(metric.inverse_mass, 500 / 505 * torch.cov(theta.mT) + floor)
    assert isinstance(metric.mass_sqrt, Tensor) and isinstance(metric.inverse_mass, Tensor)
    torch.testing.assert_close(
        metric.mass_sqrt @ metric.mass_sqrt.mT @ metric.inverse_mass, torch.eye(3, dtype=torch.float64)
    )


@pytest.mark.parametrize("kind", KINDS)
def test_the_root_is_one_of_the_mass_matrix(kind: Any) -> None:
    metric = metric_from(*gaussian(correlated(7, 100.0, 0.02), 50), kind)
    eye = torch.eye(7, dtype=torch.float64)
    root = vmap(lambda row: momentum_from(metric, row))(eye).mT
    torch.testing.assert_close(root @ root.mT @ matrix(metric), eye, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(vmap(lambda row: transposed_root(metric, row))(eye), root)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("what", ["gradients", "draws", "both", "one draw", "one parameter's gradient", "rounding"])
def test_what_does_not_vary_makes_no_nan(what: str, dtype: torch.dtype, kind: Any) -> None:
    theta, gradient = (value.to(dtype) for value in gaussian(correlated(5, 100.0), 12))
    if what in ("gradients", "both"):
        gradient = torch.full_like(gradient, 2.0)
    if what in ("draws", "both"):
        theta = theta[:1].repeat(12, 1)
    if what == "one draw":
        theta, gradient = theta[:1], gradient[:1]
    if what == "one parameter's gradient":
        gradient[:, 2] = 0.0
    if what == "rounding":
        gradient = 1.0 + 1e-16 * gradient
    metric = metric_from(theta, gradient, kind)
    assert {leaf.dtype for leaf in pytree.tree_leaves(metric)} == {dtype}
    assert bool(matrix(metric).isfinite().all()) and bool((torch.linalg.eigvalsh(matrix(metric).double()) > 0).all())
    old = pytree.tree_map(lambda value: value[0], identity_metric(theta[:1], kind))
    assert math.isfinite(float(growth(old, metric, gradient)))


def test_auto_takes_directions_of_gaussians_only() -> None:
    """A scale and what it scales: the gradients are those of no Gaussian."""
    theta, gradient = gaussian(correlated(6, 1e3), 200)
    metric = metric_from(theta, gradient, "auto")
    torch.testing.assert_close(matrix(metric), matrix(metric_from(theta, gradient, "low_rank")))
    noise = theta - theta.mean(0)
    noise = noise / noise.std(0)
    scale = (1.5 * noise[:, :1]).exp()
    funnel = torch.cat([1.5 * noise[:, :1], scale * noise[:, 1:]], 1)
    slope = (noise[:, 1:].square() - 1).sum(1, keepdim=True) - noise[:, :1] / 1.5
    steep = torch.cat([slope, -noise[:, 1:] / scale], 1)
    metric = metric_from(funnel, steep, "auto")
    assert isinstance(metric.inverse_mass, LowRankMatrix) and bool((metric.inverse_mass.eigenvalues == 1).all())
    torch.testing.assert_close(matrix(metric).diagonal(), metric_from(funnel, steep, "diagonal").inverse_mass)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("num_draws", [10, 160, 513])
def test_what_a_window_gives_a_chain_does_not_depend_on_who_else_is_at_its_end(
    num_draws: int, dtype: torch.dtype
) -> None:
    """Which chains are there together depends on threads and times: the same seed gave other draws in every run."""
    generator = torch.Generator().manual_seed(0)
    draws = torch.randn(33, num_draws, 20, generator=generator).to(dtype)
    gradients = 0.3 * torch.randn(33, num_draws, 20, generator=generator).to(dtype) - draws

    def adapted(company: Tensor) -> list[Tensor]:
        windows = Windows("auto", 1000, draws[:, 0])
        for kept, given in ((windows.collected[0], draws), (windows.collected[2], gradients)):
            kept[:, :num_draws] = given
        step_size = draws.new_full((33,), 0.3)
        adaptation = initial_adaptation(step_size, 0.8)
        resting = HamiltonianResting(None, identity_metric(draws[:, 0], "auto"), adaptation, *(None,) * 3)  # type: ignore[arg-type]
        windows.adapt(resting, company, num_draws, windows.ends[-1])
        return [leaf[0].clone() for leaf in pytree.tree_leaves((resting.metric, resting.adaptation))]

    alone = adapted(torch.tensor([0]))
    for others in (2, 3, 33):
        assert all(map(torch.equal, adapted(torch.arange(others)), alone))


@pytest.mark.parametrize("mass_matrix", KINDS)
def test_gradients_without_a_value_tell_nothing(mass_matrix: Any) -> None:
    """One chain stands where rounding leaves it no gradient, another was there once: such fits ended in torch's error."""
    draws = torch.randn(3, 100, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    draws[1] = draws[1, :1]

    def adapted(gradients: Tensor) -> list[Tensor]:
        windows = Windows(mass_matrix, 1000, draws[:, 0])
        windows.collected[0][:, :100], windows.collected[2][:, :100] = draws, gradients
        step_size = torch.full((3,), 0.3, dtype=torch.float64)
        adaptation = initial_adaptation(step_size, 0.8)
        resting = HamiltonianResting(None, identity_metric(draws[:, 0], mass_matrix), adaptation, *(None,) * 3)  # type: ignore[arg-type]
        windows.adapt(resting, torch.arange(3), 100, windows.ends[-1])
        return pytree.tree_leaves((resting.metric, resting.adaptation))

    lost = -draws
    lost[1], lost[2, 7, 2] = torch.nan, torch.inf
    for found, expected in zip(adapted(lost), adapted(-draws), strict=True):
        assert bool(found.isfinite().all())
        assert torch.equal(found[0], expected[0])
        torch.testing.assert_close(found[2], expected[2], rtol=0.2, atol=0.2)


@pytest.mark.parametrize(
    ("mass_matrix", "end", "expected"),
    [("auto", 337, [0]), ("low_rank", 337, [0, 2]), ("auto", 225, []), ("auto", 850, []), ("diagonal", 450, [])],
)
def test_chains_that_diverge_or_see_no_gaussian_go_on(
    mass_matrix: Any, end: int, expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three chains on which all else stays: one of a Gaussian, one with a divergence in thirty, one with heavy tails."""
    monkeypatch.setattr(adaptation_windows, "has_converged", lambda old, *_: torch.ones(3, dtype=torch.bool))
    draws = torch.randn(3, 200, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    gradients = -draws
    gradients[2] *= draws[2].square()
    windows = Windows(mass_matrix, 1000, draws[:, 0])
    windows.collected[0][:, :200], windows.collected[2][:, :200] = draws, gradients
    windows.collected[1][1, ::30, STATS.index("diverging")] = 1.0
    step_size = torch.full((3,), 0.3, dtype=torch.float64)
    adaptation = initial_adaptation(step_size, 0.8)
    metric = identity_metric(draws[:, 0], mass_matrix)
    resting = HamiltonianResting(None, metric, adaptation, *(None,) * 3)  # type: ignore[arg-type]
    assert windows.adapt(resting, torch.arange(3), 200, end).tolist() == expected
    assert windows.skipped.tolist() == [850 - end if chain in expected else 0 for chain in range(3)]


@pytest.mark.parametrize("mass_matrix", ["diagonal", "dense"])
def test_variances_of_draws_are_shrunk_as_in_stan(mass_matrix: str) -> None:
    theta = torch.randn(2, 15, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    metric, _ = metrics_from(theta, -theta, mass_matrix)
    for own, inverse in zip(theta, metric.inverse_mass, strict=True):
        expected = 15 / 20 * own.T.cov() + 1e-3 * 5 / 20 * torch.eye(3)
        torch.testing.assert_close(inverse, expected if mass_matrix == "dense" else expected.diagonal())


def test_no_matrix_of_all_parameters_is_made_where_there_are_none_in_the_metric() -> None:
    gradient = torch.randn(2, 10, 4000, generator=torch.Generator().manual_seed(0))
    old = identity_metric(gradient[:, 0], "diagonal")
    new = metrics_from(gradient / 3, gradient, "diagonal")[0]
    tracemalloc.start()
    try:
        growth_of_step(old, new, gradient)
        assert tracemalloc.get_traced_memory()[1] < 50 * gradient.numel() * 8 < 4000**2 * 8
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("num_params", "expected"), [(3, 1), (300, 2)])
def test_small_matrices_are_left_to_one_thread(num_params: int, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine two threads wait for each other: ten seconds for ten parameters, and one thread needs half a second."""
    windows, found = Windows("low_rank", 100, torch.zeros(2, num_params)), []

    def adapt(resting: HamiltonianResting, chains: Tensor, *_: int) -> Tensor:
        found.extend({each["num_threads"] for each in blas.info()})
        return chains[:0]

    resting = HamiltonianResting(None, identity_metric(torch.zeros(2, num_params), "low_rank"), None, *(None,) * 3)  # type: ignore[arg-type]
    monkeypatch.setattr(windows, "adapt", adapt)
    blas = ThreadpoolController().select(user_api="blas")
    with blas.limit(limits=2):
        windows.close(resting, torch.arange(2), windows.ends[-1])
        assert found == [expected] and {each["num_threads"] for each in blas.info()} == {2}


def many(num_params: int) -> None:
    pyro.sample("z", dist.Normal(torch.zeros(num_params), 1.0).to_event(1))


def test_auto_is_the_diagonal_for_networks_and_for_many_parameters() -> None:
    x = torch.linspace(-1, 1, 8)[:, None]
    network = build_density(supervised(torch.nn.Linear(1, 1), priors.normal(1.0), likelihoods.gaussian()), x, x[:, 0])
    assert network.networks
    for density, expected in (
        (build_density(many, 256), "auto"),
        (build_density(many, 257), "diagonal"),
        (network, "diagonal"),
    ):
        assert mass_matrix_for("auto", density) == expected
        assert mass_matrix_for("low_rank", density) == "low_rank"


def test_the_steepest_direction_limits_the_step() -> None:
    theta, gradient = gaussian(torch.diag(SD**2), 4000)
    old = pytree.tree_map(lambda value: value[0], identity_metric(theta[:1], "fisher"))
    new = metric_from(theta, gradient, "fisher")
    assert float(growth(old, new, gradient)) == pytest.approx(10.0, rel=0.05)
    assert float(growth(new, old, gradient)) == pytest.approx(0.1, rel=0.05)


@pytest.mark.parametrize("mass_matrix", ["auto", "fisher", "low_rank"])
def test_warm_up_has_converged_where_nothing_changes(mass_matrix: Any) -> None:
    """Draws of the same Gaussian; a mean that moves, a scale that was found wrong, and a correlation that was not found."""
    covariance = (
        torch.diag(SD) @ torch.tensor([[1.0, 0.9, 0], [0.9, 1, 0], [0, 0, 1]], dtype=torch.float64) @ torch.diag(SD)
    )
    theta, gradient = gaussian(covariance, 250)
    old, new = (metric_from(theta[part], gradient[part], mass_matrix) for part in (slice(0, 100), slice(50, None)))

    def converged(before: Metric, theta: Tensor) -> bool:
        grown = growth(before, new, gradient[50:])
        return bool(has_converged(alone(before), alone(new), theta[None], grown, 120))

    assert converged(old, theta[50:])
    moved = theta[50:].clone()
    moved[-120:] += torch.tensor([0.0, 0.0, 4.0], dtype=torch.float64)
    assert not converged(old, moved)
    for factor in (torch.tensor([1.0, 1.0, 1.5]), torch.tensor([1.0, 0.7, 1.0])):
        scaled = theta[:100] * factor.double()
        wrong = metric_from(scaled, gradient[:100] / factor.double(), mass_matrix)
        assert not converged(wrong, theta[50:])
    if mass_matrix != "fisher":
        diagonal = pytree.tree_map(
            lambda value: value[0], metric_of({"inverse_mass": SD[None] ** 2, **nothing_found(new)})
        )
        assert not converged(diagonal, theta[50:])
    still = theta[50:].clone()
    still[:, 0] = 1.0
    assert not converged(old, still)  # 0 / 0 is no convergence


def test_a_long_direction_that_was_not_found_is_something_to_learn() -> None:
    """Variances, means and the steepest direction say nothing of it."""
    theta, gradient = gaussian(torch.tensor([[1.0, 0.99], [0.99, 1.0]], dtype=torch.float64), 400)
    new = metric_from(theta, gradient, "low_rank")
    own = torch.from_numpy(metrics.own_variances(alone(new)))
    old = metric_of({"inverse_mass": own, **nothing_found(new)})
    assert bool(has_converged(alone(new), alone(new), theta[None], torch.ones(1), 200))
    assert not bool(has_converged(old, alone(new), theta[None], torch.ones(1), 200))


def nothing_found(like: Metric) -> dict[str, Tensor]:
    """Return directions of no effect."""
    assert isinstance(like.inverse_mass, LowRankMatrix)
    found = like.inverse_mass
    return {
        "directions": torch.zeros_like(found.directions)[None],
        "eigenvalues": torch.ones_like(found.eigenvalues)[None],
    }


def test_chains_on_their_way_are_told_from_chains_that_have_arrived() -> None:
    generator = torch.Generator().manual_seed(0)
    arrived = -0.5 * torch.randn(3, 20, 50, generator=generator, dtype=torch.float64).square().sum(2)
    climbing = arrived + torch.linspace(-1e4, 0.0, 20, dtype=torch.float64)
    lost = arrived.clone()
    lost[0, 0] = -torch.inf
    assert drifts(arrived, 50).tolist() == [False] * 3
    assert drifts(climbing, 50).tolist() == [True] * 3
    assert drifts(-climbing - 1e5, 50).tolist() == [False] * 3  # away from a mode
    assert drifts(lost, 50).tolist() == [True, False, False]


@pytest.mark.parametrize("kind", KINDS)
def test_a_metric_is_kept_and_found_again(kind: Any) -> None:
    metric = pytree.tree_map(lambda value: value[None], metric_from(*gaussian(correlated(5, 100.0), 50), kind))
    again = metric_of(inverse_mass_of(metric))
    for found, expected in zip(pytree.tree_leaves(again), pytree.tree_leaves(metric), strict=True):
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("size", [3, 5, 17, 40])
@pytest.mark.parametrize("mass_matrix", ["auto", "diagonal", "dense", "fisher", "low_rank"])
def test_a_chain_has_the_same_metric_bit_by_bit_whatever_others_run_beside_it(mass_matrix: Any, size: int) -> None:
    generator = torch.Generator().manual_seed(size)
    for count in (25, 55):
        theta, noise = torch.randn(2, 9, count, size, generator=generator, dtype=torch.float64)
        gradient = 0.1 * noise - theta * torch.linspace(0.5, 2.0, size, dtype=torch.float64)
        whole = metrics_from(theta, gradient, mass_matrix)
        grown = growth_of_step(identity_metric(theta[:, 0], mass_matrix), whole[0], gradient)
        for chosen in ([0], [3], [1, 4, 8], [8, 2]):
            part = metrics_from(theta[chosen], gradient[chosen], mass_matrix)
            for a, b in zip(pytree.tree_leaves(whole), pytree.tree_leaves(part), strict=True):
                assert torch.equal(a[chosen], b)
            alone = growth_of_step(identity_metric(theta[chosen][:, 0], mass_matrix), part[0], gradient[chosen])
            assert torch.equal(grown[chosen], alone)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("steep", [1e83, 1e160, 1e300])
def test_slopes_of_any_steepness_leave_a_mass_matrix(kind: Any, steep: float) -> None:
    """Where a chain starts far out, a Cholesky factorisation of its gradients' covariance failed."""
    theta, gradient = gaussian(torch.diag(SD**2), 40)
    gradient[:20] *= steep * torch.tensor([1.0, 1.0, 1e-5], dtype=torch.float64)
    metric, _ = metrics_from(theta[None], gradient[None], kind)
    leaves = inverse_mass_of(metric)
    assert all(bool(leaf.isfinite().all()) for leaf in leaves.values())
    assert bool(
        (leaves["inverse_mass"].diagonal(dim1=-2, dim2=-1) > 0).all()
        if kind == "dense"
        else (leaves["inverse_mass"] > 0).all()
    )


@pytest.mark.parametrize("kind", ["NUTS", "ChEESHMC"])
def test_chains_come_back_from_where_the_density_is_a_cliff(kind: str) -> None:
    def counts(y: Tensor) -> None:
        rate = pyro.sample("rate", dist.Normal(torch.zeros(3).double(), 100.0).to_event(1))
        with pyro.plate("rows", 3):
            pyro.sample("y", dist.Poisson(rate.exp()), obs=y)

    method = getattr(bnnzoo, kind)(num_chains=4, num_warmup=100, num_draws=50, init=torch.full((4, 3), 150.0).double())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bnnzoo.FitWarning)
        posterior = bnnzoo.fit(
            counts, method, torch.tensor([3.0, 5.0, 8.0]).double(), dtype=torch.float64, progress=False
        )
    assert bool(posterior.draws().isfinite().all())
