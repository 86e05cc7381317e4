"""Models by the messenger, reparametrisation or distribution that they use, each as Pyro's users write it."""

from collections.abc import Callable
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from pyro import poutine
from pyro.distributions import constraints, transforms
from pyro.infer import reparam
from pyro.infer.reparam.reparam import Reparam
from torch import Tensor

__all__ = ["LATENT", "MESSENGERS", "OBSERVED", "REFUSED", "REPARAMETRISATIONS", "UNCOMPILED", "X", "Y"]

generator = torch.Generator().manual_seed(0)
X = torch.randn(8, generator=generator, dtype=torch.float64)
Y = 0.7 * X + 0.3 * torch.randn(8, generator=generator, dtype=torch.float64)

type Model = Callable[[Tensor, Tensor], None]


def regression(x: Tensor, y: Tensor | None = None) -> None:
    w = pyro.sample("w", dist.Normal(0.0, 1.0))
    s = pyro.sample("s", dist.HalfNormal(1.0))
    with pyro.plate("data", len(x)):
        pyro.sample("y", dist.Normal(w * x, s), obs=y)


def _masked(x: Tensor, y: Tensor | None = None) -> None:
    w = pyro.sample("w", dist.Normal(0.0, 1.0))
    with pyro.plate("data", len(x)), poutine.mask(mask=x > -0.5):
        pyro.sample("y", dist.Normal(w * x, 1.0), obs=y)


def _scaled(x: Tensor, y: Tensor | None = None) -> None:
    w = pyro.sample("w", dist.Normal(0.0, 1.0))
    with pyro.plate("data", len(x)), poutine.scale(scale=2.5):
        pyro.sample("y", dist.Normal(w * x, 1.0), obs=y)


def _markov(x: Tensor, y: Tensor | None = None) -> None:
    a = pyro.sample("a", dist.Uniform(-1.0, 1.0))
    z = torch.zeros((), dtype=x.dtype)
    for t in pyro.markov(range(len(x))):
        z = pyro.sample(f"z{t}", dist.Normal(a * z, 1.0))
        pyro.sample(f"y{t}", dist.Normal(z, 0.5), obs=None if y is None else y[t])


def _imputed(x: Tensor, y: Tensor | None = None) -> None:
    w = pyro.sample("w", dist.Normal(0.0, 1.0))
    with pyro.plate("data", len(x)):
        pyro.sample("y", dist.Normal(w * x, 1.0), obs=y, obs_mask=torch.arange(len(x)) > 1)


def _subsampled(x: Tensor, y: Tensor | None = None) -> None:
    w = pyro.sample("w", dist.Normal(0.0, 1.0))
    with pyro.plate("data", len(x), subsample_size=len(x)) as rows:
        pyro.sample("y", dist.Normal(w * x[rows], 1.0), obs=None if y is None else y[rows])


def _factor(x: Tensor, y: Tensor | None = None) -> None:
    w = pyro.sample("w", dist.Normal(0.0, 1.0))
    with pyro.plate("data", len(x)):
        pyro.factor("penalty", -0.5 * (x * w).abs())
        pyro.sample("y", dist.Normal(w * x, 1.0), obs=y)


def _two_lengths(x: Tensor, y: Tensor | None = None) -> None:
    w = pyro.sample("w", dist.Normal(0.0, 1.0))
    with pyro.plate("data", len(x)):
        pyro.sample("y", dist.Normal(w * x, 1.0), obs=y)
    with pyro.plate("others", 3):
        pyro.sample("z", dist.Normal(w, 1.0), obs=torch.tensor([0.1, 0.2, 0.3], dtype=x.dtype))


MESSENGERS: dict[str, Model] = {
    "`poutine.scale`": _scaled,
    "`poutine.mask`": _masked,
    "`poutine.block`, of a site of its own": poutine.block(regression, hide=["nothing"]),
    "`poutine.condition`, of a latent site": poutine.condition(regression, data={"s": torch.tensor(0.5)}),
    "`poutine.do`": poutine.do(regression, data={"s": torch.tensor(0.5)}),
    "`poutine.infer_config`": poutine.infer_config(regression, config_fn=lambda site: {}),
    "`pyro.markov`": _markov,
    "`obs_mask=`": _imputed,
    "`pyro.plate(subsample_size=)`": _subsampled,
    "`pyro.factor`": _factor,
    "outcomes of two lengths": _two_lengths,
}


def _of_prior(prior: Callable[[], dist.Distribution]) -> Model:
    """Return a model whose one latent site has a prior, and whose rows have its mean as location."""

    def model(x: Tensor, y: Tensor | None = None) -> None:
        w = pyro.sample("w", prior())
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(x * torch.as_tensor(w).mean(), 1.0), obs=y)

    return model


def _with(prior: Callable[[], dist.Distribution], found: Reparam) -> Model:
    return poutine.reparam(_of_prior(prior), config={"w": found})


def normal() -> dist.Distribution:
    return dist.Normal(torch.tensor([1.0, -1.0, 0.5, 2.0]), 2.0).to_event(1)


REPARAMETRISATIONS: dict[str, Model] = {
    "`LocScaleReparam`": _with(normal, reparam.LocScaleReparam(0.3)),
    "`TransformReparam`": _with(lambda: dist.LogNormal(0.3, 0.8), reparam.TransformReparam()),
    "`SplitReparam`": _with(normal, reparam.SplitReparam([1, 3], -1)),
    "`DiscreteCosineReparam`": _with(normal, reparam.DiscreteCosineReparam()),
    "`HaarReparam`": _with(normal, reparam.HaarReparam()),
    "`StudentTReparam`": _with(lambda: dist.StudentT(4.0, 1.0, 2.0), reparam.StudentTReparam()),
    "`ProjectedNormalReparam`": _with(
        lambda: dist.ProjectedNormal(torch.tensor([1.0, 0.5])), reparam.ProjectedNormalReparam()
    ),
    "`MinimalReparam`": poutine.reparam(_of_prior(lambda: dist.LogNormal(0.3, 0.8)), config=reparam.MinimalReparam()),
    "`AutoReparam`": poutine.reparam(_of_prior(normal), config=reparam.AutoReparam(centered=0.0)),
    "`StableReparam`": _with(lambda: dist.Stable(1.5, 0.2, 1.0, 0.0), reparam.StableReparam()),
    "`SymmetricStableReparam`": _with(lambda: dist.Stable(1.5, 0.0, 1.0, 0.0), reparam.SymmetricStableReparam()),
    "`UnitJacobianReparam`": _with(
        normal, reparam.UnitJacobianReparam(dist.transforms.Permute(torch.tensor([2, 0, 3, 1])))
    ),
    "`GumbelSoftmaxReparam`": _with(
        lambda: dist.RelaxedOneHotCategorical(torch.tensor(0.7), logits=torch.tensor([0.1, 0.4, -0.3])),
        reparam.GumbelSoftmaxReparam(),
    ),
    "`LatentStableReparam`": _with(lambda: dist.Stable(1.5, 0.2, 1.0, 0.0), reparam.LatentStableReparam()),
}


def t(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def common_priors(dist: Any, t: Callable[..., Any], eye: Any) -> dict[str, Callable[[], Any]]:
    """Return the distributions of latent sites that Pyro and NumPyro spell alike, by the rows of the table.

    ``dist`` holds the families, ``t`` makes a vector of numbers, ``eye`` is the unit matrix of two rows.
    """
    return {
        "`AsymmetricLaplace`": lambda: dist.AsymmetricLaplace(0.0, 1.0, 2.0),
        "`Beta`": lambda: dist.Beta(2.0, 3.0),
        "`Cauchy`": lambda: dist.Cauchy(0.0, 1.0),
        "`Chi2`": lambda: dist.Chi2(3.0),
        "`Dirichlet`": lambda: dist.Dirichlet(t(1.0, 2.0, 0.5)),
        "`ExpandedDistribution`": lambda: dist.Gamma(2.0, 1.0).expand([3]).to_event(1),
        "`Exponential`": lambda: dist.Exponential(2.0),
        "`FoldedDistribution`": lambda: dist.FoldedDistribution(dist.Normal(0.5, 1.0)),
        "`Gamma`": lambda: dist.Gamma(2.0, 3.0),
        "`Gumbel`": lambda: dist.Gumbel(0.0, 1.0),
        "`HalfCauchy`": lambda: dist.HalfCauchy(1.0),
        "`HalfNormal`": lambda: dist.HalfNormal(1.0),
        "`InverseGamma`": lambda: dist.InverseGamma(3.0, 2.0),
        "`Kumaraswamy`": lambda: dist.Kumaraswamy(2.0, 3.0),
        "`LKJ`": lambda: dist.LKJ(3, 1.5),
        "`LKJCholesky`": lambda: dist.LKJCholesky(3, 1.5),
        "`Laplace`": lambda: dist.Laplace(0.0, 1.0),
        "`LogNormal`": lambda: dist.LogNormal(0.0, 1.0),
        "`Logistic`": lambda: dist.Logistic(0.0, 1.0),
        "`MixtureSameFamily`": lambda: dist.MixtureSameFamily(
            dist.Categorical(t(0.3, 0.7)), dist.Normal(t(-1.0, 1.0), 0.5)
        ),
        "`MultivariateNormal`": lambda: dist.MultivariateNormal(t(0.0, 1.0), eye),
        "`MultivariateStudentT`": lambda: dist.MultivariateStudentT(4.0, t(0.0, 1.0), eye),
        "`Normal`": lambda: dist.Normal(0.0, 1.0),
        "`Pareto`": lambda: dist.Pareto(1.0, 3.0),
        "`SoftLaplace`": lambda: dist.SoftLaplace(0.0, 1.0),
        "`StudentT`": lambda: dist.StudentT(4.0, 0.0, 1.0),
        "`TransformedDistribution` with `OrderedTransform`": lambda: dist.TransformedDistribution(
            dist.Normal(t(0.0, 0.0, 0.0), 1.0).to_event(1), [dist.transforms.OrderedTransform()]
        ),
        "`Uniform`": lambda: dist.Uniform(-1.0, 2.0),
        "`Weibull`": lambda: dist.Weibull(1.0, 2.0),
    }


LATENT: dict[str, Model] = {
    name: _of_prior(prior)
    for name, prior in [
        *sorted(
            {
                **common_priors(dist, t, torch.eye(2, dtype=torch.float64)),
                "`AffineBeta`": lambda: dist.AffineBeta(2.0, 3.0, -1.0, 4.0),
                "`LowRankMultivariateNormal`": lambda: dist.LowRankMultivariateNormal(
                    t(0.0, 1.0), t(1.0, 2.0)[:, None], t(1.0, 1.0)
                ),
                "`MaskedDistribution`": lambda: dist.Normal(0.0, 1.0).mask(True),
                "`OMTMultivariateNormal`": lambda: dist.OMTMultivariateNormal(
                    t(0.0, 1.0), torch.eye(2, dtype=torch.float64)
                ),
                "`SineBivariateVonMises`": lambda: dist.SineBivariateVonMises(0.0, 0.0, 1.0, 1.0, 0.3),
                "`SkewLogistic`": lambda: dist.SkewLogistic(0.0, 1.0, 2.0),
                "`SoftAsymmetricLaplace`": lambda: dist.SoftAsymmetricLaplace(0.0, 1.0, 2.0, 1.0),
                "`TransformedDistribution`": lambda: dist.TransformedDistribution(
                    dist.Normal(0.0, 1.0), [transforms.AffineTransform(1.0, 2.0), transforms.ExpTransform()]
                ),
                "`VonMises`": lambda: dist.VonMises(0.0, 2.0),
            }.items(),
            key=lambda row: row[0].strip("`"),
        ),
        *{
            f"`ImproperUniform`, {name}": (
                lambda support=support, shape=shape: dist.ImproperUniform(support, (), shape)
            )
            for name, support, shape in (
                ("real", constraints.real, ()),
                ("positive", constraints.positive, ()),
                ("interval", constraints.interval(-1.0, 3.0), ()),
                ("simplex", constraints.simplex, (3,)),
                ("ordered", constraints.ordered_vector, (3,)),
                ("positive and ordered", constraints.positive_ordered_vector, (3,)),
                ("correlation matrix's Cholesky factor", constraints.corr_cholesky, (3, 3)),
            )
        }.items(),
    ]
}


def _observed(fn: Callable[[Tensor, Tensor], dist.Distribution], values: Callable[[Tensor], Tensor]) -> Model:
    """Return a model with a positive and a real latent value, and an outcome of a family."""

    def model(x: Tensor, y: Tensor | None = None) -> None:
        w = pyro.sample("w", dist.Normal(0.0, 1.0))
        s = pyro.sample("s", dist.Gamma(3.0, 2.0))
        with pyro.plate("data", len(x)):
            pyro.sample("y", fn(w * x, s), obs=None if y is None else values(y))

    return model


def counts(y: Tensor) -> Tensor:
    return (3 * y.abs()).floor()


def shares(y: Tensor) -> Tensor:
    return y.sigmoid()


OBSERVED: dict[str, Model] = {
    name: _observed(fn, values)
    for name, (fn, values) in {
        "`AsymmetricLaplace`": (lambda f, s: dist.AsymmetricLaplace(f, s, 1.5), lambda y: y),
        "`Bernoulli`": (lambda f, s: dist.Bernoulli(logits=f * s), lambda y: (y > 0).to(y.dtype)),
        "`Beta`": (lambda f, s: dist.Beta(f.exp(), s), shares),
        "`BetaBinomial`": (lambda f, s: dist.BetaBinomial(f.exp(), s, 9), counts),
        "`Binomial`": (lambda f, s: dist.Binomial(9, logits=f * s), counts),
        "`Categorical`": (
            lambda f, s: dist.Categorical(logits=torch.stack([f, s * f, -f], -1)),
            lambda y: (y > 0).long() + (y > 0.5).long(),
        ),
        "`Cauchy`": (lambda f, s: dist.Cauchy(f, s), lambda y: y),
        "`DirichletMultinomial`": (
            lambda f, s: dist.DirichletMultinomial(torch.stack([f.exp(), s + 0 * f], -1), 9),
            lambda y: torch.stack([counts(y), 9 - counts(y)], -1),
        ),
        "`Exponential`": (lambda f, s: dist.Exponential(f.exp() * s), lambda y: y.abs()),
        "`FoldedDistribution`": (lambda f, s: dist.FoldedDistribution(dist.Normal(f, s)), lambda y: y.abs()),
        "`Gamma`": (lambda f, s: dist.Gamma(s, f.exp()), lambda y: y.abs()),
        "`GammaPoisson`": (lambda f, s: dist.GammaPoisson(s, f.exp()), counts),
        "`Geometric`": (lambda f, s: dist.Geometric(logits=f * s), counts),
        "`Gumbel`": (lambda f, s: dist.Gumbel(f, s), lambda y: y),
        "`InverseGamma`": (lambda f, s: dist.InverseGamma(s, f.exp()), lambda y: y.abs()),
        "`Laplace`": (lambda f, s: dist.Laplace(f, s), lambda y: y),
        "`LogNormal`": (lambda f, s: dist.LogNormal(f, s), lambda y: y.abs()),
        "`LogNormalNegativeBinomial`": (lambda f, s: dist.LogNormalNegativeBinomial(s, f, 0.5), counts),
        "`Logistic`": (lambda f, s: dist.Logistic(f, s), lambda y: y),
        "`MaskedMixture`": (
            lambda f, s: dist.MaskedMixture(f > 0, dist.Normal(f, s), dist.Laplace(f, s)),
            lambda y: y,
        ),
        "`MixtureSameFamily`": (
            lambda f, s: dist.MixtureSameFamily(
                dist.Categorical(t(0.3, 0.7)), dist.Normal(torch.stack([f, f + s], -1), 1.0)
            ),
            lambda y: y,
        ),
        "`Multinomial`": (
            lambda f, s: dist.Multinomial(logits=torch.stack([f, s * f], -1), total_count=9, validate_args=False),
            lambda y: torch.stack([counts(y), 9 - counts(y)], -1),
        ),
        "`MultivariateNormal`": (
            lambda f, s: dist.MultivariateNormal(torch.stack([f, f], -1), s * torch.eye(2, dtype=f.dtype)),
            lambda y: torch.stack([y, -y], -1),
        ),
        "`NegativeBinomial`": (lambda f, s: dist.NegativeBinomial(s, logits=f), counts),
        "`Normal`": (lambda f, s: dist.Normal(f, s), lambda y: y),
        "`OneHotCategorical`": (
            lambda f, s: dist.OneHotCategorical(logits=torch.stack([f, s * f], -1)),
            lambda y: torch.stack([(y > 0).to(y.dtype), (y <= 0).to(y.dtype)], -1),
        ),
        "`OrderedLogistic`": (
            lambda f, s: dist.OrderedLogistic(f, torch.stack([-s, 0 * s, s])),
            lambda y: (y > -0.5).long() + (y > 0).long() + (y > 0.5).long(),
        ),
        "`Pareto`": (lambda f, s: dist.Pareto(0.001, s * f.exp()), lambda y: y.abs() + 0.01),
        "`Poisson`": (lambda f, s: dist.Poisson(s * f.exp()), counts),
        "`SkewLogistic`": (lambda f, s: dist.SkewLogistic(f, s, 1.5), lambda y: y),
        "`SoftLaplace`": (lambda f, s: dist.SoftLaplace(f, s), lambda y: y),
        "`StudentT`": (lambda f, s: dist.StudentT(4.0, f, s), lambda y: y),
        "`VonMises`": (lambda f, s: dist.VonMises(f, s), lambda y: y),
        "`Weibull`": (lambda f, s: dist.Weibull(s, f.exp()), lambda y: y.abs()),
        "`ZeroInflatedDistribution`": (
            lambda f, s: dist.ZeroInflatedDistribution(dist.Poisson(s * f.exp()), gate=t(0.2)),
            counts,
        ),
        "`ZeroInflatedNegativeBinomial`": (
            lambda f, s: dist.ZeroInflatedNegativeBinomial(s, logits=f, gate=t(0.2)),
            counts,
        ),
        "`ZeroInflatedPoisson`": (lambda f, s: dist.ZeroInflatedPoisson(s * f.exp(), gate=t(0.2)), counts),
    }.items()
}


UNCOMPILED = ("`ProjectedNormalReparam`", "`StableReparam`", "`SymmetricStableReparam`", "`LatentStableReparam`")
"""Pyro's code branches on the values of tensors here: no graph can be traced, and the model runs as Python."""

REFUSED: dict[str, tuple[Model, str]] = {
    "`ConjugateReparam`": (
        _with(lambda: dist.Gamma(2.0, 1.0), reparam.ConjugateReparam(dist.Gamma(3.0, 2.0))),
        "The model has no latent sites",
    ),
    "`VonMises3D`": (
        _of_prior(lambda: dist.VonMises3D(t(0.0, 0.0, 2.0))),
        r"^The prior of latent site 'w', VonMises3D, cannot be drawn from, and a fit starts at draws\. Sample 'w'",
    ),
    "`Wishart`": (
        _of_prior(lambda: dist.Wishart(torch.tensor(4.0, dtype=torch.float64), torch.eye(2, dtype=torch.float64))),
        r"^The support of latent site 'w' \(_PositiveDefinite of Wishart\) has no known transform .*Sample L ~ LKJCholesky",
    ),
    "`ImproperUniform`, positive-definite matrix": (
        _of_prior(lambda: dist.ImproperUniform(constraints.positive_definite, (), (2, 2))),
        r"^The support of latent site 'w' \(_PositiveDefinite of ImproperUniform\) has no known transform",
    ),
    "`ImproperUniform`, sphere": (
        _of_prior(lambda: dist.ImproperUniform(constraints.sphere, (), (3,))),
        r"^The support of latent site 'w' \(_Sphere of ImproperUniform\) has no known transform",
    ),
}
