"""Fits to data that are not in memory: the same numbers as in memory, and refusals."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
import zarr
from torch.utils.data import (
    DataLoader,
    Dataset,
    RandomSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

import bnnzoo as bz
from bnnzoo.core.data import sizes
from bnnzoo.core.data.conversion import DataError
from bnnzoo.core.data.row_source import row_source
from bnnzoo.testing import linear_gaussian

TARGET = linear_gaussian(num_data=203)
X, Y = (value.double() for value in TARGET.data)
METHODS = {
    "MAP": bz.MAP(num_steps=20, batch_size=10, polish_steps=0),
    "MeanFieldVI": bz.MeanFieldVI(num_steps=20, batch_size=10),
    "LowRankVI": bz.LowRankVI(rank=1, num_steps=20, batch_size=10),
    "FullRankVI": bz.FullRankVI(num_steps=20, batch_size=10, kl_weighting="geometric"),
    "SVI": bz.SVI(num_steps=20, batch_size=10),
    "DeepEnsemble": bz.DeepEnsemble(2, num_steps=20, batch_size=10),
    "SWAG": bz.SWAG(num_steps=60, batch_size=10, init=None),
    "SubsetVI": bz.SubsetVI(
        below=bz.MAP(num_steps=20, batch_size=10, polish_steps=0), vi=bz.MeanFieldVI(num_steps=20, batch_size=10)
    ),
    "SGHMC": bz.SGHMC(num_chains=2, num_warmup=10, num_draws=5, optimise_steps=20, batch_size=10),
    "SGLD": bz.SGLD(num_chains=2, num_warmup=5, num_draws=5, optimise_steps=20, batch_size=10, control_variates="svrg"),
}


def fitted(method, *data, **settings):
    return bz.fit(TARGET.model, method, *data, dtype=torch.float64, progress=False, **settings)


@pytest.fixture
def on_disk(tmp_path):
    np.save(tmp_path / "x.npy", X.numpy())
    stored = zarr.create_array(str(tmp_path / "y.zarr"), shape=Y.shape, dtype="f8")
    stored[:] = Y.numpy()
    return np.load(tmp_path / "x.npy", mmap_mode="r"), stored


QUICK = ("MAP", "MeanFieldVI", "SGHMC", "SWAG")


@pytest.mark.parametrize(
    "name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in METHODS if name not in QUICK)]
)
def test_arrays_on_disk_give_the_fit_of_arrays_in_memory(name, on_disk):
    expected, found = fitted(METHODS[name], X, Y), fitted(METHODS[name], *on_disk)
    assert found.density.num_data == 203
    assert len(found.density.data[0]) < 203
    torch.testing.assert_close(found.draws(), expected.draws())
    if name in ("MAP", "DeepEnsemble"):
        torch.testing.assert_close(found.info.sample_stats["lp"], expected.info.sample_stats["lp"])


def test_a_dataset_gives_the_same_fit():
    method = METHODS["MeanFieldVI"]
    torch.testing.assert_close(fitted(method, TensorDataset(X, Y)).loc, fitted(method, X, Y).loc)


def test_a_loader_gives_its_batches_with_the_weight_of_all_rows():
    method = bz.MeanFieldVI(num_steps=2000)
    loader = DataLoader(TensorDataset(X, Y), batch_size=20, shuffle=True, generator=torch.Generator().manual_seed(0))
    posterior = fitted(method, loader)
    expected = TARGET.mean["w"].double()
    assert ((posterior.loc - expected).abs() < 0.3 * TARGET.sd["w"]).all()
    assert ((posterior.covariance.diagonal() / TARGET.mean_field_sd() ** 2 - 1).abs() < 0.2).all()


def test_a_loader_sets_the_size_of_batches():
    loader = DataLoader(TensorDataset(X, Y), batch_size=20)
    posterior = fitted(bz.SGHMC(num_chains=2, num_warmup=5, num_draws=5, optimise_steps=20), loader)
    assert posterior.info.config["batch_size"] == 20
    assert posterior.draws().shape == (2, 5, 3)


def test_a_loader_of_whole_numbers_is_converted_as_data_in_memory_are():
    model = bz.models.supervised(bz.models.mlp(2), bz.priors.normal(1.0), bz.likelihoods.poisson())
    rows = TensorDataset(torch.arange(40).reshape(20, 2) % 5, torch.arange(20) % 4)
    posterior = bz.fit(
        model, bz.MeanFieldVI(num_steps=3), DataLoader(rows, batch_size=5), dtype=torch.float64, progress=False
    )
    assert [value.dtype for value in posterior.density.data] == [torch.float64, torch.int64]


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (bz.Laplace(), r"Laplace looks at all rows at once, and a TensorDataset gives some at a time: use a method with batch"),
        (bz.MAP(), r"write MAP\(batch_size=256, polish_steps=0\), or pass tensors"),
        (bz.MeanFieldVI(init=bz.MAP(batch_size=9)), r"write MeanFieldVI\(batch_size=256, init=MAP\(polish_steps=0\)\)"),
        (bz.DeepEnsemble(held_out=0.1, batch_size=9), r"write DeepEnsemble\(held_out=0.0\)"),
        (bz.MultiSWAG(2, bz.SWAG()), r"write SWAG\(init=MAP\(batch_size=256, polish_steps=0\)\)"),
    ],
)  # fmt: skip
def test_methods_that_look_at_all_rows_refuse_datasets(method, message):
    with pytest.raises(DataError, match=message):
        fitted(method, TensorDataset(X, Y))


def test_methods_that_look_at_all_rows_load_arrays(on_disk):
    method = bz.MAP(num_steps=5, polish_steps=3)
    torch.testing.assert_close(fitted(method, *on_disk).theta, fitted(method, X, Y).theta)


def test_arrays_that_do_not_fit_are_refused_before_they_are_read(on_disk, monkeypatch):
    monkeypatch.setattr(sizes, "free_memory", lambda: 100)
    with pytest.raises(
        ValueError, match=r"The arrays on disk, all rows of which are looked at, take .* GB, but this machine"
    ):
        fitted(bz.MAP(), *on_disk)


def test_a_streamed_posterior_predicts(on_disk, tmp_path):
    posterior = fitted(METHODS["MeanFieldVI"], *on_disk)
    tree = bz.predict(posterior, X[:5], num_draws=4)
    assert dict(tree["predictions"].sizes) == {"chain": 1, "draw": 4, "obs_id": 5}
    assert "lp" not in tree["sample_stats"]
    with pytest.raises(ValueError, match="this posterior was fitted to data on disk"):
        bz.posterior_predictive(posterior, X, Y)


def test_a_streamed_posterior_is_saved_and_loaded(on_disk, tmp_path):
    posterior = fitted(METHODS["MeanFieldVI"], *on_disk)
    path = tmp_path / "fit.bnn"
    posterior.save(path)
    for data in ((), on_disk, (X, Y)):
        loaded = bz.load(path, TARGET.model, *data)
        torch.testing.assert_close(loaded.draws(3), posterior.draws(3), rtol=0, atol=0)
    with pytest.raises(ValueError, match="holds another fit: argument 2 of the model, "):
        bz.load(path, TARGET.model, X, Y + 1)


class Counted(Dataset):
    """A million rows, of which it counts those that are read."""

    def __init__(self):
        self.count = 0

    def __len__(self):
        return 1_000_000

    def __getitem__(self, place):
        self.count += 1
        return X[place % 203], Y[place % 203]


def test_work_grows_with_steps_and_batches_and_not_with_rows():
    rows = Counted()
    fitted(bz.MeanFieldVI(num_steps=7, batch_size=10), rows)
    assert 70 <= rows.count <= 70 + 64


def test_a_loader_counts_the_rows_of_its_sampler() -> None:
    loader = DataLoader(TensorDataset(X, Y), batch_size=5, sampler=SubsetRandomSampler(range(20)))
    assert row_source((loader,), torch.float64, torch.device("cpu")).num_rows == 20
    unseen = DataLoader(TensorDataset(X, Y), batch_size=20, drop_last=True)  # the same three in every pass
    assert row_source((unseen,), torch.float64, torch.device("cpu")).num_rows == 200
    shuffled = DataLoader(TensorDataset(X, Y), batch_size=20, drop_last=True, shuffle=True)
    assert row_source((shuffled,), torch.float64, torch.device("cpu")).num_rows == 203


class EndsEarly(DataLoader):
    def __iter__(self):
        for number, batch in enumerate(super().__iter__()):
            if number == 3:
                return
            yield batch


class WithoutLength(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter([])


class WithDicts(Dataset):
    def __len__(self):
        return 5

    def __getitem__(self, place):
        return {"x": X[place], "y": Y[place]}


class TooShort(Dataset):
    def __len__(self):
        return 203

    def __getitem__(self, place):
        if place > 4:
            raise IndexError
        return X[place], Y[place]


def with_nan():
    bad = X.clone()
    bad[150, 1] = torch.nan
    return bad


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (EndsEarly(TensorDataset(X, Y), batch_size=20), "the loader ended after 3 of 11 batches, so that rows are missing"),
        (DataLoader(TensorDataset(with_nan(), Y), batch_size=20), "holds nan at row 10, column 1 of batch 8"),
        (TensorDataset(with_nan(), Y), "argument 1 of the model holds nan at row"),
        (DataLoader(WithoutLength()), "the DataLoader has no length, and a mini-batch counts N/B times"),
        (TooShort(), "the TooShort has no item 5, although len\\(\\) gives 203"),
        (DataLoader(TensorDataset(X, Y), batch_size=204), "batch_size=204, but its dataset has 203 rows. Write at most 203"),
        (DataLoader(TensorDataset(X, Y), batch_size=None), "the DataLoader has batch_size=None"),
        (
            DataLoader(TensorDataset(X, Y), batch_size=20, sampler=WeightedRandomSampler(Y.abs() + 1.0, 203)),
            "the loader's WeightedRandomSampler draws rows with weights or with replacement",
        ),
        (
            DataLoader(TensorDataset(X, Y), batch_size=20, sampler=RandomSampler(X, replacement=True)),
            "the loader's RandomSampler draws rows with weights or with replacement",
        ),
        (
            DataLoader(TensorDataset(X, Y), batch_size=20, sampler=RandomSampler(X, num_samples=60)),
            "the loader's RandomSampler has num_samples=60 for 203 rows, others in each pass",
        ),
        (
            DataLoader(TensorDataset(X, Y), batch_size=20, sampler=SubsetRandomSampler(range(10))),
            "batch_size=20, but its sampler has 10 rows. Write at most 10",
        ),
        (
            DataLoader(TensorDataset(X, Y), batch_size=2, sampler=[0, 1, 1, 2]),
            "the loader's list gives some rows more than once a pass",
        ),
        (WithDicts(), "the loader gives dictionaries"),
        (TensorDataset(X[:0], Y[:0]), "there are no rows"),
    ],
)  # fmt: skip
def test_bad_data_are_refused_in_one_sentence(data, message):
    size = None if isinstance(data, DataLoader) else 20
    with pytest.raises(DataError, match=message):
        fitted(bz.MeanFieldVI(num_steps=300, batch_size=size), data)


def test_arguments_beside_a_loader_and_other_batch_sizes_are_refused(on_disk):
    loader = DataLoader(TensorDataset(X, Y), batch_size=20)
    with pytest.raises(DataError, match="a DataLoader gives all arguments of the model, but 2 arguments were passed"):
        fitted(bz.MeanFieldVI(), loader, Y)
    with pytest.raises(ValueError, match=r"batch_size=7\), but the DataLoader has batches of 20 rows"):
        fitted(bz.MeanFieldVI(batch_size=7), loader)
    with pytest.raises(ValueError, match=r"batch_size=204, but the data on disk have 203 rows\. Write at most 203"):
        fitted(bz.MeanFieldVI(batch_size=204), *on_disk)
    with pytest.raises(DataError, match=r"the arrays on disk have \[100, 203\] rows"):
        fitted(bz.MeanFieldVI(batch_size=20), on_disk[0][:100], on_disk[1])


def test_what_needs_rows_by_number_or_in_another_process_is_refused(on_disk, tmp_path):
    loader = DataLoader(TensorDataset(X, Y), batch_size=20)
    with pytest.raises(ValueError, match="Bootstrap weights belong to rows, which a DataLoader does not name"):
        fitted(bz.DeepEnsemble(2, num_steps=5, bootstrap=True), loader)
    with pytest.raises(ValueError, match="checkpoint= needs batches that can be drawn again"):
        fitted(bz.SGHMC(), loader, checkpoint=tmp_path / "run.zarr")
    with (
        ThreadPoolExecutor() as executor,
        pytest.raises(ValueError, match="executor= cannot send data that are on disk"),
    ):
        fitted(bz.DeepEnsemble(2, num_steps=5, batch_size=10), *on_disk, executor=executor)


def test_nan_on_disk_is_refused(tmp_path):
    np.save(tmp_path / "x.npy", with_nan().numpy())
    with pytest.raises(DataError, match="argument 1 of the model holds nan at row"):
        fitted(bz.MeanFieldVI(num_steps=300, batch_size=20), np.load(tmp_path / "x.npy", mmap_mode="r"), Y)
