"""The service of the gallery, started on the loopback and asked a thousand times from several threads."""

import http.client
import json
import runpy
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import bnnzoo as bz
from tests.helpers.asgi import asked, served

EXAMPLE = Path(__file__).parents[1] / "examples" / "models" / "plot_serving.py"
NUM_CLIENTS = 4


@pytest.mark.parametrize("requests", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_the_service_of_the_gallery_gives_what_predict_gives(requests: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), "--smoke"])
    example = runpy.run_path(str(EXAMPLE), run_name="service")
    rows = np.random.default_rng(0).normal(size=(requests, 1, 2)).tolist()
    expected = [example["predicted"](each) for each in rows[:20]]
    with served(example["app"]) as port:

        def client(number: int) -> list[dict]:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            try:
                found = [asked(connection, {"rows": each}) for each in rows[number::NUM_CLIENTS]]
            finally:
                connection.close()
            assert {status for status, _ in found} == {200}
            return [content for _, content in found]

        with ThreadPoolExecutor(NUM_CLIENTS) as pool:
            parts = list(pool.map(client, range(NUM_CLIENTS)))
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        for bad, sentence in (
            ({"rows": [[1.0]]}, "shape"),
            ({"rows": [[float("nan"), 0.0]]}, "nan at row 0"),
            ({}, "rows"),
        ):
            status, content = asked(connection, bad)
            assert status == 422 and sentence in content["error"]
        connection.close()
    answers = [parts[i % NUM_CLIENTS][i // NUM_CLIENTS] for i in range(requests)]
    assert answers[:20] == expected


def test_a_page_of_numbers_names_what_was_measured() -> None:
    """The numbers on the page are those of the committed run."""
    root = Path(__file__).parents[1]
    found = json.loads((root / "benchmarks" / "results" / "serving.json").read_text())
    page = (root / "docs" / "serving.md").read_text()
    for name in ("served_1_threads_1", "served_1000_threads_1", "tree_1_threads_1"):
        for quantile in ("p50", "p99"):
            assert f"{1e3 * found[name][quantile]:.3g}" in page, (name, quantile)
    assert bz.predict.__name__ in page
