"""Ctrl-C in what a fit begins with ends the fit, where training takes it and returns what it has."""

from dataclasses import replace
from typing import Any

import pytest
import torch

import bnnzoo as bz
from bnnzoo.core.method import Method

LINE = bz.models.supervised(bz.models.mlp(1, ()), bz.priors.fan_in(1.0), bz.likelihoods.gaussian(0.3))
SHORT = bz.MAP(num_steps=20, polish_steps=0)


@pytest.mark.parametrize(
    ("method", "sentence"),
    [
        (bz.NUTS(num_chains=1, num_warmup=5, num_draws=5, init=SHORT), "Interrupted by MAP, at whose result the fit"),
        (bz.MeanFieldVI(num_steps=20, init=SHORT), "Interrupted by MAP, at whose result the fit"),
        (bz.LastLayerVI(below=SHORT), "LastLayerVI was interrupted before the weights that it holds fixed were found"),
        (bz.MixtureOf(bz.Laplace(map=SHORT), num_members=2), "before the modes of its components were found"),
    ],
    ids=["chains", "VI", "last layer", "mixture"],
)
def test_nothing_goes_on_from_a_part_that_was_interrupted(
    method: Method, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: bz.MAP, *args: Any) -> Any:
        found = run(self, *args)
        return replace(found, info=replace(found.info, complete=False))

    run = bz.MAP.run
    monkeypatch.setattr(bz.MAP, "run", interrupted)
    x = torch.linspace(-1.0, 1.0, 20)[:, None]
    with pytest.raises(KeyboardInterrupt, match=sentence):
        bz.fit(LINE, method, x, x[:, 0], progress=False)
