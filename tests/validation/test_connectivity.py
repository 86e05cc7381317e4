"""The line between two modes: a permuted copy of a network is behind a barrier that matching removes."""

import pytest
import torch

import bnnzoo as bz
from bnnzoo.core.posterior.info import FitInfo
from bnnzoo.core.posterior.posterior import Draws
from bnnzoo.validation import mode_connectivity


@pytest.fixture(scope="module")
def members() -> Draws:
    """A network and the same with its hidden units in another order and flipped."""
    x = torch.linspace(-1, 1, 20, dtype=torch.float64)[:, None]
    model = bz.models.supervised(bz.models.mlp(1, (4,), 1), bz.priors.fan_in(), bz.likelihoods.gaussian(0.1))
    fitted = bz.fit(model, bz.MAP(num_steps=300, polish_steps=0), x, torch.sin(3 * x[:, 0]), seed=0, progress=False)
    density, theta = fitted.density, fitted.draws()[0, 0]
    values = density.constrain(theta)
    order, signs = torch.tensor([2, 0, 3, 1]), torch.tensor([1.0, -1.0, -1.0, 1.0], dtype=theta.dtype)
    other = dict(values)
    other["net.0.weight"] = signs[:, None] * values["net.0.weight"][order]
    other["net.0.bias"] = signs * values["net.0.bias"][order]
    other["net.2.weight"] = values["net.2.weight"][:, order] * signs
    return Draws(density, FitInfo("ensemble", method="MAP"), torch.stack([theta, density.unconstrain(other)])[None])


def test_matching_removes_the_barrier(members: Draws) -> None:
    path = mode_connectivity(members, (0, 0), (0, 1), num_points=5)
    assert float(path["raw_barrier"]) > 1.0
    assert abs(float(path["matched_barrier"])) < 1e-8
    ends = [float(members.density.log_joint(theta, *members.density.data)) for theta in members.theta[0]]
    assert path["raw"].values[[0, -1]].tolist() == pytest.approx(ends)
    assert path["matched"].values[[0, -1]].tolist() == pytest.approx(ends)


def test_bad_input_is_named(members: Draws) -> None:
    with pytest.raises(ValueError, match=r"There is no draw 7 in chain 0: the draws are \(1, 2\)"):
        mode_connectivity(members, (0, 0), (0, 7))
    with pytest.raises(ValueError, match="num_points=2: write 3 or more"):
        mode_connectivity(members, (0, 0), (0, 1), num_points=2)


def test_trees_carry_the_order_of_the_layers(members: Draws) -> None:
    tree = bz.to_datatree(members)
    matched = bz.diagnostics.match_weights(tree, reference=(0, 0))
    assert float(matched["net.0.weight"].std("draw").max()) < 1e-12
