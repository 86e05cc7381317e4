"""Columns of large scale are pointed out, once, with their names."""

import warnings

import numpy as np
import pandas as pd
import pytest
import torch

import bnnzoo as bz
from bnnzoo.core.program.sites import ModelWarning

X = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
MODEL = bz.models.supervised(bz.models.mlp(3, (4,)), bz.priors.normal(1.0), bz.likelihoods.gaussian(1.0))
METHOD = bz.MAP(num_steps=2, polish_steps=0)
FRAME = pd.DataFrame(X.numpy(), columns=["age", "income", "height"]).assign(income=lambda f: 1e12 * f["income"])


@pytest.mark.parametrize(
    ("x", "y", "sentence"),
    [
        (FRAME, X[:, 0], r"^Data of large scale: column 1 \('income'\) of x has mean .*e\+1. and .*standardized\(\)"),
        (X + 5e3, X[:, 0], r"column 0 of x has mean 5e\+03 and standard deviation .*; column 1 of x .*; column 2 of x"),
        (X, 1e12 * X[:, 0], r"^Data of large scale: y has mean"),
        (np.rint(1e6 * X.numpy()).astype(int), X[:, 0], "column 0 of x has mean"),
    ],
    ids=["frame", "mean", "target", "whole numbers"],
)
def test_large_columns_are_pointed_out_once(x, y, sentence: str) -> None:
    with pytest.warns(ModelWarning, match=sentence) as caught:
        bz.fit(MODEL, METHOD, x, y)
    assert len(caught) == 1


def test_data_near_one_and_labels_are_passed_over() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bz.fit(MODEL, METHOD, 300 * X, X[:, 0])
