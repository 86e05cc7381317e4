"""Models of the introductory tutorials, of those about shapes and modules, and of those about guides."""

import pyro
import pyro.distributions as dist
import torch
import torch.nn.functional as F
from pyro import poutine
from pyro.contrib.easyguide import easy_guide
from pyro.distributions import constraints
from pyro.distributions.transforms import AffineTransform, affine_autoregressive
from pyro.infer import RenyiELBO, TraceGraph_ELBO, TraceMeanField_ELBO
from pyro.infer.autoguide import AutoGuideList, AutoMultivariateNormal, AutoNormal
from pyro.infer.reparam import AutoReparam, LocScaleReparam
from pyro.nn import PyroModule, PyroParam, PyroSample
from torch import Tensor, nn

from tests.helpers.pyro_programs.catalogue import learnt, normal, refused, sampled, svi

__all__: list[str] = []

ROWS = 12
INPUT, AFRICA = normal(ROWS), (normal(ROWS, seed=1) > 0).double()
OUTCOME = 1.0 + 0.5 * INPUT + 0.2 * normal(ROWS, seed=2)
TOSSES = torch.tensor([1.0, 1, 1, 1, 0, 0])
TOSS_LIST = list(TOSSES)


# intro_long: a regression with an interaction, by maximum likelihood and with priors
@learnt("intro_long", "maximum likelihood", AFRICA, INPUT, OUTCOME)
def likelihood_only(africa: Tensor, ruggedness: Tensor, gdp: Tensor | None = None) -> Tensor:
    a, b = (pyro.param(name, lambda: torch.tensor(0.1)) for name in ("a", "bA"))
    c, d = (pyro.param(name, lambda: torch.tensor(0.1)) for name in ("bR", "bAR"))
    sigma = pyro.param("sigma", lambda: torch.tensor(1.0), constraint=constraints.positive)
    with pyro.plate("data", len(ruggedness)):
        return pyro.sample(
            "obs", dist.Normal(a + b * africa + c * ruggedness + d * africa * ruggedness, sigma), obs=gdp
        )


def interaction(africa: Tensor, ruggedness: Tensor, gdp: Tensor | None = None) -> Tensor:
    a = pyro.sample("a", dist.Normal(0.0, 10.0))
    b, c, d = (pyro.sample(name, dist.Normal(0.0, 1.0)) for name in ("bA", "bR", "bAR"))
    sigma = pyro.sample("sigma", dist.Uniform(0.0, 10.0))
    mean = a + b * africa + c * ruggedness + d * africa * ruggedness
    with pyro.plate("data", len(ruggedness)):
        return pyro.sample("obs", dist.Normal(mean, sigma), obs=gdp)


def _own_guide(africa: Tensor, ruggedness: Tensor, gdp: Tensor | None = None) -> None:
    for name in ("a", "bA", "bR", "bAR"):
        loc = pyro.param(f"{name}_loc", lambda: torch.tensor(0.0))
        scale = pyro.param(f"{name}_scale", lambda: torch.tensor(0.5), constraint=constraints.positive)
        pyro.sample(name, dist.Normal(loc, scale))
    loc = pyro.param("sigma_loc", lambda: torch.tensor(1.0), constraint=constraints.positive)
    pyro.sample("sigma", dist.Normal(loc, torch.tensor(0.05)))


sampled("intro_long", "interaction, NUTS", AFRICA, INPUT, OUTCOME)(interaction)
svi("intro_long", "interaction, own guide", _own_guide, AFRICA, INPUT, OUTCOME)(interaction)
svi("intro_long", "interaction, AutoMultivariateNormal", AutoMultivariateNormal, AFRICA, INPUT, OUTCOME)(interaction)
sampled("bayesian_regression_ii", "", AFRICA, INPUT, OUTCOME)(interaction)


@sampled("model_rendering", "normal", OUTCOME)
def normal_scale(data: Tensor) -> None:
    m = pyro.sample("m", dist.Normal(0, 1))
    sd = pyro.sample("sd", dist.LogNormal(m, 1))
    with pyro.plate("N", len(data)):
        pyro.sample("obs", dist.Normal(m, sd), obs=data)


@sampled("model_rendering", "annotators", torch.tensor([0, 0, 1, 2]), (normal(6, 4, seed=3) > 0).long() + 1)
def annotators(positions: Tensor, annotations: Tensor) -> None:
    num_annotators, num_classes = int(torch.max(positions)) + 1, int(torch.max(annotations)) + 1
    num_items, num_positions = annotations.shape
    with pyro.plate("annotator", num_annotators):
        epsilon = pyro.sample("ε", dist.Dirichlet(torch.full((num_classes,), 10.0)))
        theta = pyro.sample("θ", dist.Beta(0.5, 0.5))
    with pyro.plate("item", num_items, dim=-2):
        c = pyro.sample("c", dist.Categorical(logits=torch.zeros(num_classes)))
        with pyro.plate("position", num_positions):
            s = pyro.sample("s", dist.Bernoulli(1 - theta[positions]))
            probs = torch.where(s[..., None] == 0, F.one_hot(c, num_classes).float(), epsilon[positions])
            pyro.sample("y", dist.Categorical(probs), obs=annotations)


# svi_part_i and svi_part_iii: a coin, its tosses in a list
def coin(data: list[Tensor]) -> None:
    fairness = pyro.sample("latent_fairness", dist.Beta(torch.tensor(10.0), torch.tensor(10.0)))
    for i in range(len(data)):
        pyro.sample(f"obs_{i}", dist.Bernoulli(fairness), obs=data[i])


def coin_guide(data: list[Tensor]) -> None:
    alpha = pyro.param("alpha_q", torch.tensor(15.0), constraint=constraints.positive)
    beta = pyro.param("beta_q", torch.tensor(15.0), constraint=constraints.positive)
    pyro.sample("latent_fairness", dist.Beta(alpha, beta))


svi("svi_part_i", "", coin_guide, TOSS_LIST)(coin)
sampled("svi_part_i", "NUTS", TOSS_LIST)(coin)


@svi("svi_part_iii", "decaying baseline", coin_guide, TOSSES, elbo=TraceGraph_ELBO())
def coin_in_a_plate(data: Tensor) -> None:
    fairness = pyro.sample("latent_fairness", dist.Beta(torch.tensor(10.0), torch.tensor(10.0)))
    with pyro.plate("data_plate"):
        pyro.sample("obs", dist.Bernoulli(fairness).expand(data.shape), obs=data)


class Regression(PyroModule):
    def __init__(self, num_inputs: int, num_outputs: int) -> None:
        super().__init__()
        self.linear = PyroModule[nn.Linear](num_inputs, num_outputs)
        self.linear.weight = PyroSample(dist.Normal(0.0, 1.0).expand([num_outputs, num_inputs]).to_event(2))
        self.linear.bias = PyroSample(dist.Normal(0.0, 10.0).expand([num_outputs]).to_event(1))

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        sigma = pyro.sample("sigma", dist.Uniform(0.0, 10.0))
        mean = self.linear(x).squeeze(-1)
        with pyro.plate("data", x.shape[0]):
            pyro.sample("obs", dist.Normal(mean, sigma), obs=y)
        return mean


sampled("bayesian_regression", "", torch.stack([AFRICA, INPUT], -1), OUTCOME)(Regression(2, 1))


@sampled("tensor_shapes", "first")
def shapes() -> None:
    a = pyro.sample("a", dist.Normal(0, 1))
    b = pyro.sample("b", dist.Normal(torch.zeros(2), 1).to_event(1))
    with pyro.plate("c_plate", 2):
        c = pyro.sample("c", dist.Normal(torch.zeros(2), 1))
    with pyro.plate("d_plate", 3):
        d = pyro.sample("d", dist.Normal(torch.zeros(3, 4, 5), 1).to_event(2))
    assert (a.shape, b.shape, c.shape, d.shape) == ((), (2,), (2,), (3, 4, 5))


@sampled("tensor_shapes", "two plates")
def two_plates() -> None:
    x_axis, y_axis = pyro.plate("x_axis", 3, dim=-2), pyro.plate("y_axis", 2, dim=-3)
    with x_axis:
        x = pyro.sample("x", dist.Normal(0, 1))
    with y_axis:
        y = pyro.sample("y", dist.Normal(0, 1))
    with x_axis, y_axis:
        xy = pyro.sample("xy", dist.Normal(0, 1))
        z = pyro.sample("z", dist.Normal(0, 1).expand([5]).to_event(1))
    assert (x.shape, y.shape, xy.shape, z.shape) == ((3, 1), (2, 1, 1), (2, 3, 1), (2, 3, 1, 5))


@learnt("tensor_shapes", "sprites", torch.ones(8, 8))
def sprites(image: Tensor) -> None:
    width = height = len(image)
    p_x = pyro.param("p_x", lambda: torch.full((3,), 0.4), constraint=constraints.simplex)
    sizes = torch.tensor([1.0, 3.0, 5.0])
    with pyro.plate("x_axis", width, dim=-2), pyro.plate("y_axis", height, dim=-1):
        size = pyro.sample("size", dist.Categorical(p_x.expand(width, height, 3)))
        pyro.sample("pixel", dist.Normal(sizes[size], 1.0), obs=image)


class WithParameters(PyroModule):
    """Of the modules tutorial: a parameter with a constraint, one with a prior, and a prior that depends on another."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = PyroParam(torch.tensor(0.0))
        self.sd = PyroParam(torch.tensor(1.0), constraint=constraints.positive)
        self.scale = PyroSample(dist.LogNormal(0.0, 1.0))
        self.weight = PyroSample(lambda self: dist.Normal(0.0, self.scale))

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        mean = self.weight * x + self.bias
        with pyro.plate("instances", len(x)):
            return pyro.sample("obs", dist.Normal(mean, self.sd), obs=y)


svi("modules", "parameters and priors", AutoNormal, INPUT, OUTCOME)(WithParameters())


@sampled("workflow", "", normal(4, 3))
def crossed(data: Tensor) -> None:
    i_plate = pyro.plate("i", data.shape[-2], dim=-2)
    j_plate = pyro.plate("j", data.shape[-1], dim=-1)
    a, b = pyro.sample("a", dist.Normal(0, 1)), pyro.sample("b", dist.Normal(0, 1))
    with i_plate:
        ai = pyro.sample("ai", dist.Normal(a, 1))
    with j_plate:
        bj = pyro.sample("bj", dist.Normal(b, 1))
    with i_plate, j_plate:
        pyro.sample("obs", dist.Normal(ai + bj, 1), obs=data)


svi("workflow", "LocScaleReparam", AutoNormal, normal(4, 3))(poutine.reparam(crossed, config={"ai": LocScaleReparam()}))
svi("workflow", "AutoReparam", AutoNormal, normal(4, 3))(AutoReparam()(crossed))


@sampled("prior_predictive", "", ROWS, OUTCOME)
def random_walk(steps: int = 12, data: Tensor | None = None) -> Tensor:
    df = pyro.sample("df", dist.LogNormal(0, 1))
    p_scale = pyro.sample("p_scale", dist.LogNormal(0, 1))
    m_scale = pyro.sample("m_scale", dist.LogNormal(0, 1))
    with pyro.plate("dt", steps):
        noise = pyro.sample("process_noise", dist.StudentT(df, 0, p_scale))
    trend = pyro.deterministic("trend", noise.cumsum(-1))
    with pyro.plate("t", steps):
        return pyro.sample("obs", dist.Normal(trend, m_scale), obs=data)


@sampled("jit", "", OUTCOME)
def location_and_scale(data: Tensor) -> None:
    loc = pyro.sample("loc", dist.Normal(0.0, 10.0))
    scale = pyro.sample("scale", dist.LogNormal(0.0, 3.0))
    with pyro.plate("data", data.size(0)):
        pyro.sample("obs", dist.Normal(loc, scale), obs=data)


class Subsampled(PyroModule):
    """Of svi_torch, svi_horovod and svi_lightning: rows that are fewer than the plate says."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.register_buffer("zero", torch.tensor(0.0))

    def forward(self, covariates: Tensor, data: Tensor | None = None) -> Tensor:
        coeff = pyro.sample("coeff", dist.Normal(self.zero, 1))
        bias = pyro.sample("bias", dist.Normal(self.zero, 1))
        scale = pyro.sample("scale", dist.LogNormal(self.zero, 1))
        with pyro.plate("data", self.size, len(covariates)):
            return pyro.sample("obs", dist.Normal(bias + coeff * covariates, scale), obs=data)


svi("svi_torch", "", AutoNormal, INPUT, OUTCOME)(Subsampled(ROWS))
sampled("svi_torch", "NUTS", INPUT, OUTCOME)(Subsampled(ROWS))


# svi_flow_guide: a latent vector for each row, which a flow draws given the row
FLOW = affine_autoregressive(3, hidden_dims=[8])


def _flow_guide(x: Tensor) -> None:
    pyro.module("flow", FLOW)
    with pyro.plate("batch", len(x)):
        base = dist.Normal(x.mean(1).repeat(1, 2)[:, :3], 1.0)
        pyro.sample("z", dist.TransformedDistribution(base, [FLOW, AffineTransform(0.0, 0.5)]))


@svi("svi_flow_guide", "", _flow_guide, normal(4, 5, 2))
def correlated(x: Tensor) -> None:
    with pyro.plate("batch", len(x)):
        z = pyro.sample("z", dist.Normal(torch.zeros(3), torch.ones(3)).to_event(1))
        rho = z[..., 2].tanh() * 0.99
        one = torch.ones_like(rho)
        cov = 1e-2 * torch.stack([one, rho, rho, one], dim=-1).unflatten(-1, (2, 2))
        with pyro.plate("obs", 5):
            pyro.sample("x", dist.MultivariateNormal(z[..., :2], cov), obs=x.transpose(0, 1))


sampled("svi_flow_guide", "NUTS", normal(4, 5, 2))(correlated)


# mle_map: a coin's parameter, a latent fairness, and both
@sampled("mle_map", "prior", TOSSES)
def latent_fairness(data: Tensor) -> None:
    f = pyro.sample("latent_fairness", dist.Beta(torch.tensor(10.0), torch.tensor(10.0)))
    with pyro.plate("data", data.size(0)):
        pyro.sample("obs", dist.Bernoulli(f), obs=data)


@learnt("mle_map", "maximum likelihood", TOSSES)
def fairness(data: Tensor) -> None:
    f = pyro.param("latent_fairness", torch.tensor(0.5), constraint=constraints.unit_interval)
    with pyro.plate("data", data.size(0)):
        pyro.sample("obs", dist.Bernoulli(f), obs=data)


# easyguide: a state-space model of many rows, each a time step's list of outcomes
BATCH = list((normal(4, 3) > 0).double())


def states(batch: list[Tensor | None], full_size: int) -> None:
    steps = len(batch)
    drift = pyro.sample("drift", dist.LogNormal(-1, 0.5))
    with pyro.plate("data", full_size):
        z = 0.0
        for t in range(steps):
            z = pyro.sample(f"state_{t}", dist.Normal(z, drift))
            pyro.sample(f"obs_{t}", dist.Bernoulli(logits=z), obs=batch[t])


@easy_guide(states)
def states_guide(self, batch, full_size):  # type: ignore[no-untyped-def]  # as easy_guide calls it
    self.map_estimate("drift")
    group = self.group(match="state_[0-9]*")
    with self.plate("data", full_size):
        loc = pyro.param("loc", torch.zeros(full_size, *group.event_shape))
        scale = pyro.param("scale", torch.ones(full_size, *group.event_shape), constraint=constraints.positive)
        group.sample("states", dist.Normal(loc, scale).to_event(1))


svi("easyguide", "", states_guide, BATCH, 3)(states)
sampled("easyguide", "NUTS", BATCH, 3)(states)


def two_groups(x: Tensor) -> None:
    loc = pyro.sample("loc", dist.Normal(0.0, 1.0))
    scale = pyro.sample("scale", dist.LogNormal(0.0, 1.0))
    with pyro.plate("data", len(x)):
        pyro.sample("obs", dist.Normal(loc, scale), obs=x)


def _listed(model: object) -> AutoGuideList:
    guide = AutoGuideList(model)
    guide.append(AutoNormal(poutine.block(model, expose=["loc"])))
    guide.append(AutoNormal(poutine.block(model, expose=["scale"])))
    return guide


svi("custom_objectives", "AutoGuideList", _listed(two_groups), OUTCOME)(two_groups)
svi("custom_objectives", "RenyiELBO", AutoNormal, OUTCOME, elbo=RenyiELBO(num_particles=2))(two_groups)
svi("custom_objectives", "TraceMeanField_ELBO", AutoNormal, OUTCOME, elbo=TraceMeanField_ELBO())(two_groups)


@sampled("boosting_bbvi", "", OUTCOME.abs() + 1.0)
def squared(data: Tensor) -> None:
    loc, scale = torch.tensor([0.0]), torch.tensor([5.0])
    z = pyro.sample("z", dist.Normal(loc, scale))
    with pyro.plate("data", len(data)):
        pyro.sample("x", dist.Normal(z * z, torch.tensor([0.3])), obs=data)


@sampled("predictive_deterministic", "", INPUT, OUTCOME)
def with_deterministic(x: Tensor, y: Tensor | None = None) -> Tensor:
    a, b = pyro.sample("a", dist.Normal(0.0, 1.0)), pyro.sample("b", dist.Normal(0.0, 1.0))
    sigma = pyro.sample("sigma", dist.HalfNormal(1.0))
    mean = pyro.deterministic("mean", a + b * x)
    with pyro.plate("data", len(x)):
        return pyro.sample("obs", dist.Normal(mean, sigma), obs=y)


@sampled("effect_handlers", "", torch.tensor(9.5))
def weighed(measured: Tensor) -> Tensor:
    weight = pyro.sample("weight", dist.Normal(8.5, 1.0))
    return pyro.sample("measurement", dist.Normal(weight, 0.75), obs=measured)


sampled("intro_part_ii", "", torch.tensor(9.5))(weighed)


def _weighed_guide(measured: Tensor) -> None:
    a = pyro.param("a", torch.tensor(8.5))
    b = pyro.param("b", torch.tensor(1.0), constraint=constraints.positive)
    pyro.sample("weight", dist.Normal(a, b))


svi("intro_part_ii", "own guide", _weighed_guide, torch.tensor(9.5))(weighed)


@sampled("minipyro", "", OUTCOME)
def one_location(data: Tensor) -> None:
    loc = pyro.sample("loc", dist.Normal(0.0, 1.0))
    with pyro.plate("data", len(data), dim=-1):
        pyro.sample("obs", dist.Normal(loc, 1.0), obs=data)


@sampled("intro_part_i", "", torch.tensor(50.0))
def weather(temperature: Tensor) -> None:
    cloudy = pyro.sample("cloudy", dist.Bernoulli(0.3))
    mean_cloudy = pyro.sample("mean_cloudy", dist.Normal(55.0, 1.0))
    mean = torch.where(cloudy > 0, mean_cloudy, 75.0)
    pyro.sample("temp", dist.Normal(mean, torch.where(cloudy > 0, 10.0, 15.0)), obs=temperature)


@refused("intro_part_i", "geometric", "cannot be run with all values of 'x_0'.*and not by if", 0.5)
def geometric(p: float, t: int = 0) -> Tensor:
    x = pyro.sample(f"x_{t}", dist.Bernoulli(p))
    return x if float(x) == 1 else 1 + geometric(p, t + 1)
