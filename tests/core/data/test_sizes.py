"""How much memory is free: that of the machine, or of the container that the process runs in."""

from pathlib import Path

import pytest

from bnnzoo.core.data import sizes
from bnnzoo.core.data.sizes import free_memory, refuse_beyond_memory


@pytest.mark.parametrize(
    ("folder", "limit", "usage", "cached"),
    [
        ("", "memory.max", "memory.current", "inactive_file"),
        ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ],
)
def test_a_container_has_what_its_limit_leaves(
    folder: str, limit: str, usage: str, cached: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sizes, "GROUPS", tmp_path)
    whole = free_memory()
    assert whole is not None and whole > 2**24
    own = tmp_path / folder
    own.mkdir(exist_ok=True)
    for name, text in ((limit, "20000000\n"), (usage, "15000000\n"), ("memory.stat", f"anon 1\n{cached} 3000000\n")):
        (own / name).write_text(text)
    assert free_memory() == 8_000_000
    with pytest.raises(
        ValueError, match=r"^Two arrays take 0\.01 GB, but this machine has 0\.008 GB free\. Do less\.$"
    ):
        refuse_beyond_memory(1e7, "Two arrays", "Do less")
    (own / limit).write_text("max\n")
    assert free_memory() > 2**24
