"""Densities with discrete sites summed out, against sums written by hand and against Pyro's own enumeration."""

import math

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from pyro.infer.mcmc.util import initialize_model
from pyro.ops.indexing import Vindex
from torch import Tensor
from torch.func import grad, vmap

from bnnzoo.core.density import LogDensity, build_density
from bnnzoo.core.discrete_states import drawn_states
from bnnzoo.core.sites import ModelError
from tests.helpers.discrete_models import MODELS, by_hand, chain, mixture, zeros

STATES = 3


def points(density: LogDensity, num: int = 3) -> Tensor:
    return torch.randn(num, density.num_params, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("name", MODELS)
def test_the_log_likelihood_of_each_row_is_the_sum_by_hand(name: str) -> None:
    model, data = MODELS[name]
    density = build_density(model, *data)
    for theta in points(density):
        expected = by_hand(name, density.constrain(theta), *data)
        torch.testing.assert_close(density.log_likelihood(theta, *data), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    "name", sorted({*MODELS} - {"slab", "groups"})
)  # Pyro draws latent values of many classes there
def test_the_joint_density_is_pyros_but_for_a_constant(name: str) -> None:
    model, data = MODELS[name]
    density = build_density(model, *data)
    marked = pyro.infer.config_enumerate(model)
    _, potential, *_ = initialize_model(marked, data, max_plate_nesting=2)
    gaps = [
        float(density.log_joint(theta, *data) + potential(density.unconstrained(theta))) for theta in points(density)
    ]
    assert max(gaps) - min(gaps) <= 1e-9 * (1 + max(map(abs, gaps)))


@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_derivatives_and_batches_are_single_points(name: str) -> None:
    model, data = MODELS[name]
    density = build_density(model, *data)
    theta = points(density)
    batched = vmap(lambda row: density.log_joint(row, *data))(theta)
    single = torch.stack([density.log_joint(row, *data) for row in theta])
    torch.testing.assert_close(batched, single, rtol=1e-10, atol=1e-9)
    direction, step = torch.randn(density.num_params, generator=torch.Generator().manual_seed(3)), 1e-5
    ahead, behind = (density.log_joint(theta[0] + sign * step * direction, *data) for sign in (1, -1))
    slope = grad(density.log_joint)(theta[0], *data) @ direction
    torch.testing.assert_close(slope, (ahead - behind) / (2 * step), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("states", [3, 5])
def test_a_long_chain_has_the_forward_algorithms_density(states: int) -> None:
    def model(y: Tensor) -> None:
        p = pyro.sample("p", dist.Dirichlet(torch.eye(states) * 3 + 0.3).to_event(1))
        mu = pyro.sample("mu", dist.Normal(torch.linspace(-2.0, 2.0, states), 1.0).to_event(1))
        x = torch.tensor(0)
        for t in pyro.markov(range(len(y))):
            x = pyro.sample(f"x{t}", dist.Categorical(p[x]))
            pyro.sample(f"y{t}", dist.Normal(mu[x], 0.5), obs=y[t])

    y = torch.randn(500, generator=torch.Generator().manual_seed(0))
    density = build_density(model, y)
    theta = points(density)[0]
    torch.testing.assert_close(
        density.log_likelihood(theta, y), by_hand("chain", density.constrain(theta), y), rtol=1e-10, atol=1e-10
    )


def test_gradients_are_finite_where_a_probability_is_zero() -> None:
    y = torch.tensor([0.1, 0.9, 4.0, 5.0])
    density = build_density(zeros, y)
    for theta in points(density):
        assert bool(grad(density.log_joint)(theta, y).isfinite().all())


def test_moments_are_those_of_the_mixture() -> None:
    model, data = mixture
    density = build_density(model, *data)
    theta = points(density)[0]
    values = density.constrain(theta)
    same = dist.MixtureSameFamily(dist.Categorical(values["w"]), dist.Normal(values["mu"], 1.0))
    found = density.conditional(theta, *data)
    torch.testing.assert_close(found["mean"], same.mean.expand(len(data[0])))
    torch.testing.assert_close(found["variance"], same.variance.expand(len(data[0])))


def smoothed(values: dict[str, Tensor], y: Tensor) -> Tensor:
    """Return p(x_t | y) ``[T, K]`` by forward-backward."""
    emitted = dist.Normal(values["mu"], 0.5).log_prob(y[:, None])
    forward, backward = [values["p"][0].log() + emitted[0]], [torch.zeros(STATES)]
    for t in range(1, len(y)):
        forward.append(torch.logsumexp(forward[-1][:, None] + values["p"].log(), 0) + emitted[t])
        backward.append(torch.logsumexp(values["p"].log() + emitted[-t] + backward[-1], 1))
    return torch.softmax(torch.stack(forward) + torch.stack(backward[::-1]), -1)


def test_states_are_drawn_with_the_smoothed_probabilities_of_forward_backward() -> None:
    y = torch.randn(12, generator=torch.Generator().manual_seed(0))
    density = build_density(chain, y)
    theta = points(density)[0]
    expected = smoothed(density.constrain(theta), y)
    torch.manual_seed(0)
    count = 4000
    found = vmap(lambda row: drawn_states(density, row, y), randomness="different")(theta.expand(count, -1))
    for t in range(len(y)):
        torch.testing.assert_close(found["discrete_probs", f"x{t}"][0], expected[t], rtol=1e-9, atol=1e-12)
        share = torch.nn.functional.one_hot(found["discrete", f"x{t}"], STATES).double().mean(0)
        error = (expected[t] * (1 - expected[t]) / count).sqrt() + 1e-12
        assert bool(((share - expected[t]).abs() <= 4.5 * error + 1e-3).all())
    pairs = found["discrete", "x3"] * STATES + found["discrete", "x4"]
    both = torch.softmax(_pair(density.constrain(theta), y, 3).flatten(), 0)
    share = torch.nn.functional.one_hot(pairs, STATES**2).double().mean(0)
    assert bool(((share - both).abs() <= 4.5 * (both / count).sqrt() + 1e-3).all())


def _pair(values: dict[str, Tensor], y: Tensor, t: int) -> Tensor:
    """Return the log probability of the states at t and t + 1 together, but for a constant."""
    emitted = dist.Normal(values["mu"], 0.5).log_prob(y[:, None])
    forward = values["p"][0].log() + emitted[0]
    for s in range(1, t + 1):
        forward = torch.logsumexp(forward[:, None] + values["p"].log(), 0) + emitted[s]
    backward = torch.zeros(STATES)
    for s in range(len(y) - 1, t + 1, -1):
        backward = torch.logsumexp(values["p"].log() + emitted[s] + backward, 1)
    return forward[:, None] + values["p"].log() + emitted[t + 1] + backward


def _infinite() -> None:
    pyro.sample("k", dist.Poisson(pyro.sample("rate", dist.Gamma(1.0, 1.0))))


def _event() -> None:
    pyro.sample("k", dist.Bernoulli(pyro.sample("p", dist.Beta(1.0, 1.0)).expand(5)).to_event(1))


def _batch() -> None:
    pyro.sample("k", dist.Bernoulli(pyro.sample("p", dist.Beta(1.0, 1.0)).expand(5)))


def _loop() -> None:
    p = pyro.sample("p", dist.Beta(1.0, 1.0))
    for i in range(60):
        pyro.sample(f"k{i}", dist.Bernoulli(p))


def _sum() -> None:
    p = pyro.sample("p", dist.Beta(1.0, 1.0))
    total = sum(pyro.sample(f"k{i}", dist.Bernoulli(p)) for i in range(40))
    pyro.sample("y", dist.Normal(total, 1.0), obs=torch.tensor(3.0))


def _across_rows() -> None:
    p = pyro.sample("p", dist.Beta(1.0, 1.0))
    with pyro.plate("rows", 5):
        z = pyro.sample("z", dist.Bernoulli(p))
        pyro.sample("y", dist.Normal(z.cumsum(-1), 1.0), obs=torch.zeros(5))


def _branch() -> None:
    z = pyro.sample("z", dist.Bernoulli(pyro.sample("p", dist.Beta(1.0, 1.0))))
    pyro.sample("y", dist.Normal(1.0 if z > 0 else 2.0, 1.0), obs=torch.tensor(1.0))


def _scaled() -> None:
    z = pyro.sample("z", dist.Bernoulli(pyro.sample("p", dist.Beta(1.0, 1.0))))
    with poutine.scale(scale=2.0):
        pyro.sample("y", dist.Normal(z, 1.0), obs=torch.tensor(1.0))


def _crossing() -> None:
    p = pyro.sample("p", dist.Beta(1.0, 1.0))
    rows, columns = pyro.plate("rows", 5, dim=-2), pyro.plate("columns", 4, dim=-1)
    with rows:
        a = pyro.sample("a", dist.Bernoulli(p))
    with columns:
        b = pyro.sample("b", dist.Bernoulli(p))
    with rows, columns:
        pyro.sample("y", dist.Normal(a * b, 1.0), obs=torch.zeros(5, 4))


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (_infinite, r"Latent site 'k' is discrete \(Poisson\) with infinitely many values.*Binomial or Categorical"),
        (
            _event,
            r"Latent site 'k' is one vector of 5 discrete values \(Bernoulli\), which has 2\*\*5 joint states.*plate",
        ),
        (
            _batch,
            r"Latent site 'k' holds 5 discrete values outside of a plate.*2\*\*5 joint states.*pyro\.plate\('k_plate'",
        ),
        (_loop, r"Site 'k48' is one of more than 48 discrete sites.*2\*\*48 joint states.*pyro\.markov\(range\(n\)\)"),
        (_sum, r"The values of 'k0', 'k1', 'k2', 'k3' and 36 more are combined into .* joint states.*Binomial"),
        (
            _across_rows,
            r"Site 'y' has log density .* all values of 'z' are tried at once.*Vindex.*Rows of a plate must not",
        ),
        (_branch, r"cannot be run with all values of 'z' at once, at or after site 'z' \(RuntimeError.*torch\.where"),
        (_scaled, r"poutine\.scale weighs site 'y' otherwise than 'z'"),
        (
            _crossing,
            r"discrete sites a, b lie in plates that cross each other \(columns, rows\).* 2\*\*. x 2\*\*. joint states",
        ),
    ],
)
def test_models_that_cannot_be_summed_are_refused(model: object, sentence: str) -> None:
    def evaluated() -> Tensor:
        density = build_density(model)
        return density.log_joint(torch.zeros(density.num_params))

    with pytest.raises(ModelError, match=sentence):
        evaluated()


def test_states_of_an_outer_plate_alone_have_its_dimension_in_the_model() -> None:
    def model(y: Tensor) -> None:
        mu = pyro.sample("mu", dist.Normal(torch.zeros(2), 1.0).to_event(1))
        with pyro.plate("items", y.shape[0], dim=-2):
            z = pyro.sample("z", dist.Bernoulli(0.4)).long()
            with pyro.plate("answers", y.shape[1]):
                mean = pyro.deterministic("mean", mu[z] + 0.0 * y)
                pyro.sample("y", dist.Normal(mean, 1.0), obs=y)

    y = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    density = build_density(model, y)
    theta = torch.tensor([0.3, -0.2])
    found = drawn_states(density, theta, y)
    assert found["discrete", "z"].shape == (4,)
    torch.testing.assert_close(found["discrete", "mean"], theta[found["discrete", "z"].long()][:, None].expand(4, 3))


def test_vindex_is_what_the_sentence_says() -> None:
    table = torch.tensor([[0.1, 0.9], [0.4, 0.6]])

    def model(y: Tensor) -> None:
        p = pyro.sample("p", dist.Dirichlet(torch.ones(2)))
        with pyro.plate("rows", len(y)):
            a = pyro.sample("a", dist.Categorical(p))
            b = pyro.sample("b", dist.Categorical(Vindex(table)[a]))
            pyro.sample("y", dist.Normal(Vindex(table)[a, b], 1.0), obs=y)

    y = torch.randn(4, generator=torch.Generator().manual_seed(0))
    density = build_density(model, y)
    theta = torch.tensor([0.3])
    p = density.constrain(theta)["p"]
    terms = torch.stack(
        [(p[a] * table[a, b]).log() + dist.Normal(table[a, b], 1.0).log_prob(y) for a in range(2) for b in range(2)]
    )
    torch.testing.assert_close(density.log_likelihood(theta, y), torch.logsumexp(terms, 0))


def test_a_write_into_a_tensor_ends_the_memory_of_a_run() -> None:
    def model(y: Tensor) -> None:
        mu = pyro.sample("mu", dist.Normal(torch.zeros(2), 1.0).to_event(1))
        with pyro.plate("rows", len(y)):
            z = pyro.sample("z", dist.Bernoulli(0.3)).long()
            table = mu + 1.0
            first = table[z]
            table[0] = 5.0
            pyro.sample("y", dist.Normal(first + table[z], 1.0), obs=y)

    y = torch.randn(4, generator=torch.Generator().manual_seed(0))
    density = build_density(model, y)
    theta = torch.tensor([0.3, -0.2])
    means = (1.3 + 5.0, 2 * 0.8)
    terms = [math.log(p) + dist.Normal(m, 1.0).log_prob(y) for p, m in zip((0.7, 0.3), means, strict=True)]
    torch.testing.assert_close(density.log_likelihood(theta, y), torch.logaddexp(*terms))
