"""What all Laplace approximations share: a protocol open to new structures, interruptions, and hierarchical models."""

from dataclasses import dataclass, field
from typing import ClassVar

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor, nn

from bnnzoo.core.fit_warnings import NotConvergedWarning, TooNarrowWarning
from bnnzoo.core.method import FitContext, Silent
from bnnzoo.core.model.density import build_density
from bnnzoo.core.posterior.covariance import Diagonal
from bnnzoo.core.posterior.posterior import Gaussian
from bnnzoo.inference import (
    MAP,
    DiagonalLaplace,
    HierarchicalLaplace,
    Laplace,
    LastLayerLaplace,
    LowRankLaplace,
    SubsetLaplace,
    fit,
    maximise_evidence,
)
from bnnzoo.inference.laplace.curvature import choose_curvature
from bnnzoo.inference.laplace.family import (
    LaplaceError,
    LaplaceMethod,
    LaplaceSettings,
    Mode,
    best_approximation,
    find_mode,
    laplace_posterior,
)
from bnnzoo.models import likelihoods, priors, supervised
from bnnzoo.testing.targets import linear_gaussian

SHORT = MAP(num_steps=50)
X = torch.randn(30, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Y = X @ torch.tensor([2.0, -1.0], dtype=torch.float64)


@dataclass(frozen=True)
class Spherical(LaplaceSettings):
    """A seventh structure: one standard deviation for all parameters."""

    map: MAP = field(default_factory=MAP)
    scale: float = 0.1

    needs: ClassVar = frozenset()

    def run(self, density, context) -> Gaussian:
        mode = find_mode(self, density, context)
        curvature = choose_curvature(self.curvature, density, mode.theta)
        return laplace_posterior(density, mode, curvature, Diagonal(torch.full_like(mode.theta, self.scale)))


def centred(x: Tensor, y: Tensor | None = None) -> None:
    scale = pyro.sample("scale", dist.HalfNormal(2.0))
    w = pyro.sample("w", dist.Normal(torch.zeros(2), scale).to_event(1))
    with pyro.plate("data", len(x)):
        pyro.sample("y", dist.Normal(x @ w, 0.5), obs=y)


def test_a_seventh_structure_is_one_class() -> None:
    assert isinstance(Spherical(), LaplaceMethod) and not isinstance(MAP(), LaplaceMethod)
    posterior = fit(
        supervised(nn.Linear(2, 1), priors.normal(1.0), likelihoods.gaussian(scale=0.5)), Spherical(SHORT), X, Y
    )
    assert isinstance(posterior.covariance, Diagonal)
    assert posterior.info.method == "Spherical"


@pytest.mark.slow
def test_a_seventh_structure_has_hyperparameters_and_evidence() -> None:
    with pytest.warns(TooNarrowWarning, match="'scale' are set to their mode and have no spread"):
        posterior = fit(centred, HierarchicalLaplace(Spherical(SHORT), tolerance=1.0), X, Y)
    assert posterior.info.config["laplace"]["method"] == "Spherical"

    def model_of(scale: float):
        return supervised(nn.Linear(2, 1), priors.normal(scale), likelihoods.gaussian(scale=0.5))

    found = maximise_evidence(model_of, Spherical(SHORT), X, Y, start={"scale": 1.0}, max_fits=3)
    assert isinstance(found.posterior.covariance, Diagonal)


def test_shared_settings_are_keywords_and_the_structures_come_first() -> None:
    assert Laplace(SHORT).map is LastLayerLaplace(SHORT).map is LowRankLaplace(4, SHORT).map is SHORT
    assert SubsetLaplace(("w",), SHORT).sites == ("w",)
    with pytest.raises(TypeError, match="positional"):
        Laplace(SHORT, "hessian")


@pytest.mark.parametrize("kind", [Laplace, LowRankLaplace, DiagonalLaplace, LastLayerLaplace, SubsetLaplace])
def test_damping_is_not_negative(kind) -> None:
    model = supervised(nn.Linear(2, 1), priors.normal(1.0), likelihoods.gaussian(scale=0.5))
    with pytest.raises(ValueError, match=rf"{kind.__name__}\(damping=-1.0\): write 0 or more"):
        fit(model, kind(damping=-1.0), X, Y)


def test_other_methods_are_refused() -> None:
    with pytest.raises(ValueError, match=r"HierarchicalLaplace\(laplace=MAP\(\)\): write Laplace\(\) or one like it"):
        fit(centred, HierarchicalLaplace(MAP()), X, Y)
    sentence = r"maximise_evidence\(method=HierarchicalLaplace\(\)\): write Laplace\(\) or one like it"
    with pytest.raises(ValueError, match=sentence):
        maximise_evidence(lambda scale: centred, HierarchicalLaplace(), X, Y, start={"scale": 1.0})


class Interrupting(Silent):
    """A progress bar whose user presses Ctrl-C at its second report."""

    def __init__(self) -> None:
        self.reports = 0

    def update(self, step: int, **fields: float) -> None:
        self.reports += 1
        if self.reports == 2:
            raise KeyboardInterrupt


TWO = MAP(num_members=2)


@pytest.mark.parametrize("method", [Laplace(TWO), LowRankLaplace(2, TWO), DiagonalLaplace(TWO), SubsetLaplace(map=TWO)])
def test_interrupt_before_the_mode_stays_an_interrupt(method) -> None:
    target = linear_gaussian()
    density = build_density(target.model, *target.data)
    with pytest.raises(KeyboardInterrupt, match=rf"{type(method).__name__} was interrupted before the mode was found"):
        method.run(density, FitContext(progress=Interrupting()))


def test_centred_hierarchical_model_is_told_to_use_hierarchical_laplace() -> None:
    flat = MAP(init=torch.tensor([[-3.0, 0.0, 0.0]]), num_steps=0, polish_steps=0)
    sentence = r"The prior of other sites depends on scale; .* no useful mode. Use HierarchicalLaplace\(\)"
    with pytest.warns(NotConvergedWarning, match=sentence):
        fit(centred, Laplace(flat), X, Y)
    away = MAP(init=torch.tensor([[-3.0, 1.0, 0.0]]), num_steps=0, polish_steps=0)
    for method in (Laplace(away, curvature="hessian"), LowRankLaplace(2, away, curvature="hessian")):
        with pytest.raises(LaplaceError, match=sentence):
            fit(centred, method, X, Y)


def test_of_several_modes_the_one_of_the_highest_evidence_is_taken() -> None:
    """A spike that is three nats higher than the slab beside it, and a thousand times narrower."""
    target = linear_gaussian()
    found = fit(target.model, MAP(num_members=2, num_steps=0, polish_steps=0), *target.data)
    density, widths = found.density, {3.0: 1e-3, 0.0: 1.0}
    modes = [
        Mode(theta, torch.tensor(height), 0.0, found) for theta, height in zip(found.theta[0], widths, strict=True)
    ]

    def around(mode: Mode) -> Gaussian:
        width = torch.full_like(mode.theta, widths[float(mode.log_joint)])
        return laplace_posterior(density, mode, "ggn", Diagonal(width))

    mode, posterior = best_approximation(modes, around)
    assert mode is modes[1] and torch.equal(posterior.loc, found.theta[0, 1])


def test_modes_without_a_gaussian_are_left_out_unless_there_is_no_other() -> None:
    target = linear_gaussian()
    starts = torch.stack([target.mean["w"], torch.zeros(3)])
    found = fit(target.model, MAP(num_members=2, num_steps=0, polish_steps=0, init=starts), *target.data)
    modes = [Mode(theta, torch.tensor(0.0), 0.0, found) for theta in found.theta[0]]

    def around(mode: Mode) -> Gaussian:
        if bool((mode.theta != 0).any()):
            raise LaplaceError("not this one")
        return laplace_posterior(found.density, mode, "ggn", Diagonal(torch.ones(3)))

    assert best_approximation(modes, around)[0] is modes[1]
    with pytest.raises(LaplaceError, match="not this one"):
        best_approximation(modes[:1], around)
