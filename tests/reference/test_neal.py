"""Neal's network regression: eight chains of an exact sampler end in different modes, and the diagnostics say so."""

from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr
from numpy.typing import NDArray

import bnnzoo as bz
from bnnzoo.core.posterior.posterior import Posterior
from bnnzoo.zoo.cards.neal_regression import CARD

pytestmark = [
    pytest.mark.reference,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::bnnzoo.inference.FitWarning"),  # chains disagree, which is what is tested
    pytest.mark.filterwarnings("ignore:LOO is unreliable"),
]

CHAINS = 8
DOCUMENTED = {
    "log score": (0.830, 0.022),
    "squared error": (0.0187, 0.0034),
}  # and standard errors over 1,000 test rows
QUANTILES = {-3.0: (-2.61, -1.62), 0.0: (1.25, 1.52), 3.0: (2.61, 3.31)}  # 10% and 90%
EDGES = np.array(list(QUANTILES))[:, None]


@pytest.fixture(scope="module")
def table(bnnzoo_data: Path) -> NDArray[np.floating]:
    return np.loadtxt(bnnzoo_data / "fbm" / "rdata")


@pytest.fixture(scope="module")
def posterior(table: NDArray[np.floating]) -> Posterior:
    method = bz.NUTS(num_chains=CHAINS, num_warmup=1000, num_draws=1000, target_accept=0.95)
    return bz.fit(CARD.model(), method, table[:100, :1], table[:100, 1], seed=0, dtype=torch.float64, progress=False)


@pytest.fixture(scope="module")
def shares(table: NDArray[np.floating], posterior: Posterior) -> dict[str, float]:
    attrs = bz.validation.stack_chains(bz.posterior_predictive(posterior, table[:100, :1], table[:100, 1])).attrs
    return {f"chain {i}": attrs[f"weight_chain {i}"] for i in range(CHAINS)}


def stacked(tree: xr.DataTree, shares: dict[str, float]) -> xr.DataTree:
    return bz.validation.stack({f"chain {i}": tree.isel(chain=[i]) for i in range(CHAINS)}, shares)


def scores(tree: xr.DataTree, y: NDArray[np.floating]) -> dict[str, float]:
    mean = tree["conditional"]["mean"].mean(("chain", "draw")).to_numpy()
    return {
        "log score": -float(bz.calibration.nll(tree).mean()),
        "squared error": float(((mean - y) ** 2).mean()),
    }


def test_chains_disagree_in_function_space(posterior: Posterior) -> None:
    """`function_modes` may find one mode only: chains are linked by others in between."""
    tree = bz.predict(posterior, np.linspace(-3, 3, 61)[:, None], num_draws=None)
    assert float(bz.diagnostics.function_space(tree)["rhat"].max()) > 1.01


def test_output_weights_are_large_in_one_mode_and_small_in_the_other(posterior: Posterior) -> None:
    tree = bz.predict(posterior, EDGES, num_draws=None)
    scale = tree["posterior"]["net.2.weight.scale"].median("draw").to_numpy()
    assert scale.max() > 3 * scale.min()
    small, large = scale < 8, scale > 8
    assert small.any()
    assert large.any()
    at_three = tree["conditional"]["mean"].isel(obs_id=2).median("draw").to_numpy()
    assert at_three[large].max() > at_three[small].max() + 0.3  # it goes on rising where the other is flat


def test_pooled_predictions_score_as_documented(table: NDArray[np.floating], posterior: Posterior) -> None:
    found = scores(bz.predict(posterior, table[100:, :1], table[100:, 1], num_draws=None), table[100:, 1])
    for name, (value, error) in DOCUMENTED.items():
        assert abs(found[name] - value) < 2 * error, (name, found[name])


def test_stacking_picks_few_chains_and_stays_near_the_documented_log_score(
    table: NDArray[np.floating], posterior: Posterior, shares: dict[str, float]
) -> None:
    """Its weights are those of the best leave-one-out score, which sees the range of the training data alone."""
    assert sum(shares.values()) == pytest.approx(1.0)
    assert (
        1 / sum(share**2 for share in shares.values()) <= CHAINS / 2
    )  # so many chains of equal weights would be as concentrated
    tree = bz.predict(posterior, table[100:, :1], table[100:, 1], num_draws=None)
    value, error = DOCUMENTED["log score"]
    assert abs(scores(stacked(tree, shares), table[100:, 1])["log score"] - value) < 3 * error


def test_predictive_means_lie_within_the_documented_intervals_where_there_are_data(posterior: Posterior) -> None:
    """At -3 and 3 they depend on how many chains are in each mode; there the intervals overlap."""
    drawn = bz.predict(posterior, EDGES, num_draws=None)["predictions"]["y"]
    low, high = drawn.quantile([0.1, 0.9], ("chain", "draw")).to_numpy()
    middle = drawn.mean(("chain", "draw")).to_numpy()
    assert middle[1] == pytest.approx(1.38, abs=0.03)
    assert low[1] == pytest.approx(1.25, abs=0.03)
    assert high[1] == pytest.approx(1.52, abs=0.03)
    for place, (documented_low, documented_high) in enumerate(QUANTILES.values()):
        assert low[place] < documented_high
        assert high[place] > documented_low
