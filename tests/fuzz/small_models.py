"""Random small Pyro models, each described by plain values, for hypothesis to build and to shrink."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from hypothesis import strategies as st
from pyro import poutine
from pyro.infer.reparam import (
    AutoReparam,
    DiscreteCosineReparam,
    HaarReparam,
    LocScaleReparam,
    SplitReparam,
    StudentTReparam,
    TransformReparam,
)
from torch import Tensor

__all__ = ["NUM_GROUPS", "NUM_ROWS", "Latent", "Outcome", "SmallModel", "data_of", "small_models"]

NUM_ROWS, NUM_GROUPS, NUM_COLUMNS = 12, 3, 2

SCALARS: dict[str, Callable[[], Any]] = {
    "normal": lambda: dist.Normal(0.3, 0.7),
    "half-normal": lambda: dist.HalfNormal(0.8),
    "half-Cauchy": lambda: dist.HalfCauchy(0.5),
    "log-normal": lambda: dist.LogNormal(-0.5, 0.6),
    "gamma": lambda: dist.Gamma(2.0, 3.0),
    "inverse gamma": lambda: dist.InverseGamma(3.0, 1.0),
    "beta": lambda: dist.Beta(2.0, 1.5),
    "uniform": lambda: dist.Uniform(-1.0, 2.0),
    "Student": lambda: dist.StudentT(4.0, 0.0, 0.5),
    "exponential": lambda: dist.Exponential(2.0),
    "Laplace": lambda: dist.Laplace(0.0, 0.5),
    "Gumbel": lambda: dist.Gumbel(0.0, 0.4),
    "logistic": lambda: dist.Logistic(0.0, 0.4),
    "Weibull": lambda: dist.Weibull(0.8, 1.7),
    "Kumaraswamy": lambda: dist.Kumaraswamy(torch.tensor(1.5), torch.tensor(2.0)),
    "Pareto": lambda: dist.Pareto(0.3, 3.0),
    "soft Laplace": lambda: dist.SoftLaplace(0.0, 0.4),
    "mixture": lambda: dist.MixtureSameFamily(
        dist.Categorical(torch.tensor([0.3, 0.7])), dist.Normal(torch.tensor([-1.0, 1.0]), 0.5)
    ),
    "folded": lambda: dist.FoldedDistribution(dist.Normal(0.2, 0.8)),
    "improper": lambda: dist.ImproperUniform(dist.constraints.interval(-1.0, 1.0), (), ()),
    "improper positive": lambda: dist.ImproperUniform(dist.constraints.positive, (), ()),
    "Cauchy": lambda: dist.Cauchy(0.0, 0.3),
    "chi-squared": lambda: dist.Chi2(3.0),
    "asymmetric Laplace": lambda: dist.AsymmetricLaplace(torch.tensor(0.0), torch.tensor(0.5), torch.tensor(1.5)),
    "scaled log-normal": lambda: dist.TransformedDistribution(
        dist.Normal(0.0, 0.5), [dist.transforms.AffineTransform(0.2, 1.5), dist.transforms.ExpTransform()]
    ),
    "logit-normal": lambda: dist.TransformedDistribution(dist.Normal(0.0, 1.0), [dist.transforms.SigmoidTransform()]),
    "masked mixture": lambda: dist.MaskedMixture(
        torch.tensor(True), dist.Normal(torch.tensor(0.0), 1.0), dist.Normal(torch.tensor(1.0), 0.5)
    ),
}
"""One number, whose batch may be expanded."""

VECTORS: dict[str, Callable[[], Any]] = {
    "independent": lambda: dist.Normal(torch.zeros(3), 0.5).to_event(1),
    "expanded": lambda: dist.Normal(0.0, 0.5).expand([3]).to_event(1),
    "multivariate": lambda: dist.MultivariateNormal(torch.zeros(3), torch.eye(3) + 0.3),
    "Dirichlet": lambda: dist.Dirichlet(torch.tensor([1.5, 2.0, 1.0])),
    "LKJ": lambda: dist.LKJCholesky(3, torch.tensor(2.0)),
    "low rank": lambda: dist.LowRankMultivariateNormal(torch.zeros(3), 0.3 * torch.ones(3, 1), torch.ones(3)),
    "transformed": lambda: dist.TransformedDistribution(
        dist.Normal(torch.zeros(3), 0.5).to_event(1), [dist.transforms.OrderedTransform()]
    ),
    "positive": lambda: dist.Gamma(2.0 * torch.ones(3), 3.0).to_event(1),
    "correlations": lambda: dist.LKJ(3, torch.tensor(1.5)),
    "Student vector": lambda: dist.MultivariateStudentT(torch.tensor(5.0), torch.zeros(3), torch.eye(3)),
    "improper vector": lambda: dist.ImproperUniform(
        dist.constraints.independent(dist.constraints.interval(-1.0, 1.0), 1), (), (3,)
    ),
    "improper simplex": lambda: dist.ImproperUniform(dist.constraints.simplex, (), (3,)),
    "mixture of vectors": lambda: dist.MixtureSameFamily(
        dist.Categorical(torch.tensor([0.4, 0.6])), dist.Normal(torch.tensor([[-1.0] * 3, [1.0] * 3]), 0.5).to_event(1)
    ),
}
"""An event of several numbers."""

PLATES = ("none", "sized", "two", "outer", "subsampling", "nested", "loop", "markov")
ROW_PLATES = ("sized", "unsized", "none", "subsampling", "dim", "grid")
OUTCOMES: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "normal": lambda f, s: dist.Normal(f, s),
    "Student": lambda f, s: dist.StudentT(5.0, f, s),
    "log-normal": lambda f, s: dist.LogNormal(f, s),
    "gamma": lambda f, s: dist.Gamma(s, s * (-f).exp()),
    "Poisson": lambda f, s: dist.Poisson(f.exp()),
    "negative binomial": lambda f, s: dist.NegativeBinomial(s, logits=f),
    "gamma Poisson": lambda f, s: dist.GammaPoisson(s, s * (-f).exp()),
    "Bernoulli": lambda f, s: dist.Bernoulli(logits=f),
    "binomial": lambda f, s: dist.Binomial(5.0, logits=f),
    "beta": lambda f, s: dist.Beta(s * f.sigmoid() + 0.1, s * (-f).sigmoid() + 0.1),
    "zero-inflated": lambda f, s: dist.ZeroInflatedPoisson(f.exp(), gate=s / (1 + s)),
    "categorical": lambda f, s: dist.Categorical(logits=torch.stack([f, s.expand_as(f), -f], -1)),
    "two columns": lambda f, s: dist.Normal(torch.stack([f, -f], -1), s).to_event(1),
    "multivariate": lambda f, s: dist.MultivariateNormal(
        torch.stack([f, -f], -1), (s**2 * torch.eye(2)).expand((*f.shape, 2, 2))
    ),
    "Laplace": lambda f, s: dist.Laplace(f, s),
    "exponential": lambda f, s: dist.Exponential(f.exp()),
    "von Mises": lambda f, s: dist.VonMises(f.tanh(), s),
    "mixture": lambda f, s: dist.MixtureSameFamily(
        dist.Categorical(torch.tensor([0.3, 0.7])), dist.Normal(torch.stack([f, f + 1.0], -1), s[..., None])
    ),
    "ordinal": lambda f, s: dist.OrderedLogistic(f, torch.tensor([-0.5, 0.7])),
    "Gumbel": lambda f, s: dist.Gumbel(f, s),
    "Weibull": lambda f, s: dist.Weibull(f.exp(), 1.0 + s),
    "inverse gamma": lambda f, s: dist.InverseGamma(3.0 + s, f.exp()),
    "geometric": lambda f, s: dist.Geometric(logits=f),
    "beta-binomial": lambda f, s: dist.BetaBinomial(s + f.exp(), s + 1.0, 5.0),
    "zero-inflated negative binomial": lambda f, s: dist.ZeroInflatedNegativeBinomial(
        1.0 + s, logits=f, gate=s / (2 + s)
    ),
    "multinomial": lambda f, s: dist.Multinomial(4, logits=torch.stack([f, s.expand_as(f), -f], -1)),
    "simplex": lambda f, s: dist.Dirichlet(torch.stack([f.exp(), 1.0 + s.expand_as(f), (-f).exp()], -1)),
    "Student vector": lambda f, s: dist.MultivariateStudentT(
        5.0 + s, torch.stack([f, -f], -1), torch.eye(2).expand((*f.shape, 2, 2))
    ),
    "logit-normal": lambda f, s: dist.TransformedDistribution(dist.Normal(f, s), [dist.transforms.SigmoidTransform()]),
    "scalar parameters": lambda f, s: dist.Normal(s, s),
    "one scale": lambda f, s: dist.MaskedDistribution(dist.Normal(f, s), torch.tensor(True)),
}


@dataclass(frozen=True)
class Latent:
    """A latent site: its distribution, the plates around it, and what is done to it."""

    family: str
    plates: str = "none"
    scale: float = 1.0
    mask: str = "none"
    reparam: str = "none"
    below: bool = False


@dataclass(frozen=True)
class Outcome:
    """An observed site: its family, the plate of its rows, weights and mask of its rows, and whether a condition gives it."""

    family: str
    plate: str = "sized"
    scale: float = 1.0
    weights: bool = False
    mask: bool = False
    given: bool = False


@dataclass(frozen=True)
class SmallModel:
    """A model of rows ``x[N, 2]`` in groups ``g[N]`` with some latent sites and outcomes, called with ``(x, g, *outcomes)``."""

    latents: tuple[Latent, ...]
    outcomes: tuple[Outcome, ...]
    factor: bool = False
    deterministic: bool = False
    wrapped: bool = False
    mapping: bool = False
    automatic: bool = False
    broadcasts: bool = False

    def __call__(self, *data: Any) -> None:
        """Run the model, with its reparametrisations."""
        (x, g), outcomes = ((data[0]["x"], data[0]["g"]), data[1:]) if self.mapping else (data[:2], data[2:])
        values = (*outcomes, *(None,) * (len(self.outcomes) - len(outcomes)))
        config = {f"z{i}": made for i, each in enumerate(self.latents) if (made := _reparam(each)) is not None}
        run = poutine.infer_config(
            poutine.block(self._run, hide=["hidden"]), config_fn=lambda site: {"enumerate": None}
        )
        run = run if self.wrapped else self._run
        run = poutine.reparam(run, config=AutoReparam(centered=0.0) if self.automatic else config)
        broadcasts = self.broadcasts and all(each.family != "correlations" for each in self.latents)
        (poutine.broadcast(run) if broadcasts else run)(x, g, values)

    def data(self, x: Tensor, g: Tensor, outcomes: tuple[Tensor, ...]) -> tuple[Any, ...]:
        """Return rows as the model takes them."""
        return ({"x": x, "g": g}, *outcomes) if self.mapping else (x, g, *outcomes)

    def _run(self, x: Tensor, g: Tensor, outcomes: tuple[Tensor | None, ...]) -> None:
        spread = pyro.sample("spread", dist.LogNormal(0.0, 0.3))
        f = 0.3 * x[:, 0] + 0.1 * spread
        for place, latent in enumerate(self.latents):
            f = f + 0.3 * self._effect(f"z{place}", latent, x, g, spread)
        if self.deterministic:
            pyro.deterministic("f", f)
        if self.factor:
            with pyro.plate("more rows", len(x)):
                pyro.factor("extra", -0.1 * f**2)
        for place, (outcome, y) in enumerate(zip(self.outcomes, outcomes, strict=True)):
            self._observe(f"y{place}", outcome, f, spread, x, y)

    def _effect(self, name: str, latent: Latent, x: Tensor, g: Tensor, spread: Tensor) -> Tensor:
        """Return what a latent site adds to each row ``[N]``."""
        mask = {"none": None, "off": False, "on": True, "some": torch.tensor([True, False, True])}[latent.mask]
        fn = (VECTORS | SCALARS)[latent.family]()
        if latent.below:
            fn = dist.Normal(0.1 * spread, spread)
        shape = (NUM_GROUPS,) if latent.mask == "some" else ()
        with poutine.scale(scale=latent.scale):
            if latent.plates == "none":
                value = pyro.sample(name, fn if mask is None or shape else fn.mask(mask))
                return value.flatten()[0].expand(len(x)) + value.sum()
            if latent.plates == "loop":
                each = [_first(pyro.sample(f"{name}_{i}", fn), fn) for i in pyro.plate(f"{name} loop", NUM_GROUPS)]
                return torch.stack(each)[g]
            if latent.plates == "markov":
                walk = [pyro.sample(f"{name}_start", dist.Normal(0.0, 0.5))]
                for i in pyro.markov(range(1, NUM_GROUPS)):
                    walk.append(pyro.sample(f"{name}_{i}", dist.Normal(0.9 * walk[-1], spread)))
                return torch.stack(walk)[g]
            if latent.plates == "nested":  # groups within kinds, whose centres are latent too
                with pyro.plate(f"{name} kinds", 2, dim=-2):
                    centre = pyro.sample(f"{name}_centre", dist.Normal(0.0, spread))
                    with pyro.plate(f"{name} groups", NUM_GROUPS, dim=-1):
                        value = _first(pyro.sample(name, fn), fn) + centre
                return value[g % 2, g]
            size = NUM_GROUPS if latent.plates == "subsampling" else None
            dim = -2 if latent.plates == "outer" else -1
            with pyro.plate(f"{name} groups", NUM_GROUPS, subsample_size=size, dim=dim):
                if latent.plates == "two":
                    with pyro.plate(f"{name} kinds", 2, dim=-2):
                        value = pyro.sample(name, fn)
                    return _first(value, fn)[1, g] - _first(value, fn)[0, 0]
                if latent.plates == "outer":
                    value = _first(pyro.sample(name, fn), fn)
                    return value.reshape(NUM_GROUPS)[g]
                if mask is None:
                    value = pyro.sample(name, fn)
                else:
                    with poutine.mask(mask=mask):
                        value = pyro.sample(name, fn)
                return _first(value, fn)[g]

    def _observe(self, name: str, outcome: Outcome, f: Tensor, s: Tensor, x: Tensor, y: Tensor | None) -> None:
        if outcome.plate == "grid":  # rows by columns
            f, x = f[:, None].expand(-1, NUM_COLUMNS), x[:, :, None]
        fn = OUTCOMES[outcome.family](f, s)
        scale: Any = outcome.scale * (1 + (x[:, 1] > 0).to(f)) if outcome.weights else outcome.scale
        mask: Any = x[:, 1] > -1.0 if outcome.mask else True
        with poutine.scale(scale=scale), poutine.mask(mask=mask):
            run = _sampled(name, fn, y, outcome.plate, len(x))
            if outcome.given and y is not None:
                poutine.condition(lambda: _sampled(name, fn, None, outcome.plate, len(x))(), {name: y})()
            else:
                run()


def _sampled(name: str, fn: Any, y: Tensor | None, plate: str, num_rows: int) -> Callable[[], None]:
    plates: dict[str, Callable[[], Any]] = {
        "sized": lambda: pyro.plate(f"{name} rows", num_rows),
        "unsized": lambda: pyro.plate(f"{name} rows"),
        "none": nullcontext,
        "subsampling": lambda: pyro.plate(f"{name} rows", num_rows, subsample_size=num_rows),
        "dim": lambda: pyro.plate(f"{name} rows", num_rows, dim=-1),
    }

    def run() -> None:
        if plate == "grid":
            with pyro.plate(f"{name} columns", NUM_COLUMNS, dim=-1), pyro.plate(f"{name} rows", num_rows, dim=-2):
                pyro.sample(name, fn, obs=y)
            return
        with plates[plate]():
            pyro.sample(name, fn, obs=y)

    return run


def _first(value: Tensor, fn: Any) -> Tensor:
    """Return the first number of each event."""
    return value.flatten(value.ndim - len(fn.event_shape))[..., 0] if fn.event_shape else value


def _reparam(latent: Latent) -> Any:
    made = {
        "centred": lambda: LocScaleReparam(1.0),
        "non-centred": lambda: LocScaleReparam(0.0),
        "half": lambda: LocScaleReparam(0.5),
        "transform": TransformReparam,
        "split": lambda: SplitReparam([1, 2], -1),
        "haar": lambda: HaarReparam(dim=-1, flip=False),
        "cosine": lambda: DiscreteCosineReparam(dim=-1),
        "Student": StudentTReparam,
    }
    return made[latent.reparam]() if latent.reparam != "none" else None


REPARAMETRISED = {
    "centred": ("normal", "independent", "expanded"),
    "non-centred": ("normal", "independent", "expanded"),
    "half": ("normal", "independent", "expanded"),
    "transform": ("log-normal", "transformed", "scaled log-normal", "logit-normal"),
    "split": ("independent", "expanded", "multivariate"),
    "haar": ("independent", "expanded", "multivariate"),
    "cosine": ("independent", "expanded", "multivariate"),
    "Student": ("Student",),
}


@st.composite
def _latents(draw: st.DrawFn) -> Latent:
    scale = draw(st.sampled_from((1.0, 0.5, 3.0)))
    if draw(st.integers(0, 15)) == 0:  # which Pyro cannot put into a plate
        return Latent("correlations", "none", scale)
    if draw(st.booleans()):
        reparam = draw(st.sampled_from(sorted(REPARAMETRISED)))
        family, plates = draw(st.sampled_from(REPARAMETRISED[reparam])), draw(st.sampled_from(PLATES[:6]))
        return Latent(family, plates, scale, "none", reparam)
    family, plates = (
        draw(st.sampled_from([*SCALARS, *(each for each in VECTORS if each != "correlations")])),
        draw(st.sampled_from(PLATES)),
    )
    mask = draw(st.sampled_from(("none", "off", "on", "some") if plates == "sized" else ("none",)))
    return Latent(family, plates, scale, mask, "none", draw(st.booleans()) and family in SCALARS)


@st.composite
def _outcomes(draw: st.DrawFn) -> Outcome:
    plate, weights = draw(st.sampled_from(ROW_PLATES)), draw(st.booleans())
    return Outcome(
        draw(st.sampled_from(sorted(OUTCOMES))),
        plate,
        draw(st.sampled_from((1.0, 1.0, 0.25))),
        weights,
        draw(st.booleans()),
        draw(st.booleans()),
    )


LOC_SCALE = ("normal", "Student", "log-normal", "independent", "expanded", "logistic", "Laplace")
"""Families that Pyro's automatic reparametrisation takes."""


@st.composite
def small_models(draw: st.DrawFn) -> SmallModel:
    """Draw a model."""
    latents = draw(st.lists(_latents(), min_size=0, max_size=3))
    outcomes = draw(st.lists(_outcomes(), min_size=1, max_size=2))
    factor, deterministic, wrapped, mapping, broadcasts = (draw(st.booleans()) for _ in range(5))
    automatic = all(each.reparam == "none" and each.family in LOC_SCALE for each in latents) and draw(st.booleans())
    return SmallModel(tuple(latents), tuple(outcomes), factor, deterministic, wrapped, mapping, automatic, broadcasts)


def data_of(model: SmallModel, seed: int, num_rows: int = NUM_ROWS) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
    """Return rows, their groups, and outcomes within the support of each family."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(num_rows, 2, generator=generator)
    g = torch.randint(NUM_GROUPS, (num_rows,), generator=generator)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        outcomes = tuple(_within(_drawn(each, x)) for each in model.outcomes)
    return x, g, outcomes


def _drawn(outcome: Outcome, x: Tensor) -> Tensor:
    shape = (len(x), NUM_COLUMNS) if outcome.plate == "grid" else (len(x),)
    f = (0.3 * x[:, 0]).reshape(-1, *(1,) * (len(shape) - 1)).expand(shape)
    y: Tensor = OUTCOMES[outcome.family](f, torch.tensor(1.0)).expand(shape).sample()
    return y


def _within(y: Tensor) -> Tensor:
    if y.ndim > 1 and torch.allclose(y.sum(-1).double(), torch.ones((), dtype=torch.float64)):  # of a simplex
        return y
    return y.clamp(1e-3, 1 - 1e-3) if bool(((y >= 0) & (y <= 1)).all()) and bool((y != y.round()).any()) else y
