"""Approximations to the posterior of a network are judged by its functions: those that are right are quiet, others tell."""

import re
import warnings
from collections import deque
from dataclasses import replace

import pytest
import torch
from torch import Tensor

import bnnzoo as bz
from bnnzoo.core.model.density import made_of
from bnnzoo.core.posterior.covariance import Dense
from bnnzoo.core.posterior.posterior import Gaussian
from bnnzoo.core.reading import kept_graphs
from bnnzoo.core.verdict import quantities
from bnnzoo.core.verdict.accuracy import accuracy_of
from bnnzoo.core.verdict.importance import WeightedDraws
from bnnzoo.core.verdict.quantities import Quantities, quantities_of
from bnnzoo.core.verdict.short_chains import Moved, moves, shift_by_chains
from bnnzoo.engine import points
from bnnzoo.engine.points import Points
from bnnzoo.inference import (
    DiagonalLaplace,
    FullRankVI,
    HierarchicalLaplace,
    KFACLaplace,
    Laplace,
    LastLayerLaplace,
    MCDropout,
    MeanFieldVI,
    ParetoKWarning,
    Pathfinder,
)
from bnnzoo.models import likelihoods

NOISE = 0.2


def rows(number: int = 40) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    x = 4 * torch.rand(number, 1, generator=generator) - 2
    return x, x[:, 0].sin() + NOISE * torch.randn(number, generator=generator)


def network(*hidden: int) -> bz.core.types.Model:
    return bz.models.supervised(bz.models.mlp(1, hidden), bz.priors.fan_in(2.0), likelihoods.gaussian(scale=NOISE))


def said(method: bz.core.method.Method, *hidden: int, model: bz.core.types.Model | None = None) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        bz.fit(model or network(*hidden), method, *rows(), seed=0, progress=False)
    return [str(each.message) for each in caught if issubclass(each.category, ParetoKWarning)]


def test_a_network_is_judged_in_native_code_by_the_same_sentence_as_by_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    model, sentences = network(8), []
    for seconds, is_native in ((0.0, True), (1e9, False)):
        monkeypatch.setattr(points, "NATIVE_PAYS_FROM_SECONDS", seconds)
        monkeypatch.setattr(kept_graphs, "_KEPT", deque(maxlen=1))
        with pytest.warns(ParetoKWarning) as caught:
            fitted = bz.fit(model, MeanFieldVI(num_steps=500), *rows(), progress=False)
        sentences.append([str(each.message) for each in caught])
        judge: Points = made_of(fitted.density).shared("short chains", lambda: None)
        assert any(judge._native.values()) == is_native
    assert len(sentences[0]) == 1 and sentences[0] == sentences[1]


@pytest.mark.parametrize("method", [MeanFieldVI(), Pathfinder(), KFACLaplace()], ids=lambda each: type(each).__name__)
def test_an_approximation_that_is_off_says_at_which_observation(method: bz.core.method.Method) -> None:
    (sentence,) = said(method, 8)
    assert re.search(r"its (mean|standard deviation) of the expected outcome at observation \d+ is \d", sentence)
    assert sentence.endswith("use NUTS(), or SGHMC() for many observations.")


@pytest.mark.parametrize("method", [Laplace(), KFACLaplace()], ids=lambda each: type(each).__name__)
def test_one_that_is_exact_is_quiet(method: bz.core.method.Method) -> None:
    """Without hidden units and with known noise the posterior is Gaussian."""
    assert said(method) == []


def test_one_whose_draws_are_so_far_off_that_chains_cannot_move_says_so() -> None:
    """At its mode some weights are zero, where a Laplace prior has no curvature: their standard deviations are 1e13."""
    sparse = bz.models.supervised(bz.models.mlp(1, (5,)), bz.priors.laplace(0.3), likelihoods.gaussian(scale=NOISE))
    (sentence,) = said(DiagonalLaplace(), model=sparse)
    assert "short chains that start at its draws do not move, so little probability lies there" in sentence


def test_chosen_quantities_keep_names_and_resolutions() -> None:
    every = Quantities(lambda theta: theta, lambda theta: 2 * theta, ("a", "b", "c"), torch.tensor([0.0, 0.01, 0.02]))
    some, theta = every.chosen(torch.tensor([False, True, True])), torch.arange(6.0).reshape(2, 3)
    assert some.names == ("b", "c") and torch.equal(some.resolution, torch.tensor([0.01, 0.02]))
    assert torch.equal(some.own(theta), theta[:, 1:]) and torch.equal(some.exact(theta), 2 * theta[:, 1:])


def test_short_chains_leave_what_no_draw_varies_where_it_is() -> None:
    line = bz.models.supervised(bz.models.mlp(1, ()), bz.priors.fan_in(1.0), likelihoods.gaussian())
    posterior = bz.fit(line, Laplace(), *rows(), progress=False)
    theta = posterior.draws(500)[0]
    theta[:, -1] = theta[0, -1]
    *_, found = moves(posterior.density, WeightedDraws(theta, torch.zeros(500)))
    assert found.acceptance > 0.5 and bool((found.theta[..., :-1].std((0, 1)) > 0.5 * theta[:, :-1].std(0)).all())
    assert torch.allclose(found.theta[..., -1], theta[0, -1], rtol=1e-8)


def of_scales_at_their_mode(model: bz.core.types.Model, *data: Tensor) -> bool:
    """Return whether the fit says that it is off."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        posterior = bz.fit(model, HierarchicalLaplace(), *data, seed=0, progress=False)
    spread = posterior.draws(100)[0].std(0)
    assert bool((spread == 0).any()) and bool((spread > 0).any())
    return any(issubclass(each.category, ParetoKWarning) for each in caught)


def test_given_scales_of_the_prior_at_their_mode_the_posterior_of_a_line_is_gaussian() -> None:
    line = bz.models.supervised(bz.models.mlp(1, ()), bz.priors.layerwise(), likelihoods.gaussian(scale=NOISE))
    assert not of_scales_at_their_mode(line, *rows())


def test_given_scales_of_the_prior_at_their_mode_a_network_is_off_and_says_so() -> None:
    card = bz.zoo.load("neal-binary")
    assert of_scales_at_their_mode(card.model(), *map(torch.as_tensor, card.data().train.values()))


@pytest.mark.parametrize("method", [LastLayerLaplace(), MCDropout(rate=0.1)], ids=lambda each: type(each).__name__)
def test_one_of_some_weights_only_is_not_judged(method: bz.core.method.Method) -> None:
    assert said(method, 8) == []


@pytest.fixture(scope="module")
def line() -> Gaussian:
    """The posterior of a straight line, a network without hidden units."""
    posterior = bz.fit(network(), Laplace(), *rows(), seed=0, progress=False)
    assert isinstance(posterior, Gaussian)
    return posterior


def beside(exact: Gaussian, scale: float, shift: float, linearized: bool = False) -> Gaussian:
    root = torch.linalg.cholesky(torch.cov(exact.draws(20_000)[0].mT))
    anchor = exact.loc if linearized else None
    return replace(
        exact,
        loc=exact.loc + shift * root @ torch.ones(2).to(root),
        covariance=Dense(scale * root),
        linearize_at=anchor,
    )


@pytest.mark.parametrize("linearized", [False, True])
@pytest.mark.parametrize(
    ("scale", "shift", "clause"),
    [
        (1.0, 0.0, ""),
        (1.15, 0.05, ""),
        (
            2.0,
            0.0,
            r"its standard deviation of the expected outcome at observation \d+ is (1.9|2|2.1|2.2) times the posterior's",
        ),
        (
            0.5,
            0.0,
            r"its standard deviation of the expected outcome at observation \d+ is 0.[45]\d? times the posterior's",
        ),
        (1.0, 1.0, r"its mean of the expected outcome at observation \d+ is 1\.\d standard deviations too high"),
        (1.0, -1.0, r"its mean of the expected outcome at observation \d+ is 1\.\d standard deviations too low"),
    ],
)
def test_what_is_off_is_told_with_its_size(
    line: Gaussian, scale: float, shift: float, clause: str, linearized: bool
) -> None:
    found = accuracy_of(beside(line, scale, shift, linearized))
    assert found is not None
    assert re.fullmatch(clause, found.trouble)


def test_weights_that_are_exchanged_do_not_count_and_noise_that_is_unknown_does() -> None:
    """Hidden units in another order are another place of the weights' posterior, and the same functions."""
    noise = likelihoods.gaussian()
    model = bz.models.supervised(bz.models.mlp(1, (3,)), bz.priors.fan_in(2.0), noise)
    posterior = bz.fit(model, MeanFieldVI(num_steps=20), *rows(), seed=0, progress=False)
    found = quantities_of(posterior)
    assert found is not None
    assert found.names[0] == "the expected outcome at observation 0" and len(found.names) == 41
    theta = posterior.draws(5)[0]
    mirrored = theta.clone()
    for site in posterior.density.sites:
        if site.is_weight and site.shape.numel() == 3:  # weights and biases of the hidden layer, and those above
            mirrored[:, site.span] = -theta[:, site.span]
    torch.testing.assert_close(found.exact(mirrored), found.exact(theta))


@pytest.mark.filterwarnings("ignore::bnnzoo.inference.ParetoKWarning")
def test_linearised_predictions_are_judged_where_these_are_made() -> None:
    """They are straight lines in theta, which the model's own are not."""
    posterior = bz.fit(network(8), KFACLaplace(), *rows(), seed=0, progress=False)
    found = quantities_of(posterior)
    assert isinstance(posterior, Gaussian) and found is not None
    along = posterior.loc + torch.arange(3.0)[:, None] * (posterior.draws(1)[0] - posterior.loc)
    (a, b, c), (d, e, f) = found.own(along), found.exact(along)
    torch.testing.assert_close(c - b, b - a)
    torch.testing.assert_close(a, d)
    assert float((f - e - (e - d)).abs().max()) > 0.1


def test_small_probabilities_do_not_matter() -> None:
    """Where classes are told apart, probabilities of 1e-3 may have any standard deviation of that size."""
    card = bz.zoo.load("logistic-regression")
    fitted = card.fit(FullRankVI(), progress=False)
    found, judged = quantities_of(fitted), accuracy_of(fitted)
    assert found is not None and set(found.resolution.tolist()) == {0.01}
    assert "the probability of class 0 at observation 0" in found.names
    assert judged is not None and judged.trouble == ""


def test_the_resolution_is_added_to_standard_deviations() -> None:
    noise = torch.randn(40, 200, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    compared = Quantities(lambda theta: theta, lambda theta: theta, ("a", "b"), torch.tensor([0.0, 3.0]).double())
    shift = shift_by_chains(compared, 4.0 * noise.flatten(0, 1) + 1.0, Moved(noise, 1.0))
    expected = torch.tensor([1.0 / 1.0, 1.0 / 10**0.5]), torch.tensor([4.0, ((16.0 + 9.0) / (1.0 + 9.0)) ** 0.5])
    torch.testing.assert_close(shift.mean, expected[0].double(), rtol=0.0, atol=0.06)
    torch.testing.assert_close(shift.log_sd.exp(), expected[1].double(), rtol=0.05, atol=0.0)


def test_chains_start_on_the_way_from_the_mode(line: Gaussian) -> None:
    """Chains that start at draws thirty times too wide are far out after a trajectory; from near the mode they are not."""
    theta = line.loc + 30 * (line.draws(64)[0] - line.loc)
    drawn = WeightedDraws(theta, torch.zeros(64, dtype=torch.float64))
    sd = line.draws(4000)[0].std(0)
    far, near = (next(moves(line.density, drawn, shrunk)).theta[0].std(0) / sd for shrunk in (1.0, 0.03))
    assert float(far.min()) > 10 and float(near.max()) < 10


def test_networks_that_are_too_large_are_left_to_their_likelihood(
    line: Gaussian, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quantities, "ROWS", 39)
    assert quantities_of(line) is None and accuracy_of(line) is None


def test_a_model_that_fails_at_draws_is_not_judged(line: Gaussian, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the failure is no end of the fit."""
    conditional, calls = type(line.density).conditional, []

    def fails_later(density: object, *args: Tensor) -> dict[str, Tensor]:
        calls.append(1)
        if len(calls) > 1:
            raise KeyError("y")
        return conditional(density, *args)

    monkeypatch.setattr(type(line.density), "conditional", fails_later)
    assert accuracy_of(line) is None and len(calls) > 1


def test_no_more_rows_are_kept_than_are_compared(line: Gaussian, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantities, "MANY_FUNCTIONS", 10)
    found = quantities_of(line)
    assert found is not None
    assert [name.split()[-1] for name in found.names] == [str(row) for row in range(0, 40, 4)]
    theta = line.draws(7)[0]
    means = torch.stack([line.density.conditional(row, *line.density.data)["mean"] for row in theta])
    torch.testing.assert_close(found.exact(theta), means[:, ::4].double())


def test_the_random_stream_is_left_as_it_was(line: Gaussian) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    accuracy_of(line)
    assert torch.equal(torch.get_rng_state(), before)
