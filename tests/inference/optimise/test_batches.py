"""Rows of each step: epochs that are permutations, orders of members' own, and bootstrap weights without bias."""

import itertools

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

from bnnzoo.core.model.density import LogDensity, build_density
from bnnzoo.core.settings import check_settings
from bnnzoo.inference.optimise.batches import (
    AllRows,
    Batches,
    Bootstrap,
    MemberBatches,
    MiniBatches,
    batches_of,
)
from bnnzoo.inference.optimise.streams import MemberStreams
from bnnzoo.testing import linear_gaussian

TARGET = linear_gaussian()
N = len(TARGET.data[1])


def density() -> LogDensity:
    return build_density(TARGET.model, *TARGET.data)


def first(batches: Batches, num: int, members: range = range(3), seed: int = 0):
    return list(itertools.islice(batches.stream(density(), MemberStreams(seed, members)), num))


def rows_of(part: Tensor) -> Tensor:
    """Return which rows of the data the observations are."""
    return (part[..., None] == TARGET.data[1]).double().argmax(-1)


def test_all_rows_are_the_data_themselves() -> None:
    (batch,) = first(AllRows(), 1)
    assert all(part is whole for part, whole in zip(batch.data, TARGET.data, strict=True))
    assert batch.dims == (None, None)
    assert batch.row_weights is None


@pytest.mark.parametrize("batches", [MiniBatches(N), MiniBatches(N + 5), MemberBatches(N), batches_of(None)])
def test_batches_as_large_as_the_data_are_the_data(batches: Batches) -> None:
    assert first(batches, 1)[0].data[0] is TARGET.data[0]


def test_an_epoch_of_mini_batches_meets_each_row_at_most_once() -> None:
    size = 7
    found = first(MiniBatches(size), 2 * (N // size))
    epochs = [torch.cat([rows_of(b.data[1]) for b in part]) for part in (found[: N // size], found[N // size :])]
    for epoch in epochs:
        assert len(epoch.unique()) == len(epoch) == N - N % size
    assert not torch.equal(*epochs)
    for batch in found:
        assert torch.equal(batch.data[0], TARGET.data[0][rows_of(batch.data[1])])  # rows stay together


def test_shared_batches_do_not_depend_on_the_members() -> None:
    for one, other in zip(first(MiniBatches(7), 9), first(MiniBatches(7), 9, range(2, 3)), strict=True):
        assert torch.equal(one.data[1], other.data[1])


def test_members_have_orders_of_their_own_that_depend_on_their_number_alone() -> None:
    size = 8
    together = first(MemberBatches(size), 2 * (N // size))
    assert together[0].data[0].shape == (3, size, 3)
    assert together[0].dims == (0, 0)
    rows = torch.cat([rows_of(batch.data[1]) for batch in together], 1)
    assert all(len(epoch.unique()) == N - N % size for epoch in rows[:, : N - N % size])
    pairs = itertools.combinations(rows, 2)
    # independent permutations agree at a place with probability 1/N
    assert all((a == b).double().mean() < 1 / N + 5 * (1 / N / rows.shape[1]) ** 0.5 for a, b in pairs)
    for member in range(3):
        alone = first(MemberBatches(size), 2 * (N // size), range(member, member + 1))
        assert torch.equal(torch.cat([rows_of(b.data[1]) for b in alone], 1)[0], rows[member])
    assert not torch.equal(rows_of(first(MemberBatches(size), 1, seed=1)[0].data[1]), rows[:, :size])


def test_bootstrap_weights_are_counts_without_bias() -> None:
    members = range(4000)
    (batch,) = first(Bootstrap(), 1, members)
    weights = batch.row_weights
    assert weights.shape == (4000, N)
    assert (weights == weights.round()).all()
    assert (weights.sum(1) == N).all()
    mcse = ((1 - 1 / N) / len(members)) ** 0.5  # of a multinomial count: variance 1 - 1/N
    assert ((weights.mean(0) - 1).abs() < 5 * mcse).all()
    assert abs(weights.var() - (1 - 1 / N)) < 0.05


@pytest.mark.parametrize("inner", [MiniBatches(7), MemberBatches(7)])
def test_bootstrap_weights_belong_to_their_rows(inner: Batches) -> None:
    (whole,) = first(Bootstrap(), 1)
    for batch in first(Bootstrap(inner), 6):
        rows = rows_of(batch.data[1]).expand(3, 7)
        assert torch.equal(batch.row_weights, whole.row_weights.gather(1, rows))


def test_a_members_bootstrap_depends_on_its_number_alone() -> None:
    (together,), (alone,) = first(Bootstrap(), 1), first(Bootstrap(), 1, range(2, 3))
    assert torch.equal(together.row_weights[2:], alone.row_weights)


def test_refusals() -> None:
    def model(y: Tensor) -> None:
        mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
        pyro.sample("y", dist.Normal(mu, 1.0).expand([4]).to_event(1), obs=y)

    without_rows = build_density(model, torch.zeros(4))
    for batches in (MiniBatches(2), MemberBatches(2), Bootstrap(MiniBatches(2))):
        with pytest.raises(ValueError, match="no argument of the model has one row for each of its 1 observations"):
            batches.stream(without_rows, MemberStreams(0, range(1)))
    with pytest.raises(ValueError, match=r"MiniBatches\(size=0\): write 1 or more"):
        check_settings(MiniBatches(0))
