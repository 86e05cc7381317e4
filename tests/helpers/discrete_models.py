"""Models with discrete latent sites, and their log likelihoods with these summed out by hand."""

import math
from collections.abc import Callable
from itertools import product
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from pyro import poutine
from pyro.ops.indexing import Vindex
from torch import Tensor

__all__ = ["MODELS", "by_hand", "chain", "mixture", "zeros"]

CHANCE = torch.Generator().manual_seed(5)


def _normal(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=CHANCE, dtype=torch.float64)


def _mixture(y: Tensor) -> None:
    w = pyro.sample("w", dist.Dirichlet(torch.ones(2)))
    mu = pyro.sample("mu", dist.Normal(torch.zeros(2), 3.0).to_event(1))
    with pyro.plate("data", len(y)):
        z = pyro.sample("z", dist.Categorical(w))
        pyro.sample("y", dist.Normal(mu[z], 1.0), obs=y)


def chain(y: Tensor) -> None:
    """Return a hidden Markov model of three states as a loop."""
    p = pyro.sample("p", dist.Dirichlet(torch.eye(3) * 3 + 0.3).to_event(1))
    mu = pyro.sample("mu", dist.Normal(torch.tensor([-2.0, 0.0, 2.0]), 1.0).to_event(1))
    x: Any = 0
    for t in pyro.markov(range(len(y))):
        x = pyro.sample(f"x{t}", dist.Categorical(p[x]))
        pyro.sample(f"y{t}", dist.Normal(mu[x], 0.5), obs=y[t])


def _scan(y: Tensor) -> None:
    p = pyro.sample("p", dist.Dirichlet(torch.eye(3) * 3 + 0.3).to_event(1))
    mu = pyro.sample("mu", dist.Normal(torch.tensor([-2.0, 0.0, 2.0]), 1.0).to_event(1))
    first = torch.tensor([0.0, -torch.inf, -torch.inf])  # from which one step leads to the first state that emits
    pyro.sample("y", dist.DiscreteHMM(first, p.log(), dist.Normal(mu, 0.5), duration=len(y)), obs=y)


def _sequences(y: Tensor, lengths: Tensor) -> None:
    p = pyro.sample("p", dist.Dirichlet(torch.eye(3) * 3 + 0.3).to_event(1))
    mu = pyro.sample("mu", dist.Normal(torch.tensor([-2.0, 0.0, 2.0]), 1.0).to_event(1))
    with pyro.plate("sequences", len(y)):
        x: Any = 0
        for t in pyro.markov(range(y.shape[1])):
            with poutine.mask(mask=t < lengths):
                x = pyro.sample(f"x{t}", dist.Categorical(p[x]))
                pyro.sample(f"y{t}", dist.Normal(mu[x], 0.5), obs=y[:, t])


def _factorial(y: Tensor) -> None:
    stay = pyro.sample("stay", dist.Beta(8.0, 2.0).expand([2]).to_event(1))
    w: Any = torch.tensor(0.0)
    x: Any = torch.tensor(0.0)
    for t in pyro.markov(range(len(y))):
        w = pyro.sample(f"w{t}", dist.Bernoulli(w * stay[0] + (1 - w) * (1 - stay[0])))
        x = pyro.sample(f"x{t}", dist.Bernoulli(x * stay[1] + (1 - x) * (1 - stay[1])))
        pyro.sample(f"y{t}", dist.Normal(w + 2 * x, 0.7), obs=y[t])


def _slab(x: Tensor, y: Tensor) -> None:
    s = pyro.sample("s", dist.HalfNormal(1.0))
    with pyro.plate("coefficients", x.shape[1]):
        included = pyro.sample("included", dist.Bernoulli(0.3))
        b = pyro.sample("b", dist.Normal(0.0, torch.where(included > 0, 2.0, 0.05)))
    with pyro.plate("data", len(y)):
        pyro.sample("y", dist.Normal(x @ b, s), obs=y)


def _groups(y: Tensor) -> None:
    w = pyro.sample("w", dist.Dirichlet(torch.ones(3)))
    m = pyro.sample("m", dist.Normal(torch.zeros(3), 3.0).to_event(1))
    with pyro.plate("groups", y.shape[1], dim=-1):
        c = pyro.sample("c", dist.Categorical(w))
        u = pyro.sample("u", dist.Normal(m[c], 1.0))
        with pyro.plate("repeats", len(y), dim=-2):
            k = pyro.sample("k", dist.Bernoulli(torch.tensor([0.2, 0.5, 0.8])[c]))
            pyro.sample("y", dist.Normal(u + 2 * k, 1.0), obs=y)


def _capture(y: Tensor) -> None:
    phi = pyro.sample("phi", dist.Uniform(0.0, 1.0))
    seen = pyro.sample("seen", dist.Uniform(0.0, 1.0))
    with pyro.plate("animals", len(y)):
        alive: Any = torch.ones(len(y))
        for t in pyro.markov(range(1, y.shape[1])):
            alive = pyro.sample(f"alive{t}", dist.Bernoulli(phi * alive))
            pyro.sample(f"y{t}", dist.Bernoulli(seen * alive), obs=y[:, t])


def _topics(words: Tensor) -> None:
    with pyro.plate("topics", 2):
        phi = pyro.sample("phi", dist.Dirichlet(torch.ones(5)))
    with pyro.plate("documents", words.shape[1], dim=-1):
        theta = pyro.sample("theta", dist.Dirichlet(torch.ones(2)))
        with pyro.plate("words", len(words), dim=-2):
            topic = pyro.sample("topic", dist.Categorical(theta))
            pyro.sample("word", dist.Categorical(phi[topic]), obs=words)


def _changepoint(y: Tensor) -> None:
    rates = pyro.sample("rates", dist.Gamma(2.0, 1.0).expand([2]).to_event(1))
    tau = pyro.sample("tau", dist.Categorical(torch.ones(len(y)) / len(y)))
    after = (torch.arange(len(y)) >= tau.unsqueeze(-1)).long()
    pyro.sample("y", dist.Poisson(rates[after]).to_event(1), obs=y)


def _guessing(y: Tensor) -> None:
    guess = pyro.sample("guess", dist.Beta(1.0, 4.0))
    with pyro.plate("items", y.shape[1], dim=-1):
        b = pyro.sample("b", dist.Normal(0.0, 1.0))
    with pyro.plate("persons", len(y), dim=-2):
        ability = pyro.sample("ability", dist.Normal(0.0, 1.0))
        with pyro.plate("answers", y.shape[1], dim=-1):
            guesses = pyro.sample("guesses", dist.Bernoulli(0.2))
            pyro.sample("y", dist.Bernoulli(torch.where(guesses > 0, guess, (ability - b).sigmoid())), obs=y)


def _missing(x: Tensor, is_missing: Tensor, y: Tensor) -> None:
    p = pyro.sample("p", dist.Dirichlet(torch.ones(3)))
    effect = pyro.sample("effect", dist.Normal(torch.zeros(3), 1.0).to_event(1))
    with pyro.plate("data", len(y)):
        with poutine.mask(mask=is_missing):
            gap = pyro.sample("gap", dist.Categorical(p))
        group = torch.where(is_missing, gap, x)
        with poutine.mask(mask=~is_missing):
            pyro.sample("x", dist.Categorical(p), obs=x)
        pyro.sample("y", dist.Normal(effect[group], 1.0), obs=y)


def _sticks(y: Tensor) -> None:
    """Return a Dirichlet-process mixture of four components at most."""
    alpha = pyro.sample("alpha", dist.Gamma(2.0, 2.0))
    with pyro.plate("sticks", 3):
        beta = pyro.sample("beta", dist.Beta(1.0, alpha))
    with pyro.plate("components", 4):
        mu = pyro.sample("mu", dist.Normal(0.0, 3.0))
    with pyro.plate("data", len(y)):
        z = pyro.sample("z", dist.Categorical(_stick_weights(beta)))
        pyro.sample("y", dist.Normal(mu[z], 1.0), obs=y)


def _stick_weights(beta: Tensor) -> Tensor:
    left = (1 - beta).cumprod(-1)
    return torch.nn.functional.pad(beta, (0, 1), value=1.0) * torch.nn.functional.pad(left, (1, 0), value=1.0)


LONGEST = 3


def _stays(y: Tensor) -> None:
    """Return a hidden semi-Markov model of two states, each as three that count the steps left: a stay lasts up to three."""
    lengths = pyro.sample("lengths", dist.Dirichlet(torch.ones(2, LONGEST)).to_event(1))
    mu = pyro.sample("mu", dist.Normal(torch.tensor([-1.0, 1.0]), 1.0).to_event(1))
    ones = torch.eye(2 * LONGEST)
    rows = []
    for state in range(2):
        entering = torch.cat([torch.zeros(LONGEST), lengths[1 - state]][:: 1 if state == 0 else -1])
        rows += [entering, *(ones[state * LONGEST + left - 1] for left in range(1, LONGEST))]
    moves = torch.stack(rows)  # from (state, steps left) into (state, steps left)
    start = torch.cat([lengths[0], torch.zeros(LONGEST)])
    x: Any = None
    for t in pyro.markov(range(len(y))):
        x = pyro.sample(f"x{t}", dist.Categorical(start if x is None else Vindex(moves)[x]))
        pyro.sample(f"y{t}", dist.Normal(mu[x // LONGEST], 0.5), obs=y[t])


def zeros(y: Tensor) -> None:
    """Return a chain that cannot go back."""
    p = pyro.sample("p", dist.Dirichlet(torch.ones(2)))
    nothing = p[0] * 0
    steps = torch.stack([torch.stack([p[0], p[1], nothing]), torch.stack([nothing, p[0], p[1]]), torch.eye(3)[2]])
    x: Any = torch.tensor(0)
    for t in pyro.markov(range(len(y))):
        x = pyro.sample(f"x{t}", dist.Categorical(Vindex(steps)[x]))
        pyro.sample(f"y{t}", dist.Normal(torch.tensor([0.0, 1.0, 5.0])[x], 1.0), obs=y[t])


mixture = (_mixture, (_normal(9),))
LENGTHS = torch.tensor([6, 3, 1, 6])
SEEN = torch.tensor([[1, 1, 0, 1], [1, 0, 0, 0], [1, 1, 1, 1]], dtype=torch.float64)
IS_MISSING = torch.tensor([True, False, False, True, False])

MODELS: dict[str, tuple[Callable[..., None], tuple[Any, ...]]] = {
    "mixture": mixture,
    "chain": (chain, (_normal(7),)),
    "long chain": (chain, (_normal(20),)),
    "scan": (_scan, (_normal(20),)),
    "sequences": (_sequences, (_normal(4, 6), LENGTHS)),
    "factorial": (_factorial, (_normal(5),)),
    "slab": (_slab, (_normal(12, 3), _normal(12))),
    "groups": (_groups, (_normal(6, 4),)),
    "capture": (_capture, (SEEN,)),
    "topics": (_topics, (torch.tensor([[0, 1, 2], [3, 3, 4], [4, 0, 1], [1, 1, 2]]),)),
    "changepoint": (_changepoint, (torch.tensor([1.0, 0.0, 4.0, 5.0, 3.0]),)),
    "sticks": (_sticks, (_normal(6),)),
    "stays": (_stays, (_normal(7),)),
    "guessing": (_guessing, (torch.tensor([[1.0, 0.0, 1.0], [1.0, 1.0, 0.0]]),)),
    "missing": (_missing, (torch.tensor([0, 1, 2, 0, 1]), IS_MISSING, _normal(5))),
}


def _forward(values: dict[str, Tensor], y: Tensor) -> Tensor:
    alpha = values["p"][0].log() + dist.Normal(values["mu"], 0.5).log_prob(y[0])
    for each in y[1:]:
        alpha = torch.logsumexp(alpha[:, None] + values["p"].log(), 0) + dist.Normal(values["mu"], 0.5).log_prob(each)
    return torch.logsumexp(alpha, 0)


def _sum_over(terms: list[Tensor]) -> Tensor:
    return torch.logsumexp(torch.stack(terms), 0)


def _factorial_by_hand(v: dict[str, Tensor], y: Tensor) -> Tensor:
    terms = []
    for path in product(product((0, 1), repeat=2), repeat=len(y)):
        total, before = torch.zeros(()), (0, 0)
        for each, now in zip(y, path, strict=True):
            for b, n, stay in zip(before, now, v["stay"], strict=True):
                one = stay if b else 1 - stay
                total = total + (one if n else 1 - one).log()
            total, before = total + dist.Normal(now[0] + 2.0 * now[1], 0.7).log_prob(each), now
        terms.append(total)
    return _sum_over(terms)[None]


def _capture_by_hand(v: dict[str, Tensor], y: Tensor) -> Tensor:
    found = []
    for row in y:
        terms = []
        for last in range(y.shape[1]):  # the last occasion at which the animal is alive
            total = last * v["phi"].log() + ((1 - v["phi"]).log() if last < y.shape[1] - 1 else 0.0)
            for t in range(1, y.shape[1]):
                p = v["seen"] if t <= last else torch.zeros(())
                total = total + (p if row[t] else 1 - p).log()
            terms.append(total)
        found.append(_sum_over(terms))
    return torch.stack(found)


def _groups_by_hand(v: dict[str, Tensor], y: Tensor) -> Tensor:
    prior = v["w"].log()[:, None] + dist.Normal(v["m"][:, None], 1.0).log_prob(v["u"])
    q = torch.tensor([0.2, 0.5, 0.8])[:, None, None]
    terms = [chance.log() + dist.Normal(v["u"] + shift, 1.0).log_prob(y) for chance, shift in ((q, 2.0), (1 - q, 0.0))]
    return torch.logsumexp(prior + torch.logaddexp(*terms).sum(1), 0) - torch.logsumexp(prior, 0)


def _guessing_by_hand(v: dict[str, Tensor], y: Tensor) -> Tensor:
    own = dist.Bernoulli(logits=v["ability"] - v["b"]).log_prob(y)
    guessed = dist.Bernoulli(v["guess"]).log_prob(y)
    return torch.logaddexp(math.log(0.2) + guessed, math.log(0.8) + own).flatten()


def _missing_by_hand(v: dict[str, Tensor], x: Tensor, is_missing: Tensor, y: Tensor) -> Tensor:
    given = dist.Normal(v["effect"][:, None], 1.0).log_prob(y)
    rows = torch.arange(len(y))
    summed = torch.logsumexp(v["p"].log()[:, None] + given, 0)
    known = dist.Categorical(v["p"]).log_prob(x).masked_fill(is_missing, 0.0)
    return torch.where(is_missing, summed, given[x, rows]) + known


def _changepoint_by_hand(v: dict[str, Tensor], y: Tensor) -> Tensor:
    terms = [
        dist.Poisson(v["rates"][(torch.arange(len(y)) >= tau).long()]).log_prob(y).sum() - math.log(len(y))
        for tau in range(len(y))
    ]
    return _sum_over(terms)[None]


def _stays_by_hand(v: dict[str, Tensor], y: Tensor) -> Tensor:
    """Sum over all ways to cut the series into stays of the two states in turn, the last of which may be cut off."""

    def rest(begin: int, state: int) -> list[Tensor]:
        if begin == len(y):
            return [torch.zeros(())]
        found = []
        for length in range(1, LONGEST + 1):
            end = min(begin + length, len(y))
            own = v["lengths"][state, length - 1].log() + dist.Normal(v["mu"][state], 0.5).log_prob(y[begin:end]).sum()
            found += [own + each for each in rest(end, 1 - state)]
        return found

    return _sum_over(rest(0, 0))[None]


def by_hand(name: str, v: dict[str, Tensor], *data: Tensor) -> Tensor:
    """Return the log likelihood of each row of a model, given the constrained values of its continuous sites."""
    y = data[0]
    found: dict[str, Callable[[], Tensor]] = {
        "mixture": lambda: torch.logsumexp(v["w"].log() + dist.Normal(v["mu"], 1.0).log_prob(y[:, None]), -1),
        "chain": lambda: _forward(v, y)[None],
        "long chain": lambda: _forward(v, y)[None],
        "scan": lambda: _forward(v, y)[None],
        "sequences": lambda: torch.stack([_forward(v, row[: int(n)]) for row, n in zip(y, data[-1], strict=True)]),
        "factorial": lambda: _factorial_by_hand(v, y),
        "slab": lambda: dist.Normal(y @ v["b"], v["s"]).log_prob(data[-1]),
        "groups": lambda: _groups_by_hand(v, y),
        "capture": lambda: _capture_by_hand(v, y),
        "topics": lambda: (v["theta"] @ v["phi"]).T[y, torch.arange(y.shape[1])].log().flatten(),
        "changepoint": lambda: _changepoint_by_hand(v, y),
        "sticks": lambda: torch.logsumexp(
            _stick_weights(v["beta"]).log() + dist.Normal(v["mu"], 1.0).log_prob(y[:, None]), -1
        ),
        "stays": lambda: _stays_by_hand(v, y),
        "guessing": lambda: _guessing_by_hand(v, y),
        "missing": lambda: _missing_by_hand(v, *data),
    }
    return found[name]()
