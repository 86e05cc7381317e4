"""Rounding in single precision is told from other trouble."""

import dataclasses
import re
import warnings
from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

import bnnzoo as bz
from bnnzoo.core.model.log_joints import log_joint_at
from bnnzoo.core.verdict.rounding import of_rounding
from bnnzoo.inference import (
    ChainsApartWarning,
    DivergenceWarning,
    FewEffectiveDrawsWarning,
    NotConvergedWarning,
    PrecisionWarning,
)
from bnnzoo.testing import linear_gaussian

SINGLE = torch.float32
PLACES = torch.linspace(-3, 3, 11, dtype=torch.float64)


def cancelling() -> None:
    """Add a tilt that is lost where numbers of single precision are two apart."""
    z = pyro.sample("z", dist.Normal(0.0, 1.0))
    pyro.factor("tilt", (3e7 + z) - 3e7)


def process(x: Tensor, y: Tensor) -> None:
    """Write a Gaussian process with hardly any noise, whose covariances single precision seldom factors."""
    width = pyro.sample("width", dist.Gamma(25.0, 4.0))
    covariance = (-0.5 * ((x[:, None] - x) / width).square()).exp() + 1e-7 * torch.eye(len(x), dtype=x.dtype)
    pyro.sample("y", dist.MultivariateNormal(torch.zeros_like(x), covariance), obs=y)


def said(model: Any, method: Any, *data: Tensor, dtype: torch.dtype = SINGLE) -> list[Any]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        bz.fit(model, method, *(each.to(dtype) for each in data), seed=1, dtype=dtype, progress=False)
    return [each for each in caught if issubclass(each.category, bz.FitWarning)]


@pytest.mark.parametrize(
    ("method", "does"),
    [
        # which of the two depends on the machine: its factorisations round in their own ways
        (bz.Laplace(), "(cannot be computed at [0-9]+ of|is off by up to [0-9]+)"),
        pytest.param(  # chains stand where it can be, as a rule
            bz.NUTS(max_tree_depth=3, num_warmup=300, num_draws=300),
            "(cannot be computed at [0-9]+ of [0-9]+ draws and )?is off by up to",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_rounding_is_said_before_what_it_does(method: Any, does: str) -> None:
    y = PLACES.sin()
    found = said(process, method, PLACES, y)
    first, *others = (
        each for each in found if each.category is not NotConvergedWarning
    )  # which Laplace says while it runs
    assert first.category is PrecisionWarning and others
    assert re.search(f"because of rounding, its log density {does}", str(first.message))
    assert str(first.message).endswith(". Write fit(..., dtype=torch.float64) before anything else.")
    assert PrecisionWarning not in [each.category for each in said(process, method, PLACES, y, dtype=torch.float64)]


def test_values_that_are_off_count_as_well() -> None:
    posterior = bz.fit(cancelling, bz.NUTS(num_draws=50, num_warmup=50), dtype=SINGLE, progress=False)
    trouble = of_rounding(posterior)
    assert trouble is not None and "because of rounding, its log density is off by up to 1." in trouble.message
    assert of_rounding(bz.fit(cancelling, bz.NUTS(num_draws=50, num_warmup=50), dtype=torch.float64)) is None


def test_a_chain_that_stands_where_there_is_a_value_has_none_beside_it() -> None:
    x = PLACES.to(SINGLE)
    settings = bz.NUTS(num_chains=1, num_draws=1, num_warmup=1, max_tree_depth=1)
    posterior: Any = bz.fit(process, settings, x, x.sin(), dtype=SINGLE, progress=False)
    alone = log_joint_at(posterior.density, torch.linspace(1.0, 2.5, 200, dtype=SINGLE)[:, None])
    place = 1.0 + 1.5 / 199 * int(alone.isfinite().nonzero()[-1])  # the last that can be computed
    stands = dataclasses.replace(posterior, theta=torch.full((4, 100, 1), place, dtype=SINGLE))
    trouble = of_rounding(stands)
    assert trouble is not None and "cannot be computed at" in trouble.message


def test_few_members_are_asked_as_draws_are() -> None:
    """Three points are no forty draws: fits with trouble ended in an error."""
    members = bz.MAP(num_members=3, num_steps=5)
    trouble = of_rounding(bz.fit(cancelling, members, dtype=SINGLE, progress=False))
    assert trouble is not None and "because of rounding, its log density is off by up to " in trouble.message
    target = linear_gaussian()
    assert of_rounding(bz.fit(target.model, members, *target.data, dtype=SINGLE, progress=False)) is None


def test_other_trouble_is_not_taken_for_rounding() -> None:
    def funnel() -> None:
        v = pyro.sample("v", dist.Normal(0.0, 3.0))
        pyro.sample("x", dist.Normal(torch.zeros(9), (v / 2).exp()).to_event(1))

    found = [each.category for each in said(funnel, bz.NUTS())]
    assert {DivergenceWarning, ChainsApartWarning, FewEffectiveDrawsWarning} & set(found)
    assert PrecisionWarning not in found
