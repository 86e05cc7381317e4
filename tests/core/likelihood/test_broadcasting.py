"""Observed distributions without an axis of rows: every reader sees the shape of what is observed."""

from collections.abc import Callable
from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from pyro.distributions import TorchDistribution
from pyro.distributions.transforms import AffineTransform, ExpTransform
from torch import Tensor

import bnnzoo as bz
from bnnzoo.core.likelihood.broadcasting import broadcast_to_rows, broadcast_to_value
from bnnzoo.core.model.density import build_density
from bnnzoo.core.model.outputs import linearized
from bnnzoo.core.posterior.posterior import Gaussian
from bnnzoo.inference.laplace.curvature import sum_over_rows

N = 7
COUNTS = torch.tensor([0.0, 0.0, 3.0, 1.0, 0.0, 2.0, 5.0])
REAL = torch.linspace(-1.0, 2.0, N)
VECTORS = torch.stack([REAL, REAL.flip(0), REAL**2], -1)
LABELS = torch.tensor([0, 1, 2, 2, 1, 0, 2])
SEEN = torch.tensor([True, True, False, True, True, True, False])


class Shifted(TorchDistribution):
    """A family of a user's own, which Pyro expands by a wrapper."""

    arg_constraints = {"loc": dist.constraints.real}
    support = dist.constraints.real

    def __init__(self, loc: Tensor) -> None:
        self.loc = loc
        super().__init__(loc.shape, validate_args=False)

    @property
    def mean(self) -> Tensor:
        return self.loc

    def log_prob(self, value: Tensor) -> Tensor:
        return -((value - self.loc) ** 2).exp()

    def sample(self, sample_shape: Any = ()) -> Tensor:
        return self.loc + torch.randn(torch.Size(sample_shape) + self.loc.shape)


def _mixture(a: Tensor, s: Tensor) -> Any:
    return dist.MixtureSameFamily(dist.Categorical(logits=a), dist.Normal(a, s))


def _transformed(a: Tensor, s: Tensor) -> Any:
    return dist.TransformedDistribution(dist.Normal(0.0, 1.0), [AffineTransform(a[0], s), ExpTransform()])


FAMILIES: dict[str, tuple[Callable[[Tensor, Tensor], Any], Tensor]] = {
    "normal": (lambda a, s: dist.Normal(a[0], s), REAL),
    "student": (lambda a, s: dist.StudentT(4.0, a[0], s), REAL),
    "zero-inflated": (lambda a, s: dist.ZeroInflatedPoisson(s.exp(), gate_logits=a[0]), COUNTS),
    "negative binomial": (lambda a, s: dist.NegativeBinomial(s, logits=a[0]), COUNTS),
    "categorical": (lambda a, s: dist.Categorical(logits=a * s), LABELS),
    "ordered": (lambda a, s: dist.OrderedLogistic(a[0], torch.stack([-s, s])), LABELS),
    "mixture": (_mixture, REAL),
    "transformed": (_transformed, REAL.exp()),
    "masked": (lambda a, s: dist.Normal(a[0], s).mask(SEEN), REAL),
    "multivariate": (lambda a, s: dist.MultivariateNormal(a, s * torch.eye(3)), VECTORS),
    "independent": (lambda a, s: dist.Normal(a, s).to_event(1), VECTORS),
    "vectors": (lambda a, s: dist.Normal(a, s), VECTORS),
    "a user's own": (lambda a, s: Shifted(a[0] * s), REAL / 4),
}


def _models(name: str) -> tuple[Callable[[Tensor], None], Callable[[Tensor], None], Tensor]:
    """Return a model without an axis of rows, the same one with it written out, and the observations."""
    build, y = FAMILIES[name]

    def parameters() -> tuple[Tensor, Tensor]:
        return pyro.sample("a", dist.Normal(torch.zeros(3), 1.0).to_event(1)), pyro.sample("s", dist.Gamma(2.0, 2.0))

    def short(y: Tensor) -> None:
        with pyro.plate("rows"):
            pyro.sample("y", build(*parameters()), obs=y)

    def written_out(y: Tensor) -> None:
        a, s = parameters()
        fn = build(a, s)
        wanted = y.shape[: y.ndim - len(fn.event_shape)]
        fn = fn.expand(wanted)
        with pyro.plate("rows"):
            pyro.sample("y", fn, obs=y)

    def no_plate(y: Tensor) -> None:
        pyro.sample("y", build(*parameters()), obs=y)

    return (no_plate if name == "vectors" else short), (written_out if name != "vectors" else _vectors), y


def _vectors(y: Tensor) -> None:
    a = pyro.sample("a", dist.Normal(torch.zeros(3), 1.0).to_event(1))
    s = pyro.sample("s", dist.Gamma(2.0, 2.0))
    pyro.sample("y", dist.Normal(a, s).expand(y.shape), obs=y)


@pytest.mark.parametrize("name", FAMILIES)
def test_every_reader_sees_the_rows(name: str) -> None:
    short, written_out, y = _models(name)
    one, other = (build_density(model, y) for model in (short, written_out))
    theta = torch.tensor([0.3, -0.2, 0.4, -0.3])
    assert one.num_data == other.num_data == (y.numel() if name == "vectors" else N)
    torch.testing.assert_close(one.log_likelihood(theta, y), other.log_likelihood(theta, y), rtol=1e-12, atol=1e-12)
    given = poutine.condition(short, data=one.constrain(theta))
    own = poutine.trace(given).get_trace(y)
    own.compute_log_prob()
    torch.testing.assert_close(one.log_likelihood(theta, y).sum(), own.nodes["y"]["log_prob"].sum())
    expected = other.conditional(theta, y)
    for key, value in one.conditional(theta, y).items():
        assert value.shape[0] == N
        torch.testing.assert_close(value, expected[key])
    assert one.predictive(theta, y)["y"].shape == y.shape
    found, wanted = (sum_over_rows(each, theta, "ggn", lambda root: root.mT @ root) for each in (one, other))
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-9)
    line = linearized(one, theta)
    torch.testing.assert_close(line.log_likelihood(theta, y), one.log_likelihood(theta, y))
    assert line.predictive(theta, y)["y"].shape == y.shape


def _heights(y: Tensor | None, x: Tensor | None = None) -> None:
    mu, sigma = pyro.sample("mu", dist.Normal(178.0, 20.0)), pyro.sample("sigma", dist.Uniform(0.0, 50.0))
    with pyro.plate("rows"):
        pyro.sample("y", dist.Normal(mu, sigma), obs=y)


@pytest.mark.parametrize("method", [bz.Laplace(), bz.DiagonalLaplace(), bz.LowRankLaplace()])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_laplace_of_independent_rows_is_as_wide_as_their_number_says(method: Any, dtype: torch.dtype) -> None:
    y = 154 + 8 * torch.randn(400, generator=torch.Generator().manual_seed(0))
    posterior = bz.fit(_heights, method, y, dtype=dtype)
    assert isinstance(posterior, Gaussian)
    s = float(y.std(correction=0))
    sd = posterior.covariance.diagonal().sqrt().tolist()
    sigma = float(posterior.density.constrain(posterior.loc)["sigma"])
    slope = sigma * (1 - sigma / 50)  # of sigma about its logit
    assert abs(sd[0] / (s / 20) - 1) < 0.01
    assert abs(sd[1] * slope / (s / 800**0.5) - 1) < 0.02
    assert abs(sigma / s - 1) < 0.01


def test_predictions_have_a_number_for_each_row() -> None:
    y = 154 + 8 * torch.randn(40, generator=torch.Generator().manual_seed(0))
    posterior = bz.fit(_heights, bz.Laplace(), y)
    tree = bz.posterior_predictive(posterior, y, num_draws=50)
    assert tree["posterior_predictive"]["y"].shape == (1, 50, 40)
    assert tree["conditional"]["mean"].shape == (1, 50, 40)
    new = bz.predict(posterior, None, torch.zeros(5), num_draws=50)
    assert new["predictions"]["y"].shape == (1, 50, 5)
    assert float(new["predictions"]["y"].std("obs_id").min()) > 0.5  # drawn for each row
    with_nothing = build_density(_heights, y).predictive(posterior.loc, None)
    assert with_nothing["y"].numel() == 1  # nothing says how many


def test_what_repeats_its_values_is_left_as_it_is() -> None:
    normal = dist.Normal(torch.zeros(3, 1), 1.0)
    assert broadcast_to_value(normal, torch.zeros(3)) is normal
    assert broadcast_to_value(normal, 1.0) is normal
    assert broadcast_to_value(normal, torch.zeros(4, 5)) is normal
    assert broadcast_to_value(normal, torch.zeros(3, 5)).batch_shape == (3, 5)
    assert broadcast_to_rows(normal, [], (torch.zeros(3),)) is normal
    with pytest.raises(NotImplementedError):  # torch's own classes need not say how they are expanded
        _Bare(torch.Size()).expand((3,))
    assert broadcast_to_value(_Bare(torch.Size()), torch.zeros(3)).batch_shape == (3,)


class _Bare(torch.distributions.Distribution):
    arg_constraints = {}


def test_a_mixture_whose_weights_are_common_to_all_rows_is_drawn_from() -> None:
    def model(x: Tensor, y: Tensor | None = None) -> None:
        w = pyro.sample("w", dist.Normal(0.0, 1.0))
        weights = dist.Categorical(torch.tensor([0.3, 0.7]))
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.MixtureSameFamily(weights, dist.Normal(torch.stack([w * x, x], -1), 1.0)), obs=y)

    x = torch.linspace(-1, 1, 5)
    posterior = bz.fit(model, bz.MAP(num_steps=1), x, x, progress=False)
    assert bz.predict(posterior, x[:3])["predictions"]["y"].sizes["obs_id"] == 3


def test_rows_within_mappings_are_counted() -> None:
    def model() -> None:
        with pyro.plate("data"):
            pyro.sample("y", dist.Normal(0.0, 1.0))

    (frame,) = poutine.trace(model).get_trace().nodes["y"]["cond_indep_stack"]
    assert broadcast_to_rows(dist.Normal(0.0, 1.0), [frame], ({"x": torch.zeros(4)},)).batch_shape == (4,)
