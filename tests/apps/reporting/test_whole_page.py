"""Whole pages of reports: what they show, how long they take, and how a browser shows them."""

import json
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

import bnnzoo as bz
from tests.helpers.trees import held_out, training

pytestmark = pytest.mark.slow

BROWSER = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
MAX_SECONDS, MAX_BYTES = 30, 10_000_000

# What the page itself tells after it has sorted its first table by the second column, down and up.
PROBE = """
<script>
addEventListener("load", () => {
  const table = document.querySelector("table"), head = table.tHead.rows[0].cells[1];
  const column = () => [...table.tBodies[0].rows].map(row => row.cells[1].textContent.trim());
  const sorted = [];
  for (let i = 0; i < 2; i++) { head.querySelector("button").click(); sorted.push(column()); }
  const told = {sorted, page: document.documentElement.scrollWidth, window: innerWidth,
    images: [...document.images].map(image => image.complete && image.naturalWidth > 0),
    requests: performance.getEntriesByType("resource").map(each => each.name.slice(0, 9))};
  parent.postMessage(JSON.stringify(told), "*");
});
</script>
"""
# A window has a least width, a frame has none.
FRAME = """
<!doctype html><title>nothing yet</title>
<script>addEventListener("message", event => document.title = event.data);</script>
<iframe src="probed.html" style="border: 0; width: {width}px; height: 900px"></iframe>
"""


@pytest.fixture(scope="module", params=["regression", "classification"])
def page(request, tmp_path_factory):
    """A page of five methods with a thousand test rows, and the processor time that it took."""
    names = ["nuts", "mfvi", "laplace", "swag", "ensemble"]
    trees = {name: held_out(request.param, num_draws=250, num_rows=1000, seed=i) for i, name in enumerate(names)}
    for tree in trees.values():
        tree.attrs |= {"engine": "compiled graph"}
    trees["mfvi"].attrs |= {
        "engine_reasons": f"native code: NoCompiler: /opt/{'compilers/' * 20}g++: it ends with status 1"
    }
    path = tmp_path_factory.mktemp("page") / "report.html"
    began = time.process_time()
    bz.report(trees, path, train=dict.fromkeys(names, training(250)))
    return path, time.process_time() - began


def test_five_methods_take_seconds_and_megabytes(page):
    path, seconds = page
    assert seconds < MAX_SECONDS
    assert path.stat().st_size < MAX_BYTES


def test_a_page_has_its_sections_and_asks_for_nothing(page):
    text = page[0].read_text()
    titles = re.findall(r"<h2>(.*?)</h2>", text)
    assert {"Findings", "Model", "Data", "Methods", "Convergence", "Calibration"} <= {*titles}
    assert {"Distance from nuts", "What is missing", "Code"} <= {*titles}
    assert not re.search(r"(src|href|srcset)=\"(?!data:|#)", text)
    assert "@import" not in text
    assert text.count("<figcaption>") == text.count("<figure>") > 4


@pytest.mark.browser
@pytest.mark.skipif(BROWSER is None, reason="needs Chromium or Chrome on the path (Debian: apt-get install chromium)")
@pytest.mark.parametrize("width", [390, 1280])
def test_a_browser_shows_and_sorts_it(page, width, tmp_path):
    (tmp_path / "probed.html").write_text(page[0].read_text().replace("</body>", PROBE + "</body>"))
    (tmp_path / "frame.html").write_text(FRAME.format(width=width).strip())
    told = told_by_browser(tmp_path / "frame.html", tmp_path)
    assert told["page"] <= told["window"] == width
    assert len(told["images"]) > 4
    assert all(told["images"])
    assert {*told["requests"]} <= {"data:imag"}
    up, down = ([float(text) for text in column] for column in told["sorted"])
    assert up == sorted(up)
    assert down == up[::-1]


def told_by_browser(path: Path, folder: Path) -> dict:
    """Return what the script above wrote to the title, of a browser that can resolve no host."""
    flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--host-resolver-rules=MAP * ~NOTFOUND",
    ]
    flags += [f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=10000"]
    command = [str(BROWSER), *flags, "--dump-dom", path.as_uri()]
    dom = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout
    return json.loads(re.search(r"<title>(.*?)</title>", dom, re.DOTALL)[1])
