"""Hidden Markov models, filters and epidemics."""

import math
from types import SimpleNamespace
from typing import Any

import pyro
import pyro.distributions as dist
import pyro.distributions.hmm
import torch
from pyro import poutine
from pyro.distributions import constraints
from pyro.infer import TraceEnum_ELBO, config_enumerate
from pyro.infer.autoguide import AutoDelta
from pyro.infer.reparam import DiscreteCosineReparam
from pyro.ops.indexing import Vindex
from pyro.ops.special import safe_log
from torch import Tensor, nn

from tests.helpers.pyro_programs.catalogue import learnt, normal, refused, sampled, svi

__all__: list[str] = []

# hmm: eight models of which tones sound at each time of several pieces
ARGS = SimpleNamespace(hidden_dim=4, nn_dim=5, nn_channels=2, jit=False, raftery_parameterization=False)
TONES = (normal(3, 5, 4) > 0.3).double()
LENGTHS = torch.tensor([5, 3, 4])


def _priors(args: Any, *shape: int) -> tuple[Tensor, Tensor]:
    x = pyro.sample("probs_x", dist.Dirichlet(0.9 * torch.eye(args.hidden_dim) + 0.1).to_event(1))
    y = pyro.sample("probs_y", dist.Beta(0.1, 0.9).expand(shape).to_event(len(shape)))
    return x, y


def of_sequences(sequences: Tensor, lengths: Tensor, args: Any, batch_size: int | None = None) -> None:
    data_dim = sequences.shape[-1]
    probs_x, probs_y = _priors(args, args.hidden_dim, data_dim)
    tones_plate = pyro.plate("tones", data_dim, dim=-1)
    for i in pyro.plate("sequences", len(sequences), batch_size):
        sequence, x = sequences[i, : lengths[i]], 0
        for t in pyro.markov(range(lengths[i])):
            x = pyro.sample(f"x_{i}_{t}", dist.Categorical(probs_x[x]), infer={"enumerate": "parallel"})
            with tones_plate:
                pyro.sample(f"y_{i}_{t}", dist.Bernoulli(probs_y[x.squeeze(-1)]), obs=sequence[t])


def in_a_plate(sequences: Tensor, lengths: Tensor, args: Any, batch_size: int | None = None) -> None:
    num, longest, data_dim = map(int, sequences.shape)
    probs_x, probs_y = _priors(args, args.hidden_dim, data_dim)
    tones_plate = pyro.plate("tones", data_dim, dim=-1)
    with pyro.plate("sequences", num, batch_size, dim=-2) as batch:
        lengths, x = lengths[batch], 0
        for t in pyro.markov(range(longest if args.jit else lengths.max())):
            with poutine.mask(mask=(t < lengths).unsqueeze(-1)):
                x = pyro.sample(f"x_{t}", dist.Categorical(probs_x[x]), infer={"enumerate": "parallel"})
                with tones_plate:
                    pyro.sample(f"y_{t}", dist.Bernoulli(probs_y[x.squeeze(-1)]), obs=sequences[batch, t])


def autoregressive(sequences: Tensor, lengths: Tensor, args: Any, batch_size: int | None = None) -> None:
    num, _, data_dim = map(int, sequences.shape)
    probs_x, probs_y = _priors(args, args.hidden_dim, 2, data_dim)
    tones_plate = pyro.plate("tones", data_dim, dim=-1)
    with pyro.plate("sequences", num, batch_size, dim=-2) as batch:
        lengths, x, y = lengths[batch], 0, 0
        for t in pyro.markov(range(lengths.max())):
            with poutine.mask(mask=(t < lengths).unsqueeze(-1)):
                x = pyro.sample(f"x_{t}", dist.Categorical(probs_x[x]), infer={"enumerate": "parallel"})
                with tones_plate as tones:
                    y = pyro.sample(f"y_{t}", dist.Bernoulli(probs_y[x, y, tones]), obs=sequences[batch, t]).long()


def factorial(sequences: Tensor, lengths: Tensor, args: Any, batch_size: int | None = None) -> None:
    num, _, data_dim = map(int, sequences.shape)
    hidden = int(args.hidden_dim**0.5)
    probs_w = pyro.sample("probs_w", dist.Dirichlet(0.9 * torch.eye(hidden) + 0.1).to_event(1))
    probs_x = pyro.sample("probs_x", dist.Dirichlet(0.9 * torch.eye(hidden) + 0.1).to_event(1))
    probs_y = pyro.sample("probs_y", dist.Beta(0.1, 0.9).expand([hidden, hidden, data_dim]).to_event(3))
    tones_plate = pyro.plate("tones", data_dim, dim=-1)
    with pyro.plate("sequences", num, batch_size, dim=-2) as batch:
        lengths, w, x = lengths[batch], 0, 0
        for t in pyro.markov(range(lengths.max())):
            with poutine.mask(mask=(t < lengths).unsqueeze(-1)):
                w = pyro.sample(f"w_{t}", dist.Categorical(probs_w[w]), infer={"enumerate": "parallel"})
                x = pyro.sample(f"x_{t}", dist.Categorical(probs_x[x]), infer={"enumerate": "parallel"})
                with tones_plate as tones:
                    pyro.sample(f"y_{t}", dist.Bernoulli(probs_y[w, x, tones]), obs=sequences[batch, t])


def dynamic_network(sequences: Tensor, lengths: Tensor, args: Any, batch_size: int | None = None) -> None:
    num, _, data_dim = map(int, sequences.shape)
    hidden = int(args.hidden_dim**0.5)
    prior = dist.Dirichlet(0.9 * torch.eye(hidden) + 0.1)
    probs_w = pyro.sample("probs_w", prior.to_event(1))
    probs_x = pyro.sample("probs_x", prior.expand_by([hidden]).to_event(2))
    probs_y = pyro.sample("probs_y", dist.Beta(0.1, 0.9).expand([hidden, hidden, data_dim]).to_event(3))
    tones_plate = pyro.plate("tones", data_dim, dim=-1)
    with pyro.plate("sequences", num, batch_size, dim=-2) as batch:
        lengths = lengths[batch]
        w = x = torch.tensor(0, dtype=torch.long)
        for t in pyro.markov(range(lengths.max())):
            with poutine.mask(mask=(t < lengths).unsqueeze(-1)):
                w = pyro.sample(f"w_{t}", dist.Categorical(probs_w[w]), infer={"enumerate": "parallel"})
                x = pyro.sample(f"x_{t}", dist.Categorical(Vindex(probs_x)[w, x]), infer={"enumerate": "parallel"})
                with tones_plate as tones:
                    pyro.sample(f"y_{t}", dist.Bernoulli(probs_y[w, x, tones]), obs=sequences[batch, t])


class Generator(nn.Module):
    """Log odds of tones given a state and the tones before."""

    def __init__(self, args: Any, data_dim: int) -> None:
        super().__init__()
        self.args, self.data_dim = args, data_dim
        self.x_to_hidden = nn.Linear(args.hidden_dim, args.nn_dim)
        self.y_to_hidden = nn.Linear(args.nn_channels * data_dim, args.nn_dim)
        self.conv = nn.Conv1d(1, args.nn_channels, 3, padding=1)
        self.hidden_to_logits = nn.Linear(args.nn_dim, data_dim)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        one_hot = y.new_zeros((*x.shape[:-1], self.args.hidden_dim)).scatter_(-1, x, 1)
        smooth = self.conv(y.reshape(-1, 1, self.data_dim)).relu().reshape((*y.shape[:-1], -1))
        return self.hidden_to_logits((self.x_to_hidden(one_hot) + self.y_to_hidden(smooth)).relu())


GENERATOR = Generator(ARGS, 4)


def neural(sequences: Tensor, lengths: Tensor, args: Any, batch_size: int | None = None) -> None:
    num, _, data_dim = map(int, sequences.shape)
    pyro.module("tones_generator", GENERATOR)
    probs_x = pyro.sample("probs_x", dist.Dirichlet(0.9 * torch.eye(args.hidden_dim) + 0.1).to_event(1))
    with pyro.plate("sequences", num, batch_size, dim=-2) as batch:
        lengths, x, y = lengths[batch], 0, torch.zeros(data_dim)
        for t in pyro.markov(range(lengths.max())):
            with poutine.mask(mask=(t < lengths).unsqueeze(-1)):
                x = pyro.sample(f"x_{t}", dist.Categorical(probs_x[x]), infer={"enumerate": "parallel"})
                with pyro.plate(f"tones_{t}", data_dim, dim=-1):
                    y = pyro.sample(f"y_{t}", dist.Bernoulli(logits=GENERATOR(x, y)), obs=sequences[batch, t])


def second_order(sequences: Tensor, lengths: Tensor, args: Any, batch_size: int | None = None) -> None:
    num, _, data_dim = sequences.shape
    hidden = args.hidden_dim
    if args.raftery_parameterization:
        one, two = (
            pyro.param(f"probs_x{i}", torch.rand(hidden, hidden), constraint=constraints.simplex) for i in (1, 2)
        )
        mix = pyro.param("mix_lambda", torch.tensor(0.5), constraint=constraints.unit_interval)
        probs_x = mix * one + (1.0 - mix) * two.unsqueeze(-2)
    else:
        probs_x = pyro.param("probs_x", torch.rand(hidden, hidden, hidden), constraint=constraints.simplex)
    probs_y = pyro.param("probs_y", torch.rand(hidden, data_dim), constraint=constraints.unit_interval)
    tones_plate = pyro.plate("tones", data_dim, dim=-1)
    with pyro.plate("sequences", num, batch_size, dim=-2) as batch:
        lengths = lengths[batch]
        now, before = torch.tensor(0), torch.tensor(0)
        for t in pyro.markov(range(lengths.max()), history=2):
            with poutine.mask(mask=(t < lengths).unsqueeze(-1)):
                probs = Vindex(probs_x)[before, now]
                before, now = now, pyro.sample(f"x_{t}", dist.Categorical(probs), infer={"enumerate": "parallel"})
                with tones_plate:
                    pyro.sample(f"y_{t}", dist.Bernoulli(probs_y[now.squeeze(-1)]), obs=sequences[batch, t])


def one_distribution(sequences: Tensor, lengths: Tensor, args: Any, batch_size: int | None = None) -> None:
    num, _, _ = map(int, sequences.shape)
    pyro.module("tones_generator", GENERATOR)
    probs_x = pyro.sample("probs_x", dist.Dirichlet(0.9 * torch.eye(args.hidden_dim) + 0.1).to_event(1))
    with pyro.plate("sequences", num, batch_size, dim=-1) as batch:
        lengths = lengths[batch]
        y = sequences[batch, : lengths.max()]
        x, t = torch.arange(args.hidden_dim), torch.arange(y.size(1))
        init_logits = torch.full((args.hidden_dim,), -float("inf"))
        init_logits[0] = 0
        # the generator makes one row of a state's number, so states lie along a dimension of their own
        obs = dist.Bernoulli(logits=GENERATOR(x.unsqueeze(-1), y.unsqueeze(-2))).to_event(1)
        obs = obs.mask((t < lengths.unsqueeze(-1)).unsqueeze(-1))
        pyro.sample("y", dist.DiscreteHMM(init_logits, probs_x.log(), obs), obs=y)


def _probs(model: object) -> AutoDelta:
    return AutoDelta(poutine.block(model, expose_fn=lambda msg: msg["name"].startswith("probs_")))


RAFTERY = SimpleNamespace(**{**vars(ARGS), "raftery_parameterization": True})
for number, each in enumerate((of_sequences, in_a_plate, autoregressive, factorial, dynamic_network)):
    nesting = TraceEnum_ELBO(max_plate_nesting=1 if number == 0 else 2)
    sampled("hmm", f"model {number}, NUTS", TONES, LENGTHS, ARGS)(each)
    svi("hmm", f"model {number}, AutoDelta", _probs(each), TONES, LENGTHS, ARGS, elbo=nesting)(each)
svi("hmm", "model 5, AutoDelta", _probs(neural), TONES, LENGTHS, ARGS, elbo=TraceEnum_ELBO(max_plate_nesting=2))(neural)
learnt("hmm", "model 6", TONES, LENGTHS, ARGS)(second_order)
learnt("hmm", "model 6, Raftery", TONES, LENGTHS, RAFTERY)(second_order)
STRICT = TraceEnum_ELBO(max_plate_nesting=2, strict_enumeration_warning=False)
svi("hmm", "model 7, AutoDelta", _probs(one_distribution), TONES, LENGTHS, ARGS, elbo=STRICT)(one_distribution)


# jit and enumeration: a chain whose length and emissions are given
@learnt("enumeration", "a chain", normal(6))
@config_enumerate
def chain_of_parameters(data: Tensor) -> None:
    p = pyro.param("p", 0.1 + 0.8 * torch.eye(3), constraint=constraints.simplex)
    locs = pyro.param("locs", torch.tensor([-1.0, 0.0, 1.0]))
    x: Any = 0
    for t in pyro.markov(range(len(data))):
        x = pyro.sample(f"x_{t}", dist.Categorical(p[x]))
        pyro.sample(f"obs_{t}", dist.Normal(locs[x], 1.0), obs=data[t])


# mixed_hmm: animals' steps, with effects of groups and individuals, and outcomes that may be missing
def _indexed(param: Tensor, ind: Tensor, dim: int = -2) -> Tensor:
    """Return entries of one event dimension, by an index that has the shape of the batch."""
    for _ in range(len(param.shape[dim:])):
        ind = ind.unsqueeze(-1)
    own = [torch.arange(s).reshape((s, *(1,) * d)) for d, s in enumerate(reversed(param.shape))][::-1]
    own[dim] = ind
    return param[tuple(own)].squeeze(dim)


MIXED: dict[str, Any] = {
    "sizes": {"state": 2, "random": 2, "group": 2, "individual": 3, "timesteps": 4},
    "step": torch.rand(3, 2, 4, generator=torch.Generator().manual_seed(1)) + 0.1,
    "mask": torch.ones(3, 2).bool(),
    "MISSING": 1e-6,
}
MIXED["step"][0, 0, 1] = MIXED["MISSING"]


def _mixed(effects: str) -> Any:
    @config_enumerate
    def mixed(config: dict[str, Any]) -> None:
        sizes = config["sizes"]
        states, values, groups = sizes["state"], sizes["random"], sizes["group"]
        if effects == "discrete":
            probs_g = pyro.param("probs_e_group", torch.ones(values) / values, constraint=constraints.simplex)
            theta_g = pyro.param("theta_group", normal(values, states**2))
        zi = pyro.param("step_zi_param", torch.ones(states, 2))
        concentration = pyro.param("concentration", torch.tensor([0.5, 2.0]), constraint=constraints.positive)
        rate = pyro.param("rate", torch.tensor([1.0, 2.0]), constraint=constraints.positive)
        gamma = torch.zeros(states**2)
        with pyro.plate("group", groups, dim=-1):
            if effects == "discrete":
                gamma = gamma + _indexed(theta_g, pyro.sample("e_g", dist.Categorical(probs_g)), dim=-2)
            else:
                gamma = gamma + pyro.sample("eps_g", dist.Normal(torch.zeros(states**2), 1.0).to_event(1))
            with pyro.plate("individual", sizes["individual"], dim=-2), poutine.mask(mask=config["mask"]):
                y = torch.tensor(0).long()
                for t in pyro.markov(range(sizes["timesteps"])):
                    moves = gamma.reshape((*gamma.shape[:-1], states, states))
                    y = pyro.sample(f"y_{t}", dist.Categorical(logits=_indexed(moves, y, dim=-2)))
                    step = dist.Gamma(_indexed(concentration, y, dim=-1), _indexed(rate, y, dim=-1))
                    seen = config["step"][..., t]
                    is_missing = pyro.sample(
                        f"zi_{t}",
                        dist.Categorical(logits=_indexed(zi, y, dim=-2)),
                        obs=(seen == config["MISSING"]).long(),
                    )
                    nothing = dist.Delta(v=torch.tensor(config["MISSING"]))
                    pyro.sample(f"step_{t}", dist.MaskedMixture(is_missing.bool(), step, nothing), obs=seen)

    return mixed


def _group_guide(config: dict[str, Any]) -> None:
    size = config["sizes"]["state"] ** 2
    loc = pyro.param("loc_group", lambda: torch.zeros(size))
    scale = pyro.param("scale_group", lambda: torch.ones(size), constraint=constraints.positive)
    with pyro.plate("group", config["sizes"]["group"], dim=-1):
        pyro.sample("eps_g", dist.Normal(loc, scale).to_event(1))


learnt("mixed_hmm", "discrete effects", MIXED)(_mixed("discrete"))
svi("mixed_hmm", "continuous effects", _group_guide, MIXED, elbo=TraceEnum_ELBO(max_plate_nesting=2))(
    _mixed("continuous")
)


# sir_hmc: an outbreak in a small population
CASES, POPULATION = torch.tensor([1.0, 0.0, 1.0]), 5


@refused("sir_hmc", "binomial transitions", r"cannot be run with all values of 'S2I_0'", CASES, POPULATION)
def outbreak(data: Tensor, population: int) -> None:
    prob_s, prob_i, rho = (pyro.sample(name, dist.Uniform(0, 1)) for name in ("prob_s", "prob_i", "rho"))
    susceptible, infected = torch.tensor(population - 1.0), torch.tensor(1.0)
    for t, datum in enumerate(data):
        s2i = pyro.sample(f"S2I_{t}", dist.Binomial(susceptible, prob_s * infected / population))
        i2r = pyro.sample(f"I2R_{t}", dist.Binomial(infected, prob_i))
        susceptible, infected = susceptible - s2i, infected + s2i - i2r
        pyro.sample(f"obs_{t}", dist.ExtendedBinomial(s2i, rho), obs=datum)


def _transitions(t: int, datum: Tensor, now: Any, then: Any, probs: Any, population: int) -> None:
    """Observe what must have happened between two states."""
    (susceptible, infected), (s_next, i_next), (prob_s, prob_i, rho) = now, then, probs
    s2i = susceptible - s_next
    i2r = infected - i_next + s2i
    pyro.sample(f"S2I_{t}", dist.ExtendedBinomial(susceptible, prob_s * infected / population), obs=s2i)
    pyro.sample(f"I2R_{t}", dist.ExtendedBinomial(infected, prob_i), obs=i2r)
    pyro.sample(f"obs_{t}", dist.ExtendedBinomial(s2i.clamp(min=0), rho), obs=datum)


@sampled("sir_hmc", "states", CASES, POPULATION)
@config_enumerate
def outbreak_of_states(data: Tensor, population: int) -> None:
    probs = tuple(pyro.sample(name, dist.Uniform(0, 1)) for name in ("prob_s", "prob_i", "rho"))
    now = (torch.tensor(population - 1.0), torch.tensor(1.0))
    for t, datum in enumerate(data):
        with poutine.mask(mask=False):
            then = tuple(pyro.sample(f"{name}_{t}", dist.Binomial(population, 0.5)) for name in "SI")
        _transitions(t, datum, now, then, probs, population)
        now = then


def _quantized(name: str, x_real: Tensor) -> Tensor:
    lower = x_real.detach().floor()
    t = x_real - lower
    return lower + pyro.sample(name, dist.Bernoulli(t * t * (3 - 2 * t)))


@config_enumerate
def relaxed_outbreak(data: Tensor, population: int) -> None:
    probs = tuple(pyro.sample(name, dist.Uniform(0, 1)) for name in ("prob_s", "prob_i", "rho"))
    around = dist.Uniform(-0.5, population + 0.5).expand(data.shape).to_event(1)
    s_aux, i_aux = pyro.sample("S_aux", around), pyro.sample("I_aux", around)
    now = (torch.tensor(population - 1.0), torch.tensor(1.0))
    for t, datum in poutine.markov(enumerate(data)):
        then = (
            _quantized(f"S_{t}", s_aux[t]).clamp(min=0, max=population),
            _quantized(f"I_{t}", i_aux[t]).clamp(min=0, max=population),
        )
        _transitions(t, datum, now, then, probs, population)
        now = then


COSINES = {"S_aux": DiscreteCosineReparam(), "I_aux": DiscreteCosineReparam()}
sampled("sir_hmc", "relaxed", CASES, POPULATION)(relaxed_outbreak)
sampled("sir_hmc", "relaxed, DiscreteCosineReparam", CASES, POPULATION)(
    poutine.reparam(relaxed_outbreak, config=COSINES)
)


def _listed(x_real: Tensor, population: int) -> tuple[Tensor, Tensor]:
    lower = x_real.detach().floor()
    t = x_real - lower
    prob = t * t * (3 - 2 * t)
    x = torch.stack([lower, lower + 1], dim=-1).clamp(min=0, max=population)
    return x, safe_log(torch.stack([1 - prob, prob], dim=-1))


@sampled("sir_hmc", "vectorized", CASES, POPULATION)
def outbreak_by_factor(data: Tensor, population: int) -> None:
    prob_s, prob_i, rho = (pyro.sample(name, dist.Uniform(0, 1)) for name in ("prob_s", "prob_i", "rho"))
    around = dist.Uniform(-0.5, population + 0.5).expand(data.shape).to_event(1)
    (s_now, s_log), (i_now, i_log) = (_listed(pyro.sample(f"{name}_aux", around), population) for name in "SI")
    s_before = nn.functional.pad(s_now[:-1], (0, 0, 1, 0), value=population - 1).reshape(-1, 2, 1, 1, 1)
    i_before = nn.functional.pad(i_now[:-1], (0, 0, 1, 0), value=1).reshape(-1, 1, 2, 1, 1)
    s_now, s_log = (each.reshape(-1, 1, 1, 2, 1) for each in (s_now, s_log))
    i_now, i_log = (each.reshape(-1, 1, 1, 1, 2) for each in (i_now, i_log))
    s2i = s_before - s_now
    i2r = i_before - i_now + s2i
    logp = s_log + i_log + dist.ExtendedBinomial(s2i.clamp(min=0), rho).log_prob(data.reshape(-1, 1, 1, 1, 1))
    logp = logp + dist.ExtendedBinomial(s_before, prob_s * i_before / population).log_prob(s2i)
    logp = (logp + dist.ExtendedBinomial(i_before, prob_i).log_prob(i2r)).reshape(-1, 4, 4)
    logp = pyro.distributions.hmm._sequential_logmatmulexp(logp).reshape(-1).logsumexp(0)
    pyro.factor("obs", logp - math.log(4))


# smcfilter: a noisy oscillator, one step of which is a call
class Oscillator:
    def __init__(self) -> None:
        self.A = torch.tensor([[0.0, 1.0], [-1.0, 0.0]])

    def __call__(self, ys: list[Tensor]) -> None:
        z = torch.tensor([1.0, 0.0])
        for t, y in enumerate(ys):
            z = pyro.sample(f"z_{t}", dist.Normal(z.matmul(self.A), 3.0).to_event(1))
            pyro.sample(f"y_{t}", dist.Normal(z[..., 0], 1.0), obs=y)


sampled("smcfilter", "", list(normal(4)))(Oscillator())
