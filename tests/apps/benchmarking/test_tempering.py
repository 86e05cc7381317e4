"""The benchmark of tempering: closed forms by another way, and its table."""

import numpy as np
import pytest
import torch

from benchmarks.tempering import (
    CASES,
    CENTRES,
    COUNTS,
    TRIALS,
    WEIGHTS,
    binomial,
    evidence_of_binomial,
    mixture,
    of_weights,
    shares,
    stored,
    table,
)
from bnnzoo.core.model.density import build_density


def test_the_evidence_of_the_binomial_model_is_that_of_a_grid() -> None:
    density = build_density(binomial, COUNTS, TRIALS, dtype=torch.float64)
    theta = torch.linspace(-12.0, 12.0, 4001, dtype=torch.float64)
    value = torch.func.vmap(lambda each: density.log_joint(each, COUNTS.double(), TRIALS))(theta[:, None])
    on_grid = float(value.logsumexp(0)) + np.log(24.0 / 4000)
    assert evidence_of_binomial(COUNTS, TRIALS) == pytest.approx(on_grid, abs=1e-8)


def test_the_mixture_is_the_normalised_density_of_its_components() -> None:
    density = build_density(mixture, dtype=torch.float64)
    components = torch.distributions.MultivariateNormal(CENTRES, torch.eye(20, dtype=torch.float64))
    whole = torch.distributions.MixtureSameFamily(torch.distributions.Categorical(WEIGHTS), components)
    theta = torch.randn(5, 20, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + CENTRES[0]
    found = torch.stack([density.log_joint(each) for each in theta])
    torch.testing.assert_close(found, whole.log_prob(theta))


def test_weights_are_shares_of_all_draws_and_the_largest_difference_is_said() -> None:
    draws = np.array([[0.1, 0.2, 0.9, 0.8], [0.1, 0.5, 0.5, 0.9]])
    found = of_weights(shares(draws, np.array([0.0, 0.3, 0.7, 1.0])), [0.3, 0.3, 0.4])
    assert found["weights"] == [0.375, 0.25, 0.375] and found["weights_off"] == pytest.approx(0.075)


def test_every_case_is_in_the_table_next_to_what_is_known() -> None:
    lines = table(stored()).splitlines()[2:]
    assert [line.split(" | ")[0].strip("| ") for line in lines] == list(CASES)
    assert "by bridge sampling" in lines[-1]
