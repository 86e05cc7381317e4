"""Every card is complete, loads, draws from its prior, and fits with its methods."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch

import bnnzoo as bz
from bnnzoo.core.settings import check_settings
from bnnzoo.zoo import cards
from bnnzoo.zoo.budgets import smoke, table_methods
from bnnzoo.zoo.card import Card
from bnnzoo.zoo.catalogue import NAMES
from bnnzoo.zoo.make_reference import MIN_CHAINS

OWN = [name for name in NAMES if bz.zoo.load(name).needs is None]
LARGE = {"digits-mlp", "residual-filter-response"}  # take seconds
QUICK = [name for name in OWN if name not in LARGE]


def same(one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


def test_each_file_is_a_card_and_each_card_a_file() -> None:
    files = {path.stem for path in Path(cards.__file__).parent.glob("*.py")} - {"__init__"}
    assert files == {name.replace("-", "_") for name in NAMES}
    assert len(NAMES) >= 24


@pytest.mark.parametrize("name", NAMES)
def test_a_card_is_complete(name: str) -> None:
    card = bz.zoo.load(name)
    assert card.name == name
    assert card.version >= 1
    assert len(card.methods) >= 3
    assert len(card.description) > 100
    assert card.references
    assert card.prior.scale and card.prior.why.endswith(".") and card.prior.spread > 0
    assert callable(card.model())
    for method in card.methods.values():
        check_settings(method)
        check_settings(smoke(method))
    if card.long_run is not None:
        assert card.long_run.num_chains >= MIN_CHAINS
        assert type(card.long_run).__name__ in {"NUTS", "MAMS", "HMC"}, "an exact sampler"


@pytest.mark.parametrize("name", sorted(table_methods()))
def test_a_smoke_budget_of_each_method_of_the_table_is_one_that_it_admits(name: str) -> None:
    check_settings(smoke(table_methods()[name]))


@pytest.mark.parametrize("name", OWN)
def test_data_are_the_same_each_time_and_ready_for_the_model(name: str) -> None:
    card = bz.zoo.load(name)
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    data, again = card.data(), card.data()
    assert (np.random.get_state()[1] == state).all()  # noqa: NPY002
    assert same(data.train, again.train) and same(data.test, again.test)
    assert set(data.test) <= set(data.train)
    assert set(data.observed) <= set(data.train) and data.test_inputs
    for part in (data.train, data.test):
        assert len({len(values) for values in part.values()}) == 1
        assert all(np.isfinite(np.asarray(values, dtype=float)).all() for values in part.values())


@pytest.mark.parametrize("name", QUICK)
def test_a_card_draws_from_its_prior(name: str) -> None:
    card = bz.zoo.load(name)
    tree = card.prior_predictive(num_draws=4)
    assert tree["conditional"].sizes["draw"] == 4
    assert all(np.isfinite(values).all() for values in tree["conditional"].to_dataset().values())
    drawn = tree["prior_predictive"].to_dataset()
    assert set(drawn) <= set(card.data().observed) and drawn.sizes["obs_id"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", OWN)
def test_the_prior_predictive_spreads_as_the_card_says(name: str) -> None:
    card = bz.zoo.load(name)
    assert card.prior_spread() == pytest.approx(card.prior.spread, rel=0.25)


@pytest.mark.reference
@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMES if name not in OWN])
def test_the_prior_predictive_of_cards_with_data_of_the_user(name: str, bnnzoo_data: Path) -> None:
    card = bz.zoo.load(name)
    assert card.prior_spread(folder=bnnzoo_data) == pytest.approx(card.prior.spread, rel=0.25)


def smoke_fits(card: Card, method: str, tmp_path: Path, folder: Path | None = None) -> None:
    """Fit in a smoke budget, predict, and find both again after a trip to disk."""
    posterior = card.fit(method, smoke=True, folder=folder, progress=False)
    tree = card.predict(posterior, folder=folder, num_draws=8 if posterior.info.sampling == "iid" else None)
    assert (tree.attrs["card"], tree.attrs["card_version"]) == (card.name, card.version)
    moment = tree["conditional"].to_dataset()["probs" if "probs" in tree["conditional"] else "mean"]
    data = card.data(folder)
    assert moment.sizes["obs_id"] == len(next(iter(data.test.values())))
    assert np.isfinite(moment.to_numpy()).all()
    posterior.save(tmp_path / "posterior")
    loaded = bz.load(tmp_path / "posterior", card.model(), *data.train.values())
    num_draws = 4 if posterior.info.sampling == "iid" else None
    assert torch.equal(loaded.draws(num_draws), posterior.draws(num_draws))
    tree.to_netcdf(tmp_path / "tree.nc", engine="h5netcdf")


def test_a_card_fits_predicts_and_round_trips(tmp_path: Path) -> None:
    smoke_fits(bz.zoo.load("linear-regression"), "laplace", tmp_path)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # budgets are too small on purpose
@pytest.mark.parametrize(("name", "method"), [(name, method) for name in OWN for method in bz.zoo.load(name).methods])
def test_each_method_of_each_card_runs_in_a_smoke_budget(name: str, method: str, tmp_path: Path) -> None:
    smoke_fits(bz.zoo.load(name), method, tmp_path)


@pytest.mark.slow
@pytest.mark.reference
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "method"), [(name, method) for name in NAMES if name not in OWN for method in bz.zoo.load(name).methods]
)
def test_each_method_of_cards_with_data_of_the_user(name: str, method: str, tmp_path: Path, bnnzoo_data: Path) -> None:
    smoke_fits(bz.zoo.load(name), method, tmp_path, bnnzoo_data)
