"""Mini-batches and folds of models whose rows do not stand for themselves are refused by the name of the site."""

import warnings
from collections.abc import Callable
from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from torch import Tensor

import bnnzoo as bz
from bnnzoo.core.model.density import build_density
from bnnzoo.core.program.sites import ModelError
from bnnzoo.core.reading.parts import refuse_dependent_parts

N = 400
GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(N, generator=GENERATOR, dtype=torch.float64)
Y = 0.55 * X + torch.randn(N, generator=GENERATOR, dtype=torch.float64)
TWO = torch.randn(N, 2, generator=GENERATOR, dtype=torch.float64)
WEIGHTS = 0.5 + torch.rand(N, generator=GENERATOR, dtype=torch.float64)
KNOTS = torch.linspace(-1, 1, 20, dtype=torch.float64)


def slope(loc: Any = 0.0, scale: float = 1.0) -> Tensor:
    return pyro.sample("w", dist.Normal(loc, scale))


def rows(mean: Tensor, y: Tensor | None, size: int | None = None) -> None:
    with pyro.plate("rows", len(mean) if size is None else size, subsample_size=None if size is None else len(mean)):
        pyro.sample("y", dist.Normal(mean, 1.0), obs=y)


def plain(x: Tensor, y: Tensor) -> None:
    rows(slope() * x, y)


def subsampled(x: Tensor, y: Tensor) -> None:
    rows(slope() * x, y, N)


def scaled_by_hand(x: Tensor, y: Tensor) -> None:
    w = slope()
    with poutine.scale(scale=N / len(x)):
        rows(w * x, y)


def averaged(x: Tensor, y: Tensor) -> None:
    w = slope()
    with poutine.scale(scale=1 / len(x)):
        rows(w * x, y)


def autoregression(y: Tensor) -> None:
    rows(slope() * torch.cat([y.new_zeros(1), y[:-1]]), y)


def g_prior(x: Tensor, y: Tensor) -> None:
    b = pyro.sample("b", dist.MultivariateNormal(torch.zeros(2), precision_matrix=x.mT @ x))
    rows(x @ b, y)


def factor_outside(x: Tensor, y: Tensor) -> None:
    w, censored = slope(), y < 0
    with poutine.mask(mask=~censored):
        rows(w * x, y)
    pyro.factor("censored", dist.Normal(w * x, 1.0).cdf(y).log()[censored].sum())


def standardised_inside(x: Tensor, y: Tensor) -> None:
    rows(slope() * (x - x.mean()) / x.std(), y)


def standardised_by_another_argument(x: Tensor, y: Tensor, x_train: Tensor) -> None:
    rows(slope() * (x - x_train.mean()) / x_train.std(), y)


def normalised_weights(x: Tensor, y: Tensor, weights: Tensor) -> None:
    w = slope()
    with pyro.plate("rows", len(x)), poutine.scale(scale=weights / weights.mean()):
        pyro.sample("y", dist.Normal(w * x, 1.0), obs=y)


def prior_by_rows(x: Tensor, y: Tensor) -> None:
    rows(slope(0.0, len(x) ** -0.5) * x, y)


def prior_by_median(x: Tensor, y: Tensor) -> None:
    rows(slope(y.median()) * x, y)


def support_by_largest(y: Tensor) -> None:
    top = pyro.sample("top", dist.Pareto(y.max(), 2.0))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Uniform(0.0, top), obs=y)


def cumulated(x: Tensor, y: Tensor) -> None:
    rows(slope() * x.cumsum(0), y)


def shares(x: Tensor, y: Tensor) -> None:
    rows((slope() * x).softmax(0), y)


def knots(x: Tensor, y: Tensor, places: Tensor) -> None:
    rows(slope() * (x[:, None] - places).relu().sum(1), y)


def neighbours(adjacency: Tensor, y: Tensor) -> None:
    rows(slope() * (adjacency @ y), y)


def closure(x: Tensor) -> None:
    rows(slope() * x, Y)


def latent_of_each_row(x: Tensor, y: Tensor) -> None:
    w = slope()
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Normal(w * x + pyro.sample("u", dist.Normal(0.0, 1.0)), 1.0), obs=y)


def in_a_dict(frame: dict[str, Tensor], y: Tensor) -> None:
    rows(slope() * frame["x"], y)


class Standardising(torch.nn.Module):
    """A network that looks at its whole batch."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(2, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear((x - x.mean(0)) / x.std(0))


OTHER_ROWS = r"the log density of a row at site 'y' depends on the other rows"
SCALED = r"site 'y' is scaled by .* with all rows and by .* with a part of them.*leave out poutine\.scale"
FAILS = r"cannot be run on 40 of its 400 rows .* Every argument with one row for each observation is cut, and no other"


def no_rows_of(site: str) -> str:
    return rf"the log density of site '{site}', which is not one of the rows, is .* outside of the model"


network = bz.models.supervised(Standardising(), bz.priors.normal(1.0), bz.likelihoods.gaussian(1.0))
REFUSED: dict[str, tuple[Callable[..., Any], tuple[Any, ...], str]] = {
    "scaled by hand": (scaled_by_hand, (X, Y), SCALED),
    "averaged": (averaged, (X, Y), SCALED),
    "autoregression": (autoregression, (Y,), OTHER_ROWS),
    "g-prior": (g_prior, (TWO, Y), no_rows_of("b")),
    "factor outside": (factor_outside, (X, Y), no_rows_of("censored")),
    "standardised inside": (standardised_inside, (X, Y), OTHER_ROWS),
    "standardised by another argument": (standardised_by_another_argument, (X, Y, X.clone()), OTHER_ROWS),
    "normalised weights": (normalised_weights, (X, Y, WEIGHTS), OTHER_ROWS),
    "prior by rows": (prior_by_rows, (X, Y), no_rows_of("w")),
    "prior by median": (prior_by_median, (X, Y), no_rows_of("w")),
    "support by largest": (support_by_largest, (Y.abs() + 0.1,), no_rows_of("top")),
    "cumulated": (cumulated, (X, Y), OTHER_ROWS),
    "shares": (shares, (X, Y), OTHER_ROWS),
    "network": (network, (TWO, Y), OTHER_ROWS),
    "neighbours": (neighbours, (torch.eye(N), Y), FAILS),
    "closure": (closure, (X,), FAILS),
    "latent of each row": (latent_of_each_row, (X, Y), FAILS),
    "dict": (in_a_dict, ({"x": X}, Y), FAILS),
}


@pytest.mark.parametrize("name", REFUSED)
def test_mini_batches_that_are_no_part_of_the_whole_are_refused(name: str) -> None:
    model, data, sentence = REFUSED[name]
    with pytest.raises(ModelError, match=rf"batch_size=40 cuts the rows.*{sentence}"):
        bz.fit(model, bz.MeanFieldVI(num_steps=2, batch_size=40), *data, progress=False)


def test_an_argument_that_happens_to_have_as_many_entries_is_no_row() -> None:
    with pytest.raises(ModelError, match=r"or an argument that is no row is cut because it has 20 entries"):
        bz.fit(knots, bz.MeanFieldVI(num_steps=2, batch_size=5), X[:20], Y[:20], KNOTS, progress=False)
    with pytest.raises(ModelError, match=r"^kfold cuts the rows.*it has 20 entries"):
        bz.validation.kfold(knots, bz.MAP(num_steps=2), X[:20], Y[:20], KNOTS, num_folds=4)


def test_folds_of_a_time_series_are_refused() -> None:
    with pytest.raises(ModelError, match=rf"^kfold cuts the rows, but {OTHER_ROWS}, such as by a mean, a lag"):
        bz.validation.kfold(autoregression, bz.MAP(num_steps=2), Y, num_folds=4)


def test_rows_that_a_plate_scales_up_count_once() -> None:
    theta = torch.tensor([0.3], dtype=torch.float64)
    own, ours = build_density(subsampled, X, Y), build_density(plain, X, Y)
    assert own.log_joint(theta, X, Y).item() == pytest.approx(ours.log_joint(theta, X, Y).item(), rel=1e-12)
    part = X[:40], Y[:40]
    assert own.log_joint(theta, *part).item() == pytest.approx(ours.log_joint(theta, *part).item(), rel=1e-12)
    refuse_dependent_parts(own, 40, "batch_size=40")
    with pytest.raises(
        ModelError, match=r"kfold cuts the rows, and site 'y' is scaled by 1 with all rows and by 1\.25"
    ):
        refuse_dependent_parts(own, 320, "kfold", may_scale=False)


def test_rows_by_the_numbers_of_a_subsampling_plate_are_those_that_are_given() -> None:
    def model(x: Tensor, y: Tensor) -> None:
        w = slope()
        with pyro.plate("rows", N, subsample_size=len(x)) as numbers:
            pyro.sample("y", dist.Normal(w * x[numbers], 1.0), obs=y[numbers])

    theta, ours = torch.tensor([0.3], dtype=torch.float64), build_density(plain, X, Y)
    own = build_density(model, X, Y)
    for part in ((X, Y), (X[:40], Y[:40])):
        assert own.log_joint(theta, *part).item() == pytest.approx(ours.log_joint(theta, *part).item(), rel=1e-12)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it can be traced and batched, since nothing random is left in it
        bz.fit(model, bz.MeanFieldVI(num_steps=5, batch_size=40), X, Y, progress=False, dtype=torch.float64)


def test_models_whose_rows_stand_for_themselves_pass() -> None:
    for size in (1, 40, 399):
        refuse_dependent_parts(build_density(plain, X, Y), size, "batch_size")
    mlp = bz.models.supervised(bz.models.mlp(2, (4,)), bz.priors.normal(1.0), bz.likelihoods.gaussian())
    many = build_density(mlp, TWO.repeat(10, 1), Y.repeat(10))  # more than are compared
    refuse_dependent_parts(many, 256, "batch_size=256")
