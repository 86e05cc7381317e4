"""Models that cannot be evaluated everywhere: the first trace, the site that fails, and what is said of it."""

from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

from bnnzoo.core.model.density import build_density
from bnnzoo.core.model.kinds import first_of_kind, of_kind
from bnnzoo.core.program.numerics import NumericalFailure
from bnnzoo.core.program.sites import ModelError
from bnnzoo.core.verdict import rejections
from bnnzoo.core.verdict.rejections import nearest_failure, why_rejected


def gaussian_process(noise: float, x: Tensor, y: Tensor) -> None:
    length = pyro.sample("length", dist.LogNormal(0.0, 2.0))
    covariance = torch.exp(-0.5 * ((x[:, None] - x) / length) ** 2) + noise * torch.eye(len(x))
    pyro.sample("y", dist.MultivariateNormal(torch.zeros(len(x)), scale_tril=torch.linalg.cholesky(covariance)), obs=y)


X = torch.linspace(0.0, 1.0, 11, dtype=torch.float64)


def test_the_first_trace_is_drawn_again_where_it_fails() -> None:
    num_runs = 0

    def model() -> None:
        nonlocal num_runs
        num_runs += 1
        z = pyro.sample("z", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        pyro.factor("f", torch.linalg.cholesky((z - 1.0).diag()).sum())  # fails for all but a fortieth of the prior

    density = build_density(model)
    assert num_runs > 1 and density.num_params == 2
    assert float(density.log_joint(torch.full((2,), 2.0))) == pytest.approx(2.0 - 4.0 - 1.8378770664)


def test_the_first_trace_is_drawn_again_where_an_argument_leaves_its_support() -> None:
    def model(y: Tensor) -> None:
        width = pyro.sample("width", dist.HalfNormal(1.0))
        with pyro.plate("data", len(y)):
            pyro.sample("y", dist.Uniform(0.0, width), obs=y)

    assert build_density(model, torch.tensor([1.5, 1.9])).num_data == 2


def test_a_model_that_fails_at_every_draw_is_refused_by_site_and_reason() -> None:
    def model(y: Tensor) -> None:
        gaussian_process(-2.0, X, y)

    sentence = (
        r"cannot be evaluated at any of 100 draws from its prior: after site 'length' it fails with _LinAlgError: .*cholesky.* "
        r"Narrow the priors before it"
    )
    with pytest.raises(ModelError, match=sentence):
        build_density(model, X)


@pytest.mark.parametrize(
    ("distribution", "y", "sentence"),
    [
        (
            lambda a: dist.Gamma(a.exp(), 1.0),
            [0.5, -0.25, 1.0],
            r"-0\.25 in row 1, which Gamma does not allow: its support is Gr",
        ),
        (
            lambda a: dist.Categorical(logits=torch.stack([a, a, -a])),
            [1.0, 2.0, 3.0],
            r"3 in row 2, which Categorical does not allow: .*\. Correct the observation \(labels count from 0\), or choose",
        ),
        (lambda a: dist.Poisson(a.exp()), [0.0, 0.5, 1.0], r"0\.5 in row 1, which Poisson does not allow"),
        (
            lambda a: dist.Binomial(torch.tensor([2.0, 5.0, 3.0]), logits=a),
            [0.0, 6.0, 1.0],
            r"6 in row 1, which Binomial does not allow: its support is IntegerInterval\(lower_bound=0, upper_bound=5\)\.",
        ),
    ],
)
def test_an_observation_that_no_draw_allows_is_named_by_its_row(distribution, y: list[float], sentence: str) -> None:
    def model(y: Tensor) -> None:
        a = pyro.sample("a", dist.Normal(0.0, 1.0))
        with pyro.plate("data", len(y)):
            pyro.sample("y", distribution(a), obs=y)

    with pytest.raises(ModelError, match=rf"^Site 'y' observes {sentence}"):
        build_density(model, torch.tensor(y))


def test_errors_of_code_are_not_drawn_again() -> None:
    def model() -> None:
        pyro.sample("z", dist.Normal(0.0, 1.0))
        raise KeyError("misspelt")

    with pytest.raises(KeyError, match="misspelt"):
        build_density(model)


def test_a_run_that_fails_names_the_last_site() -> None:
    density = build_density(lambda y: gaussian_process(0.0, X, y), X)
    with pytest.raises(NumericalFailure, match=r"at this point: after site 'length' it fails with _LinAlgError"):
        density.nodes(torch.tensor([5.0], dtype=torch.float64), X)
    failure = density.failure(torch.tensor([5.0], dtype=torch.float64), X)
    assert failure is not None and failure.site == "length" and "cholesky" in failure.clause
    assert density.failure(torch.tensor([-3.0], dtype=torch.float64), X) is None


def test_a_site_whose_log_probability_fails_is_named() -> None:
    def model() -> None:
        z = pyro.sample("z", dist.Normal(0.0, 1.0))
        pyro.sample("y", dist.Normal(0.0, z, validate_args=False), obs=torch.tensor(1.0))

    assert str(build_density(model).failure(torch.tensor([-1.0]))) == "site 'y' has log probability nan"


def test_the_nearest_failure_is_looked_for_around_the_draws() -> None:
    density = build_density(lambda y: gaussian_process(0.0, X, y), X)
    near = nearest_failure(density, torch.randn(50, 1, dtype=torch.float64) * 0.1 - 3.0)
    assert near is not None and near.site == "length"
    assert why_rejected(density, torch.zeros(1, 1), num_rejected=0) == ""


def test_nothing_is_found_where_nothing_fails() -> None:
    density = build_density(lambda: pyro.sample("z", dist.Normal(0.0, 1.0)))
    assert why_rejected(density, torch.zeros(1, 1), num_rejected=3) == ""


def test_fits_of_one_kind_look_for_the_failure_once(monkeypatch: pytest.MonkeyPatch) -> None:
    num_searches = 0

    def counted(*arguments: Any) -> Any:
        nonlocal num_searches
        num_searches += 1
        return nearest_failure(*arguments)

    def model(y: Tensor) -> None:
        z = pyro.sample("z", dist.Normal(1.0, 0.1))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(z.sqrt(), 1.0), obs=y)

    monkeypatch.setattr(rejections, "nearest_failure", counted)
    first = first_of_kind(build_density(model, torch.zeros(3)))
    other = of_kind(first, (torch.ones(3),), torch.ones(1, 1))
    assert other is not None
    draws = torch.ones(10, 1)
    said = {why_rejected(density, draws, 5) for density in (first, other[0])}
    assert num_searches == 1 and len(said) == 1 and "'y'" in said.pop()
    assert why_rejected(first, draws, 0) == ""
