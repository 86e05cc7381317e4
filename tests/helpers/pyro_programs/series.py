"""Forecasts of series, stable distributions, and several experts about one series."""

import math
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from pyro import poutine
from pyro.contrib.forecast import ForecastingModel
from pyro.infer.autoguide import AutoNormal
from pyro.infer.reparam import (
    DiscreteCosineReparam,
    LinearHMMReparam,
    LocScaleReparam,
    SplitReparam,
    StableReparam,
    SymmetricStableReparam,
)
from pyro.nn import PyroModule, PyroSample
from pyro.nn.module import PyroModuleList
from pyro.ops.tensor_utils import periodic_cumsum, periodic_repeat
from torch import Tensor

from tests.helpers.pyro_programs.catalogue import normal, sampled, svi

__all__: list[str] = []

STEPS = 8
ONE, TWO = normal(STEPS, 1), normal(STEPS, 2, seed=1)
FEATURES, NOTHING = normal(STEPS, 3, seed=2), torch.zeros(STEPS, 0)


class Linear(ForecastingModel):
    def model(self, zero_data: Tensor, covariates: Tensor) -> None:
        bias = pyro.sample("bias", dist.Normal(0, 10))
        weight = pyro.sample("weight", dist.Normal(0, 0.1).expand([covariates.size(-1)]).to_event(1))
        prediction = bias + (weight * covariates).sum(-1, keepdim=True)
        noise_scale = pyro.sample("noise_scale", dist.LogNormal(-5, 5).expand([1]).to_event(1))
        self.predict(dist.Normal(0, noise_scale), prediction)


class Drifting(ForecastingModel):
    """A drift at each time, in cosines, beside covariates."""

    def model(self, zero_data: Tensor, covariates: Tensor) -> None:
        bias = pyro.sample("bias", dist.Normal(0, 10).expand([1]).to_event(1))
        weight = pyro.sample("weight", dist.Normal(0, 0.1).expand([covariates.size(-1)]).to_event(1))
        drift_scale = pyro.sample("drift_scale", dist.LogNormal(-2, 1).expand([1]).to_event(1))
        with self.time_plate, poutine.reparam(config={"drift": LocScaleReparam()}):
            drift = pyro.sample("drift", dist.Normal(zero_data, drift_scale).to_event(1))
        prediction = drift.cumsum(-2) + bias + (weight * covariates).sum(-1, keepdim=True)
        scale = pyro.sample("noise_scale", dist.LogNormal(-2, 1).expand([1]).to_event(1))
        self.predict(dist.StudentT(pyro.sample("nu", dist.Gamma(10.0, 2.0)), zero_data, scale), prediction)


class Cosines(ForecastingModel):
    def model(self, zero_data: Tensor, covariates: Tensor) -> None:
        scale = pyro.sample("drift_scale", dist.LogNormal(-2, 1).expand([1]).to_event(1))
        with self.time_plate, poutine.reparam(config={"drift": DiscreteCosineReparam()}):
            drift = pyro.sample("drift", dist.Normal(zero_data, scale).to_event(1))
        self.predict(dist.Normal(zero_data, 1.0), drift.cumsum(-2))


class StateSpace(ForecastingModel):
    """Seasons, and noise of a linear Gaussian chain."""

    def model(self, zero_data: Tensor, covariates: Tensor) -> None:
        duration, dim = zero_data.shape[-2:]
        timescale = pyro.sample("timescale", dist.LogNormal(torch.zeros(dim), 1).to_event(1))
        trans_scale = pyro.sample("trans_scale", dist.LogNormal(torch.zeros(dim), 0.1).to_event(1))
        trans_corr = pyro.sample("trans_corr", dist.LKJCholesky(dim, torch.ones(())))
        obs_scale = pyro.sample("obs_scale", dist.LogNormal(torch.zeros(dim), 0.1).to_event(1))
        with pyro.plate("season_plate", 3, dim=-1):
            season = pyro.sample("season_init", dist.Normal(torch.zeros(dim), 1).to_event(1))
        with self.time_plate:
            noise = pyro.sample("season_noise", dist.Normal(zero_data, 0.1).to_event(1))
        prediction = periodic_repeat(season, duration, dim=-2) + periodic_cumsum(noise, 3, dim=-2)
        chain = dist.GaussianHMM(
            dist.Normal(torch.zeros(dim), 100).to_event(1),
            timescale.neg().exp().diag_embed(),
            dist.MultivariateNormal(torch.zeros(dim), scale_tril=trans_scale.unsqueeze(-1) * trans_corr),
            torch.eye(dim),
            dist.Normal(torch.zeros(dim), obs_scale).to_event(1),
            duration=duration,
        )
        self.predict(chain, prediction)


class HeavyTailed(ForecastingModel):
    """A chain whose noise is stable, which a reparametrisation makes Gaussian."""

    def model(self, zero_data: Tensor, covariates: Tensor) -> None:
        duration = zero_data.size(-2)
        timescale = pyro.sample("timescale", dist.LogNormal(math.log(4), 1))
        trans_scale = pyro.sample("trans_scale", dist.LogNormal(-1.0, 1))
        obs_scale = pyro.sample("obs_scale", dist.LogNormal(-2, 1))
        stability = pyro.sample("stability", dist.Uniform(1, 2).expand([1]).to_event(1))
        skew = pyro.sample("skew", dist.Uniform(-1, 1).expand([1]).to_event(1))
        chain = dist.LinearHMM(
            dist.Normal(0, 10).expand([1]).to_event(1),
            torch.exp(-1 / timescale)[..., None, None],
            dist.Stable(stability, 0, trans_scale.unsqueeze(-1)).to_event(1),
            torch.tensor([[1.0]]),
            dist.Stable(stability, skew, obs_scale.unsqueeze(-1)).to_event(1),
            duration=duration,
        )
        parts = LinearHMMReparam(None, SymmetricStableReparam(), StableReparam())
        with poutine.reparam(config={"residual": parts}):
            self.predict(chain, zero_data)


class Journeys(ForecastingModel):
    """Series from each place to each other, with effects of both."""

    def model(self, zero_data: Tensor, covariates: Tensor) -> None:
        origins, destins, duration, _ = zero_data.shape
        origin_plate = pyro.plate("origin", origins, dim=-3)
        destin_plate = pyro.plate("destin", destins, dim=-2)
        hour_plate = pyro.plate("hour", 3, dim=-1)
        drift_scale = pyro.sample("drift_scale", dist.LogNormal(-3, 1))
        with origin_plate, hour_plate:
            seasonal = pyro.sample("origin_seasonal", dist.Normal(0, 1))
        with destin_plate:
            with self.time_plate, poutine.reparam(config={"drift": LocScaleReparam(centered=0.0)}):
                drift = pyro.sample("drift", dist.Normal(0, drift_scale))
            scale = pyro.sample("destin_scale", dist.LogNormal(-1, 1))
        with origin_plate, destin_plate:
            pairwise = pyro.sample("pairwise", dist.Normal(0, 1))
        prediction = (periodic_repeat(seasonal, duration, dim=-1) + drift.cumsum(-1) + pairwise).unsqueeze(-1)
        with origin_plate, destin_plate:
            self.predict(dist.Normal(0, scale.unsqueeze(-1)), prediction)


class Varying(ForecastingModel):
    """Of the tutorial of dynamic linear models: coefficients that walk."""

    def model(self, zero_data: Tensor, covariates: Tensor) -> None:
        drift_scale = pyro.sample("drift_scale", dist.LogNormal(-10, 10).expand([covariates.size(-1)]).to_event(1))
        with self.time_plate, poutine.reparam(config={"drift": LocScaleReparam(centered=0.0)}):
            drift = pyro.sample("drift", dist.Normal(torch.zeros(covariates.size()), drift_scale).to_event(1))
        weight = drift.cumsum(-2)
        prediction = (weight * covariates).sum(-1, keepdim=True)
        pyro.deterministic("weight", weight)
        scale = pyro.sample("noise_scale", dist.LogNormal(-5, 10).expand([1]).to_event(1))
        self.predict(dist.Normal(0, scale), prediction)


sampled("forecasting_i", "linear, NUTS", ONE, FEATURES)(Linear())
svi("forecasting_i", "linear, AutoNormal", AutoNormal, ONE, FEATURES)(Linear())
svi("forecasting_i", "drift", AutoNormal, ONE, FEATURES)(Drifting())
svi("forecasting_i", "drift in cosines", AutoNormal, ONE, NOTHING)(Cosines())
sampled("forecasting_ii", "Gaussian chain", TWO, NOTHING)(StateSpace())
svi("forecasting_ii", "stable chain", AutoNormal, ONE, NOTHING)(HeavyTailed())
sampled("forecasting_iii", "", normal(2, 3, STEPS, 1, seed=3), NOTHING)(Journeys())
sampled("forecasting_dlm", "", ONE, FEATURES)(Varying())
svi("forecast_simple", "", AutoNormal, TWO, NOTHING)(StateSpace())


# stable: returns whose volatility walks
def returns(data: Tensor) -> None:
    h_0 = pyro.sample("h_0", dist.Normal(0, 1)).unsqueeze(-1)
    sigma = pyro.sample("sigma", dist.LogNormal(0, 1)).unsqueeze(-1)
    v = pyro.sample("v", dist.Normal(0, 1).expand(data.shape).to_event(1))
    log_h = pyro.deterministic("log_h", h_0 + sigma * v.cumsum(dim=-1))
    r_loc = pyro.sample("r_loc", dist.Normal(0, 1e-2)).unsqueeze(-1)
    r_skew = pyro.sample("r_skew", dist.Uniform(-1, 1)).unsqueeze(-1)
    r_stability = pyro.sample("r_stability", dist.Uniform(0, 2)).unsqueeze(-1)
    pyro.sample("r", dist.Stable(r_stability, r_skew, (log_h / 2).exp(), r_loc * len(data)).to_event(1), obs=data)


PARTS = {"v": DiscreteCosineReparam(), "r": StableReparam()}
svi("stable", "StableReparam", AutoNormal, normal(STEPS))(poutine.reparam(returns, config=PARTS))


# reconciling_experts: walks with scales of their own, which are split, conditioned and equalised
class CumSum(dist.transforms.Transform):
    domain = codomain = dist.constraints.independent(dist.constraints.real, 1)
    bijective = True

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x.new_zeros(x.shape[:-1])

    def _call(self, x: Tensor) -> Tensor:
        return x.cumsum(dim=-1)

    def _inverse(self, y: Tensor) -> Tensor:
        return torch.diff(y, prepend=y.new_zeros((*y.shape[:-1], 1)))


class Expert(PyroModule):
    def __init__(self, num_steps: int, scale: Any) -> None:
        super().__init__()
        self.scale, self.loc, self.num_steps = scale, torch.tensor(0.0), num_steps
        self.obs = PyroSample(lambda self: dist.TransformedDistribution(self.innovations(), CumSum()))

    def innovations(self) -> Any:
        eps = dist.Normal(self.loc[..., None], self.scale[..., None])
        return eps.expand((*eps.batch_shape[:-1], self.num_steps)).to_event(1)

    def forward(self) -> Tensor:
        return self.obs


class Experts(PyroModule):
    def __init__(self, num_experts: int, num_steps: int) -> None:
        super().__init__()
        own = [Expert(num_steps, PyroSample(dist.LogNormal(0, 1))) for _ in range(num_experts)]
        self.experts = PyroModuleList(own)

    def forward(self) -> Tensor:
        return torch.cat([expert()[..., None] for expert in self.experts], dim=-1)


EXPERTS = Experts(2, 6)
SPLIT = poutine.reparam(EXPERTS, config={f"experts.{i}.obs": SplitReparam([3, 3], dim=-1) for i in range(2)})
CONDITIONED = poutine.condition(SPLIT, data={f"experts.{i}.obs_split_0": normal(3, seed=i) for i in range(2)})
EQUAL = poutine.equalize(CONDITIONED, ["experts.0.obs_split_1", "experts.1.obs_split_1"])
sampled("reconciling_experts", "experts")(EXPERTS)
sampled("reconciling_experts", "conditioned")(CONDITIONED)
sampled("reconciling_experts", "equalised", with_values=False)(EQUAL)
