"""Figures are drawn in memory, and closed after every test of plots."""

from collections.abc import Iterator

import matplotlib.pyplot as plt
import pytest


@pytest.fixture(autouse=True)
def _close_figures() -> Iterator[None]:
    plt.switch_backend("agg")
    yield
    plt.close("all")
