"""Verdicts on fits of posteriordb's posteriors against its reference draws."""

import numpy as np
import pytest

from benchmarks.posteriordb_methods import judged, summary

KNOWN = {"a": summary(np.random.default_rng(0).normal(size=(4, 2500)), is_of_chains=True)}


def a_fit(mean: float, sd: float, ess: float) -> dict[str, object]:
    scalar = KNOWN["a"] | {"mean": mean, "sd": sd, "ess": ess}
    return {"model": "m", "method": "NUTS", "warnings": [], "gradients": 1, "scalars": {"a": scalar}}


@pytest.mark.parametrize(
    ("mean", "sd", "ess", "verdict", "narrow"),
    [
        (0.05, 1.05, 2000.0, "right", True),
        (0.2, 1.0, 2000.0, "right", False),
        (0.0, 1.2, 2000.0, "right", False),
        (0.2, 1.0, 150.0, "right", True),  # within three Monte Carlo errors
        (0.5, 1.0, 2000.0, "off", False),
        (0.0, 1.0, 21.0, "off", False),
        (23.0, 50.0, 21.0, "off", False),  # few draws make errors so wide that any mean is within them
        (float("nan"), 1.0, 2000.0, "off", False),
    ],
)
def test_a_fit_that_is_off_is_not_within_the_narrow_limits(
    mean: float, sd: float, ess: float, verdict: str, narrow: bool
) -> None:
    row = judged(a_fit(mean, sd, ess), KNOWN)
    assert (row["verdict"], row["within_the_narrow_limits"]) == (f"{verdict}, silent", narrow)


def test_independent_draws_are_all_effective_and_those_of_chains_are_not() -> None:
    walk = np.random.default_rng(1).normal(size=(4, 500)).cumsum(1)
    assert summary(walk, is_of_chains=False)["ess"] == 2000
    assert summary(walk, is_of_chains=True)["ess"] < 20
