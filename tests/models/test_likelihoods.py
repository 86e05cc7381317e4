"""Likelihoods against scipy's densities, and every refusal of a target."""

import math
import pickle

import numpy as np
import pyro.distributions as dist
import pytest
import scipy.stats
import torch
from pyro import poutine
from scipy.special import expit
from torch.func import vmap
from torch.fx.experimental.proxy_tensor import make_fx

from bnnzoo.core.model.density import build_density
from bnnzoo.models import likelihoods, mlp, priors, supervised

F = torch.tensor([[-1.0], [0.0], [2.5]])
Y = torch.tensor([-0.5, 0.3, 4.0])
TWO = torch.tensor([[-1.0, 0.0], [0.0, -1.0], [2.5, 2.0]])
LOC, TARGET = F[:, 0].numpy(), Y.numpy()
SCALE = np.log1p(np.exp([0.0, -1.0, 2.0])) + 1e-6


def log_prob(likelihood, output, y, values=None):
    trace = poutine.trace(poutine.condition(likelihood, values or {})).get_trace(output, y)
    trace.compute_log_prob()
    return trace.nodes["y"]["log_prob"], trace.nodes


@pytest.mark.parametrize(
    ("likelihood", "output", "y", "expected"),
    [
        (likelihoods.gaussian(0.5), F, Y, scipy.stats.norm(LOC, 0.5).logpdf(TARGET)),
        (likelihoods.laplace(0.5), F, Y, scipy.stats.laplace(LOC, 0.5).logpdf(TARGET)),
        (likelihoods.student_t(3.0, 0.5), F, Y, scipy.stats.t(3.0, LOC, 0.5).logpdf(TARGET)),
        (likelihoods.heteroscedastic_gaussian(), TWO, Y, scipy.stats.norm(LOC, SCALE).logpdf(TARGET)),
        (likelihoods.heteroscedastic_laplace(), TWO, Y, scipy.stats.laplace(LOC, SCALE).logpdf(TARGET)),
        (
            likelihoods.bernoulli(),
            F,
            torch.tensor([1, 0, 1]),
            scipy.stats.bernoulli(expit(LOC)).logpmf([1, 0, 1]),
        ),
        (likelihoods.categorical(), TWO, torch.tensor([1, 0, 1]), torch.log_softmax(TWO, -1)[range(3), [1, 0, 1]]),
        (likelihoods.poisson(), F, torch.tensor([0, 2, 9]), scipy.stats.poisson(np.exp(LOC)).logpmf([0, 2, 9])),
    ],
    ids=["gaussian", "laplace", "student_t", "het_gaussian", "het_laplace", "bernoulli", "categorical", "poisson"],
)
def test_the_density_of_each_row_is_scipys(likelihood, output, y, expected):
    found, nodes = log_prob(likelihood, output, y)
    np.testing.assert_allclose(found, expected)
    assert [frame.name for frame in nodes["y"]["cond_indep_stack"]] == ["data"]
    assert likelihood(output).shape == y.shape


def test_an_output_without_a_last_dimension_means_the_same():
    with_column, _ = log_prob(likelihoods.gaussian(0.5), F, Y)
    without, _ = log_prob(likelihoods.gaussian(0.5), F[:, 0], Y)
    torch.testing.assert_close(with_column, without)


def test_an_inferred_scale_is_the_site_sigma():
    _, nodes = log_prob(likelihoods.gaussian(), F, Y)
    assert isinstance(nodes["sigma"]["fn"], dist.HalfNormal)
    values = {"sigma": torch.tensor(0.5)}
    found, nodes = log_prob(likelihoods.laplace(dist.HalfCauchy(2.0)), F, Y, values)
    np.testing.assert_allclose(found, scipy.stats.laplace(LOC, 0.5).logpdf(TARGET))
    assert isinstance(nodes["sigma"]["fn"], dist.HalfCauchy)


def test_inferred_degrees_of_freedom_are_the_site_df():
    values = {"sigma": torch.tensor(0.5), "df": torch.tensor(7.0)}
    found, _ = log_prob(likelihoods.student_t(df=dist.Gamma(2.0, 0.1)), F, Y, values)
    np.testing.assert_allclose(found, scipy.stats.t(7.0, LOC, 0.5).logpdf(TARGET))


def test_several_targets_have_a_noise_scale_each():
    y, values = torch.randn(3, 2), {"sigma": torch.tensor([0.5, 2.0])}
    found, nodes = log_prob(likelihoods.gaussian(), TWO, y, values)
    np.testing.assert_allclose(found, scipy.stats.norm(TWO.numpy(), [0.5, 2.0]).logpdf(y.numpy()).sum(-1))
    assert nodes["sigma"]["fn"].event_shape == (2,)


def test_heteroscedastic_outputs_are_locations_first():
    output, y = torch.randn(3, 4), torch.randn(3, 2)
    found, _ = log_prob(likelihoods.heteroscedastic_gaussian(min_scale=0.1), output, y)
    scale = np.log1p(np.exp(output[:, 2:].numpy())) + 0.1
    np.testing.assert_allclose(found, scipy.stats.norm(output[:, :2].numpy(), scale).logpdf(y.numpy()).sum(-1))


@pytest.mark.parametrize("kind", [torch.bool, torch.int64, torch.float64])
def test_binary_targets_may_be_of_any_type(kind):
    found, _ = log_prob(likelihoods.bernoulli(), F, torch.tensor([1, 0, 1]).to(kind))
    np.testing.assert_allclose(found, scipy.stats.bernoulli(expit(LOC)).logpmf([1, 0, 1]))


def test_whole_floats_are_counts():
    found, _ = log_prob(likelihoods.poisson(), F, torch.tensor([0.0, 2.0, 9.0]))
    np.testing.assert_allclose(found, scipy.stats.poisson(np.exp(LOC)).logpmf([0, 2, 9]))


K3 = torch.zeros(3, 3)
REFUSED = [
    (
        likelihoods.gaussian(),
        F,
        torch.tensor([1, 2, 3]),
        TypeError,
        r"gaussian: y has the type torch.int64, but a real .* y.astype\(float\).*poisson.*categorical",
    ),
    (likelihoods.laplace(), F, torch.tensor([True, False, True]), TypeError, "laplace: y has the type torch.bool"),
    (
        likelihoods.student_t(),
        F,
        Y[:2],
        ValueError,
        "student_t: y has 2 rows, but the network's output, and so x, has 3",
    ),
    (likelihoods.gaussian(), F, torch.tensor(1.0), ValueError, "gaussian: y has no rows"),
    (
        likelihoods.gaussian(),
        F,
        Y[:, None],
        ValueError,
        r"y has shape \(3, 1\), .* needs y of shape \(3,\): write y.squeeze\(-1\)",
    ),
    (
        likelihoods.gaussian(),
        F,
        torch.zeros(3, 2),
        ValueError,
        r"y has shape \(3, 2\).*: give the network out_features=2",
    ),
    (likelihoods.gaussian(), TWO, Y, ValueError, r"y of shape \(3, 2\): give the network out_features=1"),
    (likelihoods.heteroscedastic_gaussian(), TWO, torch.zeros(3, 2), ValueError, "give the network out_features=4"),
    (
        likelihoods.heteroscedastic_gaussian(),
        F,
        Y,
        ValueError,
        r"two outputs per target, .* output has shape \(3, 1\): give it out_features=2",
    ),
    (
        likelihoods.heteroscedastic_laplace(),
        F[:, 0],
        Y,
        ValueError,
        "heteroscedastic_laplace: the network needs two outputs",
    ),
    (
        likelihoods.gaussian(),
        F,
        torch.tensor([1.0, math.nan, 2.0]),
        ValueError,
        "y is nan in row 1, which is not a finite number: remove the row",
    ),
    (
        likelihoods.gaussian(),
        TWO,
        torch.tensor([[1.0, 1.0], [0.0, 0.0], [0.0, -math.inf]]),
        ValueError,
        "y is -inf in row 2",
    ),
    (
        likelihoods.gaussian(),
        F,
        [1.0, 2.0, 3.0],
        TypeError,
        r"y must be a tensor, but is list: write torch.as_tensor\(y\)",
    ),
    (
        likelihoods.gaussian(),
        torch.zeros(3, 2, 2),
        Y,
        ValueError,
        r"output must be a floating-point tensor of shape \[N, outputs\], but is torch.float64 of shape \(3, 2, 2\)",
    ),
    (likelihoods.gaussian(), (F, F), Y, ValueError, r"output must be a floating-point tensor .* but is tuple"),
    (
        likelihoods.bernoulli(),
        F,
        torch.tensor([1, 2, 1]),
        ValueError,
        "bernoulli: y is 2 in row 1, but must be 0 or 1: recode y",
    ),
    (likelihoods.bernoulli(), F, torch.tensor([1.0, 0.0, 0.5]), ValueError, "bernoulli: y is 0.5 in row 2"),
    (likelihoods.bernoulli(), F, torch.tensor([[1], [0], [1]]), ValueError, r"write y.squeeze\(-1\)"),
    (
        likelihoods.categorical(),
        K3,
        Y,
        TypeError,
        r"categorical: y has the type torch.float64, but class labels are integers .* y.long\(\)",
    ),
    (
        likelihoods.categorical(),
        K3,
        torch.tensor([0, 3, 1]),
        ValueError,
        "categorical: y is 3 in row 1, but the network has 3 logits, for the labels 0 to 2: relabel",
    ),
    (likelihoods.categorical(), K3, torch.tensor([0, 1, -1]), ValueError, "categorical: y is -1 in row 2"),
    (likelihoods.categorical(), K3, torch.tensor([0, 1]), ValueError, "categorical: y has 2 rows"),
    (
        likelihoods.categorical(),
        F,
        torch.tensor([0, 1, 0]),
        ValueError,
        "categorical: the network needs one logit per class.*bernoulli",
    ),
    (
        likelihoods.poisson(),
        F,
        torch.tensor([0, -1, 2]),
        ValueError,
        "poisson: y is -1 in row 1, but counts are 0, 1, 2, ...",
    ),
    (likelihoods.poisson(), F, torch.tensor([0.0, 1.5, 2.0]), ValueError, "poisson: y is 1.5 in row 1"),
    (likelihoods.poisson(), F, torch.tensor([0.0, math.inf, 2.0]), ValueError, "poisson: y is inf in row 1"),
    (
        likelihoods.poisson(),
        F,
        torch.tensor([True, True, False]),
        TypeError,
        "poisson: y has the type torch.bool.*bernoulli",
    ),
    (
        likelihoods.negative_binomial(),
        F,
        torch.tensor([0, -1, 2]),
        ValueError,
        "negative_binomial: y is -1 in row 1, but counts are 0, 1, 2, ...",
    ),
    (
        likelihoods.zero_inflated_poisson(),
        F,
        torch.tensor([0, 1, 2]),
        ValueError,
        r"two outputs per target, its log mean and the logit of additional zeros, .* shape \(3, 1\): give it out_features=2",
    ),
    (
        likelihoods.zero_inflated_negative_binomial(),
        TWO,
        torch.tensor([0.0, 1.0, 0.5]),
        ValueError,
        "zero_inflated_negative_binomial: y is 0.5 in row 2",
    ),
    (
        likelihoods.beta(),
        F,
        torch.tensor([0.5, 1.0, 0.0]),
        ValueError,
        r"beta: y is 1.0 in row 1, but proportions lie strictly between 0 and 1: move those at the ends inside, .*\(N - 1\)",
    ),
    (likelihoods.beta(), F, torch.tensor([0, 1, 1]), ValueError, "beta: y is 0 in row 0, .*bernoulli"),
    (
        likelihoods.gamma(),
        F,
        torch.tensor([0.5, 1.0, 0.0]),
        ValueError,
        "gamma: y is 0.0 in row 2, but must be positive: where y may be zero or negative use likelihoods.gaussian",
    ),
    (likelihoods.gamma(), F, torch.tensor([True, True, False]), TypeError, "gamma: y has the type torch.bool"),
    (likelihoods.log_normal(), F, torch.tensor([1.0, math.inf, 2.0]), ValueError, "log_normal: y is inf in row 1"),
    (likelihoods.weibull(), F, torch.tensor([1, 2, -3]), ValueError, "weibull: y is -3 in row 2, but must be positive"),
    (
        likelihoods.ordinal(3),
        F,
        torch.tensor([0, 3, 1]),
        ValueError,
        "ordinal: y is 3 in row 1, but the categories are 0 to 2: recode y from 0, or give num_categories=",
    ),
    (
        likelihoods.ordinal(3),
        F,
        Y,
        TypeError,
        "ordinal: y has the type torch.float64, but ordered categories are integers",
    ),
    (
        likelihoods.multivariate_gaussian(),
        F,
        Y,
        ValueError,
        r"multivariate_gaussian: the network needs two outputs or more, .* shape \(3, 1\): give it out_features=D",
    ),
    (
        likelihoods.gaussian_mixture(2),
        TWO,
        Y,
        ValueError,
        r"gaussian_mixture: the network needs a location and a scale for each .* shape \(3, 2\): give it out_features=6",
    ),
]


@pytest.mark.parametrize(("likelihood", "output", "y", "error", "message"), REFUSED)
def test_a_wrong_target_is_refused_in_one_sentence(likelihood, output, y, error, message):
    with pytest.raises(error, match=message) as caught:
        likelihood(output, y)
    assert str(caught.value).startswith("likelihoods.")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("y", [torch.tensor([1.0, math.nan, 2.0])])
def test_values_are_not_looked_at_while_traced_or_batched(y):
    def logits(output, y):
        return poutine.trace(likelihoods.gaussian(0.5)).get_trace(output, y).nodes["y"]["fn"].mean

    outputs = torch.zeros(2, 3, 1)
    torch.testing.assert_close(make_fx(vmap(logits, in_dims=(0, None)))(outputs, y)(outputs, y), outputs[..., 0])
    torch.testing.assert_close(vmap(logits, in_dims=(0, 0))(outputs, y.expand(2, 3)), outputs[..., 0])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: likelihoods.gaussian(0.0), "likelihoods.gaussian: scale must be a positive number, but is 0.0"),
        (lambda: likelihoods.student_t(df=-1.0), "likelihoods.student_t: df must be a positive number"),
        (lambda: likelihoods.laplace(dist.Normal(0.0, 1.0)), "likelihoods.laplace: .* only positive values"),
        (lambda: likelihoods.heteroscedastic_gaussian(0.0), "min_scale must be a positive number"),
        (lambda: likelihoods.gamma(shape=0.0), "likelihoods.gamma: shape must be a positive number, but is 0.0"),
        (lambda: likelihoods.beta(dist.Normal(0.0, 1.0)), "likelihoods.beta: .* only positive values"),
        (
            lambda: likelihoods.zero_inflated_poisson(1.5),
            "zeros must be a probability strictly between 0 and 1, .* 1.5",
        ),
        (
            lambda: likelihoods.zero_inflated_poisson(dist.Gamma(1.0, 1.0)),
            r"the prior of zeros must be on probabilities, such as Beta\(1.0, 1.0\)",
        ),
        (lambda: likelihoods.ordinal(1), "num_categories must be a whole number, two or more, but is 1"),
        (lambda: likelihoods.ordinal(3, (1.0, 0.0)), r"cutpoints must be 2 increasing numbers .* but are \(1.0, 0.0\)"),
        (
            lambda: likelihoods.ordinal(3, dist.HalfNormal(1.0)),
            "the prior of cutpoints must be one scalar distribution",
        ),
        (lambda: likelihoods.multivariate_gaussian(concentration=0.0), "concentration must be a positive number"),
        (lambda: likelihoods.gaussian_mixture(0), "num_components must be a whole number, one or more, but is 0"),
    ],
)
def test_bad_arguments_are_refused_at_once(make, message):
    with pytest.raises(ValueError, match=message):
        make()


ALL = {
    "gaussian": (likelihoods.gaussian(), 1, Y),
    "laplace": (likelihoods.laplace(), 1, Y),
    "student_t": (likelihoods.student_t(dist.Gamma(2.0, 0.1)), 1, Y),
    "heteroscedastic_gaussian": (likelihoods.heteroscedastic_gaussian(), 2, Y),
    "heteroscedastic_laplace": (likelihoods.heteroscedastic_laplace(), 2, Y),
    "bernoulli": (likelihoods.bernoulli(), 1, torch.tensor([0, 1, 1])),
    "categorical": (likelihoods.categorical(), 3, torch.tensor([0, 2, 1])),
    "poisson": (likelihoods.poisson(), 1, torch.tensor([0, 2, 1])),
    "several": (likelihoods.gaussian(), 2, TWO),
}
MORE = {
    "negative_binomial": (likelihoods.negative_binomial(), 1, torch.tensor([0, 2, 1])),
    "zero_inflated_poisson": (likelihoods.zero_inflated_poisson(), 2, torch.tensor([0, 2, 1])),
    "zero_inflated_negative_binomial": (
        likelihoods.zero_inflated_negative_binomial(dist.Beta(1.0, 1.0)),
        1,
        torch.tensor([0, 2, 1]),
    ),
    "beta": (likelihoods.beta(), 1, torch.tensor([0.1, 0.5, 0.9])),
    "gamma": (likelihoods.gamma(), 2, TWO.exp()),
    "log_normal": (likelihoods.log_normal(), 1, Y.exp()),
    "weibull": (likelihoods.weibull(), 1, Y.exp()),
    "ordinal": (likelihoods.ordinal(4), 1, torch.tensor([0, 3, 1])),
    "multivariate_gaussian": (likelihoods.multivariate_gaussian(), 2, TWO),
    "gaussian_mixture": (likelihoods.gaussian_mixture(2), 6, Y),
}


CASES = [pytest.param(*case, id=name) for name, case in ALL.items()]
CASES += [
    pytest.param(*case, id=name, marks=() if name == "ordinal" else pytest.mark.slow) for name, case in MORE.items()
]


@pytest.mark.parametrize(("likelihood", "width", "y"), CASES)
def test_every_likelihood_works_on_the_density(likelihood, width, y):
    x = torch.randn(3, 2)
    density = build_density(
        supervised(mlp(2, (2,), width), priors.normal(), pickle.loads(pickle.dumps(likelihood))), x, y
    )
    theta = density.init(2, seed=0)
    value, gradient = density.value_and_grad(theta, x, y)
    torch.testing.assert_close(value, torch.stack([density.log_joint(row, x, y) for row in theta]))
    assert torch.isfinite(gradient).all()
    assert density.observed == ("y",)
    assert density.num_data == 3
    assert density.predictive(theta[0], x)["y"].shape == y.shape
    batch = density.log_likelihood(theta[0], x[:2], y[:2])
    torch.testing.assert_close(batch, density.log_likelihood(theta[0], x, y)[:2])
    assert density.conditional(theta[0], x).keys() & {"mean", "probs"}
