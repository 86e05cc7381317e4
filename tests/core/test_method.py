"""What methods say of themselves, and what is taken of one that says nothing."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest
import torch

import bnnzoo as bz
from bnnzoo import inference
from bnnzoo.core.method import Declared, FitContext, Method, Need, declared, in_batches_of, spreads, starting_at
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.posterior.info import FitInfo
from bnnzoo.core.posterior.posterior import Draws
from bnnzoo.testing import linear_gaussian

METHODS = [
    each for name in inference.__all__ if isinstance(each := getattr(inference, name), type) and hasattr(each, "needs")
]
TARGET = linear_gaussian()


@dataclass(frozen=True)
class Point:
    """A method of a user's own that says nothing."""

    num_draws: int = 3
    needs: ClassVar[frozenset[Need]] = frozenset()

    def run(self, density: LogDensity, context: FitContext) -> Draws:
        return Draws(density, FitInfo("iid", num_gradients=0), density.init(1, 0)[None].expand(1, self.num_draws, -1))


@pytest.mark.parametrize("kind", METHODS, ids=lambda kind: kind.__name__)
def test_every_method_of_the_library_says_what_it_is_asked(kind: type) -> None:
    assert issubclass(kind, Declared)
    method: Any = kind() if kind is not inference.MixtureOf else kind(bz.Laplace())
    parts = {"num_chains", "num_members", "num_restarts"} & set(vars(method))
    assert ({method.parts} if method.parts else set()) == parts
    assert all(hasattr(getattr(method, name), "run") or getattr(method, name) is None for name in method.stages)
    assert (method.in_batches is not None) == hasattr(method, "batch_size")


def test_a_method_that_says_nothing_is_fitted() -> None:
    posterior = bz.fit(TARGET.model, Point(), *TARGET.data, progress=False)
    assert posterior.draws().shape == (1, 3, 3)
    assert not spreads(Point())
    assert declared(Point()).reads_all_rows() == (
        "use a method with batch_size=, such as MeanFieldVI(batch_size=256) or SGHMC()"
    )
    with pytest.raises(ValueError, match=r"Point cannot go on from a checkpoint; samplers of chains can, such as NUTS"):
        bz.fit(TARGET.model, Point(), *TARGET.data, progress=False, checkpoint="unwritten.zarr")
    with pytest.raises(ValueError, match=r"^Point\(\) cannot start at a given point\.$"):
        starting_at(Point(), torch.zeros(3), keep=True)


@pytest.mark.parametrize(
    ("method", "reason"),
    [
        (bz.MAP(), "write MAP(batch_size=256, polish_steps=0)"),
        (bz.MAP(batch_size=8, polish_steps=0), None),
        (bz.DeepEnsemble(held_out=0.1), "write DeepEnsemble(batch_size=256, held_out=0.0)"),
        (bz.MultiSWAG(), "write SWAG(init=MAP(batch_size=256, polish_steps=0))"),
        (bz.SGHMC(), None),
        (bz.SubsetVI(below=bz.MAP(batch_size=8, polish_steps=0)), "write MeanFieldVI(batch_size=256)"),
        (bz.Laplace(), "use a method with batch_size=, such as MeanFieldVI(batch_size=256) or SGHMC()"),
    ],
    ids=str,
)
def test_whether_all_rows_are_read(method: Method, reason: str | None) -> None:
    assert declared(method).reads_all_rows() == reason


def test_a_size_of_batches_reaches_every_stage() -> None:
    method = in_batches_of(bz.MultiSWAG(swag=bz.SWAG(init=bz.MAP())), 16)
    assert isinstance(method, bz.MultiSWAG)
    assert method.swag.batch_size == 16
    assert isinstance(method.swag.init, bz.MAP)
    assert method.swag.init.batch_size == 16
    with pytest.raises(ValueError, match=r"MAP\(batch_size=4\), but the DataLoader has batches of 16 rows"):
        in_batches_of(bz.MAP(batch_size=4), 16)


def test_parts_of_a_start_are_spread() -> None:
    assert spreads(bz.NUTS())
    assert spreads(bz.SWAG(init=bz.MAP()))
    assert not spreads(bz.SVI())


def test_a_start_that_is_a_mode_is_kept_and_another_is_polished() -> None:
    theta = torch.zeros(3)
    for method in (bz.Laplace(), bz.KFACLaplace(), bz.LastLayerLaplace()):
        kept, polished = (starting_at(method, theta, keep=keep) for keep in (True, False))
        assert (kept.map.polish_steps, polished.map.polish_steps) == (0, bz.MAP().polish_steps)
        assert kept.map.num_steps == polished.map.num_steps == 0
        assert torch.equal(kept.map.init, theta[None])
    assert starting_at(bz.HierarchicalLaplace(), theta, keep=True).laplace.map.polish_steps == 0
    started = starting_at(bz.MeanFieldVI(), theta, keep=True)
    assert torch.equal(started.init, theta[None])
    assert replace(started, init=None) == bz.MeanFieldVI()
