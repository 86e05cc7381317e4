"""Models with discrete latent variables, other than those of time."""

import pyro
import pyro.distributions as dist
import torch
from pyro import poutine
from pyro.contrib.autoname import named, scope
from pyro.distributions import constraints
from pyro.infer import TraceEnum_ELBO, config_enumerate
from pyro.infer.autoguide import AutoDelta, AutoDiagonalNormal
from pyro.ops.indexing import Vindex
from torch import Tensor, nn

from tests.helpers.pyro_programs.catalogue import learnt, normal, refused, sampled, svi

__all__: list[str] = []

TWO = torch.cat([normal(6) - 4.0, normal(5, seed=1) + 4.0])
NUMBERS = torch.tensor([0.0, 1.0, 10.0, 11.0, 12.0])


# enumeration: one site, several, plates, nested plates, and mixtures whose weights are parameters
@learnt("enumeration", "several sites")
@config_enumerate
def several_sites() -> None:
    p = pyro.param("p", torch.arange(9.0).reshape(3, 3).exp(), constraint=constraints.simplex)
    x = pyro.sample("x", dist.Categorical(p[0]))
    y = pyro.sample("y", dist.Categorical(p[x]))
    pyro.sample("z", dist.Categorical(p[y]), obs=torch.tensor(1))


@learnt("enumeration", "plates", (normal(4, 3) > 0).long())
@config_enumerate
def independent_pixels(data: Tensor) -> None:
    p = pyro.param("p", torch.tensor([0.2, 0.3, 0.5]), constraint=constraints.simplex)
    locs = pyro.param("locs", torch.tensor([0.1, 0.5, 0.9]), constraint=constraints.unit_interval)
    with pyro.plate("x_axis", 3, dim=-1), pyro.plate("y_axis", 4, dim=-2):
        z = pyro.sample("z", dist.Categorical(p))
        pyro.sample("obs", dist.Bernoulli(locs[z]), obs=data.double())


@learnt("enumeration", "a site of all rows and sites of each", NUMBERS)
@config_enumerate
def global_and_local(data: Tensor) -> None:
    p = pyro.param("p", torch.tensor([[0.4, 0.6], [0.9, 0.1]]), constraint=constraints.simplex)
    locs = pyro.param("locs", torch.tensor([[0.0, 8.0], [3.0, 12.0]]))
    a = pyro.sample("a", dist.Categorical(torch.ones(2) / 2))
    with pyro.plate("data", len(data)):
        b = pyro.sample("b", dist.Categorical(p[a]))
        pyro.sample("obs", dist.Normal(Vindex(locs)[a, b], 1.0), obs=data)


@config_enumerate
def gaussian_mixture(data: Tensor) -> None:
    weights = pyro.sample("weights", dist.Dirichlet(0.5 * torch.ones(2)))
    scale = pyro.sample("scale", dist.LogNormal(0.0, 2.0))
    with pyro.plate("components", 2):
        locs = pyro.sample("locs", dist.Normal(0.0, 10.0))
    with pyro.plate("data", len(data)):
        assignment = pyro.sample("assignment", dist.Categorical(weights))
        pyro.sample("obs", dist.Normal(locs[assignment], scale), obs=data)


def _full_guide(data: Tensor) -> None:
    weights = pyro.param("weights_q", torch.ones(2) / 2, constraint=constraints.simplex)
    pyro.sample("weights", dist.Delta(weights, event_dim=1))
    pyro.sample("scale", dist.Delta(pyro.param("scale_q", torch.tensor(1.0), constraint=constraints.positive)))
    with pyro.plate("components", 2):
        pyro.sample("locs", dist.Normal(pyro.param("locs_q", torch.tensor([0.0, 10.0])), 0.1))
    with pyro.plate("data", len(data)):
        probs = pyro.param("assignment_probs", torch.ones(len(data), 2) / 2, constraint=constraints.simplex)
        pyro.sample("assignment", dist.Categorical(probs))


sampled("gmm", "NUTS", NUMBERS)(gaussian_mixture)
POINTS_ONLY = AutoDelta(poutine.block(gaussian_mixture, expose=["weights", "locs", "scale"]))
svi("gmm", "AutoDelta", POINTS_ONLY, NUMBERS)(gaussian_mixture)
svi(
    "gmm", "assignments in the guide", config_enumerate(_full_guide), NUMBERS, elbo=TraceEnum_ELBO(max_plate_nesting=1)
)(gaussian_mixture)


def sticks(beta: Tensor) -> Tensor:
    """Return the weights of a broken stick, of which the last piece is what is left."""
    left = (1 - beta).cumprod(-1)
    return nn.functional.pad(beta, (0, 1), value=1) * nn.functional.pad(left, (1, 0), value=1)


COMPONENTS = 4


@config_enumerate
def dirichlet_process(data: Tensor) -> None:
    with pyro.plate("beta_plate", COMPONENTS - 1):
        beta = pyro.sample("beta", dist.Beta(1, 0.1))
    with pyro.plate("mu_plate", COMPONENTS):
        mu = pyro.sample("mu", dist.MultivariateNormal(torch.zeros(2), 5 * torch.eye(2)))
    with pyro.plate("data", len(data)):
        z = pyro.sample("z", dist.Categorical(sticks(beta)))
        pyro.sample("obs", dist.MultivariateNormal(mu[z], torch.eye(2)), obs=data)


def _process_guide(data: Tensor) -> None:
    kappa = pyro.param("kappa", lambda: torch.ones(COMPONENTS - 1), constraint=constraints.positive)
    tau = pyro.param("tau", lambda: normal(COMPONENTS, 2))
    phi = pyro.param("phi", lambda: torch.ones(len(data), COMPONENTS) / COMPONENTS, constraint=constraints.simplex)
    with pyro.plate("beta_plate", COMPONENTS - 1):
        pyro.sample("beta", dist.Beta(torch.ones(COMPONENTS - 1), kappa))
    with pyro.plate("mu_plate", COMPONENTS):
        pyro.sample("mu", dist.MultivariateNormal(tau, torch.eye(2)))
    with pyro.plate("data", len(data)):
        pyro.sample("z", dist.Categorical(phi))


PLANE = normal(8, 2, seed=4) + torch.tensor([3.0, -3.0])
sampled("dirichlet_process_mixture", "NUTS", PLANE)(dirichlet_process)
svi("dirichlet_process_mixture", "own guide", _process_guide, PLANE)(dirichlet_process)


@sampled("dirichlet_process_mixture", "Poisson", torch.tensor([3.0, 8.0, 9.0, 20.0, 4.0]))
@config_enumerate
def sunspots(data: Tensor) -> None:
    alpha = pyro.sample("alpha", dist.Gamma(1.0, 1.0))
    with pyro.plate("beta_plate", COMPONENTS - 1):
        beta = pyro.sample("beta", dist.Beta(1, alpha))
    with pyro.plate("lambda_plate", COMPONENTS):
        rate = pyro.sample("lambda", dist.Gamma(3, 0.05))
    with pyro.plate("data", len(data)):
        z = pyro.sample("z", dist.Categorical(sticks(beta)))
        pyro.sample("obs", dist.Poisson(rate[z]), obs=data)


TRIPLES = {"A": (normal(10) > -0.5).double(), "C": (normal(10, seed=1) > 0).double()}
PRIOR = {"A": torch.tensor([1.0, 10.0]), "B": torch.ones(2, 2) * 3, "C": torch.ones(2, 2) * 2}


@config_enumerate
def three_coins(prior: dict[str, Tensor], obs: dict[str, Tensor], num_obs: int) -> None:
    p_a = pyro.sample("p_A", dist.Beta(1, 1))
    p_b = pyro.sample("p_B", dist.Beta(torch.ones(2), torch.ones(2)).to_event(1))
    p_c = pyro.sample("p_C", dist.Beta(torch.ones(2), torch.ones(2)).to_event(1))
    with pyro.plate("data_plate", num_obs):
        a = pyro.sample("A", dist.Bernoulli(p_a.expand(num_obs)), obs=obs["A"])
        b = pyro.sample("B", dist.Bernoulli(Vindex(p_b)[a.type(torch.long)]), infer={"enumerate": "parallel"})
        pyro.sample("C", dist.Bernoulli(Vindex(p_c)[b.type(torch.long)]), obs=obs["C"])


def _coins_guide(prior: dict[str, Tensor], obs: dict[str, Tensor], num_obs: int) -> None:
    a = pyro.param("a", prior["A"], constraint=constraints.positive)
    pyro.sample("p_A", dist.Beta(a[0], a[1]))
    for name in "BC":
        b = pyro.param(name.lower(), prior[name], constraint=constraints.positive)
        pyro.sample(f"p_{name}", dist.Beta(b[:, 0], b[:, 1]).to_event(1))


TOY = "toy_mixture_model_discrete_enumeration"
sampled(TOY, "NUTS", PRIOR, TRIPLES, 10)(three_coins)
svi(TOY, "own guide", _coins_guide, PRIOR, TRIPLES, 10, elbo=TraceEnum_ELBO(max_plate_nesting=1))(three_coins)


# lda: topics of documents, with weights of the topics and an amortised guide
WORDS = torch.tensor([[0, 1, 4], [0, 2, 4], [1, 1, 3], [0, 1, 3]])  # four words of three documents
NUM_TOPICS, NUM_WORDS = 2, 5


def topics(data: Tensor | None = None, batch_size: int | None = None) -> None:
    with pyro.plate("topics", NUM_TOPICS):
        topic_weights = pyro.sample("topic_weights", dist.Gamma(1.0 / NUM_TOPICS, 1.0))
        topic_words = pyro.sample("topic_words", dist.Dirichlet(torch.ones(NUM_WORDS) / NUM_WORDS))
    with pyro.plate("documents", 3) as ind:
        data = data if data is None else data[:, ind]
        doc_topics = pyro.sample("doc_topics", dist.Dirichlet(topic_weights))
        with pyro.plate("words", 4):
            word_topics = pyro.sample("word_topics", dist.Categorical(doc_topics), infer={"enumerate": "parallel"})
            pyro.sample("doc_words", dist.Categorical(topic_words[word_topics]), obs=data)


PREDICTOR = nn.Sequential(nn.Linear(NUM_WORDS, 6), nn.Sigmoid(), nn.Linear(6, NUM_TOPICS), nn.Softmax(-1))


def _amortised(data: Tensor, batch_size: int | None = None) -> None:
    weights = pyro.param("weights_q", lambda: torch.ones(NUM_TOPICS), constraint=constraints.positive)
    words = pyro.param("words_q", lambda: torch.ones(NUM_TOPICS, NUM_WORDS), constraint=constraints.greater_than(0.5))
    with pyro.plate("topics", NUM_TOPICS):
        pyro.sample("topic_weights", dist.Gamma(weights, 1.0))
        pyro.sample("topic_words", dist.Dirichlet(words))
    pyro.module("predictor", PREDICTOR)
    with pyro.plate("documents", 3, batch_size) as ind:
        data = data[:, ind]
        counts = torch.zeros(NUM_WORDS, ind.size(0)).scatter_add(0, data, torch.ones(data.shape))
        pyro.sample("doc_topics", dist.Delta(PREDICTOR(counts.transpose(0, 1)), event_dim=1))


sampled("lda", "NUTS", WORDS)(topics)
svi("lda", "amortised guide", _amortised, WORDS, elbo=TraceEnum_ELBO(max_plate_nesting=2))(topics)

# capture_recapture: five models of when animals were seen
HISTORY = torch.tensor([[1.0, 1, 0, 1], [0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 1, 1], [0, 1, 1, 0]])
SEX = torch.tensor([0.0, 1, 0, 1, 1])


def _seen(history: Tensor, survival: object, rho: Tensor) -> None:
    """Sample the states and observe the captures, given the survival at each time as a function."""
    n, steps = history.shape
    z, captured = torch.ones(n), torch.zeros(n).bool()
    animals = pyro.plate("animals", n, dim=-1)
    for t in pyro.markov(range(steps)):
        phi = survival(t)  # type: ignore[operator]
        with animals, poutine.mask(mask=captured):
            mu = captured.double() * phi * z + (1 - captured.double())
            z = pyro.sample(f"z_{t}", dist.Bernoulli(mu), infer={"enumerate": "parallel"})
            pyro.sample(f"y_{t}", dist.Bernoulli(rho * z), obs=history[:, t])
        captured |= history[:, t].bool()


def constant_survival(history: Tensor, sex: Tensor) -> None:
    phi, rho = pyro.sample("phi", dist.Uniform(0.0, 1.0)), pyro.sample("rho", dist.Uniform(0.0, 1.0))
    with pyro.plate("animals", len(history), dim=-1):
        z, captured = torch.ones(len(history)), torch.zeros(len(history)).bool()
        for t in pyro.markov(range(history.shape[1])):
            with poutine.mask(mask=captured):
                mu = captured.double() * phi * z + (1 - captured.double())
                z = pyro.sample(f"z_{t}", dist.Bernoulli(mu), infer={"enumerate": "parallel"})
                pyro.sample(f"y_{t}", dist.Bernoulli(rho * z), obs=history[:, t])
            captured |= history[:, t].bool()


def fixed_times(history: Tensor, sex: Tensor) -> None:
    rho = pyro.sample("rho", dist.Uniform(0.0, 1.0))
    _seen(history, lambda t: pyro.sample(f"phi_{t}", dist.Uniform(0.0, 1.0)) if t else 1.0, rho)


def random_times(history: Tensor, sex: Tensor) -> None:
    mean = pyro.sample("phi_mean", dist.Uniform(0.0, 1.0))
    sigma = pyro.sample("phi_sigma", dist.Uniform(0.0, 10.0))
    rho = pyro.sample("rho", dist.Uniform(0.0, 1.0))
    centre = torch.log(mean) - torch.log1p(-mean)

    def survival(t: int) -> Tensor:
        return torch.sigmoid(pyro.sample(f"phi_logit_{t}", dist.Normal(centre, sigma)) if t else torch.tensor(0.0))

    _seen(history, survival, rho)


def by_sex(history: Tensor, sex: Tensor) -> None:
    male, female = (pyro.sample(f"phi_{name}", dist.Uniform(0.0, 1.0)) for name in ("male", "female"))
    rho = pyro.sample("rho", dist.Uniform(0.0, 1.0))
    _seen(history, lambda t: sex * male + (1.0 - sex) * female, rho)


def sex_and_times(history: Tensor, sex: Tensor) -> None:
    beta = sex * pyro.sample("phi_beta", dist.Normal(0.0, 10.0))
    rho = pyro.sample("rho", dist.Uniform(0.0, 1.0))
    _seen(
        history,
        lambda t: torch.sigmoid(beta + (pyro.sample(f"phi_gamma_{t}", dist.Normal(0.0, 10.0)) if t else 0.0)),
        rho,
    )


def _exposed(model: object) -> AutoDiagonalNormal:
    return AutoDiagonalNormal(poutine.block(model, expose_fn=lambda msg: msg["name"][:3] in ("phi", "rho")))


PARTICLES = TraceEnum_ELBO(max_plate_nesting=1, num_particles=4, vectorize_particles=True)
for number, survival_model in enumerate((constant_survival, fixed_times, random_times, by_sex, sex_and_times), 1):
    sampled("capture_recapture", f"model {number}, NUTS", HISTORY, SEX)(survival_model)
    svi(
        "capture_recapture",
        f"model {number}, AutoDiagonalNormal",
        _exposed(survival_model),
        HISTORY,
        SEX,
        elbo=PARTICLES,
    )(survival_model)


# autoname_examples: names that objects and scopes make
POINTS = torch.tensor([0.0, 1.0, 2.0, 20.0])


@refused(
    "autoname_examples", "scopes", r"Site 'local/obs' has a name .* write a name such as 'group.effect'", 2, POINTS
)
def in_a_scope(k: int, data: Tensor) -> None:
    weights = pyro.param("weights", torch.ones(k) / k, constraint=constraints.simplex)
    locs = pyro.param("locs", 10 * normal(k))
    scale = pyro.param("scale", torch.tensor(0.5), constraint=constraints.positive)
    with pyro.plate("data"):
        _local(weights, locs, scale, data)


@scope(prefix="local")
def _local(weights: Tensor, locs: Tensor, scale: Tensor, data: Tensor) -> None:
    assignment = pyro.sample("assignment", dist.Categorical(weights).expand_by([len(data)]))
    pyro.sample("obs", dist.Normal(locs[assignment], scale), obs=data)


@learnt("autoname_examples", "objects", POINTS, 2)
def of_objects(data: Tensor, k: int) -> None:
    latent = named.Object("latent")
    latent.probs.param_(torch.ones(k) / k, constraint=constraints.simplex)
    latent.locs.param_(torch.tensor([0.0, 10.0]))
    latent.scales.param_(torch.ones(k), constraint=constraints.positive)
    latent.local = named.List()
    for x in data:
        own = latent.local.add()
        i = own.id.sample_(dist.Categorical(latent.probs))
        own.x.sample_(dist.Normal(latent.locs[i], latent.scales[i]), obs=x)


TREE = {"foo": torch.tensor(1.0), "bar": [torch.tensor(0.0), torch.tensor(1.0)], "baz": {"noun": torch.tensor(4.0)}}


def tree(data: object) -> None:
    latent = named.Object("latent")
    latent.z.sample_(dist.Normal(0.0, 1.0))
    _branch(data, latent)


def _branch(data: object, latent: named.Object) -> None:
    if torch.is_tensor(data):
        latent.x.sample_(dist.Normal(latent.z, 1.0), obs=data)
        return
    latent.prior_scale.param_(torch.tensor(1.0), constraint=constraints.positive)
    if isinstance(data, list):
        latent.list = named.List()
        parts = [(latent.list.add(), value) for value in data]
    else:
        latent.dict = named.Dict()
        parts = [(latent.dict[key], value) for key, value in data.items()]  # type: ignore[attr-defined]
    for part, value in parts:
        part.z.sample_(dist.Normal(latent.z, latent.prior_scale))
        _branch(value, part)


svi("autoname_examples", "a tree of data", AutoDiagonalNormal, TREE)(tree)
