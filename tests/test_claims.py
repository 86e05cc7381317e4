"""What is claimed of systems and versions is what is run."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_classifiers_name_the_system_and_the_python_that_tests_run_on() -> None:
    claimed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    found = {system for each in claimed if (system := each.partition("Operating System :: ")[2])}
    pythons = {version for each in claimed for version in re.findall(r"Python :: (3\.\d+)$", each)}
    assert found == {"POSIX :: Linux"} and pythons == {(ROOT / ".python-version").read_text().strip()}


def test_pages_say_what_was_not_run() -> None:
    for page in ("README.md", "docs/installation.md"):
        text = (ROOT / page).read_text()
        assert all(name in text for name in ("Linux with Python 3.12", "macOS", "Windows")), page
        assert re.search(r"not run|nothing was run", text), page
