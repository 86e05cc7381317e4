"""Gaussian processes, epidemics, biological sequences, designs, tracks and the other models of the list."""

import math
from typing import Any

import pyro
import pyro.contrib.gp as gp
import pyro.distributions as dist
import torch
from pyro import poutine
from pyro.contrib.epidemiology.models import SimpleSIRModel
from pyro.contrib.mue.models import FactorMuE, ProfileHMM
from pyro.contrib.tracking.distributions import EKFDistribution
from pyro.contrib.tracking.dynamic_models import NcpContinuous
from pyro.distributions import constraints
from pyro.infer import TraceMeanField_ELBO
from pyro.infer.autoguide import AutoDelta, AutoDiagonalNormal
from pyro.infer.reparam import NeuTraReparam
from pyro.nn import PyroSample
from torch import Tensor, nn

import bnnzoo as bz
from tests.helpers.pyro_programs.catalogue import learnt, normal, refused, sampled, svi

__all__: list[str] = []

ROWS = 7
PLACES = torch.linspace(0.0, 3.0, ROWS)
HEIGHTS = torch.sin(PLACES) + 0.1 * normal(ROWS)


def regression() -> gp.models.GPRegression:
    """Return a process with an RBF kernel, whose hyperparameters are parameters."""
    kernel = gp.kernels.RBF(input_dim=1, variance=torch.tensor(1.0), lengthscale=torch.tensor(1.0))
    return gp.models.GPRegression(PLACES, HEIGHTS, kernel, noise=torch.tensor(0.5))


def with_priors() -> gp.models.GPRegression:
    """Return a process whose hyperparameters have priors."""
    found = regression()
    found.kernel.lengthscale = PyroSample(dist.LogNormal(0.0, 1.0))
    found.kernel.variance = PyroSample(dist.LogNormal(0.0, 1.0))
    found.noise = PyroSample(dist.LogNormal(0.0, 1.0))
    return found


WITH_PRIORS = with_priors()
learnt("gp", "GPRegression, maximum likelihood")(regression().model)
sampled("gp", "GPRegression, priors")(WITH_PRIORS.model)
svi("gp", "GPRegression, own guide", WITH_PRIORS.guide)(WITH_PRIORS.model)
SPARSE = gp.models.SparseGPRegression(PLACES, HEIGHTS, gp.kernels.RBF(1), Xu=PLACES[::3].clone(), jitter=1e-5)
learnt("gp", "SparseGPRegression")(SPARSE.model)
VARIATIONAL = gp.models.VariationalGP(
    PLACES, (HEIGHTS > 0).double(), gp.kernels.RBF(1), likelihood=gp.likelihoods.Binary()
)
OUTSIDE = r"site 'likelihood.y' .* draws random numbers outside of pyro.sample"
refused("gp", "VariationalGP", OUTSIDE, method=bz.SVI(guide=VARIATIONAL.guide))(VARIATIONAL.model)
learnt("bo", "")(gp.models.GPRegression(PLACES, HEIGHTS, gp.kernels.Matern52(1), noise=torch.tensor(0.1)).model)

CURVES = normal(4, ROWS, seed=2)
KERNEL = gp.kernels.RBF(2, lengthscale=torch.ones(2))
LATENT = gp.models.SparseGPRegression(torch.zeros(ROWS, 2), CURVES, KERNEL, Xu=normal(3, 2), jitter=1e-5)
LATENT.X = PyroSample(dist.Normal(normal(ROWS, 2, seed=3), 0.1).to_event())
LATENT.autoguide("X", dist.Normal)
svi("gplvm", "", LATENT.guide, elbo=TraceMeanField_ELBO())(LATENT.model)

DEEP = gp.kernels.Warping(gp.kernels.RBF(2, lengthscale=torch.ones(2)), iwarping_fn=nn.Linear(3, 2))
POINTS = normal(ROWS, 3, seed=4)
KERNEL_LEARNING = gp.models.VariationalSparseGP(
    POINTS,
    torch.arange(ROWS) % 2,
    DEEP,
    Xu=POINTS[:3].clone(),
    likelihood=gp.likelihoods.MultiClass(num_classes=2),
    latent_shape=torch.Size([2]),
    whiten=True,
    jitter=1e-5,
)
refused("dkl", "", OUTSIDE, method=bz.SVI(guide=KERNEL_LEARNING.guide))(KERNEL_LEARNING.model)


# sparse_regression: a kernel of pairwise interactions with shrunken inputs
HYPERS = {"expected_sparsity": 1.0, "alpha1": 3.0, "beta1": 1.0, "alpha3": 1.0, "c": 1.0}


def interactions(x: Tensor, y: Tensor, hypers: dict[str, float], jitter: float = 1.0e-4) -> None:
    s, p, n = hypers["expected_sparsity"], x.size(1), x.size(0)
    sigma = pyro.sample("sigma", dist.HalfNormal(hypers["alpha3"]))
    eta1 = pyro.sample("eta1", dist.HalfCauchy(sigma * (s / math.sqrt(n)) / (p - s)))
    msq = pyro.sample("msq", dist.InverseGamma(hypers["alpha1"], hypers["beta1"]))
    xisq = pyro.sample("xisq", dist.InverseGamma(hypers["alpha1"], hypers["beta1"]))
    eta2 = eta1.pow(2.0) * xisq.sqrt() / msq
    lam = pyro.sample("lambda", dist.HalfCauchy(torch.ones(p)).to_event(1))
    kx = msq.sqrt() * lam / (msq + (eta1 * lam).pow(2.0)).sqrt() * x
    var_obs = pyro.sample("var_obs", dist.InverseGamma(3.0, 1.0))
    one, two = eta1.pow(2.0), eta2.pow(2.0)
    k = 0.5 * two * (1.0 + torch.mm(kx, kx.t())).pow(2.0) - 0.5 * two * torch.mm(kx.pow(2.0), kx.pow(2.0).t())
    k = k + (one - two) * torch.mm(kx, kx.t()) + hypers["c"] ** 2 - 0.5 * two + (var_obs + jitter) * torch.eye(n)
    pyro.sample("Y", dist.MultivariateNormal(torch.zeros(n), covariance_matrix=k), obs=y)


svi("sparse_regression", "AutoDelta", AutoDelta, POINTS, HEIGHTS, HYPERS)(interactions)
sampled("sparse_regression", "NUTS", POINTS, HEIGHTS, HYPERS)(interactions)


# neutra: a density of the user's own, and coordinates in which it is close to normal
class Banana(dist.TorchDistribution):
    support = constraints.real_vector
    arg_constraints: dict[str, Any] = {}

    def __init__(self, a: float, b: float) -> None:
        self.a, self.b = a, b
        self.mvn = dist.MultivariateNormal(torch.zeros(2), torch.tensor([[1.0, 0.9], [0.9, 1.0]]))
        super().__init__(event_shape=(2,))

    def sample(self, sample_shape: Any = ()) -> Tensor:
        u0, u1 = self.mvn.sample(sample_shape).unbind(-1)
        return torch.stack([self.a * u0, u1 / self.a + self.b * (u0**2 + self.a**2)], -1)

    def log_prob(self, x: Tensor) -> Tensor:
        u0 = x[..., 0] / self.a
        u1 = (x[..., 1] - self.b * (u0**2 + self.a**2)) * self.a
        return self.mvn.log_prob(torch.stack([u0, u1], dim=-1))


@sampled("neutra", "", 1.15, 1.0)
def banana(a: float, b: float) -> None:
    pyro.sample("x", Banana(a, b))


WARP = AutoDiagonalNormal(banana, init_scale=0.05)
WARP(1.15, 1.0)
WARPED = poutine.reparam(banana, config=lambda _: NeuTraReparam(WARP.requires_grad_(False)))
sampled("neutra", "NeuTraReparam", 1.15, 1.0, with_values=False)(WARPED)

# epidemics: models of pyro.contrib.epidemiology have inference of their own, for which they are relaxed

RELAXED = SimpleSIRModel(population=20, recovery_time=3.0, data=torch.tensor([1.0, 2.0, 1.0]))
RELAXED.num_quant_bins, RELAXED.relaxed = 1, True
sampled("epi_intro", "its relaxed model")(RELAXED._relaxed_model)

# logistic-growth: shares of strains over time, in regions
WEEKS = torch.tensor([[[5.0, 1], [4, 2]], [[3, 4], [2, 5]], [[1, 6], [0, 4]]])  # three times, two places, two strains


@sampled("logistic-growth", "", WEEKS)
def strains(counts: Tensor) -> None:
    times, places, kinds = counts.shape
    time = torch.arange(float(times)) * 28 / 365.25
    time = (time - time.max())[:, None, None]
    rate_scale = pyro.sample("rate_scale", dist.LogNormal(-4, 2))
    init_scale = pyro.sample("init_scale", dist.LogNormal(0, 2))
    with pyro.plate("strain", kinds, dim=-1):
        rate = pyro.sample("rate", dist.Normal(0, rate_scale))
        with pyro.plate("place", places, dim=-2):
            init = pyro.sample("init", dist.Normal(0, init_scale))
    logits = init + rate * time
    with pyro.plate("time", times, dim=-2), pyro.plate("region", places, dim=-1):
        pyro.sample("obs", dist.Multinomial(logits=logits, validate_args=False), obs=counts)


# sequences of letters that were inserted, deleted and substituted
LETTERS = nn.functional.one_hot(torch.tensor([[0, 1, 1, 0], [0, 1, 0, 0]]), 2).double()
PROFILE, FACTORS = ProfileHMM(4, 2), FactorMuE(4, 2, 1)
svi("mue_profile", "", PROFILE.guide, LETTERS, 1.0)(PROFILE.model)
svi("mue_factor", "", FACTORS.guide, LETTERS, 1.0, 1.0)(FACTORS.model)


# designs of experiments: what is learnt from them
@sampled("working_memory", "", torch.tensor([[5.0, 7.0, 9.0]]), torch.tensor([[1.0, 1.0, 0.0]]))
def memory(lengths: Tensor, y: Tensor | None = None) -> Tensor:
    with pyro.plate_stack("plate", lengths.shape[:-1]):
        theta = pyro.sample("theta", dist.Normal(torch.tensor(7.0), torch.tensor(2.0))).unsqueeze(-1)
        return pyro.sample("y", dist.Bernoulli(logits=theta - lengths).to_event(1), obs=y)


STATES = 3
COVARIANCE = torch.eye(STATES) + 0.3


@sampled("elections", "", torch.tensor([10.0, 0.0, 20.0]), torch.tensor([6.0, 0.0, 9.0]))
def polls(allocation: Tensor, y: Tensor | None = None) -> None:
    with pyro.plate_stack("plates", allocation.shape[:-1]):
        theta = pyro.sample("theta", dist.MultivariateNormal(torch.zeros(STATES), covariance_matrix=COVARIANCE))
        pyro.deterministic("w", (theta.sigmoid() > 0.5).double().sum(-1) / STATES)
        pyro.sample("y", dist.Binomial(allocation, logits=theta).to_event(1), obs=y)


# ab_test: weights of two groups, by the library's own linear model
@sampled("ab_test", "", torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), torch.tensor([1.0, 2.0, 3.0]))
def groups(design: Tensor, y: Tensor | None = None) -> None:
    w = pyro.sample("w", dist.Normal(torch.zeros(2), torch.tensor([10.0, 2.5])).to_event(1))
    pyro.sample("y", dist.Normal(design @ w, 1.0).to_event(1), obs=y)


# tracks: positions seen by a filter, and an unknown number of objects
TRACK = torch.stack([torch.linspace(0, 1, 5), torch.linspace(1, 0, 5)], -1)


@sampled("ekf", "", TRACK)
def filtered(data: Tensor) -> None:
    r = pyro.sample("pv_cov", dist.HalfCauchy(0.1)) * torch.eye(4)
    q = pyro.sample("measurement_cov", dist.HalfCauchy(0.1)) * torch.eye(2)
    start = torch.cat([data[0], torch.zeros(2)])
    track = EKFDistribution(start, r + 0.1 * torch.eye(4), NcpContinuous(4, 2.0), q + 0.1 * torch.eye(2), time_steps=5)
    pyro.sample("track", track, obs=data)


DETECTIONS = torch.stack([normal(3, 2, seed=5), torch.ones(3, 2)], -1)


@refused("tracking_1d", "", "cannot be run with all values of 'exists', 'assign' at once", DETECTIONS)
def tracked(observations: Tensor) -> None:
    frames, most = observations.shape[0], 2
    time = torch.arange(float(frames)) / 4
    with pyro.plate("objects", most):
        exists = pyro.sample("exists", dist.Bernoulli(0.7))
        with poutine.mask(mask=exists.bool()):
            states = pyro.sample("states", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
            positions = torch.stack([time.cos(), time.sin()], -1).mm(states.t())
    with pyro.plate("detections", observations.shape[1]), pyro.plate("time", frames):
        assign = pyro.sample("assign", dist.Categorical(torch.ones(most + 1)))
        with poutine.mask(mask=assign == most):
            pyro.sample("spurious", dist.Normal(0.0, 1.0), obs=observations[..., 0])
        with poutine.mask(mask=assign < most):
            padded = torch.cat([positions, positions.new_zeros(frames, 1)], -1)
            predicted = padded.gather(-1, assign)
            pyro.sample("real", dist.Normal(predicted, 0.1), obs=observations[..., 0])


# baseball: four ways of pooling
AT_BATS, HITS = torch.tensor([45.0, 45, 45, 45]), torch.tensor([18.0, 12, 10, 7])


@sampled("baseball", "fully pooled", AT_BATS, HITS)
def fully_pooled(at_bats: Tensor, hits: Tensor) -> Tensor:
    phi = pyro.sample("phi", dist.Uniform(at_bats.new_tensor(0), at_bats.new_tensor(1)))
    with pyro.plate("num_players", at_bats.shape[0]):
        return pyro.sample("obs", dist.Binomial(at_bats, phi), obs=hits)


@sampled("baseball", "not pooled", AT_BATS, HITS)
def not_pooled(at_bats: Tensor, hits: Tensor) -> Tensor:
    with pyro.plate("num_players", at_bats.shape[0]):
        phi = pyro.sample("phi", dist.Uniform(at_bats.new_tensor(0), at_bats.new_tensor(1)))
        return pyro.sample("obs", dist.Binomial(at_bats, phi), obs=hits)


@sampled("baseball", "partially pooled", AT_BATS, HITS)
def partially_pooled(at_bats: Tensor, hits: Tensor) -> Tensor:
    m = pyro.sample("m", dist.Uniform(at_bats.new_tensor(0), at_bats.new_tensor(1)))
    kappa = pyro.sample("kappa", dist.Pareto(at_bats.new_tensor(1), at_bats.new_tensor(1.5)))
    with pyro.plate("num_players", at_bats.shape[0]):
        phi = pyro.sample("phi", dist.Beta(m * kappa, (1 - m) * kappa))
        return pyro.sample("obs", dist.Binomial(at_bats, phi), obs=hits)


@sampled("baseball", "partially pooled, log odds", AT_BATS, HITS)
def pooled_log_odds(at_bats: Tensor, hits: Tensor) -> Tensor:
    loc = pyro.sample("loc", dist.Normal(at_bats.new_tensor(-1), at_bats.new_tensor(1)))
    scale = pyro.sample("scale", dist.HalfCauchy(scale=at_bats.new_tensor(1)))
    with pyro.plate("num_players", at_bats.shape[0]):
        alpha = pyro.sample("alpha", dist.Normal(loc, scale))
        return pyro.sample("obs", dist.Binomial(at_bats, logits=alpha), obs=hits)


EFFECTS, ERRORS = torch.tensor([28.0, 8, -3, 7]), torch.tensor([15.0, 10, 16, 11])


@sampled("mcmc", "eight schools", EFFECTS, ERRORS)
def schools(y: Tensor, sigma: Tensor) -> Tensor:
    eta = pyro.sample("eta", dist.Normal(torch.zeros(len(y)), torch.ones(len(y))))
    mu = pyro.sample("mu", dist.Normal(torch.zeros(1), 10 * torch.ones(1)))
    tau = pyro.sample("tau", dist.HalfCauchy(scale=25 * torch.ones(1)))
    return pyro.sample("obs", dist.Normal(mu + tau * eta, sigma), obs=y)


@sampled("lkj", "", normal(8, 3))
def correlations(y: Tensor) -> Tensor:
    theta = pyro.sample("theta", dist.HalfCauchy(torch.ones(y.shape[1])))
    factor = pyro.sample("L_omega", dist.LKJCholesky(y.shape[1], torch.ones(())))
    scaled = torch.mm(torch.diag(theta.sqrt()), factor)
    with pyro.plate("observations", y.shape[0]):
        return pyro.sample("obs", dist.MultivariateNormal(torch.zeros(y.shape[1]), scale_tril=scaled), obs=y)


@sampled("csis", "", torch.tensor(0.0), {"x1": torch.tensor(8.0), "x2": torch.tensor(9.0)})
def two_measurements(prior_mean: Tensor, observations: dict[str, Tensor]) -> Tensor:
    x = pyro.sample("z", dist.Normal(prior_mean, torch.tensor(5**0.5)))
    for name in ("x1", "x2"):
        pyro.sample(name, dist.Normal(x, torch.tensor(2**0.5)), obs=observations[name])
    return x


@refused(
    "inclined_plane",
    "",
    "The gradient of the log density is not its derivative at site 'mu'.*numpy",
    torch.tensor([0.9, 1.0]),
)
def inclined_plane(data: Tensor) -> None:
    mu = pyro.sample("mu", dist.Uniform(0.0, 0.5))
    time = torch.tensor(_descent(mu.detach().numpy()))
    for i, t in enumerate(data):
        pyro.sample(f"obs_{i}", dist.Normal(time, 0.02), obs=t)


def _descent(mu: Any, length: float = 2.0, phi: float = math.pi / 6) -> float:
    acceleration = 9.8 * (math.sin(phi) - math.cos(phi) * float(mu))
    return math.sqrt(2 * length / acceleration)


# RSA: a listener and a speaker who think of each other, over values that are listed; nothing is continuous
@refused("RSA-implicature", "", "no latent sites")
def listener() -> None:
    state = pyro.sample("state", dist.Categorical(torch.ones(3)))
    pyro.sample("utterance", dist.Categorical(torch.eye(3)[state] + 0.1), obs=torch.tensor(1))
